"""However a run ends, it says so in one line and the same command continues it to the same record."""

import contextlib
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import foreign
import jax
import numpy as np
import pytest
from toys import PAIR, First, Shift

import audit
import guarantees
import mechanisms
from audit.cli import CONTINUES, main
from audit.record.stored import load_records
from audit.resume import checkpoint
from audit.trials import traced
from audit.trials.source import StaleCountsError, Tally, empty_tally
from audit.trials.user_code_errors import Terminated

ROOT = Path(__file__).resolve().parents[3]
ROWS = mechanisms.pair(np.zeros((1, 3)), np.array([[1.0, 0.0, 0.0]]), relation="zero_out")
SUITE = """
seed = 4
[[audit]]
name = "theory"
trials = 8_000_000
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
neighbours = "scalar_pair"
distinguisher = "likelihood_ratio"
claim = { kind = "gaussian", mu = 1.0 }
[[audit]]
name = "fit"
trials = 2_000_000
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
neighbours = "scalar_pair"
distinguisher = "projection"
claim = { kind = "gaussian", mu = 1.0 }
policy = { kind = "split", fit_trials = 1_000_000 }
[[audit]]
name = "anytime"
trials = 4_000_000
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
neighbours = "scalar_pair"
distinguisher = "likelihood_ratio"
claim = { kind = "gaussian", mu = 1.0 }
policy = "anytime"
[[audit]]
name = "foreign"
trials = 3000
mechanism = { kind = "callable_step", function = "foreign:slow_sum" }
neighbours = { kind = "worst_case_pair", records = 1, dimension = 3, clip = 1.0 }
distinguisher = "projection"
claim = { kind = "gaussian", mu = 2.0 }
"""


def told(records):
    """Records as plain data, less what no two runs share."""
    unlike = ("seconds", "started")
    return [{key: value for key, value in record.to_json().items() if key not in unlike} for record in records]


def test_a_fixed_sample_is_never_extended():
    seen, key = [], jax.random.key(0)
    options = {"claim": guarantees.gaussian(mu=1.0), "risk": 0.05, "diagnose": False, "key": key}
    options["policy"] = audit.Fixed(thresholds=(0.5,))
    execution = audit.Execution(chunk=100, progress=seen.append)
    audit.run_audit(Shift(mu=1.0), PAIR, First(), trials=1000, execution=execution, **options)
    later = audit.Execution(chunk=100, resume=seen[-1])
    for trials in (2000, 600):
        with pytest.raises(StaleCountsError, match="thresholds or planned trials"):
            audit.run_audit(Shift(mu=1.0), PAIR, First(), trials=trials, execution=later, **options)


@pytest.mark.long
def test_a_time_budget_holds_during_fit_trials():
    step = mechanisms.callable_step(foreign.slow_sum)
    options = {"claim": guarantees.gaussian(mu=2.0), "risk": 0.05, "diagnose": False, "key": jax.random.key(0)}
    policy = audit.Split(fit_trials=100_000)
    end = time.monotonic() + 0.6
    execution = audit.Execution(deadline=end)
    record = audit.run_audit(step, ROWS, First(), trials=100_000, policy=policy, execution=execution, **options)
    assert 40 <= record.fit_trials < 1000
    assert 0 < record.trials < 1000
    assert record.fit_trials % 2 == 0


@pytest.mark.parametrize("swallowed", [False, True])
def test_sigterm_ends_with_one_line(monkeypatch, capsys, tmp_path, swallowed):
    """Also where the exception is lost, as in a callback of the garbage collector: the next progress raises it."""

    def run_suite(suite, *, progress, **_):
        with contextlib.suppress(Terminated if swallowed else ValueError):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        progress(suite.audits[0], empty_tally(np.zeros((1, 3))))
        raise AssertionError("not ended")

    monkeypatch.setattr("audit.suites.run.run_suite", run_suite)
    before = signal.getsignal(signal.SIGTERM)
    assert main(["run", "--out", str(tmp_path)]) == 143
    assert capsys.readouterr().err == f"dpsgd-audit: terminated; {CONTINUES}\n"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.long
def test_a_full_disk_ends_with_one_line_and_is_continued(tmp_path, monkeypatch, capsys):
    path, out = tmp_path / "suite.toml", tmp_path / "out"
    path.write_text(SUITE.split('[[audit]]\nname = "fit"')[0].replace("8_000_000", "400_000"))
    words, write, left = ["run", str(path), "--out", str(out)], Path.write_text, [2]

    def full(self, text, *arguments, **more):
        left[0] -= self.suffix == ".part"
        if left[0] < 0:
            write(self, text[: len(text) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, text, *arguments, **more)

    # an accelerator would draw all trials at once, and no counts would be kept on the way
    monkeypatch.setattr(traced, "chunk_size", lambda *_, **__: 4096)
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(Path, "write_text", full)
    assert main(words) == 2
    said = capsys.readouterr().err.splitlines()
    assert "no space left on device); make room and run the same command again." in said[-1]
    assert not [line for line in said if "Traceback" in line]
    assert not list(out.rglob("*.part"))
    monkeypatch.setattr(Path, "write_text", write)
    assert main(words) == 0
    assert "continued after" in capsys.readouterr().err
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 1e9)
    assert main(["run", str(path), "--out", str(tmp_path / "whole")]) == 0
    assert told(load_records(out / "records.json")) == told(load_records(tmp_path / "whole" / "records.json"))


def command(*words: str) -> subprocess.Popen:
    paths = [str(ROOT), str(ROOT / "tests" / "audit"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    started = [sys.executable, "-m", "dpsgd_audit", "run", *words]
    return subprocess.Popen(started, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbs: its suite, its records and how long it took."""
    folder = tmp_path_factory.mktemp("whole")
    path = folder / "suite.toml"
    path.write_text(SUITE)
    began = time.monotonic()
    run = command(str(path), "--out", str(folder / "out"))
    said = run.communicate()[1]
    assert run.returncode in (0, 3), said
    return path, told(load_records(folder / "out" / "records.json")), time.monotonic() - began


@pytest.mark.long
@pytest.mark.parametrize("cluster", [(), ("--executor", "dask", "--workers", "2")])
@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM])
def test_runs_ended_at_random_points_give_the_record_of_one_that_was_not(whole, tmp_path, ended_by, cluster):
    (path, expected, seconds), ended = whole, []
    chance, words = random.Random(f"{ended_by} {cluster}"), [str(path), "--out", str(tmp_path / "out"), "--resume"]
    for _ in range(6):
        run = command(*words, *cluster)
        try:
            run.wait(timeout=chance.uniform(0.1, 0.6) * seconds)
        except subprocess.TimeoutExpired:
            run.send_signal(ended_by)
        said = run.communicate()[1]
        if run.returncode in (0, 3):
            break
        # before Python has come to our code it ends as it always does
        assert run.returncode in ((-9,) if ended_by == signal.SIGKILL else (143, -15)), said
        ended.append(run.returncode)
        if run.returncode == 143:
            assert said.splitlines()[-1] == f"dpsgd-audit: terminated; {CONTINUES}"
    else:
        run = command(*words)
        said = run.communicate()[1]
    assert run.returncode in (0, 3), said
    assert ended
    assert told(load_records(tmp_path / "out" / "records.json")) == expected
    assert not list((tmp_path / "out").rglob("*.part"))


def test_counts_on_disk_are_whole_numbers_of_any_size(tmp_path):
    place = checkpoint.checkpoint(tmp_path, "huge")
    counts = np.array([[2**40, 2**53 + 1, 5]])
    place.keep(Tally(without=counts, with_record=counts, trials_per_side=int(counts.sum()), test="t"))
    found = place.started(at_most=int(counts.sum()))
    assert found is not None
    np.testing.assert_array_equal(found.without, counts)
    assert json.loads(next(tmp_path.glob("*.json")).read_text())["without"] == counts.tolist()
