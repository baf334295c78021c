"""Arrays that are unpacked: newer releases of JAX have an equation of their own for it."""

import jax
import jax.numpy as jnp
import pytest

import mechanisms
from audit.diagnosis.explain import explain

lax = pytest.importorskip("jax._src.lax.lax")
if not hasattr(lax, "unstack"):
    pytest.skip("this release of JAX has no unstack", allow_module_level=True)

PAIR = mechanisms.worst_case_pair(records=4, dimension=6, clip=1.0)


def clipped(rows):
    return rows / jnp.maximum(1.0, jnp.linalg.norm(rows, axis=-1, keepdims=True))


def box_muller(key, rows, deviation):
    (own,) = lax.unstack(jax.random.split(key, 1))
    first, second = lax.unstack(jax.random.uniform(own, (2, rows.shape[1]), minval=1e-6))
    return clipped(rows).sum(0) + deviation * jnp.sqrt(-2 * jnp.log(first)) * jnp.cos(2 * jnp.pi * second)


def row_by_row(key, rows, deviation):
    total = sum(clipped(row) for row in lax.unstack(rows))
    return total + deviation * jax.random.normal(key, rows.shape[1:])


def one_key_twice(key, rows, deviation):
    first, _ = lax.unstack(jax.random.split(key))
    total = clipped(rows).sum(0)
    return [part + deviation * jax.random.normal(first, (3,)) for part in (total[:3], total[3:])]


@pytest.mark.parametrize("step", [box_muller, row_by_row])
def test_what_is_unpacked_is_followed(step):
    def told(deviation):
        return explain(
            lambda key, rows: step(key, rows, deviation), PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=2.0
        )

    assert told(2.0).findings == ()
    (found,) = told(1.0).findings
    assert found.kind == "too_little_noise"
    assert found.lines[0][0] == __file__


def test_a_key_that_is_unpacked_once_is_used_twice():
    found, *_ = explain(
        lambda key, rows: one_key_twice(key, rows, 1.0), PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0
    ).findings
    assert found.kind == "key_used_twice"
