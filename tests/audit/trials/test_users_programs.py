"""Programs with a user's code in them: what the code reads decides which is used again."""

import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from audit.trials import programs
from audit.trials.kept_programs import KeptProgram
from audit.trials.keys import trial_number
from mechanisms import mechanism

DATA = np.arange(6, dtype=np.float32).reshape(3, 2)


def drawn(step, data=DATA, size=2):
    """By the program that is kept for its code."""
    release = programs.release_of(mechanism(step), data)
    assert not release.code.alone
    found = programs.programs_of(release).draw_chunk(release, jax.random.key(3), trial_number(0), size=size)
    return np.asarray(found).tolist()


def times(factor):
    return lambda key, data: factor * data.sum(0)


@pytest.mark.long
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="options of the compiler for CPUs")
def test_a_users_step_is_compiled_in_little_time_and_differs_by_rounding_alone(monkeypatch):
    def step(key, data):
        rows = data / jnp.maximum(1, jnp.linalg.norm(data, axis=1, keepdims=True))
        return jnp.tanh(rows).sum(0) + jax.random.normal(key, (2,))

    told, options = [], KeptProgram._options
    monkeypatch.setattr(KeptProgram, "_options", lambda own: told.append(options(own)) or told[-1])
    found = drawn(step, size=64)
    assert [each["xla_backend_optimization_level"] for each in told] == [2]
    monkeypatch.setattr(KeptProgram, "_options", lambda own: None)
    np.testing.assert_allclose(found, drawn(lambda key, data: step(key, data) + 0, size=64), rtol=1e-5, atol=1e-6)


def test_what_the_code_closes_over_decides():
    for factor in (2.0, 3.0, np.float32(0.5), jnp.array([1.0, -1.0]), jnp.array([1.0, -2.0])):
        for _ in range(2):
            assert drawn(times(factor)) == [(np.asarray(factor) * DATA.sum(0)).tolist()] * 2


def test_what_is_told_apart_by_its_arguments_alone_is_told_apart():
    # one text if what is not read were no argument
    for part in (0, 1):
        assert drawn(lambda key, data, part=part: data[part], (DATA[0], DATA[1])) == [DATA[part].tolist()] * 2


def test_a_typed_key_that_a_step_holds_is_part_of_its_program():
    """No audit could run a step that reads a key beside its own."""

    def holding(seed):
        own = jax.random.key(seed)
        return lambda key, data: data.sum(0) + jax.random.normal(own, (2,))

    assert drawn(holding(1)) == drawn(holding(1)) != drawn(holding(2))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="LAPACK is what CPUs are asked for")
def test_programs_that_call_lapack_run_in_turn():
    """Two at once would wait for each other for ever, on two busy cores within seconds."""
    running, most = 0, 0

    def watched(values):
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.1)
        running -= 1
        return values

    def rotated(key, data):
        basis = jnp.linalg.qr(jax.random.normal(key, (2, 2)))[0]
        return jax.pure_callback(watched, jax.ShapeDtypeStruct((2,), jnp.float32), data.sum(0) @ basis)

    release = programs.release_of(mechanism(rotated), DATA)
    found = programs.programs_of(release).output
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda seed: np.asarray(found(release, jax.random.key(seed))), range(4)))
    assert most == 1


@pytest.mark.parametrize(
    "of_matrix", [jnp.linalg.qr, jnp.linalg.svd, jnp.linalg.eigh, jnp.linalg.inv, jnp.linalg.cholesky]
)
def test_lapack_is_found_in_a_program(of_matrix):
    def step(key, data):
        found = of_matrix(data.T @ data + jnp.eye(2))
        return jax.tree.leaves(found)[0].ravel() + jax.random.normal(key, (1,))

    assert programs.release_of(mechanism(step), DATA).code.in_turn
    assert not programs.release_of(mechanism(times(2.0)), DATA).code.in_turn
