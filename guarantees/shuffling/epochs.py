"""Many independently shuffled epochs: composition of one epoch's loss by FFT."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.optimize import minimize_scalar

from guarantees.laws.law import DiscreteLaw
from guarantees.numerics.array import Array

POINTS = 2**17
TAIL = 1e-14
"""Probability beyond the loss grid, a Chernoff bound."""


class OneEpoch(Protocol):
    """The loss of one epoch, known through ``E (h - L)^+`` of its likelihood ratio L."""

    def reach(self) -> tuple[float, float]:
        """Losses below and above which next to nothing happens."""
        ...

    @property
    def error(self) -> float:
        """Absolute error of a delta."""
        ...

    def shortfall(self, ratio: Array) -> Array:
        """``E (ratio - L)^+`` without the record."""
        ...


def _dots(law: OneEpoch, losses: Array) -> tuple[Array, float, float]:
    """Masses without the record on a loss grid, and the two masses at infinite loss.

    The chords of ``E (h - L)^+`` between grid points are the shortfall of a law on the grid that dominates L.
    [doroshenko2022]
    """
    ratio = np.exp(losses)
    shortfall = law.shortfall(ratio)
    slopes = np.concatenate([[shortfall[0] / ratio[0]], np.diff(shortfall) / np.diff(ratio), [1.0]])
    never_with = slopes[0]
    never_without = 1 - ratio[-1] + shortfall[-1]
    return np.diff(slopes), float(never_with), max(0.0, float(never_without))


def _reach(losses: Array, masses: Array, epochs: int) -> float:
    """Total loss beyond which a Chernoff bound leaves at most TAIL of these masses on either side."""

    def bound(log_tilt: float, sign: float) -> float:
        tilt = np.exp(log_tilt)
        log_moment = np.log(max(float(masses @ np.exp(np.clip(sign * tilt * losses, -700, 700))), 1e-300))
        return float((epochs * log_moment - np.log(TAIL)) / tilt)

    ends = [minimize_scalar(bound, bounds=(-4, 8), args=(s,), method="bounded").fun for s in (1.0, -1.0)]
    return max(ends)


def compose_epochs(law: OneEpoch, epochs: int) -> DiscreteLaw:
    """The loss of ``epochs`` independent epochs, dominating the truth up to round-off.

    ``error`` is ``epochs`` times one epoch's (the lattice's plus the largest gap between chord and curve): each
    replacement of one epoch's pair changes a delta by at most the largest change of that epoch's delta.
    """
    low, high = law.reach()
    pilot = np.linspace(low, high, 4001)
    masses, _, _ = _dots(law, pilot)
    masses = np.maximum(masses, 0.0)
    reach = max(-low, high, _reach(pilot, masses, epochs), _reach(pilot, masses * np.exp(pilot), epochs))
    step = 2 * reach / POINTS
    index = np.arange(int(np.floor(low / step)), int(np.ceil(high / step)) + 1)
    losses = step * index
    one, never_with, never_without = _dots(law, losses)
    middle = (losses[1:] + losses[:-1]) / 2
    thinned = middle[:: max(1, len(middle) // 4000)]
    chord = np.interp(np.exp(thinned), np.exp(losses), law.shortfall(np.exp(losses)))
    gap = float(np.max(chord - law.shortfall(np.exp(thinned))))
    centred = np.zeros(POINTS)
    np.add.at(centred, index % POINTS, one)
    total = np.fft.fftshift(np.fft.irfft(np.fft.rfft(centred) ** epochs, POINTS))
    grid = step * np.arange(-POINTS // 2, POINTS // 2)
    total = np.maximum(total, 0.0)
    return DiscreteLaw(
        losses=np.concatenate([[-np.inf], grid, [np.inf]]),
        without=np.concatenate([[-np.expm1(epochs * np.log1p(-never_with))], total, [0.0]]),
        with_record=np.concatenate([[0.0], total * np.exp(grid), [-np.expm1(epochs * np.log1p(-never_without))]]),
        error=epochs * (law.error + max(gap, 0.0)) + 1e-12,
    )
