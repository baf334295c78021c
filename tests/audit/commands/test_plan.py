import json

import jax
import numpy as np
import pytest

import guarantees
from audit.cli import main
from audit.commands.plan import _cells
from audit.planning import plan as planning
from audit.procedure import run_audit
from audit.report.durations import duration
from audit.suites import plan as planned_audits
from audit.suites.build import build_suite
from audit.suites.plan import timed_trials, trials_drawn
from audit.suites.read import read_suite

SUITE = """
trials = 2000
risk = 0.05
[defaults]
neighbours = "scalar_pair"
claim = { kind = "gaussian", mu = 1.0 }
[[audit]]
name = "too little noise, curve known"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 0.5 }
distinguisher = "likelihood_ratio"
[[audit]]
name = "too little noise, pilot"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 0.5 }
distinguisher = "projection"
[[audit]]
name = "right"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
distinguisher = "likelihood_ratio"
"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "suite.toml"
    path.write_text(SUITE)
    return path


@pytest.mark.long
def test_a_plan_tells_trials_time_and_bounds_of_every_audit(planned, capsys):
    assert main(["plan", str(planned), "--json"]) == 0
    known, pilot, right = json.loads(capsys.readouterr().out)
    assert (known["source"], pilot["source"]) == ("exact curve", "pilot of 400 trials")
    refutation = known["plan"]["refutation"]
    # noise at half of what was claimed is refuted by tens of trials per side
    assert 40 < refutation["joint_trials"] < 400
    assert pilot["plan"]["refutation"]["joint_trials"] < 4000
    low, high = pilot["trials_between"]
    assert low < pilot["plan"]["refutation"]["joint_trials"] < high
    assert known["trials_between"] is None
    assert right["plan"]["refutation"]["joint_trials"] is None
    assert right["plan"]["risk"] == pytest.approx(0.05 / 3)
    assert right["plan"]["expected"]["epsilon"] < 4.377 < right["plan"]["smallest_leak"]["epsilon"]
    assert right["plan"]["expected"]["epsilon"] < right["plan"]["largest_provable_epsilon"]
    assert known["plan"]["seconds"] > 0
    share = int(100 / right["plan"]["smallest_leak"]["mu"]) / 100
    assert f"these trials find {share:g} of the promised noise, or less" in right["finds"]


@pytest.mark.long
def test_a_plan_counts_the_trials_that_choose_scores_and_thresholds(planned):
    """Two trials of 400 were said to take 400 trials' time, where as many again chose the scores."""
    suite = read_suite(planned)
    for audit in build_suite(suite)[:2]:
        record = run_audit(
            audit.mechanism,
            audit.neighbours,
            audit.distinguisher,
            claim=audit.claim,
            trials=audit.spec.trials,
            risk=0.05,
            key=jax.random.key(0),
            diagnose=False,
        )
        assert trials_drawn(audit) == record.trials + record.fit_trials
        assert (record.fit_trials == 0) == ("curve known" in audit.spec.name)


@pytest.mark.parametrize("words", [["--power", "1.5"], ["--trials", "3"]])
def test_wrong_numbers_are_refused(planned, capsys, words):
    assert main(["plan", str(planned), *words]) == 2
    assert f"got {words[1]}" in capsys.readouterr().err


def test_durations_are_told_in_words():
    assert [duration(s) for s in (None, 0.2, 59.0, 600.0, 9000.0)] == ["-", "< 1 s", "59 s", "10 min", "2 h"]


class Clock:
    """A program whose batches and whose trials take so long, and the clock that sees it."""

    def __init__(self, batch, trial):
        self.now, self.batch, self.trial = 0.0, batch, trial

    def monotonic(self):
        return self.now

    def outputs(self, key, trials, *, size):
        for start in range(0, trials, size):
            self.now += 2 * (self.batch + min(size, trials - start) * self.trial)


@pytest.mark.parametrize(("batch", "trial"), [(5e-3, 1e-4), (1e-4, 1e-3), (0.0, 0.05), (0.1, 3.0)])
def test_trials_are_timed_as_a_run_draws_them(planned, monkeypatch, batch, trial):
    """Two trials at a time said 3 minutes for what took 8 seconds."""
    clock = Clock(batch, trial)
    monkeypatch.setattr(planned_audits, "time", clock)
    monkeypatch.setattr(planned_audits, "both_sides", lambda *_: clock)
    timed = timed_trials(build_suite(read_suite(planned))[0], key=jax.random.key(0))
    spent, clock.now = clock.now, 0.0
    clock.outputs(None, 7500, size=64)
    assert clock.now / 1.5 < timed.pace * 15_000 < 1.5 * clock.now
    assert spent < 10 + 4 * trial


class Scored:
    """Scores that take ``compiling`` seconds once, then ``trial`` seconds each, drawn by the chunk or one by one."""

    def __init__(self, clock, compiling, *, chunk, whole):
        self.clock, self.compiling, self.chunk, self.whole = clock, compiling, chunk, whole

    def scored(self, distinguisher, *, learnt):
        return self, self

    def source(self, key):
        return self

    def scores(self, start, stop):
        size = self.chunk if self.whole else 1
        self.clock.now += self.compiling + -(-(stop - start) // size) * size * self.clock.trial
        self.compiling = 0.0
        return np.arange(float(stop - start))[:, None]


@pytest.mark.parametrize(("chunk", "whole", "foreign"), [(64, False, True), (1000, False, True), (1000, True, False)])
@pytest.mark.parametrize("compiling", [0.0, 3.0])
def test_compiling_the_scores_is_part_of_the_time(planned, monkeypatch, compiling, chunk, whole, foreign):
    """A command was said to take 2 s, and took 17."""
    clock = Clock(0.0, 0.01)
    sides = Scored(clock, compiling, chunk=chunk, whole=whole)
    monkeypatch.setattr(planned_audits, "time", clock)
    monkeypatch.setattr(planned_audits, "both_sides", lambda *_: sides)
    monkeypatch.setattr(planned_audits, "is_foreign", lambda _: foreign)
    monkeypatch.setattr(planned_audits, "learn", lambda given, *_, **__: (given, 0))
    pilot = planned_audits._run_pilot(build_suite(read_suite(planned))[0], None, jax.random.key(0))
    assert pilot.before == pytest.approx(compiling, abs=1e-9)
    assert pilot.pace == pytest.approx(0.01)
    # planning foreign code took longer than running it
    assert not foreign or clock.now == pytest.approx(compiling + planned_audits.PILOT_TRIALS * 0.01)


FAILS = """
[[audit]]
name = "fails"
mechanism = { kind = "callable_step", function = "operator:itemgetter" }
"""


def test_an_audit_that_fails_is_named_with_its_line_and_with_keep_going_ends_no_plan(tmp_path, capsys):
    """The message named neither, and what was planned before it was lost."""
    path = tmp_path / "suite.toml"
    # a claim with few corners that nothing refutes is planned in a moment
    few = SUITE.replace("trials = 2000", "trials = 20").replace(
        '{ kind = "gaussian", mu = 1.0 }', '{ kind = "epsilon_delta", epsilon = 20.0, delta = 1e-5 }'
    )
    path.write_text(few.rpartition("[[audit]]")[0].rpartition("[[audit]]")[0] + FAILS)
    said = f"{path}:12: audit 'fails' failed: "
    assert main(["plan", str(path), "--run-code"]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.rstrip().endswith("With --keep-going the other audits are planned.")
    assert "too little noise, curve known: " in shown.out
    assert main(["plan", str(path), "--run-code", "--json"]) == 2
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["too little noise, curve known"]
    assert main(["plan", str(path), "--run-code", "--keep-going", "--json"]) == 2
    told = capsys.readouterr()
    assert [each["name"] for each in json.loads(told.out)] == ["too little noise, curve known"]
    assert said in told.err
    assert main(["plan", str(path), "--json"]) == 0
    assert "fails: not planned, since that would run" in capsys.readouterr().err


@pytest.mark.few(1)
@pytest.mark.parametrize(("rates", "clear"), [((0.27, 0.27), False), ((0.1, 0.1), True)])
def test_a_pilot_within_whose_error_the_claim_holds_is_unclear(rates, clear):
    """At mu 1 both rates may be 0.31: of 200 outputs a side 0.27 shows nothing, and 0.1 does."""
    claim = guarantees.gaussian(mu=1.0)
    found = planning.plan(claim, [rates], trials=1000, risk=0.05, delta=1e-5)
    assert found.refutation is not None
    trials = found.refutation.joint_trials
    assert trials is not None
    between = planning.within_pilot_error(claim, rates, trials=trials, pilot_per_side=200)
    entry = planned_audits.AuditPlan(
        name="own", claim="", source="pilot of 400 trials", plan=found, trials_between=between
    )
    assert _cells(entry)[2].startswith(f"{trials:,}" if clear else "unclear")
