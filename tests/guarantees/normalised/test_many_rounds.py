"""Many normalised rounds: chi-square laws, convolution, simulation."""

import functools

import numpy as np
import pytest
from checks import assert_rate_is
from scipy import stats

from guarantees.laws.summed_law import SummedLaw
from guarantees.normalised.bounds import normalised_guarantee
from guarantees.normalised.revealed_size import revealed_round
from guarantees.normalised.round import normalised_round
from guarantees.normalised.variance_pair import ShiftedPairLaw, VariancePairLaw, variance_pair
from guarantees.trade_off import TradeOff

SIDES = ("without_above", "without_below", "with_above", "with_below")


@functools.cache
def one_round(name, records, rate, sigma, dimension):
    return normalised_round(normalise_by=name, records=records, rate=rate, noise_multiplier=sigma, dimension=dimension)


@functools.cache
def many_rounds(times, *given):
    return one_round(*given).curve.compose(times)


def test_contour_tails_keep_relative_accuracy_against_the_chi_square():
    shifted = ShiftedPairLaw(dimension=99, scales=np.array([0.8]), shifts=np.zeros(1), weights=np.ones(1))
    summed = shifted.compose(7)
    assert isinstance(summed, SummedLaw)
    t = np.linspace(-30, 60, 31)
    found, truth = summed.tails(t), VariancePairLaw(degrees=99, scale=0.8).compose(7).tails(t)
    for side in SIDES:
        np.testing.assert_allclose(getattr(found, side), getattr(truth, side), rtol=2e-12, atol=1e-200)


def test_contours_of_a_shifted_pair_are_one_pair_of_more_coordinates():
    """T rounds with shift mu are one with T n coordinates and shift sqrt(T) mu."""
    rounds = variance_pair(dimension=20, scale=0.9, shift=0.3).curve.compose(9)
    single = variance_pair(dimension=180, scale=0.9, shift=0.9)
    t = np.linspace(-10, 10, 15)
    for side in SIDES:
        np.testing.assert_allclose(
            getattr(rounds.law.tails(t), side), getattr(single.curve.law.tails(t), side), rtol=1e-10
        )


def test_contours_agree_with_the_exact_law_of_one_round():
    law = one_round("expected_batch", 7, 0.3, 0.7, 120).curve.law
    t = np.linspace(-6, 6, 13)
    for side in SIDES:
        np.testing.assert_allclose(getattr(law.compose(1).tails(t), side), getattr(law.tails(t), side), rtol=1e-9)


def test_where_moments_decay_too_slowly_the_contours_are_refused():
    assert one_round("expected_batch", 3, 0.4, 1.0, 3).curve.law.compose(2) is None


def test_rounds_have_the_simulated_tails():
    """Three independent losses, each from the two sufficient statistics."""
    given, trials, times = ("expected_batch", 4, 0.3, 2.0, 60), 20_000, 3
    _, records, rate, sigma, n = given
    law = many_rounds(times, *given).law
    rng = np.random.default_rng(20261115)
    s = records / (records + 1)
    k = np.arange(records + 1)
    weights = stats.binom.pmf(k, records, rate)

    def loss(u, w):
        first = sum(p * stats.norm.pdf(u, -m / sigma) for p, m in zip(weights, k, strict=True))
        second = sum(
            p * chance * stats.norm.pdf(u, s * (bit - m) / sigma, s)
            for p, m in zip(weights, k, strict=True)
            for bit, chance in ((0, 1 - rate), (1, rate))
        )
        return np.log(second / first) - (n - 1) * np.log(s) - (s**-2 - 1) / 2 * w

    t = np.array([-2.0, 0.0, 2.0])
    tails = law.tails(t)
    for with_record, rates in ((False, tails.without_above), (True, tails.with_above)):
        shape = (trials, times)
        total = -rng.binomial(records, rate, shape) + with_record * rng.binomial(1, rate, shape)
        scale = s if with_record else 1.0
        u = scale * (total / sigma + rng.standard_normal(shape))
        losses = loss(u, scale**2 * rng.chisquare(n - 1, shape)).sum(axis=1)
        for threshold, expected in zip(t, rates, strict=True):
            assert_rate_is(int((losses > threshold).sum()), trials, float(expected))
        with pytest.raises(AssertionError):
            assert_rate_is(
                int((losses > 0).sum()), trials, float(one_round(*given).curve.law.tails(t).with_above[1] / 2)
            )


@pytest.mark.long
@pytest.mark.parametrize("times", [3, 30])
def test_rounds_of_asgm_keep_mass_and_mean_and_lie_between_proved_curves(times):
    curve = many_rounds(times, "realised_batch", 4, 0.7, 10.0, 100)
    law, eps = curve.law, np.array([0.0, 1.0, 5.0, 20.0])
    for part in (law.middle, law.safe, law.leaked):
        assert abs(part.without.sum() - 1) < 1e-10 + law.rounding
        assert abs(part.with_record.sum() - 1) < 1e-10 + law.rounding
        finite = np.isfinite(part.losses)
        mean = (part.with_record[finite] * np.exp(-part.losses[finite])).sum()
        assert abs(mean + part.without[part.losses == -np.inf].sum() - 1) < 1e-10 + law.rounding
    assert law.rounding < 1e-7
    assert abs(curve.delta(0.0, "with_given_without") - curve.delta(0.0, "without_given_with")) < 1e-10
    for direction in ("with_given_without", "without_given_with"):
        low, middle, high = (c.delta(eps, direction) for c in (TradeOff(law.leaked), curve, TradeOff(law.safe)))
        assert np.all((low <= middle + 2e-6) & (middle <= high + 2e-6))
        assert np.all(high - low <= curve.error)
    assert curve.error < 3e-4 * times
    assert "between" in curve.certificate.proved


@pytest.mark.long
def test_contours_leave_the_atom_of_unsampled_rounds_where_it_is():
    """ASGM with batch and bit shown, two rounds, against a convolution of one round's law on a fine lattice."""
    case = {"normalise_by": "realised_batch", "records": 6, "rate": 0.4, "noise_multiplier": 1.0, "dimension": 80}
    law = revealed_round(**case).curve.law
    found = law.compose(2).tails(np.array([-1.0, -0.1, 0.1, 1.0, 4.0]))
    grid = 0.03 * np.arange(-2_000, 2_001)
    cells = law.tails(grid)
    for side, above in (("without", cells.without_above), ("with", cells.with_above)):
        masses = -np.diff(above)
        middle = (grid[1:] + grid[:-1]) / 2
        atom = int(np.searchsorted(grid, 0.0)) - 1
        masses[atom] -= 0.6
        rates = []
        for t in (-1.0, -0.1, 0.1, 1.0, 4.0):
            again = np.interp(t - middle, grid, above - 0.6 * (grid < 0))
            rates.append(masses @ again + 2 * 0.6 * np.interp(t, grid, above - 0.6 * (grid < 0)) + 0.36 * (t < 0))
        np.testing.assert_allclose(getattr(found, f"{side}_above"), rates, atol=3e-5)


@pytest.mark.long
def test_a_guarantee_composes_and_stays_below_the_exact_curve():
    case = {"normalise_by": "expected_batch", "records": 500, "rate": 0.02, "noise_multiplier": 2.0, "dimension": 400}
    promise, exact = normalised_guarantee(**case).curve.compose(10), normalised_round(**case).curve.compose(10)
    alpha = np.array([0.01, 0.2, 0.7])
    assert np.all(promise.beta(alpha) <= exact.beta(alpha) + 1e-9)
