"""Looking into programs that JAX has traced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def holds(jaxpr: Any, names: frozenset[str]) -> bool:
    """Whether there is an equation of such a name in a program, or in one that it holds."""
    return any(
        equation.primitive.name in names or any(holds(inner, names) for inner in inside_of(equation))
        for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns
    )


def inside_of(equation: Any) -> Iterator[Any]:
    """The programs that an equation holds."""
    for part in equation.params.values():
        for one in part if isinstance(part, tuple | list) else (part,):
            if hasattr(one, "eqns") or hasattr(one, "jaxpr"):
                yield one
