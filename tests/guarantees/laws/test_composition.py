from __future__ import annotations

import functools

import numpy as np
import pytest
from curves import discrete, discrete_curve, few, scales, simple
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import binom

import guarantees
from guarantees.laws.adapter import as_law
from guarantees.laws.composition import composed_law
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.laws.law import Certificate
from guarantees.trade_off import TradeOff, compose

EPS = np.array([0.0, 0.1, 0.5, 1.0, 2.0])


class Opaque:
    """A law that hides its closed form."""

    error = 1e-15

    def __init__(self, inner):
        self.inner = inner

    def tails(self, threshold):
        return self.inner.tails(threshold)

    def threshold(self, alpha):
        return self.inner.threshold(alpha)


def sides(curve):
    """The two certified curves: the one that leaks more, the one that leaks less."""
    certificate = curve.certificate
    assert certificate is not None
    return TradeOff(certificate.safe), TradeOff(certificate.leaked)


def assert_between(curve, truth, eps=EPS):
    if curve.certificate is None:
        for direction in ("with_given_without", "without_given_with"):
            exact = np.array([truth(e, direction) for e in eps])
            assert curve.delta(eps, direction) == pytest.approx(exact, abs=1e-13)
        return
    safe, leaked = sides(curve)
    for direction in ("with_given_without", "without_given_with"):
        exact = np.array([truth(e, direction) for e in eps])
        slack = curve.certificate.round_off
        assert np.all(leaked.delta(eps, direction) <= exact + slack)
        assert np.all(exact <= safe.delta(eps, direction) + slack)
        assert np.all(np.abs(curve.delta(eps, direction) - exact) <= curve.error)


@pytest.mark.few(2)
@pytest.mark.parametrize(("mu", "times"), [(0.1, 100), (0.5, 3), (2.0, 2)])
def test_certified_curves_bracket_a_gaussian_composition(mu, times):
    curve = compose([(TradeOff(Opaque(GaussianLaw(mu=mu))), times)])
    exact = guarantees.gaussian(mu=mu * np.sqrt(times))
    assert_between(curve, lambda e, side: exact.delta(e, side), np.linspace(0, 6, 25))
    assert curve.error < 2e-6


def test_small_deltas_keep_their_digits():
    curve = compose([(TradeOff(Opaque(GaussianLaw(mu=0.1))), 100)])
    assert curve.epsilon(1e-12) == pytest.approx(guarantees.gaussian(mu=1.0).epsilon(1e-12), rel=1e-4)
    alpha = np.array([1e-12, 1e-9, 1e-6])
    truth = 1 - guarantees.gaussian(mu=1.0).beta(alpha)
    assert 1 - curve.beta(alpha) == pytest.approx(truth, rel=1e-3)


@pytest.mark.few(1)
@pytest.mark.parametrize(("epsilon", "times"), [(0.1, 50), (1.0, 7)])
def test_randomised_response_composes_to_binomials(epsilon, times):
    curve = guarantees.randomised_response(epsilon=epsilon).compose(times).curve
    k, p = np.arange(times + 1), 1 / (1 + np.exp(-epsilon))

    def truth(eps, side):
        return np.maximum(binom.pmf(k, times, p) - np.exp(eps) * binom.pmf(k, times, 1 - p), 0).sum()

    assert_between(curve, truth)
    hidden = TradeOff(Opaque(guarantees.randomised_response(epsilon=epsilon).curve.law))
    assert_between(compose([(hidden, times)], tolerance=1e-4), truth)


def test_mass_at_infinity_adds_up():
    delta, times = 0.01, 20
    curve = guarantees.epsilon_delta(epsilon=0.1, delta=delta).compose(times).curve
    assert curve.delta(100.0) == pytest.approx(1 - (1 - delta) ** times, rel=1e-9)
    assert curve.beta(0.0) == pytest.approx((1 - delta) ** times, rel=1e-9)


def brute_force(curves, epsilon):
    """Delta of independent discrete pairs together, over all outcomes."""
    losses, masses = np.zeros(1), np.ones(1)
    for curve in curves:
        losses = (losses[:, None] + curve.law.losses).ravel()
        masses = (masses[:, None] * curve.law.without).ravel()
    return float(np.sum(np.maximum(masses * np.exp(losses) - np.exp(epsilon) * masses, 0)))


@few
@example(discrete_curve([0.0, 1.0], [1.0]), discrete_curve([0.0, 1.0, 3.0, -2.0873113570529442], [0.1875]), 1)
@given(discrete, discrete, st.integers(1, 3))
def test_certified_curves_bracket_any_discrete_composition(first, second, times):
    # Hide that they are discrete: else all outcomes would be enumerated.
    hidden = [TradeOff(Opaque(curve.law)) for curve in (first, second)]
    curve = compose([(hidden[0], times), (hidden[1], 1)], tolerance=1e-3)
    whole = compose([(first, times), (second, 1)])
    if curve.certificate is None:
        return
    safe, leaked = sides(curve)
    for epsilon in (0.0, 0.5, 1.5):
        exact = brute_force([first] * times + [second], epsilon)
        assert leaked.delta(epsilon, "with_given_without") <= exact + 1e-12
        assert exact <= safe.delta(epsilon, "with_given_without") + 1e-12
        assert whole.delta(epsilon, "with_given_without") == pytest.approx(exact, abs=1e-13)


@pytest.mark.long
@few
@given(simple, simple)
def test_composition_commutes(first, second):
    one, other = compose([(first, 1), (second, 2)], tolerance=1e-4), compose([(second, 2), (first, 1)], tolerance=1e-4)
    assert one.delta(EPS) == pytest.approx(other.delta(EPS), abs=max(1e-12, one.error, other.error))


@few
@given(simple, st.integers(2, 5))
def test_composition_is_monotone(curve, times):
    more, less = (compose([(curve, n)], tolerance=1e-4) for n in (times, times - 1))
    slack = more.error + less.error
    assert np.all(more.delta(EPS) >= less.delta(EPS) - slack)
    assert np.all(more.beta([0.01, 0.1, 0.5]) <= less.beta([0.01, 0.1, 0.5]) + slack)


@pytest.mark.long
@few
@given(scales, scales, st.integers(1, 4))
def test_leakier_parts_make_a_leakier_whole(one, other, times):
    low, high = sorted((one, other))
    weak, strong = (guarantees.laplace(epsilon=e).compose(times) for e in (low, high))
    assert np.all(strong.delta(EPS) >= weak.delta(EPS) - strong.error - weak.error)


def test_gaussians_of_different_sizes_compose_in_closed_form():
    curve = guarantees.gaussian(mu=0.3).curve.compose_with(guarantees.gaussian(mu=0.4).curve)
    assert isinstance(curve.law, GaussianLaw)
    assert curve.law.mu == pytest.approx(0.5)
    assert curve.certificate is None


def test_one_composition_changes_nothing():
    curve = guarantees.laplace(epsilon=1.0).curve
    assert curve.compose(1).law is curve.law


def test_a_lattice_too_coarse_says_so_in_its_error():
    curve = TradeOff(GaussianLaw(mu=1.0, rate=0.01))
    coarse = compose([(curve, 100)], tolerance=1e-9, most_points=2**12)
    fine = compose([(curve, 100)], tolerance=1e-5)
    assert coarse.error > 10 * fine.error
    assert np.all(np.abs(coarse.delta(EPS) - fine.delta(EPS)) <= coarse.error + fine.error)


@pytest.mark.long
def test_a_one_sided_bound_stays_one_sided_when_composed():
    one = guarantees.fixed_batch_upper(rounds=1000, noise_multiplier=3.0)
    certificate = one.compose(4).certificate
    assert certificate is not None
    assert certificate.safe is not None
    assert certificate.leaked is None


def test_an_estimated_law_proves_nothing_when_composed():
    nothing = Certificate(proved="nothing: seen in samples", estimated="the whole curve", round_off=0.1)
    losses, without = np.array([-0.2, 0.0, 0.2]), np.array([0.3, 0.5, 0.2])
    with_record = without * np.exp(losses)
    law = DiscreteLaw(losses, without, with_record / with_record.sum(), 0.1, certificate=nothing)
    certificate = TradeOff(law).compose(3).certificate
    assert certificate is not None
    assert "nothing" in certificate.proved
    assert certificate.safe is None
    assert certificate.leaked is None


def test_composing_a_composition_keeps_what_surely_leaks_below_the_truth():
    one = guarantees.subsampled_gaussian(rate=0.3, noise_multiplier=1.0)
    twice, at_once = one.curve.compose(3).compose(4), one.curve.compose(12)
    eps = np.linspace(0.0, 4.0, 9)
    leaked, safe = twice.certificate.leaked, at_once.certificate.safe
    assert np.all(TradeOff(leaked).delta(eps) <= TradeOff(safe).delta(eps) + 1e-12)
    assert np.all(twice.delta(eps) >= TradeOff(at_once.certificate.leaked).delta(eps) - 1e-12)


def test_the_other_direction_and_a_mixture_keep_the_certificate():
    upper = guarantees.fixed_batch_upper(rounds=100, noise_multiplier=2.0).curve
    for curve in (upper.reverse, upper.symmetrise(), upper.mixture(upper, weights=[0.5, 0.5])):
        assert curve.certificate is not None
        assert curve.certificate.safe is not None
        assert curve.certificate.leaked is None


class Bare:
    """A user's law: tails, thresholds and an error, nothing else."""

    error = 1e-15
    inner = GaussianLaw(mu=0.7)

    def tails(self, threshold):
        return self.inner.tails(threshold)

    def threshold(self, alpha):
        return self.inner.threshold(alpha)


def test_a_law_with_only_tails_answers_everything():
    curve, truth = TradeOff(Bare()), guarantees.gaussian(mu=0.7)
    assert curve.certificate is None
    np.testing.assert_allclose(curve.reverse.beta(0.1), truth.reverse.beta(0.1), rtol=1e-10)
    assert curve.mu_star() == pytest.approx(0.7, rel=1e-6)
    assert curve.regret(truth) == pytest.approx(0.0, abs=1e-12)
    assert curve.compose(2).epsilon(1e-5) == pytest.approx(truth.compose(2).epsilon(1e-5), rel=1e-3)


def test_composed_masses_sum_to_one_where_large_tilts_would_wrap_around():
    # Before the tilts were limited, the end of a tail was raised above all else: delta(0) was .4225, truth .4121.
    curve = guarantees.subsampled_gaussian(rate=0.3, noise_multiplier=1.0).curve.compose(12)
    assert curve.error < 1e-5
    for law in (curve.certificate.safe, curve.certificate.leaked):
        assert np.sum(law.without) == pytest.approx(1.0, abs=1e-13)
        assert np.sum(law.with_record) == pytest.approx(1.0, abs=1e-13)


def test_a_loss_next_to_zero_does_not_make_the_lattice_endless():
    # ln(1 - rate) is the smallest loss: a lattice through it had 10^12 points
    once = guarantees.subsampled_gaussian(rate=1e-9, noise_multiplier=0.2).curve
    curve = once.compose(10)
    assert len(curve.certificate.safe.losses) <= 2**20
    assert curve.delta(0.0) == pytest.approx(10 * once.delta(0.0), rel=1e-3, abs=curve.error)


@pytest.mark.parametrize("mu", [12.4, 12.5, 12.52, 12.6, 13.0])
def test_losses_of_the_two_sides_may_lie_as_far_apart_as_they_like(mu):
    # two of them are one Gaussian; from about 12.5 on they are followed in two stretches
    truth = guarantees.gaussian(mu=mu * 2**0.5).curve
    curve = TradeOff(composed_law([(as_law(Opaque(GaussianLaw(mu=mu))), 2)], tolerance=1e-3, most_points=2**15))
    assert_between(curve, truth.delta, np.array([0.0, 60.0, 100.0, 150.0, 200.0]))


class Dear(GaussianLaw):
    """Tails that take ever so long."""

    @property
    def work(self):
        return 2**40


@pytest.mark.long
def test_a_dear_law_is_composed_on_a_coarser_lattice_and_says_so():
    exact = TradeOff(composed_law([(GaussianLaw(mu=3.0, rate=0.1), 30)]))
    coarse = TradeOff(composed_law([(Dear(mu=3.0, rate=0.1), 30)]))
    assert 10 * exact.law.error < coarse.law.error < 0.1
    for epsilon in (0.0, 1.0, 5.0):
        truth = exact.delta(epsilon)
        assert truth - exact.law.error <= coarse.delta(epsilon) <= truth + coarse.law.error


@pytest.mark.long
def test_a_loss_of_thousands_needs_no_millions_of_points():
    wide = guarantees.laplace(epsilon=1e4).compose(2)
    assert len(wide.law.losses) < 10**5
    # both losses are at their largest with probability 1/4; that one is and the other within 4e-5 of it adds t^2 / 4
    both, found = 2e4 + np.log1p(-4e-5), wide.epsilon_range(1e-5)
    assert found.at_least <= both + 4e-9
    assert found.at_most >= both - 1e-10
    assert found.known


TELLING = {
    "gaussian": {"mu": 1.0},
    "laplace": {"epsilon": 1.0},
    "randomised_response": {"epsilon": 1.0},
    "poisson_training": {"rate": 0.1, "noise_multiplier": 1.0, "steps": 10},
    "epsilon_delta": {"epsilon": 1.0, "delta": 1e-6},
}


@functools.cache
def telling(name):
    """A claim; an accountant takes a second or two for one of them."""
    return getattr(guarantees, name)(**TELLING[name])


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-3), (1e-18, 1e-8), (1e-9, 1e-8)])
@pytest.mark.parametrize("name", sorted(TELLING))
def test_what_may_reveal_all_keeps_its_delta_beside_another(name, epsilon, delta):
    other = telling(name).curve
    promise = guarantees.epsilon_delta(epsilon=epsilon, delta=delta).curve
    both = compose([(other, 1), (promise, 3)])
    revealed = -np.expm1(3 * np.log1p(-delta))
    for direction in ("with_given_without", "without_given_with"):
        far = other.delta(600.0, direction)
        assert both.delta(600.0, direction) == pytest.approx(far + (1 - far) * revealed, rel=1e-6)
        near = other.delta(1.0, direction)
        assert both.delta(1.0, direction) >= (near + (1 - near) * revealed) * (1 - 1e-6)


@pytest.mark.few(1)
@pytest.mark.parametrize("times", [1, 4])
def test_losses_that_only_ever_reveal_all_compose_without_a_lattice(times):
    once = Opaque(guarantees.epsilon_delta(epsilon=0.0, delta=1e-3).curve.law)
    other = Opaque(guarantees.epsilon_delta(epsilon=0.0, delta=1e-2).curve.law)
    curve = compose([(TradeOff(once), times), (TradeOff(other), 1)])
    assert curve.delta(0.0) == pytest.approx(1 - 0.999**times * 0.99, rel=1e-9)
    assert curve.delta(30.0) == pytest.approx(1 - 0.999**times * 0.99, rel=1e-9)


def test_losses_beside_which_others_tell_nothing_keep_the_error_of_these():
    blurred = Opaque(GaussianLaw(mu=1e-9))
    blurred.error = 1e-7
    curve = compose([(TradeOff(GaussianLaw(mu=1.0)), 1), (TradeOff(blurred), 5)])
    assert curve.error >= 5e-7
    assert compose([(TradeOff(blurred), 5)]).error >= 5e-7


def test_a_lattice_meets_all_of_a_few_atoms_so_that_few_points_do():
    answers = guarantees.randomised_response(epsilon=0.5).compose(7).curve
    curve = compose([(guarantees.gaussian(mu=1.0).curve, 1), (answers, 1)])
    assert len(curve.law.losses) < 20_000
    assert curve.error < 2e-6
    losses, masses = 0.5 * np.arange(-7, 8, 2), binom.pmf(np.arange(8), 7, 1 / (1 + np.exp(-0.5)))
    shifted = guarantees.gaussian(mu=1.0).curve.law.tails(1.0 - losses)
    truth = masses @ (shifted.with_above) - np.e * (masses * np.exp(-losses)) @ shifted.without_above
    assert curve.delta(1.0) == pytest.approx(truth, abs=curve.error)
