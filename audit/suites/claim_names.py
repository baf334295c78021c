"""Claims written as text: gaussian(mu=1)."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import guarantees
from dpsgd_audit.spelling import did_you_mean
from guarantees.claim import Claim

CLAIMS = (
    "gaussian",
    "epsilon_delta",
    "laplace",
    "randomised_response",
    "subsampled_gaussian",
    "zcdp",
    "variance_pair",
    "normalised_round",
    "normalised_guarantee",
    "revealed_round",
    "round_upper_bound",
    "projection_bound",
    "poisson_training",
    "deterministic_batches",
    "isolated_shuffle",
    "max_coordinate",
    "fixed_batch_shuffle",
    "fixed_batch_event",
    "fixed_batch_upper",
    "balls_and_bins",
    "renyi",
    "claim_from_table",
    "claim_from_history",
    "claim_from_event",
)
"""Constructors of guarantees that make a claim, as the command line and suites spell them."""


def claim_from_text(text: str) -> Claim:
    """The claim that a call like ``gaussian(mu=1)`` makes; numbers, fractions, strings and tables are understood."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError("not a call")
        name = call.func.id
    except (SyntaxError, ValueError):
        raise ValueError(f"a claim is written like gaussian(mu=1), got {text!r}.") from None
    arguments = {str(word.arg): _value(name, word) for word in call.keywords}
    if name not in CLAIMS:
        raise ValueError(f"unknown claim {name!r}{did_you_mean(name, CLAIMS)}. Known: {', '.join(CLAIMS)}.")
    constructor = getattr(guarantees, name)
    try:
        inspect.signature(constructor).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"{name}{inspect.signature(constructor)}: {error}.") from None
    return constructor(**arguments)


def _value(name: str, word: ast.keyword) -> Any:
    """A number, a fraction of two, a string or a table."""
    try:
        if isinstance(word.value, ast.BinOp) and isinstance(word.value.op, ast.Div):
            return ast.literal_eval(word.value.left) / ast.literal_eval(word.value.right)
        return ast.literal_eval(word.value)
    except (ValueError, TypeError, ZeroDivisionError):
        raise ValueError(
            f"{word.arg} of {name} must be a number, a fraction such as 256/60000, a string or a list, got "
            f"{ast.unparse(word.value)!r}."
        ) from None
