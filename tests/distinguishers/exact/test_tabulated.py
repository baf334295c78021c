"""Gaps of long mixtures read from a table, against the sums themselves in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from distinguishers.exact.tabulated import CELLS, Law, _log_density, cubics, tabulated


def law(spacing, shift, precision=1.0, constant=0.0, slope=0.0, terms=300):
    places = np.arange(terms) - terms / 2
    weights = -0.5 * (places / 20) ** 2
    return Law(weights - logsumexp(weights), spacing * places + shift, precision, constant, slope)


def exact(above, below, along, excess):
    def log_density(own):
        off = along[:, None] - own.means
        line = logsumexp(own.log_weights - 0.5 * own.precision * off**2, axis=1)
        return line + own.constant - own.slope * excess

    return log_density(above) - log_density(below)


# means a tenth, one and two deviations of the noise apart: the last mixture has a hill for every batch
PAIRS = [
    (law(spacing, 0.3, precision=1.001, constant=0.7, slope=5.0), law(spacing, 0.0, constant=0.5, slope=2.0))
    for spacing in (0.1, 1.0, 2.0)
]


@pytest.mark.parametrize("pair", PAIRS, ids=["close", "one apart", "two apart"])
def test_gaps_are_those_of_the_sums(pair):
    other = (pair[1], pair[0])
    rng = np.random.default_rng(0)
    ends = pair[0].means.min(), pair[0].means.max()
    along = np.concatenate([rng.uniform(*ends, 500), np.arange(-50, 50) / CELLS, ends]).astype(np.float32)
    excess = rng.normal(0, 0.01, len(along)).astype(np.float32)
    gaps = tabulated([pair, other])
    found = np.asarray(jax.jit(jax.vmap(gaps.at))(jnp.asarray(along), jnp.asarray(excess)), float)
    expected = exact(*pair, along.astype(float), excess.astype(float))
    # float32 has the number along the line to 6e-8 of its size, and a gap changes with it by a slope below 1
    allowed = 2e-6 + 2e-7 * np.abs(expected) + 1.2e-7 * np.abs(along)
    assert (np.abs(found[:, 0] - expected) <= allowed).all()
    assert (np.abs(found[:, 1] + expected) <= allowed).all()


def test_gaps_go_on_along_straight_lines_beyond_the_table():
    gaps = tabulated([PAIRS[0]])
    for end, out in ((gaps.first / CELLS, -1.0), ((gaps.last + 1) / CELLS, 1.0)):
        at = np.float32(end) + out * np.array([0.0, 10.0, 20.0, 1e6], np.float32)
        found = np.asarray(jax.jit(jax.vmap(gaps.at))(jnp.asarray(at), jnp.zeros(4)), float)[:, 0]
        first, second, third, last = found
        assert np.isclose(third - second, second - first, rtol=1e-4)
        assert np.isclose(last, first + (second - first) * 1e5, rtol=1e-3)


def test_no_table_is_made_where_it_would_be_too_large():
    assert tabulated([(law(10.0, 0.0), law(10.0, 1.0))]) is None


@pytest.mark.parametrize(("apart", "most"), [(3.0, 4.1e-7), (6.0, 6.5e-6), (10.0, 5e-5)])
def test_between_far_terms_a_cubic_errs_by_what_is_said(apart, most):
    """A law of two terms over one of a single term, at a finer grid than the table's, in float64."""
    nodes = np.arange(-10 * CELLS, int((apart + 10) * CELLS) + 1) / CELLS
    for weight in (0.5, 0.1, 1e-3):
        two = Law(np.log([1 - weight, weight]), np.array([0.0, apart]), 1.0, 0.0, 0.0)
        value, slope = _log_density(two, nodes)
        inside = np.linspace(0, 1, 9)[1:-1]
        found = cubics(value, slope / CELLS) @ inside ** np.arange(4)[:, None]
        truth, _ = _log_density(two, (nodes[:-1, None] + inside / CELLS).ravel())
        error = np.abs(found.ravel() - truth)
        assert error.max() <= most
        assert np.sum(error * np.exp(truth)) / len(inside) / CELLS / np.sqrt(2 * np.pi) < 4e-8
