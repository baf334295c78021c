"""What an equation of a jaxpr says of itself: what it calls, holds, draws, and gives; and why a run ends at one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from audit.diagnosis.explain.places import Place
from audit.trials.jaxprs import holds


class CannotFollowError(Exception):
    """The replay ends here; the message says why."""

    def __init__(self, why: str, at: Place):
        super().__init__(why)
        self.why, self.at = why, at


class FirstRoundEnded(Exception):
    """Data meet a release: the next round has begun."""


CALLBACKS = frozenset({"pure_callback", "io_callback", "ffi_call", "custom_call", "debug_callback"})
ON_DEVICES = frozenset({"shard_map", "xla_pmap"})
DERIVE_KEYS = frozenset({"random_fold_in", "random_split"})
COMPARISONS = frozenset({"lt", "le", "gt", "ge"})
COUNTERS = frozenset({"philox"})
"""Functions of ours that make independent bits of a key and of counters."""
INDEPENDENT = frozenset(
    f"{prefix}{law}"
    for prefix in ("", "_")
    for law in ("normal", "normal_real", "uniform", "bernoulli", "bits", "laplace", "exponential", "gumbel", "randint")
)
"""Functions whose numbers are independent of one another."""
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
    return _is_derivative(equation.source_info.name_stack)


# a replay comes by one equation dozens of times
@functools.lru_cache(maxsize=4096)
def _is_derivative(stack: Any) -> bool:
    return "jvp(" in str(stack)


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
    return holds(jaxpr, frozenset({"random_bits"}))
