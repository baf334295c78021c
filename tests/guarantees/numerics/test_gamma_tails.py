from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.special import gammainc, gammaincc

from guarantees.numerics.chi_square import gamma_tails


def reference(shape, x):
    """Both tails by integration in 30 digits."""
    with mpmath.workdps(30):
        a, end, width = mpmath.mpf(shape), mpmath.mpf(x), mpmath.sqrt(shape)

        def density(t):
            return mpmath.exp((a - 1) * mpmath.log(t / a) - (t - a))

        scale = mpmath.exp(a * mpmath.log(a) - a - mpmath.loggamma(a)) / a
        steps = [0, 0.5, 2, 5, 10, 20]
        lower = mpmath.quad(density, [end - k * width for k in reversed(steps)])
        upper = mpmath.quad(density, [end + k * width for k in steps])
        return float(lower * scale), float(upper * scale)


@pytest.mark.few(8)
@pytest.mark.parametrize("shape", [2e5, 7.4e5, 1e7, 1.5e8])
@pytest.mark.parametrize("score", [-7.0, -5.0, -1.0, 0.0, 3.0, 6.0])
def test_both_tails_agree_with_thirty_digits(shape, score):
    x = shape + score * np.sqrt(shape)
    lower, upper = reference(shape, x)
    found = gamma_tails(shape, np.array([x]))
    assert found[0][0] == pytest.approx(lower, rel=2e-9 if score > -6 else 2e-8)
    assert found[1][0] == pytest.approx(upper, rel=2e-9)


def test_small_shapes_and_the_far_ends_are_scipys():
    x = np.array([0.0, 0.5, 3.0, 40.0])
    assert gamma_tails(2.5, x)[0].tolist() == gammainc(2.5, x).tolist()
    assert gamma_tails(2.5, x)[1].tolist() == gammaincc(2.5, x).tolist()
    assert [side.tolist() for side in gamma_tails(1e6, np.array([0.0, 5e5, 2e6]))] == [[0, 0, 1], [1, 1, 0]]


def test_scipy_is_wrong_where_we_replace_it():
    shape = 1.5e8
    x = shape - 5 * np.sqrt(shape)
    assert abs(gammainc(shape, x) / reference(shape, x)[0] - 1) > 0.1
