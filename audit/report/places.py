"""Where an annotation of an audit points: code that looks wrong or that failed, or the audit's line of the suite."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from audit.record.record import AuditRecord
from audit.report.diagnoses import code_lines

Place = tuple[str, int]
"""A file and a line."""
IN_A_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")
FAILED_AT = re.compile(r"(?:^|[ (])at ([^:()\n]+\.\w+):(\d+)\b")


def places_of(record: AuditRecord, written: str | None = None) -> list[Place]:
    """All that are known, the best first; ``written`` is where the suite states the audit, as ``file:line``."""
    found = [*code_lines(record.diagnoses)]
    if not record.ran:
        # the last line of the user's own code that the error passed through
        found += [(path, int(line)) for path, line in FAILED_AT.findall(record.reason)[-1:]]
    return [*found, *stated_at(written)]


def stated_at(written: str | None) -> list[Place]:
    """The place that ``file:line`` spells, if it spells one."""
    stated = re.fullmatch(r"(.+):(\d+)", written or "")
    return [(stated[1], int(stated[2]))] if stated else []


def function_place(record: AuditRecord) -> str | None:
    """Where the audited function is written, as ``file:line``, if its module is a file below the working folder."""
    named = IN_A_MODULE.fullmatch(str(record.mechanism.parameters.get("function", "")))
    if named is None:
        return None
    path = Path(*named[1].split(".")).with_suffix(".py")
    try:
        written = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None
    functions = (node for node in written.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return next((f"{path.as_posix()}:{node.lineno}" for node in functions if node.name == named[2]), None)
