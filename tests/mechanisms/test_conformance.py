"""Every mechanism of the catalogue keeps the contract."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from mechanisms.catalogue import MECHANISMS, NEIGHBOURS
from mechanisms.contract import OUTPUT_KINDS, BatchMechanism, Collapsed, Mechanism
from mechanisms.names import name_of, place_of
from mechanisms.pairs.neighbours import materialise, prepare

GRADIENTS = mechanisms.worst_case_pair(records=4, dimension=20, clip=0.5)
SCALARS = mechanisms.scalar_pair()
ROUND = {"rate": 0.5, "clip": 0.5, "noise_multiplier": 1.0}
EXAMPLES = {
    "one_round expected": ("one_round", {"normalise_by": "expected_batch", **ROUND}, GRADIENTS),
    "one_round realised": ("one_round", {"normalise_by": "realised_batch", **ROUND}, GRADIENTS),
    "collapsed_round expected": ("collapsed_round", {"normalise_by": "expected_batch", **ROUND}, GRADIENTS),
    "collapsed_round realised": ("collapsed_round", {"normalise_by": "realised_batch", **ROUND}, GRADIENTS),
    "many_rounds": (
        "many_rounds",
        {"sampler": {"kind": "shuffle", "batch_size": 2, "same_order": False}, "clip": 0.5, "noise_multiplier": 1.0},
        GRADIENTS,
    ),
    "gaussian_mechanism": ("gaussian_mechanism", {"noise_multiplier": 1.0}, SCALARS),
}


ADAPTERS = {
    "opacus_step",
    "optax_step",
    "jax_privacy_step",
    "command_step",
    "flax_step",
    "callable_step",
    "jax_training",
    "torch_training",
}
"""Other people's code, tried in tests of its own."""


def leaves(output):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(output)]


def test_every_mechanism_of_the_catalogue_is_tried():
    assert {name for name, _, _ in EXAMPLES.values()} == set(MECHANISMS) - ADAPTERS


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_mechanism_says_what_it_is(example):
    name, parameters, _ = EXAMPLES[example]
    step = MECHANISMS[name](**parameters)
    assert isinstance(step, Mechanism)
    assert step.name == name
    assert step.kind in OUTPUT_KINDS
    assert {key: step.parameters[key] for key in parameters} == parameters
    assert MECHANISMS[name](**step.parameters) == step
    assert hash(MECHANISMS[name](**parameters)) == hash(step)


@pytest.mark.few(2)
@pytest.mark.parametrize("example", EXAMPLES)
def test_a_mechanism_is_a_pure_function_of_key_and_dataset(example):
    name, parameters, pair = EXAMPLES[example]
    step = MECHANISMS[name](**parameters)
    keys = jax.random.split(jax.random.key(5), 64)
    data = prepare(step, pair.with_record)
    single = jax.jit(lambda key: step(key, data))
    many = jax.jit(jax.vmap(lambda key: step(key, data)))(keys)
    first = single(keys[0])
    if step.kind == "collapsed":
        assert isinstance(first, Collapsed)
        assert first.along.shape == (pair.without.rank,)
        assert first.rest.shape == ()
    else:
        assert first.ndim == (2 if step.kind == "transcript" else 1)
    for one, again, all_of_them in zip(leaves(first), leaves(single(keys[0])), leaves(many), strict=True):
        assert one.dtype == np.float32
        assert np.isfinite(all_of_them).all()
        np.testing.assert_array_equal(one, again)
        np.testing.assert_allclose(one, all_of_them[0], rtol=2e-5, atol=1e-5)
        assert len(np.unique(all_of_them.reshape(64, -1), axis=0)) > 1


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_every_construction_makes_neighbours_under_its_own_name(name):
    construct = NEIGHBOURS[name]
    given = {"records": 3, "dimension": 7, "clip": 0.5}
    taken = inspect.signature(construct).parameters
    pair = construct(**{key: value for key, value in given.items() if key in taken})
    assert isinstance(pair, mechanisms.Neighbours)
    assert pair.name == name
    rebuilt = construct(**pair.parameters)
    for side in ("without", "with_record"):
        ours, again = (materialise(getattr(p, side)) for p in (pair, rebuilt))
        np.testing.assert_array_equal(ours, again)


def test_a_users_function_becomes_a_mechanism_under_its_own_name():
    def noisy_mean(key, dataset):
        return jnp.mean(dataset, axis=0) + jax.random.normal(key, dataset.shape[1:])

    step = mechanisms.mechanism(noisy_mean, clip=1.0)
    assert isinstance(step, Mechanism)
    assert step.name == "noisy_mean"
    assert step.parameters == {"clip": 1.0, "given": place_of(noisy_mean)}
    assert step(jax.random.key(0), np.ones((3, 2), np.float32)).shape == (2,)


def test_an_object_that_answers_in_part_keeps_its_answers_and_gets_the_others():
    class Network:
        name, coordinates = "mine", 3

        def gradients(self, dataset):
            return np.ones((len(dataset), 3))

        def __call__(self, key, dataset):
            return jnp.ones(3)

    step = mechanisms.mechanism(Network())
    assert isinstance(step, Mechanism)
    assert (step.name, step.coordinates, step.parameters, step.kind) == ("mine", 3, {}, "vector")
    assert (step.libraries, step.reads_tables, step.collapsed()) == ((), False, None)
    assert step.gradients(np.zeros((2, 5))).shape == (2, 3)
    with pytest.raises(ValueError, match="does not say what its per-example gradients are"):
        mechanisms.mechanism(lambda key, dataset: dataset[0]).gradients(np.zeros((2, 5)))
    assert mechanisms.mechanism(step) is step


def test_a_collapsed_simulator_of_an_object_is_kept():
    class Both:
        def collapsed(self):
            return lambda key, dataset: Collapsed(jnp.zeros(1), jnp.float32(1.0))

        def __call__(self, key, dataset):
            return jnp.ones(3)

    fast = mechanisms.mechanism(Both()).collapsed()
    assert isinstance(fast, Mechanism)


def test_foreign_code_that_answers_in_part_becomes_a_batch_mechanism():
    class Foreign:
        def prepare(self, dataset):
            return lambda seeds: np.zeros((len(seeds), 2), np.float32)

    step = mechanisms.mechanism(Foreign())
    assert isinstance(step, BatchMechanism)
    assert not isinstance(step, Mechanism)
    assert (step.name, step.workers, step.timeout, step.coordinates) == ("Foreign", 0, 60.0, None)
    assert step.prepare(None)(np.zeros(4)).shape == (4, 2)
    with pytest.raises(TypeError, match="a function of a key and a dataset"):
        mechanisms.mechanism("step")  # pyright: ignore[reportArgumentType]


OWN_CODE = ("callable_step", "jax_training", "torch_training")
"""Made of a user's own functions, which come first and need no name."""


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in OWN_CODE])
def test_a_mechanism_is_made_by_keywords_alone(name):
    assert all(p.kind is p.KEYWORD_ONLY for p in inspect.signature(MECHANISMS[name]).parameters.values())


def test_none_is_no_answer():
    class Given:
        name, collapsed, steps_on, libraries = "own", None, None, None

        def __call__(self, key, dataset):
            return dataset.sum(0)

    step = mechanisms.mechanism(Given())
    assert step.collapsed() is None
    assert step.steps_on(None) is None
    assert step.libraries == ()


def _made(scale):
    def go(seed, dataset):
        return scale * dataset.sum(0)

    return go


doubled, halved = _made(2.0), functools.partial(_made(1.0), 0)


def test_what_a_factory_made_is_called_by_the_name_that_holds_it():
    """All functions of one factory had one name in records and model cards: that of the closure."""
    assert (name_of(doubled), place_of(doubled)) == ("doubled", f"{__name__}:doubled")
    assert place_of(halved) == f"{__name__}:halved"
    assert name_of(_made(3.0)) == "go"
