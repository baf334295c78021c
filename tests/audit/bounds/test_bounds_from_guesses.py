import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtr
from scipy.stats import binom
from worst_training import best_training, guess_vectors, right_guesses

import guarantees
from audit.bounds.bounds_from_guesses import (
    curve_p_value,
    curve_refuted,
    epsilon_from_guesses,
    gaussian_inverse,
    inverse_of,
    mu_refuted,
    worst_tail,
)
from guarantees.laws.profile import law_from_profile
from guarantees.trade_off import TradeOff


@pytest.mark.parametrize(
    ("coins", "guesses", "correct", "epsilon", "delta"),
    [
        (2, 2, 2, 1.0, 0.05),
        (3, 2, 2, 0.5, 0.02),
        (3, 3, 3, 1.0, 0.05),
        (3, 3, 2, 1.0, 0.05),
        (3, 1, 1, 1.0, 0.1),
        (2, 2, 1, 3.0, 0.01),
    ],
)
def test_worst_tail_is_reached_by_a_training_and_by_none_exceeded(coins, guesses, correct, epsilon, delta):
    best = best_training(coins, guesses, correct, [(epsilon, delta)])
    assert worst_tail(correct, guesses, epsilon=epsilon, exposed=coins * delta) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize(("coins", "guesses", "correct"), [(3, 2, 2), (4, 2, 2), (3, 1, 1)])
def test_guesses_for_one_side_pay_for_half_of_the_coins(coins, guesses, correct):
    best = best_training(coins, guesses, correct, [(1.0, 0.05)], guessed_in=guesses)
    assert best <= worst_tail(correct, guesses, epsilon=1.0, exposed=coins * 0.05 / 2) + 1e-9


@pytest.mark.parametrize(("coins", "guessed_in", "guesses", "correct"), [(3, 1, 2, 2), (4, 1, 2, 2), (4, 2, 4, 4)])
def test_a_fixed_number_of_guesses_for_each_side_stays_below_the_tail_of_free_ones(coins, guessed_in, guesses, correct):
    best = best_training(coins, guesses, correct, [(1.0, 0.05)], guessed_in=guessed_in)
    assert best < worst_tail(correct, guesses, epsilon=1.0, exposed=coins * 0.05) - 0.01, "sharp for free guesses only"


def test_worst_tail_is_the_binomial_without_delta_and_where_it_matters_below_theorem_5_2_with_it():
    for guesses, correct, epsilon in itertools.product((5, 40, 400), (0.6, 0.8, 1.0), (0.0, 1.0, 3.0)):
        v, chance = int(correct * guesses), expit(epsilon)
        tail = binom.sf(v - 1, guesses, chance)
        assert worst_tail(v, guesses, epsilon=epsilon, exposed=0.0) == pytest.approx(tail, rel=1e-9, abs=1e-300)
        steps = np.arange(1, v + 1)
        if tail > 0.5:
            continue
        for exposed in (1e-4, 1e-2, 0.3):
            loose = min(1.0, tail + 2 * exposed * np.max((binom.sf(v - steps - 1, guesses, chance) - tail) / steps))
            assert tail <= worst_tail(v, guesses, epsilon=epsilon, exposed=exposed) <= loose + 1e-12


def exact_worst_tail(correct, guesses, odds, exposed):
    """The worst tail at epsilon log(odds) in rational numbers."""
    masses = [Fraction(math.comb(guesses, c)) * odds**c for c in range(guesses + 1)]
    below, above = sum(masses[:correct]), sum(masses[correct:])
    whole = below + above
    return float(above / whole + below / whole * exposed * above / (correct * masses[correct]))


@pytest.mark.parametrize(
    ("correct", "guesses", "odds", "exposed"),
    [
        (1400, 1400, Fraction(11, 10), Fraction(260)),
        (1390, 1400, Fraction(1), Fraction(26)),
        (700, 1500, Fraction(1, 1), Fraction(1, 1000)),
        (1200, 1500, Fraction(3), Fraction(7)),
        (2, 900, Fraction(5), Fraction(1, 10**9)),
    ],
)
def test_the_delta_term_survives_where_the_binomial_tail_underflows(correct, guesses, odds, exposed):
    ours = worst_tail(correct, guesses, epsilon=math.log(odds), exposed=float(exposed))
    assert ours == pytest.approx(min(1.0, exact_worst_tail(correct, guesses, odds, exposed)), rel=1e-11)


@pytest.mark.parametrize("guesses", [1_000, 2_000, 10_000, 100_000, 1_000_000])
def test_a_training_that_reveals_all_as_often_as_delta_allows_is_not_refuted_by_any_number_of_guesses(guesses):
    risk, delta = 0.05, 0.051
    for wrong in (0, 1, guesses // 1000):
        assert worst_tail(guesses - wrong, guesses, epsilon=0.1, exposed=guesses * delta) > risk
        assert epsilon_from_guesses(guesses - wrong, guesses, exposed=guesses * delta, risk=risk) == 0.0
    assert epsilon_from_guesses(guesses, guesses, exposed=guesses * risk / 10, risk=risk) > 3


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 20_000),
    st.floats(0.0, 1.0),
    st.floats(0.0, 12.0),
    st.floats(0.0, 1.0),
    st.sampled_from([0.0, 1e-6, 0.1, 1.0, 100.0]),
)
def test_worst_tail_grows_with_epsilon(guesses, share, epsilon, step, exposed):
    correct = round(share * guesses)
    less = worst_tail(correct, guesses, epsilon=epsilon, exposed=exposed)
    more = worst_tail(correct, guesses, epsilon=epsilon + step, exposed=exposed)
    assert less <= more * (1 + 1e-10)


def test_a_training_that_hides_behind_randomised_response_meets_the_tail_and_keeps_its_promise():
    m, k, v, epsilon, delta = 4, 3, 3, 1.0, 0.03
    mass = binom.pmf(np.arange(k + 1), k, expit(epsilon))
    above = np.where(np.arange(k + 1) >= v, mass, 0) / mass[v:].sum()
    share = m * delta * mass[v:].sum() / (v * mass[v])
    law = (1 - share) * mass + share * above
    assert law[v:].sum() == pytest.approx(worst_tail(v, k, epsilon=epsilon, exposed=m * delta), rel=1e-12)
    vectors = guess_vectors(m, k)

    def output(sides):
        right = np.array([right_guesses(sides, vector) for vector in vectors])
        return law[right] / np.array([math.comb(m, k) * math.comb(k, c) for c in range(k + 1)])[right]

    for sides in itertools.product((0, 1), repeat=m):
        flipped = (1 - sides[0], *sides[1:])
        leak = np.maximum(output(sides) - math.exp(epsilon) * output(flipped), 0).sum()
        assert output(sides).sum() == pytest.approx(1)
        assert leak == pytest.approx(delta, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.floats(0.0, 1.0), st.floats(0.0, 0.5), st.floats(1e-6, 0.3))
def test_epsilon_is_where_the_tail_equals_the_risk(guesses, share, exposed, risk):
    correct = round(share * guesses)
    bound = epsilon_from_guesses(correct, guesses, exposed=exposed, risk=risk)
    if bound > 0:
        assert worst_tail(correct, guesses, epsilon=bound, exposed=exposed) <= risk
    assert worst_tail(correct, guesses, epsilon=bound + 1e-6, exposed=exposed) > risk * (1 - 1e-9)
    assert bound <= epsilon_from_guesses(correct, guesses, exposed=0.0, risk=risk)


@pytest.mark.parametrize(("coins", "guesses", "correct"), [(40, 40, 30), (500, 60, 55), (500, 60, 60)])
def test_the_curve_of_epsilon_and_delta_gives_no_smaller_tail_than_they_do_and_the_same_where_all_are_right(
    coins, guesses, correct
):
    epsilon, delta = 0.8, 1e-4
    inverse = inverse_of(guarantees.epsilon_delta(epsilon=epsilon, delta=delta).curve)
    by_curve = curve_p_value(correct, guesses, coins=coins, inverse=inverse)
    by_epsilon = worst_tail(correct, guesses, epsilon=epsilon, exposed=coins * delta)
    assert by_curve >= by_epsilon
    if correct == guesses:
        assert by_curve == pytest.approx(by_epsilon, rel=0.012)


@pytest.mark.parametrize(("coins", "guesses", "correct"), [(2, 2, 2), (3, 2, 2), (3, 3, 3), (3, 3, 2)])
def test_no_training_that_keeps_a_curve_exceeds_its_tail(coins, guesses, correct):
    epsilons, deltas = [0.0, 0.5, 1.2], [0.3, 0.15, 0.02]
    best = best_training(coins, guesses, correct, list(zip(epsilons, deltas, strict=True)))
    inverse = inverse_of(TradeOff(law_from_profile(epsilons, deltas)))
    p = curve_p_value(correct, guesses, coins=coins, inverse=inverse)
    assert best <= p + 1e-9
    if correct == guesses:
        assert p <= best * 1.012 + 1e-6, "the tail is not just valid but sharp"


def test_independent_gaussian_canaries_stay_within_the_tail_of_their_curve():
    for mu, n in itertools.product((0.5, 1.0, 2.0), (10, 100)):
        for right in (int(0.7 * n), int(0.9 * n), n):
            truth = binom.sf(right - 1, n, ndtr(mu / 2))
            assert curve_p_value(right, n, coins=n, inverse=gaussian_inverse(mu)) >= truth
            lines = curve_p_value(right, n, coins=n, inverse=inverse_of(guarantees.gaussian(mu=mu).curve))
            assert lines >= curve_p_value(right, n, coins=n, inverse=gaussian_inverse(mu)) * 0.985


def test_the_refuted_mu_is_where_refutation_ends():
    for right, guesses, coins in ((60, 64, 1000), (64, 64, 1000), (300, 400, 400)):
        mu = mu_refuted(right, guesses, coins=coins, risk=0.01)
        assert mu > 0.1
        assert curve_refuted(right, guesses, coins=coins, inverse=gaussian_inverse(mu), risk=0.01)
        assert not curve_refuted(right, guesses, coins=coins, inverse=gaussian_inverse(mu + 1e-5), risk=0.01)
    assert mu_refuted(30, 64, coins=1000, risk=0.01) == 0.0
    assert mu_refuted(0, 64, coins=1000, risk=0.01) == 0.0
    assert mu_refuted(60, 64, coins=1000, risk=0.01, above=5.0) == 5.0
