"""What is released may be any pytree: the engine asks what it is made of and scores its flat view."""

import dataclasses

import foreign
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import audit
import guarantees
import mechanisms
from audit.trials.both_sides import both_sides
from audit.trials.keys import both_keys
from audit.trials.source import common_layout
from audit.trials.user_code_errors import MechanismError
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout

KEY = jax.random.key(3)
PAIR = Neighbours(without=np.zeros((1, 3)), with_record=np.array([[1.0, 0.0, 0.0]]), relation="zero_out")
PARTS = Layout(names=("first", "rest"), shapes=((), (2,)))


def tree_step(key, dataset):
    noisy = jnp.sum(dataset, axis=0) + 0.5 * jax.random.normal(key, (3,))
    return {"first": noisy[0], "rest": noisy[1:]}


def first(key, output):
    return output[0]


def rounds_step(key, dataset):
    return jax.vmap(lambda i: tree_step(jax.random.fold_in(key, i), dataset))(jnp.arange(4))


rounds_step.kind = rounds_step.releases = "transcript"


def changes_form(key, dataset):
    return jnp.zeros(2 + jnp.shape(dataset)[0])


@pytest.mark.few(1)
@pytest.mark.parametrize("step", [tree_step, mechanisms.callable_step(foreign.released_parts)], ids=["jax", "foreign"])
def test_a_released_pytree_is_scored_by_its_flat_view(step):
    sides = both_sides(step, PAIR)
    assert sides.layout() == PARTS
    without, with_record = sides.outputs(both_keys(KEY), 6, size=4)
    assert without.shape == with_record.shape == (6, 3)
    given = {"trials": 800, "risk": 0.05, "key": KEY, "diagnose": False}
    record = audit.run_audit(step, PAIR, first, claim=guarantees.gaussian(mu=0.5), **given)
    assert (record.verdict, record.releases) == ("violation", "update")
    assert audit.run_audit(step, PAIR, first, claim=guarantees.gaussian(mu=2.0), **given).verdict != "violation"


def test_a_worker_tells_the_layout():
    step = mechanisms.callable_step(foreign.released_parts, workers=1)
    assert both_sides(step, PAIR).layout() == PARTS


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    "step",
    [rounds_step, mechanisms.callable_step(foreign.released_rounds, releases="transcript")],
    ids=["jax", "foreign"],
)
def test_a_transcript_keeps_its_rounds(step):
    sides = both_sides(step, PAIR)
    assert sides.layout() == Layout(names=PARTS.names, shapes=PARTS.shapes, rounds=4)
    assert sides.outputs(both_keys(KEY), 6, size=4)[0].shape == (6, 4, 3)
    claim = guarantees.gaussian(mu=2.0).compose(4)
    record = audit.run_audit(step, PAIR, lambda key, y: y[:, 0].sum(), claim=claim, trials=400, risk=0.05, key=KEY)
    assert record.releases == "transcript"
    assert audit.AuditRecord.to_json(record)["releases"] == "transcript"


def test_a_form_that_differs_between_the_sides_is_said():
    pair = Neighbours(without=np.zeros((1, 3)), with_record=np.zeros((2, 3)), relation="add_remove")
    with pytest.raises(
        MechanismError, match=r"shapes on the two datasets.*: output has \(3,\) without .*, \(4,\) with it"
    ):
        both_sides(changes_form, pair).layout()


def test_another_number_of_steps_is_said_without_the_shapes():
    longer = dataclasses.replace(PARTS, rounds=10)
    with pytest.raises(MechanismError, match=r"8 steps without the record and 10 with it.*choose another N") as told:
        common_layout("train", dataclasses.replace(PARTS, rounds=8), longer)
    assert "(2,)" not in str(told.value)


@pytest.mark.parametrize(
    ("releases", "claim", "message"),
    [
        (
            "update",
            guarantees.gaussian(mu=2.0).compose(4),
            "'tree_step' releases one .* the mechanism is made, say releases=.transcript. .callable_step",
        ),
        ("update", guarantees.poisson_training(rate=1.0, noise_multiplier=1.0, steps=2), "more than one step"),
        ("final", guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0), r"one step, .*\.compose\(steps\)"),
    ],
)
def test_a_release_is_judged_against_a_claim_about_as_much(releases, claim, message):
    pair = Neighbours(without=PAIR.without, with_record=np.ones((2, 3)), relation="add_remove")
    step = mechanisms.mechanism(tree_step, releases=releases)
    with pytest.raises(ValueError, match=message):
        audit.run_audit(step, pair, first, claim=claim, trials=100, risk=0.05, key=KEY)
