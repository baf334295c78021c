"""Where an annotation of an audit points: code that looks wrong or that failed, or the audit's line of the suite."""

from __future__ import annotations

import re

from audit.record.record import AuditRecord
from audit.report.diagnoses import code_lines

Place = tuple[str, int]
"""A file and a line."""
FAILED_AT = re.compile(r"(?:^|[ (])at ([^:()\n]+\.\w+):(\d+)\b")


def places_of(record: AuditRecord, written: str | None = None) -> list[Place]:
    """All that are known, the best first; ``written`` is where the suite states the audit, as ``file:line``."""
    found = [*code_lines(record.diagnoses)]
    if not record.ran:
        # the last line of the user's own code that the error passed through
        found += [(path, int(line)) for path, line in FAILED_AT.findall(record.reason)[-1:]]
    if stated := re.fullmatch(r"(.+):(\d+)", written or ""):
        found.append((stated[1], int(stated[2])))
    return found
