"""Compare two sets of records: whether leakage changed, by an exact test for each pair, with one risk for all."""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.stats import fisher_exact, hypergeom

from audit.bounds.clopper_pearson import require_risk
from audit.record.record import AuditRecord, ScoreGrid
from guarantees.checks import Share, checked

State = Literal["worse", "better", "no_change_shown", "not_compared", "added", "missing"]
REMEDY = "fix the thresholds (policy from_theory or fixed), or run the new audit with --like OLD.json"
NO_TEST = f"the two grids of scores have no threshold in common; {REMEDY}"
BLIND = (
    "the thresholds that both records have in common could not show a change: (nearly) all scores lie on one side of "
    f"them, as those of a score that is always the same do; {REMEDY}"
)
ONE_SEED = "both runs drew under the same key, which may hide a change; run the new one with --fresh-seed"
SEES_LESS = (
    "the thresholds that both records have in common miss most of the leak: there the observed advantage is {:.4f} "
    f"before and {{:.4f}} now, elsewhere up to {{:.4f}} and {{:.4f}}; {REMEDY}"
)
STOPPED = (
    "counts of an audit that may stop early are not a fixed sample; run both to their planned trials to compare them"
)

ONE_TRAINING = (
    "the coins of one training and their guesses have no test in common with another's: read the two proven epsilons, "
    "or audit both versions with run_audit"
)
OF_SCORES = (
    "given scores are compared at thresholds that both were judged at and that no score chose; fix thresholds before "
    "you look at the scores, and pass the same to both runs of `bound` (--threshold)"
)

OTHER_THRESHOLDS = "judge both by another --threshold, fixed before you look at the scores"
SAME_SCORES = "both records are of the same scores"

CHANCE = 1e-3
"""Probability that the largest advantage of a record exceeds the true one by more than is subtracted for chance."""

ALONE = {
    "missing": "the new records have no audit of this name; where it was renamed or removed on purpose, make a new "
    "baseline",
    "added": "the old records have no audit of this name",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedTest:
    """The test by which both records are compared: their errors, and p-values of "nothing changed"."""

    member: str
    threshold: float
    rejects: str
    old_advantage: float
    new_advantage: float
    p_larger: float
    p_smaller: float
    larger_from: float | None = None
    """Observed advantage of the new record from which its leakage would be called larger; None if none would be."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One audit before and now."""

    name: str
    state: State
    reason: str
    old_verdict: str | None
    new_verdict: str | None
    old_epsilon: float | None
    """Proven lower bound at ``old_delta``."""
    new_epsilon: float | None
    """Proven lower bound at ``new_delta``."""
    claim_changed: bool
    test: SharedTest | None
    adjusted_p_larger: float | None = None
    adjusted_p_smaller: float | None = None
    old_delta: float | None = None
    new_delta: float | None = None


@checked
def compare(old: tuple[AuditRecord, ...], new: tuple[AuditRecord, ...], *, risk: Share) -> tuple[Change, ...]:
    """Match records by name and say for each whether leakage changed.

    Two-sample Fisher tests of each error rate, doubled for the two rates and adjusted by Holm over the audits. A
    violation that was not there before is worse without a test: it is false as often as the new run's risk allows.
    [fisher1922; holm1979]

    'No change shown' does not mean that nothing changed; the reason says how large an advantage would have been called
    larger. 'Not compared': the two records have no threshold in common that could show a change or that sees half of
    the leak that either record shows, one could stop early and is no fixed sample, or one could not run (both, as
    expected, is no change).

    Args:
      old: records of the earlier version.
      new: records of the later one.
      risk: if no mechanism changed, the probability that any is called larger, and the same for smaller.

    Returns:
      One change per name, with ``state``, ``reason``, both verdicts, both proven epsilons and p-values.

    Raises:
      ValueError: ``risk`` is out of range.

    Examples:
      >>> import audit
      >>> audit.compare((), (), risk=0.05)
      ()
    """
    require_risk(risk)
    before = {record.name: record for record in old}
    now = {record.name: record for record in new}
    both = [name for name in before if name in now]
    tests = {name: shared_test(before[name], now[name], risk=risk, audits=len(both)) for name in both}
    larger = _holm({name: test.p_larger for name, test in tests.items() if test is not None})
    smaller = _holm({name: test.p_smaller for name, test in tests.items() if test is not None})
    changes = [
        _change(before[name], now[name], tests[name], larger.get(name), smaller.get(name), risk) for name in both
    ]
    changes += [_unmatched(record, "missing") for name, record in before.items() if name not in now]
    return (*changes, *(_unmatched(record, "added") for name, record in now.items() if name not in before))


def shared_test(old: AuditRecord, new: AuditRecord, *, risk: float, audits: int = 1) -> SharedTest | None:
    """The common threshold at which old and new together have the largest advantage, with both p-values there.

    It is chosen on each side's pooled scores, which are the same whichever record is called old: under 'nothing
    changed' the labels are still a fair draw, so that the choice costs no risk. Thresholds that cannot show a change at
    ``risk`` are skipped. ``audits`` is how many share the risk.
    """
    if old.stops_early or new.stops_early:
        return None
    found = []
    for member, old_grid, new_grid in _pairs(old, new):
        for threshold, counts in _common_thresholds(old_grid, new_grid, _fixed_thresholds(old), _fixed_thresholds(new)):
            without, with_record = counts[:, :, 0].sum(1) / counts.sum((1, 2))
            found.append((abs(with_record - without), (member, threshold, counts, bool(with_record >= without))))
    # the sort is stable: of equal ones the first
    ranked = sorted((candidate for candidate in found if candidate[0] >= 0), key=lambda candidate: -candidate[0])
    best = next((test for _, test in ranked if _could_show(test[2], risk)), None)
    return None if best is None else _fisher_test(*best, risk=risk / audits)


def _pairs(old: AuditRecord, new: AuditRecord) -> list[tuple[str, ScoreGrid, ScoreGrid]]:
    """Grids of the members that both records have."""
    members = {grid.member: grid for grid in new.grids}
    return [(grid.member, grid, members[grid.member]) for grid in old.grids if grid.member in members]


def _could_show(counts: np.ndarray, risk: float) -> bool:
    """Whether some division of the pooled scores between the records would be a change; a constant score has none.

    ``counts`` is [side, record, above/below]. Both sides are pooled: a test that never errs divides them well.
    """
    (old, new), above = counts.sum((0, 2)), int(counts[:, :, 0].sum())
    ends = [max(0, above - int(new)), min(above, int(old))]
    return bool(2 * hypergeom.pmf(ends, old + new, above, old).min() <= risk)


def _fixed_thresholds(record: AuditRecord) -> frozenset[float] | None:
    """Thresholds of given scores that no score chose; None if all thresholds of the grid were fixed."""
    if record.scores is None:
        return None
    return frozenset(point.threshold for point in record.points if record.scores.seed is None)


def _common_thresholds(
    old: ScoreGrid, new: ScoreGrid, *fixed: frozenset[float] | None
) -> list[tuple[float, np.ndarray]]:
    """Thresholds of both grids, with counts [side, record, above/below]; for given scores only ``fixed`` ones."""
    tables = []
    for grid in (old, new):
        sides = [np.asarray(side) for side in (grid.without, grid.with_record)]
        below = [np.cumsum(side)[:-1] for side in sides]
        tables.append(
            {
                edge: [(int(side.sum() - low[i]), int(low[i])) for side, low in zip(sides, below, strict=True)]
                for i, edge in enumerate(grid.edges)
            }
        )
    shared = sorted(tables[0].keys() & tables[1].keys())
    shared = [edge for edge in shared if all(known is None or edge in known for known in fixed)]
    return [(edge, np.array([tables[0][edge], tables[1][edge]]).transpose(1, 0, 2)) for edge in shared]


def _fisher_test(member: str, threshold: float, counts: np.ndarray, above: bool, *, risk: float) -> SharedTest:
    """Fisher's test of each error rate, in both directions. ``counts`` is [side, record, above/below]."""
    alarm, quiet = (0, 1) if above else (1, 0)
    errors = (counts[0][:, [alarm, quiet]], counts[1][:, [quiet, alarm]])
    rates = [table[:, 0] / table.sum(1) for table in errors]
    old, new = (float(1 - rates[0][i] - rates[1][i]) for i in (0, 1))

    def p(alternative: str) -> float:
        # rows are (old, new): 'greater' says that old errs more often, so that new leaks more
        return min(1.0, 2 * min(float(np.asarray(fisher_exact(table, alternative=alternative))[1]) for table in errors))

    return SharedTest(
        member=member,
        threshold=threshold,
        rejects="above" if above else "below",
        old_advantage=old,
        new_advantage=new,
        # an advantage that did not grow shows no larger leak, even if one error rate fell
        p_larger=p("greater") if new > old else 1.0,
        p_smaller=p("less") if new < old else 1.0,
        larger_from=_larger_from(errors, risk),
    )


def _larger_from(errors: Sequence[np.ndarray], risk: float) -> float | None:
    """Observed advantage from which the new record is surely called larger: one of its error rates is then so low.

    ``errors`` are two tables with a row for old and new, each with the number of errors and of correct answers.
    """
    rates = []
    for (old, right), (new, missed) in errors:
        trials = int(new + missed)

        def is_larger(fewer: int, *, old: int = old, right: int = right, trials: int = trials) -> bool:
            table = [[old, right], [fewer, trials - fewer]]
            return 2 * float(np.asarray(fisher_exact(table, alternative="greater"))[1]) <= risk

        most = bisect.bisect_left(range(trials + 1), True, key=lambda fewer: not is_larger(fewer)) - 1
        rates.append(None if most < 0 else most / trials)
    return None if rates == [None, None] else 1 - sum(rate or 0.0 for rate in rates)


def _holm(p_values: dict[str, float]) -> dict[str, float]:
    """Adjusted p-values by name."""
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def _change(
    old: AuditRecord,
    new: AuditRecord,
    test: SharedTest | None,
    p_larger: float | None,
    p_smaller: float | None,
    risk: float,
) -> Change:
    """The change between two records of one name."""
    state, reason = _state(old, new, test, p_larger, p_smaller, risk)
    return Change(
        name=new.name,
        state=state,
        reason=reason,
        old_verdict=old.verdict,
        new_verdict=new.verdict,
        old_epsilon=_proven(old),
        new_epsilon=_proven(new),
        claim_changed=old.claim.describe() != new.claim.describe(),
        test=test,
        adjusted_p_larger=p_larger,
        adjusted_p_smaller=p_smaller,
        old_delta=old.report_delta,
        new_delta=new.report_delta,
    )


def _state(
    old: AuditRecord,
    new: AuditRecord,
    test: SharedTest | None,
    p_larger: float | None,
    p_smaller: float | None,
    risk: float,
) -> tuple[State, str]:
    """The state of a change, and the reason for it."""
    if new.verdict == "violation" and old.verdict != "violation":
        return "worse", "a violation that was not there before"
    if not old.ran and not new.ran and old.as_expected and new.as_expected:
        return "no_change_shown", f"it could not run before and now, as expected: {new.reason}"
    if not (old.ran and new.ran):
        if old.reason == new.reason:
            return "not_compared", f"it could run neither before nor now: {new.reason}"
        failures = [(when, record.reason) for record, when in ((old, "before"), (new, "now")) if not record.ran]
        return "not_compared", "; ".join(f"it could not run {when}: {why.rstrip('.')}" for when, why in failures)
    if test is None or p_larger is None or p_smaller is None:
        return "not_compared", STOPPED if old.stops_early or new.stops_early else _why_none(old, new)
    advantages = (
        f"observed advantage {test.old_advantage:.4f} before, {test.new_advantage:.4f} now, at the shared threshold "
        f"{test.threshold:.4g}"
    )
    if p_larger <= risk:
        return "worse", f"leakage is larger: {advantages} (adjusted p-value {p_larger:.2g})"
    if p_smaller <= risk:
        return "better", f"leakage is smaller: {advantages} (adjusted p-value {p_smaller:.2g})"
    by_record = [_largest_advantage(record) for record in (old, new)]
    seen = (test.old_advantage, test.new_advantage)
    if any(surely > 2 * max(0.0, shown) for (_, surely), shown in zip(by_record, seen, strict=True)):
        reason = SEES_LESS.format(*seen, *(largest for largest, _ in by_record))
        return "not_compared", reason if new.scores is None else reason.replace(REMEDY, OTHER_THRESHOLDS)
    shared = f"; {ONE_SEED if new.scores is None else SAME_SCORES}" if old.key == new.key else ""
    return "no_change_shown", f"{advantages}; {_would_show(test)}{shared}"


def _would_show(test: SharedTest) -> str:
    """What the trials would have shown, so that nobody reads 'no change shown' as 'nothing changed'."""
    if test.larger_from is None:
        return "with so few trials no observed advantage would be called larger"
    return f"from {test.larger_from:.4f} on it would be called larger"


def _why_none(old: AuditRecord, new: AuditRecord) -> str:
    """Why two records have no shared test."""
    if old.one_run is not None or new.one_run is not None:
        return ONE_TRAINING
    shared = any(
        _common_thresholds(old_grid, new_grid, _fixed_thresholds(old), _fixed_thresholds(new))
        for _, old_grid, new_grid in _pairs(old, new)
    )
    if old.scores is not None or new.scores is not None:
        return BLIND.replace(REMEDY, OTHER_THRESHOLDS) if shared else OF_SCORES
    return BLIND if shared else NO_TEST


def _largest_advantage(record: AuditRecord) -> tuple[float, float]:
    """Largest advantage of any member at any threshold, and what of it is not chance (by Massart's inequality)."""
    largest, certain = 0.0, 0.0
    for grid in record.grids:
        sides = [np.asarray(side) for side in (grid.without, grid.with_record)]
        shares = [np.cumsum(side) / side.sum() for side in sides]
        advantage = float(np.abs(shares[0] - shares[1]).max())
        chance = math.sqrt(math.log(4 * len(record.grids) / CHANCE) / 2) * sum(side.sum() ** -0.5 for side in sides)
        largest, certain = max(largest, advantage), max(certain, advantage - chance)
    return largest, certain


def _proven(record: AuditRecord) -> float | None:
    """Proven epsilon at the record's delta; None if the audit could not run."""
    return record.epsilon(record.report_delta) if record.ran else None


def _unmatched(record: AuditRecord, state: Literal["added", "missing"]) -> Change:
    """The change of a record without a partner: an unexpected violation of an added one counts as worse."""
    broken = state == "added" and record.verdict == "violation" and not record.as_expected
    epsilon = _proven(record)
    return Change(
        name=record.name,
        state="worse" if broken else state,
        reason="a new audit found a violation" if broken else ALONE[state],
        old_verdict=record.verdict if state == "missing" else None,
        new_verdict=record.verdict if state == "added" else None,
        old_epsilon=epsilon if state == "missing" else None,
        new_epsilon=epsilon if state == "added" else None,
        claim_changed=False,
        test=None,
        old_delta=record.report_delta if state == "missing" else None,
        new_delta=record.report_delta if state == "added" else None,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: rejecting those at most ``risk`` errs with at most that probability.

    [holm1979] The smallest of n is multiplied by n, the next by n - 1 and so on; none may fall below one before it.
    """
    given = np.asarray(p_values, np.float64)
    order = np.argsort(given, kind="stable")
    adjusted = np.empty(len(given))
    adjusted[order] = np.minimum(np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1)), 1.0)
    return adjusted.tolist()
