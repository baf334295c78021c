"""The first state of a training in a replay: computed once, by NumPy where ``init`` can be traced."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compilations

import mechanisms
from audit.diagnosis.explain import explain
from audit.diagnosis.explain.jaxprs.runs import begun

PAIR = mechanisms.worst_case_pair(records=3, dimension=4, clip=1.0)


def training(init, update=None):
    def noisy(key, state, batch, mask):
        total = jnp.sum(mask[:, None] * batch, 0) + jax.random.normal(key, (4,))
        return state, total

    sampler = mechanisms.sampling.poisson(rate=0.5, steps=2)
    return mechanisms.jax_training(init, update or noisy, sampler, steps=2, clip=1.0, noise_multiplier=1.0)


def weights(key):
    one, other = jax.random.split(key)
    return {"a": 0.3 * jax.random.normal(one, (3, 5)), "b": jax.random.uniform(other, (7,)), "step": 0, "key": key}


def test_it_is_what_a_training_begins_with_and_xla_compiles_no_draw():
    own = training(weights)
    with compilations() as counted:
        found = begun(own)._start
    assert not {"_normal", "jit(_normal)"} & set(counted.names), counted.names
    known = own._start
    assert jax.tree.structure(found) == jax.tree.structure(known)
    assert [leaf.aval for leaf in jax.tree.leaves(found)] == [leaf.aval for leaf in jax.tree.leaves(known)]
    for leaf in ("a", "b"):
        np.testing.assert_allclose(found[leaf], known[leaf], rtol=1e-5)


def test_a_state_that_was_computed_before_is_not_computed_again():
    own = training(weights)
    assert own._start is not None
    assert begun(own) is own


@pytest.mark.long
@pytest.mark.parametrize("kept", [True, False])
def test_an_init_that_keeps_arrays_elsewhere_runs_as_it_is(kept):
    beside = {}

    def init(key):
        beside["scale"] = jax.random.uniform(key, (4,)) if kept else np.ones(4)
        return beside["scale"] + jnp.zeros(4)

    def update(key, state, batch, mask):
        return state, jnp.sum(mask[:, None] * batch, 0) + jax.random.normal(key, (4,)) + 0 * beside["scale"]

    found = explain(training(init, update), PAIR, key=jax.random.key(0))
    # nothing clips, and nothing broke off
    assert [one.kind for one in found.findings] == ["not_clipped"]
    assert not isinstance(beside["scale"], jax.core.Tracer)


def test_an_init_that_python_decides_runs_as_it_is():
    def init(key):
        return jnp.ones(4) if float(jax.random.uniform(key)) < 2 else None

    np.testing.assert_array_equal(begun(training(init))._start, np.ones(4))
