"""Sums by contour integrals."""

from __future__ import annotations

import numpy as np
import pytest

import guarantees


@pytest.mark.long
def test_a_loss_that_is_mostly_zero_has_the_threshold_zero_exactly():
    # levels that only the atom at 0 can spend were given thresholds of 1e-8, times the level left: 4.6e-6 of beta
    once = guarantees.normalised_guarantee(
        normalise_by="realised_batch", records=3200, rate=6.1466e-6, noise_multiplier=0.138195, dimension=922
    )
    curve = once.compose(2).curve
    alpha = np.array([1e-5, 0.01, 0.5, 0.99])
    spent = 1 - alpha - curve.beta(alpha)
    assert np.allclose(curve.llr_threshold(alpha), 0.0, atol=0)
    assert np.ptp(spent) < 1e-13
    assert np.allclose(spent, 1 - alpha - curve.reverse.beta(alpha), atol=1e-12)
