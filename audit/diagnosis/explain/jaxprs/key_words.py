"""Keys and their draws by NumPy: XLA would compile a program for every shape of a key and of a draw."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from audit.trials.threefry import IMPLEMENTATION, PARITY, ROTATIONS

NUMBERED = "jax_threefry_partitionable"
"""Whether JAX numbers the entries of a draw one by one."""
LARGE_DRAW = 2**16
"""Numbers above which a draw is worth compiling."""


@dataclasses.dataclass(frozen=True, eq=False)
class Words:
    """An array of keys by the words that they are made of, along its last axis."""

    words: np.ndarray
    dtype: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the keys."""
        return self.words.shape[:-1]

    @property
    def ndim(self) -> int:
        """Of the keys."""
        return self.words.ndim - 1

    @property
    def size(self) -> int:
        """Keys."""
        return self.words[..., 0].size

    def __getitem__(self, index: Any) -> Words:
        """Keys by their places along the first axes."""
        return Words(self.words[index], self.dtype)

    @property
    def keys(self) -> jax.Array:
        """As JAX has them."""
        return jax.random.wrap_key_data(jnp.asarray(self.words), impl=IMPLEMENTATION)


def is_key(array: Any) -> bool:
    """Whether an array holds keys."""
    if isinstance(array, np.ndarray):
        return False
    return jnp.issubdtype(getattr(array, "dtype", np.dtype(bool)), jax.dtypes.prng_key)


def as_words(array: Any) -> Any:
    """Keys of the generator that is known here by their words; everything else as it is."""
    known = isinstance(array, jax.Array) and is_key(array) and str(jax.random.key_impl(array)) == IMPLEMENTATION
    return Words(np.asarray(jax.random.key_data(array)), array.dtype) if known else array


def as_keys(array: Any) -> Any:
    """What JAX's own functions take."""
    return array.keys if isinstance(array, Words) else array


def threefry(keys: np.ndarray, high: np.ndarray, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Threefry-2x32 with 20 rounds on arrays that broadcast. [salmon2011, section 3.3]"""
    one, two = keys[..., 0], keys[..., 1]
    schedule = (one, two, one ^ two ^ np.uint32(PARITY))
    with np.errstate(over="ignore"):
        x, y = high + one, low + two
        for block in range(5):
            for turn in ROTATIONS[block % 2]:
                x = x + y
                y = (y << np.uint32(turn) | y >> np.uint32(32 - turn)) ^ x
            x = x + schedule[(block + 1) % 3]
            y = y + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return x, y


def _counted(words: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Two words for each entry of a shape, for each key."""
    numbers = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)
    keys = words.reshape(*words.shape[:-1], *[1] * len(shape), 2)
    return threefry(keys, (numbers >> np.uint64(32)).astype(np.uint32), numbers.astype(np.uint32))


def _split(out: Any, params: dict[str, Any], keys: Words) -> Any:
    return np.stack(_counted(keys.words, params["shape"]), axis=-1) if _in_any_order() else None


def _bits(out: Any, params: dict[str, Any], keys: Words) -> Any:
    if not _in_any_order() or out.size > LARGE_DRAW:
        return None
    high, low = _counted(keys.words, params["shape"])
    if params["bit_width"] == 64:
        return high.astype(np.uint64) << np.uint64(32) | low
    return (high ^ low).astype(out.dtype)


def _folded(out: Any, params: dict[str, Any], keys: Words, number: Any) -> Any:
    number = np.asarray(number).astype(np.uint32)
    words = np.broadcast_to(keys.words, (*out.shape, 2))
    return np.stack(threefry(words, np.zeros_like(number), number), axis=-1)


def _in_any_order() -> bool:
    """Whether JAX numbers draws as it does by default, and as is done here."""
    return bool(getattr(jax.config, NUMBERED))


def _slice(out: Any, params: dict[str, Any], keys: Words) -> Any:
    bounds = zip(params["start_indices"], params["limit_indices"], params["strides"] or [1] * keys.ndim, strict=True)
    return keys.words[tuple(slice(*bound) for bound in bounds)]


def _broadcast(out: Any, params: dict[str, Any], keys: Words) -> Any:
    shape = [1] * len(params["shape"])
    for size, dim in zip(keys.shape, params["broadcast_dimensions"], strict=True):
        shape[dim] = size
    return np.broadcast_to(keys.words.reshape(*shape, 2), (*params["shape"], 2))


def _reshaped(out: Any, params: dict[str, Any], keys: Words) -> Any:
    return keys.words.reshape(*out.shape, 2) if params.get("dimensions") is None else None


def _dynamic_slice(out: Any, params: dict[str, Any], keys: Words, *starts: Any) -> Any:
    sizes = params["slice_sizes"]
    first = [int(np.clip(start, 0, most - size)) for start, most, size in zip(starts, keys.shape, sizes, strict=True)]
    return keys.words[tuple(slice(start, start + size) for start, size in zip(first, sizes, strict=True))]


RULES: dict[str, Callable[..., Any]] = {
    "random_split": _split,
    "random_bits": _bits,
    "random_fold_in": _folded,
    "random_unwrap": lambda out, params, keys: keys.words,
    "slice": _slice,
    "squeeze": lambda out, params, keys: keys.words.reshape(*out.shape, 2),
    "reshape": _reshaped,
    "broadcast_in_dim": _broadcast,
    "dynamic_slice": _dynamic_slice,
    "copy": lambda out, params, keys: keys.words,
    "copy_p": lambda out, params, keys: keys.words,
}
"""What is done to keys; a rule that gives None leaves the equation to JAX."""


def of_keys(equation: Any, values: list[Any]) -> Any:
    """The result of an equation whose first operand is keys; None where JAX has to make it."""
    rule, out = RULES.get(equation.primitive.name), equation.outvars[0].aval
    if rule is None or any(isinstance(value, Words) for value in values[1:]):
        return None
    found = rule(out, equation.params, *values)
    if found is None:
        return None
    return Words(found, out.dtype) if is_key(out) else np.asarray(found, out.dtype)
