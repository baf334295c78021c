"""A library's own step or training as something to audit: its tensors in, its noisy sums out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from mechanisms.contract import BatchMechanism, Draw, Releases
from mechanisms.release import leaves

Library = Literal["jax", "numpy", "torch"]
"""Whose arrays a step takes. A JAX step gets a key; others get a whole number below 2^64 as their seed."""
FARTHEST = 2.0**20
"""Outputs are cut here, and this stands for NaN: both tell something, and scores that overflow would not see it."""
TOGETHER = 64
"""Keys for which a JAX step is compiled: as many as the engine asks for at once."""
QUICKLY = {"xla_backend_optimization_level": 0}
"""What XLA's backend makes of a step: the same operations, not optimised further."""
Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """How rows (records, steps * coordinates) become what the library reads, and its releases become tensors.

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

    def row(self, given: Any, xp: Any) -> Any:
        """A release as one row, (coordinates,) or (steps, coordinates); ``xp`` is numpy or jax.numpy."""
        if self.steps is None:
            return self._row(given, xp)
        releases = list(given)
        if len(releases) != self.steps:
            raise ValueError(f"the training must release one update a step, {self.steps} in all, got {len(releases)}.")
        return xp.stack([self._row(release, xp) for release in releases])

    def _row(self, release: Any, xp: Any) -> Any:
        dicts = self.tensors is not None and isinstance(release, Mapping)
        leaves = [release[name] for name in self.tensors or ()] if dicts else [release]
        row = xp.concatenate([xp.ravel(xp.asarray(leaf)) for leaf in leaves]).astype(xp.float32)
        if row.shape != (self.dimension,):
            raise ValueError(
                f"the release must have the {self.dimension} coordinates of the gradients, got {row.shape[0]}."
            )
        return row

    @staticmethod
    def cut(rows: Any, xp: Any) -> Any:
        """Rows without what scores cannot read."""
        return xp.clip(xp.where(xp.isfinite(rows), rows, FARTHEST), -FARTHEST, FARTHEST)

    def named(self, rows: np.ndarray) -> Any:
        """Rows of many trials as tensors, whose names keep their order."""
        if self.tensors is None:
            return rows
        parts, start = {}, 0
        for name, shape in self.tensors.items():
            size = math.prod(shape)
            parts[name] = rows[..., start : start + size]
            start += size
        return self.placed(parts)

    def placed(self, release: Any) -> Any:
        """Tensors with their place in front of their names, so that sorted names keep their order."""
        if self.tensors is None or not isinstance(release, Mapping):
            return release
        width = len(str(len(self.tensors) - 1))
        return {f"{place:0{width}}_{name}": release[name] for place, name in enumerate(self.tensors)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LibraryStep(BatchMechanism):
    """Calls the library's step once for every seed, in this process: no other can be handed a closure."""

    step: Callable[[Any, Any], Any]
    form: Form
    library: Library
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Whose arrays it takes."""
        return f"{self.library}_{'step' if self.form.steps is None else 'training'}"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What make_step or make_training was given."""
        return self.settings

    @property
    def releases(self) -> Releases:
        """One noisy sum, or one for each step."""
        return "update" if self.form.steps is None else "transcript"

    @property
    def tracer(self) -> str | None:
        """Code in JAX and PyTorch is followed; NumPy's draws cannot be handed out again without patching it."""
        return None if self.library == "numpy" else self.library

    @property
    def followed(self) -> Callable[[Any, Any], Any]:
        """A JAX step on rows of gradients."""
        import jax
        import jax.numpy as jnp

        def released(key: Any, rows: Any) -> Any:
            given = self.step(key, self.form.inputs(rows))
            if self.form.steps is None:
                return self.form.placed(given)
            return jax.tree.map(lambda *parts: jnp.stack(parts), *map(self.form.placed, given))

        return released

    def replayed(self, dataset: Any, seed: int, tell: Callable[[str, Any], None]) -> None:
        """A PyTorch step that tells of all that it releases."""
        rows, seed_globals = _arrays(self.library, np.asarray(dataset, np.float32))
        seed_globals(seed)
        given = self.step(seed, self.form.inputs(rows))
        for number, step in enumerate([given] if self.form.steps is None else given, 1):
            for name, leaf in leaves(self.form.placed(step)):
                tell(f"{name} of step {number}", leaf)

    def prepare(self, dataset: Any) -> Draw:
        """The dataset in the library's arrays, once."""
        rows = np.asarray(dataset, np.float32)
        draw = _jax_rows(self.step, self.form, rows) if self.library == "jax" else self._rows(rows)
        return lambda seeds: self.form.named(draw(seeds))

    def _rows(self, rows: np.ndarray) -> Draw:
        """One call a seed; global generators are seeded before each."""
        given, seed_globals = _arrays(self.library, rows)
        inputs = self.form.inputs(given)

        def draw(seeds: np.ndarray) -> np.ndarray:
            found = []
            for seed in map(int, seeds):
                seed_globals(seed)
                found.append(self.form.row(self.step(seed, inputs), np))
            return self.form.cut(np.stack(found), np)

        return draw


def _arrays(library: Library, rows: np.ndarray) -> tuple[Any, Callable[[int], Any]]:
    """The rows as the library's array, and what seeds its global generator."""
    if library == "numpy":
        return rows, lambda seed: np.random.seed(seed % 2**32)  # noqa: NPY002
    import torch

    # torch.manual_seed queues a call for devices that are not there, with a stack trace: as long as a step takes
    devices = torch.accelerator.is_available()
    return torch.from_numpy(rows.copy()), torch.manual_seed if devices else torch.default_generator.manual_seed


def _jax_rows(step: Callable[[Any, Any], Any], form: Form, rows: np.ndarray) -> Draw:
    """One compiled program for all seeds: the engine's own, with scores in it, takes longer to compile than to run."""
    import jax
    import jax.numpy as jnp

    def one(words: jax.Array, given: jax.Array) -> jax.Array:
        try:
            released = step(jax.random.wrap_key_data(words, impl="threefry2x32"), form.inputs(given))
        except TypeError as error:
            raise TypeError(
                f"{error} (library = 'jax', the default, hands over a key and arrays that JAX traces; "
                "other code says library = 'numpy' or 'torch')"
            ) from error
        return form.cut(form.row(released, jnp), jnp)

    # a step of its own for every case and side: optimised code is compiled for seconds to run for less than one
    program = jax.jit(jax.vmap(one, in_axes=(0, None)), compiler_options=QUICKLY)

    def draw(seeds: np.ndarray) -> np.ndarray:
        words = np.stack([seeds >> np.uint64(32), seeds & np.uint64(2**32 - 1)], axis=1).astype(np.uint32)
        pieces = []
        for start in range(0, len(words), TOGETHER):
            piece = words[start : start + TOGETHER]
            padded = np.pad(piece, ((0, TOGETHER - len(piece)), (0, 0)), mode="edge")
            pieces.append(np.asarray(program(padded, rows))[: len(piece)])
        return np.concatenate(pieces)

    return draw
