"""Pairs of one or two numbers, and pairs with their condition shown, from the definition of each mechanism."""

from __future__ import annotations

from typing import Any

import numpy as np

from attack.quadrature import Side
from attack.sampled import Pair


def subsampled_sides(given: dict[str, Any]) -> tuple[Side, Side]:
    """Weights and means of unit normals, without and with the record."""
    rate, mu = given["rate"], 1 / given["noise_multiplier"]
    kept = np.array([1 - rate, rate]) > 0
    weights, means = np.array([1 - rate, rate])[kept], np.array([0.0, mu])[kept]
    if given.get("relation") == "substitution":
        return (weights, -means), (weights, means)
    return (np.ones(1), np.zeros(1)), (weights, means)


def as_gaussian(given: dict[str, Any]) -> dict[str, Any]:
    """The Gaussian mechanism that keeps a Renyi promise with equality: the promise must allow it."""
    square = 2 * given["rho"] if "rho" in given else 2 * given["epsilons"][0] / given["orders"][0]
    return {"rate": 1.0, "noise_multiplier": 1 / np.sqrt(square)}


def subsampled(given: dict[str, Any]) -> Pair:
    """Mixtures of unit normals on the line; the parts are the normals."""
    sides = subsampled_sides(given)
    means = np.unique(np.concatenate([side[1] for side in sides]))
    shares = [np.array([weights[at == mean].sum() for mean in means]) for weights, at in sides]
    return Pair(
        without=shares[0],
        with_record=shares[1],
        draw=lambda rng, part, count: means[part] + rng.standard_normal(count),
        # without x^2/2, which all parts share
        logs=lambda x: means[:, None] * x - means[:, None] ** 2 / 2,
    )


def laplace(given: dict[str, Any]) -> Pair:
    """Two double exponentials."""
    means = np.array([0.0, given["epsilon"]])
    return Pair(
        without=np.array([1.0, 0.0]),
        with_record=np.array([0.0, 1.0]),
        draw=lambda rng, part, count: means[part] + rng.laplace(size=count),
        logs=lambda x: -np.abs(x - means[:, None]),
    )


def scaled(dimension: int, scale: float, shift: float, rate: float = 1.0) -> Pair:
    """N(0, I) and N(shift e, scale^2 I), the second with a probability: one number along e, squares of the rest."""

    def draw(rng: np.random.Generator, part: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        u, w = rng.standard_normal(count), squares(rng, dimension - 1, count)
        return (shift + scale * u, scale**2 * w) if part else (u, w)

    return Pair(
        without=np.array([1.0, 0.0]),
        with_record=np.array([1 - rate, rate]),
        draw=draw,
        logs=lambda at: np.stack([np.zeros(len(at[0])), scaled_loss(at[0], at[1], dimension, scale, shift)]),
    )


def squares(rng: np.random.Generator, degrees: int, count: int) -> np.ndarray:
    """Sums of squares, 0 where nothing is summed."""
    return rng.chisquare(degrees, count) if degrees else np.zeros(count)


def scaled_loss(u: np.ndarray, w: np.ndarray, dimension: int, scale: Any, shift: Any) -> np.ndarray:
    """Log-likelihood ratio of N(shift e, scale^2 I) to N(0, I)."""
    return -dimension * np.log(scale) - ((u - shift) ** 2 + w) / (2 * scale**2) + (u**2 + w) / 2
