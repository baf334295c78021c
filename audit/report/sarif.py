"""SARIF 2.1.0, which code hosts read: one result for each verdict that is not as expected, at its audit's place.

What a replay of the code shows beside a verdict without a violation is a result of its own, at the line of code.
An audit that could not run is no finding about code: it is a notification of the run, which then was no success.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from audit.record.diagnosis_answer import LINE, Diagnosis
from audit.record.record import AuditRecord
from audit.report.diagnoses import Place, beside_the_verdict, heading, places_of, stated_at
from audit.report.escaping import shown, visible
from audit.report.table import readable
from audit.report.text import brief_lines, not_as_expected

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULES = {
    "violation": ("PromiseBroken", "error", "The proven privacy leak exceeds what the claim allows."),
    "no_violation_found": ("ExpectedViolation", "warning", "A violation was expected and none was found."),
    "inconclusive": (
        "Inconclusive",
        "warning",
        "No violation was found and no large one is ruled out: too few trials, blind scores, or outputs all equal.",
    ),
}
"""For each unexpected verdict the name of its rule, its level and its text."""
REPLAYED = "looks_wrong"
ALL_RULES = {
    **RULES,
    REPLAYED: (
        "LooksWrong",
        "warning",
        "A replay of the code, or its outputs, show a fault that no trial proves. The verdict stays as it is.",
    ),
}


def sarif(
    records: tuple[AuditRecord, ...],
    *,
    places: Mapping[str, str] | None = None,
    besides: Sequence[dict[str, Any]] = (),
) -> str:
    """A log with one run.

    ``places`` says where an audit is written, as ``file:line``, by the audit's name; ``besides`` are results of
    replays that the records do not have.
    """
    where, surprises = places or {}, [record for record in records if not record.as_expected]
    results = [_result(record, where.get(record.name)) for record in surprises if record.ran]
    results += [
        _replayed(record, answer, where.get(record.name)) for record in records for answer in beside_the_verdict(record)
    ]
    unrun = [_notification(record, where.get(record.name)) for record in surprises if not record.ran]
    return _log([*results, *besides], unrun)


def replay_results(
    audit: str, found: Sequence[tuple[str, str, Sequence[Place]]], place: str | None
) -> list[dict[str, Any]]:
    """Results of a replay alone: the kind of each finding, its text, and its lines or else the audit's place."""
    return [
        _of_rule(
            REPLAYED,
            visible(f"{audit}: {says}"),
            _fingerprint(f"{audit}\n{LINE}{kind}"),
            [*lines, *stated_at(place)],
        )
        for kind, says, lines in found
    ]


def _log(results: list[dict[str, Any]], unrun: list[dict[str, Any]]) -> str:
    """A log of one run with these results."""
    driver = {
        "name": "dpsgd-audit",
        "version": metadata.version("dpsgd-audit"),
        "rules": [
            {"id": verdict, "name": name, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}
            for verdict, (name, level, text) in ALL_RULES.items()
        ],
    }
    invocation = {"executionSuccessful": not unrun, **({"toolExecutionNotifications": unrun} if unrun else {})}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(record: AuditRecord, place: str | None) -> dict[str, Any]:
    fingerprint = _fingerprint(record.name)
    record = shown(record)
    violated = record.violated_at
    label, text = ("because", record.reason) if violated is None else ("broken", violated.says)
    # what a replay or the outputs show beside a verdict are results of their own
    rest = brief_lines(record, but=(label, "replay", "hint"))[1:]
    message = "\n".join([f"{record.name}: {readable(record.verdict)}{not_as_expected(record)}: {text}", *rest])
    return _of_rule(record.verdict, message, fingerprint, places_of(record, place))


def _replayed(record: AuditRecord, answer: Diagnosis, place: str | None) -> dict[str, Any]:
    """A replay's result at its own lines, or else where the audit is written; one fingerprint per kind and audit."""
    fingerprint = _fingerprint(f"{record.name}\n{answer.code}")
    record = shown(dataclasses.replace(record, diagnoses=(answer,)))
    (answer,) = record.diagnoses
    message = f"{record.name}: {heading(record)}: {answer.says}"
    return _of_rule(REPLAYED, message, fingerprint, places_of(record, place))


def _of_rule(rule: str, message: str, fingerprint: str, places: list[Place]) -> dict[str, Any]:
    return {
        "ruleId": rule,
        "ruleIndex": list(ALL_RULES).index(rule),
        "level": ALL_RULES[rule][1],
        "message": {"text": message},
        "partialFingerprints": {"auditName/v1": fingerprint},
        **_locations(places),
    }


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _notification(record: AuditRecord, place: str | None) -> dict[str, Any]:
    record = shown(record)
    return {
        "level": "error",
        "message": {"text": f"{record.name}: {readable(record.verdict)}: {record.reason}"},
        "locations": [_location(each) for each in places_of(record, place)],
    }


def _locations(places: list[Place]) -> dict[str, list[dict[str, Any]]]:
    """Places where the code looks wrong, or else where the audit is written; the rest are related locations."""
    found = [_location(place) for place in places]
    return {"locations": found[:1], **({"relatedLocations": found[1:]} if found[1:] else {})}


def _location(place: Place) -> dict[str, Any]:
    path = PurePath(place[0])
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": place[1]}}}
