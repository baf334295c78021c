"""A distinguisher trained on outputs of its own: quadratic discriminant analysis of a few features."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from distinguishers.contract import OneScore
from guarantees.checks import require
from guarantees.trade_off import TradeOff
from mechanisms.contract import Collapsed, OutputKind
from mechanisms.structure import structured

FEWEST = 20
"""Outputs a side below which nothing can be learnt."""
RIDGE = 1e-3
"""Added to the variance of each standardised feature."""
CLIP = 30.0
"""Standardised features are cut here: a wild output must not make a score infinite."""
SMALLEST = 1e-30


@structured(numbers=("direction", "location", "scale", "constant", "linear", "quadratic"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Learned(OneScore):
    """ln of two fitted normal densities of the features: ``c + <b, f> + <f, A f>``, f standardised."""

    accepts: tuple[OutputKind, ...]
    trained_on: tuple[int, int]
    direction: np.ndarray
    location: np.ndarray
    scale: np.ndarray
    constant: float
    linear: np.ndarray
    quadratic: np.ndarray
    name: str = "learned"
    curve: TradeOff | None = None

    @property
    def parameters(self) -> Mapping[str, Any]:
        """How many outputs it was trained on."""
        return {"fit_without": self.trained_on[0], "fit_with": self.trained_on[1]}

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The score of one output."""
        del key
        raw = features(output, jnp.asarray(self.direction, jnp.float32))
        f = (raw - jnp.asarray(self.location, jnp.float32)) / jnp.asarray(self.scale, jnp.float32)
        f = jnp.clip(f, -CLIP, CLIP)
        quadratic = jnp.sum(jnp.asarray(self.quadratic, jnp.float32) * f[:, None] * f[None, :])
        return jnp.float32(self.constant) + jnp.sum(jnp.asarray(self.linear, jnp.float32) * f) + quadratic


def features(output: Any, direction: jax.Array) -> jax.Array:
    """Projection on a direction, log mean square, and for vectors mean and largest coordinate against the size."""
    if isinstance(output, Collapsed):
        along = jnp.sum(output.along * direction)
        return jnp.stack([along, jnp.log(jnp.maximum(output.rest, SMALLEST)), along * along])
    along = jnp.sum(output * direction)
    square = jnp.maximum(jnp.mean(output * output), SMALLEST)
    size = jnp.sqrt(square)
    if output.size == 1:
        return jnp.stack([along, jnp.log(square)])
    return jnp.stack([along, jnp.log(square), jnp.mean(output) / size, jnp.max(output) / size])


def _vectors(outputs: Any) -> np.ndarray:
    """What a direction is learnt from: the coordinates, or those in the span."""
    return np.asarray(outputs.along if isinstance(outputs, Collapsed) else outputs, np.float64)


def _half(outputs: Any, rows: np.ndarray) -> Any:
    return jax.tree.map(lambda leaf: leaf[rows], outputs)


def _normal_fit(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, precision and ln determinant of the precision of a normal law fitted with a ridge."""
    covariance = np.atleast_2d(np.cov(sample, rowvar=False)) + RIDGE * np.eye(sample.shape[1])
    return sample.mean(axis=0), np.linalg.inv(covariance), -float(np.linalg.slogdet(covariance)[1])


def fit(key: jax.Array, outputs_without: Any, outputs_with: Any) -> Learned:
    """Train a distinguisher on outputs of both sides (leading axis = trial), vectors or Collapsed.

    Half of the outputs (chosen by the key) give the direction ``mean_with - mean_without``, each coordinate over its
    variance; the other half gives the features' means and covariances on each side; the score is the log ratio of the
    two fitted normal densities. [fisher1936]

    The score is as good as the fit, but a bound from it is valid on any outputs that it was not trained on.
    """
    sides = [outputs_without, outputs_with]
    kinds = {isinstance(side, Collapsed) for side in sides}
    require("outputs", len(kinds) == 1, "of the same kind on both sides", kinds)
    counts = tuple(len(_vectors(side)) for side in sides)
    require("outputs", min(counts) >= FEWEST, f"at least {FEWEST} a side", min(counts))
    finite = all(bool(jnp.isfinite(leaf).all()) for side in sides for leaf in jax.tree.leaves(side))
    require("outputs", finite, "finite", "NaN or infinity")
    first, second = [], []
    for index, (side, count) in enumerate(zip(sides, counts, strict=True)):
        order = np.asarray(jax.random.permutation(jax.random.fold_in(key, index), count))
        first.append(_half(side, order[: count // 2]))
        second.append(_half(side, order[count // 2 :]))
    direction = _learn_direction(first[0], first[1])
    seen = [np.asarray(jax.vmap(lambda y: features(y, jnp.asarray(direction, jnp.float32)))(s), float) for s in second]
    pooled = np.concatenate(seen)
    location, scale = pooled.mean(axis=0), np.maximum(pooled.std(axis=0), SMALLEST)
    fits = [_normal_fit(np.clip((s - location) / scale, -CLIP, CLIP)) for s in seen]
    (mean0, precision0, log0), (mean1, precision1, log1) = fits
    constant = 0.5 * (log1 - log0 - mean1 @ precision1 @ mean1 + mean0 @ precision0 @ mean0)
    return Learned(
        accepts=("collapsed",) if kinds.pop() else ("vector",),
        trained_on=(counts[0], counts[1]),
        direction=direction,
        location=location,
        scale=scale,
        constant=float(constant),
        linear=precision1 @ mean1 - precision0 @ mean0,
        quadratic=0.5 * (precision0 - precision1),
    )


def _learn_direction(without: Any, with_record: Any) -> np.ndarray:
    """Difference of the means over the pooled variance of each coordinate, of length one."""
    first, second = _vectors(without), _vectors(with_record)
    variance = (first.var(axis=0) + second.var(axis=0)) / 2
    direction = (second.mean(axis=0) - first.mean(axis=0)) / np.maximum(variance, SMALLEST)
    return direction / max(float(np.linalg.norm(direction)), SMALLEST)
