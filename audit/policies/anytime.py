"""An audit that stops as soon as its claim is refuted, and whose answer is valid wherever it stops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from audit.bounds.anytime_limits import anytime_limits
from audit.bounds.betting import AnytimeTest, Wealth, anytime_test, pilot_thresholds, spread_thresholds
from audit.policies.candidates import from_curve, from_fit, grid
from audit.policies.policy import Cut, Finding, FitScores, Policy, Rejects, Test, error_counts
from audit.trials import source
from audit.trials.source import Source, Tally
from audit.verdict.goal import Goal
from audit.verdict.judgement import conclude
from guarantees.checks import require
from guarantees.trade_off import TradeOff

DIRECTIONS: tuple[Rejects, Rejects] = ("above", "below")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Anytime(Policy):
    """Look again and again and stop once the claim is refuted: several thresholds a score, fixed beforehand.

    They come from theory where the distinguisher knows its curve, otherwise from pilot trials that are thrown away.
    """

    thresholds: int = 10
    pilot_trials: int = 200
    kind: str = "anytime"
    stops_early: ClassVar[bool] = True

    def __post_init__(self):
        require("thresholds", self.thresholds >= 2 and self.thresholds % 2 == 0, "even and >= 2", self.thresholds)
        pilot = self.pilot_trials
        require("pilot_trials", pilot >= 20 and pilot % 2 == 0, "even and >= 20", pilot)

    def fix(self, curve: TradeOff | None, fit_scores: FitScores, goal: Goal) -> Test:
        """The tests that share the wealth; from a pilot the direction is not known, so both are taken."""
        if curve is not None:
            cuts = _cuts(_from_theory(curve, self.thresholds), goal)
            return Test(cuts=cuts, edges=grid(from_curve(curve), cuts), fit_trials=0)
        pilot = fit_scores(self.pilot_trials)
        cuts = _cuts(_from_pilot(pilot, self.thresholds), goal)
        return Test(cuts=cuts, edges=grid(from_fit(*pilot), cuts), fit_trials=self.pilot_trials)

    def count(
        self,
        sides: tuple[Source, Source],
        test: Test,
        goal: Goal,
        *,
        start: Tally | None = None,
        deadline: float | None = None,
        report: Callable[[Tally], None] = lambda _: None,
    ) -> Tally:
        """Count both sides until the claim is refuted, the planned trials are drawn or the deadline has passed.

        Looks come at trial numbers fixed beforehand (where bets change), so neither chunks nor interruptions change
        the outcome. What a tally carries as its state is the wealth at the last look.
        """
        bets = anytime_test(goal.claim, tests=len(test.cuts))
        done = start or _with(source.empty_tally(test.edges), bets.start())
        wealth = _wealth(done)
        while not bets.rejected(wealth, goal.risk) and done.trials_per_side < goal.trials_per_side:
            look = min(wealth.next_refit, goal.trials_per_side)
            counted = source.tally(
                *sides,
                edges=test.edges,
                trials_per_side=look,
                start=done,
                deadline=deadline,
                report=lambda tally, wealth=wealth: report(_with(tally, wealth)),
            )
            wealth = _look(bets, wealth, counted, test)
            done = _with(counted, wealth)
            if counted.trials_per_side < look:
                break
        return done

    def judge(self, tally: Tally, test: Test, goal: Goal) -> Finding:
        """The verdict where the audit stopped; its p-value is ``1 / largest e-value``. [docs/validity.md, section 4]

        What would have been found is stated for the Clopper-Pearson rectangle at ``risk / tests``, which needs more
        trials than this test does. The band is the points: one over all thresholds would need a fixed sample.
        """
        wealth = _wealth(tally)
        reason = f"the e-value against the claim passed 1/risk = {1 / goal.risk:.4g}; the audit stopped there."
        judgement = conclude(
            goal.claim,
            refuted=reason if AnytimeTest.rejected(wealth, goal.risk) else None,
            p=float(AnytimeTest.p_value(wealth)),
            risk=goal.risk / len(test.cuts),
            delta=goal.delta,
            trials_per_side=tally.trials_per_side,
        )
        counts = error_counts(tally, test)
        points = anytime_limits(counts, np.array([cut.risk for cut in test.cuts]))
        return Finding(judgement=judgement, counts=counts, points=points, band=points)


def _from_theory(curve: TradeOff, count: int) -> list[tuple[int, float, Rejects]]:
    return [(0, float(t), "above") for t in spread_thresholds(curve, count)]


def _from_pilot(pilot: tuple[np.ndarray, np.ndarray], count: int) -> list[tuple[int, float, Rejects]]:
    return [
        (member, float(t), rejects)
        for member, scores in enumerate(zip(pilot[0].T, pilot[1].T, strict=True))
        for t in pilot_thresholds(*scores, count)
        for rejects in DIRECTIONS
    ]


def _cuts(tests: list[tuple[int, float, Rejects]], goal: Goal) -> tuple[Cut, ...]:
    # float32 as the scores are; several that coincide would only be one test counted twice
    distinct: dict[tuple[int, float, Rejects], None] = {
        (member, float(np.float32(t)), rejects): None for member, t, rejects in tests if np.isfinite(t)
    }
    share = goal.risk / len(distinct)
    return tuple(
        Cut(target="anytime", member=member, threshold=t, rejects=rejects, risk=share)
        for member, t, rejects in distinct
    )


def _with(tally: Tally, wealth: Wealth) -> Tally:
    return dataclasses.replace(tally, state=wealth.to_json())


def _wealth(tally: Tally) -> Wealth:
    if not tally.state:
        raise ValueError("an anytime audit resumes from what its own progress reported, with the state of its test.")
    return Wealth.from_json(tally.state)


def _look(bets: AnytimeTest, wealth: Wealth, tally: Tally, test: Test) -> Wealth:
    """Play the trials since the last look."""
    trials = tally.trials_per_side - wealth.trials
    if trials == 0:
        return wealth
    counts = error_counts(tally, test)
    return bets.update_counts(
        wealth,
        trials=trials,
        false_alarms=np.array([c.false_alarms for c in counts]) - wealth.false_alarms,
        misses=np.array([c.misses for c in counts]) - wealth.misses,
    )
