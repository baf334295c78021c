"""ASGM: invariants that lost mass would break, and the collapsed mechanism sampled."""

import functools

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from guarantees.normalised import batch_cells
from guarantees.normalised.round import normalised_round
from guarantees.trade_off import TradeOff

FALSE_FAILURE_Z = 5.0
"""Standard errors allowed; a normal mean lies further off with probability 6e-7."""


@functools.cache
def curve(records, rate, sigma, dimension, shared=-1.0, extra=1.0):
    return normalised_round(
        normalise_by="realised_batch",
        records=records,
        rate=rate,
        noise_multiplier=sigma,
        dimension=dimension,
        shared=shared,
        extra=extra,
    )


def mixture(records, rate, sigma, shared, extra):
    """ln weight of each batch size, then (divisor, mean) without the record and with it in the batch."""
    k = np.arange(records + 1)
    weight = stats.binom.logpmf(k, records, rate)
    k, weight = k[weight > -60], weight[weight > -60]
    alone, more = np.maximum(k, 1.0), k + 1.0
    return weight, (alone, shared * k / alone / sigma), (more, (shared * k + extra) / more / sigma)


def loss(u, w, parts, rate, dimension):
    weight, *sides = parts
    z = (dimension - 1) / 2

    def log_density(j, m):
        y = np.log(w / (dimension - 1))[:, None] + 2 * np.log(j)
        return logsumexp(weight + np.log(j) - (j * (u[:, None] - m)) ** 2 / 2 + z * (y - np.expm1(y)), axis=1)

    gap = log_density(*sides[1]) - log_density(*sides[0])
    return np.logaddexp(np.log1p(-rate), np.log(rate) + gap)


def sampled_delta(case, epsilons, trials=40_000, seed=20261115):
    """delta in both directions with standard errors: one binomial, one normal and one chi-square a trial."""
    records, rate, sigma, dimension, shared, extra = case
    rng, parts = np.random.default_rng(seed), mixture(records, rate, sigma, shared, extra)
    found = []
    for bit in (1, 0):
        k, extra_in = rng.binomial(records, rate, trials), bit * rng.binomial(1, rate, trials)
        j = np.maximum(k + extra_in, 1)
        u = (shared * k + extra * extra_in) / j / sigma + rng.standard_normal(trials) / j
        losses = loss(u, rng.chisquare(dimension - 1, trials) / j**2, parts, rate, dimension)
        leak = -np.expm1(np.minimum(np.asarray(epsilons)[:, None] - (2 * bit - 1) * losses, 0.0))
        found.append((leak.mean(axis=1), leak.std(axis=1) / np.sqrt(trials)))
    return found


CASES = [
    (4, 0.7, 10.0, 10_000, -1.0, 1.0),
    (3, 0.9, 1.0, 400, -1.0, 1.0),
    (10, 0.5, 2.0, 10_000, -1.0, 1.0),
    (2, 0.83, 5.0, 400, 1.0, 0.6),
    (1, 0.5, 0.05, 2, -1.0, 1.0),
    (30, 0.2, 0.3, 1_500_000, 0.5, -1.0),
    (200, 0.05, 1.0, 50, 0.0, 1.0),
]
EPSILONS = np.array([0.0, 0.1, 1.0, 3.0])


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_curve_leaks_what_sampling_finds(case):
    claim = curve(*case)
    found = sampled_delta(case, EPSILONS)
    for direction, (mean, error) in zip(("with_given_without", "without_given_with"), found, strict=True):
        slack = FALSE_FAILURE_Z * error + claim.error + 1e-4
        assert np.all(np.abs(claim.delta(EPSILONS, direction) - mean) <= slack)


@pytest.mark.long
def test_the_sampling_notices_a_wrong_rate():
    mean, error = sampled_delta(CASES[0], EPSILONS)[0]
    wrong = curve(4, 0.6, 10.0, 10_000).delta(0.0)
    assert abs(wrong - mean[0]) > FALSE_FAILURE_Z * error[0] + 1e-3


@pytest.mark.few(1)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_both_directions_have_one_total_variation(case):
    claim = curve(*case)
    forward, backward = (claim.delta(0.0, d) for d in ("with_given_without", "without_given_with"))
    assert abs(forward - backward) < 1e-12


@pytest.mark.few(1)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_two_directions_mirror_each_other_at_negative_epsilon(case):
    """``D_eps(P||Q) = 1 - e^eps + e^eps D_-eps(Q||P)``."""
    claim = curve(*case)
    forward = claim.delta(EPSILONS, "with_given_without")
    backward = claim.delta(-EPSILONS, "without_given_with")
    np.testing.assert_allclose(forward, -np.expm1(EPSILONS) + np.exp(EPSILONS) * backward, atol=1e-11)


@pytest.mark.few(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_certified_curves_lie_on_their_sides(case):
    certificate = curve(*case).certificate
    eps = np.linspace(0.0, 10.0, 41)
    for direction in ("with_given_without", "without_given_with"):
        low, middle, high = (
            law.delta(eps, direction)
            for law in (TradeOff(certificate.leaked), curve(*case), TradeOff(certificate.safe))
        )
        assert np.all(low <= middle + 1e-12)
        assert np.all(middle <= high + 1e-12)
        assert np.all(high - low <= curve(*case).error)


@pytest.mark.filterwarnings("error")
def test_cells_whose_loss_overflows_are_bounded_by_nothing_without_a_warning(monkeypatch):
    monkeypatch.setattr(batch_cells, "_bounded", lambda strip: (np.float64(np.inf),) * 4)
    parameters = batch_cells.BatchMixture(log_weights=np.zeros(1), means=np.zeros(1), divisors=np.ones(1))
    strips = [s for s in batch_cells.coarse_strips((parameters, parameters), 3, step=0.3) if s.columns.regular.any()]
    cells = batch_cells.cells_of(strips[0])
    assert np.isneginf(cells.low).all()
    assert np.isposinf(cells.high).all()
