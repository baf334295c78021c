"""Many rounds of a loss that is known as atoms: exact splitting onto a lattice, then powers by FFT."""

from __future__ import annotations

import dataclasses

import numpy as np

from guarantees.laws.law import DiscreteLaw
from guarantees.numerics.array import Array
from guarantees.numerics.powers import Summand, summed_masses

POINTS = 1 << 20
"""Lattice points spent on one composed law."""
LEFT_OUT = 1e-18
"""Bound on the mass of the sum beyond either end of the lattice, under either side."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Lattice:
    """Masses of both sides at ``spacing * (first + i)``."""

    spacing: float
    first: int
    without: Array
    with_record: Array


def _log_moment(law: DiscreteLaw, z: float) -> float:
    """``ln sum without e^(z loss)`` over the finite losses."""
    finite = np.isfinite(law.losses) & (law.without > 0)
    exponents = np.log(law.without[finite]) + z * law.losses[finite]
    return float(np.logaddexp.reduce(exponents))


def _window(law: DiscreteLaw, times: int) -> tuple[float, float]:
    """Ends beyond which the sum has at most LEFT_OUT, by Chernoff's bound and by its range."""
    finite = law.losses[np.isfinite(law.losses)]
    speeds = np.geomspace(1e-3, 1e3, 49)
    room = -np.log(LEFT_OUT)
    low = min((times * _log_moment(law, -z) + room) / z for z in speeds)
    high = min((times * _log_moment(law, 1 + z) + room) / z for z in speeds)
    return max(-low, times * finite[0]), min(high, times * finite[-1])


def _split(law: DiscreteLaw, spacing: float) -> _Lattice:
    """Each atom shared by its two lattice neighbours so that both of its masses are kept. [doroshenko2022]

    The upper neighbour gets ``p (e^x - 1)/(e^spacing - 1)`` of the mass p without, x above the lower one.
    The lattice pair can be turned into the original one, so it leaks at least as much, also composed.
    """
    finite = np.isfinite(law.losses)
    losses, p, q = law.losses[finite], law.without[finite], law.with_record[finite]
    cell = np.floor(losses / spacing).astype(np.int64)
    x = losses - cell * spacing
    share = np.expm1(x) / np.expm1(spacing)
    size = int(cell[-1] - cell[0]) + 2
    at = cell - cell[0]
    above = -np.expm1(-x) / -np.expm1(-spacing)
    return _Lattice(
        spacing=spacing,
        first=int(cell[0]),
        without=np.bincount(at, p * (1 - share), size) + np.bincount(at + 1, p * share, size),
        with_record=np.bincount(at, q * (1 - above), size) + np.bincount(at + 1, q * above, size),
    )


def _sum(law: DiscreteLaw, times: int, points: int) -> DiscreteLaw:
    low, high = _window(law, times)
    # Splitting moves each loss by less than a step, hence the sum by less than ``times`` steps.
    margin = min(times, points // 8) + 2
    spacing = (high - low) / (points - 2 * margin)
    lattice = _split(law, spacing)
    start = int(np.floor(low / spacing)) - margin
    losses = spacing * (start + np.arange(points))
    without, with_record = (
        summed_masses([Summand(masses=side, first=lattice.first, times=times)], low=start, size=points)
        for side in (lattice.without, lattice.with_record)
    )
    # Each side is taken where it is the larger, so that e^loss never magnifies the transform's rounding.
    with np.errstate(over="ignore", under="ignore"):
        up = losses > 0
        without = np.where(up, with_record * np.exp(-np.abs(losses)), without)
        with_record = np.where(up, with_record, without * np.exp(-np.abs(losses)))
    never = [float(side[~np.isfinite(law.losses)].sum()) for side in (law.without, law.with_record)]
    lost = [-np.expm1(times * np.log1p(-mass)) for mass in never]
    return DiscreteLaw(
        losses=np.concatenate([[-np.inf], losses, [np.inf]]),
        without=np.concatenate([[lost[0]], without, [0.0]]),
        with_record=np.concatenate([[0.0], with_record, [lost[1]]]),
    )


def sum_of_atoms(law: DiscreteLaw, times: int) -> DiscreteLaw:
    """Law of ``times`` independent losses with finitely many values, on a lattice.

    Splitting makes the result leak at least as much as the truth (proved); ``error`` is how much delta changed
    when the lattice was made twice as coarse, plus 1e-13 for rounding (both estimates).
    """
    fine, coarse = _sum(law, times, POINTS), _sum(law, times, POINTS // 2)
    change = 0.0
    for epsilon in np.linspace(0.0, 0.5 * max(fine.losses[-2], -fine.losses[1]), 9):
        one, other = _deltas(fine, epsilon), _deltas(coarse, epsilon)
        change = max(change, float(np.abs(one - other).max()))
    return dataclasses.replace(fine, error=change + 1e-13)


def _deltas(law: DiscreteLaw, epsilon: float) -> Array:
    """delta in both directions, summed over the atoms."""
    up, down = (np.expm1(np.minimum(epsilon + sign * law.losses, 0.0)) for sign in (-1, 1))
    return np.array([-(law.with_record * up).sum(), -(law.without * down).sum()])
