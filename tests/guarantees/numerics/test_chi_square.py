from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.special import gammainc, gammaincc

from guarantees.numerics import chi_square
from guarantees.numerics.chi_square import chi_square_tails


@pytest.mark.parametrize("degrees", [30.0, 99.0, 4_000.0, 199_999.0])
def test_the_table_is_the_law(degrees):
    y = np.linspace(-9.0, 9.0, 2 * chi_square.MANY)
    w = degrees * np.exp(y * np.sqrt(2 / degrees))
    below, above = chi_square_tails(w, degrees)
    assert np.abs(below - gammainc(degrees / 2, w / 2)).max() < 1e-13
    assert np.abs(above - gammaincc(degrees / 2, w / 2)).max() < 1e-13
    smaller = np.where(w < degrees, gammainc(degrees / 2, w / 2), gammaincc(degrees / 2, w / 2))
    assert np.abs(np.where(w < degrees, below, above) / smaller - 1).max() < 2e-12


@pytest.mark.parametrize("degrees", [1e6, 1.5e8])
@pytest.mark.parametrize("score", [-8.0, -2.0, 0.3, 6.0])
def test_the_table_at_very_many_degrees_agrees_with_thirty_digits(degrees, score):
    w = degrees + score * np.sqrt(2 * degrees)
    lower, _ = chi_square_tails(np.full(chi_square.MANY, w), degrees)
    with mpmath.workdps(30):
        a, x = mpmath.mpf(degrees) / 2, mpmath.mpf(w) / 2
        # the density integrated outwards from w, in deviations
        side = -1 if score < 0 else 1

        def density(z):
            at = x + side * z * mpmath.sqrt(a)
            return mpmath.exp((a - 1) * mpmath.log(at) - at - mpmath.loggamma(a)) * mpmath.sqrt(a)

        tail = float(mpmath.quad(density, [0, 1, 2, 4, 8, 14]))
    assert lower[0] == pytest.approx(tail if score < 0 else 1 - tail, abs=2e-13, rel=1e-11)


def test_few_degrees_and_the_ends_are_exact():
    w = np.array([-1.0, 0.0, 1e-8, 3.0, 200.0, 1e5])
    for degrees in (2.0, 7.0, 50.0):
        below, above = chi_square_tails(w, degrees)
        assert below[:2].tolist() == [0, 0]
        assert np.allclose(below + above, 1, atol=1e-15)
        many = chi_square_tails(np.repeat(w, 1000), degrees)
        assert np.allclose(many[0][::1000], below, atol=1e-14)
