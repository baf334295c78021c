"""Suites with anything wrong in them: they are built, or refused by one SuiteError that names the file."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import ODD, mutated, toml

from audit.suites.build import build, build_suite
from audit.suites.read import parse_suite
from audit.suites.suite import SuiteError

SUITES = [
    {
        "title": "t",
        "risk": 0.05,
        "trials": 1000,
        "delta": 1e-5,
        "seed": 3,
        "time_budget": "2m",
        "defaults": {"neighbours": "worst_case_pair", "claim": "gaussian", "parameters": {"mu": 1.0, "clip": 0.1}},
        "audit": [
            {
                "name": "sums",
                "mechanism": {"kind": "one_round", "normalise_by": "none", "simulator": "full"},
                "distinguisher": "projection",
                "parameters": {"records": 3, "dimension": 4, "rate": [0.5, 0.7], "noise_multiplier": 1.0},
                "policy": {"kind": "fixed", "thresholds": [0.0, 1.0]},
            },
            {
                "name": "averages",
                "expect": "violation",
                "target": "epsilon",
                "diagnose": False,
                "mechanism": {"kind": "one_round", "normalise_by": "expected_batch"},
                "claim": {"kind": "epsilon_delta", "epsilon": 1.0, "delta": 1e-5},
                "parameters": {"records": 3, "dimension": 4, "rate": 0.5, "noise_multiplier": 2.0},
            },
        ],
    },
    {
        "audit": [
            {
                "name": "own code",
                "mechanism": {"function": "toys:Shift", "mu": 1.0},
                "neighbours": {"function": "toys:PAIR"},
                "distinguisher": {
                    "kind": "projection",
                    "neighbours": {"kind": "zero_pair", "records": 2, "dimension": 3, "clip": 1.0},
                },
                "claim": {"kind": "subsampled_gaussian", "rate": 0.5, "noise_multiplier": 2.0},
                "policy": {"kind": "split", "fit_trials": 200},
            }
        ]
    },
]
TEXTS = [toml(suite) for suite in SUITES]
PLAIN = {"suppress_health_check": list(HealthCheck), "database": None}


def outcome(text: str) -> str:
    """'built' or 'refused'; whatever else happens is a bug."""
    try:
        suite = parse_suite(text, "s.toml")
        build_suite(suite, suite.audits[:2])
    except SuiteError as error:
        told = str(error)
    else:
        return "built"
    assert "s.toml" in told
    assert "\n" not in told
    return "refused"


@st.composite
def scrambled(draw: st.DrawFn) -> str:
    """A suite's text with a piece cut out and another put in."""
    text = draw(st.sampled_from(TEXTS))
    start = draw(st.integers(0, len(text)))
    stop = draw(st.integers(start, min(len(text), start + 40)))
    return (
        text[:start]
        + draw(st.text(ODD, max_size=4) | st.sampled_from(["[[", "]]", '"', "=", "{", "\n[x]\n"]))
        + text[stop:]
    )


@settings(max_examples=40, **PLAIN)
@given(mutated(SUITES).map(toml) | scrambled())
def test_a_wrong_suite_is_refused_in_one_sentence(text):
    assert outcome(text) in ("built", "refused")


@pytest.mark.long
@settings(max_examples=2500, **PLAIN)
@given(mutated(SUITES).map(toml) | scrambled())
def test_no_wrong_suite_ends_in_a_traceback(text):
    assert outcome(text) in ("built", "refused")


AUDIT = '[[audit]]\nname = "{}"\nmechanism = "one_round"\nneighbours = "worst_case_pair"\nclaim = "gaussian"\n'


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("parameters = { rate = [] }", r"s.toml:\d+: rate of audit 1 is an empty list"),
        ("parameters = 3", "parameters must be a table"),
        ("target = 'epsilom'", "target must be one of .*did you mean 'epsilon'"),
        ("trials = 9223372036854775806", "trials must be at most"),
        ("parameters = { rate = [" + "0.1, " * 200 + "], clip = [" + "0.1, " * 200 + "] }", "expands to 40,000 audits"),
    ],
)
def test_what_makes_no_grid_and_no_number_is_refused(words, told):
    with pytest.raises(SuiteError, match=told):
        parse_suite(AUDIT.format("a") + words, "s.toml")


def test_a_misspelt_parameter_is_not_ignored():
    words = (
        "parameters = { records = 4, dimension = 3, clip = 0.1, rate = 0.5, noise_multiplyer = 1.0, mu = 1.0 }\n"
        'mechanism = { kind = "one_round", normalise_by = "none", noise_multiplier = 2.0 }\n'
    )
    text = AUDIT.format("a").replace('mechanism = "one_round"\n', "") + words
    (spec,) = parse_suite(text, "s.toml").audits
    with pytest.raises(SuiteError, match=r"takes the parameter 'noise_multiplyer' .did you mean 'noise_multiplier'"):
        build(spec)


def defaults(words: str) -> str:
    return (
        f"[defaults.parameters]\n{words}\n" + AUDIT.format("a") + AUDIT.format("b").replace('"gaussian"', '"laplace"')
    )


def test_a_misspelt_parameter_of_the_defaults_is_not_ignored():
    """One that only one audit's claim takes is none: mu of gaussian, epsilon of laplace."""
    good = (
        'records = 4\ndimension = 3\nclip = 0.1\nrate = 0.5\nnormalise_by = "none"\n'
        "noise_multiplier = 2.0\nmu = 1.0\nepsilon = 1.0"
    )
    assert len(build_suite(parse_suite(defaults(good), "s.toml"))) == 2
    told = r"s.toml:10: no part of any audit takes the parameter 'dimensions' of .defaults. .did you mean 'dimension'"
    with pytest.raises(SuiteError, match=told):
        build_suite(parse_suite(defaults(f"{good}\ndimensions = 3"), "s.toml"))
    with pytest.raises(SuiteError, match=r"s.toml:2: parameters of .defaults. must be a table, got 3"):
        parse_suite("[defaults]\nparameters = 3\n" + AUDIT.format("a") + "parameters = { mu = 1.0 }", "s.toml")
    own = (
        '[defaults.parameters]\nmuu = 1.0\nmu = 1.0\n[[audit]]\nname = "own"\nclaim = "gaussian"\n'
        'mechanism = { function = "toys:Shift" }\nneighbours = { function = "toys:PAIR" }\n'
    )
    with pytest.raises(SuiteError, match=r"s.toml:2: .*'muu' of .defaults. .did you mean 'mu'"):
        build_suite(parse_suite(own, "s.toml"))


def test_thousands_of_names_are_checked_in_a_moment():
    """Two seconds for 5,000; comparing each with each took minutes, and a sixth of that for 2,000."""
    began = time.process_time()
    assert len(parse_suite("".join(AUDIT.format(i) for i in range(2000)), "s.toml").audits) == 2000
    assert time.process_time() - began < 5
    with pytest.raises(SuiteError, match="two audits are called '1'"):
        parse_suite("".join(AUDIT.format(i % 1999 + 1) for i in range(2000)), "s.toml")
