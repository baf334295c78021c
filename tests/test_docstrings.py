"""The names that users call are explained where an editor shows it, and their examples run."""

from __future__ import annotations

import ast
import doctest
import inspect
import itertools
import textwrap
from typing import Any

import pytest

import audit
import distinguishers
import guarantees
import mechanisms
from audit.conformance import SubsampledGaussianConformance
from mechanisms.catalogue import MECHANISMS, NEIGHBOURS
from mechanisms.sampling import SAMPLERS

PACKAGES = {package.__name__: package for package in (audit, distinguishers, guarantees, mechanisms)}
SLOW = {
    "audit.AuditRecord": (),
    "audit.draw": (),
    "audit.noise_tails": (),
    "mechanisms.jax_privacy_claim": ("jax_privacy",),
    "mechanisms.jax_privacy_training": ("jax_privacy",),
    "mechanisms.opacus_claim": ("opacus",),
}
"""Examples that take seconds, with the libraries that they need."""
MADE_BY_US = {"AuditRecord"}
"""What a user reads or makes without arguments: its constructor has nothing to refuse."""
CONFORMANCE = pytest.param(SubsampledGaussianConformance, id="conformance")
CASES = [
    pytest.param(thing, id=f"{package}.{name}")
    for package in PACKAGES
    for name in dir(PACKAGES[package])
    if inspect.isclass(thing := getattr(PACKAGES[package], name)) or inspect.isroutine(thing)
]
CASES += [
    pytest.param(known[name], id=f"{known.home(name)}.{name}")
    for known in (MECHANISMS, NEIGHBOURS)
    for name in known
    if known.home(name) not in PACKAGES
]
CASES += [pytest.param(thing, id=f"mechanisms.sampling.{name}") for name, thing in SAMPLERS.items()]


def explained_below(thing: type) -> set[str]:
    """Fields with a docstring of their own, in the class or in one that it extends."""
    found = set()
    for own in thing.__mro__:
        if own.__module__.split(".")[0] not in PACKAGES:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(own))).body[0].body
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                found.add(field.target.id)
    return found


@pytest.mark.parametrize("thing", CASES)
def test_a_docstring_explains_every_parameter_and_what_comes_back(thing):
    text, is_class = inspect.getdoc(thing), inspect.isclass(thing)
    if is_class and (issubclass(thing, Exception) or inspect.isabstract(thing)):
        return
    signature = inspect.signature(thing)
    silent = {name for name in signature.parameters if f"\n  {name}: " not in text.replace("**", "")}
    assert silent - (explained_below(thing) if is_class else set()) == set()
    refuses = bool(signature.parameters) and thing.__name__ not in MADE_BY_US
    assert not refuses or "\nRaises:\n" in text
    returns = not is_class and signature.return_annotation not in (None, "None")
    assert not returns or "\nReturns:\n" in text


def slow_ones_long(case: Any) -> Any:
    return pytest.param(*case.values, id=case.id, marks=[pytest.mark.long] if case.id in SLOW else [])


@pytest.mark.parametrize("thing", [*map(slow_ones_long, CASES), CONFORMANCE])
def test_the_example_of_a_docstring_runs(thing, request):
    text = inspect.getdoc(thing)
    assert "\nExamples:\n" in text
    for library in SLOW.get(request.node.callspec.id, ()):
        pytest.importorskip(library)
    example = doctest.DocTestParser().get_doctest(text, {}, thing.__name__, None, None)
    if not example.examples:
        refuse_what_is_no_code(text)
        return
    said: list[str] = []
    doctest.DocTestRunner().run(example, out=said.append)
    assert not said, "".join(said)


def refuse_what_is_no_code(text: str) -> None:
    """Code that is only shown (it needs an extra, or seconds): Python, calling what these packages have."""
    code = ast.parse(textwrap.dedent(text.partition("\nExamples:\n")[2].partition("::\n")[2]))
    assert code.body
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in PACKAGES:
            assert hasattr(PACKAGES[node.value.id], node.attr), node.attr


def test_an_example_with_a_wrong_answer_is_seen():
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner().run(example, out=lambda _: None).failed == 1
