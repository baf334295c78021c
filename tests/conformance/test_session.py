import jax

from audit.conformance import SubsampledGaussianConformance
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
