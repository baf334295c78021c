"""The grain of outputs: noise of few bits lies on a lattice, and a record that is off it shows at once."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from mechanisms.structure import structured

BINS = 2**18
"""Bins of the histogram whose spectrum is searched; half precision has 2^11 values in an octave."""
REACH = 4.0
"""Deviations on either side that the histogram covers."""
LEAST = 0.03
"""Coherence below which there is no grain; without one, noise reaches .01 for 10^5 differences."""
COORDINATES = 64
"""Most coordinates in which the grain is sought."""
COARSEST = 16.0
"""Points of a lattice in a deviation below which repetitions show it instead."""


@structured(numbers=("frequency", "phases"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Grain:
    """How the phases of an output's coordinates agree with the mean phases of both sides at one frequency."""

    frequency: float
    phases: np.ndarray
    """cos and sin parts of the mean phase without and with the record, (4, coordinates)."""

    def __call__(self, row: jax.Array) -> jax.Array:
        """Agreement with either side and with their difference, shape (3,)."""
        turns = row * jnp.float32(self.frequency)
        angle = 2 * math.pi * (turns - jnp.floor(turns))
        parts = jnp.asarray(self.phases, jnp.float32)
        found = jnp.dot(parts[0::2], jnp.cos(angle)) + jnp.dot(parts[1::2], jnp.sin(angle))
        return jnp.append(found, found[1] - found[0]) / len(row)


def find_grain(first: np.ndarray, second: np.ndarray) -> Grain | None:
    """The grain of two samples of outputs (trials, coordinates), if they have one.

    Differences of outputs are multiples of the lattice's spacing, whatever their means: the spectrum of their
    histogram has a peak at one over it.
    """
    chosen = np.unique(np.linspace(0, first.shape[1] - 1, COORDINATES).astype(int))
    some = [side[:, chosen].astype(np.float64) for side in (first, second)]
    differences = np.concatenate([(side[1:] - side[:-1]).ravel() for side in some])
    deviation = float(np.median(np.abs(differences))) / 0.95
    inside = differences[np.abs(differences) < REACH * deviation]
    if deviation <= 0 or not math.isfinite(deviation) or len(inside) < 200:
        return None
    counts, _ = np.histogram(inside, bins=BINS, range=(-REACH * deviation, REACH * deviation))
    spectrum = np.abs(np.fft.rfft(counts)) / len(inside)
    step = 1 / (2 * REACH * deviation)
    first_bin = int(COARSEST / deviation / step)
    best = first_bin + int(spectrum[first_bin:].argmax())
    if spectrum[best] < max(LEAST, 6 / math.sqrt(len(inside))):
        return None
    frequency = _refine(inside, best * step, step)
    sides = [_phases(side, frequency) for side in (first, second)]
    return Grain(frequency=frequency, phases=np.concatenate(sides))


def _refine(differences: np.ndarray, frequency: float, step: float) -> float:
    """The nearby frequency at which the differences agree best."""
    some = differences[:20_000]
    for width in (step, step / 8, step / 64):
        tried = frequency + np.linspace(-width, width, 17)
        frequency = float(tried[np.argmax([abs(np.exp(2j * np.pi * f * some).mean()) for f in tried])])
    return frequency


def _phases(side: np.ndarray, frequency: float) -> np.ndarray:
    """Mean phases of a side at one frequency, as cos and sin."""
    turns = side.astype(np.float64) * np.float64(np.float32(frequency))
    mean = np.exp(2j * np.pi * (turns - np.floor(turns))).mean(axis=0)
    return np.stack([mean.real, mean.imag])
