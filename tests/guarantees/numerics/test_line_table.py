"""Masses of a mixture on the line."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from guarantees.numerics.line_table import NormalMixture


def test_masses_of_intervals_are_those_of_all_components():
    rng = np.random.default_rng(0)
    weights, means = rng.dirichlet(np.ones(300)), np.sort(rng.normal(0, 300, 300))
    mixture = NormalMixture(log_weights=np.log(weights), means=means, deviations=np.full(300, 0.7))
    edges = np.concatenate([[-np.inf], np.sort(rng.normal(0, 400, 500)), [np.inf]])
    found = mixture.mass_between(edges[:-1, None], edges[1:, None])[:, 0]
    expected = np.diff(ndtr((edges[:, None] - means) / 0.7) @ weights)
    assert np.allclose(found, expected, rtol=0, atol=1e-15)
    assert abs(np.sum(found) - 1) < 1e-14
