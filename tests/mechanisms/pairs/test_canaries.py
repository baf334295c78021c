"""Canaries: the gradient is the chosen direction, clipped as any other; examples keep the dataset's form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from mechanisms.simulators.rounds import clip_rows

RNG = np.random.default_rng(8)
WEIGHTS = {
    "first": jnp.asarray(RNG.normal(size=(3, 4)), jnp.float32),
    "last": jnp.asarray(RNG.normal(size=4), jnp.float32),
}
DATA = {"image": RNG.normal(size=(5, 3)).astype(np.float32), "label": np.array([0, 1, 2, 3, 0], np.int32)}


def loss(weights, record):
    logits = record["image"] @ weights["first"] + weights["last"]
    return -jax.nn.log_softmax(logits)[record["label"]]


clipped_rows = jax.jit(clip_rows, static_argnums=1)


def gradients(own, dataset, weights=WEIGHTS):
    found = jax.jit(jax.vmap(jax.grad(own), in_axes=(None, 0)))(weights, dataset)
    return np.concatenate([np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(found)], axis=1)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["dirac", "random", "last"])
def test_a_canary_has_its_direction_as_clipped_gradient_at_all_weights(kind):
    canaries = mechanisms.gradient_canaries(WEIGHTS, kind=kind, count=3, length=7.0)
    pair = canaries.pair(DATA, number=1)
    for weights in (WEIGHTS, jax.tree.map(lambda leaf: 3 * leaf - 1, WEIGHTS)):
        found = gradients(canaries.loss(loss), pair.with_record, weights)
        np.testing.assert_allclose(found[-1], 7.0 * canaries.direction(1), atol=1e-5)
        clipped = np.asarray(clipped_rows(found, 0.5))
        np.testing.assert_allclose(clipped[-1], 0.5 * canaries.direction(1), atol=1e-6)
        # the others are as they were, and the null record's gradient is zero
        np.testing.assert_allclose(found[:-1], gradients(loss, DATA, weights)[:-1], atol=1e-6)
        null = gradients(canaries.loss(loss), pair.without, weights)
        np.testing.assert_array_equal(null[-1], 0.0)
        np.testing.assert_array_equal(null[:-1], found[:-1])


@pytest.mark.parametrize("kind", ["dirac", "random", "last"])
def test_directions_are_orthonormal(kind):
    canaries = mechanisms.gradient_canaries(WEIGHTS, kind=kind, count=4)
    rows = np.stack([canaries.direction(i) for i in range(4)])
    np.testing.assert_allclose(rows @ rows.T, np.eye(4), atol=1e-6)
    if kind == "last":
        np.testing.assert_array_equal(rows[:, :12], 0.0)


def test_the_rest_of_the_dataset_can_be_crafted():
    canaries = mechanisms.gradient_canaries(WEIGHTS, length=2.0)
    own = canaries.loss(loss)
    opposite = canaries.pair(DATA, others="opposite", relation="add_remove")
    found = gradients(own, opposite.with_record)
    np.testing.assert_allclose(found, np.array([-2.0] * 4 + [10.0])[:, None] * canaries.direction(), atol=1e-6)
    assert len(opposite.without["canary"]) == 4
    zero = gradients(own, canaries.pair(DATA, others="zero").with_record)
    np.testing.assert_array_equal(zero[:-1], 0.0)


@pytest.mark.parametrize("relation", ["add_remove", "zero_out"])
def test_a_step_that_clips_the_batch_and_not_the_records_shows_among_opposite_canaries(relation):
    """One record may move the clipped sum by the bound; this one moves it by twice that."""
    canaries = mechanisms.gradient_canaries(WEIGHTS, length=2.0)
    pair = canaries.pair(DATA, others="opposite", relation=relation)
    sides = [gradients(canaries.loss(loss), side) for side in (pair.without, pair.with_record)]
    right = [np.sum(clipped_rows(side, 1.0), axis=0) for side in sides]
    wrong = [np.asarray(clipped_rows(np.sum(side, axis=0, keepdims=True), 1.0))[0] for side in sides]
    assert np.linalg.norm(right[1] - right[0]) == pytest.approx(1.0)
    assert np.linalg.norm(wrong[1] - wrong[0]) == pytest.approx(2.0)


FORMS = {
    "dict": DATA,
    "pair": (DATA["image"], DATA["label"]),
    "rows": np.column_stack([DATA["image"], DATA["label"]]).astype(np.float32),
}


@pytest.mark.parametrize("form", FORMS)
def test_examples_have_the_form_of_the_records(form):
    dataset = FORMS[form]
    read = {
        "dict": lambda r: (r["image"], r["label"]),
        "pair": lambda r: r,
        "rows": lambda r: (r[:-1], r[-1]),
    }[form]
    image, label = read(mechanisms.canaries.mislabelled(dataset, 3, classes=4))
    np.testing.assert_array_equal(image, DATA["image"][3])
    assert label == 0
    image, label = read(mechanisms.canaries.blank(dataset, label=2))
    np.testing.assert_array_equal(image, np.zeros(3))
    assert label == 2
    image, label = read(mechanisms.canaries.out_of_distribution(dataset, label=1, seed=4))
    assert image.shape == (3,)
    assert image.min() >= DATA["image"].min()
    assert image.max() <= DATA["image"].max()
    assert not any(np.array_equal(image, own) for own in DATA["image"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "diag"}, "kind must be one of"),
        ({"count": 17}, "count must be at most the 16 coordinates"),
        ({"kind": "last", "count": 5}, "at most the 4 coordinates"),
        ({"length": 0.0}, "length must be > 0"),
    ],
)
def test_bad_canaries_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.gradient_canaries(WEIGHTS, **settings)
