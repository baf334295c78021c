"""How an audit's risk is shared by what it states: fixed before the trials, and never more than the risk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from guarantees.checks import require

Statement = Literal["verdict", "epsilon", "delta", "mu", "rest"]
"""The verdict, epsilon at the reported delta, delta at epsilon 0, mu, and every other question."""

WEIGHTS: Mapping[Statement, float] = MappingProxyType(
    {"epsilon": 0.6, "verdict": 0.2, "rest": 0.1, "delta": 0.05, "mu": 0.05}
)
"""By what they buy: epsilon hangs on few counts and feels the normal quantile of its share; delta and mu hang on many
and hardly do; the joint verdict needs a fifth to stay ahead of a rectangle with a third."""


def shares(risk: float, statements: Sequence[Statement]) -> dict[Statement, float]:
    """The share of the risk behind each statement.

    What is not stated leaves its weight to epsilon, or to all in proportion where epsilon is not stated either.
    """
    require("statements", len(statements) > 0 and len(set(statements)) == len(statements), "distinct", statements)
    weight: dict[Statement, float] = {name: WEIGHTS[name] for name in statements}
    if "epsilon" in weight:
        weight["epsilon"] += 1 - sum(weight.values())
    total = sum(weight.values())
    shared: dict[Statement, float] = {name: risk * value / total for name, value in weight.items()}
    return shared
