"""Single numbers that are no curves, drawn over their ranges and held against what they bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

import guarantees
from attack.draws import Draw, even, one_of, spread, whole
from attack.oracles import draw_losses

Check = Callable[[dict[str, Any], np.random.Generator], tuple[int, list[str]]]
"""How many values were judged, and what was wrong with them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Number:
    """One function, how its arguments are drawn, and its check."""

    name: str
    parameters: dict[str, Draw]
    check: Check

    def draw(self, uniform: Sequence[float]) -> dict[str, Any]:
        """Keyword arguments from one uniform number per parameter."""
        return {key: draw(float(u)) for (key, draw), u in zip(self.parameters.items(), uniform, strict=True)}


def _clt(given: dict[str, Any], rng: np.random.Generator) -> tuple[int, list[str]]:
    """The normal curve, moved by gamma, lies above that of the copies, which is a chi-square law."""
    bound = guarantees.clt_bound(**given)
    wrong = [] if np.isfinite([bound.mu, bound.gamma]).all() and bound.gamma >= 0 else [f"{bound}"]
    if bound.gamma >= 0.5:
        return 1, wrong if bound.vacuous else [*wrong, f"{bound} is not vacuous"]
    alpha = bound.gamma + (1 - 2 * bound.gamma) * np.append(rng.random(40), [0.0, 1.0])
    above = ndtr(-ndtri(alpha - bound.gamma) - bound.mu) + bound.gamma
    copies = given["rounds"] * (given["dimension"] - 1)
    scale = given["normaliser"] / (given["normaliser"] + 1)
    truth = guarantees.variance_pair(dimension=copies, scale=scale)
    for name, curve in (("f", truth), ("its inverse", truth.reverse)):
        excess = float((curve.beta(alpha) - above).max())
        if excess > truth.error + 1e-12:
            wrong.append(f"{name} lies above the bound by {excess:.2g}")
    return 2, wrong


def _bracket(given: dict[str, Any], rng: np.random.Generator) -> tuple[int, list[str]]:
    """The bracket holds the curve's delta, and the sampled one."""
    direction = "without_given_with" if given["reverse"] else "with_given_without"
    found = guarantees.shuffling.fixed_batch_bracket(**given)
    wrong, judged = [], 1
    if not (0 <= found.lower <= found.upper + 1e-15 and np.isfinite(found.upper)):
        wrong.append(f"{found.lower:.6g} to {found.upper:.6g} is no bracket")
    pair = {key: given[key] for key in ("rounds", "noise_multiplier")}
    claim = guarantees.fixed_batch_shuffle(**pair)
    said = float(claim.delta(given["epsilon"], direction))
    room = (1 + np.exp(given["epsilon"])) * claim.error + _rounding(given)
    if not found.lower - room <= said <= found.upper + room:
        wrong.append(f"delta is {said:.6g}, outside {found.lower:.6g} to {found.upper:.6g}")
    drawn = draw_losses("fixed_batch_shuffle", pair, rng)
    if drawn is not None and (truth := drawn.delta(given["epsilon"], direction)).sharp:
        judged += 1
        if not found.lower - truth.room <= truth.mean <= found.upper + truth.room:
            wrong.append(f"sampled {truth.mean:.6g}, outside {found.lower:.6g} to {found.upper:.6g}")
    return judged, wrong


def _rounding(given: dict[str, Any]) -> float:
    """What a bracket says about its own rounding: 1e-13 of the two expectations that are subtracted."""
    mu, loss = 1 / given["noise_multiplier"], given["epsilon"] * (-1 if given["reverse"] else 1)
    scale = np.exp(mu**2 + loss if given["reverse"] else mu**2 + 2 * loss)
    return float(1e-13 * scale * np.exp(-(mu**2) - loss)) * 10


def _epsilon(u: float) -> float:
    """0, small ones and large ones."""
    if u < 0.1:
        return 0.0
    return even(0.0, 1.0)(u) if u < 0.6 else spread(1.0, 30.0)((u - 0.6) / 0.4)


NUMBERS = [
    Number(
        name="clt_bound",
        parameters={"normaliser": whole(1, 100_000), "dimension": whole(2, 1_000_000), "rounds": whole(1, 10_000)},
        check=_clt,
    ),
    Number(
        name="fixed_batch_bracket",
        parameters={
            "rounds": whole(2, 10_000),
            "noise_multiplier": spread(0.2, 100.0),
            "epsilon": lambda u: (
                0.0 if u < 0.1 else even(0.0, 1.0)(u) if u < 0.6 else spread(1.0, 30.0)((u - 0.6) / 0.4)
            ),
            "reverse": one_of(False, True),
        },
        check=_bracket,
    ),
]
