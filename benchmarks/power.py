"""Trials to a verdict: the anytime test and the joint test in one run.

    python benchmarks/power.py [--runs 1000] [--seed 0]

Anytime: median and 80% quantile over simulated runs with ten thresholds spread beforehand over the mechanism's own
curve, looked at after every trial up to 500 and every 0.5% beyond. Joint: trials at which the best
threshold, known beforehand, has power 0.8. Risk 0.05. A run draws one uniform per side and trial: the
test at a threshold errs iff it falls below that threshold's exact error rate.
"""

from __future__ import annotations

import argparse

import numpy as np

import guarantees
from audit.bounds.betting import anytime_test, spread_thresholds
from audit.planning.plan import plan

GAUSSIAN = guarantees.gaussian(mu=1.0)
NO_NOISE = (np.zeros(10), np.zeros(10))


def cases():
    for factor in (0.9, 0.8, 0.5):
        curve = guarantees.gaussian(mu=1 / factor).curve
        yield f"sigma x {factor}", GAUSSIAN, curve, curve.errors(spread_thresholds(curve))
    yield "no noise", GAUSSIAN, [(0.0, 0.0)], NO_NOISE
    for name, normalise_by, records, dimension, rate in (
        ("EASGM N 4 n 100 q .05 sigma 10", "expected_batch", 4, 100, 0.05),
        ("FEASGM N 3 n 1000 q .5 sigma 10", "floored_expected_batch", 3, 1000, 0.5),
    ):
        curve = guarantees.normalised_round(
            normalise_by=normalise_by, records=records, dimension=dimension, rate=rate, noise_multiplier=10.0
        ).curve
        claim = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=10.0)
        yield name, claim, curve, curve.errors(spread_thresholds(curve))


def stopping_times(claim, rates, *, runs, rng, risk=0.05, most=100_000):
    """Trials at which each simulated run first rejects."""
    alpha, beta = rates
    test = anytime_test(claim, tests=len(alpha))
    wealth = test.start((runs,))
    stopped = np.full(runs, np.inf)
    while np.isinf(stopped).any() and wealth.trials < most:
        batch = 1 if wealth.trials < 500 else wealth.trials // 200
        without, with_record = rng.random((2, runs, batch, 1))
        wealth = test.update(wealth, without < alpha, with_record < beta)
        stopped = np.where(test.rejected(wealth, risk) & np.isinf(stopped), wealth.trials, stopped)
    return stopped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"| trials in all, risk .05, {options.runs} runs | anytime, median / 80% | joint, 80% |")
    print("|---|---|---|")
    for index, (name, claim, mechanism, rates) in enumerate(cases()):
        rng = np.random.default_rng([options.seed, index])
        times = stopping_times(claim, rates, runs=options.runs, rng=rng)
        planned = plan(claim, mechanism, trials=10_000, risk=0.05, delta=1e-5).refutation
        median, most = np.quantile(times, [0.5, 0.8])
        print(
            f"| {name} | {2 * median:.0f} / {2 * most:.0f} | {planned.joint_trials} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
