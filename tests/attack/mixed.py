"""Claims of two or three different mechanisms composed, held against sums of losses drawn from each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import guarantees
from attack.draws import Space, even, one_of, spread, whole
from attack.numbers import Number
from attack.oracles import BELOW, DIRECTIONS, PAIRS
from attack.properties import faults
from attack.sampled import MOST_TERMS, Pair, of_losses, side_losses

DRAWS = 40_000
BEYOND = 10_000.0
"""No sum of losses drawn here lies beyond: delta is the probability that all is revealed."""
PARTS = [
    Space(name="gaussian", parameters={"mu": spread(1e-4, 5.0)}),
    Space(name="laplace", parameters={"epsilon": spread(1e-3, 5.0)}),
    Space(name="randomised_response", parameters={"epsilon": spread(1e-3, 5.0)}),
    Space(
        name="epsilon_delta",
        parameters={
            "epsilon": lambda u: 0.0 if u < 0.3 else spread(1e-20, 4.0)((u - 0.3) / 0.7),
            "delta": spread(1e-9, 0.3),
        },
    ),
    Space(name="subsampled_gaussian", parameters={"rate": even(0.05, 1.0), "noise_multiplier": spread(0.4, 20.0)}),
    Space(
        name="variance_pair",
        parameters={"dimension": whole(1, 1000), "scale": spread(0.8, 1.25), "shift": spread(1e-3, 2.0)},
    ),
    Space(name="zcdp", parameters={"rho": spread(1e-3, 5.0)}),
    Space(
        name="poisson_training",
        parameters={
            "rate": even(0.1, 1.0),
            "noise_multiplier": spread(0.7, 10.0),
            "steps": whole(1, 30),
            "accountant": one_of("certified"),
        },
    ),
    Space(name="isolated_shuffle", parameters={"rounds": whole(1, 30), "noise_multiplier": spread(0.5, 5.0)}),
]
PER_PART = 2 + max(len(space.parameters) for space in PARTS)


class Mixed(Number):
    """Uniform numbers to the parts of one composition."""

    def draw(self, uniform: Sequence[float]) -> dict[str, Any]:
        """Two parts, or three; each with its constructor, its parameters and how often."""
        parts = []
        for i in range(2 if uniform[0] < 0.7 else 3):
            which, times, *rest = uniform[1 + i * PER_PART : 1 + (i + 1) * PER_PART]
            space = PARTS[min(int(which * len(PARTS)), len(PARTS) - 1)]
            given = space.draw(rest[: len(space.parameters)])
            parts.append({"name": space.name, "given": given, "times": whole(1, 30)(times)})
        return {"parts": parts}


def composed(parts: Sequence[dict[str, Any]]) -> guarantees.Claim:
    """The claim under attack."""
    first, *others = (
        getattr(guarantees, part["name"])(**part["given"]).compose(part["times"], unit="training") for part in parts
    )
    return first.compose_with(*others)


def _answers(epsilon: float) -> Pair:
    """One of two answers, the true one e^epsilon times as often."""
    true = 1 / (1 + math.exp(-epsilon))
    logs = np.log(np.eye(2) + 1e-300)
    return Pair(
        without=np.array([true, 1 - true]),
        with_record=np.array([1 - true, true]),
        draw=lambda rng, part, count: np.full(count, part),
        logs=lambda answer: logs[:, answer],
    )


def _losses(part: dict[str, Any], side: int, draws: int, rng: np.random.Generator) -> np.ndarray | None:
    """Sums of one part's losses, drawn without (0) or with the record; None where they take too long."""
    name, given = part["name"], part["given"]
    pair = _answers(given["epsilon"]) if name in ("epsilon_delta", "randomised_response") else PAIRS[name](given)
    releases = part["times"] * given.get("steps", 1)
    if draws * releases * pair.cost > MOST_TERMS:
        return None
    return side_losses(pair, (pair.without, pair.with_record)[side], releases, draws, rng)


def check(given: dict[str, Any], rng: np.random.Generator) -> tuple[int, list[str]]:
    """Rules of every curve, and delta in both directions from 0 to where few losses lie."""
    parts = given["parts"]
    claim = composed(parts)
    wrong = faults(claim)
    sums = [[_losses(part, side, DRAWS, rng) for part in parts] for side in (0, 1)]
    if any(one is None for side in sums for one in side):
        return 0, wrong
    drawn = of_losses(*(np.sum(side, axis=0) for side in sums))
    kept = math.prod((1 - part["given"].get("delta", 0.0)) ** part["times"] for part in parts)
    judged, safe = 0, any(part["name"] in BELOW for part in parts)
    for direction in DIRECTIONS:
        for epsilon in [*drawn.epsilons(), BEYOND]:
            truth, said = drawn.delta(epsilon, direction), float(claim.delta(epsilon, direction))
            mean, room = 1 - kept + kept * truth.mean, kept * truth.room + 1e-12
            if not truth.sharp and epsilon < BEYOND:
                continue
            judged += 1
            if said < mean - room - claim.error or (said > mean + room + claim.error and not safe):
                wrong.append(f"delta({epsilon:.4g}, {direction}) is {said:.6g}, sampled {mean:.6g} within {room:.1g}")
    return judged, wrong


MIXED = [Mixed(name="mixed", parameters=dict.fromkeys(map(str, range(1 + 3 * PER_PART)), float), check=check)]
