from __future__ import annotations

import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import guarantees
from guarantees.trade_off import TradeOff

HISTORY = [(1.0, 1 / 3, 2), (2.0, 0.5, 3)]
EPSILONS = np.linspace(0.0, 6.0, 13)
EVENT_NAMES = ("SelfComposedDpEvent", "PoissonSampledDpEvent", "GaussianDpEvent", "ComposedDpEvent")


def events():
    library = pytest.importorskip("dp_accounting", reason="dp-accounting is an extra")
    return [getattr(library, name) for name in EVENT_NAMES]


def event_of(history):
    repeated, sampled, noise, composed = events()
    return composed([repeated(sampled(rate, noise(multiplier)), steps) for multiplier, rate, steps in history])


def test_a_history_is_the_composition_of_its_steps():
    parts = [guarantees.subsampled_gaussian(rate=q, noise_multiplier=s).compose(t) for s, q, t in HISTORY]
    expected = parts[0].compose_with(parts[1])
    found = guarantees.claim_from_history(HISTORY)
    assert np.allclose(found.delta(EPSILONS), expected.delta(EPSILONS), atol=2e-6)
    assert (found.unit, found.relation) == ("training", "add_remove")


def test_one_step_at_rate_one_is_the_gaussian_mechanism():
    found = guarantees.claim_from_history([(2.0, 1.0, 1)], unit="step")
    assert np.allclose(found.beta([0.01, 0.5]), guarantees.gaussian(mu=0.5).beta([0.01, 0.5]), atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(("steps", "seen"), [(1, "sum of one Poisson batch"), (3, "sums of all Poisson batches")])
def test_a_claim_says_how_many_batches_are_seen(steps, seen):
    training = guarantees.poisson_training(rate=1.0, noise_multiplier=2.0, steps=steps)
    history = guarantees.claim_from_history([(2.0, 0.5, 1)] * steps)
    assert {training.observation, history.observation} == {f"the noisy {seen}"}


@pytest.mark.long
def test_an_event_and_the_history_it_describes_promise_the_same():
    ours = guarantees.claim_from_history(HISTORY)
    theirs = guarantees.claim_from_event(event_of(HISTORY))
    leaked = TradeOff(ours.certificate.leaked)
    for direction in ("with_given_without", "without_given_with"):
        assert np.all(theirs.delta(EPSILONS, direction) >= leaked.delta(EPSILONS, direction) - theirs.error)
        assert np.allclose(theirs.delta(EPSILONS, direction), ours.delta(EPSILONS, direction), atol=5e-6)


def test_the_renyi_accountant_promises_less():
    loose = guarantees.claim_from_event(event_of(HISTORY), accountant="rdp")
    assert np.all(loose.delta(EPSILONS) >= guarantees.claim_from_history(HISTORY).delta(EPSILONS) - 1e-6)


def test_nothing_below_the_trusted_delta_is_taken_from_dp_accounting():
    repeated, sampled, noise, _ = events()
    claim = guarantees.claim_from_event(repeated(sampled(0.1, noise(2.0)), 3))
    assert claim.law.smallest_delta == 1e-10
    assert claim.delta(50.0) >= 1e-10


def test_an_event_that_promises_nothing_is_refused():
    repeated, sampled, noise, _ = events()
    with pytest.raises(ValueError, match="no finite epsilon"):
        guarantees.claim_from_event(repeated(sampled(0.1, noise(0.0)), 3))
    with pytest.raises(ValueError, match="has no answer for this event"):
        guarantees.claim_from_event(sampled(0.1, sampled(0.1, noise(1.0))))


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(
    st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 1.0)), min_size=1, max_size=8, unique_by=lambda row: row[0])
)
def test_a_table_never_promises_more_than_it_says(rows):
    hypothesis.assume(not all(0 < epsilon < 0.01 for epsilon, _ in rows))
    claim = guarantees.claim_from_table(rows)
    alpha = np.linspace(0.0, 1.0, 41)
    lines = [
        np.maximum(1 - delta - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - delta - alpha))
        for epsilon, delta in rows
    ]
    assert np.all(claim.beta(alpha) <= np.maximum(0.0, np.max(lines, axis=0)) + claim.error + 1e-12)
    for epsilon, delta in rows:
        assert claim.delta(epsilon) <= delta + 1e-9


@pytest.mark.parametrize(
    ("rows", "epsilon", "expected"),
    [
        # beyond epsilon 600, rows that others make worthless
        ([(0.06, 2.6e-13), (12.2, 3.7e-10), (489.6, 1.1e-7), (666.6, 4e-28)], 0.06, 2.6e-13),
        ([(0.0, 1e-5), (1e-9, 0.9), (0.5, 1e-5), (600.0, 0.5), (2000.0, 1e-300)], 0.0, 1e-5),
        # epsilons that are no multiples of 1e-9
        ([(0.16186636102886576, 1.424100656932865e-07), (1.6, 3.4e-14)], 0.16186636102886576, 1.424100656932865e-07),
        ([(1275.2403439554873, 0.8309550152828498)], 1275.2403439554873, 0.8309550152828498),
    ],
)
def test_a_table_promises_its_own_rows(rows, epsilon, expected):
    claim = guarantees.claim_from_table(rows)
    assert claim.delta(epsilon) == pytest.approx(expected, abs=claim.error)
    assert claim.error <= 1e-12


def test_rows_nearer_than_a_billionth_are_rounded_up():
    rows = [(1.0000000001, 1e-3), (1.0000000003, 1e-4), (1.0000000016, 1e-5), (2.0, 1e-6)]
    claim = guarantees.claim_from_table(rows)
    assert claim.law.losses[-3:-1].tolist() == [1.000000002, 2.0]
    assert all(claim.delta(epsilon + 2e-9) <= delta for epsilon, delta in rows)


def test_rows_that_say_nothing_are_left_out_of_a_table():
    claim = guarantees.claim_from_table([(math.inf, 0.0), (1.0, 1e-3), (0.0, 0.5)])
    assert claim.parameters["points"] == ((1.0, 1e-3), (0.0, 0.5))
    assert claim.delta(0.0) <= 0.5 + 1e-9


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: guarantees.claim_from_table([]), "at least one pair"),
        (lambda: guarantees.claim_from_table([(math.inf, 0.1)]), "at least one pair"),
        (lambda: guarantees.claim_from_table([(1.0, 1.5)]), r"delta in \[0, 1\]"),
        (lambda: guarantees.claim_from_table([(1.0, -1e-5)]), r"delta in \[0, 1\]"),
        (lambda: guarantees.claim_from_table([(1.0, 1e-5), (-0.2, 0.5)]), "epsilon >= 0"),
        (lambda: guarantees.claim_from_table([(-math.inf, 1e-5)]), "epsilon >= 0"),
        (lambda: guarantees.claim_from_table([(1e-5, 0.8)]), r"look like \(delta, epsilon\): swap them"),
        (lambda: guarantees.claim_from_table([(1e-5, 1.0), (1e-6, 0.9)]), "swap them"),
        (lambda: guarantees.claim_from_history([]), "at least one"),
        (lambda: guarantees.claim_from_history([(0.0, 0.5, 1)]), "no noise, no promise"),
        (lambda: guarantees.claim_from_history([(1.0, 0.0, 1)]), "rate must be"),
        (lambda: guarantees.claim_from_history([(1.0, 0.5, 1)], relation="any"), "relation must be"),
    ],
)
def test_what_is_no_promise_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_an_opacus_accountant_hands_over_its_history():
    accountants = pytest.importorskip("opacus.accountants", reason="Opacus is not installed")
    books = accountants.PRVAccountant()
    for _ in range(3):
        books.step(noise_multiplier=1.0, sample_rate=1 / 3)
    claim = guarantees.claim_from_history(books.history)
    # their discretisation only ever adds
    assert claim.epsilon(1e-5) - 1e-4 <= books.get_epsilon(1e-5) <= claim.epsilon(1e-5) + 0.1


@pytest.mark.parametrize("epsilon", [545.07351, 2053.000206, 17040.481, 16565.497039])
def test_an_epsilon_of_a_few_digits_is_promised_as_it_stands(epsilon):
    claim = guarantees.claim_from_table([(epsilon, 1e-5)])
    assert claim.delta(epsilon) == pytest.approx(1e-5, rel=1e-6)


def test_an_event_is_made_again_from_what_it_prints():
    claim = guarantees.claim_from_event(event_of(HISTORY), spacing=0.01)
    again = guarantees.claim_from_event(**claim.parameters)
    assert again.parameters == claim.parameters
    assert again.epsilon(1e-5) == claim.epsilon(1e-5)
    for wrong in ("__import__('os').system('true')", "DpEvent", "print(1)", "GaussianDpEvent(open('x'))", "nothing ("):
        with pytest.raises(ValueError, match="cannot read a dp-accounting event"):
            guarantees.claim_from_event(wrong)
