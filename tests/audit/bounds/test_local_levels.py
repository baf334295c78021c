import numpy as np
import pytest
from checks import assert_rate_at_most, assert_rate_is
from scipy.special import ndtr
from scipy.stats import beta as beta_law

from audit.bounds.local_levels import band_from_grid, band_from_scores, crossing_probability, ranks, rate_band
from audit.bounds.points import proven_epsilon


def test_crossing_probability_has_known_values():
    assert crossing_probability(1, np.array([1]), np.array([0.7])) == pytest.approx(0.3, abs=1e-13)
    # Both of two uniforms below 0.8 and the smaller below 0.5: 0.8^2 - 0.3^2.
    pair = crossing_probability(2, np.array([1, 2]), np.array([0.5, 0.8]))
    assert pair == pytest.approx(1 - (0.64 - 0.09), abs=1e-13)
    # Daniels: some U_(i) falls below p i/n with probability exactly p; seen from the other end.
    for n, p in ((5, 0.2), (1000, 0.05)):
        rank = np.arange(1, n + 1)
        limit = 1 - p * (n + 1 - rank) / n
        assert crossing_probability(n, rank, limit) == pytest.approx(p, abs=1e-9)


@pytest.mark.parametrize("trials", [1, 2, 3, 20, 400])
def test_band_spends_its_risk_and_no_more(trials):
    band = rate_band(trials, risk=0.05)
    assert crossing_probability(trials, band.rank, band.limit) <= 0.05 + 1e-12
    uniforms = np.sort(np.random.default_rng(13).random((20_000, trials)), axis=1)
    wrong = int(np.any(uniforms[:, band.rank - 1] > band.limit, axis=1).sum())
    assert_rate_is(wrong, 20_000, 0.05)


def test_ranks_reach_both_ends():
    for trials in (1, 2, 3, 10, 10**6):
        rank = ranks(trials)
        assert rank[0] == 1
        assert rank[-1] == trials
        assert np.all(np.diff(rank) > 0)


def test_band_holds_at_every_threshold_also_with_ties():
    """Scores rounded to tenths; the negative control spends the whole risk on each threshold."""
    rng = np.random.default_rng(14)
    level = np.linspace(-3, 3, 61).round(1)
    alpha = 1 - ndtr(level + 0.05)
    wrong = pointwise_wrong = 0
    for _ in range(300):
        scores = rng.normal(size=300).round(1)
        above = (scores[:, None] > level + 0.01).sum(0)
        wrong += bool(np.any(alpha > rate_band(300, risk=0.1).upper(above)))
        pointwise_wrong += bool(np.any(alpha > beta_law.isf(0.1, above + 1, 300 - above)))
    assert_rate_at_most(wrong, 300, 0.1)
    with pytest.raises(AssertionError):
        assert_rate_at_most(pointwise_wrong, 300, 0.1)


def cells_at(edges, *sides):
    return [np.bincount(np.searchsorted(edges, side), minlength=len(edges) + 1) for side in sides]


def test_grid_and_scores_give_the_same_limits():
    rng = np.random.default_rng(15)
    without, with_record = rng.normal(size=500), rng.normal(size=700) + 1
    edges = np.linspace(-3, 4, 100)
    grid = band_from_grid(edges, *cells_at(edges, without, with_record), risk=0.05)
    scores = band_from_scores(np.sort(without), np.sort(with_record), risk=0.05)
    # a grid of the same thresholds says the same; no other threshold says more
    shared = band_from_grid(scores.threshold, *cells_at(scores.threshold, without, with_record), risk=0.05)
    np.testing.assert_array_equal(shared.alpha_upper, scores.alpha_upper)
    np.testing.assert_array_equal(shared.beta_upper, scores.beta_upper)
    as_good = (scores.alpha_upper <= grid.alpha_upper[:, None]) & (scores.beta_upper <= grid.beta_upper[:, None])
    assert np.all(as_good.any(axis=1))
    np.testing.assert_allclose(grid.power_lower, 1 - grid.beta_upper)
    assert len(grid.points) == 100


def test_limits_grow_with_the_count():
    band = rate_band(1000, risk=0.05)
    upper = band.upper(np.arange(1001))
    assert np.all(np.diff(upper) >= 0)
    assert upper[-1] == 1.0
    assert np.all(upper[:-1] >= beta_law.isf(0.05, np.arange(1, 1001), 1000 - np.arange(1000)))


def normal_band(seed):
    rng = np.random.default_rng(seed)
    sides = np.sort(rng.normal(size=100_000)), np.sort(rng.normal(size=100_000) + 1)
    return max(proven_epsilon(band_from_scores(*sides, risk=0.05).points, delta=1e-5))


def test_normal_scores_reach_the_stated_epsilon():
    """N(0,1) against N(1,1), 1e5 per side, delta 1e-5, risk 0.05: the median is at least 2.70."""
    found = [normal_band(seed) for seed in range(20)]
    assert_rate_at_most(sum(value < 2.70 for value in found), 20, 0.5)
    assert max(found) < 4.377


@pytest.mark.long
def test_normal_scores_reach_the_stated_epsilon_over_200_seeds():
    assert np.median([normal_band(seed) for seed in range(200)]) >= 2.70


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="101 counts"):
        band_from_grid(np.zeros(100), np.ones(99, int), np.ones(101, int), risk=0.05)
    with pytest.raises(ValueError, match="integer"):
        rate_band(10, risk=0.05).upper(np.array([0.5]))
