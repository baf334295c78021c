"""Keys and their draws by NumPy: XLA would compile a program for every shape of a key and of a draw."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from audit.trials.threefry import IMPLEMENTATION, threefry

NUMBERED = "jax_threefry_partitionable"
"""Whether JAX numbers the entries of a draw one by one."""
LARGE_DRAW = 2**16
"""Numbers above which a draw is worth compiling."""
KEY = np.dtype([("first", np.uint32), ("second", np.uint32)])
"""A key by the two words that it is made of: NumPy moves keys as it moves numbers."""
OF_NUMPY = np.ndarray | np.void
"""Several such keys, or one that was taken out of them."""


def is_key(array: Any) -> bool:
    """Whether an array holds keys, JAX's own or by their words."""
    dtype = getattr(array, "dtype", None)
    return dtype == KEY or (not isinstance(array, OF_NUMPY) and jnp.issubdtype(dtype or bool, jax.dtypes.prng_key))


def as_words(array: Any) -> Any:
    """Keys of the generator that is known here by their words; everything else as it is."""
    if isinstance(array, np.void):
        return np.asarray(array)
    known = isinstance(array, jax.Array) and is_key(array) and str(jax.random.key_impl(array)) == IMPLEMENTATION
    return _keys(np.asarray(jax.random.key_data(array))) if known else array


def as_keys(array: Any) -> Any:
    """What JAX's own functions take."""
    if not isinstance(array, OF_NUMPY) or array.dtype != KEY:
        return array
    return jax.random.wrap_key_data(jnp.asarray(words_of(array)), impl=IMPLEMENTATION)


def words_of(keys: Any) -> np.ndarray:
    """The words of keys along a last axis."""
    if not isinstance(keys, OF_NUMPY):
        return np.asarray(jax.random.key_data(keys))
    return np.stack([keys["first"], keys["second"]], axis=-1)


def _keys(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words).view(KEY)[..., 0]


def _drawn(keys: np.ndarray, high: np.ndarray, low: np.ndarray) -> list[np.ndarray]:
    """Two words of each key for two counters, in arrays that broadcast."""
    with np.errstate(over="ignore"):
        words: Any = threefry((keys["first"], keys["second"]), (high, low))
    return [np.asarray(part, np.uint32) for part in words]


def _counted(keys: np.ndarray, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Two words for each entry of a shape, for each key."""
    numbers = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)
    each = keys.reshape((*keys.shape, *[1] * len(shape)))
    return _drawn(each, (numbers >> np.uint64(32)).astype(np.uint32), numbers.astype(np.uint32))


def _split(out: Any, params: dict[str, Any], keys: np.ndarray) -> Any:
    return _keys(np.stack(_counted(keys, params["shape"]), axis=-1)) if _in_any_order() else None


def _bits(out: Any, params: dict[str, Any], keys: np.ndarray) -> Any:
    if not _in_any_order() or out.size > LARGE_DRAW:
        return None
    high, low = _counted(keys, params["shape"])
    if params["bit_width"] == 64:
        return high.astype(np.uint64) << np.uint64(32) | low
    return (high ^ low).astype(out.dtype)


def _folded(out: Any, params: dict[str, Any], keys: np.ndarray, number: np.ndarray) -> Any:
    number = np.broadcast_to(number.astype(np.uint32), out.shape)
    return _keys(np.stack(_drawn(keys, np.zeros_like(number), number), axis=-1))


def _in_any_order() -> bool:
    """Whether JAX numbers draws as it does by default, and as is done here."""
    return bool(getattr(jax.config, NUMBERED))


RULES = {
    "random_split": _split,
    "random_bits": _bits,
    "random_fold_in": _folded,
    "random_unwrap": lambda out, params, keys: words_of(keys),
}
"""What is done to keys alone; a rule that gives None leaves the equation to JAX."""
