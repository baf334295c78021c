"""SARIF: valid by the parts of its schema that we write, and pointing where the audit is written."""

import dataclasses
import json
import os
from pathlib import Path

import jsonschema
import pytest
from jsonschema.validators import validator_for

from audit.record.diagnosis_answer import Diagnosis
from audit.record.record import AuditRecord
from audit.report.diagnoses import function_place
from audit.report.formats import github_annotations, markdown
from audit.report.sarif import RULES, sarif
from audit.report.text import record_lines
from audit.verdict.verdict import VERDICTS

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
PLACE = {
    "type": "object",
    "properties": {
        "artifactLocation": {"properties": {"uri": {"type": "string", "format": "uri-reference"}}, "required": ["uri"]},
        "region": {"properties": {"startLine": {"type": "integer", "minimum": 1}}},
    },
    "required": ["artifactLocation"],
}
RESULT = {
    "type": "object",
    "properties": {
        "level": {"enum": ["none", "note", "warning", "error"]},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "message": TEXT,
        "locations": {"items": {"properties": {"physicalLocation": PLACE}, "required": ["physicalLocation"]}},
        "partialFingerprints": {"additionalProperties": {"type": "string"}},
    },
    "required": ["message", "ruleId"],
}
"""What sections 3.27 to 3.30 of the standard ask of a result; the whole schema is its publisher's and not kept here."""
WHOLE = os.environ.get("SARIF_SCHEMA", "")
"""A copy of that schema, sarif-schema-2.1.0.json, where the reader has one."""


LINE = Diagnosis(
    question="?",
    wrong=True,
    says="less noise than stated.",
    p_value=1.0,
    risk=0.0,
    assumes="",
    code="line:too_little_noise",
    lines=(("my steps/a.py", 7), ("/b.py", 1)),
)


def results(*records: AuditRecord, **places: str) -> list[dict]:
    log = json.loads(sarif(records, places={record.name: place for record in records for place in places.values()}))
    (run,) = log["runs"]
    assert log["version"] == "2.1.0"
    for result in run["results"]:
        jsonschema.validate(result, RESULT)
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    return run["results"]


def test_an_unexpected_verdict_is_a_result_at_its_line(violation):
    (result,) = results(violation, where="my suites/privacy.toml:12")
    assert result["ruleId"] == "violation"
    assert result["level"] == "error"
    (place,) = (location["physicalLocation"] for location in result["locations"])
    assert place == {"artifactLocation": {"uri": "my%20suites/privacy.toml"}, "region": {"startLine": 12}}
    assert violation.violated_at.says in result["message"]["text"]


def test_what_a_replay_shows_beside_a_verdict_is_a_warning_at_the_line_of_code(violation):
    passed = dataclasses.replace(violation, verdict="no_violation_found", violated_at=None, diagnoses=(LINE,))
    (result,) = results(passed, where="privacy.toml:12")
    assert (result["ruleId"], result["level"]) == ("looks_wrong", "warning")
    (place,) = (location["physicalLocation"] for location in result["locations"])
    assert place == {"artifactLocation": {"uri": "my%20steps/a.py"}, "region": {"startLine": 7}}
    assert "the verdict depends on trials only): less noise than stated." in result["message"]["text"]
    other = dataclasses.replace(passed, diagnoses=(dataclasses.replace(LINE, code="line:not_clipped"),))
    assert results(other)[0]["partialFingerprints"] != result["partialFingerprints"]
    assert results(dataclasses.replace(passed, diagnoses=())) == []
    assert [one["ruleId"] for one in results(dataclasses.replace(violation, diagnoses=(LINE,)))] == ["violation"]
    unsure = dataclasses.replace(passed, verdict="inconclusive", reason="the trials are too few.")
    said = [one["message"]["text"] for one in results(unsure)]
    assert said[0].startswith(f"{unsure.name}: inconclusive: the trials are too few.\n")
    assert ["less noise than stated" in text for text in said] == [False, True]
    assert sum(text.count("too few") for text in said) == 1


def test_an_expected_verdict_is_none(violation):
    assert results(dataclasses.replace(violation, expect="violation")) == []


@pytest.mark.parametrize("verdict", ["no_violation_found", "inconclusive"])
def test_every_format_says_that_a_violation_was_expected(violation, verdict):
    """The annotation was an error that named the right code's claim, and nothing of a pinned problem that is gone."""
    gone = dataclasses.replace(violation, expect="violation", verdict=verdict, violated_at=None, reason="few trials.")
    (annotation,) = github_annotations((gone,))
    (result,) = results(gone)
    texts = [annotation, result["message"]["text"], markdown((gone,), title="t"), "".join(record_lines(gone))]
    assert all(", expected a violation" in text for text in texts)
    held = dataclasses.replace(gone, expect=verdict)
    assert not any("expected a" in text for text in ("".join(record_lines(held)), markdown((held,), title="t")))
    failed = dataclasses.replace(gone, expect="could_not_run")
    assert ", expected could not run (" in record_lines(failed)[0]


@pytest.mark.parametrize("place", ["", "the default suite"])
def test_an_audit_that_is_in_no_file_has_no_place(violation, place):
    assert results(violation, where=place)[0]["locations"] == []


def test_a_name_keeps_its_fingerprint_and_two_names_differ(violation):
    other = dataclasses.replace(violation, name="another")
    first, again, second = (r["partialFingerprints"] for r in results(violation, violation, other))
    assert first == again != second


def test_every_verdict_about_code_has_a_rule():
    assert set(RULES) == set(VERDICTS) - {"could_not_run"}


@pytest.mark.skipif(not WHOLE, reason="SARIF_SCHEMA names no copy of OASIS's sarif-schema-2.1.0.json")
def test_a_whole_log_is_valid_by_the_published_schema(violation, hostile):
    schema = json.loads(Path(WHOLE).read_text())
    records = [violation, hostile, dataclasses.replace(violation, name="with a line", diagnoses=(LINE,))]
    records += [dataclasses.replace(violation, verdict=own, name=own, diagnoses=(LINE,)) for own in VERDICTS]
    log = json.loads(sarif(tuple(records), places={violation.name: "my suites/privacy.toml:12"}))
    checker = validator_for(schema)(schema)
    assert [error.message for error in checker.iter_errors(log)] == []
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not checker.is_valid(log)


def test_hostile_names_do_nothing(hostile):
    text = results(hostile)[0]["message"]["text"]
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_function_is_found_where_its_module_is_written(violation, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "steps.py").write_text("x = 1\n\n@cached\ndef half(seed, rows):\n    return rows\n")
    monkeypatch.chdir(tmp_path)

    def place(function):
        mechanism = dataclasses.replace(violation.mechanism, parameters={"function": function})
        return function_place(dataclasses.replace(violation, mechanism=mechanism))

    assert place("own.steps:half") == "own/steps.py:4"
    for unknown in ("own.steps:other", "own.none:half", "../own/steps:half", "half", 3):
        assert place(unknown) is None
