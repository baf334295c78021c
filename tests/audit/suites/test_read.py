import pytest

from audit.suites.read import parse_suite, seconds
from audit.suites.suite import SuiteError

GOOD = """
title = "t"
risk = 0.01
trials = 1000
[defaults]
neighbours = { kind = "worst_case_pair", clip = 0.1 }
[[audit]]
name = "one"
mechanism = { kind = "one_round", normalise_by = "none" }
claim = "subsampled_gaussian"
parameters = { rate = [0.1, 0.5], records = 4 }
[[audit]]
name = "two"
expect = "violation"
trials = 20
mechanism = "one_round"
neighbours = { records = 3, kind = "worst_case_pair" }
claim = { kind = "gaussian", mu = 1.0 }
time_budget = "2m"
"""


def test_defaults_overrides_and_grids():
    suite = parse_suite(GOOD, "s.toml")
    assert [audit.name for audit in suite.audits] == ["one rate=0.1", "one rate=0.5", "two"]
    first, _, last = suite.audits
    assert first.trials == 1000
    assert first.parameters == {"rate": 0.1, "records": 4}
    assert first.neighbours == {"kind": "worst_case_pair", "clip": 0.1}
    assert first.expect == "no_violation_found"
    assert last.trials == 20
    assert last.expect == "violation"
    assert last.neighbours == {"kind": "worst_case_pair", "clip": 0.1, "records": 3}
    assert last.time_budget == 120
    assert suite.risk == 0.01


@pytest.mark.parametrize(
    ("default", "own", "due"),
    [
        ('{ kind = "a", x = 1 }', '{ kind = "b", y = 2 }', {"kind": "b", "y": 2}),
        ('{ kind = "a", x = 1 }', '{ function = "m:f" }', {"function": "m:f"}),
        ('{ function = "m:f", x = 1 }', '{ kind = "b" }', {"kind": "b"}),
        ('{ function = "m:f", x = 1 }', '{ function = "m:g" }', {"function": "m:g"}),
        ('{ kind = "a", x = 1 }', '"b"', {"kind": "b"}),
        ('"a"', '{ kind = "b", y = 2 }', {"kind": "b", "y": 2}),
        ('{ kind = "a", x = 1 }', '"a"', {"kind": "a", "x": 1}),
        ('{ kind = "a", x = 1 }', '{ kind = "a", x = 2 }', {"kind": "a", "x": 2}),
        ('{ kind = "a", x = 1 }', "{ y = 2 }", {"kind": "a", "x": 1, "y": 2}),
        ('"a"', "{ y = 2 }", {"kind": "a", "y": 2}),
        ("{ x = 1 }", '{ kind = "b" }', {"kind": "b", "x": 1}),
    ],
)
def test_a_default_gives_its_keys_only_to_the_part_that_it_names(default, own, due):
    text = f'[defaults]\nmechanism = {default}\n[[audit]]\nname = "n"\nclaim = "gaussian"\nneighbours = "zero_pair"\n'
    assert parse_suite(f"{text}mechanism = {own}", "s.toml").audits[0].mechanism == due


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("risk = 0.01", "risc = 0.01", r"s.toml:3: unknown key 'risc' .*did you mean 'risk'"),
        ("risk = 0.01", "risk = 1.5", r"s.toml:3: risk must be a number between 0 and 1, got 1.5"),
        ("trials = 20", "trials = 21", r"s.toml:15: trials must be even"),
        ("trials = 20", "trails = 20", r"s.toml:15: unknown key 'trails' .*did you mean 'trials'"),
        ('title = "t"', "seed = 4294967296", r"s.toml:2: seed must be a whole number from 0 to 2\^32 - 1"),
        ("trials = 20", "trials = true", r"s.toml:15: trials must be a whole number"),
        ('expect = "violation"', 'expect = "violations"', r"s.toml:14: expect must be one of .*did you mean"),
        ('time_budget = "2m"', 'time_budget = "2 weeks"', r"s.toml:19: a time budget is written like"),
        ('claim = { kind = "gaussian", mu = 1.0 }', "claim = 3", r"s.toml:18: claim must be a name or a table"),
        (
            'name = "two"',
            'name = "one rate=0.1"',
            r"s.toml:\d+: two audits are called 'one rate=0.1', the other one at s.toml:\d+;",
        ),
        ('title = "t"', "delta = 2", r"s.toml:2: delta must be a number between 0 and 1"),
        ('claim = "subsampled_gaussian"', "", "audit 1 has no claim"),
        ("[[audit]]", "[[audit", "not valid TOML"),
    ],
)
def test_a_wrong_suite_gets_a_message_with_its_place(old, new, message):
    with pytest.raises(SuiteError, match=message):
        parse_suite(GOOD.replace(old, new, 1), "s.toml")


def test_a_suite_without_audits_is_refused():
    with pytest.raises(SuiteError, match="at least one"):
        parse_suite("risk = 0.1", "s.toml")
    with pytest.raises(SuiteError, match=r"s.toml:2: .* write \[\[audit\]\] in place of \[audit\]"):
        parse_suite("risk = 0.1\n[audit]\nname = 'one'", "s.toml")
    with pytest.raises(SuiteError, match=r"s.toml:1: audit 1 must be a table, got 0"):
        parse_suite("audit = [0]", "s.toml")


def test_durations():
    assert [seconds(text, "x") for text in ("60s", "5m", "1h", "2.5", 3)] == [60, 300, 3600, 2.5, 3]
