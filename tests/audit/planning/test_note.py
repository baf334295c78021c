"""What a plan says before a trial is drawn."""

from types import SimpleNamespace

from audit.suites.plan import note_on
from guarantees import epsilon_delta, gaussian
from mechanisms.pairs.gradient_lengths import GradientLengths

SHORT = GradientLengths(record=0.2, others=(0.1, 0.5, 3.0), bound=1.0)
LONG = GradientLengths(record=2.0, others=(0.1, 0.5, 3.0), bound=1.0)


def audit_of(claim):
    return SimpleNamespace(claim=claim, spec=SimpleNamespace(trials=1000))


def test_a_short_gradient_is_told_with_what_to_do():
    note = note_on(audit_of(gaussian(mu=1.0)), risk=0.05, lengths=SHORT)
    assert note.startswith(
        "gradient of length 0.2, others 0.1 to 3 (median 0.5), bound 1. The record's gradient is shorter"
    )
    assert "mechanisms.worst_record" in note


def test_a_long_gradient_and_an_unknown_one_need_no_note():
    assert note_on(audit_of(gaussian(mu=1.0)), risk=0.05, lengths=LONG) == ""
    assert note_on(audit_of(gaussian(mu=1.0)), risk=0.05) == ""


def test_a_claim_that_counting_cannot_refute_is_told_first():
    note = note_on(audit_of(epsilon_delta(epsilon=50.0, delta=0.0)), risk=0.05, lengths=SHORT)
    assert "cannot refute" in note
