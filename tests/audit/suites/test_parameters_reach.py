"""A parameter of a suite reaches every part that names it, or the suite is refused: no part runs with a default."""

import sys
from pathlib import Path

import pytest

from audit.cli import main
from audit.suites.build import build, build_suite
from audit.suites.read import parse_suite
from audit.suites.suite import SuiteError

CODE = """
import functools
import guarantees, mechanisms

seen = {}

def make(noise_multiplier, rate=0.5):
    seen["make"] = (noise_multiplier, rate)
    return mechanisms.one_round(normalise_by="none", rate=rate, clip=1.0, noise_multiplier=noise_multiplier)

def step(key, data, rate=0.5):
    return data

def nested(noise_multiplier):
    return lambda key, data, rate=0.5: data

def bound(rate):
    return lambda key, data, rate=rate: data

def score(key, output, *, rate=0.5):
    return output[0]

half = functools.partial(step, rate=0.5)
claim = lambda rate, noise_multiplier: guarantees.subsampled_gaussian(rate=rate, noise_multiplier=noise_multiplier)
taker = lambda noise_multiplier, colour="red": make(noise_multiplier)
"""
AUDIT = """
trials = 20
{defaults}
[[audit]]
name = "a"
mechanism = {mechanism}
neighbours = {{ kind = "worst_case_pair", records = 3, dimension = 2, clip = 1.0 }}
claim = {claim}
{more}
"""
USUAL = {
    "mechanism": '{ function = "reached:make", noise_multiplier = 2.0 }',
    "claim": '{ kind = "subsampled_gaussian", noise_multiplier = 2.0 }',
    "more": "parameters = { rate = [0.1, 0.2] }",
    "defaults": "",
}


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("reached", None)
    Path("reached.py").write_text(CODE)

    def read(**words):
        text = AUDIT.format(**{**USUAL, **words})
        Path("suite.toml").write_text(text)
        return parse_suite(text, "suite.toml")

    yield read
    sys.modules.pop("reached", None)


def test_a_function_that_makes_a_part_gets_the_grid(suite):
    first, second = map(build, suite().audits)
    assert (first.mechanism.rate, second.mechanism.rate) == (0.1, 0.2)
    assert (first.claim.parameters["rate"], second.claim.parameters["rate"]) == (0.1, 0.2)


def test_it_gets_all_that_its_signature_names_with_no_word_of_its_own(suite):
    more = "parameters = { rate = [0.1], noise_multiplier = 3.0 }"
    words = {"mechanism": '{ function = "reached:make" }', "claim": '{ function = "reached:claim" }'}
    (spec,) = suite(**words, more=more).audits
    found = build(spec)
    assert (found.mechanism.rate, found.mechanism.noise_multiplier) == (0.1, 3.0)
    assert found.claim.parameters["noise_multiplier"] == 3.0


def test_its_own_words_win(suite):
    found = build(suite(mechanism='{ function = "reached:make", noise_multiplier = 2.0, rate = 0.9 }').audits[0])
    assert found.mechanism.rate == 0.9


@pytest.mark.parametrize(
    "words",
    [
        {"mechanism": '{ function = "reached:half" }'},
        {"mechanism": '{ kind = "callable_step", function = "reached:step" }'},
        {"mechanism": '{ function = "reached:nested", noise_multiplier = 2.0 }'},
        {"more": 'parameters = { rate = [0.1] }\ndistinguisher = { function = "reached:score" }'},
        {
            "mechanism": '{ function = "reached:half" }',
            "more": "",
            "defaults": "[defaults]\nparameters = { rate = 0.1 }",
        },
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_default_in_place_of_the_grid_is_refused(suite, words, command, capsys):
    suite(**words)
    options = ["--run-code"] if command == "plan" else ["--quiet"]
    assert main([command, "suite.toml", *options]) == 2
    said = capsys.readouterr().err
    assert "parameter 'rate' of audit 'a" in said
    assert "would run with its default rate=0.5" in said


@pytest.mark.parametrize(
    ("mechanism", "rate"),
    [('{ function = "reached:step" }', 0.1), ('{ function = "reached:step", rate = 0.3 }', 0.3)],
)
def test_a_mechanism_with_settings_takes_them_from_its_table_or_the_grid(suite, mechanism, rate):
    """It was called without key and data: 'missing 2 required positional arguments'."""
    claim = '{ kind = "subsampled_gaussian", noise_multiplier = 2.0 }'
    found = build(suite(mechanism=mechanism, claim=claim).audits[0]).mechanism
    assert found.given.keywords == {"rate": rate}
    assert found.name == "step"


def test_a_function_that_binds_what_it_was_given_is_fine(suite):
    assert build(suite(mechanism='{ function = "reached:bound" }').audits[0]).taken == {"rate"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"more": "parameters = { rate = 0.1, colour = 1 }"}, "no part of audit 'a' takes the parameter 'colour'"),
        ({"more": "parameters = { rate = 0.1, nose_multiplier = 1 }"}, "did you mean 'noise_multiplier'"),
        (
            {
                "mechanism": '{ function = "reached:make", noise_multiplier = 2.0, rate = 0.3 }',
                "claim": '{ kind = "gaussian", mu = 1.0 }',
            },
            "no part of audit 'a rate=0.1' takes the parameter 'rate'",
        ),
        (
            {"claim": '{ kind = "gaussian", mu = 1.0 }', "more": "parameters = { clip = 1.0 }"},
            "takes the parameter 'clip': the parts that know it have their own word",
        ),
        (
            {"defaults": "[defaults]\nparameters = { colour = 1 }", "more": "parameters = { rate = 0.1 }"},
            r"suite.toml:4: no part of any audit takes the parameter 'colour' of \[defaults\]",
        ),
    ],
)
def test_a_parameter_that_nobody_takes_is_refused(suite, words, message):
    read = suite(**words)
    with pytest.raises(SuiteError, match=message):
        build_suite(read)


def test_a_parameter_of_defaults_that_only_own_code_takes_is_fine(suite):
    read = suite(
        mechanism='{ function = "reached:taker", noise_multiplier = 2.0 }',
        claim='{ kind = "gaussian", mu = 1.0 }',
        more="",
        defaults="[defaults]\nparameters = { colour = 1 }",
    )
    (found,) = build_suite(read)
    assert found.taken == {"colour"}


def test_a_plan_refuses_what_nobody_takes_in_audits_that_it_leaves_out(suite, capsys):
    suite(
        mechanism='{ kind = "callable_step", function = "reached:step" }',
        more="parameters = { rate = 0.1, colour = 1 }",
    )
    assert main(["plan", "suite.toml"]) == 2
    assert "takes the parameter 'colour'" in capsys.readouterr().err
    assert "reached" not in sys.modules


RIGHT = {
    "mechanism": '{ function = "reached:make", noise_multiplier = 2.0 }',
    "claim": '{ kind = "gaussian", mu = 1.0 }',
    "more": "",
}
MISSPELT = {
    "claim": ({"claim": '{ kind = "gaussian", mue = 1.0 }'}, "unknown key 'mue' in claim 'gaussian'"),
    "a claim of defaults": (
        {"defaults": '[defaults]\nclaim = { kind = "gaussian", mue = 1.0 }'},
        "unknown key 'mue' in claim 'gaussian'",
    ),
    "a word too few": ({"claim": '{ kind = "gaussian" }'}, "claim 'gaussian' of audit 'a' needs 'mu'"),
    "kind": ({"claim": '{ kind = "gausian", mu = 1.0 }'}, "unknown claim 'gausian'"),
    "what papers call it": ({"claim": '{ kind = "RDP" }'}, "unknown claim 'RDP' in audit 'a' (did you mean 'renyi'?)"),
    "mechanism": (
        {"mechanism": '{ kind = "callable_step", function = "reached:step", clips = 1.0 }'},
        "unknown key 'clips' in mechanism 'callable_step'",
    ),
    "your code": (
        {"mechanism": '{ kind = "torch_training", function = "reached:step" }'},
        "mechanism 'torch_training' of audit 'a' takes your code as train, not as 'function'",
    ),
    "simulator": (
        {"mechanism": '{ kind = "callable_step", function = "reached:step", simulator = "fast" }'},
        "simulator must be 'full' or 'collapsed'",
    ),
    "distinguisher": (
        {"more": 'distinguisher = { kind = "projection", directions = 1 }'},
        "unknown key 'directions' in distinguisher 'projection'",
    ),
    "its model": (
        {"more": 'distinguisher = { kind = "likelihood_ratio", model = { kind = "gaussian_mechanism", sigma = 1.0 } }'},
        "unknown key 'sigma' in mechanism 'gaussian_mechanism'",
    ),
    "its pair": (
        {"more": 'distinguisher = { kind = "likelihood_ratio", neighbours = { kind = "scalar_pair", size = 1.0 } }'},
        "unknown key 'size' in neighbours 'scalar_pair'",
    ),
    "policy": (
        {"more": 'policy = { kind = "split", fit_trails = 100 }'},
        "unknown key 'fit_trails' in policy 'split'",
    ),
}


@pytest.mark.parametrize("place", MISSPELT)
def test_a_plan_refuses_a_misspelt_word_in_an_audit_with_code_that_it_leaves_out(suite, place, capsys):
    words, message = MISSPELT[place]
    text = AUDIT.format(**{**USUAL, **RIGHT, **words})
    if "claim =" in words.get("defaults", ""):
        text = text.replace(f"claim = {RIGHT['claim']}", "", 1)
    Path("suite.toml").write_text(text)
    assert main(["plan", "suite.toml"]) == 2
    assert message in capsys.readouterr().err
    assert "reached" not in sys.modules


def test_a_plan_says_which_parameters_only_code_could_take(suite, capsys):
    """Whether a function takes a parameter is known once it is imported, which a plan does not do unasked."""
    suite(more="parameters = { rate = 0.1, colour = 1 }")
    assert main(["plan", "suite.toml"]) == 0
    said = capsys.readouterr().err
    assert "so whether it takes 'colour' is not known" in said
    assert "'rate'" not in said
