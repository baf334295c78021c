"""A library's own step or training as something to audit: its tensors in, one row of numbers out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from mechanisms.contract import BatchMechanism, Described, Draw, Mechanism, mechanism

Library = Literal["jax", "numpy", "torch"]
"""Whose arrays a step takes. A JAX step gets a key; others get a whole number below 2^64 as their seed."""
NOT_FINITE = 2.0**20
"""What stands for NaN and infinity in an output: they tell something too, and the audit must see them."""
Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """How rows (records, steps * coordinates) become what the library reads, and its releases become one row.

    Without ``tensors`` a step gets an array (records, coordinates), with them a dict of arrays (records, *shape). A
    training of several steps gets a list of these, one a step, and gives a list back.
    """

    tensors: Shapes | None
    dimension: int
    steps: int | None

    def inputs(self, rows: Any) -> Any:
        """What the library is handed."""
        if self.steps is None:
            return self._step(rows)
        return [self._step(rows[:, t * self.dimension : (t + 1) * self.dimension]) for t in range(self.steps)]

    def _step(self, rows: Any) -> Any:
        if self.tensors is None:
            return rows
        parts, start = {}, 0
        for name, shape in self.tensors.items():
            size = math.prod(shape)
            parts[name] = rows[:, start : start + size].reshape((len(rows), *shape))
            start += size
        return parts

    def output(self, given: Any, xp: Any) -> Any:
        """One row; ``xp`` is numpy or jax.numpy."""
        releases = [given] if self.steps is None else list(given)
        if len(releases) != (self.steps or 1):
            raise ValueError(f"the training must release one update a step, {self.steps} in all, got {len(releases)}.")
        parts = [xp.ravel(xp.asarray(leaf)) for release in releases for leaf in self._leaves(release)]
        row = xp.concatenate(parts).astype(xp.float32)
        wanted = self.dimension * len(releases)
        if row.shape != (wanted,):
            raise ValueError(f"the release must have the {wanted} coordinates of the gradients, got {row.shape[0]}.")
        return xp.where(xp.isfinite(row), row, NOT_FINITE)

    def _leaves(self, release: Any) -> list[Any]:
        if self.tensors is None or not isinstance(release, Mapping):
            return [release]
        return [release[name] for name in self.tensors]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seeded(Described):
    """A NumPy or PyTorch step: a BatchMechanism that calls it once for every seed."""

    step: Callable[[int, Any], Any]
    form: Form
    library: Library
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Whose arrays it takes."""
        return f"{self.library}_step"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What make_step was given."""
        return self.settings

    @property
    def workers(self) -> int:
        """Steps are closures, which no other process can be handed."""
        return 0

    @property
    def timeout(self) -> float:
        """Not kept without workers."""
        return 60.0

    def prepare(self, dataset: Any) -> Draw:
        """The dataset in the library's arrays, once; the global generators are seeded before every call."""
        rows, seed_globals = _arrays(self.library, np.asarray(dataset, np.float32))
        inputs = self.form.inputs(rows)

        def draw(seeds: np.ndarray) -> np.ndarray:
            found = []
            for seed in map(int, seeds):
                seed_globals(seed)
                found.append(self.form.output(self.step(seed, inputs), np))
            return np.stack(found)

        return draw


def _arrays(library: Library, rows: np.ndarray) -> tuple[Any, Callable[[int], Any]]:
    """The rows as the library's array, and what seeds its global generator."""
    if library == "numpy":
        return rows, lambda seed: np.random.seed(seed % 2**32)  # noqa: NPY002
    import torch

    return torch.from_numpy(rows.copy()), torch.manual_seed


def auditable(
    step: Callable[[Any, Any], Any], form: Form, library: Library, settings: Mapping[str, Any]
) -> Mechanism | BatchMechanism:
    """The step as a mechanism, traced if it is JAX's."""
    if library != "jax":
        return Seeded(step=step, form=form, library=library, settings=settings)
    import jax.numpy as jnp

    def jax_step(key: Any, rows: Any) -> Any:
        return form.output(step(key, form.inputs(rows)), jnp)

    return mechanism(jax_step, **settings)
