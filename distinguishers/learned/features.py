"""Features of an output in which leaks show, fixed by fit trials and not by a model of the mechanism."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from distinguishers.learned.grain import Grain, find_grain
from distinguishers.learned.output_rows import View
from distinguishers.learned.repetition import Repetition, find_repetition
from distinguishers.learned.separating_directions import separating
from mechanisms.structure import structured

QUIET = 1e-6
"""Share of the largest coordinate below which a deviation counts as no noise, since float32 itself varies as much."""
FARTHEST = 1e6
"""Largest absolute value of a standardised coordinate; larger ones are cut."""
SMALLEST = 1e-30
STEEPEST = 50.0
"""Largest evidence of one coordinate in the sum over all; larger ones are cut."""
LEVELS = (-2.0, -0.7, 0.0, 0.7, 2.0)
"""Deviations for each of which the share of coordinates above is a feature."""


@structured(
    numbers=("means", "inverse", "size", "directions", "shares", "towards", "repetition", "grain"), structure=("view",)
)
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """The features of one output, from means and deviations of the fit trials on both sides."""

    view: View
    means: np.ndarray
    """Means without and with the record, shape (2, coordinates)."""
    inverse: np.ndarray
    """One over the deviations without, with, and pooled, (3, coordinates); none below what counts as no noise."""
    size: float
    directions: np.ndarray
    """Unit vectors in standardised coordinates, (directions, coordinates)."""
    directed: tuple[str, ...]
    """Names of the directions."""
    shares: np.ndarray
    """Averages over the groups of the view."""
    towards: np.ndarray | None
    """Unit vector along which the means of a round differ; None without rounds."""
    repetition: Repetition | None
    grain: Grain | None

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each feature."""
        names = [*self.directed, "evidence", "largest_without", "largest_with", "largest", "smallest"]
        names += ["mean", "spread", "tails", "norm", "zeros", *(f"share above {level:g}" for level in LEVELS)]
        names += [f"{what} of {name}" for what in ("norm", "mean") for name, _ in self.view.groups]
        if self.view.rounds > 1:
            names += ["largest_round", "rounds together", "agreement of rounds"]
        if self.repetition is not None:
            names += ["repetition", "repetition most", "repetition least", "never seen"]
        if self.grain is not None:
            names += ["grain without", "grain with", "grain"]
        return tuple(names)

    def __call__(self, output: jax.Array) -> jax.Array:
        """All features of one output, float32 of shape (features,); NaN if the output is not finite.

        Uses few reductions of stacked rows, as each takes a fifth of a second to compile.
        """
        given = self.view(output)
        row = jnp.clip(given, -FARTHEST * self.size, FARTHEST * self.size)
        zero, one, common = self._standardised(row)
        own, raw = common[: self.view.own], row[: self.view.own]
        evidence = jnp.clip((zero * zero - one * one) / 2, -STEEPEST, STEEPEST)
        ends = jnp.max(jnp.stack([jnp.abs(zero), jnp.abs(one), common, -common]), axis=1)
        square = own * own
        scaled = raw / jnp.float32(self.size)
        means = jnp.mean(jnp.stack([own, square, square * square, scaled * scaled, raw == 0]), axis=1)
        logs = jnp.log(jnp.maximum(means[1:4], SMALLEST))
        above = jnp.mean(own[None] > jnp.asarray(LEVELS, jnp.float32)[:, None], axis=1)
        found = [
            jnp.dot(jnp.asarray(self.directions, jnp.float32), common),
            jnp.sum(evidence)[None],
            _signed_log(ends),
            jnp.stack([_signed_log(means[0]), logs[0], logs[1] - 2 * logs[0], logs[2], means[4]]),
            above,
        ]
        if self.view.groups:
            shares, moved = jnp.asarray(self.shares, jnp.float32), row - jnp.asarray(self.means, jnp.float32)[0]
            found.append(jnp.log(jnp.maximum(jnp.dot(shares, square), SMALLEST)))
            # not standardised: noise that is centred on a tensor cancels in its own units alone
            found.append(jnp.dot(shares, moved[: self.view.own] / jnp.float32(self.size)))
        if self.towards is not None:
            found.append(self._rounds(own.reshape(self.view.rounds, -1), self.towards))
        if self.repetition is not None:
            found.append(self.repetition(row))
        if self.grain is not None:
            found.append(self.grain(raw))
        return jnp.where(jnp.isfinite(given).all(), jnp.concatenate(found), jnp.nan)

    def _standardised(self, row: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Coordinates standardised by the law without, the law with, and the pooled deviation (mean without)."""
        means, inverse = jnp.asarray(self.means, jnp.float32), jnp.asarray(self.inverse, jnp.float32)
        zero, one = row - means[0], row - means[1]
        first, second, common = (
            jnp.clip(z, -FARTHEST, FARTHEST) for z in (zero * inverse[0], one * inverse[1], zero * inverse[2])
        )
        return first, second, common

    def _rounds(self, own: jax.Array, towards: np.ndarray) -> jax.Array:
        """Features of rounds: the one most like holding the record, all of them, and how alike neighbours are."""
        seen = jnp.dot(own, jnp.asarray(towards, jnp.float32))
        alike = jnp.mean(own[1:] * own[:-1]) / jnp.maximum(jnp.mean(own * own), SMALLEST)
        return jnp.stack([jnp.max(seen), jax.nn.logsumexp(jnp.clip(seen, -STEEPEST, STEEPEST)), alike])


def _signed_log(value: jax.Array) -> jax.Array:
    """Logarithm of the size, with the sign."""
    return jnp.sign(value) * jnp.log1p(jnp.abs(value))


def learn_features(
    first: np.ndarray, second: np.ndarray, view: View, *, given: dict[str, np.ndarray] | None = None
) -> Features:
    """Learn features from rows of both sides, as the view gives them; ``given`` are known directions by name."""
    means = np.stack([side.mean(axis=0, dtype=np.float64) for side in (first, second)])
    raw = np.stack([_deviation(side, mean) for side, mean in zip((first, second), means, strict=True)])
    size = max(float(np.abs(means).max()), float(raw.max()), SMALLEST)
    pooled = np.sqrt((raw[0] ** 2 + raw[1] ** 2) / 2)
    deviations = np.maximum(np.stack([raw[0], raw[1], pooled]), QUIET * size)
    standard = [
        np.clip((side - means[0]) / deviations[2], -FARTHEST, FARTHEST).astype(np.float32) for side in (first, second)
    ]
    found = separating(standard[0], standard[1], deviations[2], given or {}) or {"first": np.eye(1, len(pooled))[0]}
    return Features(
        view=view,
        means=means,
        inverse=1 / deviations,
        size=size,
        directions=np.stack([*found.values()]),
        directed=tuple(found),
        shares=view.shares,
        towards=_towards(means, deviations[2], view) if view.rounds > 1 else None,
        repetition=find_repetition(first, second),
        grain=find_grain(first[:, : view.own], second[:, : view.own]),
    )


def _towards(means: np.ndarray, deviation: np.ndarray, view: View) -> np.ndarray:
    """Unit vector along which the means of a round differ."""
    shift = ((means[1] - means[0]) / deviation)[: view.own]
    along = shift.reshape(view.rounds, -1).mean(axis=0)
    return along / max(float(np.linalg.norm(along)), SMALLEST)


def _deviation(side: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Deviations of the coordinates, with a floor where there is no noise."""
    unit = max(float(np.abs(side).max()), SMALLEST)
    return unit * np.sqrt(np.mean(((side - mean) / unit) ** 2, axis=0, dtype=np.float64))
