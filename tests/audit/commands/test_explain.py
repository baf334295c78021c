"""Lines of code on the command line, after a violation, in a test and in every format."""

from __future__ import annotations

import dataclasses
import json
import os
import sys

import jax
import pytest

import audit
import guarantees
import mechanisms
from audit import cli
from audit.diagnosis import after_verdict
from audit.diagnosis.explain.findings import Explanation, Finding, Kind
from audit.diagnosis.explain.jaxprs import interpreter, replay
from audit.diagnosis.explain.sentences import not_followed
from audit.pytest_plugin import InconclusiveAuditWarning
from audit.record.diagnosis_answer import NOT_TOLD, not_asked
from audit.record.stored import from_json
from audit.report.diagnoses import remarks, untold
from audit.report.formats import github_annotations
from audit.report.sarif import sarif
from audit.report.text import record_lines

CODE = """
import jax


def half(key, gradients):
    noise = 0.5 * jax.random.normal(key, gradients.shape[1:])
    return gradients.sum(axis=0) + noise


def right(key, gradients):
    return gradients.sum(axis=0) + jax.random.normal(key, gradients.shape[1:])
"""
SUITE = """
trials = 200
[defaults]
neighbours = { kind = "worst_case_pair", records = 3, dimension = 4, clip = 1.0 }
claim = { kind = "gaussian", mu = 1.0 }
[[audit]]
name = "half"
mechanism = { function = "steps_with_a_line:half" }
[[audit]]
name = "program"
mechanism = { kind = "command_step", command = ["true"] }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "steps_with_a_line.py").write_text(CODE)
    (tmp_path / "suite.toml").write_text(SUITE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_suspicion_is_named_with_its_line_and_is_no_verdict(folder, capsys):
    assert cli.main(["explain", "suite.toml", "--audit", "half", "--sarif", "half.sarif"]) == 1
    (run,) = json.loads((folder / "half.sarif").read_text())["runs"]
    (place,) = run["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "steps_with_a_line.py"
    assert run["results"][0]["ruleId"] == "looks_wrong"
    said = capsys.readouterr().out
    assert "not_clipped" in said
    assert "steps_with_a_line.py:7" in said
    assert "not a verdict: only the trials that `dpsgd-audit run` draws judge" in said
    assert "Not seen by a replay" in said


def test_a_planted_fault_that_looks_wrong_is_no_reason_for_a_red_build(folder, capsys):
    expected = SUITE.replace('name = "half"', 'name = "half"\nexpect = "violation"')
    (folder / "suite.toml").write_text(expected)
    assert cli.main(["explain", "suite.toml", "--audit", "half", "--sarif", "half.sarif"]) == 0
    assert json.loads((folder / "half.sarif").read_text())["runs"][0]["results"] == []
    assert "not_clipped" in capsys.readouterr().out


def test_a_seed_of_its_own_replaces_that_of_the_suite(folder, monkeypatch, capsys):
    keys = []

    def nothing(*given, key, **stated):
        keys.append(key)
        return Explanation()

    monkeypatch.setattr("audit.diagnosis.explain.explain", nothing)
    for seed in ([], ["--seed", "0"], ["--seed", "7"]):
        assert cli.main(["explain", "suite.toml", "--audit", "half", *seed]) == 0
    assert keys[0] == keys[1] != keys[2]
    assert cli.main(["explain", "suite.toml", "--seed", "-1"]) == 2
    assert "--seed must be a whole number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("suspected", "left", "expect", "code"),
    [(False, True, None, 4), (True, True, None, 1), (False, True, "violation", 0), (False, False, None, 0)],
)
@pytest.mark.parametrize("mode", ["--quiet", "--json"])
def test_code_that_was_not_judged_is_no_silent_green(folder, monkeypatch, capsys, suspected, left, expect, code, mode):
    findings = [Finding(kind=Kind.NOT_CLIPPED, lines=(), says="Not clipped.")] * suspected
    told = Explanation(findings=(*findings, *[not_followed("no draws are shared")] * left))
    monkeypatch.setattr("audit.diagnosis.explain.explain", lambda *_, **__: told)
    if expect:
        (folder / "suite.toml").write_text(SUITE.replace('name = "half"', f'name = "half"\nexpect = "{expect}"'))
    assert cli.main(["explain", "suite.toml", "--audit", "half", mode]) == code
    # a program beside code that is followed changes nothing: no replay can ever follow one
    assert cli.main(["explain", "suite.toml", mode]) == code


def test_several_audits_may_be_named(folder, monkeypatch, capsys):
    """The last one alone was explained, without a word."""
    monkeypatch.setattr("audit.diagnosis.explain.explain", lambda *_, **__: Explanation())
    assert cli.main(["explain", "suite.toml", "--audit", "half", "--audit", "program", "--json"]) in (0, 4)
    assert set(json.loads(capsys.readouterr().out)) == {"half", "program"}


@pytest.mark.long
def test_replays_in_several_processes_say_the_same(folder, monkeypatch, capsys):
    # the one of another test's folder
    monkeypatch.delitem(sys.modules, "steps_with_a_line", raising=False)
    (folder / "suite.toml").write_text(
        SUITE.replace('kind = "command_step", command = ["true"]', 'function = "steps_with_a_line:right"')
    )
    given = ["explain", "suite.toml", "--json"]
    assert cli.main(given) == 1
    alone = capsys.readouterr().out
    assert cli.main([*given, "--jobs", "2"]) == 1
    assert capsys.readouterr().out == alone
    assert cli.main([*given, "--jobs", "0"]) == 2


def test_code_that_is_not_followed_is_said_to_be_and_is_no_suspicion(folder, capsys):
    assert cli.main(["explain", "suite.toml", "--audit", "program", "--json"]) == 4
    told = json.loads(capsys.readouterr().out)["program"]
    assert [finding["kind"] for finding in told["findings"]] == ["not_followed"]
    assert told["not_seen"]


def test_programs_are_said_to_be_left_out_in_one_line_and_none_is_built(folder, capsys):
    program = """
[[audit]]
name = "another"
mechanism = { kind = "command_step", command = ["no-such-program"] }
"""
    (folder / "suite.toml").write_text(SUITE.partition("[[audit]]")[0] + program + program.replace("another", "third"))
    assert cli.main(["explain", "suite.toml"]) == 4
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("another, third: not followed, because a command_step runs in its own process")
    assert (
        "diagnoses its outputs, and more of DP-SGD if you state clip= and noise_multiplier= and gradients= (where"
        in line
    )
    # what both state already is not asked for again
    own = program.replace("] }", "], clip = 1.0, noise_multiplier = 1.0 }")
    suite = SUITE.partition("[[audit]]")[0] + own + own.replace("another", "third")
    (folder / "suite.toml").write_text(suite)
    assert cli.main(["explain", "suite.toml"]) == 4
    (line,) = capsys.readouterr().out.splitlines()
    assert "`run` diagnoses its outputs, and more of DP-SGD if you state gradients= (where" in line


@pytest.mark.long
def test_lines_that_a_run_has_named_are_told_again_without_a_replay(folder, record, monkeypatch, capsys):
    """The action replayed each audit twice: 142 CPU seconds for three small ones."""
    (folder / "suite.toml").write_text(SUITE.replace('name = "half"', 'name = "leaks"'))
    audit.save_records((record,), "records.json")
    monkeypatch.setattr("audit.diagnosis.explain.explain", lambda *_, **__: pytest.fail("replayed again"))
    given = ["explain", "suite.toml", "--audit", "leaks", "--records", "records.json"]
    assert cli.main(given) == 1
    said = capsys.readouterr().out
    assert "leaks (replayed by the run):" in said
    assert "not_clipped" in said
    assert "Followed" not in said
    assert "Not seen by a replay" in said
    # without a line in the record the code is replayed
    audit.save_records((dataclasses.replace(record, diagnoses=()),), "records.json")
    monkeypatch.setattr("audit.diagnosis.explain.explain", lambda *_, **__: Explanation())
    assert cli.main(given) == 0
    # a code host is told both in one file: what the run says, and what the replay alone finds
    told = Explanation(findings=(Finding(kind=Kind.NOT_CLIPPED, lines=(), says="Not clipped."),))
    monkeypatch.setattr("audit.diagnosis.explain.explain", lambda *_, **__: told)
    assert cli.main([*given, "--sarif", "all.sarif"]) == 1
    rules = [each["ruleId"] for each in json.loads((folder / "all.sarif").read_text())["runs"][0]["results"]]
    assert rules == ["violation", "looks_wrong"]


@pytest.mark.parametrize(("expect", "lines"), [("no_violation_found", 1), ("violation", 0)])
def test_what_looks_wrong_is_annotated_at_its_line_where_github_runs_us(folder, monkeypatch, capsys, expect, lines):
    wrong = Finding(kind=Kind.NOT_CLIPPED, lines=((str(folder / "steps_with_a_line.py"), 7),), says="Not clipped.")
    monkeypatch.setattr("audit.diagnosis.explain.explain", lambda *_, **__: Explanation(findings=(wrong,)))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (folder / "suite.toml").write_text(SUITE.replace('name = "half"', f'name = "half"\nexpect = "{expect}"'))
    cli.main(["explain", "suite.toml", "--audit", "half", "--quiet"])
    assert capsys.readouterr().err == "::error file=steps_with_a_line.py,line=7,title=half::Not clipped.\n" * lines


def test_code_of_which_nothing_is_followed_takes_one_line(folder, monkeypatch, capsys):
    told = Explanation(findings=(not_followed("f draws nothing with PyTorch"),))
    monkeypatch.setattr("audit.diagnosis.explain.explain", lambda *_, **__: told)
    assert cli.main(["explain", "suite.toml", "--audit", "half"]) == 4
    assert capsys.readouterr().out == "half: Not judged: f draws nothing with PyTorch.\n"


REFUSED = """
[[audit]]
name = "steps"
mechanism = { function = "steps_with_a_line:right" }
[[audit]]
name = "unbuilt"
mechanism = { function = "steps_with_a_line:missing" }
[[audit]]"""


@pytest.mark.parametrize(("found", "code"), [((), 2), (("wrong",), 1)])
def test_an_audit_that_is_refused_is_reported_and_the_others_are_replayed(folder, monkeypatch, capsys, found, code):
    """One whose claim counts other steps ended the command, and nobody looked at those behind it."""

    def replayed(mechanism, *_, **__):
        if mechanism.name == "right":
            raise ValueError("the claim counts 2 steps, and the training takes 3.")
        return Explanation(findings=tuple(Finding(kind=Kind.NOT_CLIPPED, lines=(), says=says) for says in found))

    monkeypatch.setattr("audit.diagnosis.explain.explain", replayed)
    text = SUITE[: SUITE.rindex("[[audit]]")].replace("[[audit]]", REFUSED)
    (folder / "suite.toml").write_text(text)
    assert cli.main(["explain", "suite.toml", "--sarif", "lines.sarif"]) == code
    said = capsys.readouterr()
    assert "audit 'steps' failed: the claim counts 2 steps, and the training takes 3." in said.err
    assert "has no 'missing'" in said.err
    assert said.out.startswith("half:")
    assert (folder / "lines.sarif").exists()


def test_an_audit_that_the_suite_does_not_have_is_named(folder, capsys):
    assert cli.main(["explain", "suite.toml", "--audit", "hal"]) == 2
    assert "'hal' is not an audit of this suite (did you mean 'half'?)" in capsys.readouterr().err


@pytest.fixture(scope="module")
def record():
    def leaks(key, gradients):
        return gradients.sum(axis=0) + 0.1 * jax.random.normal(key, gradients.shape[1:])  # BUG

    pair = mechanisms.worst_case_pair(records=3, dimension=4, clip=1.0)
    return audit.run_audit(
        leaks,
        pair,
        lambda key, output: output[0],
        claim=guarantees.gaussian(mu=1.0),
        trials=400,
        risk=0.05,
        key=jax.random.key(0),
        name="leaks",
    )


def bug():
    with open(__file__) as file:
        return next(number for number, text in enumerate(file, 1) if text.rstrip().endswith("# BUG"))


def test_after_a_violation_the_line_stands_first(record):
    assert record.verdict == "violation"
    first = record.diagnoses[0]
    assert (first.code, first.wrong, first.risk) == ("line:not_clipped", True, 0.0)
    assert first.lines[0][0].endswith("tests/audit/commands/test_explain.py")
    assert first.lines[0][1] == bug()
    assert from_json(record.to_json()) == record


def test_what_more_could_be_told_is_not_asked_for_where_a_line_is_named():
    told = not_asked("the pair holds data, not gradients.", code=NOT_TOLD)
    wrong = dataclasses.replace(told, code="line:not_clipped", wrong=True)
    assert untold((wrong, told)) == [told.says]
    assert untold((dataclasses.replace(wrong, lines=(("step.py", 7),)), told)) == []


def test_every_format_points_at_the_line(record):
    path, line = record.diagnoses[0].lines[0]
    lines = record_lines(record)
    assert lines[2].startswith(f"  line:    {path}:{line}: ")
    assert "no cause was found" not in "\n".join(lines)
    (annotation,) = github_annotations((record,))
    assert annotation.startswith(f"::error file={path},line={line},title=leaks::")
    (result,) = json.loads(sarif((record,), places={"leaks": "suite.toml:3"}))["runs"][0]["results"]
    (place,) = result["locations"]
    assert place["physicalLocation"]["region"] == {"startLine": line}
    assert result["relatedLocations"][-1]["physicalLocation"]["artifactLocation"]["uri"] == "suite.toml"


def test_the_fixture_fails_a_test_at_the_line_and_leaves_right_code_alone(dp_explain):
    pair = mechanisms.worst_case_pair(records=3, dimension=4, clip=1.0)

    def right(key, gradients):
        bounded = gradients / jax.numpy.maximum(1.0, jax.numpy.linalg.norm(gradients, axis=1, keepdims=True))
        return bounded.sum(axis=0) + jax.random.normal(key, gradients.shape[1:])

    assert dp_explain(right, pair, claim=guarantees.gaussian(mu=1.0)).rounds
    with pytest.raises(pytest.fail.Exception, match="released_without_noise") as told:
        dp_explain(lambda key, rows: rows.sum(axis=0), pair)
    # from the working folder on, as an editor's terminal links it
    assert f"\n    {os.path.relpath(__file__)}:" in str(told.value)


def test_the_fixture_calls_itself_by_its_name(dp_explain):
    with pytest.raises(
        TypeError, match=r"dp_explain\(\) got an unexpected keyword argument 'clam'; did you mean 'claim'"
    ):
        dp_explain(None, mechanisms.scalar_pair(), clam=guarantees.gaussian(mu=1.0))


def test_the_fixture_warns_of_code_that_was_not_judged(dp_explain, monkeypatch):
    told = Explanation(findings=(not_followed("a loop depends on data"),))
    monkeypatch.setattr("audit.diagnosis.explain.explain", lambda *_, **__: told)
    with pytest.warns(InconclusiveAuditWarning, match="dp_explain: Not judged: a loop depends on data"):
        assert dp_explain(None, mechanisms.scalar_pair()) is told


def broken(key, gradients):
    return jax.numpy.tanh(gradients).sum(axis=0) + 0.1 * jax.random.normal(key, gradients.shape[1:])


def test_a_replay_that_breaks_off_after_a_violation_says_why_and_where(record, monkeypatch):
    pair = mechanisms.worst_case_pair(records=3, dimension=4, clip=1.0)
    known = interpreter.evaluate

    def fails(equation, values):
        if equation.primitive.name == "tanh":
            raise RuntimeError("no such operation.\nmore")
        return known(equation, values)

    monkeypatch.setattr(interpreter, "evaluate", fails)
    bare = dataclasses.replace(record, diagnoses=())
    told = after_verdict.explain(bare, mechanisms.mechanism(broken), pair, key=jax.random.key(0))
    first = told.diagnoses[0]
    line = broken.__code__.co_firstlineno + 1
    assert (first.code, first.wrong) == ("line:not_followed", False)
    assert first.lines[0] == (os.path.relpath(__file__), line)
    says = f"Not judged: it could not be followed at test_explain.py:{line}: RuntimeError: no such operation."
    assert f"  line:    {says}" in record_lines(told)
    assert github_annotations((told,))[0].startswith("::error title=leaks::")
    assert says in remarks(told.diagnoses)


@pytest.mark.parametrize("where", ["labelled", "without_consequences"])
def test_a_fault_of_the_replay_is_not_said_of_the_users_code(where, monkeypatch):
    # None is no finding and no value: our own code, which gets it, fails
    monkeypatch.setattr(interpreter if where == "labelled" else replay, where, lambda *given, **more: None)
    pair = mechanisms.worst_case_pair(records=3, dimension=4, clip=1.0)
    (found,) = audit.explain(broken, pair, key=jax.random.key(0), noise_multiplier=1.0).findings
    assert found.says.startswith("Not judged: the replay itself failed")
    assert found.says.endswith("; this is a fault of the toolkit, not of your code: please report it.")
    assert all(path == __file__ for path, _ in found.lines), found


def test_code_that_jax_cannot_trace_is_not_judged_at_its_line():
    def branches(key, gradients):
        return 1.0 if gradients.sum() > 0 else 2.0

    pair = mechanisms.worst_case_pair(records=3, dimension=4, clip=1.0)
    (told,) = audit.explain(branches, pair, key=jax.random.key(0)).findings
    assert told.kind == "not_followed"
    assert told.lines[0] == (__file__, branches.__code__.co_firstlineno + 1)
    assert "TracerBoolConversionError" in told.says


def test_an_error_of_the_code_itself_is_told_as_its_own():
    def mistyped(key, gradients):
        return gradients.sum(axis=0) + "noise"

    pair = mechanisms.worst_case_pair(records=3, dimension=4, clip=1.0)
    (told,) = audit.explain(mistyped, pair, key=jax.random.key(0)).findings
    line = mistyped.__code__.co_firstlineno + 1
    assert (told.kind, told.lines[0]) == ("not_followed", (__file__, line))
    assert told.says.startswith(f"Not judged: your own code raises an error at test_explain.py:{line}: TypeError: ")
