"""Deltas at epsilons so large that e^epsilon overflows: never as a product of e^epsilon and a tail."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from guarantees.numerics.array import Array
from guarantees.numerics.powers import running_sums

LARGE = 600.0
"""Beyond this epsilon the product nears overflow and the tail underflow."""

FAR = 1e290
"""A threshold beyond every finite loss, yet finite: tails there hold only the mass at infinity."""

PANELS = np.array([0.0, 2.0, 6.0, 14.0, 40.0])
"""Where the integral over losses above epsilon is cut; what lies beyond the last cut weighs e^-40."""

ORDER = 16
DISAGREEMENT = 1e-6
"""Largest relative difference between a quadrature rule and the one with half its nodes."""


def _clenshaw_curtis(order: int) -> tuple[Array, Array]:
    """Nodes and weights on [-1, 1] of an even order; the ends are nodes, and so are those of half the order."""
    angle = np.pi * np.arange(order + 1) / order
    k = np.arange(1, order // 2 + 1)
    factor = np.where(2 * k == order, 1.0, 2.0) / (4.0 * k**2 - 1)
    weights = 2 / order * (1 - np.cos(2 * np.outer(angle, k)) @ factor)
    weights[[0, -1]] /= 2
    return -np.cos(angle), weights


def _rules() -> tuple[Array, Array, Array]:
    """Distances from epsilon, and two sets of weights for ``int e^-u f(u) du``: all nodes, and every second one."""
    x, fine = _clenshaw_curtis(ORDER)
    coarse = np.zeros(ORDER + 1)
    coarse[::2] = _clenshaw_curtis(ORDER // 2)[1]
    half = np.diff(PANELS)[:, None] / 2
    nodes = (PANELS[:-1, None] + half * (1 + x)).ravel()
    scale = half * np.exp(-nodes.reshape(len(half), -1))
    return nodes, (scale * fine).ravel(), (scale * coarse).ravel()


NODES, FINE, COARSE = _rules()


def integrated_delta(above: Callable[[Array], Array], epsilon: Array, error: float) -> Array:
    """``int e^-u P_with(L > epsilon + u) du``, which is delta, for a loss without atoms beyond LARGE.

    Refused where two rules disagree by more than the tail's error and DISAGREEMENT: an atom that far out is a step that
    no rule follows. Both rules look at epsilon itself, so that a step just above it is seen too.
    """
    tail = above((epsilon[:, None] + NODES).reshape(-1)).reshape(len(epsilon), -1)
    found, check = tail @ FINE, tail @ COARSE
    wrong = np.abs(found - check) > DISAGREEMENT * found + error
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(
            f"epsilon must be at most {LARGE:g} for this curve, got {epsilon[first]:g}: delta there is not known (two "
            f"integrals of the tail beyond say {found[first]:.3g} and {check[first]:.3g}; it jumps or falls too fast)."
        )
    return np.clip(found, 0.0, 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class AtomProfile:
    """Delta, for large epsilons, of a loss with finitely many values, from masses on the side that sees large losses.

    ``delta(eps) = W (1 - e^(eps - L)) + e^(eps - L) delta(L)`` with L the next loss and W the mass from L on: positive
    terms only, and nothing that overflows.
    """

    losses: Array
    """Values of the loss, increasing; the last may be infinite."""
    masses: Array
    start: float = LARGE
    """The smallest epsilon that may be asked for."""

    @functools.cached_property
    def _known(self) -> tuple[Array, Array, Array]:
        """Losses beyond the start, the mass from each on, and delta at each."""
        first = int(np.searchsorted(self.losses, self.start, side="right"))
        at = self.losses[first:]
        mass = running_sums(self.masses[first:][::-1])[::-1]
        apart = np.append(np.diff(at), np.inf)[: len(at)]
        shares = zip((-np.expm1(-apart)).tolist(), np.exp(-apart).tolist(), [*mass[1:].tolist(), 0.0], strict=False)
        delta, found = 0.0, []
        for seen, fall, beyond in reversed(list(shares)):
            delta = beyond * seen + fall * delta
            found.append(delta)
        return at, mass, np.array(found[::-1])

    def delta(self, epsilon: Array) -> Array:
        """Delta at epsilons from ``start`` on."""
        at, mass, known = self._known
        following = np.searchsorted(at, epsilon, side="right")
        held = following < len(at)
        index, value = following[held], np.zeros(epsilon.shape)
        apart = epsilon[held] - at[index]
        value[held] = -np.expm1(apart) * mass[index] + np.exp(apart) * known[index]
        return np.clip(value, 0.0, 1.0)
