"""Truth that owes nothing to the code under attack: losses sampled from the definition of each mechanism.

A delta is judged where its sampled relative error is below 1%, and by densities summed on a grid where the pair has one
or two numbers; the rest is counted as unjudged and left to the rules that every curve keeps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp
from scipy.stats import binom

from attack.quadrature import Delta, Side, integrated, shuffled

Losses = tuple[np.ndarray, np.ndarray]
"""Log-likelihood ratios drawn without and with the record."""
Sampler = Callable[[np.random.Generator, dict[str, Any], int], Losses | None]

DRAWS = 100_000
MOST_TERMS = 4e7
"""Densities evaluated at most for one judgement."""
MOST_SUMMED = 2e8
"""The same where losses are summed over several outputs."""
SMALLEST = 1e-11
"""Deltas below this are left unjudged: rounding of the sums over a grid."""
SIGMAS = 6.0
"""Standard errors that a right value may be away: once in 5e8."""


def _gaussian_mixture(
    rng: np.random.Generator, sides: tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]], draws: int
) -> Losses:
    """Unit-variance mixtures on the line: (weights, means) without and with the record."""

    def log_density(x: np.ndarray, side: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        weights, means = side
        kept = weights > 0
        return logsumexp(np.log(weights[kept]) - (x[:, None] - means[kept]) ** 2 / 2, axis=1)

    samples = [rng.choice(means, draws, p=weights) + rng.standard_normal(draws) for weights, means in sides]
    first, second = (log_density(x, sides[1]) - log_density(x, sides[0]) for x in samples)
    return first, second


def _subsampled_sides(given: dict[str, Any]) -> tuple[Side, Side]:
    rate, mu = given["rate"], 1 / given["noise_multiplier"]
    kept = np.array([1 - rate, rate]) > 0
    weights, means = np.array([1 - rate, rate])[kept], np.array([0.0, mu])[kept]
    if given.get("relation") == "substitution":
        return (weights, -means), (weights, means)
    return (np.ones(1), np.zeros(1)), (weights, means)


def _subsampled(rng: np.random.Generator, given: dict[str, Any], draws: int) -> Losses:
    return _gaussian_mixture(rng, _subsampled_sides(given), draws)


def _variance_pair(rng: np.random.Generator, given: dict[str, Any], draws: int) -> Losses:
    n, s, shift = given["dimension"], given["scale"], given["shift"]

    def loss(u: np.ndarray, w: np.ndarray) -> np.ndarray:
        return -n * np.log(s) - ((u - shift) ** 2 + w) / (2 * s**2) + (u**2 + w) / 2

    u, w = rng.standard_normal(draws), rng.chisquare(n - 1, draws) if n > 1 else np.zeros(draws)
    v, x = rng.standard_normal(draws), rng.chisquare(n - 1, draws) if n > 1 else np.zeros(draws)
    return loss(u, w), loss(shift + s * v, s**2 * x)


def _divisor(normalise_by: str, records: int, rate: float, sizes: np.ndarray) -> np.ndarray:
    fixed = {"none": 1.0, "expected_batch": records * rate, "floored_expected_batch": max(1, int(records * rate))}
    return np.maximum(sizes, 1.0) if normalise_by == "realised_batch" else np.full(len(sizes), fixed[normalise_by])


def _round(rng: np.random.Generator, given: dict[str, Any], draws: int) -> Losses | None:
    """One normalised round: (u, w) drawn, and every batch size's density summed."""
    records, rate, sigma, n = given["records"], given["rate"], given["noise_multiplier"], given["dimension"]
    draws = int(min(draws, MOST_TERMS / (3 * (records + 1))))
    if draws < 10_000:
        return None
    sizes = np.arange(records + 1)
    weight = binom.pmf(sizes, records, rate)
    sums = given["shared"] * sizes
    bit = [(1 - rate) * weight, rate * weight]
    parts = {
        "without": (weight, sums, _divisor(given["normalise_by"], records, rate, sizes)),
        "with": (
            np.concatenate(bit),
            np.concatenate([sums, sums + given["extra"]]),
            _divisor(given["normalise_by"], records + 1, rate, np.concatenate([sizes, sizes + 1])),
        ),
    }

    def log_density(u: np.ndarray, w: np.ndarray, side: str) -> np.ndarray:
        p, means, divisors = parts[side]
        kept = p > 0
        p, means, divisors = p[kept], means[kept], divisors[kept]
        inside = n * np.log(divisors) - (divisors**2 * w[:, None] + (divisors * u[:, None] - means) ** 2) / sigma**2 / 2
        return logsumexp(inside + np.log(p), axis=1)

    found = []
    for p, means, divisors in parts.values():
        at = rng.choice(len(p), draws, p=p / p.sum())
        u = (means[at] + sigma * rng.standard_normal(draws)) / divisors[at]
        w = sigma**2 * (rng.chisquare(n - 1, draws) if n > 1 else np.zeros(draws)) / divisors[at] ** 2
        found.append(log_density(u, w, "with") - log_density(u, w, "without"))
    return found[0], found[1]


def _one_epoch(
    rng: np.random.Generator, rounds: int, draws: int, shifts: tuple[float, float], loss: Callable
) -> Losses:
    """Standard normals of which one is shifted, by the first number without and by the second with the record."""
    found = []
    for shift in shifts:
        x = rng.standard_normal((draws, rounds))
        x[:, 0] += shift
        found.append(loss(x))
    return found[0], found[1]


def _isolated(rng: np.random.Generator, given: dict[str, Any], draws: int) -> Losses | None:
    rounds, mu, epochs = given["rounds"], 1 / given["noise_multiplier"], given.get("epochs", 1)
    draws = int(min(draws, MOST_TERMS / (2 * rounds * epochs)))
    if draws < 10_000:
        return None

    def loss(x: np.ndarray) -> np.ndarray:
        return logsumexp(mu * x - mu**2 / 2, axis=1) - np.log(rounds)

    totals = [np.zeros(draws), np.zeros(draws)]
    for _ in range(epochs):
        one = _one_epoch(rng, rounds, draws, (0.0, mu), loss)
        totals = [total + part for total, part in zip(totals, one, strict=True)]
    return totals[0], totals[1]


def _fixed_batch(rng: np.random.Generator, given: dict[str, Any], draws: int) -> Losses | None:
    rounds, mu = given["rounds"], 1 / given["noise_multiplier"]
    draws = int(min(draws, MOST_TERMS / (4 * rounds)))
    if draws < 10_000:
        return None

    def loss(x: np.ndarray) -> np.ndarray:
        return logsumexp(2 * mu * x - 2 * mu**2, axis=1) - logsumexp(mu * x - mu**2 / 2, axis=1)

    return _one_epoch(rng, rounds, draws, (mu, 2 * mu), loss)


def _training(rng: np.random.Generator, given: dict[str, Any], draws: int) -> Losses | None:
    draws = int(min(draws, MOST_TERMS / (10 * given["steps"])))
    if draws < 10_000:
        return None
    totals = [np.zeros(draws), np.zeros(draws)]
    for _ in range(given["steps"]):
        totals = [total + part for total, part in zip(totals, _subsampled(rng, given, draws), strict=True)]
    return totals[0], totals[1]


def _laplace(rng: np.random.Generator, given: dict[str, Any], draws: int) -> Losses:
    epsilon, (x, y) = given["epsilon"], rng.laplace(size=(2, draws))
    return tuple(np.abs(at) - np.abs(at - epsilon) for at in (x, y + epsilon))  # pyright: ignore[reportReturnType]


def _randomised_response(rng: np.random.Generator, given: dict[str, Any], draws: int) -> Losses:
    epsilon = given["epsilon"]
    kept = rng.random((2, draws)) > expit(-epsilon)
    return np.where(kept[0], -epsilon, epsilon), np.where(kept[1], epsilon, -epsilon)


def _epsilon_delta(rng: np.random.Generator, given: dict[str, Any], draws: int) -> Losses:
    """Randomised response that gives all away with probability delta."""
    told = rng.random((2, draws)) < given["delta"]
    first, second = _randomised_response(rng, given, draws)
    return np.where(told[0], -np.inf, first), np.where(told[1], np.inf, second)


def _upper_bound(rng: np.random.Generator, given: dict[str, Any], draws: int) -> Losses | None:
    """Noise of two sizes in all coordinates but one; where the batch divides, the second only now and then."""
    records, rate, degrees = given["records"], given["rate"], given["dimension"] - 1
    before, after = (
        _divisor(given["normalise_by"], count, rate, np.array([count]))[0] for count in (records, records + 1)
    )
    if degrees == 0 or before == after:
        return None
    s, mixed = before / after, 1.0
    if given["normalise_by"] == "realised_batch":
        mixed = rate * (1 - (1 - rate) ** records)
    squares = rng.chisquare(degrees, (2, draws)) * np.where(rng.random((2, draws)) < [[0.0], [mixed]], s**2, 1.0)
    return tuple(  # pyright: ignore[reportReturnType]
        np.logaddexp(np.log1p(-mixed) if mixed < 1 else -np.inf, np.log(mixed) + loss)
        for loss in -degrees * np.log(s) + squares / 2 * (1 - 1 / s**2)
    )


def _as_gaussian(given: dict[str, Any]) -> dict[str, Any]:
    """The Gaussian mechanism that keeps a Renyi promise with equality: the promise must allow it."""
    square = 2 * given["rho"] if "rho" in given else 2 * given["epsilons"][0] / given["orders"][0]
    return {"rate": 1.0, "noise_multiplier": 1 / np.sqrt(square)}


def _repeated(sampler: Sampler, rng: np.random.Generator, given: dict[str, Any]) -> Losses | None:
    """Losses of one output, or the sums of ``times`` independent ones where that is not too much work."""
    times = given.get("times", 1)
    if times == 1:
        return sampler(rng, given, DRAWS)
    terms = max(given.get("records", 1), given.get("rounds", 1) * given.get("epochs", 1))
    draws = int(min(DRAWS, MOST_SUMMED / (times * terms)))
    if draws < 10_000:
        return None
    first = sampler(rng, given, draws)
    if first is None:
        return None
    totals = list(first)
    for _ in range(times - 1):
        # a sampler may have drawn fewer, and draws as many again
        one = sampler(rng, given, draws)
        assert one is not None
        totals = [total + part for total, part in zip(totals, one, strict=True)]
    return totals[0], totals[1]


SAMPLERS: dict[str, Sampler] = {
    "laplace": _laplace,
    "randomised_response": _randomised_response,
    "epsilon_delta": _epsilon_delta,
    "zcdp": lambda rng, given, draws: _subsampled(rng, _as_gaussian(given), draws),
    "renyi": lambda rng, given, draws: _subsampled(rng, _as_gaussian(given), draws),
    "round_upper_bound": _upper_bound,
    "projection_bound": lambda rng, given, draws: _round(
        rng,
        given | {"dimension": given["dimension"] - given["rank"], "shared": 0.0, "extra": 0.0, "noise_multiplier": 1.0},
        draws,
    ),
    "gaussian": lambda rng, given, draws: _subsampled(rng, {"rate": 1.0, "noise_multiplier": 1 / given["mu"]}, draws),
    "deterministic_batches": lambda rng, given, draws: _subsampled(rng, given | {"rate": 1.0}, draws),
    "subsampled_gaussian": _subsampled,
    "variance_pair": _variance_pair,
    "normalised_round": _round,
    "normalised_guarantee": lambda rng, given, draws: _round(rng, given | {"shared": -1.0, "extra": 1.0}, draws),
    "revealed_round": _round,
    "isolated_shuffle": _isolated,
    "balls_and_bins": _isolated,
    "max_coordinate": _isolated,
    "fixed_batch_shuffle": _fixed_batch,
    "fixed_batch_event": _fixed_batch,
    "fixed_batch_upper": _fixed_batch,
    "poisson_training": _training,
}
GRIDS: dict[str, Callable[[dict[str, Any]], Delta | None]] = {
    "gaussian": lambda given: integrated(*_subsampled_sides({"rate": 1.0, "noise_multiplier": 1 / given["mu"]})),
    "deterministic_batches": lambda given: integrated(*_subsampled_sides(given | {"rate": 1.0})),
    "subsampled_gaussian": lambda given: integrated(*_subsampled_sides(given)),
    "zcdp": lambda given: integrated(*_subsampled_sides(_as_gaussian(given))),
    "renyi": lambda given: integrated(*_subsampled_sides(_as_gaussian(given))),
    "isolated_shuffle": lambda given: shuffled(given, (0.0, 1.0)),
    "balls_and_bins": lambda given: shuffled(given, (0.0, 1.0)),
    "max_coordinate": lambda given: shuffled(given, (0.0, 1.0)),
    "fixed_batch_shuffle": lambda given: shuffled(given, (1.0, 2.0)),
    "fixed_batch_event": lambda given: shuffled(given, (1.0, 2.0)),
    "fixed_batch_upper": lambda given: shuffled(given, (1.0, 2.0)),
}
BELOW = {"normalised_guarantee", "revealed_round", "fixed_batch_upper", "poisson_training", "zcdp", "renyi"}
"""Their curves lie on or below the sampled truth: delta may only be larger."""
ABOVE = {"max_coordinate", "fixed_batch_event"}
"""Their curves lie on or above it: delta may only be smaller."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth:
    """One delta, sampled."""

    mean: float
    standard_error: float

    @property
    def sharp(self) -> bool:
        """Relative error below 1%."""
        return self.standard_error < 0.01 * self.mean


def sampled_delta(losses: Losses, epsilon: float, direction: str) -> Truth:
    """``E (1 - e^(eps - L))^+`` over the side that is favoured."""
    favoured = losses[1] if direction == "with_given_without" else -losses[0]
    values = -np.expm1(np.minimum(epsilon - favoured, 0.0))
    return Truth(mean=float(values.mean()), standard_error=float(values.std() / np.sqrt(len(values))))


def disagreements(name: str, given: dict[str, Any], claim: Any, rng: np.random.Generator) -> tuple[int, list[str]]:
    """How many deltas could be judged, and what was wrong with them."""
    sampler = SAMPLERS.get(name)
    losses = None if sampler is None else _repeated(sampler, rng, given)
    if losses is None:
        return 0, []
    judged, wrong = 0, []
    finite = np.abs(losses[1][np.isfinite(losses[1])])
    scale = max(float(np.quantile(finite, 0.9)) if len(finite) else 1.0, 1e-12)
    for direction in ("with_given_without", "without_given_with"):
        for epsilon in (0.0, 0.3 * scale, scale):
            truth = sampled_delta(losses, epsilon, direction)
            if not truth.sharp:
                continue
            judged += 1
            # What happens less than 20 times in all draws may never have been seen: once in 5e8.
            room = SIGMAS * truth.standard_error + 20 / len(losses[0]) + claim.error
            said = float(claim.delta(epsilon, direction))
            high, low = said > truth.mean + room, said < truth.mean - room
            if (high and name not in BELOW) or (low and name not in ABOVE):
                wrong.append(f"delta({epsilon:.4g}, {direction}) is {said:.6g}, sampled {truth.mean:.6g}")
    more, differing = _summed(name, given, claim, scale)
    return judged + more, wrong + differing


def _summed(name: str, given: dict[str, Any], claim: Any, scale: float) -> tuple[int, list[str]]:
    """The same by sums over a grid, into the tails that sampling does not see."""
    exact = None if "times" in given else GRIDS.get(name, lambda _: None)(given)
    if exact is None:
        return 0, []
    judged, wrong = 0, []
    for direction in ("with_given_without", "without_given_with"):
        for epsilon in (0.5 * scale, 1.5 * scale, 2.5 * scale):
            truth = exact(epsilon, direction)
            if truth < SMALLEST:
                continue
            judged += 1
            room = 0.01 * truth + claim.error
            said = float(claim.delta(epsilon, direction))
            high, low = said > truth + room, said < truth - room
            if (high and name not in BELOW) or (low and name not in ABOVE):
                wrong.append(f"delta({epsilon:.4g}, {direction}) is {said:.6g}, summed {truth:.6g}")
    return judged, wrong
