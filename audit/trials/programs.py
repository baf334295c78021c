"""Compiled programs, shared between audits by structure: a second audit with other numbers compiles nothing.

A release and a score that are structured (mechanisms.structure) are arguments of programs that every audit shares.
Other code, above all a user's function, is traced again in every audit, since what it reads may have changed; its
compiled program is used again only if the trace is the same to the last number.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import math
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from audit.trials.cells import NONE_BROKEN, count_cells
from audit.trials.devices import on_every_device, unstacked
from audit.trials.jaxprs import holds
from audit.trials.kept_programs import LAPACK, KeptProgram
from audit.trials.keys import hidden_from_xla, key_from_seed, trial_keys, trials_from
from distinguishers.contract import Distinguisher, OwnScore, Reads
from mechanisms.contract import Mechanism, StructuredRelease, release_on
from mechanisms.names import name_of
from mechanisms.pairs.neighbours import GradientTable, prepare
from mechanisms.randomness.bits import Words
from mechanisms.randomness.noise import SHORT
from mechanisms.release import flatten, host_bits
from mechanisms.structure import is_ours, is_structured, structured

Release = Callable[[jax.Array], Any]
Scoring = Callable[[jax.Array, Any], jax.Array]
KEPT = 32
"""Most programs of code without structure that are kept; those of structured parts JAX keeps by the thousand."""
LARGEST_CONSTANTS = 2**24
"""Most bytes of constants in a program that is kept, as it holds them in memory."""
NOT_IN_THE_TEXT = frozenset({"custom_vmap_call", "ffi_call"})
"""Equations whose rule for many trials at once is not in the text of a program for one."""
CALLS_PYTHON = "callback"
"""Occurs in the text of a program that calls back into Python; the text is the same whatever it calls."""
_ALONE = itertools.count()


class Programs(NamedTuple):
    """Programs from keys to outputs, scores and counts: parts are arguments, sizes static; one runs on all devices."""

    output: Any
    read: Any
    score: Any
    draw_chunk: Any
    score_chunk: Any
    count_chunks: Any
    score_outputs: Any
    count_everywhere: Any


def _make_programs(*, once: bool = False, in_turn: bool = False) -> Programs:
    """Programs that take a release and a score as arguments; ``once`` and ``in_turn`` as in KeptProgram."""

    def output(release: Release, key: jax.Array) -> Any:
        return release(key)

    def read(release: Release, scoring: Scoring, key: jax.Array) -> Any:
        return _read(release, scoring, key)

    def score(release: Release, scoring: Scoring, key: jax.Array, trial: Words) -> jax.Array:
        keys = trial_keys(key, trial)
        return jnp.atleast_1d(scoring(keys.score, _read(release, scoring, keys.release)))

    def draw_chunk(release: Release, key: jax.Array, first: Words, *, size: int) -> Any:
        trials = trials_from(first, size)
        return jax.vmap(lambda trial: release(trial_keys(key, trial).release))(trials)

    def score_chunk(
        release: Release, scoring: Scoring, key: jax.Array, first: Words, offset: jax.Array | int = 0, *, size: int
    ) -> jax.Array:
        trials = trials_from(first, size, offset)
        return jax.vmap(lambda trial: score(release, scoring, key, trial))(trials)

    def count_chunks(
        release: Release,
        scoring: Scoring,
        key: jax.Array,
        start: Words,
        count: jax.Array,
        edges: jax.Array,
        *,
        size: int,
    ) -> tuple[jax.Array, jax.Array]:
        def add(index: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            counts, bad = carry
            offset = index * size
            places = offset + jnp.arange(size, dtype=jnp.int32)
            wanted = places < count
            found = score_chunk(release, scoring, hidden_from_xla(key, index), start, offset, size=size)
            broken = wanted & ~jnp.isfinite(found).all(axis=1)
            bad = jnp.minimum(bad, jnp.where(broken, places, NONE_BROKEN).min())
            return counts + count_cells(found, wanted, edges), bad

        zero = jnp.zeros((edges.shape[0], edges.shape[1] + 1), jnp.int32)
        return jax.lax.fori_loop(0, -(-count // size), add, (zero, jnp.int32(NONE_BROKEN)))

    def score_outputs(scoring: Scoring, key: jax.Array, trials: Words, outputs: Any) -> jax.Array:
        def score_output(trial: Words, output: Any) -> jax.Array:
            return jnp.atleast_1d(scoring(trial_keys(key, trial).score, output))

        return jax.vmap(score_output)(trials, outputs)

    def count_everywhere(
        release: Release,
        scoring: Scoring,
        key: jax.Array,
        starts: Words,
        counts: jax.Array,
        edges: jax.Array,
        *,
        size: int,
        mesh: Mesh,
    ) -> tuple[jax.Array, jax.Array]:
        def on_device(release: Release, scoring: Scoring, key: Any, start: Words, count: Any, edges: Any) -> Any:
            found = count_chunks(release, scoring, key, unstacked(start), unstacked(count), edges, size=size)
            return jax.tree.map(lambda value: value[None], found)

        everywhere = on_every_device(mesh, on_device, own=(False, False, False, True, True, False))
        return everywhere(release, scoring, key, starts, counts, edges)

    shapes = KeptProgram(output, once=once, in_turn=in_turn)

    def draws_long_vector(release: Release, *rest: Any) -> bool:
        released = shapes.eval_shape(release, key_from_seed(0))
        return sum(leaf.size for leaf in jax.tree.leaves(released)) > SHORT

    def reads_long_vector(scoring: Scoring, key: jax.Array, trials: Words, outputs: Any) -> bool:
        return sum(leaf.size for leaf in jax.tree.leaves(outputs)) > SHORT * len(trials.low)

    kept = functools.partial(KeptProgram, once=once, in_turn=in_turn, long=draws_long_vector)
    sized = functools.partial(kept, static=("size",))
    return Programs(
        output=shapes,
        read=kept(read),
        score=kept(score),
        draw_chunk=sized(draw_chunk),
        score_chunk=sized(score_chunk),
        count_chunks=sized(count_chunks),
        score_outputs=KeptProgram(score_outputs, once=once, in_turn=in_turn, long=reads_long_vector),
        count_everywhere=kept(count_everywhere, static=("size", "mesh")),
    )


def is_summed(release: Release, scoring: Scoring) -> bool:
    """Whether the score reads only sums of a long vector, which the release can draw without the vector."""
    span = _span(scoring)
    return span is not None and is_ours(release) and cast(StructuredRelease, release).sums(span)


def _span(scoring: Any) -> int | None:
    """How many coordinates a score of ours reads; None for others, where the same attribute may mean something else."""
    return cast(Reads, scoring).span if isinstance(scoring, TracedScoring) or is_ours(scoring) else None


def _read(release: Any, scoring: Any, key: jax.Array) -> Any:
    """The output or, if that is enough, only the sums that the score reads."""
    return release.summary(key, scoring.span) if is_summed(release, scoring) else release(key)


SHARED = _make_programs()
"""Programs for all structured parts."""


class Code:
    """A function known by the text that it was lowered to; it lives as long as its owner.

    JAX compares two of them to find a program: equal digests mean equal text, down to every constant.
    """

    def __init__(self, digest: str, function: Callable[..., Any], *, alone: bool = False, in_turn: bool = False):
        self.digest, self.alone, self.in_turn = digest, alone, in_turn
        self._function = weakref.ref(function)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        function = self._function()
        assert function is not None
        return function(*arguments)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@structured(numbers=("data",), structure=("code",))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TracedRelease:
    """A mechanism without structure; only its dataset is an argument of programs."""

    code: Code
    data: Any
    function: Callable[..., Any] | None = None
    """Referenced here, so that the code lives as long as this."""

    def __call__(self, key: jax.Array) -> Any:
        """The output of one key."""
        return self.code(key, self.data)


@structured(structure=("code", "span"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TracedScoring:
    """A distinguisher without structure."""

    code: Code
    span: int | None = None
    """Number of first coordinates that it reads beside the mean square of the others; None if it may read all."""
    function: Callable[..., Any] | None = None

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The score of one output."""
        return self.code(key, output)


SCORE_TRACED = (
    "JAX traces a score, called as score(key, output): use jnp.where in place of `if`, and no float(), int() or NumPy."
)


def _lowered(function: Callable[..., Any], *arguments: Any) -> Code:
    # without keep_unused the text would not show which arguments were dropped
    """Lower a function for these arguments, to compare it with others by its text."""
    traced = jax.jit(function, keep_unused=True).trace(*arguments)
    text, constants = traced.lower().as_text(), [host_bits(value) for value in traced.jaxpr.consts]
    large = sum(value.nbytes for value in constants) > LARGEST_CONSTANTS
    if CALLS_PYTHON in text or large or holds(traced.jaxpr, NOT_IN_THE_TEXT):
        return Code(f"alone {next(_ALONE)}", function, alone=True, in_turn=LAPACK in text)
    digest = hashlib.sha256(text.encode())
    for value in constants:
        digest.update(value.tobytes())
    return Code(digest.hexdigest(), function, in_turn=LAPACK in text)


def release_of(mechanism: Mechanism, dataset: Any) -> Release:
    """The release of a mechanism on one dataset, as an argument of programs."""
    given = prepare(mechanism, dataset)
    structured_release = release_on(mechanism, given)
    if structured_release is not None and is_structured(structured_release):
        return jax.device_put(structured_release)
    # a table of a few numbers on the host is built into the program; arrays are its arguments
    table = isinstance(given, GradientTable)

    def release(key: jax.Array, data: Any) -> Any:
        return flatten(mechanism(key, given if table else data), mechanism.kind)

    data = None if table else given
    return TracedRelease(code=_lowered(release, key_from_seed(0), data), data=data, function=release)


def scoring_of(distinguisher: Distinguisher, output: Any) -> Scoring:
    """A distinguisher as an argument of programs, for outputs of the shape of this one."""
    if is_structured(distinguisher):
        _compare_lengths(cast(OwnScore, distinguisher), output)
        return jax.device_put(distinguisher)

    def scoring(key: jax.Array, output: Any) -> jax.Array:
        return distinguisher(key, output)

    try:
        code = _lowered(scoring, key_from_seed(0), output)
    except jax.errors.JAXTypeError as error:
        said = str(error).splitlines()[0].rstrip(".")
        raise TypeError(f"the score {name_of(distinguisher)!r} cannot be compiled: {said}. {SCORE_TRACED}") from error
    return TracedScoring(code=code, span=_span(distinguisher), function=scoring)


def _compare_lengths(distinguisher: OwnScore, output: Any) -> None:
    """Refuse outputs of another length than the distinguisher reads."""
    length, round_length, shape = distinguisher.length, distinguisher.round_length, getattr(output, "shape", None)
    # transcripts are read flat
    if length is not None and shape is not None and math.prod(shape) != length:
        raise ValueError(f"an output must have shape ({length},), got {shape}.")
    if round_length is not None and shape is not None and shape[-1] != round_length:
        raise ValueError(f"every round must have shape ({round_length},), got {shape[-1:]}.")


def programs_of(*parts: Any) -> Programs:
    """Programs for these parts: shared ones for structured parts, others by their code."""
    codes = tuple(part.code for part in parts if isinstance(part, TracedRelease | TracedScoring))
    if any(code.alone for code in codes):
        return _make_programs(once=True, in_turn=any(code.in_turn for code in codes))
    return _programs_of_code(codes) if codes else SHARED


@functools.lru_cache(maxsize=KEPT)
def _programs_of_code(codes: tuple[Code, ...]) -> Programs:
    """Programs for parts without structure."""
    return _make_programs(once=True, in_turn=any(code.in_turn for code in codes))
