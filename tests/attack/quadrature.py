"""Truth by brute force where sampling is too coarse: densities of one or two numbers, summed on a fine grid."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, log_ndtr, logsumexp

Side = tuple[np.ndarray, np.ndarray]
"""Weights and means of a mixture of unit normals; means of shape (parts,) or (parts, 2)."""
Delta = Callable[[float, str], float]

REACH = 12.0
"""Standard deviations beyond the outermost means: what lies there has mass below 1e-31."""
POINTS = {1: 400_000, 2: 2_500}
WIDEST = {1: 0.02, 2: 0.05}
"""Largest step of a grid, in standard deviations; wider pairs are left unjudged.

The kink of the integrand costs the step squared: below 1e-4 of delta.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Log masses of the same outcomes without and with the record."""

    without: np.ndarray
    with_record: np.ndarray

    def delta(self, epsilon: float, direction: str) -> float:
        """``sum (p - e^eps r)^+``."""
        high, low = self.with_record, self.without
        if direction == "without_given_with":
            high, low = low, high
        with np.errstate(invalid="ignore"):
            gap = np.where(high > -np.inf, epsilon + low - high, 0.0)
        return float(np.sum(-np.exp(high) * np.expm1(np.minimum(gap, 0.0))))


def integrated(without: Side, with_record: Side) -> Table | None:
    """A pair of mixtures on a grid of its own; None where the grid would be too coarse."""
    means = np.concatenate([side[1] for side in (without, with_record)])
    means = means.reshape(len(means), -1)
    dimension = means.shape[1]
    low, high = means.min(axis=0) - REACH, means.max(axis=0) + REACH
    axes = [np.linspace(a, b, POINTS[dimension]) for a, b in zip(low, high, strict=True)]
    steps = [axis[1] - axis[0] for axis in axes]
    if max(steps) > WIDEST[dimension]:
        return None
    cell = np.log(np.prod(steps)) - dimension / 2 * np.log(2 * np.pi)
    squares = [[(axis - mean) ** 2 / 2 for axis, mean in zip(axes, point, strict=True)] for point in means]

    def log_mass(side: Side, offset: int) -> np.ndarray:
        parts = []
        for part, weight in enumerate(side[0]):
            own = squares[offset + part]
            inside = -own[0] if dimension == 1 else -(own[0][:, None] + own[1][None, :])
            parts.append(np.log(weight) + inside)
        return logsumexp(np.stack(parts), axis=0) + cell

    return Table(without=log_mass(without, 0), with_record=log_mass(with_record, len(without[0])))


def places(rounds: int, shift: float) -> Side:
    """One of one or two unit normals is shifted, each with the same chance."""
    if rounds == 1:
        return np.ones(1), np.array([shift])
    return np.full(2, 0.5), np.array([[shift, 0.0], [0.0, shift]])


def shuffled(given: dict[str, Any], shifts: tuple[float, float]) -> Table | None:
    """One epoch of at most two rounds, the record's shift without it and with it in units of 1/noise."""
    if given["rounds"] > 2:
        return None
    mu = 1 / given["noise_multiplier"]
    without = places(given["rounds"], shifts[0] * mu)
    return integrated(without, places(given["rounds"], shifts[1] * mu))


def largest(given: dict[str, Any], shifts: tuple[float, float]) -> Table | None:
    """The largest of normals of which one is shifted."""
    rounds, mu = given["rounds"], 1 / given["noise_multiplier"]
    x, step = np.linspace(-REACH, max(shifts) * mu + REACH, POINTS[1], retstep=True)
    if step > WIDEST[1]:
        return None

    def log_mass(shift: float) -> np.ndarray:
        """Either the shifted one is the largest, or one of the others."""
        found = -((x - shift) ** 2) / 2 + (rounds - 1) * log_ndtr(x)
        if rounds > 1:
            others = np.log(rounds - 1) - x**2 / 2 + (rounds - 2) * log_ndtr(x) + log_ndtr(x - shift)
            found = np.logaddexp(found, others)
        return found + np.log(step / np.sqrt(2 * np.pi))

    return Table(without=log_mass(shifts[0] * mu), with_record=log_mass(shifts[1] * mu))


def largest_above(given: dict[str, Any], shifts: tuple[float, float]) -> Delta | None:
    """The best of the events 'the largest exceeds a multiple of the step'."""
    rounds, sigma, step = given["rounds"], given["noise_multiplier"], given["cut_step"]
    cuts = np.arange(np.floor(-REACH * sigma / step), np.ceil((max(shifts) + REACH * sigma) / step) + 1) * step
    if len(cuts) > 4_000_000:
        return None
    others = (rounds - 1) * log_ndtr(cuts / sigma)
    logs = [log_ndtr((cuts - shift) / sigma) + others for shift in shifts]
    below, above = [np.exp(log) for log in logs], [-np.expm1(log) for log in logs]

    def delta(epsilon: float, direction: str) -> float:
        if direction == "with_given_without":
            return float(np.max(above[1] - np.exp(min(epsilon, 700.0)) * above[0], initial=0.0))
        return float(np.max(below[0] - np.exp(min(epsilon, 700.0)) * below[1], initial=0.0))

    return delta


def answers(given: dict[str, Any]) -> Table:
    """Randomised response that gives all away with probability delta: its four answers."""
    told = given.get("delta", 0.0)
    kept = np.array([expit(given["epsilon"]), expit(-given["epsilon"])]) * (1 - told)
    with np.errstate(divide="ignore"):
        return Table(
            without=np.log([*kept, told, 0.0]),
            with_record=np.log([*kept[::-1], 0.0, told]),
        )


def laplaces(given: dict[str, Any]) -> Table | None:
    """Two double exponentials, on a grid that holds both kinks."""
    steps = POINTS[1] // 3
    width = max(given["epsilon"], 40.0) / steps
    if given["epsilon"] > 40:
        return None
    inside = np.linspace(0.0, given["epsilon"], steps + 1)
    middles, widths = (inside[1:] + inside[:-1]) / 2, np.full(steps, given["epsilon"] / steps)
    beyond = (np.arange(steps) + 0.5) * width
    x = np.concatenate([-beyond[::-1], middles, given["epsilon"] + beyond])
    logs = np.log(np.concatenate([np.full(steps, width), widths, np.full(steps, width)]) / 2)
    return Table(without=logs - np.abs(x), with_record=logs - np.abs(x - given["epsilon"]))
