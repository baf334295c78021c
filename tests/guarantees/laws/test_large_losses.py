"""Deltas at epsilons whose exponential overflows: closed forms, atoms, and a refusal where neither helps."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

import guarantees
from guarantees.laws.law import Tails
from guarantees.trade_off import TradeOff

WAYS = ("with_given_without", "without_given_with")


def gaussian_truth(mu, epsilon):
    with mpmath.workdps(40):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return float(mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("epsilon", [599.0, 650.0, 1000.0, 1e5])
@pytest.mark.parametrize("below", [0.1, 3.0, 45.0])
def test_laws_with_atoms_have_their_closed_forms(epsilon, below, way):
    at = epsilon - below
    assert guarantees.randomised_response(epsilon=epsilon).delta(at, way) == pytest.approx(-np.expm1(-below), rel=1e-9)
    assert guarantees.laplace(epsilon=epsilon).delta(at, way) == pytest.approx(-np.expm1(-below / 2), rel=1e-9)
    truth = 1e-3 - np.expm1(-below) * (1 - 1e-3)
    assert guarantees.epsilon_delta(epsilon=epsilon, delta=1e-3).delta(at, way) == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("epsilon", [599.0, 650.0, 1000.0, 1e5])
def test_a_table_promises_what_its_rows_say_and_no_more_in_between(epsilon):
    claim = guarantees.claim_from_table([(epsilon, 1e-3), (epsilon + 2, 1e-5), (1.0, 0.9)])
    assert claim.delta([epsilon, epsilon + 2, epsilon + 50, 1.0]) == pytest.approx([1e-3, 1e-5, 1e-5, 0.9], rel=1e-9)
    share = np.expm1(1.0) / np.expm1(2.0)
    assert claim.delta(epsilon + 1) == pytest.approx((1 - share) * 1e-3 + share * 1e-5, rel=1e-9)
    assert claim.epsilon(1e-5) == pytest.approx(epsilon + 2, rel=1e-12)
    assert claim.epsilon(1e-6) == np.inf
    assert claim.error < 1e-11


def test_a_row_above_the_line_through_its_neighbours_promises_nothing():
    rows = [(700.0, 0.5), (720.0, 0.4999), (740.0, 1e-3), (800.0, 1e-6)]
    claim = guarantees.claim_from_table(rows)
    line = 0.5 - (0.5 - 1e-3) * np.exp(-20.0)
    assert guarantees.claim_from_table([rows[0], *rows[2:]]).delta(720.0) == pytest.approx(line, rel=1e-9)
    assert claim.delta(720.0) == pytest.approx(min(line, 0.4999), rel=1e-12)


@pytest.mark.parametrize("mu", [20.0, 50.0, 100.0, 1e4])
@pytest.mark.parametrize("z", [-3.0, 0.0, 4.0])
def test_gaussian_deltas_keep_their_digits(mu, z):
    epsilon = mu**2 / 2 + z * mu
    truth = gaussian_truth(mu, epsilon)
    assert guarantees.gaussian(mu=mu).delta(epsilon) == pytest.approx(truth, rel=1e-9)
    sampled = guarantees.subsampled_gaussian(rate=0.25, noise_multiplier=1 / mu)
    assert sampled.delta(epsilon + np.log(0.25)) == pytest.approx(0.25 * truth, rel=1e-9)
    assert sampled.delta(epsilon, "without_given_with") == 0


def integrated(claim, epsilon):
    """``int e^-u P_with(L > eps + u) du`` by brute force, for a loss without atoms."""
    u = np.linspace(0.0, 40.0, 100_001)
    tail = 1 - claim.errors(epsilon + u)[1]
    return float(np.trapezoid(np.exp(-u) * tail, u))


@pytest.mark.parametrize(
    "claim",
    [
        guarantees.subsampled_gaussian(rate=0.3, noise_multiplier=0.03, relation="substitution"),
        guarantees.subsampled_gaussian(rate=0.3, noise_multiplier=0.07, group=3),
        guarantees.gaussian(mu=40.0).curve.mixture(guarantees.laplace(epsilon=2.0).curve, weights=(0.25, 0.75)),
        guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=0.03).symmetrise(),
    ],
)
@pytest.mark.parametrize("epsilon", [650.0, 850.0])
def test_closed_forms_are_the_integral_of_their_own_tail(claim, epsilon):
    assert claim.delta(epsilon, "with_given_without") == pytest.approx(integrated(claim, epsilon), rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_a_smooth_law_without_a_closed_form_is_integrated(scale):
    claim = guarantees.variance_pair(dimension=3000, scale=scale)
    mean = 3000 * (np.log(1 / scale) + (scale**2 - 1) / 2)
    for epsilon in (mean - 30, mean, mean + 60):
        assert claim.delta(epsilon, "with_given_without") == pytest.approx(integrated(claim, epsilon), rel=1e-6)


class Foreign:
    """Somebody else's randomised response: tails, thresholds and an error, and nothing else."""

    error = 1e-15

    def __init__(self, epsilon):
        self.law = guarantees.randomised_response(epsilon=epsilon).law

    def tails(self, threshold) -> Tails:
        return self.law.tails(threshold)

    def threshold(self, alpha):
        return self.law.threshold(alpha)


@pytest.mark.parametrize("below", [1e-6, 1e-3, 0.1, 1.0, 5.0, 12.0])
def test_atoms_that_nobody_told_us_of_are_refused(below):
    curve = TradeOff(Foreign(650.0))
    assert curve.delta(599.0) == pytest.approx(1.0, rel=1e-12)
    with pytest.raises(ValueError, match="epsilon must be at most 600"):
        curve.delta(650.0 - below)


def test_epsilon_is_refused_too_and_never_a_false_number():
    with pytest.raises(ValueError, match="epsilon must be at most 600"):
        TradeOff(Foreign(650.0)).epsilon(1e-2)
    assert TradeOff(Foreign(500.0)).epsilon(1e-9) == pytest.approx(500.0)


@pytest.mark.parametrize("epsilon", [250.0, 650.0, 1000.0])
def test_outcomes_are_composed_however_large_their_losses(epsilon):
    twice = guarantees.randomised_response(epsilon=epsilon).compose(2)
    assert twice.delta(2 * epsilon - 0.1) == pytest.approx(-np.expm1(-0.1), rel=1e-9)


def test_a_lattice_follows_large_losses():
    curve = guarantees.laplace(epsilon=650.0).compose(2)
    assert curve.error < 1e-5
    for below in (0.0, 3.0, 20.0):
        assert curve.delta(1300.0 - below) == pytest.approx(laplace_twice(below), abs=curve.error)


def laplace_twice(below):
    """``E (1 - e^(S - below))^+`` with S the sum of two independent shortfalls: 0 or exponential of mean 2."""
    with mpmath.workdps(20):
        one = mpmath.quad(lambda s: (1 - mpmath.exp(s - below)) * mpmath.exp(-s / 2) / 2, [0, below])
        two = mpmath.quad(lambda s: (1 - mpmath.exp(s - below)) * s * mpmath.exp(-s / 2) / 4, [0, below])
        return float((1 - mpmath.exp(-below)) / 4 + one / 2 + two / 4)


def test_no_warning_and_no_leak_beyond_the_largest_loss():
    for claim in (guarantees.laplace(epsilon=700.0), guarantees.randomised_response(epsilon=5000.0)):
        assert claim.delta([5000.0, 1e10, 1e300]) == pytest.approx([0.0, 0.0, 0.0])
        assert claim.epsilon(0.0) == claim.law.support[1]
        assert claim.beta(0.0) == 1.0


@pytest.mark.parametrize("name", ["laplace", "randomised_response", "epsilon_delta"])
def test_epsilons_that_floats_do_not_resolve_are_refused(name):
    given = {"delta": 1e-3} if name == "epsilon_delta" else {}
    make = getattr(guarantees, name)
    largest = make(epsilon=1e15, **given)
    assert largest.delta(1e15) == given.get("delta", 0.0)
    assert largest.epsilon(0.5) <= 1e15
    with pytest.raises(ValueError, match=r"epsilon must be .*1e15"):
        make(epsilon=1e300, **given)


def test_noise_that_hides_nothing_is_refused():
    assert guarantees.gaussian(mu=1e8).epsilon(0.5) == pytest.approx(5e15)
    for make in (
        lambda: guarantees.gaussian(mu=1e160),
        lambda: guarantees.gaussian(mu=1e8).compose(2),
        lambda: guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1e-100),
        lambda: guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1e-100, relation="substitution"),
        lambda: guarantees.deterministic_batches(noise_multiplier=1e-9),
    ):
        with pytest.raises(ValueError, match=r"mu \(1 / noise_multiplier.* must be at most 1e\+08"):
            make()


def maximum_truth(epsilon, shifts, rounds, cuts):
    """The best of the events 'the largest of normals exceeds a cut'; far out no two of them do."""
    with mpmath.workdps(30):

        def above(shift, cut):
            return mpmath.ncdf(shift - cut) + (rounds - 1) * mpmath.ncdf(-cut)

        return float(
            max(above(shifts[1], c) - mpmath.exp(epsilon) * above(shifts[0], c) for c in map(mpmath.mpf, cuts))
        )


@pytest.mark.few(2)
@pytest.mark.parametrize("cut_step", [0.0, 0.01])
@pytest.mark.parametrize("epsilon", [1250.0, 1310.0])
def test_the_largest_batch_sum_has_its_delta_at_large_losses(cut_step, epsilon):
    """A loss of epsilon belongs to the cut ``75 + epsilon / 50``."""
    claim = guarantees.fixed_batch_event(rounds=10, noise_multiplier=0.02, cut_step=cut_step)
    step = cut_step / 0.02 or 0.002
    cuts = np.arange(np.floor((74 + epsilon / 50) / step), np.ceil((76 + epsilon / 50) / step) + 1) * step
    truth = maximum_truth(epsilon, (50.0, 100.0), 10, cuts)
    assert 0.01 < truth < 0.6
    assert claim.delta(epsilon) == pytest.approx(truth, rel=1e-5)


def test_events_of_hardly_any_noise_have_an_epsilon():
    assert np.isfinite(guarantees.fixed_batch_event(rounds=10, noise_multiplier=1e-3).epsilon(1e-5))


@pytest.mark.parametrize("noise", [1e3, 1e6, 1e9, 1e12])
def test_the_largest_coordinate_under_much_noise_leaks_as_much_less(noise):
    """To first order in 1/noise the advantage of the best cut is ``max_c phi(c) Phi(c)^9 / noise``."""
    cuts = np.linspace(0.0, 3.0, 30_001)
    slope = float(np.max(norm.pdf(cuts) * norm.cdf(cuts) ** 9))
    assert guarantees.max_coordinate(rounds=10, noise_multiplier=noise).total_variation == pytest.approx(
        slope / noise, rel=2e-3
    )
    event = guarantees.fixed_batch_event(rounds=10, noise_multiplier=noise, cut_step=0.0)
    assert event.total_variation == pytest.approx(slope / noise, rel=4e-3)
