"""A small DP-SGD library in NumPy, right and with the faults that people make, all trials of one side at once."""

from __future__ import annotations

import dataclasses

import numpy as np

from mechanisms.release import Layout

LAYOUT = Layout(names=("layer/kernel", "layer/bias", "head"), shapes=((6, 6), (6,), (6, 2)))
RATE, CLIP, NOISE = 0.5, 1.0, 1.0
FAULTS = (
    "noise x .8",
    "constant seed",
    "seeded every step",
    "per-batch clipping",
    "divided by len(batch)",
    "float16 noise",
    "l-inf for l2",
    "bias not clipped",
    "noise on the first tensor",
    "even batch",
)
TWO_STEPS = ("seeded every step", "two right steps")


@dataclasses.dataclass(frozen=True)
class Library:
    """One step (or two) on per-example gradients (records, coordinates)."""

    fault: str
    rate: float = RATE
    layout: Layout = LAYOUT

    def outputs(self, rng: np.random.Generator, gradients: np.ndarray, trials: int) -> np.ndarray:
        """Released updates, float32 (trials, coordinates), or (trials, 2, coordinates)."""
        if self.fault not in TWO_STEPS:
            return self._step(rng, gradients, trials, self._noise(rng, trials)).astype(np.float32)
        first = self._noise(rng, trials)
        second = first if self.fault == "seeded every step" else self._noise(rng, trials)
        steps = [self._step(rng, gradients * sign, trials, own) for sign, own in ((1, first), (-0.5, second))]
        return np.stack(steps, axis=1).astype(np.float32)

    def _noise(self, rng: np.random.Generator, trials: int) -> np.ndarray:
        scale = NOISE * CLIP * (0.8 if self.fault == "noise x .8" else 1.0)
        if self.fault == "constant seed":
            return np.tile(scale * np.random.default_rng(0).standard_normal(self.layout.size), (trials, 1))
        noise = scale * rng.standard_normal((trials, self.layout.size))
        if self.fault == "float16 noise":
            return noise.astype(np.float16).astype(float)
        if self.fault == "noise on the first tensor":
            noise[:, self.layout.sizes[0] :] = 0.0
        return noise

    def _clipped(self, gradients: np.ndarray) -> np.ndarray:
        own = gradients
        if self.fault == "bias not clipped":
            own = gradients.copy()
            own[:, self.layout.slices[1]] = 0.0
        lengths = np.abs(own).max(axis=1) if self.fault == "l-inf for l2" else np.linalg.norm(own, axis=1)
        clipped = own / np.maximum(1.0, lengths / CLIP)[:, None]
        if self.fault == "bias not clipped":
            clipped[:, self.layout.slices[1]] = gradients[:, self.layout.slices[1]]
        return clipped

    def _step(self, rng: np.random.Generator, gradients: np.ndarray, trials: int, noise: np.ndarray) -> np.ndarray:
        taken = rng.random((trials, len(gradients))) < self.rate
        if self.fault == "even batch":
            odd = taken.sum(axis=1) % 2 == 1
            last = taken.shape[1] - 1 - taken[:, ::-1].argmax(axis=1)
            taken[odd, last[odd]] = False
        if self.fault == "per-batch clipping":
            # the mean is clipped to C, then noise as if each example had been
            sums = taken @ gradients
            lengths = np.linalg.norm(sums, axis=1, keepdims=True)
            sums = 2 * sums / np.maximum(1.0, lengths / CLIP)
        else:
            sums = taken @ self._clipped(gradients)
        total = sums + noise
        if self.fault == "divided by len(batch)":
            return total / np.maximum(taken.sum(axis=1, keepdims=True), 1)
        return total


def dense_pair(seed: int, *, records: int = 3, length: float = 3.0, layout: Layout = LAYOUT):
    """Two datasets of dense over-long gradients, the second with one record more."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((records + 1, layout.size))
    rows *= length / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows[:-1], rows
