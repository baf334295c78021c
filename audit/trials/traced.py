"""Both sides of an audit as compiled programs from key to score, for mechanisms that JAX can trace."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from audit.trials.keys import trial_keys, trial_number, trials_from
from audit.trials.separate import Draw, separate
from audit.trials.source import MechanismError, NonFiniteScoreError, Scored, common_layout, piece_size
from distinguishers.contract import Distinguisher
from mechanisms.bits import Words
from mechanisms.contract import Mechanism
from mechanisms.neighbours import GradientTable, Neighbours, prepare
from mechanisms.release import Layout, flatten, layout_of

CHUNK_ENTRIES = 2**20
"""Output coordinates drawn at once on a CPU: more than this leaves the caches."""
DEVICE_CHUNK_ENTRIES = 2**28
"""The same on an accelerator, where occupancy matters more."""
LARGEST_CHUNK = 2**14
LARGEST_DEVICE_CHUNK = 2**20
MOST_AT_ONCE = 2**30
"""Trials that one call of a program counts, in 32-bit integers; the sums are kept in 64 bits."""
NONE_BROKEN = 2**31 - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """Draw, release, score and count on one dataset, compiled once for every key; outputs never leave the device."""

    side: str
    dataset: Any
    chunk: int
    score_chunk: Callable[..., jax.Array]
    count_chunks: Callable[..., tuple[jax.Array, jax.Array]]

    def source(self, key: jax.Array) -> Compiled:
        """The scores that belong to one key."""
        return Compiled(program=self, key=key)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """A program with its key: a Source whose trial i is a function of (key, i) alone."""

    program: Program
    key: jax.Array

    @property
    def chunk(self) -> int:
        """Trials drawn at once."""
        return self.program.chunk

    def scores(self, start: int, stop: int) -> np.ndarray:
        """Kept on the host: for fit and pilot trials, of which there are few."""
        parts = []
        for first in range(start, stop, self.chunk):
            wanted = min(self.chunk, stop - first)
            found = self.program.score_chunk(self.key, self.program.dataset, trial_number(first))
            part = np.asarray(found)[:wanted]
            if not np.isfinite(part).all():
                self._refuse(first + int(np.argmin(np.isfinite(part).all(axis=1))))
            parts.append(part)
        return np.concatenate(parts)

    def cells(self, start: int, stop: int, edges: np.ndarray) -> np.ndarray:
        """Counted on the device, whatever the number of trials."""
        rows = jnp.asarray(edges, jnp.float32)
        total = np.zeros((rows.shape[0], rows.shape[1] + 1), np.int64)
        for first in range(start, stop, MOST_AT_ONCE):
            count = jnp.int32(min(MOST_AT_ONCE, stop - first))
            counts, bad = self.program.count_chunks(self.key, self.program.dataset, trial_number(first), count, rows)
            if int(bad) != NONE_BROKEN:
                self._refuse(first + int(bad))
            total += np.asarray(counts, np.int64)
        return total

    def _refuse(self, trial: int) -> None:
        raise NonFiniteScoreError(
            f"the score of trial {trial} on the side '{self.program.side}' is not finite: the mechanism gave NaN or "
            "infinity. Check the gradients for NaN and the divisor for zero."
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TracedSides:
    """BothSides of a mechanism that JAX traces."""

    mechanism: Mechanism
    neighbours: Neighbours
    _draws: dict[tuple[str, int], Draw] = dataclasses.field(default_factory=dict)

    def scored(
        self, distinguisher: Distinguisher, *, chunk: int | None = None, learnt: bool = False
    ) -> tuple[Scored, Scored]:
        """Scores of both sides: two programs, compiled when first used; for a learnt score apart from the draws."""
        pair = self.neighbours
        if learnt:
            size = chunk or piece_size(self.layout())
            return separate(self._draw("without", size), self._draw("with", size), distinguisher, chunk=size)
        return (
            compile_program(self.mechanism, pair.without, distinguisher, side="without", chunk=chunk),
            compile_program(self.mechanism, pair.with_record, distinguisher, side="with", chunk=chunk),
        )

    def layout(self) -> Layout:
        """From the shapes alone."""
        without, with_record = (
            layout_of(shapes_of(self.mechanism, dataset), self.mechanism.kind)
            for dataset in (self.neighbours.without, self.neighbours.with_record)
        )
        return common_layout(self.mechanism.name, without, with_record)

    def outputs(
        self, key: jax.Array, trials: int, *, size: int, deadline: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Full outputs of both sides, ``size`` at a time, kept on the host."""

        def side(own: jax.Array, name: str) -> np.ndarray:
            draw = self._draw(name, size)
            pieces = []
            for start in range(0, trials, size):
                if deadline is None or time.monotonic() < deadline:
                    pieces.append(jax.tree.map(np.asarray, draw(own, trial_number(start))))
            if not pieces:
                return np.zeros((0, 1), np.float32)
            return jax.tree.map(lambda *parts: np.concatenate(parts)[:trials], *pieces)

        # two programs to compile, which takes longer than the draws
        with ThreadPoolExecutor(2) as pool:
            without, with_record = pool.map(side, jax.random.split(key), ("without", "with"))
        return without, with_record

    def read_without(
        self, key: jax.Array, *, size: int, pieces: int, read: Callable[[Any], Any], use: Callable[[Any], None]
    ) -> None:
        """Outputs without the record, which never leave the device; only what ``read`` makes of a piece does."""
        draw = self._draw("without", size)
        program = jax.jit(lambda first: read(draw(key, first)))
        for index in range(pieces):
            use(program(trial_number(index * size)))

    def _draw(self, side: str, size: int) -> Draw:
        """Outputs of ``size`` trials from a first one on, compiled once."""
        if (side, size) not in self._draws:
            dataset = self.neighbours.without if side == "without" else self.neighbours.with_record
            step, data = self.mechanism, prepare(self.mechanism, dataset)

            def one(key: jax.Array, trial: Words) -> Any:
                return flatten(step(trial_keys(key, trial).release, data), step.kind)

            self._draws[side, size] = jax.jit(
                lambda key, first: jax.vmap(one, in_axes=(None, 0))(key, trials_from(first, size))
            )
        return self._draws[side, size]


def shapes_of(mechanism: Mechanism, dataset: Any) -> Any:
    """The output on a dataset, as shapes and dtypes."""
    given = prepare(mechanism, dataset)
    return jax.eval_shape(lambda key: mechanism(key, given), jax.random.key(0))


def chunk_size(mechanism: Mechanism, dataset: Any) -> int:
    """Trials drawn at once, from the size of one output and the device."""
    entries = max(1, sum(leaf.size for leaf in jax.tree.leaves(shapes_of(mechanism, dataset))))
    # scoring collapsed statistics takes hundreds of mixture terms, which their few entries do not show
    small = jax.default_backend() == "cpu" or mechanism.kind == "collapsed"
    room, most = (CHUNK_ENTRIES, LARGEST_CHUNK) if small else (DEVICE_CHUNK_ENTRIES, LARGEST_DEVICE_CHUNK)
    return int(np.clip(room // entries, 1, most))


@contextlib.contextmanager
def blamed(what: str) -> Iterator[None]:
    """An exception of a user's code as one that says whose it was."""
    try:
        yield
    except Exception as error:
        raise MechanismError(f"{what}: {type(error).__name__}: {error}") from error


def compile_program(
    mechanism: Mechanism,
    dataset: Any,
    distinguisher: Distinguisher,
    *,
    side: str,
    chunk: int | None = None,
) -> Program:
    """One side of an audit as a compiled program. Scores do not depend on the chunk size."""
    given = prepare(mechanism, dataset)
    # a table is a few host numbers that the program is built around; arrays are handed to it
    static = isinstance(given, GradientTable)
    with blamed(f"{mechanism.name!r} failed on the side {side!r}"):
        size = chunk or chunk_size(mechanism, given)
        output = jax.eval_shape(lambda key: flatten(mechanism(key, given), mechanism.kind), jax.random.key(0))
    shapes = [leaf.shape for leaf in jax.tree.leaves(output)]
    with blamed(f"the distinguisher {distinguisher.name!r} failed on outputs of {mechanism.name!r}, of shape {shapes}"):
        jax.eval_shape(distinguisher, jax.random.key(0), output)

    def score(key: jax.Array, data: Any, trial: Words) -> jax.Array:
        own = trial_keys(key, trial)
        output = flatten(mechanism(own.release, given if static else data), mechanism.kind)
        return jnp.atleast_1d(distinguisher(own.score, output))

    def score_chunk(key: jax.Array, data: Any, first: Words, offset: jax.Array | int = 0) -> jax.Array:
        return jax.vmap(score, in_axes=(None, None, 0))(key, data, trials_from(first, size, offset))

    def count_chunks(
        key: jax.Array, data: Any, start: Words, count: jax.Array, edges: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        def add(index: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            counts, bad = carry
            offset = index * size
            places = offset + jnp.arange(size, dtype=jnp.int32)
            wanted = places < count
            found = score_chunk(key, data, start, offset)
            broken = wanted & ~jnp.isfinite(found).all(axis=1)
            bad = jnp.minimum(bad, jnp.where(broken, places, NONE_BROKEN).min())
            return counts + count_cells(found, wanted, edges), bad

        zero = jnp.zeros((edges.shape[0], edges.shape[1] + 1), jnp.int32)
        return jax.lax.fori_loop(0, -(-count // size), add, (zero, jnp.int32(NONE_BROKEN)))

    return Program(
        side=side,
        dataset=None if static else given,
        chunk=size,
        score_chunk=jax.jit(score_chunk),
        count_chunks=jax.jit(count_chunks),
    )


def count_cells(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    """How many wanted scores (trials, members) fall in each cell; a score on an edge counts below it."""
    return jax.lax.platform_dependent(scores, wanted, edges, cpu=_count_by_scatter, default=_count_by_product)


def _count_by_scatter(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    members, cells = edges.shape[0], edges.shape[1] + 1
    cell = jax.vmap(lambda row, own: jnp.searchsorted(row, own, side="left"))(edges, scores.T)
    flat = cell + cells * jnp.arange(members)[:, None]
    weights = jnp.broadcast_to(wanted.astype(jnp.int32), flat.shape)
    counts = jnp.zeros(members * cells, jnp.int32).at[flat.ravel()].add(weights.ravel())
    return counts.reshape(members, cells)


def _count_by_product(scores: jax.Array, wanted: jax.Array, edges: jax.Array) -> jax.Array:
    """A million additions to 200 cells collide on a GPU: one matrix product of two one-hot digits counts instead.

    Exact: a chunk has fewer than 2^24 trials, and float32 counts that far.
    """
    members, cells = edges.shape[0], edges.shape[1] + 1
    base = int(cells**0.5) + 1
    find = functools.partial(jnp.searchsorted, side="left", method="compare_all")
    cell = jax.vmap(find)(edges, scores.T)
    high = ((cell // base)[..., None] == jnp.arange(base)) & wanted[:, None]
    low = (cell % base)[..., None] == jnp.arange(base)
    digits = (high.astype(jnp.bfloat16), low.astype(jnp.bfloat16))
    counts = jnp.einsum("mti,mtj->mij", *digits, preferred_element_type=jnp.float32)
    return counts.reshape(members, -1)[:, :cells].astype(jnp.int32)
