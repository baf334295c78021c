"""Releases as any pytree of arrays, and the flat float32 view of them that scores read.

JAX is imported only where a pytree comes: workers of foreign code that gives arrays need not wait for it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpsgd_audit.later import jax
from dpsgd_audit.spelling import counted
from guarantees.checks import require
from mechanisms.contract import Collapsed, OutputKind

PLAIN = "output"
"""Name of the one part of a plain array."""
TRANSCRIPTS = ("transcript", "collapsed_transcript")
OTHER_STEPS = (
    "Where the number of records decides how many batches there are, it decides the sampling rate, too (Opacus's "
    "1/len(loader) changes where N is a multiple of the batch size): choose another N, or fix the rate and the steps. "
    "Where the data or chance decides when a training ends, audit releases='final', with a claim for the most steps"
)
"""Why one record more makes other steps, and what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """Where each tensor of a release stands in its flat view: (size,), or (rounds, size) of a transcript."""

    names: tuple[str, ...]
    """Paths of the tensors, ``params/Dense_0/kernel``, in their order in the flat view."""
    shapes: tuple[tuple[int, ...], ...]
    """Shape of each tensor in one round."""
    rounds: int | None = None
    """Length of a transcript; None for a single release."""

    def __post_init__(self):
        require("shapes", len(self.shapes) == len(self.names), "one for every name", self.shapes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Coordinates of each tensor, in one round."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def told(self) -> str:
        """The shapes and the number of rounds, in words."""
        return f"{self.shapes}" + ("" if self.rounds is None else f" in {counted(self.rounds, 'round')}")

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where each tensor's coordinates stand in one round."""
        ends = tuple(itertools.accumulate(self.sizes, initial=0))
        return tuple(slice(first, last) for first, last in itertools.pairwise(ends))

    @property
    def size(self) -> int:
        """Coordinates of one round."""
        return sum(self.sizes)

    @property
    def entries(self) -> int:
        """Number of coordinates in all rounds."""
        return self.size * (1 if self.rounds is None else self.rounds)


def flatten(output: Any, kind: OutputKind = "vector") -> Any:
    """The float32 view of one output, traced or not: (coordinates,), or (rounds, coordinates) of a transcript.

    A Collapsed and a plain array keep their form.
    """
    import jax.numpy as jnp

    if isinstance(output, Collapsed) or _is_array(output):
        return output
    _ = layout_of(output, kind)
    keep = 1 if kind in TRANSCRIPTS else 0
    parts = [jnp.asarray(leaf) for _, leaf in leaves(output)]
    return jnp.concatenate([part.reshape(*part.shape[:keep], -1).astype(jnp.float32) for part in parts], axis=-1)


def layout_of(output: Any, kind: OutputKind = "vector") -> Layout:
    """Layout of one output, or of its ``jax.eval_shape``; what cannot be flattened is refused."""
    return _layout([(name, np.shape(leaf), getattr(leaf, "dtype", None)) for name, leaf in leaves(output)], kind)


def flatten_rows(outputs: Any, trials: int, kind: OutputKind = "vector") -> tuple[np.ndarray, Layout]:
    """The float32 view of many outputs, on the host: every tensor has the trials as its first axis."""
    named = [(name, host_array(leaf)) for name, leaf in leaves(outputs)]
    for name, array in named:
        if array.ndim < 1 or len(array) != trials:
            raise ValueError(
                f"outputs must have shape ({trials}, coordinates), one row for every seed, got {array.shape}"
                f"{'' if name == PLAIN else f' of {name!r}'}."
            )
    layout = _layout([(name, array.shape[1:], array.dtype) for name, array in named], kind)
    rows = (trials,) if layout.rounds is None else (trials, layout.rounds)
    parts = [_single(name, array).reshape(*rows, -1) for name, array in named]
    return (parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)), layout


class LostDigitsError(ValueError):
    """Float32 cannot hold how releases change from trial to trial."""


TELLING_TRIALS = 32
"""Number of trials from which it is known how far their releases vary."""
STEPS, LOST = 32, 0.25
"""Steps of float32 within which all of them lie where digits may be lost; rounding in deviations that loses them."""
ROUNDING = 1e-12
"""Relative changes below this are float64's own rounding."""


def _single(name: str, array: np.ndarray) -> np.ndarray:
    """The array as float32; a finite number that overflows there is refused by its value."""
    with np.errstate(over="ignore"):
        single = np.asarray(array, np.float32)
    if array.dtype.itemsize > single.dtype.itemsize and (lost := np.isfinite(array) & ~np.isfinite(single)).any():
        raise ValueError(
            f"a release of {array[lost].flat[0]:.3g}{'' if name == PLAIN else f' in {name!r}'} is beyond 3.4e38, the "
            "largest float32, in which releases are stored: scale it down, which does not change what it reveals."
        )
    if array.dtype.itemsize > single.dtype.itemsize and len(array) >= TELLING_TRIALS:
        _refuse_lost_digits(name, array.reshape(len(array), -1), single.reshape(len(array), -1))
    return single


def _refuse_lost_digits(name: str, array: np.ndarray, single: np.ndarray) -> None:
    """Refuse numbers whose changes from trial to trial float32 cannot hold, since no score could see them."""
    largest, steps = np.abs(single).max(axis=0, initial=0.0), np.float32(STEPS)
    with np.errstate(invalid="ignore"):
        near = np.ptp(single, axis=0) <= steps * np.spacing(largest)
    if not near.any():
        return
    own = array[:, near].astype(float)
    deviation, lost = own.std(axis=0), np.abs(own - single[:, near]).max(axis=0)
    gone = (lost > LOST * deviation) & (deviation > ROUNDING * largest[near])
    if gone.any():
        first = int(np.argmax(gone))
        raise LostDigitsError(
            f"releases of {own[0, first]:.4g}{'' if name == PLAIN else f' in {name!r}'} vary by {deviation[first]:.2g} "
            f"from trial to trial, but float32, in which releases are stored, has steps of "
            f"{np.spacing(largest[near][first]):.2g} there: release float32 (`.astype('float32')`, of a tensor "
            "`.float()`) if nobody sees more digits; else subtract a constant, the same on both datasets, which does "
            "not change what they reveal."
        )


def stack(outputs: Sequence[Any]) -> Any:
    """Outputs of several trials as one pytree with the trials first; all must have one form."""
    named = [leaves(output) for output in outputs]
    forms = [[(name, np.shape(leaf)) for name, leaf in own] for own in named]
    for form in forms:
        if form != forms[0]:
            raise ValueError(f"a step must release the same structure in every trial, got {form} after {forms[0]}.")
    parts = {name: np.stack([host_array(own[i][1]) for own in named]) for i, (name, _) in enumerate(named[0])}
    return parts[PLAIN] if [*parts] == [PLAIN] else parts


def leaves(output: Any) -> list[tuple[str, Any]]:
    """Every tensor of an output with its path; lists and tuples of plain numbers are one tensor."""
    if _is_array(output) or _is_numbers(output):
        return [(PLAIN, output)]
    found, _ = jax.tree_util.tree_flatten_with_path(output, is_leaf=lambda part: _is_array(part) or _is_numbers(part))
    return [(jax.tree_util.keystr(path, simple=True, separator="/") or PLAIN, leaf) for path, leaf in found]


def host_array(value: Any) -> np.ndarray:
    """NumPy's view of an array, a number, or a tensor of PyTorch (detached; bfloat16, which NumPy lacks, widened)."""
    detach: Callable[[], Any] | None = getattr(value, "detach", None)
    if detach is not None:
        tensor = detach().cpu()
        value = tensor.float() if "bfloat16" in str(tensor.dtype) else tensor
    return np.asarray(value)


def is_key(value: Any) -> bool:
    """Whether a value holds typed keys of ``jax.random``, which are not numbers."""
    return str(getattr(value, "dtype", "")).startswith("key<")


def host_bits(value: Any) -> np.ndarray:
    """A value for comparing or hashing: ``host_array``, with typed keys of ``jax.random`` as their words."""
    return host_array(jax.random.key_data(value) if is_key(value) else value)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _is_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return len(value) > 0 and all(map(_is_numbers, value))
    return isinstance(value, bool | int | float)


def _layout(parts: Sequence[tuple[str, tuple[int, ...], Any]], kind: OutputKind) -> Layout:
    if not parts:
        raise ValueError(
            "a release must be at least one number: a step must return an array or a tree of arrays; it returned none."
        )
    names = tuple(name for name, _, _ in parts)
    shapes = tuple(tuple(shape) for _, shape, _ in parts)
    for name, _, dtype in parts:
        if str(dtype).startswith("key<"):
            raise ValueError(
                f"the released tensor {name!r} must be of real numbers and holds keys of jax.random: leave them out of "
                "the release, or release jax.random.key_data(keys) if an adversary sees them."
            )
        good = dtype is None or str(dtype).startswith(("float", "bfloat", "int", "uint", "bool", "torch."))
        require(f"the released tensor {name!r}", good, "of real numbers (split complex ones)", str(dtype))
    rounds = None
    if kind in TRANSCRIPTS:
        lengths = {shape[:1] for shape in shapes}
        require("a transcript", len(lengths) == 1 and lengths != {()}, "tensors with one first axis of rounds", shapes)
        (rounds,), shapes = lengths.pop(), tuple(shape[1:] for shape in shapes)
    layout = Layout(names=names, shapes=shapes, rounds=rounds)
    require("a release", layout.entries > 0, "at least one number", shapes)
    return layout
