"""Options of `dpsgd-audit run` that change when it stops and what it draws."""

import functools
import itertools
import json
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from audit.cli import main
from audit.diagnosis import after_verdict as after
from audit.record.stored import load_records
from audit.suites import run as runs
from audit.trials import source

ROOT = Path(__file__).parents[3]
SUITE = """
trials = 200_000
risk = 0.01
[[audit]]
name = "broken"
expect = "violation"
neighbours = "scalar_pair"
distinguisher = "likelihood_ratio"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 0.5 }
claim = { kind = "gaussian", mu = 1.0 }
target = "delta"
"""


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "suite.toml"

    def call(*words, text=SUITE):
        path.write_text(text)
        code = main(["run", str(path), "--out", str(tmp_path / "out"), *words])
        return code, load_records(tmp_path / "out" / "records.json")[0]

    return call


@pytest.mark.long
def test_a_run_that_stops_early_uses_few_trials_and_ends_green(run, tmp_path):
    code, record = run("--stop-early")
    assert (code, record.verdict, record.policy["kind"]) == (0, "violation", "anytime")
    assert record.trials < 2000
    assert record.p_value <= record.risk
    assert "stopped once the claim was refuted" in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.few(1)
@pytest.mark.parametrize("columns", ["80", "400"])
def test_after_too_few_trials_one_sentence_says_how_to_look_again(run, capsys, monkeypatch, columns):
    """Whole, though two narrow lines of what to do may be too short for it."""
    monkeypatch.setenv("COLUMNS", columns)
    right = SUITE.replace("noise_multiplier = 0.5", "noise_multiplier = 1.0").replace('expect = "violation"\n', "")
    code, record = run("--trials", "10", text=right)
    out = capsys.readouterr().out
    assert (code, record.verdict) == (3, "inconclusive")
    assert out.count("plan ahead with --look 1 or --stop-early") == 1
    assert "suite.toml --look 1" in " ".join(out.split())
    assert "run SUITE" not in out


THREE = """
title = "Three"
trials = 400
risk = 0.03
[defaults]
neighbours = "scalar_pair"
distinguisher = "likelihood_ratio"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
claim = { kind = "gaussian", mu = 1.0 }
diagnose = false
""" + "".join(f'[[audit]]\nname = "{name}"\n' for name in ("first", "second", "third"))


def test_one_audit_of_a_suite_has_the_numbers_that_it_has_in_the_whole_one(tmp_path, run, capsys):
    run(text=THREE)
    whole = load_records(tmp_path / "out" / "records.json")
    records = tmp_path / "alone" / "records.json"
    assert main(["run", str(tmp_path / "suite.toml"), "--out", str(records.parent), "--audit", "second"]) == 3
    assert "1 of the suite's 3 audits, each with its part of the suite's risk." in capsys.readouterr().out
    (alone,) = load_records(records)
    assert (alone.name, alone.risk, alone.suite.audits) == ("second", 0.01, 3)
    unlike = {"started", "seconds"}
    one, same = ({k: v for k, v in record.to_json().items() if k not in unlike} for record in (alone, whole[1]))
    assert one == same
    assert "--audit second" in (records.parent / "index.html").read_text()
    assert main(["verify", str(records), "--quiet"]) == 3


@pytest.mark.long
def test_one_audit_that_is_run_again_leaves_the_records_of_the_others(tmp_path, run, capsys):
    run(text=THREE)
    path = tmp_path / "out" / "records.json"
    before = load_records(path)
    run("--audit", "second", "--fresh", text=THREE)
    again = load_records(path)
    assert [record.name for record in again] == ["first", "second", "third"]
    assert (again[0], again[2]) == (before[0], before[2])
    assert again[1].started >= before[1].started
    said = capsys.readouterr()
    assert "2 records of an earlier run" in said.err
    assert "are kept." in said.err
    assert main(["verify", str(path), "--quiet"]) == 0
    run("--audit", "second", "--seed", "7", text=THREE)
    assert "2 records of an earlier run" in (said := capsys.readouterr().err)
    assert "are replaced: of another seed, risk or suite." in said
    assert len(load_records(path)) == 1


def test_an_audit_that_the_suite_lacks_is_refused(tmp_path, capsys):
    (tmp_path / "suite.toml").write_text(THREE)
    assert main(["run", str(tmp_path / "suite.toml"), "--out", str(tmp_path / "out"), "--audit", "secnd"]) == 2
    assert (
        "the suite has no audit 'secnd' (did you mean 'second'?). Known: first, second, third."
        in capsys.readouterr().err
    )


def test_an_interrupted_run_reports_what_it_finished_and_goes_on_from_there(tmp_path, run, capsys, monkeypatch):
    whole = runs._run

    def interrupted(audit, *more):
        if audit.spec.name == "third":
            raise KeyboardInterrupt
        return whole(audit, *more)

    monkeypatch.setattr(runs, "_run", interrupted)
    code, first = run(text=THREE)
    assert code == 130
    assert "interrupted: 2 of 3 audits; report of these: " in capsys.readouterr().err
    assert (len(load_records(tmp_path / "out" / "records.json")), first.risk) == (2, 0.01)
    assert first.adjusted_p_value == min(1.0, 3 * first.p_value)
    assert "Three (interrupted: 2 of 3 audits)" in (tmp_path / "out" / "index.html").read_text()
    monkeypatch.setattr(runs, "_run", whole)
    assert run(text=THREE)[0] != 130
    assert "'first': reused; it was finished before the interruption." in capsys.readouterr().err
    assert len(load_records(tmp_path / "out" / "records.json")) == 3


@pytest.mark.long
def test_a_fresh_seed_is_printed_and_reproduces_the_run(run, capsys):
    _, fresh = run("--fresh-seed", "--trials", "200")
    seed = re.search(r"^seed: (\d+)$", capsys.readouterr().err, re.MULTILINE)[1]
    _, again = run("--seed", seed, "--trials", "200")
    assert (again.key, again.points) == (fresh.key, fresh.points)
    _, default = run("--trials", "200")
    assert default.key != fresh.key


def test_a_seed_and_a_fresh_one_exclude_each_other(tmp_path, capsys):
    path = tmp_path / "suite.toml"
    path.write_text(SUITE)
    assert main(["run", str(path), "--out", str(tmp_path / "out"), "--seed", "1", "--fresh-seed"]) == 2
    assert "not both" in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["-1", str(2**32)])
def test_a_seed_that_would_alias_another_is_refused(tmp_path, capsys, seed):
    path = tmp_path / "suite.toml"
    path.write_text(SUITE)
    assert main(["run", str(path), "--out", str(tmp_path / "out"), f"--seed={seed}"]) == 2
    assert f"--seed must be a whole number from 0 to 2^32 - 1 (JAX would read others modulo 2^32), got {seed}." in (
        capsys.readouterr().err
    )


@pytest.fixture
def slow_clock(monkeypatch):
    """Every look at the clock takes 1/20 s, so that a budget of a second leaves as many trials on any machine."""
    clock = types.SimpleNamespace(monotonic=functools.partial(next, itertools.count(0.0, 0.05)))
    for module in (runs, source, after):
        monkeypatch.setattr(module, "time", clock)


@pytest.mark.few(1)
@pytest.mark.parametrize("where", ["audit", "suite", "command"])
@pytest.mark.usefixtures("slow_clock")
def test_a_time_budget_cuts_trials_off_and_bounds_stay_valid(run, where):
    many = SUITE.replace("200_000", "2_000_000_000")
    budget = 'time_budget = "1s"\n'
    texts = {"audit": many + budget, "suite": budget + many, "command": many}
    words = ("--time-budget", "1s") if where == "command" else ()
    _, record = run(*words, text=texts[where])
    assert 0 < record.trials < record.trials_planned == 2_000_000_000
    assert record.verdict == "violation"
    assert all(point.counts.trials_with == record.trials_per_side for point in record.points)


LOCAL = """
trials = 200
risk = 0.05
[[audit]]
name = "mine"
mechanism = { function = "my_step:release" }
neighbours = "scalar_pair"
distinguisher = "projection"
claim = { kind = "gaussian", mu = 5.0 }
diagnose = false
"""
RELEASE = """
import jax

def release(key, dataset):
    return dataset.sum(0) + jax.random.normal(key, dataset.shape[1:])
"""


def command(folder, *words):
    """The installed command's own way: the working folder is not on Python's path."""
    code = f"import sys; sys.path = [p for p in sys.path if p]; sys.path.insert(0, {str(ROOT)!r}); "
    code += "from dpsgd_audit.__main__ import main; sys.argv[0] = 'dpsgd-audit'; sys.exit(main())"
    return subprocess.run([sys.executable, "-P", "-c", code, *words], cwd=folder, capture_output=True, text=True)


@pytest.mark.long
def test_local_code_is_found_and_a_file_with_one_of_our_names_is_not_taken_for_ours(tmp_path):
    (tmp_path / "my_step.py").write_text(RELEASE)
    for name in ("mechanisms", "guarantees"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong file was executed')")
    (tmp_path / "suite.toml").write_text(LOCAL)
    done = command(tmp_path, "run", "suite.toml", "--json")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert json.loads(done.stdout)[0]["mechanism"]["name"] == "release"


@pytest.mark.long
def test_a_local_file_with_one_of_our_names_cannot_be_named_and_the_message_says_why(tmp_path):
    (tmp_path / "mechanisms.py").write_text(RELEASE.replace("release", "their_release"))
    (tmp_path / "suite.toml").write_text(LOCAL.replace("my_step:release", "mechanisms:their_release"))
    done = command(tmp_path, "run", "suite.toml")
    assert done.returncode == 2
    assert str(tmp_path / "mechanisms.py") in done.stderr
    assert "rename yours" in done.stderr


@pytest.mark.long
def test_the_working_folder_is_not_searched_for_a_suite_without_code_of_its_own(run, tmp_path, monkeypatch):
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(before))
    run("--trials", "200")
    assert sys.path == before
    (tmp_path / "my_step.py").write_text(RELEASE)
    monkeypatch.chdir(tmp_path)
    run(text=LOCAL)
    assert sys.path[-1] == str(tmp_path)


PRINTING = """
import os
import numpy as np

print("imported")


def loud(seed, rows):
    print("epoch 1")
    os.write(1, b"from C\\n")
    return rows.sum(0) + np.random.default_rng(seed).standard_normal(rows.shape[1])
"""


def test_json_stands_alone_whatever_the_code_prints(tmp_path, monkeypatch, capfd):
    (tmp_path / "loud_step.py").write_text(PRINTING)
    mine = LOCAL.replace('{ function = "my_step:release" }', '{ kind = "callable_step", function = "loud_step:loud" }')
    (tmp_path / "suite.toml").write_text(mine)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["run", "suite.toml", "--json"]) in (0, 3)
    said = capfd.readouterr()
    assert json.loads(said.out)[0]["name"] == "mine"
    for printed in ("imported", "epoch 1", "from C"):
        assert printed in said.err
    print("as before")
    assert capfd.readouterr().out == "as before\n"
