"""An audit that stops as soon as its claim is refuted, and whose answer is valid wherever it stops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from audit.bounds.betting import AnytimeTest, Wealth, anytime_test, pilot_thresholds, spread_thresholds
from audit.policies.policy import Anytime, Cut, Goal, Side
from audit.trials import source
from audit.trials.source import Source, Tally
from audit.verdict.evidence import error_counts
from audit.verdict.verdict import Verdict, conclude
from guarantees.trade_off import TradeOff

SIDES: tuple[Side, Side] = ("above", "below")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnytimeTally(Tally):
    """Counts so far, with the state of the test at its last look."""

    wealth: Wealth


def fix_cuts(
    rule: Anytime, curve: TradeOff | None, pilot: tuple[np.ndarray, np.ndarray] | None, goal: Goal
) -> tuple[Cut, ...]:
    """The tests that share the wealth, fixed beforehand; from a pilot the direction is not known, so both are taken."""
    if pilot is None:
        assert curve is not None
        tests: list[tuple[int, float, Side]] = [
            (0, float(t), "above") for t in spread_thresholds(curve, rule.thresholds)
        ]
    else:
        tests = [
            (member, t, side)
            for member, scores in enumerate(zip(pilot[0].T, pilot[1].T, strict=True))
            for t in pilot_thresholds(*scores, rule.thresholds)
            for side in SIDES
        ]
    # float32 as the scores are; several that coincide would only be one test counted twice
    tests = list(dict.fromkeys((member, float(np.float32(t)), side) for member, t, side in tests if np.isfinite(t)))
    return tuple(
        Cut(target="anytime", member=member, threshold=t, rejects=side, risk=goal.risk / len(tests))
        for member, t, side in tests
    )


def tally_anytime(
    without: Source,
    with_record: Source,
    *,
    edges: np.ndarray,
    cuts: tuple[Cut, ...],
    goal: Goal,
    start: Tally | None = None,
    deadline: float | None = None,
    report: Callable[[Tally], None] = lambda _: None,
) -> AnytimeTally:
    """Count both sides until the claim is refuted, the planned trials are drawn or the deadline has passed.

    Looks come at trial numbers fixed beforehand (where bets change), so neither chunks nor interruptions change the
    outcome; ``start`` continues a count that ``report`` was given.
    """
    test = anytime_test(goal.claim, tests=len(cuts))
    done = _start(start, test, edges)
    while not test.rejected(done.wealth, goal.risk) and done.trials_per_side < goal.trials_per_side:
        wealth = done.wealth
        counted = source.tally(
            without,
            with_record,
            edges=edges,
            trials_per_side=min(wealth.next_refit, goal.trials_per_side),
            start=done,
            deadline=deadline,
            report=lambda tally, wealth=wealth: report(_with(tally, wealth)),
        )
        done = _with(counted, _look(test, wealth, counted, edges, cuts))
        if counted.trials_per_side < min(wealth.next_refit, goal.trials_per_side):
            break
    return done


def judge_anytime(tally: Tally, goal: Goal, *, tests: int) -> Verdict:
    """The verdict where the audit stopped; its p-value is ``1 / largest e-value``. [docs/validity.md, section 4]

    What would have been found is told for the Clopper-Pearson rectangle at ``risk / tests``, which needs more trials
    than this test does.
    """
    assert isinstance(tally, AnytimeTally)
    reason = f"the e-value against the claim passed 1/risk = {1 / goal.risk:.4g}; the audit stopped there."
    return conclude(
        goal.claim,
        refuted=reason if AnytimeTest.rejected(tally.wealth, goal.risk) else None,
        p=float(AnytimeTest.p_value(tally.wealth)),
        risk=goal.risk / tests,
        delta=goal.delta,
        trials_per_side=tally.trials_per_side,
    )


def _start(start: Tally | None, test: AnytimeTest, edges: np.ndarray) -> AnytimeTally:
    if start is None:
        return _with(source.empty_tally(edges), test.start())
    if not isinstance(start, AnytimeTally):
        raise ValueError("an anytime audit resumes from what its own progress reported, with the state of its test.")
    return start


def _with(tally: Tally, wealth: Wealth) -> AnytimeTally:
    return AnytimeTally(
        without=tally.without, with_record=tally.with_record, trials_per_side=tally.trials_per_side, wealth=wealth
    )


def _look(test: AnytimeTest, wealth: Wealth, tally: Tally, edges: np.ndarray, cuts: tuple[Cut, ...]) -> Wealth:
    """Play the trials since the last look."""
    trials = tally.trials_per_side - wealth.trials
    if trials == 0:
        return wealth
    counts = [error_counts(tally, edges, cut) for cut in cuts]
    return test.update_counts(
        wealth,
        trials=trials,
        false_alarms=np.array([c.false_alarms for c in counts]) - wealth.false_alarms,
        misses=np.array([c.misses for c in counts]) - wealth.misses,
    )
