"""Samplers: marginals, disjointness, sizes, and the same law in sufficient statistics."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import FALSE_FAILURE, assert_rate_is
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mechanisms import sampling
from mechanisms.randomness.stream_buffer import leaving_law

KEY = jax.random.key(20261115)
RECORDS = 12
DRAWS = 6_000
SAMPLERS = {
    "poisson": sampling.poisson(rate=0.3, steps=4),
    "truncated_poisson": sampling.truncated_poisson(rate=0.5, steps=4, most=5),
    "shuffle": sampling.shuffle(batch_size=5),
    "deterministic": sampling.deterministic(batch_size=5),
    "deterministic dropped": sampling.deterministic(batch_size=5, position=11),
    "fixed_size": sampling.fixed_size(batch_size=5, steps=4),
    "balls_and_bins": sampling.balls_and_bins(steps=4),
    "buffer 1": sampling.shuffle_buffer(batch_size=5, buffer=1, position=3),
    "buffer 4": sampling.shuffle_buffer(batch_size=3, buffer=4, position=5),
    "buffer 4, last": sampling.shuffle_buffer(batch_size=3, buffer=4),
    "buffer of all": sampling.shuffle_buffer(batch_size=3, buffer=50, position=2),
}


@functools.cache
def epochs(sampler, count=DRAWS, records=RECORDS):
    keys = jax.vmap(jax.random.fold_in, (None, 0))(KEY, jnp.arange(count))
    batches = jax.jit(jax.vmap(lambda key: sampler(key, records)))(keys)
    seen = jax.jit(jax.vmap(lambda key: sampler.attendance(key, records)))(keys)
    return jax.tree.map(np.asarray, (batches, seen))


LATER = ("deterministic dropped", "buffer 1", "buffer of all", "buffer 4, last", "fixed_size")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.long] if name in LATER else []) for name in SAMPLERS],
)
def drawn(request):
    sampler = SAMPLERS[request.param]
    return sampler, *epochs(sampler)


def memberships(batches, records=RECORDS):
    """(draws, rounds, records): how often each record is in each batch."""
    one_hot = np.eye(records)[batches.records] * batches.mask[..., None]
    return one_hot.sum(axis=2)


@pytest.mark.few(1)
def test_a_batch_holds_no_record_twice(drawn):
    _, batches, _ = drawn
    assert memberships(batches).max() <= 1


@pytest.mark.few(2)
def test_batches_that_share_an_epoch_are_disjoint(drawn):
    sampler, batches, _ = drawn
    if isinstance(sampler, sampling.FixedBatches | sampling.BallsAndBins):
        assert memberships(batches).sum(axis=1).max() <= 1


@pytest.mark.few(2)
def test_sizes_are_those_of_the_rule(drawn):
    sampler, batches, _ = drawn
    sizes = batches.mask.sum(axis=2)
    if hasattr(sampler, "batch_size"):
        assert (sizes == sampler.batch_size).all()
        assert batches.records.shape[1] == sampler.rounds(RECORDS)
    if isinstance(sampler, sampling.TruncatedPoisson):
        assert sizes.max() == sampler.most
    if isinstance(sampler, sampling.BallsAndBins):
        assert (sizes.sum(axis=1) == RECORDS).all()


@pytest.mark.few(2)
def test_counting_alike_records_has_the_same_law_as_naming_them(drawn):
    _, batches, seen = drawn
    named = memberships(batches)
    record, others = named[..., -1], named[..., :-1].sum(axis=2)
    for t in range(record.shape[1]):
        # the pair (others, record) of a round, by a chi-square test of two samples
        ours = np.stack([others[:, t] * 2 + record[:, t], seen.others[:, t] * 2 + seen.record[:, t]]).astype(int)
        values = np.unique(ours)
        table = np.array([[np.sum(row == value) for value in values] for row in ours])
        kept = table.sum(axis=0) >= 20
        if kept.sum() > 1:
            assert stats.chi2_contingency(table[:, kept]).pvalue > FALSE_FAILURE
        else:
            assert kept.sum() == 1


def test_places_are_the_law_of_the_records_batch(drawn):
    sampler, batches, seen = drawn
    if not isinstance(sampler, sampling.FixedBatches):
        return
    places = sampler.places(RECORDS)
    named = memberships(batches)[..., -1]
    for t, weight in enumerate(places):
        assert_rate_is(int(named[:, t].sum()), DRAWS, weight)
        assert_rate_is(int(seen.record[:, t].sum()), DRAWS, weight)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "chance"),
    [("poisson", 0.3), ("shuffle", 5 / 12), ("fixed_size", 5 / 12), ("balls_and_bins", 0.25), ("buffer of all", 0.25)],
)
def test_every_record_has_the_same_chance(name, chance):
    batches, _ = epochs(SAMPLERS[name])
    for attended in memberships(batches).sum(axis=0).ravel():
        assert_rate_is(int(attended), DRAWS, chance)


@given(buffer=st.integers(1, 40), records=st.integers(1, 30), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_record_leaves_the_buffer_exactly_once(buffer, records, data):
    position = data.draw(st.integers(0, records - 1))
    law = leaving_law(min(buffer, records), position, records)
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    assert (law >= 0).all()
    assert (law[: max(0, position - buffer + 1)] == 0).all()


def test_dummies_are_marked():
    batches, _ = epochs(SAMPLERS["poisson"])
    assert batches.mask.min() == 0
    assert set(np.unique(batches.mask)) <= {0.0, 1.0}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sampling.poisson(rate=0.0, steps=1), "rate must be"),
        (lambda: sampling.poisson(rate=0.5, steps=0), "steps must be"),
        (lambda: sampling.shuffle(batch_size=0), "batch_size must be"),
        (lambda: sampling.shuffle(batch_size=5).rounds(4), "at most the 4 records"),
        (lambda: sampling.shuffle_buffer(batch_size=1, buffer=0), "buffer must be"),
        (lambda: sampling.deterministic(batch_size=1, position=9).places(4), "position must be"),
        (lambda: sampling.truncated_poisson(rate=0.5, steps=2, most=0), "most must be"),
    ],
)
def test_bad_samplers_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
