"""Truth that owes nothing to the code under attack, and which computation judges which constructor.

A delta is judged where its sampled relative error is below 1%, or by densities summed on a grid or through their
characteristic function; the rest is counted as unjudged and left to the rules that every curve keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from attack import fourier, lines, quadrature, rounds, shuffles
from attack.quadrature import Delta, Table
from attack.sampled import Drawn, Pair, sampled, summed_losses

Given = dict[str, Any]
Judgement = tuple[str, float, float, float, str]
"""Direction, epsilon, delta, how far a right value may be away, and where it is from."""

SMALLEST = 1e-9
"""Deltas below this are left unjudged: rounding of the sums."""
VACUOUS = 0.1
"""A delta counts as judged where the curve's stated error is below this share of it."""
DIRECTIONS = ("with_given_without", "without_given_with")


def _releases(given: Given) -> int:
    return given.get("times", 1) * given.get("steps", 1)


def _line(as_subsampled: Callable[[Given], Given]) -> Callable[[Given], Delta | None]:
    def exact(given: Given) -> Delta | None:
        sides = lines.subsampled_sides(as_subsampled(given))
        return fourier.repeated(quadrature.integrated(*sides), _releases(given))

    return exact


def _of_table(table: Callable[..., Table | None], *rest: Any) -> Callable[[Given], Delta | None]:
    return lambda given: fourier.repeated(table(given, *rest), _releases(given))


def _epoch(shifts: tuple[float, float]) -> Callable[[Given], Delta | None]:
    """One or two rounds on a grid, many by the characteristic function, of which several epochs may be added."""

    def exact(given: Given) -> Delta | None:
        total = given.get("epochs", 1) * _releases(given)
        if given["rounds"] <= 2:
            return fourier.repeated(quadrature.shuffled(given, shifts), total)
        if total == 1:
            return fourier.shuffle(given, shifts)
        return fourier.repeated(fourier.epochs(given), total) if shifts[0] == 0 else None

    return exact


def _event(given: Given) -> Delta | None:
    if given["cut_step"] == 0:
        return _of_table(quadrature.largest, (1.0, 2.0))(given)
    return quadrature.largest_above(given, (1.0, 2.0)) if _releases(given) == 1 else None


def _undivided(given: Given) -> Delta | None:
    """Where a round claims the subsampled Gaussian's curve."""
    plain = rounds.undivided(given)
    return None if plain is None else _line(lambda _: plain)(given)


def _upper(given: Given) -> Delta | None:
    if given["dimension"] == 1 and rounds.undivided(given) is None:
        return _nothing
    return _undivided(given)


def _nothing(epsilon: float, direction: str) -> float:
    """Both sides are one law."""
    return 0.0


OPPOSITE = {"shared": -1.0, "extra": 1.0}
PAIRS: dict[str, Callable[[Given], Pair]] = {
    "laplace": lines.laplace,
    "variance_pair": lambda given: lines.scaled(given["dimension"], given["scale"], given["shift"]),
    "gaussian": lambda given: lines.subsampled({"rate": 1.0, "noise_multiplier": 1 / given["mu"]}),
    "deterministic_batches": lambda given: lines.subsampled(given | {"rate": 1.0}),
    "subsampled_gaussian": lines.subsampled,
    "poisson_training": lines.subsampled,
    "zcdp": lambda given: lines.subsampled(lines.as_gaussian(given)),
    "renyi": lambda given: lines.subsampled(lines.as_gaussian(given)),
    "round_upper_bound": rounds.upper_bound,
    "normalised_round": rounds.hidden,
    "normalised_guarantee": lambda given: rounds.revealed(given | OPPOSITE),
    "revealed_round": rounds.revealed,
    "isolated_shuffle": shuffles.isolated,
    "balls_and_bins": shuffles.isolated,
    "fixed_batch_shuffle": shuffles.fixed_batch,
    "fixed_batch_upper": shuffles.fixed_batch,
    "fixed_batch_event": shuffles.fixed_batch,
}
EXACT: dict[str, Callable[[Given], Delta | None]] = {
    "gaussian": _line(lambda given: {"rate": 1.0, "noise_multiplier": 1 / given["mu"]}),
    "deterministic_batches": _line(lambda given: given | {"rate": 1.0}),
    "subsampled_gaussian": _line(lambda given: given),
    "poisson_training": _line(lambda given: given),
    "zcdp": _line(lines.as_gaussian),
    "renyi": _line(lines.as_gaussian),
    "laplace": _of_table(quadrature.laplaces),
    "randomised_response": _of_table(quadrature.answers),
    "epsilon_delta": _of_table(quadrature.answers),
    "round_upper_bound": _upper,
    "revealed_round": _undivided,
    "normalised_guarantee": lambda given: _undivided(given | OPPOSITE),
    "isolated_shuffle": _epoch((0.0, 1.0)),
    "balls_and_bins": _epoch((0.0, 1.0)),
    "max_coordinate": _of_table(quadrature.largest, (0.0, 1.0)),
    "fixed_batch_shuffle": _epoch((1.0, 2.0)),
    "fixed_batch_upper": _epoch((1.0, 2.0)),
    "fixed_batch_event": _event,
}
BELOW = {"fixed_batch_upper", "poisson_training", "zcdp", "renyi"}
"""Their curves lie on or below the truth: delta may only be larger."""
RENYI = {"zcdp", "renyi"}
"""What they state as their error is how far they lie below the best promise: never above it."""
ABOVE = {"fixed_batch_event"}
"""Their curves lie on or above what is sampled: delta may only be smaller."""


def disagreements(name: str, given: Given, claim: Any, rng: np.random.Generator) -> tuple[int, list[str]]:
    """How many deltas could be judged, and what was wrong with them."""
    return compared(name, claim, truths(name, given, rng))


def compared(name: str, claim: Any, found: list[Judgement]) -> tuple[int, list[str]]:
    """The same, of deltas already found."""
    judged, wrong = 0, []
    for direction, epsilon, truth, room, by in found:
        said, error = float(claim.delta(epsilon, direction)), 0.0 if name in RENYI else claim.error
        judged += error <= max(VACUOUS * truth, SMALLEST)
        high, low = said > truth + room + error, said < truth - room - error
        if (high and name not in BELOW) or (low and not (by == "sampled" and name in ABOVE)):
            wrong.append(f"delta({epsilon:.4g}, {direction}) is {said:.6g}, {by} {truth:.6g}")
    return judged, wrong


def truths(name: str, given: Given, rng: np.random.Generator) -> list[Judgement]:
    """Deltas in both directions, in the middle of the curve and towards its end."""
    found = []
    exact = EXACT.get(name, lambda _: None)(given)
    many = _releases(given) * given.get("epochs", 1) > 1
    # two judges where both are cheap and both say what the curve should be
    one = exact is not None and (many or name in ABOVE)
    drawn = None if one else draw_losses(name, given, rng)
    if drawn is not None:
        for direction in DIRECTIONS:
            for epsilon in drawn.epsilons():
                truth = drawn.delta(epsilon, direction)
                if truth.sharp:
                    found.append((direction, epsilon, truth.mean, truth.room, "sampled"))
    if exact is not None:
        for direction in DIRECTIONS:
            scale = fourier.spread_of(exact, direction)
            for epsilon in dict.fromkeys([0.0, 0.5 * scale, scale, 1.7 * scale]):
                truth = exact(epsilon, direction)
                if truth > SMALLEST or truth == epsilon == 0:
                    found.append((direction, epsilon, truth, 0.01 * truth + SMALLEST / 10, "summed"))
    return found


def draw_losses(name: str, given: Given, rng: np.random.Generator) -> Drawn | None:
    """The pair of one output, or of the sums of several where that is not too much work."""
    if name not in PAIRS:
        return None
    pair, releases = PAIRS[name](given), _releases(given)
    return sampled(pair, rng) if releases == 1 else summed_losses(pair, releases, rng)
