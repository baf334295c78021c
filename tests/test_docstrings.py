"""The names that users call most are explained where an editor shows it, and their examples run."""

from __future__ import annotations

import doctest
import inspect

import pytest

import audit
import distinguishers
import guarantees
import mechanisms
from audit.conformance import SubsampledGaussianConformance

NAMES = {
    audit: "run_audit run_suite from_scores one_run compare write_report load_records save_records plan ErrorCounts "
    "epsilon_lower_bound delta_lower_bound mu_lower_bound Fixed FromTheory Split Anytime Simultaneous",
    distinguishers: " ".join(dir(distinguishers)),
    guarantees: " ".join(dir(guarantees)),
    mechanisms: "one_round many_rounds callable_step command_step torch_training jax_training worst_case_pair pair "
    "add_record replace_record zero_out gradient_canaries gaussian_mechanism scalar_pair",
}
CONFORMANCE = pytest.param(SubsampledGaussianConformance, id="conformance")
CASES = [
    pytest.param(getattr(package, name), id=f"{package.__name__}.{name}")
    for package in NAMES
    for name in NAMES[package].split()
    if inspect.isclass(getattr(package, name)) or inspect.isroutine(getattr(package, name))
]
IMPLIED = {"kind", "times", "group", "steps"}
"""Fields of a class that its own methods set."""


@pytest.mark.parametrize("thing", CASES)
def test_a_docstring_explains_every_parameter_and_what_comes_back(thing):
    text = inspect.getdoc(thing)
    named = [name for name in inspect.signature(thing).parameters if f"\n  {name}: " not in text.replace("**", "")]
    assert [name for name in named if not (inspect.isclass(thing) and name in IMPLIED)] == []
    returns = not inspect.isclass(thing) and inspect.signature(thing).return_annotation not in (None, "None")
    assert not returns or "\nReturns:\n" in text


@pytest.mark.parametrize("thing", [*CASES, CONFORMANCE])
def test_the_example_of_a_docstring_runs(thing):
    text = inspect.getdoc(thing)
    assert "\nExamples:\n" in text
    example = doctest.DocTestParser().get_doctest(text, {}, thing.__name__, None, None)
    said: list[str] = []
    doctest.DocTestRunner().run(example, out=said.append)
    assert not said, "".join(said)


def test_an_example_with_a_wrong_answer_is_seen():
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner().run(example, out=lambda _: None).failed == 1
