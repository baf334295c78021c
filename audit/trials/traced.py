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
from audit.trials.devices import device_mesh, devices_in, trials_per_device
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
    DrawListener,
    Scored,
    Source,
    common_layout,
    complete,
    ignore_draws,
    joined,
    not_finite,
    piece_size,
    require_finite,
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
"""Most output coordinates drawn at once on a CPU: more do not fit its caches."""
DEVICE_CHUNK_ENTRIES = 2**28
"""Most output coordinates drawn at once on an accelerator, where occupancy matters more."""
LARGEST_CHUNK = 2**12
"""Most trials drawn at once on a CPU."""
SUMMED_CHUNK = 2**6
"""Fewest trials on a CPU if long vectors are summed as they are drawn: few scores take as long as many."""
LARGEST_DEVICE_CHUNK = 2**20
"""Most trials drawn at once on an accelerator."""
LARGEST_COLLAPSED_CHUNK = 2**15
"""Most statistics drawn at once on an accelerator: scoring each takes hundreds of mixture terms."""
TRACED = (
    "A step is called as step(key, dataset) and traced by JAX; code that JAX cannot trace is "
    'mechanisms.callable_step(function), called as function(seed, dataset) (kind = "callable_step" in a suite).'
)
NUMBERS = np.generic | int | float | complex
EDGES = 208
"""Grids are padded to a multiple of this many edges, so that all that policies use share one program."""
MOST_AT_ONCE = 2**30
"""Most trials that one call of a program counts, in 32-bit integers; their sums have 64 bits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A compiled program that draws, scores and counts on one dataset; outputs never leave the device."""

    side: str
    chunk: int
    output: Any
    """Shapes and dtypes of one output."""
    release: Release
    scoring: Scoring
    programs: Programs
    mesh: Mesh | None = None
    """Devices that share the trials, if there are several."""

    def source(self, key: jax.Array) -> CompiledSource:
        """The scores that belong to one key."""
        return CompiledSource(program=self, key=key)

    def score_chunk(self, key: jax.Array, first: Words) -> jax.Array:
        """Scores of one chunk of trials."""
        return self.programs.score_chunk(self.release, self.scoring, key, first, size=self.chunk)

    def count(self, key: jax.Array, first: int, count: int, edges: jax.Array) -> np.ndarray:
        """Count how many of ``count`` trials fall in each cell; refuses a score that is not finite."""
        if self.mesh is None:
            parts, starts = (self.release, self.scoring, key), [first]
            found = self.programs.count_chunks(*parts, trial_number(first), np.int32(count), edges, size=self.chunk)
            counts, first_broken = (np.asarray(value)[None] for value in found)
        else:
            counts_by_device = trials_per_device(count, devices=self.mesh.size, size=self.chunk)
            starts = [first + sum(counts_by_device[:device]) for device in range(len(counts_by_device))]
            counts, first_broken = self.programs.count_everywhere(
                self.release,
                self.scoring,
                key,
                trial_numbers(starts),
                jnp.asarray(counts_by_device, jnp.int32),
                edges,
                size=self.chunk,
                mesh=self.mesh,
            )
        broken = [start + int(place) for start, place in zip(starts, first_broken, strict=True) if place != NONE_BROKEN]
        if broken:
            raise not_finite(min(broken), self.side)
        return np.asarray(counts, np.int64).sum(axis=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledSource(Source):
    """Scores of a program under one key, where trial i is a function of (key, i) alone."""

    program: Program
    key: jax.Array

    @property
    def chunk(self) -> int:
        """Trials drawn at once by all devices together."""
        return self.program.chunk * devices_in(self.program.mesh)

    def scores(self, start: int, stop: int, drew: DrawListener = ignore_draws) -> np.ndarray:
        """Scores of fit and pilot trials, which are few; kept on the host, drawn on one device."""
        parts, size = [], self.program.chunk
        for first in range(start, stop, size):
            count = min(size, stop - first)
            part = np.asarray(self.program.score_chunk(self.key, trial_number(first)))[:count]
            require_finite(part, first, self.program.side)
            parts.append(part)
            drew(len(part))
        return np.concatenate(parts)

    def cells(self, start: int, stop: int, edges: np.ndarray) -> np.ndarray:
        """Counts of any number of trials, made on the device."""
        width = edges.shape[1]
        # padding repeats the last edge, which adds empty cells only
        rows = jnp.asarray(np.pad(edges, ((0, 0), (0, -width % EDGES)), mode="edge"), jnp.float32)
        total = np.zeros((rows.shape[0], rows.shape[1] + 1), np.int64)
        for first in range(start, stop, MOST_AT_ONCE):
            total += self.program.count(self.key, first, min(MOST_AT_ONCE, stop - first), rows)
        return complete(np.concatenate([total[:, :width], total[:, -1:]], axis=1), stop - start)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TracedSides:
    """Source of trials of a mechanism that JAX traces."""

    mechanism: Mechanism
    neighbours: Neighbours
    _draws: dict[tuple[str, int], Draw] = dataclasses.field(default_factory=dict)

    def scored(
        self, distinguisher: Distinguisher, *, chunk: int | None = None, learnt: bool = False
    ) -> tuple[Scored, Scored]:
        """Scores of both sides, by one program if their structure is the same, compiled when first used.

        A learned score is compiled separately from the draws.
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
        """Layout of the outputs, from their shapes alone."""
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
        drew: DrawListener = ignore_draws,
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

        # in parallel, since compiling the two programs takes longer than the draws
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
        """Stream outputs without the record on the device; only what ``read`` returns leaves it."""
        draw = self._draw("without", size)
        program = jax.jit(lambda first: read(draw(key, first)))
        for index in range(pieces):
            use(program(trial_number(index * size)))

    def _draw(self, side: str, size: int) -> Draw:
        """Program that draws ``size`` trials of a side from a given one on."""
        if (side, size) not in self._draws:
            release = self._release(side)
            self._draws[side, size] = functools.partial(programs_of(release).draw_chunk, release, size=size)
        return self._draws[side, size]

    def _release(self, side: str) -> Release:
        """Release of the mechanism on the dataset of a side."""
        dataset = self.neighbours.without if side == "without" else self.neighbours.with_record
        with traced(self.mechanism, side):
            return release_of(self.mechanism, dataset)


def shapes_of(mechanism: Mechanism, dataset: Any, side: str) -> Any:
    """Shapes and dtypes of the output on one side's dataset."""
    given = prepare(mechanism, dataset)
    with traced(mechanism, side):
        structured_release = release_on(mechanism, given)
        if structured_release is not None and is_structured(structured_release):
            return programs_of(structured_release).output.eval_shape(structured_release, key_from_seed(0))
        return jax.eval_shape(lambda key: _released(mechanism, mechanism(key, given)), key_from_seed(0))


def _released(mechanism: Mechanism, output: Any) -> Any:
    """Return an output if it consists of arrays, otherwise raise."""
    if why := why_no_release(output):
        raise ValueError(f"{why}{written_at(as_given(mechanism))}")
    return output


def why_no_release(output: Any) -> str:
    """Say why what a step returned is no release, as a clause; "" if it is one."""
    leaves = jax.tree.leaves(output)
    wrong = [type(leaf).__name__ for leaf in leaves if not isinstance(leaf, jax.Array | np.ndarray | NUMBERS)]
    if not wrong and leaves:
        return ""
    return f"it returns {f'a {wrong[0]}' if wrong else 'nothing'}, and a step must return an array or a tree of arrays"


@contextlib.contextmanager
def traced(mechanism: Mechanism, side: str) -> Iterator[None]:
    """Name the side in errors of a step that JAX traces and, where it may help, say how steps are called."""
    try:
        with blamed(f"{mechanism.name!r} failed on the side {side!r}"):
            yield
    except MechanismError as error:
        # code for integer seeds fails on a key (TypeError), or makes numbers too large for JAX (OverflowError)
        if isinstance(error.__cause__, TypeError | OverflowError) and isinstance(mechanism, Step):
            raise MechanismError(f"{str(error).rstrip('.')}. {TRACED}") from error.__cause__
        raise


def chunk_size(kind: OutputKind, output: Any, *, records: int = 0, own_code: bool = True) -> int:
    """Number of trials to draw at once, for outputs of this shape, the dataset's size and the device.

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
    """Program of one side of an audit, compiled when first used. Scores do not depend on the chunk size.

    ``beside`` is the program of the other side, whose score is shared if the outputs have the same shape.
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
