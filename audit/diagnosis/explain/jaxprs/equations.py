"""What an equation of a jaxpr says of itself: what it calls, holds, draws, and gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
"""Equations that only call another program, and where they keep it."""


def is_derived(equation: Any) -> bool:
    """Whether differentiation made an equation, or what it differentiates holds it."""
    return "jvp(" in str(equation.source_info.name_stack)


def loop_parts(scan: Any) -> tuple[int, int]:
    """How many constants and how many carried values a scan has: versions of JAX say it in different ways.

    What a scan runs over, and what it stacks, has one axis more outside than inside.
    """
    inner = getattr(scan.params["jaxpr"], "jaxpr", scan.params["jaxpr"])

    def unstacked(outside: Sequence[Any], inside: Sequence[Any]) -> int:
        return sum(len(one.aval.shape) == len(own.aval.shape) for one, own in zip(outside, inside, strict=True))

    carried = unstacked(scan.outvars, inner.outvars)
    return unstacked(scan.invars, inner.invars) - carried, carried


def shapes(equation: Any) -> list[Any]:
    """Of what it gives; None where it has none."""
    return [getattr(variable.aval, "shape", None) for variable in equation.outvars]


def draws(jaxpr: Any) -> bool:
    """Whether random bits are drawn inside, rather than keys derived."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        if equation.primitive.name == "random_bits":
            return True
        if any(draws(inner) for inner in inside_of(equation)):
            return True
    return False


def inside_of(equation: Any) -> Iterator[Any]:
    """The programs that an equation holds."""
    for part in equation.params.values():
        for one in part if isinstance(part, tuple | list) else (part,):
            if hasattr(one, "eqns") or hasattr(one, "jaxpr"):
                yield one
