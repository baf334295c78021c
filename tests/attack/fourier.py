"""Sums of many independent numbers from their characteristic function: shuffles of many rounds, many releases."""

from __future__ import annotations

from typing import Any

import numpy as np

from attack.quadrature import Delta, Table

MOST_WAVES = 6_000
NODES = 2_000
FAR = 6.5
"""Standard deviations of one coordinate: what lies beyond has mass below 1e-10."""
LATTICE = 2**21
ROUGH = 1e-3
"""Variance that binning may add, in units of the variance, and how far two numbers of nodes may differ."""


def density_of_sum(values: np.ndarray, weights: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray] | None:
    """A grid and the density of the sum of ``count`` numbers with these values; None where too many waves are due."""
    mean = float(weights @ values)
    centred = values - mean
    deviation = float(np.sqrt(count * (weights @ centred**2)))
    width = 2 * (9 * deviation + float(np.abs(centred).max()))
    step, found, waves = 2 * np.pi / width, [], 0
    while waves < MOST_WAVES:
        more = max(64, waves // 2)
        found.append((np.exp(1j * step * np.arange(waves, waves + more)[:, None] * centred) @ weights) ** count)
        waves += more
        if np.abs(found[-1]).min() < 1e-15:
            break
    else:
        return None
    transform = np.concatenate(found)
    points = 2 ** int(np.ceil(np.log2(max(2**14, 64 * width / deviation, 4 * waves))))
    grid = (np.arange(points) - points // 2) * (width / points)
    phased = transform * np.exp(-1j * step * np.arange(waves) * grid[0])
    density = (2 * np.fft.fft(phased, points).real - transform[0].real) / width
    return grid + count * mean, density


def _coordinate(largest: float, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """One standard normal as points and weights, as far as a shift by ``largest`` takes it."""
    x, width = np.linspace(-FAR - 1, largest + FAR, nodes, retstep=True)
    weights = np.exp(-(x**2) / 2) * width / np.sqrt(2 * np.pi)
    return x, weights / weights.sum()


def shuffle(given: dict[str, Any], shifts: tuple[float, float]) -> Delta | None:
    """One epoch: ``delta = E (sum of g(x_i))^+ / rounds`` over normals, g the difference of two density ratios."""
    rounds, mu = given["rounds"], 1 / given["noise_multiplier"]

    def delta(epsilon: float, direction: str, nodes: int = NODES) -> float:
        x, weights = _coordinate(max(shifts) * mu, nodes)
        first, second = (np.exp(shift * mu * x - (shift * mu) ** 2 / 2) for shift in shifts)
        high, low = (second, first) if direction == "with_given_without" else (first, second)
        found = density_of_sum(high - np.exp(min(epsilon, 700.0)) * low, weights, rounds)
        if found is None:
            return np.nan
        grid, density = found
        return float(np.sum(np.maximum(grid, 0.0) * density) * (grid[1] - grid[0]) / rounds)

    coarse = delta(0.0, "with_given_without")
    if np.isnan(coarse) or abs(coarse - delta(0.0, "with_given_without", NODES * 3 // 2)) > ROUGH * coarse:
        return None
    return delta


def epochs(given: dict[str, Any]) -> Table | None:
    """One epoch of the 0/1 pair as a table: the sum of e^(mu x - mu^2/2) has rounds times its ratio."""
    rounds, mu = given["rounds"], 1 / given["noise_multiplier"]
    if shuffle(given, (0.0, 1.0)) is None:
        return None
    x, weights = _coordinate(mu, NODES)
    found = density_of_sum(np.exp(mu * x - mu**2 / 2), weights, rounds)
    if found is None:
        return None
    grid, density = found
    kept = (grid > 0) & (density * (grid[1] - grid[0]) > 1e-17)
    masses = density[kept] * (grid[1] - grid[0])
    with np.errstate(divide="ignore"):
        return Table(without=np.log(masses), with_record=np.log(masses * grid[kept] / rounds))


def repeated(table: Table | None, times: int) -> Delta | None:
    """Losses of independent releases, added on a lattice; None where it would be too coarse."""
    if table is None or times == 1:
        return None if table is None else table.delta
    sides = {
        "with_given_without": (table.with_record, table.without),
        "without_given_with": (table.without, table.with_record),
    }
    sums = {
        way: [_sum_on_lattice(*side, times, points) for points in (LATTICE, LATTICE // 2)]
        for way, side in sides.items()
    }
    if any(found is None for pair in sums.values() for found in pair):
        return None

    def delta(epsilon: float, direction: str) -> float:
        """NaN where a lattice of half the points says something else."""
        fine, coarse = (
            told + float(np.sum(-masses * np.expm1(np.minimum(epsilon - loss, 0.0))))
            for loss, masses, told in sums[direction]  # pyright: ignore[reportGeneralTypeIssues]
        )
        return fine if abs(fine - coarse) <= ROUGH * fine else np.nan

    return delta


def _sum_on_lattice(
    favoured: np.ndarray, other: np.ndarray, times: int, points: int
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Summed losses of the favoured side and their masses, and the mass of what the other side never does."""
    masses = np.exp(favoured).ravel()
    told = float(masses[other.ravel() == -np.inf].sum())
    kept = (masses > 1e-22) & (other.ravel() > -np.inf)
    loss, masses = (favoured.ravel()[kept] - other.ravel()[kept]), masses[kept] / masses[kept].sum()
    mean = float(masses @ loss)
    centred = loss - mean
    variance = float(masses @ centred**2)
    largest = float(np.abs(centred[masses > 1e-16]).max())
    step = 2 * (12 * np.sqrt(times * variance) + largest * min(times, 3)) / points
    if step == 0:
        return None
    place = np.clip(centred / step, -points // 2 + 1, points // 2 - 2)
    low = np.floor(place).astype(int)
    # Each mass is shared between two points so that its mean is kept.
    part = place - low
    if float(masses @ (part * (1 - part))) * step**2 > ROUGH * variance:
        return None
    lattice = np.bincount(low % points, masses * (1 - part), points)
    lattice += np.bincount((low + 1) % points, masses * part, points)
    sums = np.maximum(np.fft.irfft(np.fft.rfft(lattice) ** times, points), 0.0)
    at = np.fft.fftfreq(points, 1 / points) * step + times * mean
    never = -float(np.expm1(times * np.log1p(-told))) if told < 1 else 1.0
    return at, (1 - never) * sums, never


def spread_of(delta: Delta, direction: str) -> float:
    """An epsilon at which delta has fallen to a few hundredths; 0 where there is none."""
    top = delta(0.0, direction)
    if not top > 0:
        return 0.0
    high = 2 * top
    while delta(high, direction) > 0.2 * top:
        high *= 1.6
        if high > 1e4:
            return 0.0
    while delta(high, direction) < 0.01 * top:
        high /= 1.3
    return high
