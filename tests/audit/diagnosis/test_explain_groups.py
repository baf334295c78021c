"""Records that are cut into groups: what is done in a group is told as where there is one group, at the same lines."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import explain
from audit.diagnosis.explain.findings import Kind

KEY = jax.random.key(0)


def lengths(rows, axis=1):
    return jnp.sqrt(jnp.sum(jnp.square(rows), axis=axis))[:, None]


def clipped(rows):
    return jnp.sum(rows / jnp.maximum(lengths(rows), 1.0), axis=0)


def centred(rows):
    return clipped(rows - rows.mean(axis=0))  # FAULT


def over_the_largest(rows):
    return clipped(rows / jnp.maximum(jnp.abs(rows).max(axis=0), 1e-6))  # FAULT


def wrong_axis(rows):
    norms = jnp.sqrt(jnp.sum(jnp.square(rows), axis=0))[:, None]  # FAULT
    return jnp.sum(rows / jnp.maximum(norms, 1.0), axis=0)


def root_of_the_length(rows):
    shrink = 1 / jnp.maximum(jnp.sqrt(lengths(rows)), 1.0)  # FAULT
    return jnp.sum(rows * shrink, axis=0)


def half_measured(rows):
    norms = jnp.sqrt(jnp.sum(jnp.square(rows[:, :2]), axis=1))[:, None]  # FAULT
    return jnp.sum(rows / jnp.maximum(norms, 1.0), axis=0)


def scanned(group, groups):
    return jax.lax.scan(lambda total, rows: (total + group(rows), None), jnp.zeros(4), groups)[0]


def mapped(group, groups):
    return jax.vmap(group)(groups).sum(0)


def one_by_one(group, groups):
    return sum(group(rows) for rows in groups)


def in_groups(group, way):
    def step(key, rows):
        groups = jnp.pad(rows, ((0, -len(rows) % 4), (0, 0))).reshape(-1, 4, 4)
        return way(group, groups) + jax.random.normal(key, (4,))

    return step


def told(group, way, records):
    rows = 3 * np.random.default_rng(0).normal(size=(records + 1, 4)).astype(np.float32)
    return explain(in_groups(group, way), mechanisms.pair(rows[:-1], rows), key=KEY, clip=1.0, noise_multiplier=1.0)


MIXED, FURTHER = Kind.RECORDS_MIXED_BEFORE_SUM, Kind.TOO_LITTLE_NOISE
FAULTS = {
    centred: MIXED,
    over_the_largest: MIXED,
    wrong_axis: MIXED,
    root_of_the_length: Kind.NOT_CLIPPED,
    half_measured: FURTHER,
}
CASES = [(group, way, 7) for group in FAULTS for way in (scanned, mapped)]
CASES += [(group, scanned, 8) for group in (centred, over_the_largest, wrong_axis)]


@pytest.mark.few(4)
@pytest.mark.parametrize(("group", "way", "records"), CASES)
def test_a_fault_in_a_group_is_named_at_its_line(group, way, records):
    finding = told(group, way, records).findings[0]
    source, start = inspect.getsourcelines(group)
    (fault,) = (start + number for number, line in enumerate(source) if "# FAULT" in line)
    assert finding.kind == FAULTS[group], finding
    assert finding.lines[0] == (__file__, fault), finding


@pytest.mark.few(3)
@pytest.mark.parametrize("way", [scanned, mapped, one_by_one])
@pytest.mark.parametrize("records", [5, 7, 8])
def test_right_groups_are_left_alone(way, records):
    found = told(clipped, way, records)
    assert not found.findings
    assert [one.multiplier for one in found.rounds] == [pytest.approx(1.0, rel=1e-4)]


def test_groups_of_strided_records_that_are_clipped_together_are_named():
    def step(key, rows):
        groups = jnp.pad(rows, ((0, -len(rows) % 4), (0, 0))).reshape(-1, 4, 4).sum(0)
        return clipped(groups) + jax.random.normal(key, (4,))

    rows = 3 * np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    found = explain(step, mechanisms.pair(rows[:-1], rows), key=KEY, clip=1.0, noise_multiplier=1.0).findings
    assert [one.kind for one in found] == [Kind.CLIPPED_AFTER_SUM]


@pytest.mark.parametrize("records", [5, 6, 7])
def test_a_fixed_number_of_groups_holds_other_records_with_one_more_and_mixes_none(records):
    def step(key, rows):
        groups = jnp.pad(rows, ((0, len(rows) % 2), (0, 0))).reshape(2, -1, 4)
        return jax.vmap(clipped)(groups).sum(0) + jax.random.normal(key, (4,))

    rows = 3 * np.random.default_rng(0).normal(size=(records + 1, 4)).astype(np.float32)
    found = explain(step, mechanisms.pair(rows[:-1], rows), key=KEY, clip=1.0, noise_multiplier=1.0).findings
    # six records lie in groups of three, seven in groups of four: these rows cannot be compared
    assert [one.kind for one in found] == [Kind.NOT_FOLLOWED] * (records == 6)


def test_packed_batches_in_one_more_group_are_not_called_mixed():
    def step(key, rows):
        own, noise = jax.random.split(key)
        taken, room = jax.random.bernoulli(own, 0.5, (len(rows),)), -len(rows) % 4
        order = jnp.argsort(~taken, stable=True)
        rows, kept = rows[jnp.pad(order, (0, room))], jnp.pad(taken[order], (0, room))

        def add(total, group):
            rows, kept = group
            clipped = rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))
            return total + kept.astype(rows.dtype) @ clipped, None

        groups = rows.reshape(-1, 4, 2), kept.reshape(-1, 4)
        return jax.lax.scan(add, jnp.zeros(2), groups)[0] + jax.random.normal(noise, (2,))

    told = explain(step, mechanisms.worst_case_pair(records=4, dimension=2, clip=1.0), key=jax.random.key(1))
    assert not told.suspicions


def torn(rows):
    lengths = jnp.sqrt(jnp.sum(jnp.square(rows.reshape(-1, len(rows))), axis=0))  # FAULT
    return (rows / jnp.maximum(lengths, 1.0)[:, None]).sum(0)


def torn_and_put_together(rows):
    return clipped(jnp.square(rows.reshape(-1, len(rows))).reshape(len(rows), -1))


@pytest.mark.parametrize("total", [torn, torn_and_put_together])
def test_rows_of_pieces_of_several_records_mix_them_unless_they_are_put_together_again(total):
    rows = 3 * np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)

    def step(key, rows):
        return total(rows) + jax.random.normal(key, (4,))

    pair = mechanisms.pair(rows[:-1], rows)
    found = explain(step, pair, key=KEY, clip=1.0, noise_multiplier=1.0).suspicions
    fault = (__file__, inspect.getsourcelines(total)[1] + 1)
    assert [(one.kind, one.lines[0]) for one in found] == ([(MIXED, fault)] if total is torn else [])
