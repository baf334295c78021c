"""What an interrupted run leaves behind is used only where nothing changed that decides it."""

import dataclasses
import functools
import importlib
import json
import math
import os
import sys

import jax
import numpy as np
import pytest
from toys import PAIR, First, Shift

import audit
import guarantees
import mechanisms
from audit.cli import main
from audit.record.files import FileError
from audit.resume.checkpoint import checkpoint, locked
from audit.resume.fingerprint import code_digest, decided_by, digest_of, settings
from audit.suites.read import parse_suite
from audit.suites.run import run_suite
from audit.trials.source import StaleCountsError, Tally
from guarantees.trade_off import TradeOff

SUITE = """
trials = 2000
[[audit]]
name = "one"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
neighbours = "scalar_pair"
distinguisher = "likelihood_ratio"
claim = { kind = "gaussian", mu = 1.0 }
"""
FOREIGN = """
trials = 40
[[audit]]
name = "foreign"
mechanism = { kind = "command_step", command = ["PYTHON", "examples/command/step.py", "1.0", "1.0"] }
neighbours = "scalar_pair"
distinguisher = "projection"
claim = { kind = "gaussian", mu = 1.0 }
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "edited_step.py"
    file.write_text("SCALE = 1.0\n")
    importlib.import_module("edited_step")
    yield file
    sys.modules.pop("edited_step")


def test_an_edit_of_a_loaded_file_changes_the_digest_of_the_code(module):
    before = code_digest()
    assert code_digest() == before
    module.write_text("SCALE = 2.0\n")
    assert code_digest() != before


def test_a_file_of_a_distribution_that_was_edited_after_its_installation_counts(monkeypatch):
    from audit.resume import fingerprint

    file = fingerprint.Path(importlib.import_module("rich").__file__).resolve()
    assert fingerprint._installed(file)
    written = {**fingerprint._written(), str(file): os.stat(file).st_mtime - 100}
    monkeypatch.setattr(fingerprint, "_written", lambda: written)
    assert not fingerprint._installed(file)
    assert file in fingerprint._source_files()


def test_our_own_packages_are_hashed_whole():
    from audit.resume import fingerprint

    names = {path.name for path in fingerprint._source_files()}
    assert {"fingerprint.py", "noise.py", "battery.py", "trade_off.py", "for_opacus.py"} <= names


def closure(value):
    return lambda x: x + value


def test_content_is_told_apart_whatever_it_is_called():
    same = [np.zeros((2, 3), np.float32), {"a": (1, 2.0)}, PAIR, closure(1), functools.partial(closure, 1), None]
    # what a factory of steps holds: `library = importlib.import_module(name)`
    same += [closure(math), closure(os)]
    for value in same:
        assert digest_of(value) == digest_of(value)
    assert digest_of(closure(1)) == digest_of(closure(1))
    other = dataclasses.replace(PAIR, with_record=np.asarray(PAIR.with_record) + 1)
    assert len({digest_of(value) for value in (*same, other, closure(2), closure("1"))}) == len(same) + 3
    # what cannot be read is never taken for known
    unknown = open(os.devnull)  # noqa: SIM115
    assert digest_of(unknown) != digest_of(unknown)
    unknown.close()


def test_settings_of_jax_and_xla_are_part_of_what_decides(monkeypatch):
    before = settings()
    with jax.default_matmul_precision("float32"):
        assert settings() != before
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert settings() != before


def test_a_program_and_what_it_declares_to_depend_on_decide(tmp_path):
    (tmp_path / "step.py").write_text("print(1)")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "table.csv").write_text("1,2")
    step = mechanisms.command_step(command=("sh", "step.py", "0.5"), folder=str(tmp_path), depends_on=("data",))

    def found():
        files = step.files
        return decided_by(parts=(), claim=guarantees.gaussian(mu=1.0), files=files, code="", device="", others={})[
            "files"
        ]

    before = found()
    assert len(before) == 3
    (tmp_path / "data" / "table.csv").write_text("1,3")
    assert found() != before
    (tmp_path / "data" / "table.csv").write_text("1,2")
    assert found() == before
    (tmp_path / "step.py").write_text("print(2)")
    assert found() != before


def test_claims_of_one_name_with_another_curve_differ():
    def told(claim):
        return decided_by(parts=(), claim=claim, files=(), code="", device="", others={})["claim"]

    claim = guarantees.gaussian(mu=1.0)
    assert told(claim) == told(guarantees.gaussian(mu=1.0))
    assert told(claim) != told(dataclasses.replace(claim, curve=guarantees.gaussian(mu=1.1).curve))


def test_a_claim_is_known_without_drawing_its_curve_unless_its_law_is_somebody_elses(monkeypatch):
    def told(claim):
        return decided_by(parts=(), claim=claim, files=(), code="", device="", others={})["claim"]

    class Foreign:
        """Holds nothing that shows: only its curve tells it from another."""

        error = 0.0

        def __init__(self, law):
            self.tails, self.threshold = law.tails, law.threshold

    asked = []
    curve = TradeOff.beta
    monkeypatch.setattr(TradeOff, "beta", lambda self, alpha: asked.append(self) or curve(self, alpha))
    ours = guarantees.fixed_batch_shuffle(rounds=10, noise_multiplier=2.0)
    fresh = told(ours)
    ours.law.tails(np.array([0.1]))
    assert told(ours) == fresh == told(guarantees.fixed_batch_shuffle(rounds=10, noise_multiplier=2.0))
    assert fresh != told(guarantees.fixed_batch_shuffle(rounds=10, noise_multiplier=2.5))
    assert not asked
    one, other = (
        dataclasses.replace(ours, curve=TradeOff(Foreign(guarantees.gaussian(mu=mu).law)).reverse) for mu in (1.0, 1.1)
    )
    assert told(one) != told(other)
    assert len(asked) == 2


def test_finished_audits_are_kept_and_told_unless_the_code_changed(tmp_path, module):
    suite, said = parse_suite(SUITE, "s.toml"), []
    (first,) = run_suite(suite, resume_in=tmp_path / "r", told=said.append)
    assert not said
    assert first.environment["code"] == code_digest()
    (again,) = run_suite(suite, resume_in=tmp_path / "r", told=said.append)
    assert (again, said) == (first, ["'one': reused; it was finished before the interruption."])
    module.write_text("SCALE = 3.0\n")
    run_suite(suite, resume_in=tmp_path / "r", told=said.append)
    assert said[1:] == ["'one': an earlier result is not used, because the code is not the same; it runs again."]


def test_what_put_an_earlier_result_aside_is_said_and_a_time_budget_is_no_such_thing(tmp_path):
    suite, said = parse_suite(SUITE, "s.toml"), []
    (first,) = run_suite(suite, resume_in=tmp_path, told=said.append)
    hurried = dataclasses.replace(suite, time_budget=1e-3)
    assert run_suite(hurried, resume_in=tmp_path, told=said.append) == (first,)
    assert said.pop() == "'one': reused; it was finished before the interruption."
    other = dataclasses.replace(suite, seed=suite.seed + 1, risk=suite.risk / 2)
    run_suite(other, resume_in=tmp_path, told=said.append)
    assert said == ["'one': an earlier result is not used, because risk and seed are not the same; it runs again."]


@pytest.mark.long
def test_audits_of_foreign_code_are_kept_only_when_asked(tmp_path):
    suite, said = parse_suite(FOREIGN.replace("PYTHON", sys.executable), "s.toml"), []
    (first,) = run_suite(suite, resume_in=tmp_path)
    run_suite(suite, resume_in=tmp_path, told=said.append)
    assert not [line for line in said if "reused" in line]
    said.clear()
    (kept,) = run_suite(suite, resume_in=tmp_path, keep_foreign=True, told=said.append)
    assert said == ["'foreign': reused; it was finished before the interruption."]
    assert kept.points == first.points


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data["without"][0].__setitem__(0, data["without"][0][0] + 1),
        lambda data: data.__setitem__("trials_per_side", 10**6),
        lambda data: data["with_record"][0].__setitem__(0, -1),
        lambda data: data.pop("test"),
        lambda data: data.__setitem__("without", "no counts"),
    ],
)
def test_counts_that_do_not_add_up_are_not_continued(tmp_path, damage):
    place = checkpoint(tmp_path, "this audit")
    counts = np.array([[40, 60]])
    place.keep(Tally(without=counts, with_record=counts[:, ::-1], trials_per_side=100, test="t"))
    assert place.started(at_most=100) is not None
    assert place.started(at_most=99) is None
    file = next(tmp_path.glob("*.counts.json"))
    data = json.loads(file.read_text())
    damage(data)
    file.write_text(json.dumps(data))
    assert place.started() is None
    file.write_text("{half")
    assert place.started() is None


@pytest.mark.long
def test_counts_of_another_grid_are_refused():
    seen = []
    options = {"claim": guarantees.gaussian(mu=1.0), "trials": 2000, "risk": 0.05, "diagnose": False}
    key = jax.random.key(0)
    first = audit.Fixed(thresholds=(0.5,))
    begun = audit.Execution(chunk=100, progress=seen.append)
    whole = audit.run_audit(Shift(mu=1.0), PAIR, First(), key=key, policy=first, execution=begun, **options)
    later = audit.Execution(chunk=100, resume=seen[0])
    again = audit.run_audit(Shift(mu=1.0), PAIR, First(), key=key, policy=first, execution=later, **options)
    assert again.points == whole.points
    other = audit.Fixed(thresholds=(0.6,))
    with pytest.raises(StaleCountsError, match="other edges"):
        audit.run_audit(Shift(mu=1.0), PAIR, First(), key=key, policy=other, execution=later, **options)


def test_a_folder_serves_one_run_at_a_time(tmp_path, capsys):
    (tmp_path / "out" / ".resume").mkdir(parents=True)
    (tmp_path / "out" / ".resume" / ".dpsgd-audit-old.part").write_text("half")
    path = tmp_path / "suite.toml"
    path.write_text(SUITE)
    with locked(tmp_path / "out" / ".resume"):
        assert not (tmp_path / "out" / ".resume" / ".dpsgd-audit-old.part").exists()
        with pytest.raises(FileError, match="another run"), locked(tmp_path / "out" / ".resume"):
            pass
        assert main(["run", str(path), "--out", str(tmp_path / "out")]) == 2
        assert "another run is writing to" in capsys.readouterr().err
    assert main(["run", str(path), "--out", str(tmp_path / "out")]) == 0
