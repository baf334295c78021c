"""An audit that stops as soon as its claim is refuted, and is valid whenever it stops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from audit.bounds.betting import (
    AnytimeTest,
    Wealth,
    anytime_limits,
    anytime_test,
    looks,
    pilot_thresholds,
    refit_after,
    spread_thresholds,
)
from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.bounds.points import refutes
from audit.goal import Goal
from audit.policies.candidates import Candidates, choose, from_curve, from_fit, grid
from audit.policies.policy import TARGETS, Cut, Finding, FitScores, Policy, Rejects, Test, error_counts
from audit.policies.statements import tests_of
from audit.risk import STOPPING_WEIGHTS, RiskBudget, look_share, shared
from audit.trials import source
from audit.trials.source import Source, Tally
from audit.verdict.judgement import Against, against_points, judge_statements
from audit.verdict.proven_numbers import against, prove, questions
from audit.verdict.violated import by_counts, by_points
from guarantees.checks import checked, require
from guarantees.trade_off import TradeOff

DIRECTIONS: tuple[Rejects, Rejects] = ("above", "below")


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Anytime(Policy):
    """Look again and again and stop once the claim is refuted: several thresholds per score, fixed beforehand.

    They come from theory where the distinguisher knows its curve, otherwise from pilot trials that are thrown away. The
    verdict is valid whenever it stops; counts of a stopped audit are not a fixed sample and cannot be compared.

    Args:
      thresholds: how many thresholds per score, even.
      pilot_trials: outputs that place them where no curve is known; even, at least 20.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import audit
      >>> audit.Anytime().stops_early
      True
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
        """Fix the tests that share the wealth, including those best for epsilon and delta after all planned trials.

        A pilot does not show the direction of the others, so that both are taken.
        """
        if curve is not None:
            candidates, spread, fit_trials = from_curve(curve), _from_theory(curve, self.thresholds), 0
        else:
            pilot = fit_scores(self.pilot_trials)
            candidates, spread, fit_trials = from_fit(*pilot), _from_pilot(pilot, self.thresholds), 2 * len(pilot[0])
        budget = self.budget((), goal)
        cuts = _cuts(candidates, spread, goal, budget)
        edges = grid(candidates, cuts)
        return Test(cuts=self.settle(cuts, edges, budget), edges=edges, fit_trials=fit_trials, budget=budget)

    def budget(self, cuts: tuple[Cut, ...], goal: Goal) -> RiskBudget:
        """Spend most of the risk on the verdict; the band consists of the points."""
        del cuts
        return shared(goal.risk, (*TARGETS, "rest"), weights=STOPPING_WEIGHTS, on_band=0.0)

    def settle(self, cuts: tuple[Cut, ...], edges: np.ndarray, budget: RiskBudget) -> tuple[Cut, ...]:
        """Give every cut an even share of the risk that the verdict and the numbers leave."""
        del edges
        share = budget.points / len(cuts)
        return tuple(dataclasses.replace(cut, risk=share, on_alpha=0.5) for cut in cuts)

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

        Looks come at trial numbers fixed beforehand (where bets change), so that neither chunks nor interruptions
        change the outcome. The state of a tally is the wealth at the last look.
        """
        bets, share = anytime_test(goal.claim, tests=len(test.cuts)), test.budget.verdict
        done = start or _with(source.empty_tally(test.edges), bets.start())
        wealth = _wealth(done)
        while not bets.rejected(wealth, share) and done.trials_per_side < goal.trials_per_side:
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

    def state_of(self, tally: Tally, test: Test) -> Mapping[str, Any]:
        """The wealth, computed from the counts where it follows from them; only earlier values are kept."""
        wealth, counts = _wealth(tally), error_counts(tally, test)
        from_counts = {
            "false_alarms": np.array([c.false_alarms for c in counts]),
            "misses": np.array([c.misses for c in counts]),
        }
        if wealth.refit_trials == tally.trials_per_side:
            from_counts |= {f"refit_{name}": value for name, value in from_counts.items()}
        state = dataclasses.replace(
            wealth, trials=tally.trials_per_side, next_refit=refit_after(wealth.refit_trials), **from_counts
        )
        return state.to_json()

    def judge(self, tally: Tally, test: Test, goal: Goal) -> Finding:
        """Judge where the audit stopped, by ``1 / largest e-value``, and prove the numbers at the last look.

        [docs/validity.md, sections 4 and 15] What would have been found is stated for the Clopper-Pearson rectangle at
        an even share of the tests, which needs more trials. Other questions are answered by limits that hold at all
        trial numbers at once; the band is those points.
        """
        wealth, budget, share = _wealth(tally), test.budget, test.budget.shares
        counts = error_counts(tally, test)
        risks = np.array([cut.risk for cut in test.cuts])

        def points_at(risk: float) -> tuple[Limits, ...]:
            return anytime_limits(counts, risks * (risk / risks.sum()))

        points = points_at(float(risks.sum()))
        strongest, point_refutes = counts[int(np.argmax(wealth.refit_log_wealth))], refutes(points, goal.claim)
        statements = [
            Against(
                reason=_passed(budget.verdict),
                p_value=float(AnytimeTest.p_value(wealth)),
                risk=budget.verdict,
                # The limits are another statement, which holds beside this one.
                at=lambda: by_points(points, goal.claim) if point_refutes else by_counts(strongest, goal.claim),
                proves="point" if point_refutes else "curve",
            ),
            against_points(points_at, goal.claim, risk=float(risks.sum())),
        ]
        last_counts, spent = _last_look(wealth, test, goal)
        # The e-value proves no excess, so that epsilon gets the whole share of a verdict that refuted the claim.
        passed_on = {"epsilon": budget.verdict} if statements[0].refutes else {}
        numbers = []
        for name, question in questions(goal.delta).items():
            if name in share and last_counts:
                tests, gain = tests_of(name, test, last_counts), passed_on.get(name, 0.0) * spent
                statements.append(against(goal.claim, tests, question, risk=share[name] * spent, passed_on=gain))
                numbers.append(prove(tests, question, risk=share[name] * spent, passed_on=gain))
        judgement = judge_statements(
            tuple(statements),
            goal.claim,
            risk=budget.risk,
            deciding=budget.verdict / len(test.cuts),
            delta=goal.delta,
            trials_per_side=tally.trials_per_side,
            jointly=False,
        )
        return Finding(
            judgement=judgement,
            counts=counts,
            points=points,
            band=points,
            band_risk=budget.points,
            numbers=tuple(numbers),
        )


def _passed(share: float) -> str:
    """The reason of a violation by the e-value."""
    return f"the e-value against the claim passed 1/risk = {1 / share:.4g}; the audit stopped there."


def _last_look(wealth: Wealth, test: Test, goal: Goal) -> tuple[tuple[ErrorCounts, ...], float]:
    """The counts at the last look, and the share of a number's risk that it has."""
    planned = looks(goal.trials_per_side)
    now = wealth.trials == planned[-1]
    trials = wealth.trials if now else wealth.refit_trials
    if trials == 0:
        return (), 0.0
    alarms, misses = (wealth.false_alarms, wealth.misses) if now else (wealth.refit_false_alarms, wealth.refit_misses)
    counts = tuple(
        ErrorCounts(false_alarms=int(a), trials_without=trials, misses=int(m), trials_with=trials)
        for a, m in zip(alarms, misses, strict=True)
    )
    return counts, look_share(trials, planned)


def _from_theory(curve: TradeOff, count: int) -> list[tuple[int, float, Rejects]]:
    """Thresholds spread over an exact curve."""
    return [(0, float(t), "above") for t in spread_thresholds(curve, count)]


def _from_pilot(pilot: tuple[np.ndarray, np.ndarray], count: int) -> list[tuple[int, float, Rejects]]:
    """Thresholds spread over the scores of a pilot."""
    return [
        (member, float(t), rejects)
        for member, scores in enumerate(zip(pilot[0].T, pilot[1].T, strict=True))
        for t in pilot_thresholds(*scores, count)
        for rejects in DIRECTIONS
    ]


def _cuts(
    candidates: Candidates, spread: list[tuple[int, float, Rejects]], goal: Goal, budget: RiskBudget
) -> tuple[Cut, ...]:
    """The tests for single numbers, and those spread over the scores."""
    share = budget.shares
    # The numbers' own tests first, for the look after the last planned trial.
    for_numbers = [
        choose(candidates, target, dataclasses.replace(goal, risk=share[target] / 2))
        for target in TARGETS
        if target != "verdict"
    ]
    spread_cuts = [
        Cut(target="anytime", member=member, threshold=t, rejects=rejects, risk=0.0)
        for member, t, rejects in spread
        if np.isfinite(t)
    ]
    # float32 as the scores are; a spread one that coincides with another would only be one test counted twice
    distinct: dict[tuple[int, float, Rejects], Cut] = {}
    for cut in spread_cuts:
        rounded = dataclasses.replace(cut, threshold=float(np.float32(cut.threshold)))
        distinct.setdefault((rounded.member, rounded.threshold, rounded.rejects), rounded)
    return (*for_numbers, *distinct.values())


def _with(tally: Tally, wealth: Wealth) -> Tally:
    """The tally with a wealth as its state."""
    return dataclasses.replace(tally, state=wealth.to_json())


def _wealth(tally: Tally) -> Wealth:
    """The wealth that a tally carries."""
    if not tally.state:
        raise ValueError(
            "an anytime audit resumes only from progress that it reported itself, with the state of its test."
        )
    return Wealth.from_json(tally.state)


def _look(bets: AnytimeTest, wealth: Wealth, tally: Tally, test: Test) -> Wealth:
    """The wealth after betting on the trials since the last look."""
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
