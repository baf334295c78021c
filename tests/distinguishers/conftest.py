"""Outputs of one round drawn by NumPy: independent of the simulators, and nothing to compile."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mechanisms.contract import Collapsed


def draw(step, table, trials: int, seed: int):
    """Outputs (trials, dimension) of ``step`` on a gradient table, or their collapsed statistics."""
    rng = np.random.default_rng(seed)
    lengths = np.linalg.norm(table.rows, axis=1, keepdims=True)
    rows = table.rows / np.maximum(1, lengths / step.clip)
    taken = rng.binomial(table.counts, step.rate, size=(trials, len(table.counts)))
    fixed = step.divisor(table.records)
    divisor = np.maximum(taken.sum(axis=1), 1.0) if fixed is None else np.full(trials, fixed)
    deviation = step.noise_multiplier * step.clip
    along = (taken @ rows + deviation * rng.normal(size=(trials, table.rank))) / divisor[:, None]
    free = table.dimension - table.rank
    if step.kind == "collapsed":
        rest = rng.chisquare(free, trials) / free * (deviation / divisor) ** 2
        return Collapsed(jnp.asarray(along, jnp.float32), jnp.asarray(rest, jnp.float32))
    assert table.basis is None
    outside = deviation * rng.normal(size=(trials, free)) / divisor[:, None]
    return jnp.asarray(np.hstack([along, outside]), jnp.float32)


@pytest.fixture
def draw_outputs():
    """Outputs of independent trials on one side: ``draw_outputs(step, table, trials, seed)``."""
    return draw


@pytest.fixture
def draw_scores():
    """Scores of independent trials on both sides: ``draw_scores(distinguisher, step, pair, trials)``."""

    def scores(distinguisher, step, pair, trials: int, seed: int = 11):
        keys = jax.random.split(jax.random.key(seed), 2 * trials)
        sides = [draw(step, table, trials, seed + i) for i, table in enumerate((pair.without, pair.with_record))]
        outputs = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), *sides)
        found = np.asarray(jax.jit(jax.vmap(distinguisher))(keys, outputs))
        return found[:trials], found[trials:]

    return scores
