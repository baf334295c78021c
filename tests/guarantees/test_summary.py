from __future__ import annotations

import numpy as np
import pytest
from curves import few, simple, some
from hypothesis import given
from scipy.special import ndtr, ndtri

import guarantees
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.gaussian_and_laplace import gaussian_law
from guarantees.summary import mu_star, regret, summarise
from guarantees.trade_off import TradeOff, compose

GRID = np.concatenate([np.geomspace(1e-6, 0.5, 400), 1 - np.geomspace(0.5, 1e-6, 400)[1:]])


def test_a_gaussian_curve_is_its_own_summary():
    for mu in (0.01, 0.5, 3.0):
        curve = guarantees.gaussian(mu=mu)
        assert curve.mu_star() == pytest.approx(mu, rel=1e-9)
        assert curve.regret() < 1e-12


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_pure_privacy_has_a_closed_form(epsilon):
    claim = guarantees.randomised_response(epsilon=epsilon)
    assert claim.mu_star((0.0, 1.0)) == pytest.approx(-2 * ndtri(1 / (np.exp(epsilon) + 1)), rel=1e-12)


@some
@given(simple)
def test_mu_star_lies_below_the_curve_and_touches_it(curve):
    mu = curve.mu_star()
    if not 0 < mu < 30:
        return
    both = np.minimum(curve.beta(GRID), curve.reverse.beta(GRID))
    assert np.all(ndtr(-ndtri(GRID) - mu) <= both + 1e-12)
    gap = min(np.min(f.beta(GRID) - ndtr(-ndtri(GRID) - 0.98 * mu)) for f in (curve, curve.reverse))
    assert gap < 0


@some
@given(simple)
def test_regret_is_the_smallest_shift(curve):
    mu = min(curve.mu_star(), 30.0)
    reported = TradeOff(gaussian_law(mu))
    k = curve.regret(reported)

    def holds(shift):
        a = np.concatenate([[0.0], GRID])
        a = a[a + shift <= 1]
        return np.all(curve.beta(a + shift) - shift <= reported.beta(a) + 1e-9)

    assert holds(k + 1e-9)
    if k > 1e-4:
        assert not holds(0.98 * k)


def test_no_finite_mu_suits_a_curve_with_mass_at_infinity():
    claim = guarantees.epsilon_delta(epsilon=1.0, delta=1e-3)
    assert claim.mu_star((0.0, 1.0)) == np.inf
    assert claim.mu_star((0.01, 0.99)) < 10
    summary = claim.summary(deltas=(1e-2,))
    assert not summary.faithful
    assert "Report epsilon at several deltas instead of mu" in summary.recommendation


def test_the_recommendation_follows_the_hundredth_rule():
    faithful = guarantees.gaussian(mu=0.5).summary()
    assert faithful.faithful
    assert "faithful" in faithful.recommendation
    assert "1e-06" in faithful.recommendation
    assert dict(faithful.epsilons)[1e-5] == pytest.approx(guarantees.gaussian(mu=0.5).epsilon(1e-5))
    assert not guarantees.randomised_response(epsilon=1.0).summary().faithful


def test_dominance_finds_where_a_curve_lies_below():
    low, high = guarantees.gaussian(mu=1.2), guarantees.gaussian(mu=1.0)
    found = low.dominance(high)
    assert found.below
    gaps = high.beta(GRID) - low.beta(GRID)
    assert found.deficit >= gaps.max() - 1e-12
    assert found.alpha == pytest.approx(GRID[np.argmax(gaps)], rel=0.05)
    assert found.other_beta - found.beta == pytest.approx(found.deficit)
    assert not high.dominance(low).below
    assert not low.dominance(low).below


@few
@given(simple, simple)
def test_dominance_misses_nothing_on_a_fine_grid(first, second):
    found = first.dominance(second)
    assert found.deficit >= np.max(second.beta(GRID) - first.beta(GRID)) - 1e-9


def test_breakpoints_of_a_piecewise_curve_are_all_of_it():
    curve = guarantees.randomised_response(epsilon=1.0).curve
    points = curve.breakpoints()
    assert points.exact
    assert np.interp(GRID, points.alpha, points.beta) == pytest.approx(curve.beta(GRID), abs=1e-14)
    smooth = guarantees.gaussian(mu=1.0).breakpoints(50)
    assert not smooth.exact
    assert len(smooth.alpha) == 50


def discrete_gaussian(sigma):
    """The discrete Gaussian against itself moved by one."""
    k = np.arange(-int(12 * sigma) - 2, int(12 * sigma) + 4)
    weights = np.exp(-(k**2) / (2 * sigma**2))
    moved = np.exp(-((k - 1) ** 2) / (2 * sigma**2))
    losses = (2 * k - 1) / (2 * sigma**2)
    return TradeOff(DiscreteLaw(losses, weights / weights.sum(), moved / moved.sum()))


@pytest.mark.long
def test_the_census_release_has_mu_2_702():
    shares = np.array([2, 27.4, 8.5, 13.1, 13.1, 23.8, 11.8, 0.3]) / 100
    sigmas = np.sqrt(10 / (2 * shares * 3.65))
    curve = compose([(discrete_gaussian(s), 10) for s in sigmas], tolerance=1e-4)
    assert curve.mu_star() == pytest.approx(2.702, abs=2e-3)
    assert curve.regret() < 1e-4


@pytest.mark.parametrize("alpha_range", [(0.5, 0.2), (-0.1, 0.5), (0.1, 1.1)])
def test_a_bad_range_is_refused(alpha_range):
    with pytest.raises(ValueError, match="alpha_range must be"):
        guarantees.gaussian(mu=1.0).mu_star(alpha_range)


CLAIM = guarantees.gaussian(mu=1.0)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: mu_star("x"), "curve must be a trade-off curve or a claim, got 'x'"),
        (lambda: summarise(None), "curve must be a trade-off curve or a claim, got None"),
        (lambda: regret(CLAIM, 3), "other must be a trade-off curve or a claim or None, got 3"),
        (lambda: CLAIM.dominance(3), "other must be a trade-off curve or a claim, got 3"),
        (lambda: compose([]), r"parts must be at least one pair \(curve, count\), got \[\]"),
        (lambda: guarantees.gaussian(mu=10**400), "mu must be > 0 and finite, got 1000"),
        (
            lambda: guarantees.fixed_batch_upper(rounds=10, noise_multiplier=10**400),
            "noise_multiplier must be .*, got 1000",
        ),
    ],
)
def test_what_is_no_curve_and_no_number_is_named(call, told):
    with pytest.raises(ValueError, match=told):
        call()


def test_a_claim_shows_few_digits_and_describes_itself_with_all():
    claim = guarantees.subsampled_gaussian(rate=10 / 41, noise_multiplier=1.0)
    assert "rate=0.243902," in repr(claim)
    assert f"rate={10 / 41}" in claim.describe()
