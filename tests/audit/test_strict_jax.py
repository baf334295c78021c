"""Audits under settings of JAX that a user's project may have."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import audit
import distinguishers
import guarantees
from audit.suites.run import audit_key
from audit.trials.cells import count_cells
from mechanisms.catalogue import MECHANISMS

spec = importlib.util.spec_from_file_location(
    "mechanism_examples", Path(__file__).parents[1] / "mechanisms" / "test_conformance.py"
)
conformance = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conformance)


def small_audit(example, distinguisher, key):
    name, parameters, pair = conformance.EXAMPLES[example]
    step = MECHANISMS[name](**parameters)
    return audit.run_audit(
        step,
        pair,
        distinguisher(step, pair),
        claim=guarantees.gaussian(mu=1.0, relation="any"),
        trials=128,
        risk=0.05,
        key=key,
        diagnose=False,
    )


def likelihood(step, pair):
    if step.kind == "transcript":
        return lambda key, output: output.ravel()[0]
    return distinguishers.likelihood_ratio(step, pair)


@pytest.mark.long
@pytest.mark.parametrize("example", ["one_round realised", "gaussian_mechanism"])
def test_audits_run_where_rank_promotion_raises(example):
    with jax.numpy_rank_promotion("raise"):
        assert small_audit(example, likelihood, audit_key(0, "a")).trials == 128


@pytest.mark.long
@pytest.mark.parametrize("example", conformance.EXAMPLES)
@pytest.mark.parametrize("score", [likelihood, lambda step, pair: None])
def test_every_mechanism_is_audited_where_rank_promotion_raises(example, score):
    with jax.numpy_rank_promotion("raise"):
        assert small_audit(example, score, audit_key(0, "a")).trials == 128


def test_counting_by_products_promotes_no_rank():
    with jax.numpy_rank_promotion("raise"):
        counts = jax.eval_shape(count_cells, jnp.zeros((9, 3)), jnp.ones(9, bool), jnp.zeros((3, 5)))
    assert counts.shape == (3, 6)


@pytest.mark.long
def test_a_seed_means_the_same_under_every_default_generator():
    records = []
    for implementation in ("threefry2x32", "rbg"):
        with jax.default_prng_impl(implementation):
            records.append(small_audit("gaussian_mechanism", likelihood, audit_key(7, "a")))
    assert records[0].key == records[1].key
    np.testing.assert_array_equal(records[0].grids[0].without, records[1].grids[0].without)
