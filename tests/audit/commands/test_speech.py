"""How commands speak: JSON and silence everywhere, every epsilon with its delta, no colours in a pipe."""

import argparse
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from audit import cli
from audit.commands.arguments import COMMANDS
from audit.record.stored import load_records

RECORDS = Path(__file__).parents[2] / "data" / "records.json"
SUITE = """
risk = 0.05
trials = 200
[[audit]]
name = "a"
neighbours = "scalar_pair"
distinguisher = "likelihood_ratio"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
claim = { kind = "gaussian", mu = 1.0 }
"""
NAMES = [command.name for command in COMMANDS]


@pytest.fixture
def words(tmp_path):
    """A cheap call of each command but ``run``, whose own test is in test_cli.py."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.normal(size=400))
    np.save(tmp_path / "b.npy", rng.normal(size=400) + 1)
    (tmp_path / "suite.toml").write_text(SUITE)
    scores = ["--without", tmp_path / "a.npy", "--with", tmp_path / "b.npy"]
    return {
        "plan": ["plan", tmp_path / "suite.toml"],
        "explain": ["explain", tmp_path / "suite.toml"],
        "compare": ["compare", RECORDS, RECORDS],
        "list": ["list"],
        "bound": ["bound", *scores, "--claim", "gaussian(mu=3)"],
        "one run": ["bound", "--one-run", *scores],
        "claim": ["claim", "gaussian(mu=1)", "--delta", 1e-4],
        "verify": ["verify", RECORDS],
        "report": ["report", RECORDS, "--format", "text"],
        "written": ["report", RECORDS, "--format", "csv", "--out", tmp_path / "records.csv"],
        "plot": ["plot", RECORDS, "--x", "rate", "--out", tmp_path / "sweep.png"],
    }


SPOKEN = [
    # three plans cost more than all the others
    pytest.param("plan", marks=pytest.mark.long),
    *("explain", "compare", "list", "bound", "one run", "claim", "verify", "report", "written", "plot"),
]


def call(words, *more):
    return cli.main([str(word) for word in (*words, *more)])


@pytest.mark.parametrize("name", NAMES)
def test_every_command_can_speak_json_and_be_quiet(name):
    own = argparse.ArgumentParser()
    next(command for command in COMMANDS if command.name == name).options(own)
    flags = {flag for action in own._actions for flag in action.option_strings}
    assert {"--json", "--quiet"} <= flags


@pytest.mark.few(3)
@pytest.mark.parametrize("name", SPOKEN)
def test_a_pipe_gets_words_without_colours_json_or_nothing(name, words, capsys):
    code = call(words[name])
    said = capsys.readouterr().out
    assert said
    assert "\x1b" not in said
    assert "⡇" not in said, "a plot that nobody asked for"
    assert call(words[name], "--json") == code
    told = json.loads(capsys.readouterr().out)
    assert told
    if name != "list":
        assert_every_epsilon_has_its_delta(told)
    assert call(words[name], "--quiet") == code
    assert capsys.readouterr().out == ""


def assert_every_epsilon_has_its_delta(told):
    """Beside a number that is called epsilon stands one that is called delta, in the same object or around it."""

    def look(value, known):
        if isinstance(value, dict):
            here = known or any("delta" in key for key in value)
            for key, inside in value.items():
                if "epsilon" in key and isinstance(inside, float):
                    assert here, (key, value)
                look(inside, here)
        elif isinstance(value, list):
            for inside in value:
                look(inside, known)

    look(told, False)


def test_every_epsilon_of_a_record_has_its_delta():
    assert_every_epsilon_has_its_delta([record.to_json() for record in load_records(RECORDS)])


def test_an_epsilon_alone_is_seen():
    assert_every_epsilon_has_its_delta({"delta": 1e-5, "audits": [{"epsilon": 1.0}]})
    with pytest.raises(AssertionError):
        assert_every_epsilon_has_its_delta({"audits": [{"epsilon": 1.0}], "other": {"delta": 1e-5}})


def test_json_of_bound_names_the_delta_of_its_epsilon(words, capsys):
    for name in ("bound", "one run"):
        call(words[name], "--delta", 1e-4, "--json")
        assert json.loads(capsys.readouterr().out)["epsilon_at_delta"] == 1e-4


def test_plan_prints_the_delta_of_its_epsilons(words, capsys):
    call(words["plan"])
    assert "epsilons are at delta 1e-05" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["claim", "bound", "report"])
def test_an_encoding_without_our_characters_is_no_error(name, words, monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", errors="strict"))
    more = ["--title", "≤ 😀"] if name == "report" else []
    assert call(words[name], *more) == 0
    sys.stdout.flush()
    text = raw.getvalue().decode("ascii")
    assert text
    if name == "report":
        assert text.startswith("<= ?")
