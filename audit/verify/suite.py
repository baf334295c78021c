"""Whether all audits of a suite are in a file of records: what they say together, they say only together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from audit.record.record import AuditRecord, SuitePart
from dpsgd_audit.spelling import counted


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
