"""Search programs that JAX has traced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def holds(jaxpr: Any, names: frozenset[str]) -> bool:
    """Whether a program, or one inside it, has an equation with one of these names."""
    return any(
        equation.primitive.name in names or any(holds(inner, names) for inner in inside_of(equation))
        for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns
    )


def inside_of(equation: Any) -> Iterator[Any]:
    """Yield the programs inside an equation."""
    for parameter in equation.params.values():
        for value in parameter if isinstance(parameter, tuple | list) else (parameter,):
            if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                yield value
