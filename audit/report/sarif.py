"""SARIF 2.1.0, which code hosts read: one result for each verdict that is not as expected, at its audit's place."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from audit.record.record import AuditRecord
from audit.report.diagnoses import code_lines
from audit.report.escaping import shown
from audit.report.table import readable
from audit.report.text import record_lines

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULES = {
    "violation": ("PromiseBroken", "error", "The proven privacy leak exceeds what the claim allows."),
    "no_violation_found": ("ExpectedViolation", "warning", "A violation was expected and none was found."),
    "inconclusive": (
        "TooFewTrials",
        "warning",
        "Too few trials to find a violation or to rule a large one out.",
    ),
}
"""Of a verdict that is not as expected: the rule's name, its level, and what it says."""


def sarif(records: tuple[AuditRecord, ...], *, places: Mapping[str, str] | None = None) -> str:
    """A log with one run; an audit that could not run is no finding about code, and is left out.

    ``places`` says where an audit is written, as ``file:line``, by the audit's name.
    """
    driver = {
        "name": "dpsgd-audit",
        "version": metadata.version("dpsgd-audit"),
        "rules": [
            {"id": verdict, "name": name, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}
            for verdict, (name, level, text) in RULES.items()
        ],
    }
    told = [record for record in records if record.ran and not record.as_expected]
    results = [_result(record, (places or {}).get(record.name)) for record in told]
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return json.dumps(log, indent=2) + "\n"


def _result(record: AuditRecord, place: str | None) -> dict[str, Any]:
    fingerprint = hashlib.sha256(record.name.encode("utf-8", "surrogatepass")).hexdigest()
    record = shown(record)
    said = record.violated_at.says if record.violated_at is not None else f"expected {readable(record.expect)}."
    return {
        "ruleId": record.verdict,
        "ruleIndex": list(RULES).index(record.verdict),
        "level": RULES[record.verdict][1],
        "message": {"text": "\n".join([f"{record.name}: {readable(record.verdict)}: {said}", *record_lines(record)])},
        "partialFingerprints": {"auditName/v1": fingerprint},
        **_locations([f"{path}:{line}" for path, line in code_lines(record.diagnoses)], place),
    }


def _locations(code: list[str], place: str | None) -> dict[str, list[dict[str, Any]]]:
    """Where the code looks wrong, or else where the audit is written; what is left is related to it."""
    found = [location for where in (*code, place) for location in _location(where)]
    return {"locations": found[:1], **({"relatedLocations": found[1:]} if found[1:] else {})}


def _location(place: str | None) -> list[dict[str, Any]]:
    """One place; none if it is in no file."""
    found = re.fullmatch(r"(.+):(\d+)", place or "")
    if found is None:
        return []
    path = PurePath(found[1])
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    region = {"startLine": int(found[2])}
    return [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}]
