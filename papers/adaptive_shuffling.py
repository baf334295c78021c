"""Shuffled batches whose queries adapt: audits that refute the conjectured leak (docs/adaptive-shuffling.md).

    python -m papers.adaptive_shuffling "T 2"       # 4 million trials per side, half a minute on two cores
    python -m papers.adaptive_shuffling "T 10"      # 40 million; meant for a GPU
    python -m papers.adaptive_shuffling "T 100"     # a billion

One epoch, one record per batch, noise multiplier sigma, clipping norm 1. The differing record always answers 1 (or 0,
zeroed out); all others answer v, which is -1 or +1 and is chosen from the outputs so far. Two running sums decide
everything: of the density ratios of the outputs with the record in this slot, and of those without it.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import audit
import guarantees
import mechanisms
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.trade_off import TradeOff


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveTraining:
    """One epoch that releases its two running sums, a function of the transcript.

    ``turn`` says when the others answer +1: 'high' where the transcript speaks for the first side of the direction
    so strongly that the next output could only spoil it, 'low' where it speaks against it, 'never' for the control.
    """

    rounds: int
    noise_multiplier: float
    epsilon: float
    direction: str = "with_given_without"
    turn: str = "high"
    share: float = 0.5
    """Of the fall that is still to come in the sum: where, in this unit, the others turn."""

    name = "adaptive_training"
    kind = "vector"
    releases = "final"

    @property
    def parameters(self) -> dict[str, float | str]:
        """What it was given."""
        return dataclasses.asdict(self)

    def steps_on(self, dataset: jax.Array) -> int:
        """Every round."""
        return self.rounds

    def __call__(self, key: jax.Array, dataset: jax.Array) -> jax.Array:
        """Logs of the mean density ratios with and without the record, against outputs of the others alone."""
        sigma, place_key, noise_key = self.noise_multiplier, *jax.random.split(key)
        place = jax.random.randint(place_key, (), 0, self.rounds)
        answer = dataset[-1, 0]

        def ratio(y: jax.Array, mean: float, other: jax.Array) -> jax.Array:
            return jnp.exp((mean - other) * (y - (mean + other) / 2) / sigma**2)

        def play(sums: jax.Array, slot: jax.Array) -> tuple[jax.Array, None]:
            other = jnp.where(self.turned(sums, self.rounds - 1 - slot), 1.0, -1.0)
            noise = jax.random.normal(jax.random.fold_in(noise_key, slot))
            y = jnp.where(slot == place, answer, other) + sigma * noise
            return sums + jnp.stack([ratio(y, 1.0, other), ratio(y, 0.0, other)]), None

        sums, _ = jax.lax.scan(play, jnp.zeros(2), jnp.arange(self.rounds))
        return jnp.log(sums / self.rounds)

    def turned(self, sums: jax.Array, later: jax.Array) -> jax.Array:
        """Whether the others answer +1 in a slot that ``later`` others follow."""
        first, second = sums if self.direction == "with_given_without" else sums[::-1]
        total, fall = first - math.exp(self.epsilon) * second, math.expm1(self.epsilon)
        if self.turn == "high":
            return total > self.share * fall * later
        return (self.turn == "low") & (total < -self.share * fall * (later + 1))


def log_likelihood_ratio(release: jax.Array) -> jax.Array:
    """Exact: both sums are proportional to the densities of the transcript."""
    return release[0] - release[1]


def pair() -> mechanisms.Neighbours:
    """The record that answers 1, and the same record zeroed out."""
    return mechanisms.Neighbours(without=np.zeros((1, 1)), with_record=np.ones((1, 1)), relation="zero_out")


def conjectured(epsilon: float, with_given_without: float, without_given_with: float) -> guarantees.Claim:
    """All that a claim says at one epsilon: its delta in each direction."""
    grow, rest = math.exp(epsilon), np.array([1 - without_given_with, 1 - with_given_without])
    low, high = np.linalg.solve([[1.0, 1.0], [1 / grow, grow]], rest)
    law = DiscreteLaw(
        atoms=np.array([-np.inf, -epsilon, epsilon, np.inf]),
        without=np.array([without_given_with, low, high, 0.0]),
        with_record=np.array([0.0, low / grow, high * grow, with_given_without]),
    )
    given = {"epsilon": epsilon, "deltas": (with_given_without, without_given_with)}
    return guarantees.Claim(
        curve=TradeOff(law), name="at_one_epsilon", parameters=given, relation="zero_out", source="chua2024"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One audit and its control."""

    training: AdaptiveTraining
    trials: int
    """In total, half on each side."""


CASES = {
    "T 2": Case(training=AdaptiveTraining(rounds=2, noise_multiplier=1.0, epsilon=0.0), trials=8_000_000),
    "T 10": Case(training=AdaptiveTraining(rounds=10, noise_multiplier=3.0, epsilon=0.2), trials=80_000_000),
    "T 100": Case(
        training=AdaptiveTraining(
            rounds=100, noise_multiplier=1.0, epsilon=1.0, direction="without_given_with", turn="low", share=0.06
        ),
        trials=2_000_000_000,
    ),
}


def pair_deltas(training: AdaptiveTraining) -> dict[str, float]:
    """What the conjecture promises at the training's epsilon in each direction."""
    promised = guarantees.fixed_batch_shuffle(rounds=training.rounds, noise_multiplier=training.noise_multiplier)
    return {way: promised.delta(training.epsilon, way) for way in ("with_given_without", "without_given_with")}


def audited(training: AdaptiveTraining, *, trials: int, seed: int) -> audit.AuditRecord:
    """Judge one training against what the conjecture promises at its epsilon."""
    epsilon = training.epsilon
    # the curve's numerics are estimates, good to about 1e-7
    deltas = [delta + 1e-7 for delta in pair_deltas(training).values()]
    claim = conjectured(epsilon, *deltas) if epsilon else guarantees.epsilon_delta(epsilon=0.0, delta=max(deltas))
    return audit.run_audit(
        training,
        pair(),
        log_likelihood_ratio,
        claim=claim,
        trials=trials,
        risk=0.01,
        key=jax.random.key(seed),
        diagnose=False,
    )


def proven(record: audit.AuditRecord, training: AdaptiveTraining) -> float:
    """Delta at the case's epsilon and direction that the verdict's own limits of both error rates prove together."""
    grow = math.exp(training.epsilon)
    limits = [(one.alpha_upper, one.beta_upper) for one in record.points if one.target == "verdict"]
    if training.direction == "without_given_with":
        limits = [limit[::-1] for limit in limits]
    return max(0.0, *(1 - misses - grow * false_alarms for false_alarms, misses in limits))


def main() -> None:
    """Audit the cases named, each with its control: a row of docs/adaptive-shuffling.md for each."""
    print("| case | turned | promised | proven | p-value | verdict | trials per side | seconds |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in sys.argv[1:] or CASES:
        case = CASES[name]
        training = case.training
        promised = pair_deltas(training)[training.direction]
        for turn in (training.turn, "never"):
            start = time.monotonic()
            record = audited(dataclasses.replace(training, turn=turn), trials=case.trials, seed=26)
            found = proven(record, training)
            # limits of both error rates may prove nothing where the joint test of their counts refutes the claim
            alone = f"{found:.6g}" if found > promised else "–"
            shown = f"{promised:.6g} | {alone} | {record.p_value:.2g} | {record.verdict}"
            seconds = time.monotonic() - start
            print(f"| {name} | {turn} | {shown} | {case.trials // 2:,} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
