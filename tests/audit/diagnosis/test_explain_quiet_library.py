"""Bugs deep inside of a library: each is found, and its own line stands first."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from diagnosis import quiet_library

import guarantees
import mechanisms
from audit.diagnosis.explain import explain
from audit.diagnosis.explain.jaxprs.facts import Release
from audit.diagnosis.explain.places import NOWHERE
from mechanisms.adapters import noise_terms

KINDS = {
    "norm_without_head": "too_little_noise",
    "per_leaf": "too_little_noise",
    "over_leaves": "too_little_noise",
    "half": "too_little_noise",
    "mean_norm": "records_mixed_before_sum",
    "median": "records_mixed_before_sum",
    "class_weight": "records_mixed_before_sum",
    "scalar": "key_used_twice",
    "tiled": "key_used_twice",
    "flipped": "key_used_twice",
    "batch_key": "key_used_twice",
    "same_key": "key_used_twice",
    "bias": "released_without_noise",
    "mask_ignored": "in_every_batch",
    "key_from_data": "randomness_from_data",
    "rate": "randomness_from_data",
}
FAST = ("flipped", "over_leaves", "bias")
"""One of each way to find the line; the others are long."""


def told(bug, monkeypatch, seed=0):
    monkeypatch.setattr(quiet_library, "BUG", bug)
    training = bug == "same_key"
    made = mechanisms.mechanism(
        quiet_library.train if training else quiet_library.step,
        releases="final" if training else "update",
        clip=quiet_library.CLIP,
        noise_multiplier=quiet_library.NOISE,
    )
    claim = guarantees.subsampled_gaussian(rate=quiet_library.RATE, noise_multiplier=quiet_library.NOISE)
    return explain(made, quiet_library.pair(), key=jax.random.key(seed), claim=None if training else claim)


def line_of(bug):
    with open(quiet_library.__file__) as source:
        (found,) = [number for number, line in enumerate(source, 1) if line.rstrip().endswith(f"# BUG: {bug}")]
    return quiet_library.__file__, found


@pytest.mark.few(1)
@pytest.mark.parametrize("bug", [pytest.param(bug, marks=() if bug in FAST else pytest.mark.long) for bug in KINDS])
def test_the_line_of_a_bug_stands_first(bug, monkeypatch):
    found = told(bug, monkeypatch).suspicions[0]
    assert found.kind == KINDS[bug]
    assert found.lines[0] == line_of(bug), found
    assert f"quiet_library.py:{found.lines[0][1]}" in found.says


@pytest.mark.long
@pytest.mark.parametrize("form", ["", "more"])
def test_nothing_is_said_about_right_noise(form, monkeypatch):
    assert told(form, monkeypatch).findings == ()


@pytest.mark.parametrize("sign", [-1, 1])
def test_noise_that_cancels_along_the_record_is_too_little(sign):
    def step(key, rows):
        clipped = rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))
        noise = jax.random.normal(key, rows.shape[1:])
        return clipped.sum(axis=0) + 0.8**0.5 * noise + sign * 0.2**0.5 * jnp.roll(noise, 1)

    pair = mechanisms.add_record(np.eye(4, dtype="f4"), np.full(4, 2.0, "f4"))
    told = explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert told.rounds[0].multiplier == pytest.approx(0.8**0.5 + sign * 0.2**0.5, rel=1e-4)
    assert [one.kind for one in told.findings] == (["too_little_noise"] if sign < 0 else [])
    assert all("less in the record's direction, since they share random numbers" in one.says for one in told.findings)


@pytest.mark.parametrize(("shared", "dearer"), [(0.0, False), (-0.5, True), (0.5, False)])
def test_noise_that_is_less_along_the_record_costs_more_than_its_coordinates(shared, dearer):
    moved, block = np.ones(2), noise_terms.Block(np.arange(2), np.array([[1.0, shared], [shared, 1.0]]))
    release = Release(
        at=NOWHERE,
        draw=NOWHERE,
        origin=None,
        round=(),
        first=True,
        moved=moved,
        variance=moved,
        exact=True,
        taken=np.zeros(2, bool),
        blocks=[block],
    )
    assert (release.cost > 1.001 * release.cost_apart) is dearer


def centred(x):
    return x - x.mean()


def told_of_centred_noise(of_sum, width=4, rest=1.0):
    def step(key, rows):
        clipped = rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))
        noise, total = jax.random.normal(key, rows.shape[1:]), clipped.sum(axis=0)
        return of_sum(total[:-2]) + centred(noise[:-2]), total[-2:] + noise[-2:]

    record = np.arange(1.0, width + 1, dtype="f4")
    record[-2:] *= rest
    pair = mechanisms.add_record(np.eye(4, width, dtype="f4"), record)
    return explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)


@pytest.mark.few(2)
@pytest.mark.parametrize("rest", [1.0, 3e3])
@pytest.mark.parametrize(("of_sum", "kinds"), [(centred, []), (jnp.positive, ["key_used_twice"])])
def test_a_direction_without_noise_matters_where_the_record_moves_along_it(of_sum, kinds, rest):
    assert [one.kind for one in told_of_centred_noise(of_sum, rest=rest).suspicions][:1] == kinds


@pytest.mark.few(2)
@pytest.mark.parametrize("of_sum", [centred, jnp.positive])
@pytest.mark.parametrize(("limit", "number"), [("LARGEST_BLOCK", 8), ("MOST_TERMS", 50)])
def test_noise_that_depends_on_itself_in_too_many_coordinates_is_not_judged(of_sum, limit, number, monkeypatch):
    monkeypatch.setattr(noise_terms, limit, number)
    told = told_of_centred_noise(of_sum, 12)
    assert [one.kind for one in told.findings] == ["not_followed"]
    assert [one.judged for one in told.rounds] == [False]


@pytest.mark.long
@pytest.mark.parametrize("bug", ["raw_norm", "empty"])
def test_raw_data_that_change_nothing_on_the_pair_are_not_called_right(bug, monkeypatch):
    (found,) = told(bug, monkeypatch).findings
    assert found.kind == "not_followed"
    assert found.lines[0] == line_of(bug), found
    assert "another record could change it" in found.says


@pytest.mark.long
def test_a_median_that_a_bound_hides_on_the_pair_is_found(monkeypatch):
    (found,) = told("idle_median", monkeypatch).findings
    assert found.kind == "records_mixed_before_sum"
    assert found.lines[0] == line_of("idle_median"), found
    assert f"quiet_library.py:{found.lines[0][1]} hides it on this pair" in found.says


def test_noise_that_a_bound_hides_on_the_pair_from_its_data_is_found():
    def step(key, rows):
        total = (rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=1, keepdims=True))).sum(axis=0)
        scale = jnp.minimum(1.0, jnp.linalg.norm(total))
        return total + scale * jax.random.normal(key, total.shape)

    pair = mechanisms.add_record(np.full((3, 4), 2.0, "f4"), np.full(4, 3.0, "f4"))
    (found,) = explain(step, pair, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).findings
    assert found.kind == "noise_scale_from_data"
    assert found.lines[0] == (__file__, step.__code__.co_firstlineno + 2), found.says


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_no_seed_hides_weights_that_depend_on_others(seed, monkeypatch):
    assert told("class_weight", monkeypatch, seed).suspicions[0].kind == "records_mixed_before_sum"
