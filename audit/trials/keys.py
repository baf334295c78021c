"""Keys of an audit, named by their purpose. Each is a function of the caller's key and of numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from audit.trials.seeds import require_seed
from audit.trials.threefry import IMPLEMENTATION, fold_in, split
from guarantees.checks import require
from mechanisms.randomness.bits import Stream, Words, blocks

AUDIT = 0x64702D61
"""Folded into the caller's key before it is split, so that ``split(key)`` of the caller gives none of our keys."""


LEARN = 0x6C656172
"""Folded into the audit's key for learning, which no split key equals: these fold in small numbers."""


def require_key(key: Any) -> None:
    """Refuse what is not a key."""
    if not (hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(f"key must be made with jax.random.key(seed), got {key!r}.")


class AuditKeys(NamedTuple):
    """Keys of the trials that fix a test and of those that judge it, without and with the record, and of learning."""

    fit_without: jax.Array
    fit_with: jax.Array
    without: jax.Array
    with_record: jax.Array
    learn: jax.Array


class TrialKeys(NamedTuple):
    """Keys of the release of one trial and of its score, which breaks ties."""

    release: jax.Array
    score: jax.Array


def key_from_seed(seed: int) -> jax.Array:
    """The key of a seed from 0 to 2^32 - 1."""
    require_seed(seed)
    return jax.random.key(seed, impl=IMPLEMENTATION)


def audit_keys(key: jax.Array) -> AuditKeys:
    """The keys of one audit."""
    folded = fold_in(key, AUDIT)
    fit_without, fit_with, without, with_record = split(folded, 4)
    return AuditKeys(fit_without, fit_with, without, with_record, fold_in(folded, LEARN))


def both_keys(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Keys without and with the record, for outputs with a purpose of their own."""
    without, with_record = split(key)
    return without, with_record


def trial_number(number: int) -> Words:
    """A trial's 64-bit number, in the form that compiled programs take."""
    require("trial", 0 <= number < 2**64, "in [0, 2^64)", number)
    # on the host, since moving a single number to a device compiles a program
    return Words(*(cast(jax.Array, np.uint32(word)) for word in (number >> 32, number & 0xFFFFFFFF)))


def trial_numbers(numbers: Sequence[int]) -> Words:
    """Numbers of several trials, in the form that compiled programs take."""
    words = np.array(numbers, np.uint64)
    return Words(jnp.asarray((words >> np.uint64(32)).astype(np.uint32)), jnp.asarray(words.astype(np.uint32)))


def trials_from(first: Words, size: int, offset: jax.Array | int = 0) -> Words:
    """Numbers of ``size`` trials, the first one ``offset`` (below 2^32) after ``first``."""
    start = first.low + jnp.asarray(offset, jnp.uint32)
    low = start + jnp.arange(size, dtype=jnp.uint32)
    # uint32 wraps around, at most once here and once below
    carried = (start < first.low).astype(jnp.uint32) + (low < start).astype(jnp.uint32)
    return Words(first.high + carried, low)


def hidden_from_xla(key: jax.Array, turn: jax.Array) -> jax.Array:
    """A key, unchanged in every turn (a non-negative int32) of a loop, in a form that XLA cannot see through.

    Otherwise XLA takes each sum of a word of the key and a constant out of the loop, and compiles it as a separate
    program.
    """
    words = jax.random.key_data(key) + (turn >> 31).astype(jnp.uint32)
    return jax.random.wrap_key_data(words, impl=str(jax.random.key_impl(key)))


def trial_keys(key: jax.Array, trial: Words) -> TrialKeys:
    """Both keys of one trial, from one call of the generator; always threefry2x32 keys, whatever the given one is."""
    if str(jax.random.key_impl(key)) != IMPLEMENTATION:
        key = jax.random.wrap_key_data(jax.random.bits(key, (2,), jnp.uint32), impl=IMPLEMENTATION)
    drawn = blocks(key, Stream.TRIAL, trial.low, trial.high)
    release, score = (jax.random.wrap_key_data(jnp.stack(pair), impl=IMPLEMENTATION) for pair in drawn)
    return TrialKeys(release, score)
