"""What must hold for every curve, whatever its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr

from attack.draws import Space
from guarantees import Claim

LEVELS = np.unique(np.concatenate([[0.0, 1.0, 0.5], ndtr(np.linspace(-7.0, 7.0, 29))]))


def epsilons_of(claim: Claim) -> np.ndarray:
    """Where the profile of this curve does something: from a hundredth of its total variation to 40 times it."""
    scale = max(float(claim.total_variation), 1e-9)
    return np.append(0.0, np.geomspace(0.01, 40.0, 12) * scale)


def faults(claim: Claim) -> list[str]:
    """Every rule that the curve breaks by more than its stated error; empty for a right one."""
    found: list[str] = []
    eps = epsilons_of(claim)
    forward, backward = claim.delta(eps, "with_given_without"), claim.delta(eps, "without_given_with")
    beta, back = claim.beta(LEVELS), claim.reverse.beta(LEVELS)
    slack = 4 * claim.error + 1e-12
    if not all(np.isfinite(part).all() for part in (forward, backward, beta, back)):
        return ["not finite"]
    if claim.law.is_pair and abs(forward[0] - backward[0]) > slack:
        found.append(f"total variation {forward[0]:.6g} one way and {backward[0]:.6g} the other")
    for name, delta in (("with_given_without", forward), ("without_given_with", backward)):
        if np.any(np.diff(delta) > slack):
            found.append(f"delta {name} rises by {np.diff(delta).max():.2g}")
        if claim.law.is_pair and _bend(np.exp(np.minimum(eps, 700.0)), delta) > slack:
            found.append(f"delta {name} is not convex in e^eps")
    for name, curve in (("beta", beta), ("its inverse", back)):
        if np.any(curve > 1 - LEVELS + slack) or np.any(curve < 0):
            found.append(f"{name} leaves [0, 1 - alpha]")
        if np.any(np.diff(curve) > slack):
            found.append(f"{name} rises by {np.diff(curve).max():.2g}")
        if _bend(LEVELS, curve) > slack:
            found.append(f"{name} is not convex by {_bend(LEVELS, curve):.2g}")
    # the curve and its profile are one: 1 - beta - e^eps alpha never exceeds delta
    gain = (1 - beta)[:, None] - np.exp(np.minimum(eps, 700.0)) * LEVELS[:, None] - forward
    if claim.law.is_pair and gain.max() > slack:
        found.append(f"a point of the curve exceeds the profile by {gain.max():.2g}")
    return found


def judged(space: Space, given: dict[str, Any]) -> tuple[str, list[str]]:
    """right, refused (with the reason given) or fault (with what is wrong); a crash is a fault."""
    try:
        found = faults(space.make(given))
    except (ValueError, ArithmeticError) as refusal:
        return "refused", [str(refusal)]
    except Exception as crash:
        return "fault", [f"{type(crash).__name__}: {crash}"]
    return ("fault", found) if found else ("right", [])


def _bend(x: np.ndarray, y: np.ndarray) -> float:
    """How far a point lies above the chord of its neighbours, at most."""
    share = (x[2:] - x[1:-1]) / np.maximum(x[2:] - x[:-2], 1e-300)
    return float(np.max(y[1:-1] - share * y[:-2] - (1 - share) * y[2:], initial=0.0))
