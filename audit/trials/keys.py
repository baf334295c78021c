"""Keys of an audit, each named by its purpose. Every one is a function of the caller's key and of numbers alone."""

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
"""Folded into the caller's key before it is split: ``split(key)`` of the caller's own gives none of our keys."""


LEARN = 0x6C656172
"""Folded into the audit's own key for what a learner learns from: none of the split ones, which are small numbers."""


def require_key(key: Any) -> None:
    """Refuse what is no key."""
    if not (hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(f"key must be made with jax.random.key(seed), got {key!r}.")


class AuditKeys(NamedTuple):
    """Trials that fix a test and trials that judge it, without and with the record; and what learning draws from."""

    fit_without: jax.Array
    fit_with: jax.Array
    without: jax.Array
    with_record: jax.Array
    learn: jax.Array


class TrialKeys(NamedTuple):
    """What one trial's release draws from, and what its score breaks ties with."""

    release: jax.Array
    score: jax.Array


def key_from_seed(seed: int) -> jax.Array:
    """The key of a seed from 0 to 2^32 - 1."""
    require_seed(seed)
    return jax.random.key(seed, impl=IMPLEMENTATION)


def audit_keys(key: jax.Array) -> AuditKeys:
    """The keys of one audit."""
    own = fold_in(key, AUDIT)
    fit_without, fit_with, without, with_record = split(own, 4)
    return AuditKeys(fit_without, fit_with, without, with_record, fold_in(own, LEARN))


def both_keys(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Keys without and with the record, for outputs that serve a purpose of their own."""
    without, with_record = split(key)
    return without, with_record


def trial_number(number: int) -> Words:
    """A trial's 64-bit number, as what compiled programs are given."""
    require("trial", 0 <= number < 2**64, "in [0, 2^64)", number)
    # on the host: moving a number to a device by itself is a program of its own
    return Words(*(cast(jax.Array, np.uint32(word)) for word in (number >> 32, number & 0xFFFFFFFF)))


def trial_numbers(numbers: Sequence[int]) -> Words:
    """Several trials' numbers, one after the other."""
    words = np.array(numbers, np.uint64)
    return Words(jnp.asarray((words >> np.uint64(32)).astype(np.uint32)), jnp.asarray(words.astype(np.uint32)))


def trials_from(first: Words, size: int, offset: jax.Array | int = 0) -> Words:
    """The numbers of ``size`` trials, the first of them ``offset`` (below 2^32) after ``first``."""
    start = first.low + jnp.asarray(offset, jnp.uint32)
    low = start + jnp.arange(size, dtype=jnp.uint32)
    # uint32 wraps around, at most once here and once below
    carried = (start < first.low).astype(jnp.uint32) + (low < start).astype(jnp.uint32)
    return Words(first.high + carried, low)


def hidden(key: jax.Array, turn: jax.Array) -> jax.Array:
    """The same key in every turn (an int32, not negative) of a loop, without XLA's knowing.

    It would take each sum of a key's word and a constant out of the loop, and compile it as a program of its own.
    """
    words = jax.random.key_data(key) + (turn >> 31).astype(jnp.uint32)
    return jax.random.wrap_key_data(words, impl=str(jax.random.key_impl(key)))


def trial_keys(key: jax.Array, trial: Words) -> TrialKeys:
    """Both keys of one trial, from one call of the generator; always threefry2x32 ones, whatever the given one is."""
    if str(jax.random.key_impl(key)) != IMPLEMENTATION:
        key = jax.random.wrap_key_data(jax.random.bits(key, (2,), jnp.uint32), impl=IMPLEMENTATION)
    drawn = blocks(key, Stream.TRIAL, trial.low, trial.high)
    release, score = (jax.random.wrap_key_data(jnp.stack(pair), impl=IMPLEMENTATION) for pair in drawn)
    return TrialKeys(release, score)
