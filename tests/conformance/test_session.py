import jax
import pytest

from audit.conformance import STEP_CASES, SubsampledGaussianConformance
from audit.verdict.judgement import conclude
from conformance.session import TESTS, session
from dpsgd_audit.pytest_plugin import DEFAULT_RISK


def test_each_test_of_a_session_has_a_key_of_its_own_and_the_same_share_of_the_risk(monkeypatch):
    spent = []

    def note(self, dp_audit, *_):
        found = dp_audit.spend()
        spent.append((found.call, round(found.risk, 12), jax.random.key_data(found.key).tolist()))

    monkeypatch.setattr(SubsampledGaussianConformance, "_audit", note)
    monkeypatch.setattr(SubsampledGaussianConformance, "_compare", note)
    session("numpy", "")
    calls, risks, keys = zip(*spent, strict=True)
    assert len(set(calls)) == len(set(map(str, keys))) == TESTS
    assert len(set(risks)) == 1
    assert 0.8 * DEFAULT_RISK < sum(risks) <= DEFAULT_RISK


@pytest.mark.parametrize("relation", ["add_remove", "substitution"])
def test_the_default_trials_are_enough_where_little_noise_tells_who_was_taken(relation):
    """A right library was warned that 16,250 trials would be enough."""
    case = STEP_CASES["own_noise"]
    found = conclude(
        case.claim(relation),
        refuted=None,
        p=1.0,
        risk=0.2 * DEFAULT_RISK / 100,
        delta=1e-5,
        trials_per_side=case.trials(10_000) // 2,
        jointly=True,
    )
    assert found.verdict == "no_violation_found", found.reason
