"""The names that users call most are explained where an editor shows it, and their examples run."""

from __future__ import annotations

import ast
import doctest
import inspect
import textwrap

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
    mechanisms: " ".join(dir(mechanisms)),
}
PACKAGES = {package.__name__: package for package in NAMES}
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
    if not example.examples:
        needs_what_is_not_installed_everywhere(text)
        return
    said: list[str] = []
    doctest.DocTestRunner().run(example, out=said.append)
    assert not said, "".join(said)


def needs_what_is_not_installed_everywhere(text: str) -> None:
    """Code that is not run here: it names the extra, is Python, and calls only what these packages have."""
    extra, _, code = text.partition("\nExamples:\n")[2].partition("::\n")
    assert "pip install 'dpsgd-audit[" in extra
    for node in ast.walk(ast.parse(textwrap.dedent(code))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in PACKAGES:
            assert hasattr(PACKAGES[node.value.id], node.attr), node.attr


def test_an_example_with_a_wrong_answer_is_seen():
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner().run(example, out=lambda _: None).failed == 1
