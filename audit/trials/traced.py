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
from jax.sharding import Mesh

from audit.trials.cells import NONE_BROKEN
from audit.trials.devices import device_mesh, devices_in, shares
from audit.trials.keys import key_from_seed, trial_number, trial_numbers
from audit.trials.programs import (
    Programs,
    Release,
    Scoring,
    TracedRelease,
    is_summed,
    programs_of,
    release_of,
    scoring_of,
)
from audit.trials.separate_scoring import Draw, separate
from audit.trials.source import (
    Drew,
    Scored,
    Source,
    common_layout,
    complete,
    joined,
    not_finite,
    piece_size,
    require_finite,
    unheard,
)
from audit.trials.user_code_errors import MechanismError, blamed
from distinguishers.contract import Distinguisher
from distinguishers.contract import distinguisher as as_distinguisher
from guarantees.checks import written_at
from mechanisms.contract import Mechanism, OutputKind, Step, as_given, release_on
from mechanisms.contract import mechanism as as_mechanism
from mechanisms.pairs.neighbours import Neighbours, prepare, records_in
from mechanisms.randomness.bits import Words
from mechanisms.release import Layout, layout_of
from mechanisms.structure import is_structured

CHUNK_ENTRIES = 2**18
"""Output coordinates drawn at once on a CPU: more than this leaves the caches."""
DEVICE_CHUNK_ENTRIES = 2**28
"""The same on an accelerator, where occupancy matters more."""
LARGEST_CHUNK = 2**12
SUMMED_CHUNK = 2**6
"""Least on a CPU where long vectors are summed as they are drawn: scores of a few trials cost as much as of many."""
LARGEST_DEVICE_CHUNK = 2**20
LARGEST_COLLAPSED_CHUNK = 2**15
"""Entries of statistics drawn at once on an accelerator: scoring each takes hundreds of mixture terms."""
TRACED = (
    "A step is called as step(key, dataset) and traced by JAX; code that JAX cannot trace is "
    'mechanisms.callable_step(function), called as function(seed, dataset) (kind = "callable_step" in a suite).'
)
NUMBERS = np.generic | int | float | complex
EDGES = 208
"""Grids are padded to a multiple of this many edges: those that policies lay out have fewer, and so one program."""
MOST_AT_ONCE = 2**30
"""Trials that one call of a program counts, in 32-bit integers; the sums are kept in 64 bits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """Draw, release, score and count on one dataset: compiled for a structure; outputs never leave the device."""

    side: str
    chunk: int
    output: Any
    """The shape of one output."""
    release: Release
    scoring: Scoring
    programs: Programs
    mesh: Mesh | None = None
    """Devices that share the trials, where there are several."""

    def source(self, key: jax.Array) -> Compiled:
        """The scores that belong to one key."""
        return Compiled(program=self, key=key)

    def score_chunk(self, key: jax.Array, first: Words) -> jax.Array:
        """Scores of one chunk of trials."""
        return self.programs.score_chunk(self.release, self.scoring, key, first, size=self.chunk)

    def count(self, key: jax.Array, first: int, count: int, edges: jax.Array) -> np.ndarray:
        """How many of ``count`` trials fall in each cell; refuses a score that is not finite."""
        if self.mesh is None:
            parts, starts = (self.release, self.scoring, key), [first]
            found = self.programs.count_chunks(*parts, trial_number(first), np.int32(count), edges, size=self.chunk)
            counts, bad = (np.asarray(value)[None] for value in found)
        else:
            own = shares(count, devices=self.mesh.size, size=self.chunk)
            starts = [first + sum(own[:device]) for device in range(len(own))]
            counts, bad = self.programs.count_everywhere(
                self.release,
                self.scoring,
                key,
                trial_numbers(starts),
                jnp.asarray(own, jnp.int32),
                edges,
                size=self.chunk,
                mesh=self.mesh,
            )
        broken = [start + int(place) for start, place in zip(starts, bad, strict=True) if place != NONE_BROKEN]
        if broken:
            raise not_finite(min(broken), self.side)
        return np.asarray(counts, np.int64).sum(axis=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled(Source):
    """A program with its key: a Source whose trial i is a function of (key, i) alone."""

    program: Program
    key: jax.Array

    @property
    def chunk(self) -> int:
        """Trials drawn at once, on all devices together."""
        return self.program.chunk * devices_in(self.program.mesh)

    def scores(self, start: int, stop: int, drew: Drew = unheard) -> np.ndarray:
        """Kept on the host, from one device: for fit and pilot trials, of which there are few."""
        parts, size = [], self.program.chunk
        for first in range(start, stop, size):
            wanted = min(size, stop - first)
            part = np.asarray(self.program.score_chunk(self.key, trial_number(first)))[:wanted]
            require_finite(part, first, self.program.side)
            parts.append(part)
            drew(len(part))
        return np.concatenate(parts)

    def cells(self, start: int, stop: int, edges: np.ndarray) -> np.ndarray:
        """Counted on the device, whatever the number of trials."""
        width = edges.shape[1]
        # repeated edges add empty cells only
        rows = jnp.asarray(np.pad(edges, ((0, 0), (0, -width % EDGES)), mode="edge"), jnp.float32)
        total = np.zeros((rows.shape[0], rows.shape[1] + 1), np.int64)
        for first in range(start, stop, MOST_AT_ONCE):
            total += self.program.count(self.key, first, min(MOST_AT_ONCE, stop - first), rows)
        return complete(np.concatenate([total[:, :width], total[:, -1:]], axis=1), stop - start)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TracedSides:
    """BothSides of a mechanism that JAX traces."""

    mechanism: Mechanism
    neighbours: Neighbours
    _draws: dict[tuple[str, int], Draw] = dataclasses.field(default_factory=dict)

    def scored(
        self, distinguisher: Distinguisher, *, chunk: int | None = None, learnt: bool = False
    ) -> tuple[Scored, Scored]:
        """Scores of both sides; one program where their structure is the same, compiled when first used.

        A learnt score is compiled apart from the draws.
        """
        if learnt:
            size = chunk or piece_size(self.layout())
            return separate({side: self._draw(side, size) for side in ("without", "with")}, distinguisher, chunk=size)
        without, with_record = self.neighbours.without, self.neighbours.with_record
        first = compile_program(self.mechanism, without, distinguisher, side="without", chunk=chunk)
        return first, compile_program(
            self.mechanism, with_record, distinguisher, side="with", chunk=first.chunk, beside=first
        )

    def layout(self) -> Layout:
        """From the shapes alone."""
        without, with_record = (
            self._layout(shapes_of(self.mechanism, dataset, side), side)
            for side, dataset in (("without", self.neighbours.without), ("with", self.neighbours.with_record))
        )
        return common_layout(self.mechanism.name, without, with_record)

    def _layout(self, shapes: Any, side: str) -> Layout:
        with blamed(f"what {self.mechanism.name!r} releases on the side {side!r} cannot be audited"):
            return layout_of(shapes, self.mechanism.kind)

    def outputs(
        self,
        keys: tuple[jax.Array, jax.Array],
        trials: int,
        *,
        size: int,
        deadline: float | None = None,
        drew: Drew = unheard,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Full outputs of both sides, ``size`` at a time on one device, kept on the host."""

        def side(own: jax.Array, name: str) -> np.ndarray:
            draw = self._draw(name, size)
            pieces = []
            for start in range(0, trials, size):
                if deadline is None or time.monotonic() < deadline:
                    pieces.append(jax.tree.map(np.asarray, draw(own, trial_number(start))))
                    drew(min(size, trials - start))
            return joined(pieces, trials)

        # two programs to compile, which takes longer than the draws
        with ThreadPoolExecutor(2) as pool:
            without, with_record = pool.map(side, keys, ("without", "with"))
        return without, with_record

    def piece(self, side: str, key: jax.Array, start: int, stop: int, *, size: int) -> Any:
        """Full outputs of one side, ``size`` at a time on one device."""
        draw = self._draw(side, size)
        pieces = [jax.tree.map(np.asarray, draw(key, trial_number(first))) for first in range(start, stop, size)]
        return joined(pieces, stop - start)

    def read_without(
        self, key: jax.Array, *, size: int, pieces: int, read: Callable[[Any], Any], use: Callable[[Any], None]
    ) -> None:
        """Outputs without the record, which never leave the device; only what ``read`` makes of a piece does."""
        draw = self._draw("without", size)
        program = jax.jit(lambda first: read(draw(key, first)))
        for index in range(pieces):
            use(program(trial_number(index * size)))

    def _draw(self, side: str, size: int) -> Draw:
        """Outputs of ``size`` trials from a first one on."""
        if (side, size) not in self._draws:
            release = self._release(side)
            self._draws[side, size] = functools.partial(programs_of(release).draw_chunk, release, size=size)
        return self._draws[side, size]

    def _release(self, side: str) -> Release:
        dataset = self.neighbours.without if side == "without" else self.neighbours.with_record
        with traced(self.mechanism, side):
            return release_of(self.mechanism, dataset)


def shapes_of(mechanism: Mechanism, dataset: Any, side: str) -> Any:
    """The output on one side's dataset, as shapes and dtypes."""
    given = prepare(mechanism, dataset)
    with traced(mechanism, side):
        known = release_on(mechanism, given)
        if known is not None and is_structured(known):
            return programs_of(known).output.eval_shape(known, key_from_seed(0))
        return jax.eval_shape(lambda key: _released(mechanism, mechanism(key, given)), key_from_seed(0))


def _released(mechanism: Mechanism, output: Any) -> Any:
    if why := why_no_release(output):
        raise ValueError(f"{why}{written_at(as_given(mechanism))}")
    return output


def why_no_release(output: Any) -> str:
    """That what a step returns is not made of arrays: a clause; empty where it is."""
    leaves = jax.tree.leaves(output)
    wrong = [type(leaf).__name__ for leaf in leaves if not isinstance(leaf, jax.Array | np.ndarray | NUMBERS)]
    if not wrong and leaves:
        return ""
    return f"it returns {f'a {wrong[0]}' if wrong else 'nothing'}, and a step must return an array or a tree of arrays"


@contextlib.contextmanager
def traced(mechanism: Mechanism, side: str) -> Iterator[None]:
    """What a step raises while JAX traces it, with how a user's function is called where that may be the reason."""
    try:
        with blamed(f"{mechanism.name!r} failed on the side {side!r}"):
            yield
    except MechanismError as error:
        # a key is no integer (TypeError), and Python's are too large for JAX (OverflowError)
        if isinstance(error.__cause__, TypeError | OverflowError) and isinstance(mechanism, Step):
            raise MechanismError(f"{str(error).rstrip('.')}. {TRACED}") from error.__cause__
        raise


def chunk_size(kind: OutputKind, output: Any, *, records: int = 0, own_code: bool = True) -> int:
    """Trials drawn at once, from one output (or its shape), the dataset's size and the device.

    Our simulators hold a number for each record of a trial; other code may hold an output for each.
    """
    entries = max(1, sum(leaf.size for leaf in jax.tree.leaves(output)))
    if jax.default_backend() == "cpu":
        room, most = CHUNK_ENTRIES, LARGEST_CHUNK
    else:
        collapsed = kind in ("collapsed", "collapsed_transcript")
        if not collapsed:
            entries = max(entries, records if own_code else records * entries)
        room, most = LARGEST_COLLAPSED_CHUNK if collapsed else DEVICE_CHUNK_ENTRIES, LARGEST_DEVICE_CHUNK
    return int(np.clip(room // entries, 1, most))


def compile_program(
    mechanism: Mechanism,
    dataset: Any,
    distinguisher: Distinguisher,
    *,
    side: str,
    chunk: int | None = None,
    beside: Program | None = None,
) -> Program:
    """One side of an audit as a program; compiled when it is first used. Scores do not depend on the chunk size.

    ``beside`` is the other side: what scores its outputs scores these, where they have the same shape.
    """
    step, score = as_mechanism(mechanism), as_distinguisher(distinguisher)
    key = key_from_seed(0)
    with traced(step, side):
        release = release_of(step, dataset)
        output = programs_of(release).output.eval_shape(release, key)
    shapes = [leaf.shape for leaf in jax.tree.leaves(output)]
    with blamed(f"the distinguisher {score.name!r} failed on outputs of {step.name!r}, of shape {shapes}"):
        same = beside is not None and beside.output == output
        scoring = beside.scoring if beside is not None and same else scoring_of(score, output)
        programs = programs_of(release, scoring)
        programs.score.eval_shape(release, scoring, key, trial_number(0))
    held = {"records": records_in(dataset) or 0, "own_code": not isinstance(release, TracedRelease)}
    size = chunk or chunk_size(step.kind, output, **held)
    if chunk is None and is_summed(release, scoring):
        size = max(size, min(SUMMED_CHUNK, chunk_size(step.kind, programs.read.eval_shape(release, scoring, key))))
    return Program(
        side=side,
        chunk=size,
        output=output,
        release=release,
        scoring=scoring,
        programs=programs,
        mesh=device_mesh(),
    )
