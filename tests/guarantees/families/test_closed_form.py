from __future__ import annotations

import subprocess
import sys

import mpmath as mp
import numpy as np
import pytest
from curves import scales
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy.special import ndtr, ndtri
from scipy.stats import norm

import guarantees

LEVELS = np.array([1e-9, 1e-3, 0.1, 0.5, 0.9, 0.999])


def test_closed_forms_are_the_textbook_ones():
    mu, q, e, d = 1.3, 0.2, 0.8, 0.05
    gauss = ndtr(-ndtri(LEVELS) - mu)
    assert guarantees.gaussian(mu=mu).beta(LEVELS) == pytest.approx(gauss, rel=1e-13)
    sampled = guarantees.subsampled_gaussian(rate=q, noise_multiplier=1 / mu)
    assert sampled.beta(LEVELS) == pytest.approx(q * gauss + (1 - q) * (1 - LEVELS), rel=1e-13)
    lines = [0 * LEVELS, 1 - d - np.exp(e) * LEVELS, np.exp(-e) * (1 - d - LEVELS)]
    assert guarantees.epsilon_delta(epsilon=e, delta=d).beta(LEVELS) == pytest.approx(np.max(lines, axis=0))


def test_laplace_curve_is_the_textbook_one():
    e = 0.8
    a = LEVELS
    middle = np.exp(-e) / (4 * a)
    expected = np.where(a < np.exp(-e) / 2, 1 - np.exp(e) * a, np.where(a <= 0.5, middle, np.exp(-e) * (1 - a)))
    assert guarantees.laplace(epsilon=e).beta(a) == pytest.approx(expected, rel=1e-12)


@pytest.mark.few(2)
@pytest.mark.parametrize(("rate", "sigma"), [(0.3, 0.7), (0.01, 1.0), (0.9, 2.0)])
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0])
def test_substitution_profile_is_the_integral_of_the_excess(rate, sigma, epsilon):
    def excess(x):
        at = [norm.pdf(x, shift / sigma) for shift in (-1, 0, 1)]
        one, other = ((1 - rate) * at[1] + rate * side for side in (at[2], at[0]))
        return max(0.0, one - np.exp(epsilon) * other)

    truth, _ = integrate.quad(excess, -30, 30, points=[-1 / sigma, 0, 1 / sigma, 3, 6], epsabs=1e-14, limit=900)
    claim = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=sigma, relation="substitution")
    for direction in ("with_given_without", "without_given_with"):
        assert claim.delta(epsilon, direction) == pytest.approx(truth, abs=1e-9)


@given(scales, st.floats(0.001, 0.999))
def test_substitution_leaks_more_than_addition_and_less_than_twice_the_shift(mu, rate):
    eps = np.linspace(0, 4, 17)

    def delta(relation):
        claim = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=1 / mu, relation=relation)
        return claim.delta(eps)

    assert np.all(delta("substitution") >= delta("add_remove") - 1e-12)
    assert np.all(delta("substitution") <= guarantees.gaussian(mu=2 * mu).delta(eps) + 1e-12)


def test_renyi_curve_meets_its_constraints_with_equality_where_one_binds():
    order, limit = 2.0, 1.0
    claim = guarantees.renyi(orders=[order], epsilons=[limit])
    for alpha in (1e-4, 0.1, 0.4):
        beta = claim.beta(alpha)
        forward = (1 - beta) ** order * alpha ** (1 - order) + beta**order * (1 - alpha) ** (1 - order)
        back = (1 - alpha) ** order * beta ** (1 - order) + alpha**order * (1 - beta) ** (1 - order)
        largest = np.log(max(forward, back)) / (order - 1)
        assert largest == pytest.approx(limit, abs=2e-3)
        # Safe: the envelope of tangents lies below the curve, by no more than the stated error.
        assert largest >= limit - 1e-12


def test_renyi_below_order_one_is_a_promise_too():
    half = guarantees.renyi(orders=[0.5], epsilons=[0.1])
    alpha = np.array([0.05, 0.3])
    beta = half.beta(alpha)
    divergence = -2 * np.log(np.sqrt((1 - beta) * alpha) + np.sqrt(beta * (1 - alpha)))
    assert divergence == pytest.approx(0.1, abs=1e-3)


def test_more_orders_promise_more():
    alone = [guarantees.renyi(orders=[t], epsilons=[0.5 * t]) for t in (1.5, 3.0, 8.0)]
    together = guarantees.renyi(orders=[1.5, 3.0, 8.0], epsilons=[0.75, 1.5, 4.0])
    best = np.max([claim.beta(LEVELS) for claim in alone], axis=0)
    # The largest of the single betas, not the smallest.
    assert together.beta(LEVELS) == pytest.approx(best, abs=3e-4)


def test_zcdp_promises_less_than_the_gaussian_that_meets_it():
    zcdp, truth = guarantees.zcdp(rho=0.5), guarantees.gaussian(mu=1.0)
    deltas = [1e-9, 1e-5, 1e-2]
    assert np.all(zcdp.epsilon(deltas) >= truth.epsilon(deltas))
    assert np.all(zcdp.beta(LEVELS) <= truth.beta(LEVELS))


def test_claims_carry_what_they_speak_about_through_composition():
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=2.0)
    both = claim.compose(3, unit="training")
    assert (both.relation, both.observation, both.source) == (claim.relation, claim.observation, claim.source)
    assert both.unit == "training"
    assert both.describe().endswith(".compose(3)")
    assert claim.compose_with(guarantees.gaussian(mu=1.0)).relation == "add_remove"
    other = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=2.0, relation="substitution")
    with pytest.raises(ValueError, match="different neighbours"):
        claim.compose_with(other)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: guarantees.gaussian(mu=0.0), "mu must be > 0"),
        (lambda: guarantees.gaussian(mu=1.0, relation="neighbours"), "relation must be one of"),
        (lambda: guarantees.subsampled_gaussian(rate=0.0, noise_multiplier=1.0), "rate must be in"),
        (lambda: guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=-1.0), "noise_multiplier must be > 0"),
        (lambda: guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=1.0, relation="any"), "relation must"),
        (lambda: guarantees.epsilon_delta(epsilon=-1.0, delta=0.0), "epsilon must be >= 0"),
        (lambda: guarantees.renyi(orders=[1.0], epsilons=[1.0]), "orders must be"),
        (lambda: guarantees.zcdp(rho=-1.0), "rho must be > 0"),
    ],
)
def test_bad_parameters_are_refused_with_their_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "claim",
    [
        lambda: guarantees.gaussian(mu=1e-300),
        lambda: guarantees.gaussian(mu=1e-200),
        lambda: guarantees.subsampled_gaussian(rate=1e-300, noise_multiplier=1.0),
        lambda: guarantees.zcdp(rho=1e-300),
        lambda: guarantees.laplace(epsilon=1e-300),
    ],
)
def test_next_to_nothing_leaks_next_to_nothing_and_composes(claim):
    found = claim()
    for law in (found, found.compose(3)):
        assert all(0 <= law.delta(epsilon) < 1e-13 for epsilon in (0.0, 1e-9, 1.0, 700.0))
        assert 0 <= law.epsilon(1e-5) < 1e-13


def test_importing_the_package_loads_nothing_heavy():
    code = "import guarantees, sys; print([m for m in ('numpy', 'scipy', 'dp_accounting', 'jax') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_public_name_is_there_and_has_a_docstring():
    for name in guarantees.__all__:
        assert getattr(guarantees, name).__doc__, name


def test_the_error_of_a_gaussian_curve_grows_with_mu():
    mu = 1e6
    claim = guarantees.gaussian(mu=mu)
    with mp.workdps(40):
        loss = mp.mpf(mu**2 / 2 + 0.3 * mu)
        true = mp.ncdf(mu / mp.mpf(2) - loss / mu) - mp.exp(loss) * mp.ncdf(-mu / mp.mpf(2) - loss / mu)
    assert abs(claim.delta(float(loss)) - float(true)) <= claim.error <= 1e-9


def of_sums(mu, c, *, forward):
    """The limit of delta over a rate that goes to zero, at epsilon c times the rate."""
    if not forward and c >= 1:
        return 0.0
    x = np.log1p(c if forward else -c) / mu + mu / 2
    return ndtr(mu - x) - (1 + c) * ndtr(-x) if forward else (1 - c) * ndtr(x) - ndtr(x - mu)


def of_substitutes(mu, c):
    x = np.arcsinh(c * np.exp(mu**2 / 2) / 2) / mu
    return ndtr(mu - x) - ndtr(-mu - x) - c * ndtr(-x)


@pytest.mark.parametrize("tiny", [1e-12, 1e-16, 1e-20, 1e-100, 1e-300])
def test_a_tiny_leak_has_all_its_digits(tiny):
    """Each delta is proportional to its tiny parameter; a difference of tails would be rounding below 1e-16."""
    for c in (0.0, 0.3, 2.0):
        for mu in (0.5, 2.0):
            given = {"rate": tiny, "noise_multiplier": 1 / mu}
            claims = {1: guarantees.subsampled_gaussian(**given), 3: guarantees.subsampled_gaussian(**given, group=3)}
            for group, claim in claims.items():
                for forward, way in ((True, "with_given_without"), (False, "without_given_with")):
                    expected = group * of_sums(mu, c / group, forward=forward)
                    assert claim.delta(c * tiny, way) / tiny == pytest.approx(expected, rel=1e-9)
            other = guarantees.subsampled_gaussian(**given, relation="substitution")
            assert other.delta(c * tiny) / tiny == pytest.approx(of_substitutes(mu, c), rel=1e-9)
        gauss = norm.pdf(c) - c * ndtr(-c)
        assert guarantees.gaussian(mu=tiny).delta(c * tiny) / tiny == pytest.approx(gauss, rel=1e-9)
        for claim in (guarantees.laplace(epsilon=tiny), guarantees.randomised_response(epsilon=tiny)):
            assert claim.delta(c * tiny) / tiny == pytest.approx(max(1 - c, 0) / 2, rel=1e-9)


@pytest.mark.few(1)
@pytest.mark.parametrize("tiny", [1e-12, 1e-20])
def test_the_epsilon_of_a_tiny_delta_is_found_on_its_own_scale(tiny):
    for claim in (
        guarantees.subsampled_gaussian(rate=tiny, noise_multiplier=1.0),
        guarantees.subsampled_gaussian(rate=tiny, noise_multiplier=1.0, relation="substitution"),
        guarantees.gaussian(mu=tiny),
        guarantees.laplace(epsilon=tiny),
    ):
        for epsilon in (0.1 * tiny, 0.7 * tiny):
            found = claim.epsilon_range(claim.delta(epsilon))
            assert found.known
            assert found.epsilon == pytest.approx(epsilon, rel=1e-7)
        whole = claim.epsilon_range(claim.delta(0.0))
        assert (whole.epsilon, whole.known) == (0.0, True)
