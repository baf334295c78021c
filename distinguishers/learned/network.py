"""A small network that distinguishes two samples of features, trained with a key and stopped by held-out rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

WIDTH = 64
"""Features are padded to a multiple of this, so that few shapes of scores are compiled."""
HIDDEN = 32
ROWS = 32
"""Rows in a block: 32 rows of 128 features times 33 stay below what BLAS divides among threads."""
STEPS = 300
RATE = 1e-2
DECAY = 1e-2
MEMORY = 0.9, 0.999
"""AdamW's decay rates of the averages of gradients and of their squares."""
TINY = 1e-8
HELD_OUT = 0.3
"""Share of the rows that decides when to stop."""
BEND = 3.0
"""Deviations beyond which a standardised feature grows only as a logarithm."""


class Weights(NamedTuple):
    """A hidden layer and, in its last column, a linear score beside it; then what the layer adds to the score.

    The last row of the first and the last number of the second belong to a feature that is always 1.
    """

    first: np.ndarray
    second: np.ndarray


class Scaling(NamedTuple):
    """Makes features comparable."""

    location: np.ndarray
    scale: np.ndarray

    def __call__(self, features: Any, numpy: Any = jnp) -> Any:
        """Standardise features, bend their ends and pad them to the width of the network, with JAX or NumPy."""
        location, scale = (numpy.asarray(value, numpy.float32) for value in self)
        bent = BEND * numpy.arcsinh((features - location) / scale / BEND)
        return numpy.pad(bent, [(0, 0)] * (bent.ndim - 1) + [(0, -bent.shape[-1] % WIDTH)])


def find_scaling(features: np.ndarray) -> Scaling:
    """Scaling by median and deviation without the outermost rows; keeps constant features small."""
    low, middle, high = np.quantile(features.astype(np.float64), [0.01, 0.5, 0.99], axis=0)
    inner = np.clip(features, low, high).std(axis=0, dtype=np.float64)
    outer = features.std(axis=0, dtype=np.float64)
    scale = np.where(inner > 0, inner, np.where(outer > 0, outer, 1.0))
    return Scaling(location=middle, scale=np.maximum(scale, 1e-6 * np.maximum(np.abs(middle), 1e-24)))


def _fitted(start: Weights, x: np.ndarray, y: np.ndarray, weights: np.ndarray, held: np.ndarray) -> Weights:
    """The weights with the least loss on held-out rows, among those after each step of AdamW, on a falling rate.

    Rows come in blocks, (blocks, rows, ...): products so small wake none of BLAS's threads, which would wait for each
    other. By NumPy, since a program for so few numbers takes longer to compile than to run.
    """
    size = start.first.size
    now = best = np.concatenate([start.first.ravel(), start.second])
    mean, square, least = np.zeros_like(now), np.zeros_like(now), np.inf
    across = np.ascontiguousarray(x.swapaxes(1, 2))
    for step in range(STEPS):
        second = now[size:]
        layer = x @ now[:size].reshape(start.first.shape)
        bent = np.tanh(layer[..., :-1])
        score = layer[..., -1] + (bent * second[:-1]).sum(axis=-1) + second[-1]
        small = np.exp(-np.abs(score))
        outside = float((held * (np.maximum(score, 0) - score * y + np.log1p(small))).sum())
        if outside < least:
            best, least = now, outside
        slope = (weights * (np.where(score >= 0, np.float32(1), small) / (1 + small) - y))[..., None]
        inside = np.concatenate([(1 - bent * bent) * slope * second[:-1], slope], axis=-1)
        found = (across @ inside).sum(axis=0), (bent * slope).sum(axis=(0, 1)), slope.sum(keepdims=True)
        gradient = np.concatenate([part.ravel() for part in found])
        mean += (1 - MEMORY[0]) * (gradient - mean)
        square += (1 - MEMORY[1]) * (gradient * gradient - square)
        scale = np.sqrt(square / (1 - MEMORY[1] ** (step + 1))) + TINY
        rate = RATE * (1 + math.cos(math.pi * step / STEPS)) / 2
        now = now - rate * (mean / (1 - MEMORY[0] ** (step + 1)) / scale + DECAY * now)
    return Weights(best[:size].reshape(start.first.shape), best[size:])


def train(key: jax.Array, without: np.ndarray, with_record: np.ndarray) -> tuple[Scaling, Weights]:
    """Scaling and weights of a network whose score is larger with the record; rows are trials."""
    rows = np.concatenate([without, with_record])
    scaling = find_scaling(rows)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    # a power of two is drawn, and the first of it used
    held = rng.random(1 << (len(rows) - 1).bit_length())[: len(rows)] < HELD_OUT
    y = (np.arange(len(rows)) >= len(without)).astype(np.float32)
    x = scaling(rows.astype(np.float32), np)
    start = _start(rng, x.shape[1])
    x = np.append(x, np.ones((len(x), 1), np.float32), axis=1)
    return scaling, _fitted(start, *map(_in_blocks, (x, y, _even(~held, y), _even(held, y))))


def _in_blocks(rows: np.ndarray) -> np.ndarray:
    """Split rows into blocks of ROWS; the last is filled with zeros, which get no weight."""
    missing = [(0, -len(rows) % ROWS)] + [(0, 0)] * (rows.ndim - 1)
    return np.pad(rows, missing).reshape(-1, ROWS, *rows.shape[1:])


def _start(rng: np.random.Generator, width: int) -> Weights:
    """Initial weights: only those of the hidden layer are not zero, so that the score starts at zero."""
    # what the other parts would draw before them is skipped: a key keeps its network
    rng.standard_normal(1 + 2 * HIDDEN)
    first = np.zeros((width + 1, HIDDEN + 1), np.float32)
    first[:-1, :-1] = 1 / np.sqrt(width) * rng.standard_normal((width, HIDDEN))
    return Weights(first, np.zeros(HIDDEN + 1, np.float32))


def _even(chosen: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Weights of the chosen rows that sum to one half for each side."""
    weights = np.zeros(len(y), np.float32)
    for label in (0.0, 1.0):
        own = chosen & (y == label)
        weights[own] = 0.5 / max(int(own.sum()), 1)
    return weights


def apply(scaling: Scaling, weights: Weights, features: jax.Array) -> jax.Array:
    """The score of one row of features."""
    layer = scaling(features) @ weights.first[:-1] + weights.first[-1]
    return layer[-1] + (jnp.tanh(layer[:-1]) @ weights.second[:-1] + weights.second[-1])
