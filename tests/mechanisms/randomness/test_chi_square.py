import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from checks import assert_has_law, assert_rate_is
from scipy import special, stats

from mechanisms.randomness.chi_square import (
    EXPANDED,
    RANGE,
    cornish_fisher,
    cube_root_excess,
    mean_square_law,
    quantile_polynomial,
)
from mechanisms.randomness.noise import LARGEST_NORMAL, polynomial

SEED = 99
DEGREES = (1, 2, 32, 33, 99, 1_485_216)


@functools.partial(jax.jit, static_argnums=(1, 2))
def draw(key, size, degrees):
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(size))
    return jax.vmap(mean_square_law(degrees))(keys)


def law(degrees):
    """Distribution function of X / degrees."""
    return lambda x: stats.chi2.cdf(degrees * x, degrees)


@pytest.mark.parametrize("degrees", [33, 50, 99, 1000, 26_009, EXPANDED - 1])
def test_the_polynomial_is_the_quantile_function(degrees):
    z = np.linspace(-LARGEST_NORMAL, LARGEST_NORMAL, 2001)
    exact, deviation = cube_root_excess(z, degrees), np.sqrt(2 / (9 * degrees))
    double = np.polyval(quantile_polynomial(degrees), z / RANGE)
    single = polynomial(quantile_polynomial(degrees), jnp.asarray(z / RANGE, jnp.float32))
    assert np.abs(double - exact).max() / deviation < 1e-9
    assert np.abs(single - exact).max() / deviation < 2e-6


def tail_beyond(degrees, half, side):
    """Mass of the chi-square beyond 2 * half, integrated: scipy's lower tail is wrong here by up to 40%."""
    with mpmath.workdps(30):
        shape = mpmath.mpf(degrees) / 2
        deviation, constant = mpmath.sqrt(shape), mpmath.loggamma(shape)

        def density(step):
            x = mpmath.mpf(half) + side * step * deviation
            return mpmath.exp((shape - 1) * mpmath.log(x) - x - constant) * deviation

        return float(mpmath.quad(density, [0, 1, 3, 6, 12]))


@pytest.mark.few(2)
@pytest.mark.parametrize("degrees", [EXPANDED, 1_485_216, 300_000_000])
def test_the_expansion_puts_the_right_mass_in_both_tails(degrees):
    for z in (-7.0, -5.0, -2.0, 0.3, 3.0, 7.0):
        half = degrees / 2 * (1 + np.polyval(cornish_fisher(degrees), z))
        assert tail_beyond(degrees, half, np.sign(z)) == pytest.approx(special.ndtr(-abs(z)), rel=1e-7)


@pytest.mark.few(1)
@pytest.mark.parametrize("degrees", [d if d != 32 else pytest.param(d, marks=pytest.mark.long) for d in DEGREES])
def test_draws_have_the_chi_square_law_also_in_the_tails(degrees):
    sample = np.asarray(draw(jax.random.key(SEED), 1_000_000, degrees), np.float64)
    assert_has_law(sample[:100_000], law(degrees))
    with pytest.raises(AssertionError, match="Kolmogorov"):
        assert_has_law(sample[:100_000], law(int(degrees * 1.1) + 1))
    for tail in (1e-5, 1e-4, 1e-3, 0.1):
        high = stats.chi2.isf(tail, degrees) / degrees
        assert_rate_is(int(np.sum(sample > high)), len(sample), tail)
        low = stats.chi2.ppf(tail, degrees) / degrees
        assert_rate_is(int(np.sum(sample < low)), len(sample), tail)


def test_a_scale_is_applied_with_one_rounding():
    key, scale = jax.random.key(SEED), 1 / 89_999.7**2
    for degrees in (7, 99, 1_485_216):
        scaled = [mean_square_law(degrees, scale=own) for own in (1.0, scale, float(degrees))]
        plain, small, whole = np.asarray(
            jax.jit(lambda k, laws=scaled: jnp.stack([own(k) for own in laws]))(key), float
        )
        assert small / scale == pytest.approx(plain, rel=3e-7)
        assert whole / degrees == pytest.approx(plain, rel=3e-7)
