"""Releases whose noise shares random numbers, as in DP-FTRL: they cost what their joint law says."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import Kind, explain

WIDTH = 6
ROWS = 10 * np.random.default_rng(0).normal(size=(4, WIDTH)).astype("f4")
NODES = np.zeros((4, 7), "f4")
NODES[[0, 1, 2, 2, 3], [0, 4, 4, 2, 6]] = 1
BAND = (np.eye(4) - 0.5 * np.eye(4, k=-1)).astype("f4")


def clipped(rows):
    return rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))


def drawn(key, rows):
    return jnp.cumsum(clipped(rows), 0), 4 * jax.random.normal(key, (7, WIDTH))


def one_by_one(key, rows):
    sums, z = drawn(key, rows)
    return jnp.stack([sums[0] + z[0], sums[1] + z[4], sums[2] + z[4] + z[2], sums[3] + z[6]])


def together(key, rows):
    sums, z = drawn(key, rows)
    return jnp.stack([sums[0] + z[0], sums[1] + z[4], sums[2] + (z[4] + z[2]), sums[3] + z[6]])


def of_a_matrix(key, rows):
    sums, z = drawn(key, rows)
    return sums + NODES @ z


def of_a_key_each(key, rows):
    sums, z = jnp.cumsum(clipped(rows), 0), lambda node: 4 * jax.random.normal(jax.random.fold_in(key, node), (WIDTH,))
    first = sums[0] + z(0)
    second = sums[1] + z(4)
    third = sums[2] + (z(4) + z(2))
    return jnp.stack([first, second, third, sums[3] + z(6)])


def banded(key, rows):
    def take(before, own):
        noise = 2.0 * jax.random.normal(own[1], (WIDTH,))
        return noise, own[0] + noise - 0.5 * before

    return jax.lax.scan(take, jnp.zeros(WIDTH), (clipped(rows), jax.random.split(key, 4)))[1]


def banded_again(key, rows):
    """The noise of the round before is drawn again from its key, and not kept."""
    kept = clipped(rows)

    def take(_, step):
        own = 2.0 * jax.random.normal(jax.random.fold_in(key, step), (WIDTH,))
        before = 2.0 * jax.random.normal(jax.random.fold_in(key, step - 1), (WIDTH,))
        return None, kept[step] + (own - 0.5 * jnp.where(step > 0, before, 0.0))

    return jax.lax.scan(take, None, jnp.arange(4))[1]


def banded_leaves(key, rows):
    leaves = {"w": clipped(rows)[:, :4], "b": clipped(rows)[:, 4:]}

    def take(before, own):
        keys = dict(zip(leaves, jax.random.split(own[1]), strict=True))
        noise = {name: 2.0 * jax.random.normal(keys[name], row.shape) for name, row in own[0].items()}
        return noise, jax.tree.map(lambda row, new, old: row + (new - 0.5 * old), own[0], noise, before)

    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:]), leaves)
    return jax.lax.scan(take, start, (leaves, jax.random.split(key, 4)))[1]


def residual(form, weights, before, row, noise):
    """The optimizer of DP-FTRL: the noise of the round before is taken out after this round's is added."""
    kept = clipped((row + 0.1 * weights * jnp.linalg.norm(row))[None])[0]
    return kept - before + noise if form == "before" else kept + noise - before


def trained(form, scale, key, rows):
    noise, weights = scale * NODES @ jax.random.normal(key, (7, WIDTH)), jnp.zeros(WIDTH)
    velocity, before, out = 0.0, 0.0, []

    def take(kept, own):
        noisy = residual(form, kept[0], kept[1], *own)
        return (kept[0] - 0.1 * noisy, own[1]), noisy

    if form == "scan":
        return jax.lax.scan(take, (weights, jnp.zeros(WIDTH)), (rows, noise))[1]
    for row, own in zip(rows, noise, strict=True):
        out.append(residual(form, weights, before, row, own))
        velocity = out[-1] + (0.9 * velocity if form == "momentum" else 0.0)
        weights, before = weights - 0.1 * velocity, own
    return jnp.stack(out)


def running(key, rows):
    total, out = jnp.zeros(WIDTH), []
    for row, own in zip(clipped(rows), jax.random.split(key, len(rows)), strict=True):
        total = total + row + jax.random.normal(own, (WIDTH,))
        out.append(total)
    return jnp.stack(out)


def hardly_covered(key, rows):
    kept, z = clipped(rows), jax.random.normal(key, (2, WIDTH))
    return kept[:2].sum(0) + z[0], kept.sum(0) + (z[0] + 0.1 * z[1])


def written_out_twice(key, rows):
    told = clipped(rows).sum(0) + jax.random.normal(key, (WIDTH,))
    again = 2 * clipped(rows).sum(0) + 2 * jax.random.normal(key, (WIDTH,))
    return {"sum": told, "length": jnp.linalg.norm(again)}


def in_a_dependent_way(key, rows):
    """The third sum has the noise of the two others: whoever has all three takes it away."""
    kept, z = clipped(rows), jax.random.normal(key, (2, WIDTH))
    return kept[:2].sum(0) + z[0], kept[2:].sum(0) + z[1], kept[1:3].sum(0) + (z[0] + z[1])


def told(step, claim=None, record=0, **stated):
    made = mechanisms.mechanism(step, releases="transcript" if step in TRAININGS else "update", **stated)
    return explain(made, mechanisms.zero_out(ROWS, record), key=jax.random.key(0), claim=claim)


TRAININGS = (banded, banded_again, banded_leaves)


def mu_of(matrix, moved):
    return math.sqrt(moved @ np.linalg.solve(matrix @ matrix.T, moved))


@pytest.mark.few(2)
@pytest.mark.parametrize("record", [0, 2])
@pytest.mark.parametrize("step", [one_by_one, together, of_a_matrix, of_a_key_each])
def test_a_tree_costs_what_its_nodes_do(step, record):
    mu = mu_of(4 * NODES, np.arange(4) >= record)
    right = told(step, guarantees.gaussian(mu=mu), record)
    assert right.findings == ()
    assert right.rounds[0].multiplier == pytest.approx(1 / mu, rel=1e-4)
    larger = "the code may use another norm" in str(told(step, guarantees.gaussian(mu=mu), record, clip=1.0))
    assert step is one_by_one or not larger
    wrong = told(step, guarantees.gaussian(mu=mu / 1.1), record)
    assert [one.kind for one in wrong.findings] == [Kind.TOO_LITTLE_NOISE]
    assert step is one_by_one or "over all releases, since they share random numbers" in wrong.findings[0].says


@pytest.mark.few(2)
@pytest.mark.parametrize("record", [0, 1])
@pytest.mark.parametrize("step", TRAININGS)
def test_rounds_of_a_loop_that_share_noise_are_told_as_one(step, record):
    mu = mu_of(2 * BAND, np.eye(4)[record])
    right = told(step, guarantees.gaussian(mu=mu), record)
    assert right.findings == ()
    (row,) = right.rounds
    assert (row.number, row.last, row.multiplier) == (1, 4, pytest.approx(1 / mu, rel=1e-4))
    assert "\n    1-4  " in str(right)
    found = told(step, guarantees.gaussian(mu=mu / 1.1), record).findings
    assert [one.kind for one in found] == [Kind.TOO_LITTLE_NOISE]


@pytest.mark.few(2)
@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("form", ["plain", "before", "scan", "momentum"])
def test_noise_that_the_next_round_takes_out_again_covers_nothing_else(form, scale):
    made = mechanisms.mechanism(functools.partial(trained, form, 3**0.5 * scale), releases="transcript")
    claim = guarantees.gaussian(mu=mu_of(3**0.5 * NODES, np.ones(4)))
    found = explain(made, mechanisms.zero_out(ROWS, 0), key=jax.random.key(0), claim=claim)
    assert [one.kind for one in found.findings] == ([] if scale == 1 else [Kind.TOO_LITTLE_NOISE])


def test_records_that_join_a_release_together_with_more_noise_are_not_said_to_be_bare():
    made = mechanisms.mechanism(running, releases="transcript")
    found = explain(made, mechanisms.zero_out(ROWS, 0), key=jax.random.key(0), claim=guarantees.gaussian(mu=1.0))
    assert {one.kind for one in found.findings} <= {Kind.NOT_FOLLOWED}


@pytest.mark.parametrize(("times", "says"), [(1.0, []), (0.8, [Kind.TOO_LITTLE_NOISE])])
def test_one_round_with_the_record_is_compared_with_what_is_stated_of_a_round(times, says):
    stated = 1 / (times * mu_of(2 * BAND, np.eye(4)[1]))
    assert [one.kind for one in told(banded, record=1, clip=1.0, noise_multiplier=stated).findings] == says


def test_several_rounds_that_cost_more_than_independent_ones_are_not_judged_by_what_is_stated_of_a_round():
    def each_round(key, rows):
        def take(before, own):
            noise = 2.0 * jax.random.normal(own, (WIDTH,))
            return noise, clipped(rows).sum(0) + noise - 0.5 * before

        return jax.lax.scan(take, jnp.zeros(WIDTH), jax.random.split(key, 4))[1]

    made = mechanisms.mechanism(each_round, releases="transcript", clip=1.0, noise_multiplier=2.0)
    explained = explain(made, mechanisms.zero_out(ROWS, 0), key=jax.random.key(0))
    assert [one.kind for one in explained.findings] == [Kind.NOT_FOLLOWED]
    assert "rounds whose noise shares random numbers" in explained.findings[0].says
    assert not any(one.judged for one in explained.rounds)


def test_noise_that_another_release_shows_covers_nothing():
    (found,) = told(hardly_covered, guarantees.gaussian(mu=1.0), record=3).findings
    assert found.kind == Kind.TOO_LITTLE_NOISE
    assert "a noise multiplier of 0.1" in found.says


def test_a_sum_that_is_written_out_again_with_its_noise_is_one_release():
    explained = told(written_out_twice, guarantees.gaussian(mu=1.0))
    assert explained.findings == ()
    assert [one.multiplier for one in explained.rounds] == [pytest.approx(1.0)]


def test_noise_that_others_take_away_is_no_noise():
    explained = told(in_a_dependent_way, guarantees.gaussian(mu=1.0))
    assert Kind.KEY_USED_TWICE in [one.kind for one in explained.suspicions]


def test_rows_that_got_noise_are_no_raw_data():
    def averaged(key, rows):
        one, other = jax.random.split(key)
        each = clipped(rows) + jax.random.normal(one, rows.shape)
        return (clipped(rows).sum(0) + jax.random.normal(other, (WIDTH,)) + each.sum(0)) / 2

    assert [one.kind for one in told(averaged, guarantees.gaussian(mu=2**0.5)).findings] == [Kind.NOT_FOLLOWED]
