"""`plan` executes no code of a suite, wherever the suite hides it and however it spells it."""

import contextlib
import sys
from pathlib import Path

import pytest

from audit.cli import main
from audit.suites.build import build, catalogue
from audit.suites.parts import code_of
from audit.suites.read import parse_suite
from audit.suites.suite import SuiteError

TRAP = """
from pathlib import Path
Path("was-run").touch()
step = lambda seed, data: data.sum(0)
"""
AUDIT = """
trials = 20
{defaults}
[[audit]]
name = "a"
mechanism = {mechanism}
neighbours = "scalar_pair"
claim = {{ kind = "gaussian", mu = 1.0 }}
distinguisher = {distinguisher}
parameters = {parameters}
diagnose = false
"""
CALLED = '{ kind = "callable_step" }'
PLAIN = '{ kind = "gaussian_mechanism", noise_multiplier = 1.0 }'
IMPORTED = {
    "under parameters": {"mechanism": CALLED, "parameters": '{ function = "trap:step" }'},
    "in a list": {"mechanism": CALLED, "parameters": '{ function = ["trap:step"] }'},
    "under [defaults]": {"mechanism": CALLED, "defaults": '[defaults]\nparameters = { function = "trap:step" }'},
    "half of a table in [defaults]": {
        "mechanism": CALLED,
        "defaults": '[defaults]\nmechanism = { kind = "callable_step", function = "trap:step" }',
    },
    "without a colon": {"mechanism": '{ kind = "callable_step", function = "trap" }'},
    "with two colons": {"mechanism": '{ kind = "callable_step", function = "trap:step:" }'},
    "no name that Python has": {"mechanism": '{ kind = "callable_step", function = "trap:no-name" }'},
    "with a blank": {"mechanism": '{ kind = "callable_step", function = "trap: step" }'},
    "features of a score": {"distinguisher": '{ kind = "fit" }', "parameters": '{ features = "trap:step" }'},
    "what a score supposes": {"distinguisher": '{ kind = "projection", neighbours = { function = "trap:" } }'},
}
STARTED = {
    "a program under parameters": ('{ kind = "command_step" }', '{ command = [["./trap", "1"]] }', "./trap"),
    "a release that pip installs": ('{ kind = "opacus_step" }', '{ version = ["1.4.0"] }', "1.4.0"),
}
USUAL = {"mechanism": PLAIN, "distinguisher": '"projection"', "parameters": "{}", "defaults": ""}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    sys.modules.pop("trap", None)
    Path("trap.py").write_text(TRAP)
    yield tmp_path
    sys.modules.pop("trap", None)


@pytest.mark.parametrize("where", IMPORTED)
def test_code_is_found_wherever_it_stands(folder, capsys, where):
    text = AUDIT.format(**{**USUAL, **IMPORTED[where]})
    Path("suite.toml").write_text(text)
    assert main(["plan", "suite.toml"]) == 0
    assert "not planned, since that would run trap" in capsys.readouterr().err
    assert not Path("was-run").exists()
    (spec,) = parse_suite(text, "suite.toml").audits
    with pytest.raises(SuiteError, match="would run trap"):
        build(spec, run_code=False)
    assert not Path("was-run").exists()
    # the trap is one: whoever builds the audit walks into it
    with contextlib.suppress(SuiteError):
        build(spec)
    assert Path("was-run").exists()


@pytest.mark.parametrize("where", STARTED)
def test_programs_are_found_wherever_they_stand(where):
    mechanism, parameters, program = STARTED[where]
    text = AUDIT.format(**{**USUAL, "mechanism": mechanism, "parameters": parameters})
    (spec,) = parse_suite(text, "suite.toml").audits
    assert code_of(spec, catalogue()) == (program,)


def test_text_that_no_part_reads_as_code_is_none():
    (spec,) = parse_suite(AUDIT.format(**USUAL).replace('"a"', '"trap:step"'), "suite.toml").audits
    assert code_of(spec, catalogue()) == ()


def test_one_module_imports_what_suites_name():
    suites = Path(__file__).parents[3] / "audit" / "suites"
    importers = [file.name for file in suites.glob("*.py") if "import_module(" in file.read_text()]
    assert importers == ["loading.py"]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ('releases = "transkript"', "releases must be one of ('update', 'transcript', 'final'), got 'transkript'."),
        ('workers = "two"', "workers must be an integer >= 0, got 'two'."),
        ("clip = -1.0", "clip must be"),
    ],
)
def test_a_wrong_value_is_refused_at_its_line_though_no_code_is_run(folder, capsys, word, says):
    step = f'{{ kind = "callable_step", function = "trap:step", {word} }}'
    Path("suite.toml").write_text(AUDIT.format(**{**USUAL, "mechanism": step}))
    assert main(["plan", "suite.toml"]) == 2
    told = capsys.readouterr().err
    assert f"suite.toml:6: mechanism 'callable_step' of audit 'a': {says}" in told
    assert not Path("was-run").exists()
