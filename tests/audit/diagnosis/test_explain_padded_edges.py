"""Padding that repeats the last record, and rows that ``top_k`` picks."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import guarantees
import mechanisms
from audit.diagnosis.explain import explain

ROWS = 3 * np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)


def clipped(rows):
    return rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))


def padded(key, rows, *, masked):
    places = -(-len(rows) // 4) * 4
    taken = jnp.arange(places) < len(rows) if masked else jnp.ones(places)  # a mask of ones
    batch = jnp.pad(rows, ((0, places - len(rows)), (0, 0)), mode="edge")  # wrong
    return (taken[:, None] * clipped(batch)).sum(0) + jax.random.normal(key, (6,))


def unmasked(key, rows):
    return padded(key, rows, masked=False)


def masked(key, rows):
    return padded(key, rows, masked=True)


def largest(key, rows):
    choose, noise = jax.random.split(key)
    _, places = lax.top_k(jax.random.uniform(choose, (len(rows),)), 2)
    return clipped(rows)[places].sum(0) + 2 * jax.random.normal(noise, (6,))


def told(step, records, **stated):
    pair = mechanisms.pair(ROWS[:records], ROWS[: records + 1], relation="add_remove")
    return explain(step, pair, key=jax.random.key(0), clip=1.0, **stated)


def line(function, words):
    source, start = inspect.getsourcelines(function)
    return __file__, start + next(number for number, line in enumerate(source) if words in line)


@pytest.mark.parametrize(
    ("records", "where", "why"),
    [(5, "# wrong", "holds a record more than once"), (7, "# a mask of ones", "takes the place of padding")],
)
def test_a_record_that_padding_repeats_is_named_where_it_is_padded_or_by_what_takes_it(records, where, why):
    (found,) = told(unmasked, records, noise_multiplier=1.0).findings
    assert found.kind == "too_little_noise"
    assert found.lines[0] == line(padded, where)
    assert why in found.says


@pytest.mark.parametrize("records", [5, 7])
def test_such_padding_behind_a_mask_is_right(records):
    assert told(masked, records, noise_multiplier=1.0).is_as_stated(1.0)


def test_rows_that_top_k_picks_are_no_padding():
    """They were called padding that counts in the sum, and the numbers that choose them noise."""
    found = told(largest, 5, noise_multiplier=2.0)
    assert found.suspicions == ()
    assert [one.kind for one in found.findings] == ["not_followed"]


def test_rows_that_top_k_picks_on_both_sides_are_followed():
    pair = mechanisms.pair(ROWS[:6], np.concatenate([ROWS[:5], ROWS[7:]]), relation="substitution")
    found = explain(largest, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=2.0)
    assert found.findings == ()
    assert all(one.judged and one.exact for one in found.rounds)


def repeated(key, rows, *, masked):
    places = jnp.arange(8)
    batch = rows[places]  # wrong
    taken = places < len(rows) if masked else jnp.ones(8)  # a mask of ones
    return (taken[:, None] * clipped(batch)).sum(0) + jax.random.normal(key, (6,))


def filled(key, rows, *, masked):
    choose, noise = jax.random.split(key)
    taken, last = jax.random.bernoulli(choose, 0.5, (len(rows),)), len(rows) - 1
    order = jnp.nonzero(taken, size=len(rows), fill_value=last)[0]
    batch = clipped(rows[order])  # wrong
    if masked:
        batch = (jnp.arange(len(rows)) < taken.sum())[:, None] * batch
    return batch.sum(0) + jax.random.normal(noise, (6,))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("function", "where", "why"),
    [(repeated, "# a mask of ones", "nothing random decides the mask"), (filled, "# wrong", "the place of padding")],
)
@pytest.mark.parametrize("masked", [False, True])
def test_padding_that_counts_is_the_reason_that_is_told_of_a_record_in_every_batch(function, where, why, masked):
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0)

    def step(key, rows):
        return function(key, rows, masked=masked)

    findings = told(step, 5, claim=claim).findings
    if masked:
        assert not [one for one in findings if "padding" in one.says]
    else:
        assert findings[0].kind == "in_every_batch"
        assert why in findings[0].says
        assert findings[0].lines[0] == line(function, where)


def packed(key, rows, *, fill, masked, bound):
    choose, noise = jax.random.split(key)
    taken = jax.random.bernoulli(choose, 0.5, (len(rows),))
    order = jnp.nonzero(taken, size=8, fill_value=fill)[0]
    batch = rows[order]  # padding
    filled = jnp.arange(8) < taken.sum()
    lengths = jnp.linalg.norm(batch, axis=1)
    factor = jnp.minimum(1.0, bound / lengths)  # clips
    factor = filled * factor if masked else factor
    return factor @ batch + jax.random.normal(noise, (6,))


def in_parts(key, rows, *, fill, masked, bound):
    choose, noise = jax.random.split(key)
    taken = jax.random.bernoulli(choose, 0.5, (len(rows),))
    order = jnp.nonzero(taken, size=8, fill_value=fill)[0]
    batch = rows[order]  # padding
    filled = jnp.arange(8) < taken.sum()

    def add(total, part):
        own, counts = part
        factor = jnp.minimum(1.0, bound / jnp.linalg.norm(own, axis=1))  # clips
        factor = counts * factor if masked else factor
        return total + factor @ own, None

    parts = batch.reshape(2, 4, 6), filled.reshape(2, 4)
    return jax.lax.scan(add, jnp.zeros(6), parts)[0] + jax.random.normal(noise, (6,))


def one_by_one(key, rows, *, fill, masked, bound):
    choose, noise = jax.random.split(key)
    taken = jax.random.bernoulli(choose, 0.5, (len(rows),))
    order = jnp.nonzero(taken, size=8, fill_value=fill)[0]
    batch = rows[order]  # padding

    def add(total, part):
        own, counts = part
        factor = jnp.minimum(1.0, bound / jnp.linalg.norm(own))  # clips
        factor = counts * factor if masked else factor
        return total + factor * own, None

    return jax.lax.scan(add, jnp.zeros(6), (batch, jnp.arange(8) < taken.sum()))[0] + jax.random.normal(noise, (6,))


@pytest.mark.few(2)
@pytest.mark.parametrize("function", [packed, in_parts, one_by_one])
@pytest.mark.parametrize("fill", [0, -1])
@pytest.mark.parametrize(("masked", "bound"), [(True, 1.0), (True, 2.0), (False, 1.0)])
def test_padding_is_a_reason_where_it_counts_and_only_there(function, fill, masked, bound):
    """A wrong bound was called a record that a batch holds twice, and padding that counts a wrong bound."""
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0)
    pair = mechanisms.pair(np.ones((4, 6), np.float32), np.r_[np.ones((4, 6)), -5 * np.ones((1, 6))].astype(np.float32))

    def step(key, rows):
        return function(key, rows, fill=fill, masked=masked, bound=bound)

    found = explain(step, pair, key=jax.random.key(0), clip=1.0, claim=claim)
    if masked and bound == 1.0:
        assert found.is_as_stated(1.0)
    else:
        # a caller that hands the wrong bound over may stand before the line that clips to it
        assert line(function, "# clips" if masked else "# padding") in found.findings[0].lines[: 1 + 2 * masked]
        assert all("padding" not in one.says and "more than once" not in one.says for one in found.findings) == masked


def noisy_unless_empty(key, rows, *, form):
    choose, noise = jax.random.split(key)
    taken = jax.random.uniform(choose, (len(rows),)) < 0.5
    drawn = jax.random.normal(noise, (6,))
    total = (taken[:, None] * clipped(rows)).sum(0)
    deviation = jnp.where(taken.sum() > 0, 1.0, 0.0 if form == "where" else 1.0)
    return total + deviation * drawn


@pytest.mark.few(2)
@pytest.mark.parametrize("form", ["where", "right"])
def test_noise_that_an_empty_batch_lacks_is_found_whoever_is_in_the_batch(form):
    """Where others were in the batch of every run it was not judged."""
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0)

    def step(key, rows):
        return noisy_unless_empty(key, rows, form=form)

    for seed in range(3):
        pair = mechanisms.pair(ROWS[:5], ROWS[:6], relation="add_remove")
        found = explain(step, pair, key=jax.random.key(seed), clip=1.0, claim=claim)
        if form == "right":
            assert found.suspicions == ()
        else:
            assert found.findings[0].kind in ("released_without_noise", "noise_scale_from_data")


def wrapped(key, rows, *, front, masked):
    more = 16 - len(rows)
    taken = jnp.arange(16) >= more if front else jnp.arange(16) < len(rows)
    batch = jnp.pad(rows, ((more, 0) if front else (0, more), (0, 0)), mode="wrap")  # again
    return (taken if masked else jnp.ones(16)) @ clipped(batch) + jax.random.normal(key, (6,))


@pytest.mark.parametrize("front", [False, True])
@pytest.mark.parametrize("records", [5, 7])
def test_padding_with_other_records_mixes_none(records, front):
    """It was called ``records_mixed_before_sum``: each row of the padding is another one with a record more."""

    def step(key, rows):
        return wrapped(key, rows, front=front, masked=True)

    pair = mechanisms.pair(
        np.tile(ROWS, (2, 1))[: 8 + records], np.tile(ROWS, (2, 1))[: 9 + records], relation="add_remove"
    )
    assert explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).findings == ()


@pytest.mark.parametrize("front", [False, True])
def test_records_that_padding_counts_again_are_named_there(front):
    def step(key, rows):
        return wrapped(key, rows, front=front, masked=False)

    pair = mechanisms.pair(np.tile(ROWS, (2, 1))[:14], np.tile(ROWS, (2, 1))[:15], relation="add_remove")
    (found,) = explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).findings
    assert found.lines[0] == line(wrapped, "# again"), found
    assert "a batch holds a record more than once" in found.says or "takes the place of padding" in found.says
