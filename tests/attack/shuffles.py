"""One epoch of noisy sums of which one is shifted: losses drawn coordinate by coordinate, or by counts in cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from attack.sampled import Pair

CHUNK = 2_000_000
"""Normals held at once."""
SINGLE = 50
"""Coordinates drawn one by one at the top, on average; the others are counted in cells."""

Sums = Callable[[np.random.Generator, int, float], np.ndarray]
"""Sums of e^(t x) over the coordinates for each power t, one coordinate shifted: shape (powers, draws)."""


def _one_by_one(powers: np.ndarray, rounds: int) -> Sums:
    def sums(rng: np.random.Generator, count: int, shift: float) -> np.ndarray:
        found, size = np.empty((len(powers), count)), max(1, CHUNK // rounds)
        for start in range(0, count, size):
            x = rng.standard_normal((min(size, count - start), rounds))
            x[:, 0] += shift
            for power, row in zip(powers, found, strict=True):
                row[start : start + len(x)] = np.exp(power * x - power**2 / 2).sum(axis=1)
        return found

    return sums


def _by_cells(powers: np.ndarray, rounds: int) -> Sums:
    """All coordinates but the shifted one and the few largest are counted in narrow cells.

    Sums within the cells are normal with their exact means and covariances given the counts.
    """
    top = -float(ndtri(SINGLE / rounds))
    width = min(0.25, 0.4 / powers.max())
    edges = np.concatenate([[-np.inf], np.arange(-7.0, top, width), [top]])
    shares = np.append(np.diff(ndtr(edges)), ndtr(-top))

    def moment(power: float) -> np.ndarray:
        """``E e^(t x)`` within each cell."""
        return np.exp(power**2 / 2) * np.diff(ndtr(edges - power)) / shares[:-1]

    means = np.stack([moment(t) for t in powers])
    spread = np.stack([[moment(s + t) - moment(s) * moment(t) for s in powers] for t in powers])
    factor = np.exp(-(powers**2) / 2)

    def sums(rng: np.random.Generator, count: int, shift: float) -> np.ndarray:
        counts = rng.multinomial(rounds - 1, shares / shares.sum(), size=count)
        inside, large = counts[:, :-1].astype(float), counts[:, -1]
        found = means @ inside.T
        covariance = np.einsum("stk,nk->nst", np.maximum(spread, 0.0), inside)
        values, vectors = np.linalg.eigh(covariance)
        noise = rng.standard_normal((count, len(powers))) * np.sqrt(np.maximum(values, 0.0))
        found += np.einsum("nst,nt->sn", vectors, noise)
        x = -ndtri(rng.random(int(large.sum())) * ndtr(-top))
        owner = np.repeat(np.arange(count), large)
        own = shift + rng.standard_normal(count)
        for power, row in zip(powers, found, strict=True):
            row += np.bincount(owner, np.exp(power * x), count) + np.exp(power * own)
        return np.maximum(found, 1e-300) * factor[:, None]

    return sums


def _pair(given: dict[str, Any], shifts: np.ndarray, loss: Callable[[np.ndarray], np.ndarray]) -> Pair:
    """Losses of whole trainings; ``loss`` takes the sums of e^(shift x - shift^2/2) of one epoch."""
    rounds, epochs, powers = given["rounds"], given.get("epochs", 1), shifts[shifts > 0]
    cells = rounds > 1000
    sums = (_by_cells if cells else _one_by_one)(powers, rounds)

    def draw(rng: np.random.Generator, part: int, count: int) -> np.ndarray:
        return sum(loss(sums(rng, count, shifts[part])) for _ in range(epochs))  # pyright: ignore[reportReturnType]

    return Pair(
        without=np.array([1.0, 0.0]),
        with_record=np.array([0.0, 1.0]),
        draw=draw,
        logs=lambda losses: np.stack([np.zeros_like(losses), losses]),
        # a draw by cells costs as much as a few hundred normals
        cost=epochs * (300 * max(1.0, powers.max()) if cells else rounds),
    )


def isolated(given: dict[str, Any]) -> Pair:
    """The shifted coordinate against none."""
    mu, rounds = 1 / given["noise_multiplier"], given["rounds"]
    return _pair(given, np.array([0.0, mu]), lambda sums: np.log(sums[0] / rounds))


def fixed_batch(given: dict[str, Any]) -> Pair:
    """A coordinate shifted twice as far."""
    mu = 1 / given["noise_multiplier"]
    return _pair(given, np.array([mu, 2 * mu]), lambda sums: np.log(sums[1] / sums[0]))
