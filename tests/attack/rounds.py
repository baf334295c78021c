"""One normalised round: noisy sums over a divisor, the batch size hidden or shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.stats import binom

from attack.lines import scaled, scaled_loss, squares, subsampled
from attack.sampled import Pair

LEAST = 1e-25
"""Batch sizes less likely than this are left out."""
CHUNK = 4_000_000
"""Densities held at once."""


def fixed_divisors(given: dict[str, Any]) -> tuple[float, float]:
    """What the sum is divided by without and with the record, where that is fixed."""
    counts, rate = (given["records"], given["records"] + 1), given["rate"]
    if given["normalise_by"] == "none":
        return 1.0, 1.0
    if given["normalise_by"] == "expected_batch":
        return counts[0] * rate, counts[1] * rate
    return max(1, int(counts[0] * rate)), max(1, int(counts[1] * rate))


def sizes_of(given: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Batch sizes of the other records and their log weights."""
    spread = 12 * np.sqrt(given["records"] * given["rate"] * (1 - given["rate"])) + 40
    middle = given["records"] * given["rate"]
    sizes = np.arange(max(0, int(middle - spread)), min(given["records"], int(middle + spread)) + 1)
    logs = binom.logpmf(sizes, given["records"], given["rate"])
    kept = logs > np.log(LEAST)
    return sizes[kept], logs[kept]


def _sum_law(given: dict[str, Any]) -> Callable[[np.ndarray], np.ndarray]:
    """Log density of the noisy sum of the other records, up to a constant."""
    (sizes, logs), step, sigma = sizes_of(given), abs(given["shared"]), given["noise_multiplier"]
    sign = np.sign(given["shared"])
    if step == 0:
        return lambda y: -(y**2) / (2 * sigma**2)
    # Sizes further away than twelve deviations have no share in the density of a point that was drawn.
    reach = int(min(np.ceil(14 * sigma / step) + 3, len(sizes)))
    offsets = np.arange(-reach, reach + 1)

    def density(y: np.ndarray) -> np.ndarray:
        found = np.empty(len(y))
        for start in range(0, len(y), max(1, CHUNK // len(offsets))):
            part = sign * y[start : start + max(1, CHUNK // len(offsets))]
            middle = np.clip(np.rint(part / step) - sizes[0], 0, len(sizes) - 1).astype(int)
            at = middle[:, None] + offsets
            inside = (at >= 0) & (at < len(sizes))
            at = np.clip(at, 0, len(sizes) - 1)
            terms = logs[at] - (part[:, None] - step * sizes[at]) ** 2 / (2 * sigma**2)
            terms[~inside] = -np.inf
            top = terms.max(axis=1)
            found[start : start + len(part)] = top + np.log(np.exp(terms - top[:, None]).sum(axis=1))
        return found

    if sigma <= 5 * step or len(sizes) < 100:
        return density
    # Steps below a fifth of the noise: the density is as smooth as a normal's, to 1e-9 between these points.
    ends = sign * step * sizes[[0, -1]]
    grid = np.arange(ends.min() - 14 * sigma, ends.max() + 14 * sigma, sigma / 40)
    table = CubicSpline(grid, density(grid))

    def tabled(y: np.ndarray) -> np.ndarray:
        found, outside = table(y), (y < grid[0]) | (y > grid[-1])
        found[outside] = density(y[outside])
        return found

    return tabled


def _fixed(given: dict[str, Any]) -> Pair:
    """A divisor that does not depend on the batch: the sum along the gradients, and the squares across."""
    rate, sigma, n, extra = given["rate"], given["noise_multiplier"], given["dimension"], given["extra"]
    before, after = fixed_divisors(given)
    law, (sizes, logs) = _sum_law(given), sizes_of(given)
    # divisor and shift of: without the record; with it, not taken; taken
    parts = [(before, 0.0), (after, 0.0), (after, extra)]
    without, with_record = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1 - rate, rate])
    if before == after:
        parts, without, with_record = [parts[0], parts[2]], np.array([1.0, 0.0]), np.array([1 - rate, rate])
    elif rate == 1:
        parts, without, with_record = [parts[0], parts[2]], np.array([1.0, 0.0]), np.array([0.0, 1.0])

    def draw(rng: np.random.Generator, part: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        divisor, shift = parts[part]
        weights = np.exp(logs)
        y = given["shared"] * rng.choice(sizes, count, p=weights / weights.sum()) + shift
        ratio = before / divisor
        return ratio * (y + sigma * rng.standard_normal(count)), (ratio * sigma) ** 2 * squares(rng, n - 1, count)

    def densities(at: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        # in units of the first divisor
        u, w = at
        found = []
        for divisor, shift in parts:
            ratio = divisor / before
            found.append(n * np.log(ratio) - ratio**2 * w / (2 * sigma**2) + law(ratio * u - shift))
        return np.stack(found)

    terms = min(28 * sigma / max(abs(given["shared"]), 1e-9) + 6, 150.0, 2 * len(sizes) + 1)
    return Pair(
        without=without,
        with_record=with_record,
        draw=draw,
        logs=densities,
        cost=20 + len(parts) * terms,
    )


def _realised(given: dict[str, Any]) -> Pair:
    """The divisor is the batch size: every size is a normal law of its own width."""
    rate, sigma, n = given["rate"], given["noise_multiplier"], given["dimension"]
    sizes, logs = sizes_of(given)
    middle = max(1.0, float(sizes[len(sizes) // 2]))
    # divisors in units of a middling one, and means of the sums
    parts = [
        (np.maximum(sizes, 1) / middle, given["shared"] * sizes),
        ((sizes + 1) / middle, given["shared"] * sizes + given["extra"]),
    ]
    # The squares across tell the divisor to a few parts in sqrt(n): 15 deviations either way.
    width = 15 / np.sqrt(2 * (n - 1)) if n > 50 else np.inf
    reach = int(min(np.ceil(sizes[-1] * width) + 3, len(sizes)))
    offsets = np.arange(-reach, reach + 1) if 2 * reach + 1 < len(sizes) else None
    terms = len(sizes) if offsets is None else len(offsets)

    def draw(rng: np.random.Generator, part: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        divisors, means = parts[part]
        weights = np.exp(logs)
        at = rng.choice(len(sizes), count, p=weights / weights.sum())
        u = (means[at] + sigma * rng.standard_normal(count)) / divisors[at]
        return u, (sigma / divisors[at]) ** 2 * squares(rng, n - 1, count)

    def density(u: np.ndarray, w: np.ndarray, part: int) -> np.ndarray:
        divisors, means = parts[part]
        if offsets is None:
            at, inside = np.arange(len(sizes))[None], np.ones((1, 1), bool)
        else:
            seen = sigma * np.sqrt((n - 1) / w) * middle - part - sizes[0]
            at = np.clip(np.rint(seen), 0, len(sizes) - 1).astype(int)[:, None] + offsets
            inside = (at >= 0) & (at < len(sizes))
            at = np.clip(at, 0, len(sizes) - 1)
        d = divisors[at]
        square = d**2 * w[:, None] + (d * u[:, None] - means[at]) ** 2
        inner = (logs + n * np.log(divisors))[at] - square / (2 * sigma**2)
        inner = np.where(inside, inner, -np.inf)
        top = inner.max(axis=1)
        return top + np.log(np.exp(inner - top[:, None]).sum(axis=1))

    def densities(at: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        u, w = at
        size = max(1, CHUNK // terms)
        starts = range(0, len(u), size)
        return np.stack(
            [
                np.concatenate([density(u[start : start + size], w[start : start + size], part) for start in starts])
                for part in (0, 1)
            ]
        )

    return Pair(
        without=np.array([1.0, 0.0]),
        with_record=np.array([1 - rate, rate]),
        draw=draw,
        logs=densities,
        cost=20 + 2 * terms,
    )


def hidden(given: dict[str, Any]) -> Pair:
    """The round itself: only the divided noisy sum is seen."""
    return _realised(given) if given["normalise_by"] == "realised_batch" else _fixed(given)


def undivided(given: dict[str, Any]) -> dict[str, Any] | None:
    """The subsampled Gaussian that is claimed where both divisors agree."""
    if given["normalise_by"] == "realised_batch" or len(set(fixed_divisors(given))) == 2:
        return None
    return {"rate": given["rate"], "noise_multiplier": given["noise_multiplier"] / max(abs(given["extra"]), 1e-9)}


def revealed(given: dict[str, Any]) -> Pair:
    """Batch and bit are seen as well: a shifted normal of another width for each; no bit is mistaken for another."""
    plain = undivided(given)
    if plain is not None:
        return subsampled(plain)
    rate, sigma, n = given["rate"], given["noise_multiplier"], given["dimension"]
    sizes, logs = sizes_of(given)
    weights = np.exp(logs) / np.exp(logs).sum()

    def draw(rng: np.random.Generator, part: int, count: int) -> tuple[np.ndarray, int]:
        bit, side = divmod(part, 2)
        size = rng.choice(sizes, count, p=weights)
        if given["normalise_by"] == "realised_batch":
            before, after = np.maximum(size, 1), np.maximum(size + bit, 1)
        else:
            before, after = fixed_divisors(given)
        total, scale = given["shared"] * size, before / after
        shift = ((total + given["extra"] * bit) * scale - total) / sigma
        u, w = rng.standard_normal(count), squares(rng, n - 1, count)
        if side:
            u, w = shift + scale * u, scale**2 * w
        return scaled_loss(u, w, n, scale, shift), bit

    def densities(at: tuple[np.ndarray, int]) -> np.ndarray:
        loss, bit = at
        found = np.full((4, len(loss)), -np.inf)
        found[2 * bit], found[2 * bit + 1] = 0.0, loss
        return found

    return Pair(
        without=np.array([1 - rate, 0.0, rate, 0.0]),
        with_record=np.array([0.0, 1 - rate, 0.0, rate]),
        draw=draw,
        logs=densities,
    )


def upper_bound(given: dict[str, Any]) -> Pair:
    """Noise of two sizes in all coordinates but one; where the batch divides, the second only now and then."""
    records, rate, degrees = given["records"], given["rate"], given["dimension"] - 1
    if given["normalise_by"] == "realised_batch":
        taken = -rate * np.expm1(records * np.log1p(-rate)) if rate < 1 else 1.0
        return scaled(degrees, records / (records + 1), 0.0, taken) if degrees else scaled(1, 1.0, 0.0)
    plain = undivided(given)
    if plain is not None:
        return subsampled(plain)
    before, after = fixed_divisors(given)
    return scaled(degrees, before / after, 0.0) if degrees else scaled(1, 1.0, 0.0)
