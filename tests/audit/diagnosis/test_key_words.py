"""Keys and draws by NumPy are JAX's own, word by word."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from audit.diagnosis.explain.jaxprs.evaluate import evaluate
from audit.diagnosis.explain.jaxprs.key_words import as_words, is_key, words_of

KEY = jax.random.key(5)
ROWS = np.random.default_rng(0).normal(size=(5, 3)).astype("f4")
PLACES = np.array([3, 0, 3, 4])
OF_KEYS = {
    "split": lambda key: jax.random.split(key, (3, 2))[1:, 0],
    "folded": lambda key: jax.random.fold_in(key, 7),
    "folded for each": lambda key: jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(4)),
    "folded into each": lambda key: jax.vmap(jax.random.fold_in, (0, None))(jax.random.split(key, 3), 2),
    "normal": lambda key: jax.random.normal(key, (3, 4)),
    "normal of each": lambda key: jax.vmap(lambda own: jax.random.normal(own, (3,)))(jax.random.split(key, 4)),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, (5,)),
    "permutation": lambda key: jax.random.permutation(key, 9),
    "bytes": lambda key: jax.random.bits(key, (4,), "uint8"),
}
OF_ROWS = {
    "rows": lambda rows, places: rows[places],
    "columns": lambda rows, places: rows[:, places - 2],
    "beyond": lambda rows, places: rows[places + 2],
    "filled": lambda rows, places: rows.at[places + 2].get(mode="fill", fill_value=0),
    "one": lambda rows, places: rows[places[0], places[1]],
    "part": lambda rows, places: jax.lax.dynamic_slice(rows, (places[0], places[1]), (2, 2)),
    "sorted": lambda rows, places: jnp.sort(rows, axis=0),
    "argsort": lambda rows, places: jnp.take_along_axis(rows, jnp.argsort(-rows, axis=0), 0),
}


def by_numpy(function, *arguments):
    program = jax.make_jaxpr(jax.jit(function))(*arguments)
    (equation,) = program.eqns
    (found,) = evaluate(equation, list(map(as_words, arguments)))
    return words_of(found) if is_key(found) else np.asarray(found)


def by_jax(function, *arguments):
    found = function(*arguments)
    return np.asarray(jax.random.key_data(found) if jnp.issubdtype(found.dtype, jax.dtypes.prng_key) else found)


@pytest.mark.few(5)
@pytest.mark.parametrize("name", OF_KEYS)
def test_keys_and_draws_are_those_of_jax(name):
    np.testing.assert_allclose(by_numpy(OF_KEYS[name], KEY), by_jax(OF_KEYS[name], KEY), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", OF_ROWS)
def test_rows_are_picked_and_sorted_as_by_jax(name):
    arguments = jnp.asarray(ROWS), jnp.asarray(PLACES)
    np.testing.assert_array_equal(by_numpy(OF_ROWS[name], *arguments), by_jax(OF_ROWS[name], *arguments))


def test_one_key_is_taken_out_of_several_without_jax():
    (equation,) = jax.make_jaxpr(lambda keys: jax.lax.squeeze(keys, (0,)))(KEY[None]).eqns
    (found,) = evaluate(equation, [as_words(KEY[None])])
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(words_of(found), jax.random.key_data(KEY))
