"""Every mechanism of the catalogue keeps the contract."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from mechanisms import CATALOGUE, NEIGHBOURS, Collapsed, Mechanism

GRADIENTS = mechanisms.worst_case_pair(records=4, dimension=20, clip=0.5)
SCALARS, BITS = mechanisms.scalar_pair(), mechanisms.bit_pair()
ROUND = {"rate": 0.5, "clip": 0.5, "noise_multiplier": 1.0}
EXAMPLES = {
    "one_round expected": ("one_round", {"normalise_by": "expected_batch", **ROUND}, GRADIENTS),
    "one_round realised": ("one_round", {"normalise_by": "realised_batch", **ROUND}, GRADIENTS),
    "collapsed_round expected": ("collapsed_round", {"normalise_by": "expected_batch", **ROUND}, GRADIENTS),
    "collapsed_round realised": ("collapsed_round", {"normalise_by": "realised_batch", **ROUND}, GRADIENTS),
    "gaussian_mechanism": ("gaussian_mechanism", {"noise_multiplier": 1.0}, SCALARS),
    "laplace_mechanism": ("laplace_mechanism", {"epsilon": 1.0}, SCALARS),
    "randomised_response": ("randomised_response", {"epsilon": 1.0}, BITS),
}


ADAPTERS = {"opacus_step", "optax_step", "jax_privacy_step", "command_step", "flax_step"}
"""Other people's code, tried in tests of its own."""


def leaves(output):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(output)]


def test_every_mechanism_of_the_catalogue_is_tried():
    assert {name for name, _, _ in EXAMPLES.values()} == set(CATALOGUE) - ADAPTERS


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_mechanism_says_what_it_is(example):
    name, parameters, _ = EXAMPLES[example]
    step = CATALOGUE[name](**parameters)
    assert isinstance(step, Mechanism)
    assert step.name == name
    assert step.kind in mechanisms.OUTPUT_KINDS
    assert dict(step.parameters).items() >= parameters.items()
    assert CATALOGUE[name](**step.parameters) == step
    assert hash(CATALOGUE[name](**parameters)) == hash(step)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_mechanism_is_a_pure_function_of_key_and_dataset(example):
    name, parameters, pair = EXAMPLES[example]
    step = CATALOGUE[name](**parameters)
    keys = jax.random.split(jax.random.key(5), 64)
    data = mechanisms.prepare(step, pair.with_record)
    single = jax.jit(lambda key: step(key, data))
    many = jax.jit(jax.vmap(lambda key: step(key, data)))(keys)
    first = single(keys[0])
    if step.kind == "collapsed":
        assert isinstance(first, Collapsed)
        assert first.along.shape == (pair.without.rank,)
        assert first.rest.shape == ()
    else:
        assert first.ndim == 1
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
        ours, again = (mechanisms.materialise(getattr(p, side)) for p in (pair, rebuilt))
        np.testing.assert_array_equal(ours, again)


def test_a_users_function_becomes_a_mechanism_under_its_own_name():
    def noisy_mean(key, dataset):
        return jnp.mean(dataset, axis=0) + jax.random.normal(key, dataset.shape[1:])

    step = mechanisms.mechanism(noisy_mean, scale=1.0)
    assert isinstance(step, Mechanism)
    assert step.name == "noisy_mean"
    assert step.parameters == {"scale": 1.0}
    assert step(jax.random.key(0), np.ones((3, 2), np.float32)).shape == (2,)
