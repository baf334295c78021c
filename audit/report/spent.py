"""Where the trials and the risk of an audit went, score by score."""

from __future__ import annotations

from collections import Counter

from audit.record.record import AuditRecord


def spent(record: AuditRecord) -> str:
    """Trials that were not judged and their use, and the share of the risk of each score; empty for one known score.

    Every score of a battery reads every judged trial, so that trials are shared by all of them; the risk is not.
    """
    if not record.drawn or (len(record.grids) < 2 and not record.fit_trials):
        return ""
    if record.scores is not None:
        # the band is over all scores, also over those that chose thresholds
        return f"{_risk(record)}."
    return f"{_fitted(record)}{_judged(record)}; {_risk(record)}."


def _fitted(record: AuditRecord) -> str:
    if not record.fit_trials:
        return ""
    parameters = record.distinguisher.parameters
    learnt = parameters.get("learnt_from", parameters.get("fit_without", 0) + parameters.get("fit_with", 0))
    learnt = min(int(learnt), record.fit_trials)
    parts = [f"{learnt:,} to learn scores"] if learnt else []
    if rest := record.fit_trials - learnt:
        which = f"which of {scores:,} scores to judge, and " if (scores := len(record.grids)) > 1 else ""
        parts.append(f"{rest:,} to choose {which}thresholds")
    return f"{record.fit_trials:,} fit trials, which judge nothing: {', '.join(parts)}. "


def _judged(record: AuditRecord) -> str:
    every = f" for each of {len(record.grids):,} scores" if len(record.grids) > 1 else ""
    return f"All {record.trials:,} judged trials count{every}"


def _risk(record: AuditRecord) -> str:
    """Each score that is judged by tests of its own, with its share; then what all scores share."""
    tests = Counter(point.target for point in record.points)
    shares = {str(name): share for name, share in record.shares.items()}
    by_score: dict[str, dict[str, float]] = {}
    for point in record.points:
        share = shares[point.target] / tests[point.target] if point.target in shares else point.risk
        member = by_score.setdefault(point.member, {})
        member[point.target] = member.get(point.target, 0.0) + share
    parts = [
        f"{member} ({', '.join(f'{target} {share:.2g}' for target, share in shares.items())})"
        for member, shares in by_score.items()
    ]
    stated = {target for target in tests if target in shares}
    common = {"limits": record.budget.points if stated else 0.0, "band": record.budget.band}
    parts += [f"{WHAT[name]} ({share:.2g})" for name, share in common.items() if share]
    return f"of the risk of {record.risk:.2g}: {', '.join(parts)}"


WHAT = {"limits": "limits on the error rates of these tests", "band": "the band over all thresholds"}
