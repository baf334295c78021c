"""Opacus as installed: seconds from the start to 'violation', and how often its right settings are accused.

python benchmarks/opacus_library.py [--repetitions 20] [--trials 1000]
"""

from __future__ import annotations

import argparse
import time

BEGAN = time.monotonic()

import jax  # noqa: E402
import numpy as np  # noqa: E402

import audit  # noqa: E402
import mechanisms  # noqa: E402
from audit.bounds.betting import anytime_test, pilot_thresholds  # noqa: E402
from audit.trials.both_sides import both_sides  # noqa: E402
from distinguishers import battery  # noqa: E402

CLIP, NOISE, RISK, PILOT = 0.1, 10.0, 0.05, 200
PAIR = mechanisms.worst_case_pair(records=3, dimension=100, clip=CLIP)


def first_violation() -> None:
    step = mechanisms.opacus_step(batch_size=2, clip=CLIP, noise_multiplier=NOISE)
    claim = mechanisms.opacus_claim(step, PAIR, accountant="rdp", deltas=(1e-5,))
    ready = time.monotonic() - BEGAN
    record = audit.run_audit(
        step, PAIR, battery(PAIR), claim=claim, trials=400, risk=RISK, key=jax.random.key(0), target="verdict"
    )
    print(f"{claim.source}: {record.verdict}, {record.trials} trials and {record.fit_trials} to choose thresholds,")
    print(f"{time.monotonic() - BEGAN:.1f} s from the start, of which {ready:.1f} s imports and the accountant.")


def false_alarms(repetitions: int, trials: int) -> int:
    """Audits of loss_reduction='sum', looked at after every trial, that say 'violation'."""
    step = mechanisms.opacus_step(batch_size=2, clip=CLIP, noise_multiplier=NOISE, loss_reduction="sum")
    programs = both_sides(step, PAIR).scored(battery(PAIR))
    keys = jax.random.split(jax.random.key(1), (2, 2))
    pilot = [program.source(key).scores(0, PILOT) for program, key in zip(programs, keys[0], strict=True)]
    members = pilot[0].shape[1]
    thresholds = np.stack([pilot_thresholds(pilot[0][:, m], pilot[1][:, m]) for m in range(members)])
    claim = mechanisms.opacus_claim(step, PAIR, accountant="rdp", deltas=(1e-5,))
    test = anytime_test(claim, tests=thresholds.size, both_ways=True)
    side = trials // 2
    scores = [
        program.source(key).scores(0, repetitions * side).reshape(repetitions, side, members)
        for program, key in zip(programs, keys[1], strict=True)
    ]
    alarm = (scores[0][..., None] > thresholds).reshape(repetitions, side, -1)
    miss = (scores[1][..., None] <= thresholds).reshape(repetitions, side, -1)
    return int(np.sum(test.rejected(test.update(test.start((repetitions,)), alarm, miss), RISK)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repetitions", type=int, default=20)
    options.add_argument("--trials", type=int, default=1000)
    given = options.parse_args()
    first_violation()
    accused = false_alarms(given.repetitions, given.trials)
    print(f"loss_reduction='sum': accused in {accused} of {given.repetitions} audits of {given.trials} trials.")


if __name__ == "__main__":
    main()
