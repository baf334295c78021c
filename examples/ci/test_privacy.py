"""Does tinydp keep its promise? Each test fails with what was claimed, what was proven, and how to repeat it."""

import functools

import jax.numpy as jnp
import pytest
from tinydp import private_gradient

import guarantees
import mechanisms

NOISE = 4.0


def audit(dp_audit, pair, *, rate):
    """The step against what accountants claim about it."""
    step = functools.partial(private_gradient, rate=rate, clip=1.0, noise_multiplier=NOISE)
    return dp_audit(step, pair, claim=guarantees.subsampled_gaussian(rate=rate, noise_multiplier=NOISE))


def test_gradients_that_are_too_long_are_clipped(dp_audit):
    """A gradient of twenty times the bound counts as one of the bound."""
    shared, extra = jnp.zeros((3, 100)), jnp.full(100, 2.0)
    audit(dp_audit, mechanisms.neighbours_from_gradients(shared, extra), rate=1.0)


@pytest.mark.dp_audit(trials=4000)
def test_a_sampled_batch_keeps_the_claim_in_many_dimensions(dp_audit):
    """Where a divisor that depends on the batch leaks most."""
    audit(dp_audit, mechanisms.worst_case_pair(records=1, dimension=1000, clip=1.0), rate=0.9)
