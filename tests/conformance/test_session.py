import jax

from audit.conformance import SubsampledGaussianConformance
from conformance.session import TESTS, Part, session


def test_two_halves_of_a_session_hold_each_test_once_at_its_risk_and_key(monkeypatch):
    spent = []

    def note(self, dp_audit, *_):
        found = dp_audit.spend()
        spent.append((found.call, round(found.risk, 12), jax.random.key_data(found.key).tolist()))

    monkeypatch.setattr(SubsampledGaussianConformance, "_audit", note)
    monkeypatch.setattr(SubsampledGaussianConformance, "_compare", note)
    session("numpy", "")
    whole = [*spent]
    spent.clear()
    for number in range(2):
        session("numpy", "", part=Part(number, 2))
    assert len(whole) == TESTS
    assert sorted(spent) == sorted(whole)
