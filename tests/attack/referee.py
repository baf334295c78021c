"""A hostile referee of the shuffling page: ``python -m attack.referee SEED SECONDS``, from ``tests``.

Random noise multipliers, rounds and epochs over the documented range of ``adaptive_shuffle`` and ``fixed_batch_upper``.
What surely leaks must lie below what is guaranteed, both must be numbers, fall with epsilon, with noise and with rounds
and grow with epochs, and one epsilon may take ten seconds. A line of JSON per draw, its faults listed.
"""

from __future__ import annotations

import json
import math
import sys
import time

import numpy as np

import guarantees
from guarantees.trade_off import TradeOff

WAYS = ("with_given_without", "without_given_with")
DELTAS = (1e-3, 1e-5, 1e-7)
SLOW = 10.0
SEARCH = 0.03
"""A guarantee is the best of some free numbers: it may rise by so much, relatively, where the truth falls."""


class Draw:
    """One setting, and what is wrong with it."""

    def __init__(self, rng):
        self.sigma = float(np.round(np.exp(rng.uniform(math.log(0.2), math.log(12.0))), 4))
        self.rounds = int(np.exp(rng.uniform(math.log(2), math.log(10_000))))
        self.epochs = int(rng.choice([2, 3, 10, 50]))
        self.place = rng.uniform(0, 1.2, 3)
        self.faults: list[str] = []
        self.seconds: dict[str, float] = {}
        self.compared = 0

    def timed(self, name, compute):
        began = time.process_time()
        try:
            return compute()
        except Exception as error:
            self.faults.append(f"{name} raised {type(error).__name__}: {error}")
            return None
        finally:
            self.seconds[name] = round(time.process_time() - began, 2)

    def upper(self, **changed):
        given = {"rounds": self.rounds, "noise_multiplier": self.sigma, **changed}
        return guarantees.fixed_batch_upper(**given)

    def check(self, name, holds, *values):
        self.compared += 1
        if not holds:
            self.faults.append(f"{name}: {', '.join(f'{value:.6g}' for value in values)}")

    def one_epoch(self):
        upper = self.upper()
        leak = guarantees.adaptive_shuffle(rounds=self.rounds, noise_multiplier=self.sigma)
        proven = TradeOff(leak.certificate.leaked) if self.rounds > 1 else leak.curve
        most = self.timed("upper epsilon", lambda: [float(upper.epsilon(delta)) for delta in DELTAS])
        least = self.timed("leak epsilon", lambda: float(leak.epsilon(1e-5)))
        if most is None or least is None:
            return
        self.check("epsilon grows as delta falls", most[0] <= most[1] <= most[2], *most)
        self.check("leaked epsilon at most the guaranteed", least <= most[1] * (1 + 1e-6) + 1e-6, least, most[1])
        order = float(guarantees.deterministic_batches(noise_multiplier=self.sigma).epsilon(1e-5))
        self.check("guarantee at most the fixed order's", most[1] <= order * (1 + 1e-5), most[1], order)
        epsilons = np.sort(np.append(0.0, self.place * most[1]))
        for way in WAYS:
            high = self.timed(f"upper delta {way}", lambda way=way: [float(upper.delta(e, way)) for e in epsilons])
            low = self.timed(f"leak delta {way}", lambda way=way: [float(proven.delta(e, way)) for e in epsilons])
            if high is None or low is None:
                continue
            for e, a, b in zip(epsilons, low, high, strict=True):
                self.check(f"a rate in [0, 1] {way}", 0 <= a <= 1 and 0 <= b <= 1, e, a, b)
                self.check(f"leak at most guarantee {way}", a <= b, e, a, b)
            self.check(f"guarantee falls with epsilon {way}", np.all(np.diff(high) <= 1e-12), *high)
            self.check(f"leak falls with epsilon {way}", np.all(np.diff(low) <= 1e-12), *low)

    def neighbours(self):
        """More noise, more rounds: less is promised to leak."""
        here = self.timed("here", lambda: float(self.upper().epsilon(1e-5)))
        for name, changed in (
            ("noise", {"noise_multiplier": 1.3 * self.sigma}),
            ("rounds", {"rounds": 2 * self.rounds}),
        ):
            other = self.timed(f"more {name}", lambda changed=changed: float(self.upper(**changed).epsilon(1e-5)))
            if here is not None and other is not None:
                self.check(f"guarantee falls with {name}", other <= here * (1 + SEARCH), here, other)

    def several_epochs(self):
        many = self.timed("upper epochs", lambda: float(self.upper().compose(self.epochs).epsilon(1e-5)))
        one = self.timed("upper again", lambda: float(self.upper().epsilon(1e-5)))
        leak = self.timed(
            "leak epochs",
            lambda: guarantees.adaptive_shuffle(
                rounds=self.rounds, noise_multiplier=self.sigma, epochs=self.epochs
            ).epsilon_range(1e-5),
        )
        if None in (many, one, leak):
            return
        self.check("guarantee grows with epochs", one <= many * (1 + 1e-9), one, many)
        self.check(
            "leaked at most guaranteed over epochs", leak.at_least <= many * (1 + 1e-6) + 1e-6, leak.at_least, many
        )

    def judge(self):
        self.one_epoch()
        self.neighbours()
        self.several_epochs()
        slow = {name: spent for name, spent in self.seconds.items() if spent > SLOW}
        return {
            "sigma": self.sigma,
            "rounds": self.rounds,
            "epochs": self.epochs,
            "compared": self.compared,
            "faults": self.faults,
            "slow": slow,
            "seconds": round(sum(self.seconds.values()), 1),
        }


def main(seed: int, seconds: float) -> None:
    began, rng = time.monotonic(), np.random.default_rng(seed)
    while time.monotonic() - began < seconds:
        print(json.dumps(Draw(rng).judge()), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
