"""A user's own training in JAX: a linear model, whose every update is known."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mechanisms
from audit.trials.both_sides import both_sides
from audit.trials.keys import both_keys
from mechanisms import sampling
from mechanisms.contract import Mechanism
from mechanisms.pairs.gradient_pairs import gradient_pair
from mechanisms.release import flatten

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
DATA = {"x": ROWS, "y": np.array([1, 0, 1, 0])}
KEY = jax.random.key(7)
ADAM = optax.adam(0.1)


def init(key):
    weights = {"w": jax.random.normal(key, (3,)), "b": jnp.zeros(())}
    return weights, ADAM.init(weights)


def loss(weights, record):
    return record["y"] * (weights["w"] @ record["x"] + weights["b"])


def batch_loss(weights, batch):
    if batch["x"].ndim < 2:
        raise ValueError("a batch has two axes")
    return jnp.mean(batch["x"] @ weights["w"])


def update(key, state, batch, mask):
    weights, moments = state
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))(weights, batch)
    sums = jax.tree.map(lambda g: jnp.tensordot(mask, g, axes=1), gradients)
    noisy = jax.tree.map(lambda s: s + 1e-3 * jax.random.normal(key, s.shape), sums)
    step, moments = ADAM.update(noisy, moments)
    return (optax.apply_updates(weights, step), moments), noisy


def full_update(key, state, batch):
    return update(key, state, batch, jnp.ones(len(batch["y"])))


def everyone(key, records):
    return jnp.arange(records)


def alternating(key, records):
    return jnp.arange(4).reshape(2, 2)


def coin(key, records):
    return jax.random.bernoulli(key, 0.5, (records,))


def training(sampler=everyone, step=full_update, **more):
    return mechanisms.jax_training(
        init, step, sampler, **{"steps": 3, "loss": loss, "weights": lambda state: state[0], **more}
    )


@pytest.mark.long
def test_what_is_released_is_the_update_every_update_or_the_way_of_the_weights():
    transcript = training()(KEY, DATA)
    assert {name: part.shape for name, part in transcript.items()} == {"w": (3, 3), "b": (3,)}
    np.testing.assert_allclose(transcript["w"], np.tile(ROWS[0] + ROWS[2], (3, 1)), atol=0.01)
    one = training(releases="update")(KEY, DATA)
    np.testing.assert_array_equal(one["w"], transcript["w"][0])
    moved = training(releases="final")(KEY, DATA)
    # Adam goes its learning rate a step where gradients do not change
    np.testing.assert_allclose(moved["w"], [0.3, 0.3, 0.3], atol=0.01)
    assert flatten(transcript, "transcript").shape == (3, 4)


def test_a_training_says_what_it_is():
    own = training(sampler={"kind": "poisson", "rate": 0.5, "steps": 2}, step=update, releases="final")
    assert (own.name, own.releases, own.kind, training().kind) == ("update", "final", "vector", "transcript")
    assert own.parameters["sampler"] == {"kind": "poisson", "rate": 0.5, "steps": 2}
    assert isinstance(own, Mechanism)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("sampler", "step", "batches"),
    [
        (everyone, full_update, [[0, 1, 2, 3]] * 3),
        (alternating, full_update, [[0, 1], [2, 3], [0, 1]]),
        (sampling.deterministic(batch_size=2), full_update, [[0, 1], [2, 3], [0, 1]]),
        (lambda key, records: jnp.array([True, False, True, True]), update, [[0, 2, 3]] * 3),
        (lambda key, records: (jnp.array([0, 1]), jnp.array([1.0, 0.0])), update, [[0]] * 3),
    ],
)
def test_any_sampler_makes_the_batches(sampler, step, batches):
    found = jax.jit(lambda key: training(sampler, step)(key, DATA))(KEY)["w"]
    wanted = [sum(DATA["y"][i] * ROWS[i] for i in batch) for batch in batches]
    np.testing.assert_allclose(found, wanted, atol=0.01)


def test_batches_differ_between_steps_and_trials():
    draws = jax.jit(jax.vmap(lambda key: training(coin, update, steps=8)(key, DATA)["b"]))(jax.random.split(KEY, 8))
    assert len(np.unique(np.round(draws), axis=0)) > 4
    assert all(len(np.unique(np.round(row))) > 1 for row in np.asarray(draws))


@pytest.mark.long
def test_a_list_of_records_is_stacked():
    records = [{"x": row, "y": label} for row, label in zip(ROWS, DATA["y"], strict=True)]
    np.testing.assert_array_equal(training()(KEY, records)["w"], training()(KEY, DATA)["w"])
    np.testing.assert_array_equal(training().gradients(records), training().gradients(DATA))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"loss": None, "gradients": lambda data: {"w": data["y"][:, None] * data["x"], "b": data["y"]}},
    ],
)
def test_gradients_come_from_the_loss_or_from_the_user(more):
    np.testing.assert_array_equal(training(**more).gradients(DATA)[2], [1, 6, 7, 8])
    pair = mechanisms.replace_record(DATA, 0, {"x": np.ones(3), "y": 1})
    read = gradient_pair(pair, training(**more).gradients)
    np.testing.assert_allclose(read.with_record.dense()[-1], [1, 1, 1, 1], atol=1e-5)
    np.testing.assert_allclose(read.without.dense()[-1], [1, 0, 1, 2], atol=1e-5)
    with pytest.raises(ValueError, match="does not say what its per-example gradients are; pass loss= or gradients="):
        training(loss=None).gradients(DATA)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: training(coin)(KEY, DATA), ValueError, "'full_update' must take \\(key, state, batch, mask\\)"),
        (lambda: training(step=lambda key, state, batch: state[0])(KEY, DATA), TypeError, "must return a pair"),
        (
            lambda: training(step=lambda *given: full_update(*given)[0])(KEY, DATA),
            ValueError,
            "a state built like the one",
        ),
        (lambda: training(loss=batch_loss).gradients(DATA), TypeError, "for one record \\(no batch axis\\)"),
        (lambda: training(lambda key, n: jnp.ones(3, bool), update)(KEY, DATA), ValueError, "each of the 4 records"),
        (lambda: training(lambda key, n: jnp.zeros((1, 1, 1), int))(KEY, DATA), ValueError, "those of an epoch"),
        (
            lambda: training(weights=None).gradients(DATA),
            TypeError,
            "Use weights= to say which part of a state it reads",
        ),
        (lambda: training(steps=0), ValueError, "steps must be an integer >= 1"),
        (lambda: training(releases="all"), ValueError, "releases must be one of"),
        (lambda: training(3), ValueError, "sampler must be one of mechanisms.sampling"),
        (lambda: mechanisms.jax_training(3, update, coin, steps=1), ValueError, "init must be a function"),
    ],
)
def test_what_cannot_be_trained_is_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


def as_type(kind, epoch=()):
    return lambda key, records: jax.random.bernoulli(key, 0.5, (*epoch, records)).astype(kind)


def filled(key, records):
    return jnp.nonzero(coin(key, records), size=records, fill_value=0)[0]


@pytest.mark.parametrize(
    ("sampler", "error", "gives"),
    [
        (as_type(jnp.int32), ValueError, "4 whole numbers, all of them 0 or 1, for 4 records"),
        (as_type(jnp.int32, (2,)), ValueError, "4 whole numbers, all of them 0 or 1, for 4 records"),
        (as_type(jnp.float32), TypeError, "float32 numbers"),
    ],
)
def test_a_mask_of_numbers_is_refused_with_what_to_do(sampler, error, gives):
    refused = rf"\(.*test_jax_training.py:\d+\) gives {gives}. If .* make them boolean: mask.astype\(bool\)"
    with pytest.raises(error, match=refused):
        jax.eval_shape(training(sampler, update), KEY, DATA)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "sampler",
    [
        filled,
        lambda key, records: (as_type(jnp.int32)(key, records), jnp.ones(records)),
        lambda key, records: jax.random.randint(key, (records,), 0, records),
        lambda key, records: jnp.zeros(records, int),
        lambda key, records: jnp.array([0, 1]),
    ],
)
def test_record_numbers_that_may_be_small_are_taken(sampler):
    jax.eval_shape(training(sampler, update), KEY, DATA)


def keyed_update(key, state, batch, mask):
    weights, own = state
    noisy = mask @ batch + jax.random.normal(jax.random.fold_in(own, 1), weights.shape)
    return (weights - noisy, jax.random.split(own)[0]), noisy


def keyed(**told):
    def start(key):
        return jnp.zeros(3), jax.random.key(3)

    return mechanisms.jax_training(start, keyed_update, sampling.poisson(rate=0.5, steps=2), steps=2, **told)


@pytest.mark.long
def test_a_state_may_hold_typed_keys():
    """As those of Optax's private transformations do: the audit could not store them."""
    told = {"loss": lambda weights, record: weights @ record, "weights": lambda state: state[0]}
    pair = mechanisms.add_record(ROWS[:3], ROWS[3])
    rows = both_sides(keyed(**told), pair).outputs(both_keys(KEY), 2, size=2)[1]
    assert rows.shape == (2, 2, 3)
    np.testing.assert_allclose(keyed(**told).gradients(ROWS), ROWS)


@pytest.mark.long
def test_the_difference_of_states_with_keys_asks_for_the_weights():
    with pytest.raises(TypeError, match="use weights= to say which part of a state the weights are"):
        keyed(releases="final")(KEY, ROWS)
    assert keyed(releases="final", weights=lambda state: state[0])(KEY, ROWS).shape == (3,)
