from __future__ import annotations

import mpmath
import numpy as np
import pytest
from curves import any_curve, levels, simple, some
from hypothesis import given
from hypothesis import strategies as st

import guarantees
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.laws.profile import law_from_profile
from guarantees.trade_off import TradeOff

GRID = np.concatenate([[0.0], np.geomspace(1e-9, 0.5, 60), 1 - np.geomspace(0.5, 1e-9, 60)[1:], [1.0]])


@given(any_curve)
def test_curve_is_convex_decreasing_and_below_the_diagonal(curve):
    beta = curve.beta(GRID)
    slopes = np.diff(beta) / np.diff(GRID)
    assert np.all(beta <= 1 - GRID)
    assert np.all(beta >= 0)
    assert np.all(np.diff(beta) <= 1e-15)
    noise = 1e-12 + 4e-16 / np.diff(GRID)
    assert np.all(np.diff(slopes) >= -(noise[1:] + noise[:-1]) * (1 + np.abs(slopes[1:])))


@given(any_curve, levels)
def test_the_reverse_curve_is_the_inverse_function(curve, alpha):
    beta = curve.beta(alpha)
    back = curve.reverse.beta(beta)
    # Where the curve is flat at zero, or starts below one, its inverse gives the left end of the flat piece.
    assert back <= alpha + 1e-12
    assert curve.beta(min(back, 1.0)) == pytest.approx(beta, abs=1e-12)


@given(any_curve, st.floats(0.0, 6.0))
def test_profile_and_curve_are_conjugate(curve, epsilon):
    delta = curve.delta(epsilon, "with_given_without")
    # delta is the largest 1 - beta - e^eps alpha: never exceeded, and reached at the threshold epsilon.
    assert np.all(1 - curve.beta(GRID) - np.exp(epsilon) * GRID <= delta + 1e-12)
    alpha, beta = curve.errors(epsilon)
    assert 1 - beta - np.exp(epsilon) * alpha == pytest.approx(delta, abs=1e-12 * np.exp(epsilon))
    assert curve.beta(alpha) == pytest.approx(beta, abs=1e-11)


@given(any_curve, st.floats(1e-10, 0.9), st.sampled_from(["both", "with_given_without", "without_given_with"]))
def test_epsilon_is_the_smallest_that_meets_delta(curve, delta, direction):
    epsilon = curve.epsilon(delta, direction)
    if np.isfinite(epsilon):
        assert curve.delta(epsilon, direction) <= delta * (1 + 1e-9) + 1e-16
        if epsilon > 1e-6:
            assert curve.delta(epsilon - 1e-7, direction) > delta * (1 - 1e-12)
    else:
        assert curve.delta(1e6, direction) > delta


@pytest.mark.long
@some
@given(simple)
def test_symmetrised_curve_is_its_own_inverse_and_leaks_the_larger_of_both(curve):
    symmetric = curve.symmetrise()
    eps = np.linspace(0, 5, 21)
    assert symmetric.delta(eps) == pytest.approx(curve.delta(eps, "both"), abs=1e-13)
    assert symmetric.reverse.beta(GRID) == pytest.approx(symmetric.beta(GRID), abs=1e-11)
    assert np.all(symmetric.beta(GRID) <= np.minimum(curve.beta(GRID), curve.reverse.beta(GRID)) + 1e-12)


@given(simple, simple, levels)
def test_mixture_averages_the_profiles(first, second, weight):
    mixed = first.mixture(second, weights=[weight, 1 - weight])
    eps = np.linspace(0, 5, 21)
    for direction in ("with_given_without", "without_given_with"):
        expected = weight * first.delta(eps, direction) + (1 - weight) * second.delta(eps, direction)
        assert mixed.delta(eps, direction) == pytest.approx(expected, abs=1e-14)


@given(any_curve)
def test_curve_from_its_own_profile_is_safe_and_touches(curve):
    eps = np.linspace(0.0, 8.0, 81)
    sides = [curve.delta(eps, side) for side in ("with_given_without", "without_given_with")]
    rebuilt = TradeOff(law_from_profile(eps, *sides))
    assert np.all(rebuilt.beta(GRID) <= curve.beta(GRID) + 1e-12)
    assert rebuilt.delta(eps, "with_given_without") == pytest.approx(sides[0], abs=1e-12)
    assert rebuilt.delta(eps, "without_given_with") == pytest.approx(sides[1], abs=1e-12)


def test_profile_curve_is_the_textbook_formula():
    eps, delta = np.array([0.3, 1.0, 2.5]), np.array([0.2, 0.08, 0.01])
    curve = TradeOff(law_from_profile(eps, delta))
    lines = [np.zeros_like(GRID)]
    for e, d in zip(eps, delta, strict=True):
        lines += [1 - d - np.exp(e) * GRID, np.exp(-e) * (1 - d - GRID)]
    assert curve.beta(GRID) == pytest.approx(np.max(lines, axis=0), abs=1e-14)


def test_profile_that_is_not_convex_is_replaced_by_its_hull():
    curve = TradeOff(law_from_profile([0.0, 0.5, 1.0, 2.0], [0.3, 0.29, 0.01, 0.02]))
    assert curve.delta(2.0) == pytest.approx(0.01)
    assert curve.delta(0.5) < 0.2


def test_pair_of_disjoint_laws_and_of_equal_laws():
    apart = TradeOff(DiscreteLaw(np.array([-np.inf, np.inf]), np.array([1.0, 0.0]), np.array([0.0, 1.0])))
    same = TradeOff(DiscreteLaw(np.zeros(1), np.ones(1), np.ones(1)))
    assert apart.beta([0.0, 0.3, 1.0]).tolist() == [0, 0, 0]
    assert same.beta([0.0, 0.3, 1.0]) == pytest.approx([1, 0.7, 0])
    assert (apart.total_variation, same.total_variation) == (1.0, 0.0)
    assert apart.epsilon(0.5) == np.inf
    assert same.epsilon(0.0) == 0.0


def test_epsilon_on_a_plateau_is_its_left_edge():
    claim = guarantees.epsilon_delta(epsilon=1.0, delta=0.01)
    assert claim.epsilon(0.01) == pytest.approx(1.0, abs=1e-13)
    assert claim.epsilon(0.0099) == np.inf
    assert guarantees.randomised_response(epsilon=1.0).epsilon(0.0) == 1.0


def test_epsilon_at_delta_zero_is_the_largest_loss():
    sampled = guarantees.subsampled_gaussian(rate=0.01, noise_multiplier=0.5)
    assert sampled.epsilon(0.0, "without_given_with") == pytest.approx(-np.log1p(-0.01))
    assert sampled.epsilon(0.0, "with_given_without") == np.inf
    assert guarantees.laplace(epsilon=0.7).epsilon(0.0) == 0.7
    assert guarantees.gaussian(mu=0.1).epsilon(0.0) == np.inf
    # finite Renyi orders bound no loss, though delta underflows; an infinite order does
    assert guarantees.zcdp(rho=0.1).epsilon(0.0) == np.inf
    assert guarantees.renyi(orders=[2.0, 4.0], epsilons=[0.1, 0.2]).symmetrise().epsilon(0.0) == np.inf
    assert guarantees.renyi(orders=[2.0, np.inf], epsilons=[0.1, 1.0]).epsilon(0.0) == pytest.approx(1.0)


@pytest.mark.parametrize("mu", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("alpha", [1e-12, 1e-6, 0.3, 1 - 1e-9])
def test_gaussian_tails_agree_with_fifty_digits(mu, alpha):
    with mpmath.workdps(50):
        quantile = -mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(alpha) - 1)
        truth = float(mpmath.ncdf(quantile - mu))
    # What one rounding of alpha itself can change: alpha near 1 has few digits of 1 - alpha.
    slack = 1e-13 + 2e-16 / (1 - alpha)
    for curve in (TradeOff(GaussianLaw(mu=mu)), TradeOff(GaussianLaw(mu=mu)).reverse):
        assert curve.beta(alpha) == pytest.approx(truth, rel=slack)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 2.0, 6.0])
@pytest.mark.parametrize(("rate", "sigma"), [(1.0, 1.0), (0.01, 1.0), (0.3, 5.0)])
def test_small_deltas_agree_with_fifty_digits(rate, sigma, epsilon):
    curve = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=sigma)
    with mpmath.workdps(50):
        mu, e = mpmath.mpf(1) / mpmath.mpf(sigma), mpmath.mpf(epsilon)
        q = mpmath.mpf(rate)
        inner = mpmath.log(1 + (mpmath.exp(e) - 1) / q)
        gauss = mpmath.ncdf(-inner / mu + mu / 2) - mpmath.exp(inner) * mpmath.ncdf(-inner / mu - mu / 2)
        truth = float(q * gauss)
    assert curve.delta(epsilon, "with_given_without") == pytest.approx(truth, rel=1e-9, abs=1e-17)


def test_epsilon_of_a_composed_gaussian_is_right_at_delta_1e_12():
    claim = guarantees.gaussian(mu=0.1).compose(100)
    with mpmath.workdps(50):
        e = mpmath.mpf(claim.epsilon(1e-12))
        delta = mpmath.ncdf(-e + mpmath.mpf("0.5")) - mpmath.exp(e) * mpmath.ncdf(-e - mpmath.mpf("0.5"))
    assert float(delta) == pytest.approx(1e-12, rel=1e-9)


def test_scalars_give_floats_and_arrays_keep_their_shape():
    curve = guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=1.0)
    square = np.full((2, 3), 0.1)
    for answer in (curve.beta, curve.delta, curve.epsilon, curve.llr_threshold):
        assert type(answer(0.1)) is float
        assert answer(square).shape == (2, 3)
        assert answer([0.1]).shape == (1,)
    assert all(type(rate) is float for rate in curve.errors(0.0))


def test_large_losses_neither_overflow_nor_vanish():
    wide = guarantees.gaussian(mu=40.0)
    with mpmath.workdps(60):
        e = mpmath.mpf(750)
        truth = mpmath.ncdf(20 - e / 40) - mpmath.exp(e) * mpmath.ncdf(-20 - e / 40)
    assert wide.delta(750.0) == pytest.approx(float(truth), rel=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.beta(1.5), "alpha must lie in"),
        (lambda c: c.beta(np.nan), "alpha must be a number"),
        (lambda c: c.epsilon(-0.1), "delta must lie in"),
        (lambda c: c.delta(1.0, "sideways"), "direction must be one of"),
        (lambda c: c.mixture(c, weights=[0.5, 0.6]), "weights must be 2 numbers"),
        (lambda c: c.compose(0), "times must be an integer >= 1"),
        (lambda c: law_from_profile([1.0], [1.5]), "deltas must be in"),
    ],
)
def test_bad_arguments_are_refused_with_their_name(call, message):
    with pytest.raises(ValueError, match=message):
        call(guarantees.gaussian(mu=1.0).curve)


WITH_RELATION = [
    (guarantees.gaussian, {"mu": 1.0}),
    (guarantees.subsampled_gaussian, {"rate": 0.1, "noise_multiplier": 1.0}),
    (guarantees.epsilon_delta, {"epsilon": 1.0, "delta": 1e-5}),
    (guarantees.laplace, {"epsilon": 1.0}),
    (guarantees.randomised_response, {"epsilon": 1.0}),
    (guarantees.renyi, {"orders": (2.0,), "epsilons": (0.1,)}),
    (guarantees.zcdp, {"rho": 0.1}),
    (guarantees.variance_pair, {"dimension": 3, "scale": 0.8}),
    (guarantees.balls_and_bins, {"rounds": 10, "noise_multiplier": 1.0}),
    (guarantees.poisson_training, {"rate": 1.0, "noise_multiplier": 1.0, "steps": 3}),
]
ROUNDS = ("normalised_round", "revealed_round", "round_upper_bound")
ROUND = {"normalise_by": "expected_batch", "records": 4, "rate": 0.5, "noise_multiplier": 1.0, "dimension": 9}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("constructor", "given"), [*WITH_RELATION, *((getattr(guarantees, name), ROUND) for name in ROUNDS)]
)
def test_the_described_call_makes_the_same_claim(constructor, given):
    calls = set()
    for relation in ("add_remove", "zero_out", "substitution"):
        claim = constructor(**given, relation=relation)
        calls.add(claim.describe())
        again = constructor(**claim.parameters)
        assert again.relation == relation
        assert again.describe() == claim.describe()
    assert len(calls) == 3


def test_a_privacy_loss_distribution_becomes_a_claim():
    losses = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    pld = losses.from_gaussian_mechanism(standard_deviation=1.0, value_discretization_interval=1e-3)
    claim = guarantees.claim_from_pld(pld, relation="zero_out")
    assert claim.relation == "zero_out"
    assert claim.epsilon(1e-5) == pytest.approx(guarantees.gaussian(mu=1.0).epsilon(1e-5), rel=1e-3)
    assert claim.certificate.leaked is None
    with pytest.raises(ValueError, match="delta must be >= 1e-10"):
        claim.epsilon(1e-12)
    assert claim.compose(4).curve.law.smallest_delta == pytest.approx(4e-10)


def test_rates_do_not_round_above_one():
    masses = np.array([0.0, 1.0 + 7e-16, 0.0])
    law = DiscreteLaw(np.array([-np.inf, 0.0, np.inf]), masses, masses, 1e-15)
    alpha, beta = TradeOff(law).errors([-1.0, 1.0])
    assert np.max(alpha) <= 1
    assert np.max(beta) <= 1


def test_an_epsilon_is_searched_for_once(monkeypatch):
    claim = guarantees.gaussian(mu=1.0)
    first = claim.epsilon(1e-5)
    monkeypatch.setattr(type(claim.curve), "_profile", None)
    assert claim.epsilon(1e-5) == first
    with pytest.raises(TypeError):
        claim.epsilon(1e-6)
