"""What records say of their audits that cannot be: against themselves, against a suite, or with audits missing."""

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
    """What is built is not what the record says was audited."""


def in_itself(record: AuditRecord) -> list[str]:
    """Values that no run would have let stand together."""
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
    """Values that are not those of the suite's audit of that name."""
    mechanism, pair = stated.mechanism, stated.neighbours
    own = {
        "mechanism": _part(mechanism, mechanism.kind),
        "neighbours": _part(pair, pair.relation),
        "releases": mechanism.releases,
        "expect": stated.spec.expect,
        "report_delta": stated.spec.delta,
    }
    recorded = {key: getattr(record, key) for key in own}
    return different(plain(recorded), plain(own), "in the suite")


def different(recorded: Any, own: Any, where: str, *, key: str = "") -> list[str]:
    """Each value that is another one ``where`` it was made again."""
    stated, made = dict(leaves(recorded, key)), dict(leaves(own, key))
    return [
        f"{path}: {told(stated.get(path, ABSENT))} recorded, {told(made.get(path, ABSENT))} {where}"
        for path in {**stated, **made}
        if not agree(stated.get(path, ABSENT), made.get(path, ABSENT))
    ]


def _part(used: Any, kind: str) -> Part:
    return Part(name=used.name, parameters=plain(used.parameters), kind=kind)


def repeated(records: Sequence[AuditRecord]) -> list[str]:
    """A suite's audits have names of their own: two of one name stand where another was."""
    names = Counter((record.suite, record.look, record.name) for record in records if record.suite is not None)
    return [f"{times} audits of one suite are called {name!r}" for (_, _, name), times in names.items() if times > 1]


def missing(records: Sequence[AuditRecord]) -> list[str]:
    """Suites of which the file does not hold as many audits as they had."""
    held: Counter[tuple[SuitePart, int]] = Counter()
    for record in records:
        if record.suite is not None:
            held[record.suite, record.look] += 1
    return [
        f"the suite with seed {suite.seed} had {counted(suite.audits, 'audit')}, and the file holds {count} of them"
        for (suite, _), count in held.items()
        if count != suite.audits
    ]
