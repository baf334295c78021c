"""A quick look before the learners train: gross leaks end there, and both looks share one risk."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import assert_rate_at_most
from scipy.stats import binom

import guarantees
import mechanisms
from audit import procedure, quick
from audit.power.joint_power import jointly_refuting
from audit.pytest_plugin import Auditor, Spent
from audit.quick import SHARE, quick_audit
from distinguishers.battery import Battery, LearnedBattery

KEY = jax.random.key(3)
CLAIM = guarantees.gaussian(mu=1.0)
PAIR = mechanisms.add_record(np.zeros((3, 4), np.float32), np.eye(1, 4, dtype=np.float32)[0])
STATED = {"claim": CLAIM, "trials": 400, "risk": 0.05, "key": KEY}


def step(key, rows, noise=1.0):
    return rows.sum(0) + noise * jax.random.normal(key, rows.shape[1:])


class Stub:
    """Stands for run_audit: remembers what it was given, and answers with what it was told to."""

    def __init__(self, *verdicts):
        self.verdicts, self.asked = list(verdicts), []

    def __call__(self, mechanism, neighbours, distinguisher, *, risk, key, **stated):
        self.asked.append((distinguisher, risk, key))
        verdict = self.verdicts.pop(0)
        return types.SimpleNamespace(verdict=verdict(risk) if callable(verdict) else verdict, risk=risk)


def test_a_gross_leak_ends_at_the_first_look_and_nothing_is_learnt(monkeypatch):
    def learnt(*_):
        raise AssertionError("learnt")

    monkeypatch.setattr(LearnedBattery, "learn", learnt)
    record = quick_audit(lambda key, rows: step(key, rows, noise=0.1), PAIR, **STATED, diagnose=False)
    assert record.verdict == "violation"
    assert record.risk == pytest.approx(SHARE * 0.05)
    assert "projection" in {grid.member for grid in record.grids}
    with pytest.raises(AssertionError, match="learnt"):
        quick_audit(step, PAIR, **STATED, diagnose=False)


@pytest.mark.parametrize("first", ["no_violation_found", "inconclusive"])
def test_the_looks_share_the_risk_and_have_keys_of_their_own(monkeypatch, first):
    stub = Stub(first, "no_violation_found")
    monkeypatch.setattr(quick, "run_audit", stub)
    assert quick_audit(step, PAIR, **STATED).risk == pytest.approx(0.95 * 0.05)
    (known, small, own), (learner, rest, key) = stub.asked
    assert isinstance(known.learn(KEY, None, None, None), Battery)
    assert isinstance(learner, LearnedBattery)
    assert small + rest == pytest.approx(0.05)
    assert jax.random.key_data(own).tolist() != jax.random.key_data(key).tolist()
    assert key is KEY


@pytest.mark.parametrize("marker", [{"quick": True}, {}])
def test_the_marker_of_a_test_asks_for_it(monkeypatch, marker):
    asked = []

    def made(name):
        record = types.SimpleNamespace(verdict="no_violation_found", diagnoses=(), to_json=dict)
        return lambda *_, **stated: asked.append((name, stated["risk"], stated["trials"])) or record

    monkeypatch.setattr(quick, "quick_audit", made("quick"))
    monkeypatch.setattr(procedure, "run_audit", made("usual"))
    auditor = object.__new__(Auditor)
    auditor._kept, auditor._trials, auditor._node = "records", 600, types.SimpleNamespace(stash={})
    monkeypatch.setattr(Auditor, "_option", lambda *_: None)
    monkeypatch.setattr(Auditor, "_stated", lambda _: marker)
    monkeypatch.setattr(Auditor, "spend", lambda _: Spent(call="test", risk=0.01, key=KEY))
    auditor(step, PAIR, claim=CLAIM)
    auditor(step, PAIR, lambda output: output[0], claim=CLAIM)
    assert asked == [("quick" if marker else "usual", 0.01, 600), ("usual", 0.01, 600)]


def test_without_members_that_know_the_gradients_the_audit_has_the_whole_risk(monkeypatch):
    stub = Stub("no_violation_found")
    monkeypatch.setattr(quick, "run_audit", stub)
    assert quick_audit(lambda key, rows: jnp.append(step(key, rows), 0.0), PAIR, **STATED).risk == 0.05
    stub.verdicts.append("no_violation_found")
    foreign = mechanisms.callable_step(lambda seed, rows: rows.sum(0))
    assert quick_audit(foreign, PAIR, **STATED).risk == 0.05


def false_violations(monkeypatch, spend):
    """How often 4,000 audits refute a kept claim where each look's p-value is uniform, the worst that is valid."""
    monkeypatch.setattr(quick, "_known", lambda *_: "known")
    monkeypatch.setattr(quick, "default_battery", lambda *_, **__: "learner")
    monkeypatch.setattr(quick, "fold_in", lambda key, _: key)
    stub = Stub()
    monkeypatch.setattr(quick, "run_audit", stub)
    found = 0
    for p in np.random.default_rng(0).random((4000, 2)):
        stub.verdicts = [lambda risk, p=own: "violation" if p <= spend(risk) else "inconclusive" for own in p]
        found += quick_audit(step, PAIR, claim=CLAIM, trials=400, risk=0.2, key=KEY).verdict == "violation"
    return found


def test_both_looks_together_keep_the_risk(monkeypatch):
    assert_rate_at_most(false_violations(monkeypatch, lambda risk: risk), 4000, 0.2)


def test_the_whole_risk_on_both_looks_would_not(monkeypatch):
    """The control: two looks at a risk of .2 are wrong in .36 of all audits."""
    assert binom.sf(false_violations(monkeypatch, lambda _: 0.2) - 1, 4000, 0.2) < 1e-6


def test_the_second_look_loses_a_hundredth_of_power_at_most():
    """Whatever the score: the joint test at 95% of the risk against the test at all of it, over all leaks."""
    alpha, left = np.meshgrid(np.linspace(0.01, 0.5, 20), np.linspace(0.02, 0.98, 49))
    beta = left * np.asarray(CLAIM.beta(alpha))
    worst = 0.0
    for trials in (200, 2000, 50_000):
        for risk in (0.05, 1e-3):
            all_of_it, rest = (
                jointly_refuting(CLAIM, trials_per_side=trials // 2, risk=own)(alpha.ravel(), beta.ravel())
                for own in (risk, (1 - SHARE) * risk)
            )
            worst = max(worst, float((all_of_it - rest).max()))
    assert 0.005 < worst <= 0.01, worst
