"""Gaps of long mixtures over batch sizes that divide, read from a table, against the sums themselves in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import distinguishers
import mechanisms
from distinguishers.exact.likelihood import round_model
from distinguishers.exact.mixture import AT_ONCE
from distinguishers.exact.tabulated_sizes import DEGREES, SizeGaps

SETTINGS = {
    "wide": {"noise_multiplier": 10.0, "dimension": 100},
    "strong pull": {"noise_multiplier": 0.5, "dimension": 100},
    "a hill for every batch": {"noise_multiplier": 1.0, "dimension": 26_010},
    "zero_out": {"noise_multiplier": 1.0, "dimension": 5000, "relation": "zero_out"},
    "substitution": {"noise_multiplier": 1.0, "dimension": 5000, "relation": "substitution"},
    "equal gradients": {"noise_multiplier": 1.0, "dimension": 1000, "shared": 1.0},
}


def made(*, noise_multiplier, records=59_999, rate=0.005, **pair):
    given = mechanisms.worst_case_pair(records=records, clip=1.0, **pair)
    step = mechanisms.one_round(
        normalise_by="realised_batch", rate=rate, clip=1.0, noise_multiplier=noise_multiplier
    ).collapsed()
    return step, given, distinguishers.likelihood_ratio(step, given)


def outputs(model, rng, count=2000):
    """Offsets and excesses of random batches, in the frame's units; the record is in every other one."""
    free = model.frame.free
    place = rng.choice(
        len(model.batches), count, p=np.exp(model.batches.log_weights - logsumexp(model.batches.log_weights))
    )
    own = [model.components[index] for index in (model.ends.with_out, model.ends.with_in)]
    means, precision = (
        np.where(np.arange(count) % 2, *(getattr(each, name)[place].ravel() for each in own))
        for name in ("means", "precision")
    )
    along = means + rng.standard_normal(count) / np.sqrt(precision)
    return along.astype(np.float32), (rng.chisquare(free, count) / free / precision - 1).astype(np.float32)


def exact(model, rate, along, excess):
    """The likelihood ratio by sums over all batches."""
    found = [
        logsumexp(
            model.batches.log_weights
            + (
                own.constant
                - own.slope * excess[:, None]
                - 0.5 * own.precision * (along[:, None] - own.means[:, 0]) ** 2
            ),
            axis=1,
        )
        for own in model.components
    ]

    def gap(one, other):
        if one is None:
            return 0.0
        return np.log1p(rate * np.expm1(found[one] - found[other]))

    ends = model.ends
    between = found[ends.with_out] - found[ends.without_out]
    return between + gap(ends.with_in, ends.with_out) - gap(ends.without_in, ends.without_out)


@pytest.mark.few(1)
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_scores_are_those_of_the_sums(setting):
    step, pair, ratio = made(**setting)
    assert isinstance(ratio.mixture.table, SizeGaps)
    model = round_model(step, pair)
    along, excess = outputs(model, np.random.default_rng(0))
    table = ratio.mixture.table
    read = jax.jit(jax.vmap(lambda z, x: ratio.mixture._read(table.at(z, x))))
    found = np.asarray(read(jnp.asarray(along), jnp.asarray(excess)), float)
    expected = exact(model, step.rate, along.astype(float), excess.astype(float))
    assert np.std(expected) > 1e-4
    # of trials as dense at a threshold as normals can be, four in 1e5 would change their side
    assert np.abs(found - expected).max() < 1e-4 * np.std(expected)


def test_scores_go_on_along_straight_lines_beyond_the_table():
    table = made(**SETTINGS["strong pull"])[2].mixture.table
    read = jax.jit(jax.vmap(table.at))
    far = np.asarray(read(jnp.full(3, table.origin), jnp.expm1(jnp.array([20.0, 30.0, 40.0]))), float)[:, 0]
    extremes = read(jnp.array([table.origin, table.origin, 1e20]), jnp.array([-1.0, 1e35, 0.0]))
    assert np.isfinite(far).all()
    assert np.isfinite(extremes).all()
    assert np.isclose(far[2] - far[1], far[1] - far[0], rtol=1e-3)
    # of outputs of one size, three that lie farther along the line than polynomials reach
    size, apart = 3.0, np.array([2.0, 3.0, 4.0]) * table.reach
    offset = apart * np.sqrt(1 + size)
    aside = np.asarray(read(jnp.asarray(table.origin + offset), jnp.asarray(size - offset**2 / table.free)), float)[
        :, 0
    ]
    assert abs(aside[0]) > 1
    assert np.isclose(aside[2] - aside[1], aside[1] - aside[0], rtol=1e-3)


@pytest.mark.parametrize(
    "setting",
    [
        {"noise_multiplier": 10.0, "dimension": 10},
        {"noise_multiplier": 0.3, "dimension": 1000, "records": 1000, "rate": 0.03},
    ],
    ids=["few coordinates tell nothing of the noise", "an empty batch lies elsewhere"],
)
def test_what_is_rough_is_summed(setting):
    ratio = made(**setting)[2]
    assert ratio.mixture.table is None
    assert len(ratio.mixture.log_weights) > AT_ONCE


def test_no_more_terms_are_kept_than_count():
    table = made(noise_multiplier=10.0, dimension=26_010)[2].mixture.table
    assert table.cubics.shape[1:] == (4, DEGREES[0] + 1, 1)
