"""Bounds before and after, and beside a peer: N(1,1) against N(0,1), epsilon at delta 1e-5, 95%; the truth is 4.377.

    python benchmarks/bounds.py [--seeds 100] [--peer]

Counts are drawn from their binomial laws instead of counting scores; where scores are needed (`bound`) they are
drawn. 'before' are the procedures of 0.1.0, written out here. Medians over the seeds; 'verdict' is the share of the
seeds in which the claim mu = 0.98 (0.99 at 1e6 per side) is refuted. ``--peer`` runs jax_privacy (install it beside:
pip install jax-privacy) on its own nine test cases, its time and ours in one run.
"""

from __future__ import annotations

import argparse
import dataclasses
import time

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

import guarantees
from audit.bounds.betting import anytime_limits, spread_thresholds
from audit.bounds.clopper_pearson import ErrorCounts, clopper_pearson_upper
from audit.bounds.local_levels import band_from_scores
from audit.bounds.points import proven_delta, proven_epsilon, rectangles, refutes
from audit.goal import Goal
from audit.policies.anytime import Anytime
from audit.policies.candidates import RECTANGLE_OBJECTIVES, choose, from_curve
from audit.policies.chosen import FromTheory
from audit.risk import STOPPING_WEIGHTS, look_share, shared
from audit.scores import chosen_tests, from_scores
from audit.verdict.judgement import against_jointly
from audit.verdict.proven_numbers import against, prove, questions

TRUTH = guarantees.gaussian(mu=1.0)
DELTA, RISK = 1e-5, 0.05
ONE_THIRD = ("verdict", "epsilon", "delta")


def counted(rng: np.random.Generator, threshold: float, trials: int) -> ErrorCounts:
    """Counts of the likelihood-ratio test at a threshold."""
    alpha, beta = (float(np.squeeze(rate)) for rate in TRUTH.curve.errors(threshold))
    return ErrorCounts(
        false_alarms=int(rng.binomial(trials, alpha)),
        trials_without=trials,
        misses=int(rng.binomial(trials, beta)),
        trials_with=trials,
    )


def halves(question):
    """What 0.1.0 expected of a threshold: limits at half the risk each, at five quantiles of each count."""
    levels = np.array([0.1, 0.3, 0.5, 0.7, 0.9])[:, None]

    def expected(alpha, beta, goal):
        n = goal.trials_per_side
        a, b = (clopper_pearson_upper(binom.ppf(levels, n, rate), n, risk=goal.risk / 2) for rate in (alpha, beta))
        return question.through(a[:, None], b[None]).mean(axis=(0, 1))

    return expected


def default_before(goal):
    """Three targets from theory, a rectangle at a third of the risk each, halves on alpha and beta."""
    shared, asked = dataclasses.replace(goal, risk=goal.risk / 3), questions(DELTA)
    objectives = {**RECTANGLE_OBJECTIVES, **{name: halves(asked[name]) for name in ("epsilon", "delta")}}
    cuts = [choose(from_curve(TRUTH.curve), target, shared, objectives) for target in ONE_THIRD]

    def once(rng):
        counts = tuple(counted(rng, cut.threshold, goal.trials_per_side) for cut in cuts)
        return read_off(rectangles(counts, np.full(3, shared.risk)), goal)

    return once


def read_off(points, goal):
    """Epsilon, delta and whether the claim is refuted, off points that hold together."""
    epsilon, delta = max(proven_epsilon(points, delta=DELTA)), max(proven_delta(points, epsilon=0.0))
    return epsilon, delta, refutes(points, goal.claim)


def default_now(goal):
    """Verdict, epsilon and delta by joint inversions at their shares."""
    budget = shared(goal.risk, (*ONE_THIRD, "rest"))
    test = FromTheory().fix(TRUTH.curve, lambda _: None, goal)

    def once(rng):
        counts = {cut.target: (counted(rng, cut.threshold, goal.trials_per_side),) for cut in test.cuts}
        return numbers_and_verdict(counts, jointly(counts, budget, goal), budget.shares, goal, budget=budget)

    return once


def jointly(counts, budget, goal):
    """What the verdict's own test says against the claim."""
    return [against_jointly(counts["verdict"], goal.claim, risk=budget.verdict, for_excess=budget.for_excess)]


def numbers_and_verdict(counts, said, share, goal, *, budget=None):
    """Epsilon and delta by their own tests, and whether one of all statements refutes the claim."""
    asked = questions(DELTA)
    gained = budget.passed_on(refuted=any(one.refutes for one in said)) if budget else {}
    found = [
        prove(counts[name], asked[name], risk=share[name], passed_on=gained.get(name, 0.0)).at_least
        for name in ("epsilon", "delta")
    ]
    said = [*said, *(against(goal.claim, counts[name], asked[name], risk=share[name]) for name in ("epsilon", "delta"))]
    return (*found, any(one.refutes for one in said))


def bound_before(goal):
    """A band over all thresholds."""
    n = goal.trials_per_side

    def once(rng):
        sides = np.sort(rng.normal(size=n)), np.sort(rng.normal(size=n) + 1)
        return read_off(band_from_scores(*sides, risk=RISK).points, goal)

    return once


def bound_now(goal):
    """A tenth of the scores chooses, the joint inversion judges the others."""
    n, budget = goal.trials_per_side, shared(RISK, (*ONE_THIRD, "mu", "rest"), on_band=1.0)

    def once(rng):
        tests = chosen_tests((rng.normal(size=n), rng.normal(size=n) + 1), budget.shares, goal.claim, DELTA, 0)
        counts = {test.purpose: (test.counts,) for test in tests}
        return numbers_and_verdict(counts, jointly(counts, budget, goal), budget.shares, goal, budget=budget)

    return once


def anytime_before(goal):
    """Ten thresholds evenly spread, limits that hold at all trial numbers."""
    cuts = spread_thresholds(TRUTH.curve, 10)

    def once(rng):
        counts = tuple(counted(rng, t, goal.trials_per_side) for t in cuts)
        epsilon, delta, _ = read_off(anytime_limits(counts, np.full(10, RISK / 10)), goal)
        return epsilon, delta, float("nan")

    return once


def anytime_now(goal):
    """Thresholds and shares fixed for the looks that are planned; all trials were drawn."""
    share = shared(goal.risk, (*ONE_THIRD, "rest"), weights=STOPPING_WEIGHTS, on_band=0.0).shares
    last = {name: part * look_share(1, [1]) for name, part in share.items()}
    test = Anytime().fix(TRUTH.curve, lambda _: None, goal)

    def once(rng):
        counts = {cut.target: (counted(rng, cut.threshold, goal.trials_per_side),) for cut in test.cuts}
        epsilon, delta, _ = numbers_and_verdict(counts, [], last, goal)
        return epsilon, delta, float("nan")

    return once


ROWS = {
    "default (threshold from theory), before": default_before,
    "default, now": default_now,
    "`bound`, no threshold, before": bound_before,
    "`bound`, now": bound_now,
    "anytime, all planned trials, before": anytime_before,
    "anytime, now": anytime_now,
}


def table(seeds: int) -> None:
    """Medians of all procedures at 1e5 and 1e6 per side."""
    print("| procedure | epsilon, 1e5 per side | delta(0) | verdict | epsilon, 1e6 per side | delta(0) | verdict |")
    print("|---|---|---|---|---|---|---|")
    for name, procedure in ROWS.items():
        cells = []
        for trials, mu in ((10**5, 0.98), (10**6, 0.99)):
            goal = Goal(claim=guarantees.gaussian(mu=mu), delta=DELTA, trials_per_side=trials, risk=RISK)
            once = procedure(goal)
            found = np.array([once(np.random.default_rng(seed)) for seed in range(seeds)], float)
            power = "" if np.isnan(found[0, 2]) else f"{found[:, 2].mean():.2f}"
            cells += [f"{np.median(found[:, 0]):.3f}", f"{np.median(found[:, 1]):.4f}", power]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def normal_quantiles(mu: float, count: int) -> np.ndarray:
    """The scores of jax_privacy's own tests."""
    return ndtri(np.linspace(0, 1, count, endpoint=False) + 1 / (2 * count)) + mu


def peer(*, quick: bool) -> None:
    """jax_privacy's nine cases: delta .1, risk .2, 2e6 scores with the record; its strategies and ours.

    MultiSplit does a hundred times the work of Split; ``quick`` is one case without it.
    """
    from jax_privacy import auditing

    def timed(job):
        began = time.process_time()
        return job(), time.process_time() - began

    print("| mu | scores without | truth | Explicit | Split | MultiSplit | ours | CPU s, theirs (Split) / ours |")
    print("|---|---|---|---|---|---|---|---|")
    for mu in (1.0,) if quick else (0.3, 1.0, 1.5):
        truth = guarantees.gaussian(mu=mu)
        best = float(np.squeeze(truth.curve.llr_threshold(best_rate(truth)))) / mu + mu / 2
        for without in (10**6,) if quick else (10**6, 2 * 10**6, 3 * 10**6):
            zero, one = normal_quantiles(0.0, without), normal_quantiles(mu, 2 * 10**6)

            def theirs(strategy, zero=zero, one=one):
                auditor = auditing.CanaryScoreAuditor(one, zero)
                return float(auditor.epsilon_clopper_pearson(0.2, 0.1, threshold_strategy=strategy))

            explicit = theirs(auditing.Explicit(best))
            split, their_time = timed(lambda theirs=theirs: theirs(auditing.Split(seed=0)))
            multi = "" if quick else f"{theirs(auditing.MultiSplit(seed=0)):.4f}"
            ours, our_time = timed(
                lambda zero=zero, one=one: from_scores(zero, one, risk=0.2, delta=0.1, target="epsilon").epsilon(0.1)
            )
            print(
                f"| {mu} | {without:,} | {float(truth.epsilon(0.1)):.4f} | {explicit:.4f} | {split:.4f} | "
                f"{multi} | {ours:.4f} | "
                f"{their_time:.1f} / {our_time:.1f} |",
                flush=True,
            )


def best_rate(truth) -> float:
    """The false-alarm rate at which epsilon at delta .1 is attained."""
    alpha = np.linspace(1e-3, 0.9, 20_000)
    return float(alpha[np.argmax(np.log(np.maximum(1 - truth.beta(alpha) - 0.1, 1e-12) / alpha))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one case of --peer, without MultiSplit")
    arguments = parser.parse_args()
    if arguments.peer:
        peer(quick=arguments.quick)
    else:
        table(arguments.seeds)


if __name__ == "__main__":
    main()
