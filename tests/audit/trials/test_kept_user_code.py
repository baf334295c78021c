"""Programs with a user's code in them, kept on disk by their whole text: what the code reads decides which is found."""

import importlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from audit.trials import kept_programs, programs
from audit.trials.kept_programs import KeptProgram, programs_kept_in
from audit.trials.keys import trial_number
from mechanisms import mechanism

DATA = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def shelf(tmp_path):
    """Where JAX keeps no programs."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    with programs_kept_in(tmp_path):
        yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


@pytest.fixture
def compiled(monkeypatch):
    """What XLA was told about every program that was compiled."""
    # asked once in a process, of a program of nothing
    kept_programs._quick(jax.default_backend(), once=True)
    told, compile_it = [], jax.stages.Lowered.compile

    def compile_and_tell(lowered, compiler_options=None):
        told.append(compiler_options)
        return compile_it(lowered, compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_and_tell)
    return told


def drawn(step, data=DATA, size=2):
    """What a process that has compiled nothing draws."""
    release = programs.release_of(mechanism(step), data)
    assert not release.code.alone
    found = programs._make(once=True).draw_chunk(release, jax.random.key(3), trial_number(0), size=size)
    return np.asarray(found).tolist()


def times(factor):
    return lambda key, data: factor * data.sum(0)


def test_a_second_process_compiles_nothing_and_draws_the_same(shelf, compiled):
    def step(key, data):
        return data.sum(0) + jax.random.normal(key, (2,))

    first = drawn(step)
    assert (len(compiled), len(list(shelf.glob("*.program")))) == (1, 1)
    assert drawn(step) == first
    # the dataset is an argument
    assert drawn(step, DATA + 1) != first
    assert len(compiled) == 1


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="options of the compiler for CPUs")
def test_a_users_step_is_compiled_in_little_time_and_differs_by_rounding_alone(shelf, compiled, monkeypatch):
    def step(key, data):
        rows = data / jnp.maximum(1, jnp.linalg.norm(data, axis=1, keepdims=True))
        return jnp.tanh(rows).sum(0) + jax.random.normal(key, (2,))

    found = drawn(step, size=64)
    assert [told["xla_backend_optimization_level"] for told in compiled] == [2]
    monkeypatch.setattr(KeptProgram, "_options", lambda own: None)
    np.testing.assert_allclose(found, drawn(lambda key, data: step(key, data) + 0, size=64), rtol=1e-5, atol=1e-6)
    assert compiled[1:] == [None]


def test_what_the_code_closes_over_decides(shelf, compiled):
    for factor in (2.0, 3.0, np.float32(0.5), jnp.array([1.0, -1.0]), jnp.array([1.0, -2.0])):
        for _ in range(2):
            assert drawn(times(factor)) == [(np.asarray(factor) * DATA.sum(0)).tolist()] * 2
    assert len(compiled) == 5


def test_a_changed_module_that_the_code_imports_decides(shelf, compiled, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for factor in (2, 3):
        (tmp_path / "users_helper.py").write_text(f"def total(data):\n    return {factor} * data.sum(0)\n")
        importlib.invalidate_caches()
        sys.modules.pop("users_helper", None)
        helper = importlib.import_module("users_helper")
        assert drawn(lambda key, data, helper=helper: helper.total(data)) == [(factor * DATA.sum(0)).tolist()] * 2
    sys.modules.pop("users_helper")
    assert len(compiled) == 2


def test_what_is_told_apart_by_its_arguments_alone_is_told_apart(shelf):
    # one text if what is not read were no argument
    for part in (0, 1):
        assert drawn(lambda key, data, part=part: data[part], (DATA[0], DATA[1])) == [DATA[part].tolist()] * 2


def test_what_calls_python_is_not_kept(shelf):
    shape = jax.ShapeDtypeStruct((), np.float32)
    for factor in (2, 3):
        made = KeptProgram(
            lambda x, factor=factor: jax.pure_callback(lambda y: np.float32(factor * y), shape, x), told=False
        )
        assert made(np.float32(5)) == 5 * factor
    assert not list(shelf.glob("*.program"))


def test_settings_and_outputs_of_another_form_decide(shelf, compiled):
    for form in (lambda x: (x, x), lambda x: {"one": x, "two": x}):
        found = KeptProgram(form, told=False)(np.float32(1))
        assert jax.tree.structure(found) == jax.tree.structure(form(0))
    with jax.default_matmul_precision("float32"):
        KeptProgram(lambda x: (x, x), told=False)(np.float32(1))
    assert len(compiled) == 3


def test_where_jax_keeps_programs_it_keeps_these(tmp_path):
    assert jax.config.jax_compilation_cache_dir
    with programs_kept_in(tmp_path):
        drawn(times(7.0))
    assert not list(tmp_path.glob("*.program"))


def test_a_typed_key_that_a_step_holds_is_part_of_its_program():
    """No audit could run a step that reads a key beside its own."""

    def holding(seed):
        own = jax.random.key(seed)
        return lambda key, data: data.sum(0) + jax.random.normal(own, (2,))

    assert drawn(holding(1)) == drawn(holding(1)) != drawn(holding(2))
