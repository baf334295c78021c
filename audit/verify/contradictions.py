"""Contradictions of records: in themselves, with a suite, or with other audits of their suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from audit.claim_fits_pair import counts_other_steps
from audit.record.record import AuditRecord, Part, SuitePart, plain
from audit.verify.record_values import ABSENT, agree, leaves, told
from dpsgd_audit.spelling import counted

if TYPE_CHECKING:
    from audit.suites.build import Built


class ContradictedError(ValueError):
    """What can be built differs from what the record says was audited."""


def in_itself(record: AuditRecord) -> list[str]:
    """Values of a record that no run would have written together."""
    pair, claim = record.neighbours, record.claim
    found = []
    relation = pair.parameters.get("relation", pair.kind)
    if relation != pair.kind:
        found.append(f"neighbours.kind: {told(pair.kind)} recorded, and its parameters say {told(relation)}")
    if claim.relation not in ("any", pair.kind):
        found.append(f"the claim is for {claim.relation} neighbours, and the pair differs by {pair.kind}")
    if record.conditions:
        return found
    if record.releases == "update" and (claim.steps or 1) > 1:
        found.append(f"the claim counts {claim.steps} steps, and one step's update is released")
    if record.releases not in ("", "update") and counts_other_steps(claim.name, claim.steps, record.steps):
        found.append(f"the claim counts {counted(claim.steps or 1, 'step')}, and the training took {record.steps}")
    return found


def with_suite(record: AuditRecord, stated: Built) -> list[str]:
    """Values that differ from those of the suite's audit of that name."""
    mechanism, pair = stated.mechanism, stated.neighbours
    of_suite = {
        "mechanism": _part(mechanism, mechanism.kind),
        "neighbours": _part(pair, pair.relation),
        "releases": mechanism.releases,
        "expect": stated.spec.expect,
        "report_delta": stated.spec.delta,
    }
    recorded = {key: getattr(record, key) for key in of_suite}
    return different(plain(recorded), plain(of_suite), "in the suite")


def different(recorded: Any, own: Any, where: str, *, key: str = "") -> list[str]:
    """Every value that differs, with what was recorded and what is found ``where`` it was made again."""
    recorded_values, found_values = dict(leaves(recorded, key)), dict(leaves(own, key))
    return [
        f"{path}: {told(recorded_values.get(path, ABSENT))} recorded, {told(found_values.get(path, ABSENT))} {where}"
        for path in {**recorded_values, **found_values}
        if not agree(recorded_values.get(path, ABSENT), found_values.get(path, ABSENT))
    ]


def _part(used: Any, kind: str) -> Part:
    """A part as records describe it."""
    return Part(name=used.name, parameters=plain(used.parameters), kind=kind)


def repeated(records: Sequence[AuditRecord]) -> list[str]:
    """Names that several audits of one suite share, although each needs its own."""
    names = Counter((record.suite, record.look, record.name) for record in records if record.suite is not None)
    return [f"{times} audits of one suite are called {name!r}" for (_, _, name), times in names.items() if times > 1]


def missing(records: Sequence[AuditRecord]) -> list[str]:
    """Suites of which the file holds fewer or more audits than they had."""
    held: Counter[tuple[SuitePart, int]] = Counter()
    for record in records:
        if record.suite is not None:
            held[record.suite, record.look] += 1
    return [
        f"the suite with seed {suite.seed} had {counted(suite.audits, 'audit')}, and the file holds {count} of them"
        for (suite, _), count in held.items()
        if count != suite.audits
    ]
