"""The exact curve of one normalised round: brute-force densities, simulation, mpmath."""

import functools

import mpmath
import numpy as np
import pytest
from checks import assert_rate_is
from scipy import stats
from scipy.special import gamma, logsumexp

from guarantees.families.closed_form import subsampled_gaussian
from guarantees.normalised.round import NORMALISERS, batch_sizes, normalised_round


@functools.cache
def curve(normalise_by, records, rate, sigma, dimension, shared=-1.0, extra=1.0):
    return normalised_round(
        normalise_by=normalise_by,
        records=records,
        rate=rate,
        noise_multiplier=sigma,
        dimension=dimension,
        shared=shared,
        extra=extra,
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("sigma", [0.01, 0.02, 0.03])
def test_batches_that_little_noise_keeps_apart_meet_where_both_sums_are_zero(sigma):
    # sums of 0, -1, -2 against two thirds of 1, 0, -1, -2: they meet at 0 alone, where the slope of the loss is 0
    weights = [0.3**2, 2 * 0.3 * 0.7, 0.7**2]
    narrow, wide = 0.3 * weights[0] + 0.7 * weights[1], weights[0]
    u = 2 * np.log(1.5 * narrow / wide) / (1.5**2 - 1)
    here, there = (abs(2 * stats.norm.sf(np.sqrt(u) * k)) for k in (1.0, 1.5))
    claim = curve("expected_batch", 2, 0.7, sigma, 1)
    assert claim.total_variation == pytest.approx(1 - narrow * there - wide * (1 - here), abs=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(80.0, 0.0433250549655981), (150.0, 2.75748786662375e-5)])
def test_little_noise_in_two_coordinates_keeps_its_large_losses(epsilon, delta):
    # one record, rate .5, noise .1, integrated with mpmath to thirty digits; tails of e^-80 decide here
    found = curve("expected_batch", 1, 0.5, 0.1, 2).delta(epsilon, "without_given_with")
    assert found == pytest.approx(delta, rel=1e-11)


# --- densities by brute force: sums over all batches, in the full space -------------------------------------


def divisors(normalise_by, records, rate, sizes):
    """What an output is divided by, for each batch size, with ``records`` records."""
    if normalise_by == "none":
        return np.ones(len(sizes))
    if normalise_by == "expected_batch":
        return np.full(len(sizes), records * rate)
    if normalise_by == "floored_expected_batch":
        return np.full(len(sizes), max(1.0, np.floor(records * rate)))
    return np.maximum(sizes, 1.0)


def components(normalise_by, records, rate, sigma, shared, extra, *, with_record):
    """ln weight, mean along e, and standard deviation of every batch's output."""
    k = np.arange(records + 1.0)
    bits = [0.0, 1.0] if with_record else [0.0]
    chance = {0.0: 1 - rate if with_record else 1.0, 1.0: rate}
    rows = []
    for bit in bits:
        if chance[bit] == 0:
            continue
        d = divisors(normalise_by, records + with_record, rate, k + bit)
        weight = stats.binom.logpmf(k, records, rate) + np.log(chance[bit])
        rows.append((weight, (shared * k + extra * bit) / d, sigma / d))
    return tuple(np.concatenate(part) for part in zip(*rows, strict=True))


def log_density(parts, along, rest, dimension):
    """ln density of an output with coordinate ``along`` e and squared norm ``rest`` across it."""
    weight, mean, deviation = parts
    exponent = -((np.asarray(along)[..., None] - mean) ** 2 + np.asarray(rest)[..., None]) / (2 * deviation**2)
    return logsumexp(weight - dimension * np.log(deviation) - dimension / 2 * np.log(2 * np.pi) + exponent, axis=-1)


LINE_CASES = [
    ("none", 2, 0.3, 0.3, -1.0, 1.0),
    ("none", 7, 0.3, 0.2, 1.0, 1.0),
    ("none", 7, 0.5, 1.0, 0.5, -1.0),
    ("expected_batch", 3, 0.5, 1.0, -1.0, 1.0),
    ("expected_batch", 7, 0.3, 0.3, 1.0, 0.5),
    ("floored_expected_batch", 3, 0.5, 0.5, 0.5, 1.0),
    ("realised_batch", 1, 0.3, 1.0, -1.0, 1.0),
    ("realised_batch", 7, 0.3, 0.5, 1.0, 0.0),
]


@pytest.mark.few(2)
@pytest.mark.parametrize("case", LINE_CASES, ids=str)
def test_delta_in_one_dimension_agrees_with_integration(case):
    normalise_by, records, rate, sigma, shared, extra = case
    sides = [components(normalise_by, records, rate, sigma, shared, extra, with_record=bit) for bit in (False, True)]
    low = min((mean - 12 * deviation).min() for _, mean, deviation in sides)
    high = max((mean + 12 * deviation).max() for _, mean, deviation in sides)
    x = np.linspace(low, high, 200_001)
    p, q = (np.exp(log_density(side, x, np.zeros_like(x), 1)) for side in sides)
    claim = curve(normalise_by, records, rate, sigma, 1, shared, extra)
    for eps in (0.0, 0.4, 2.0):
        forward = np.maximum(0, q - np.exp(eps) * p).sum() * (x[1] - x[0])
        backward = np.maximum(0, p - np.exp(eps) * q).sum() * (x[1] - x[0])
        assert abs(claim.delta(eps, "with_given_without") - forward) < 2e-8
        assert abs(claim.delta(eps, "without_given_with") - backward) < 2e-8


@pytest.mark.few(1)
@pytest.mark.parametrize(("dimension", "sigma"), [(2, 0.5), (5, 2.0)])
def test_asgm_delta_agrees_with_integration_in_two_dimensions(dimension, sigma):
    records, rate, shared, extra = 3, 0.4, -1.0, 1.0
    reach = (9 + np.sqrt(dimension)) * sigma
    along = np.linspace(-1 - 9 * sigma, 1 + 9 * sigma, 901)[:, None]
    radius = (np.arange(800) + 0.5) * reach / 800
    shell = 2 * np.pi ** ((dimension - 1) / 2) / gamma((dimension - 1) / 2) * radius ** (dimension - 2)
    cell = shell * (along[1] - along[0]) * reach / 800

    def masses(with_record):
        parts = components("realised_batch", records, rate, sigma, shared, extra, with_record=with_record)
        return cell * sum(
            np.exp(w - ((along - m) ** 2 + radius**2) / (2 * d**2)) / (np.sqrt(2 * np.pi) * d) ** dimension
            for w, m, d in zip(*parts, strict=True)
        )

    p, q = masses(False), masses(True)
    claim = curve("realised_batch", records, rate, sigma, dimension)
    for eps in (0.0, 0.5):
        assert abs(claim.delta(eps, "with_given_without") - np.maximum(0, q - np.exp(eps) * p).sum()) < 1e-5
        assert abs(claim.delta(eps, "without_given_with") - np.maximum(0, p - np.exp(eps) * q).sum()) < 1e-5


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("case", "threshold"),
    [
        (("expected_batch", 3, 0.1, 1.0, 2), -0.4),
        (("floored_expected_batch", 3, 0.5, 2.0, 9), 2.0),
    ],
    ids=str,
)
def test_tails_agree_with_mpmath(case, threshold):
    """alpha and beta as integrals over u of chi-square tails, by mpmath, straight from the densities."""
    normalise_by, records, rate, sigma, n = case
    sides = [components(normalise_by, records, rate, sigma, -1.0, 1.0, with_record=bit) for bit in (False, True)]
    scale = sides[0][2][0]

    def line(side, u):
        return mpmath.fsum(
            mpmath.exp(w) * mpmath.npdf((u - m / scale) / (d / scale)) / (d / scale)
            for w, m, d in zip(*side, strict=True)
        )

    s = mpmath.mpf(sides[1][2][0]) / mpmath.mpf(scale)
    bend = (s**-2 - 1) / 2

    def room(u):
        return (mpmath.log(line(sides[1], u) / line(sides[0], u)) - (n - 1) * mpmath.log(s) - threshold) / bend

    def above(u, spread):
        w = room(u) / spread**2
        return mpmath.gammainc(mpmath.mpf(n - 1) / 2, 0, w / 2, regularized=True) if w > 0 else mpmath.mpf(0)

    found = curve(*case).curve.law.tails(np.array([threshold]))
    roots = [float(mpmath.findroot(room, start)) for start in (-9, 9)]
    cuts = sorted({-9.0 - records, 9.0 + records, *np.round(roots, 14), *np.arange(-8.0, 9.0, 2.0)})
    with mpmath.workdps(15):
        alpha = mpmath.quad(lambda u: line(sides[0], u) * above(u, 1), cuts)
        power = mpmath.quad(lambda u: line(sides[1], u) * above(u, s), cuts)
    assert abs(found.without_above[0] - float(alpha)) < 1e-10 * max(float(alpha), 1e-3)
    assert abs(found.with_above[0] - float(power)) < 1e-10


# --- simulation: the mechanism itself, in the full space ------------------------------------------------------


def simulate(rng, trials, normalise_by, records, rate, sigma, dimension, shared, extra, *, with_record):
    """Outputs of the mechanism: Poisson batch, sum of gradients, noise, division."""
    gradients = np.zeros((records + with_record, dimension))
    gradients[:, 0] = shared
    if with_record:
        gradients[-1, 0] = extra
    batch = rng.random((trials, len(gradients))) < rate
    total = batch @ gradients + sigma * rng.standard_normal((trials, dimension))
    divisor = divisors(normalise_by, len(gradients), rate, batch.sum(axis=1))
    return total / divisor[:, None]


def llr(outputs, normalise_by, records, rate, sigma, dimension, shared, extra):
    along, rest = outputs[:, 0], (outputs[:, 1:] ** 2).sum(axis=1)
    without, with_record = (
        log_density(
            components(normalise_by, records, rate, sigma, shared, extra, with_record=bit), along, rest, dimension
        )
        for bit in (False, True)
    )
    return with_record - without


SIMULATED = [
    ("none", 7, 0.3, 0.4, 3, 1.0, -1.0),
    ("expected_batch", 7, 0.3, 1.0, 20, 0.5, 1.0),
    ("expected_batch", 1, 0.01, 1.0, 2, -1.0, 1.0),
    ("floored_expected_batch", 9, 0.5, 2.0, 200, -1.0, 1.0),
    ("floored_expected_batch", 4, 0.3, 1.0, 5, -1.0, 1.0),
    ("realised_batch", 7, 0.3, 0.7, 3, -1.0, 1.0),
    ("realised_batch", 2, 0.9, 3.0, 200, 0.0, 1.0),
    ("realised_batch", 3, 1.0, 3.0, 20, -1.0, 1.0),
]


@pytest.mark.few(3)
@pytest.mark.parametrize("case", SIMULATED, ids=str)
def test_simulated_losses_have_the_computed_tails(case):
    trials, rng = 20_000, np.random.default_rng(20261115)
    law = curve(*case).curve.law
    points = np.quantile(llr(simulate(rng, 2_000, *case, with_record=True), *case), [0.05, 0.3, 0.6, 0.95])
    points = points + 1e-6
    tails = law.tails(points)
    for bit, rates in ((False, tails.without_above), (True, tails.with_above)):
        losses = llr(simulate(rng, trials, *case, with_record=bit), *case)
        for t, rate in zip(points, rates, strict=True):
            assert_rate_is(int((losses > t).sum()), trials, float(np.clip(rate, 0, 1)))


@pytest.mark.long
def test_the_simulation_notices_a_wrong_normaliser():
    case = ("expected_batch", 7, 0.3, 1.0, 20, 0.5, 1.0)
    rng = np.random.default_rng(20261115)
    wrong = curve("realised_batch", *case[1:]).curve.law.tails(np.array([0.0])).with_above[0]
    losses = llr(simulate(rng, 20_000, *case, with_record=True), *case)
    with pytest.raises(AssertionError):
        assert_rate_is(int((losses > 0).sum()), 20_000, float(wrong))


# --- limits ----------------------------------------------------------------------------------------------------


@pytest.mark.few(6)
@pytest.mark.parametrize("normalise_by", NORMALISERS)
@pytest.mark.parametrize(("records", "rate", "dimension"), [(1, 0.01, 1), (2, 1.0, 2), (1000, 0.3, 1000)])
def test_curves_are_convex_decreasing_and_normalised(normalise_by, records, rate, dimension):
    claim = curve(normalise_by, records, rate, 1.0, dimension)
    alpha = np.linspace(0, 1, 13)
    beta = claim.beta(alpha)
    slack = 4 * claim.error + 1e-9
    assert np.all(np.diff(beta) <= slack)
    assert np.all(np.diff(beta, 2) >= -slack)
    tails = claim.curve.law.tails(np.linspace(-3, 3, 7))
    np.testing.assert_allclose(tails.without_above + tails.without_below, 1.0, atol=slack)
    np.testing.assert_allclose(tails.with_above + tails.with_below, 1.0, atol=slack)
    far = claim.curve.law.tails(np.array([-np.inf, np.inf]))
    np.testing.assert_allclose(far.without_above, [1, 0], atol=slack)
    np.testing.assert_allclose(far.with_below, [0, 1], atol=slack)


@pytest.mark.parametrize("shared", [0.0, 1.0, -1.0])
def test_without_normaliser_the_sgm_guarantee_holds_and_is_met_by_a_lone_record(shared):
    claim, promise = curve("none", 20, 0.2, 0.8, 5, shared, 1.0), subsampled_gaussian(rate=0.2, noise_multiplier=0.8)
    alpha = np.linspace(0.001, 0.999, 30)
    assert np.all(claim.beta(alpha) >= promise.beta(alpha) - 1e-12)
    if shared == 0:
        np.testing.assert_allclose(claim.beta(alpha), promise.beta(alpha), atol=1e-14)


def test_equal_floors_are_the_sum_and_different_floors_are_not():
    same = curve("floored_expected_batch", 20, 0.2, 0.8, 50)
    np.testing.assert_allclose(same.beta(0.1), curve("none", 20, 0.2, 0.8, 50).beta(0.1), rtol=1e-14)
    assert curve("floored_expected_batch", 19, 0.2, 0.8, 50).total_variation > 0.5


def test_at_rate_one_expected_and_realised_batches_agree():
    first, second = (curve(name, 5, 1.0, 3.0, 40) for name in ("expected_batch", "realised_batch"))
    assert first.total_variation == second.total_variation


def test_the_sign_of_all_gradients_does_not_matter():
    for name in ("none", "expected_batch", "realised_batch"):
        plus, minus = curve(name, 3, 0.4, 1.0, 3, 0.5, -1.0), curve(name, 3, 0.4, 1.0, 3, -0.5, 1.0)
        assert abs(plus.total_variation - minus.total_variation) < 2 * plus.error + 1e-12


def test_weights_of_batch_sizes_are_accurate_for_many_records():
    _, log_weights, lost = batch_sizes(140_199, 0.005)
    assert abs(np.exp(log_weights).sum() - 1) < 1e-14
    assert lost < 1e-30


@pytest.mark.parametrize(
    ("field", "value"),
    [("normalise_by", "mean"), ("records", 0), ("rate", 0.0), ("noise_multiplier", -1.0), ("shared", 1.5)],
)
def test_bad_arguments_are_named(field, value):
    given = {"normalise_by": "none", "records": 3, "rate": 0.5, "noise_multiplier": 1.0, "dimension": 2}
    with pytest.raises(ValueError, match=field):
        normalised_round(**{**given, field: value})


def test_noise_too_small_for_an_exact_curve_is_refused():
    with pytest.raises(ValueError, match="panels"):
        curve("expected_batch", 2, 0.5, 1e-6, 3).beta(0.5)


def test_tails_that_rounding_hides_leave_a_table_that_is_shorter_not_broken():
    claim = normalised_round(
        normalise_by="expected_batch",
        records=28_173,
        rate=0.9999913177448398,
        noise_multiplier=1.2931158620330978,
        dimension=23_394,
        shared=0.8200933410609081,
        extra=0.5789511232943176,
    )
    levels = np.array([1e-12, 1e-6, 0.1, 0.9, 1 - 1e-6])
    back = claim.reverse.beta(levels)
    assert np.isfinite(back).all()
    assert (np.diff(back) <= 1e-12).all()
    np.testing.assert_allclose(claim.beta(back[1:4]), levels[1:4], rtol=1e-4)
