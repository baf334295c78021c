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


STOPPING_WEIGHTS: Mapping[Statement, float] = MappingProxyType(
    {"verdict": 0.6, "epsilon": 0.3, "rest": 0.06, "delta": 0.04, "mu": 0.04}
)
"""Where an audit may stop early the verdict comes first: trials to it grow with the logarithm of its share."""
REST_BESIDE_ONE = 0.02
"""What is left for other questions where the risk is spent on one number."""


def shares(
    risk: float, statements: Sequence[Statement], *, weights: Mapping[Statement, float] = WEIGHTS
) -> dict[Statement, float]:
    """The share of the risk behind each statement.

    What is not stated leaves its weight to epsilon, or to all in proportion where epsilon is not stated either.
    """
    require("statements", len(statements) > 0 and len(set(statements)) == len(statements), "distinct", statements)
    weight: dict[Statement, float] = {name: weights[name] for name in statements}
    if len(weight) == 2 and "rest" in weight:
        weight = {name: REST_BESIDE_ONE if name == "rest" else 1 - REST_BESIDE_ONE for name in weight}
    elif "epsilon" in weight:
        weight["epsilon"] += 1 - sum(weight.values())
    total = sum(weight.values())
    shared: dict[Statement, float] = {name: risk * value / total for name, value in weight.items()}
    return shared


def look_share(trials: int, looks: Sequence[int]) -> float:
    """The share of a number's risk that a look has, by its trial number: 1/2 the last one planned, 1/6 that before, ...

    The look j before the last has 1/((j+1)(j+2)), so all of them together have less than 1.
    [docs/validity.md, section 17]
    """
    before_last = len(looks) - 1 - list(looks).index(trials)
    return 1 / ((before_last + 1) * (before_last + 2))
