"""Replays of conformance's libraries: right ones stay silent on every pair, and a bug is named with its line."""

from __future__ import annotations

import inspect
import pathlib

import jax
import jax.numpy as jnp
import pytest

from audit.conformance import SubsampledGaussianConformance
from audit.conformance.cases import STEP_CASES, TRAINING_CASES
from audit.diagnosis.explain import Kind, explain
from audit.diagnosis.explain.jaxprs import further_looks
from conformance.classes import conformance_class

CASES = {**STEP_CASES, **TRAINING_CASES}
OFTEN_WRONG = ("tiny", "many_steps", "opposite_steps")
"""Pairs on which replays accused a right library: gradients that no bound reaches, steps that read no other step."""


@pytest.fixture(autouse=True)
def _looks(monkeypatch, full):
    """Where batches are drawn, right code is looked at for groups of records once; in `make test-full` three times."""
    if not full:
        monkeypatch.setattr(further_looks, "DRAWN", 1)


def told(library: str, bug: str, case: str):
    stated = CASES[case]
    step = conformance_class(library, bug)()._mechanism(stated.settings(), None if stated.steps == 1 else stated.steps)
    pair = stated.neighbours((24, 6), "add_remove")
    return explain(step, pair, key=jax.random.key(0), clip=stated.clip, noise_multiplier=stated.noise_multiplier)


@pytest.mark.few(2)
@pytest.mark.parametrize("library", ["jax", "torch"])
@pytest.mark.parametrize(
    "case", [*OFTEN_WRONG, *(pytest.param(name, marks=pytest.mark.long) for name in CASES if name not in OFTEN_WRONG)]
)
def test_a_right_library_is_accused_of_nothing(library, case):
    pytest.importorskip("torch" if library == "torch" else "jax")
    assert told(library, "", case).suspicions == ()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("library", "bug", "case", "kind"),
    [
        ("jax", "noise_times_08", "dense", Kind.TOO_LITTLE_NOISE),
        ("jax", "noise_times_08", "opposite_steps", Kind.TOO_LITTLE_NOISE),
        ("torch", "clipping_ignored", "dense", Kind.NOT_CLIPPED),
    ],
)
def test_a_bug_is_named_at_a_line_of_the_library(library, bug, case, kind):
    pytest.importorskip("torch" if library == "torch" else "jax")
    found = told(library, bug, case).suspicions[0]
    assert found.kind == kind
    assert found.lines[0][0].endswith((f"{library}_library.py", "shared.py")), "shared.py reckons the deviation"


def add_noise(key, total, stddev):
    return total + 0.3 * stddev * jax.random.normal(key, total.shape)


class Helped(SubsampledGaussianConformance):
    """Its library's helper is given the right deviation and makes less of it."""

    def make_step(self, *, rate, clip, noise_multiplier):
        def step(key, gradients):
            lengths = jnp.linalg.norm(gradients, axis=1, keepdims=True)
            return add_noise(key, (gradients / jnp.maximum(1.0, lengths / clip)).sum(0), noise_multiplier * clip)

        return step


def test_the_library_comes_before_the_test_that_calls_it():
    """JAX kept what it had traced of the step, so no call of it was seen, and the class of the test stood first."""
    stated = CASES["dense"]
    pair = stated.neighbours((12,), "add_remove")
    step = Helped()._mechanism(stated.settings(), None)
    found = explain(step, pair, key=jax.random.key(0), claim=stated.claim("add_remove")).suspicions[0]
    assert found.lines[0] == (__file__, inspect.getsourcelines(add_noise)[1] + 1)
    assert "the deviation should be 2." in found.says


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_a_gradient_that_is_no_number_is_named_where_it_is_summed(library):
    """In PyTorch 'the record changed nothing that is released' was said of it."""
    pytest.importorskip("torch" if library == "torch" else "jax")
    (found,) = told(library, "nan_released", "not_a_number").findings
    path, line = found.lines[0]
    assert "tensordot(taken, given" in pathlib.Path(path).read_text(encoding="utf-8").splitlines()[line - 1]
    assert "The record's NaN or infinity reaches" in found.says


def test_momentum_of_sums_without_noise_stands_first():
    pytest.importorskip("torch")
    (found,) = told("torch", "momentum_before_noise", "equal_steps").suspicions
    path, line = found.lines[0]
    assert "0.9 * velocity" in pathlib.Path(path).read_text(encoding="utf-8").splitlines()[line - 1]
    assert "the sums of earlier rounds to it, but not their noise" in found.says


def test_numpy_is_not_followed_and_that_is_said():
    found = told("numpy", "no_noise", "dense")
    assert [one.kind for one in found.findings] == [Kind.NOT_FOLLOWED]
    assert "such as NumPy" in found.findings[0].says
