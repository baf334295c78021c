"""Suites that name code of the user's own: what they may name, and that nothing runs before `run`."""

import json
import sys
from pathlib import Path

import pytest

from audit.cli import main
from audit.suites.build import build, catalogue
from audit.suites.parts import code_of
from audit.suites.read import parse_suite
from audit.suites.run import AuditError, run_suite
from audit.suites.schema import suite_schema
from audit.suites.suite import SuiteError

CODE = """
import numpy as np, jax, jax.numpy as jnp
import guarantees, mechanisms

def foreign(seed, data):
    return {"sum": data["x"].sum(0) + np.random.default_rng(seed).standard_normal(2)}

def traced(key, data):
    return jnp.sum(data["x"], axis=0) + jax.random.normal(key, (2,))

def pair(records=3):
    return mechanisms.add_record({"x": np.zeros((records, 2), np.float32)}, {"x": np.ones(2, np.float32)})

READY = pair()
first = lambda key, output: output[0]
claim = lambda: guarantees.gaussian(mu=2.0)
init = lambda key: jnp.zeros(2)
update = lambda key, state, batch: (state, jnp.sum(batch["x"], axis=0) + jax.random.normal(key, (2,)))
everyone = lambda key, records: jnp.arange(records)
"""
AUDIT = """
trials = 200
[[audit]]
name = "mine"
mechanism = {mechanism}
neighbours = {neighbours}
distinguisher = {distinguisher}
claim = {claim}
diagnose = false
"""
SUITES = Path(__file__).parents[3] / "suites"
USUAL = {
    "mechanism": '{ kind = "callable_step", function = "own_parts:foreign" }',
    "neighbours": '{ function = "own_parts:pair", records = 5 }',
    "distinguisher": '{ function = "own_parts:first" }',
    "claim": '{ kind = "gaussian", mu = 2.0 }',
}


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("own_parts", None)

    def write(code=CODE, **words):
        (tmp_path / "own_parts.py").write_text(code)
        (tmp_path / "suite.toml").write_text(AUDIT.format(**{**USUAL, **words}))
        return tmp_path / "suite.toml"

    yield write
    sys.modules.pop("own_parts", None)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "words",
    [
        {},
        {"mechanism": '{ function = "own_parts:traced" }', "neighbours": '{ function = "own_parts:READY" }'},
        pytest.param(
            {"mechanism": '{ function = "own_parts:traced" }', "claim": '{ function = "own_parts:claim" }'},
            marks=pytest.mark.long,
        ),
        {
            "mechanism": '{ kind = "jax_training", init = "own_parts:init", update = "own_parts:update", '
            'sampler = "own_parts:everyone", steps = 1, releases = "update" }'
        },
    ],
)
def test_a_suite_runs_code_of_the_user(suite, words, capsys):
    suite(**words)
    assert main(["run", "suite.toml", "--json"]) in (0, 3)
    (record,) = json.loads(capsys.readouterr().out)
    assert record["neighbours"]["name"] == "add_record"
    assert record["distinguisher"]["name"] == "first"


@pytest.mark.parametrize("parameters", ["", "bug=''", "bug='', steps=3", "**settings", "steps=3, **rest"])
def test_a_function_that_needs_nothing_makes_the_step(suite, parameters):
    """One with a default was taken for a step: 'too many positional arguments'."""
    path = suite(CODE + f"\nmaker = lambda {parameters}: traced\n", mechanism='{ function = "own_parts:maker" }')
    assert build(parse_suite(path.read_text(), "suite.toml").audits[0]).mechanism.name == "traced"


def test_reading_and_planning_run_no_code(suite, capsys):
    suite(code="raise SystemExit('this was run')")
    assert main(["plan", "suite.toml"]) == 0
    said = capsys.readouterr().err
    assert "mine: not planned, since that would run own_parts:foreign, own_parts:pair" in said
    assert "own_parts" not in sys.modules


def test_the_working_folder_is_searched_last(suite, tmp_path):
    (spec,) = parse_suite(suite().read_text(), "suite.toml").audits
    build(spec)
    assert sys.path[-1] == str(tmp_path)
    assert str(tmp_path) not in sys.path[:-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"mechanism": '{ kind = "callable_step", function = "own_parts:nothing" }'}, "cannot import function = 'own"),
        ({"neighbours": '{ function = "own_parts:init" }'}, "'own_parts:init' of audit 'mine' failed.*missing"),
        ({"neighbours": '{ function = "own_parts:claim" }'}, "must return a Neighbours, got"),
    ],
)
def test_wrong_code_is_refused_with_its_place(suite, words, message, monkeypatch):
    path = suite(**words)
    monkeypatch.syspath_prepend(path.parent)
    (spec,) = parse_suite(path.read_text(), "suite.toml").audits
    with pytest.raises(SuiteError, match=message):
        build(spec)


def test_commands_are_code_too():
    program = '{ kind = "command_step", command = ["./step", "1"] }'
    words = {**USUAL, "mechanism": program, "neighbours": '"scalar_pair"'}
    (spec,) = parse_suite(AUDIT.format(**words), "suite.toml").audits
    assert code_of(spec, catalogue()) == ("./step", "own_parts:first")


def test_the_schema_knows_them():
    schema = suite_schema(catalogue())
    for part in ("mechanism", "neighbours", "distinguisher", "claim", "policy"):
        words = [form.get("properties", {}) for form in schema["$defs"][part]["anyOf"]]
        assert any("function" in form for form in words), part
    jsonschema = pytest.importorskip("jsonschema")
    import tomllib

    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    validator = kind(schema)
    validator.validate(tomllib.loads(AUDIT.format(**USUAL)))
    for shipped in sorted(SUITES.glob("*.toml")):
        validator.validate(tomllib.loads(shipped.read_text()))
    # without a kind the keys are those of the part in [defaults]
    validator.validate({"audit": [{"neighbours": {"records": 3}}]})
    # each of these stands in a table of its own that knows all its words
    for wrong in (
        {"audit": [{"neighbours": {"recrods": 3}}]},
        {"audit": [{"neighbours": {"kind": "worst_case_pair", "recrods": 3}}]},
        {"audit": [{"trails": 100}]},
        {"audit": [{"name": "a"}], "defaults": {"trails": 100}},
        {"audit": [{"name": "a"}], "sweet": {"risk": 0.05}},
        {"audit": [{"name": "a"}], "environments": {"old": {"packages": ["numpy"], "pyhton": "3.11"}}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(wrong)


@pytest.mark.long
def test_an_error_in_the_code_of_the_last_audit_is_told_before_the_first_one_runs(suite):
    code = CODE + "\ntypo = lambda key, data: jax.random.nromal(key, (2,))\n"
    text = suite(code, mechanism='{ function = "own_parts:traced" }').read_text()
    _, _, audit = text.partition("[[audit]]")
    text += "[[audit]]" + audit.replace('"mine"', '"second"').replace("own_parts:traced", "own_parts:typo")
    both, begun = parse_suite(text, "suite.toml"), []
    with pytest.raises(AuditError, match=r"audit 'second' failed: .* has no attribute 'nromal'"):
        run_suite(both, started=begun.append)
    assert begun == []
    records = run_suite(both, keep_going=True)
    assert [record.verdict == "could_not_run" for record in records] == [False, True]
