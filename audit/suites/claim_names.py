"""Claims written as text: gaussian(mu=1)."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
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

USUAL_NAMES = {
    "dp": "epsilon_delta",
    "adp": "epsilon_delta",
    "approximate_dp": "epsilon_delta",
    "pure_dp": "epsilon_delta",
    "gdp": "gaussian",
    "mu_gdp": "gaussian",
    "rdp": "renyi",
    "renyi_dp": "renyi",
    "cdp": "zcdp",
    "zcdp": "zcdp",
    "rr": "randomised_response",
    "dpsgd": "poisson_training",
    "dp_sgd": "poisson_training",
}
"""What papers and accountants call these claims, in small letters."""


def meant_claim(name: object) -> str:
    """' (did you mean ...?)' behind the name of a claim that is unknown."""
    usual = USUAL_NAMES.get(str(name).lower().replace("-", "_"))
    return f" (did you mean {usual!r}?)" if usual else did_you_mean(name, CLAIMS)


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
        raise ValueError(f"unknown claim {name!r}{meant_claim(name)}. Known: {', '.join(CLAIMS)}.")
    constructor = getattr(guarantees, name)
    _require_words(name, inspect.signature(constructor).parameters, arguments, unnamed=bool(call.args))
    return constructor(**arguments)


def _require_words(
    name: str, known: Mapping[str, inspect.Parameter], given: Mapping[str, Any], *, unnamed: bool
) -> None:
    """Every argument by its name, none unknown and none missing."""
    for word in given:
        if word not in known:
            raise ValueError(f"{name} has no {word!r}{did_you_mean(word, known)}. It takes {', '.join(known)}.")
    missing = [word for word, told in known.items() if told.default is inspect.Parameter.empty and word not in given]
    if missing:
        also = ", each number by its name" if unnamed else ""
        call = f"{name}({', '.join(f'{word}=...' for word in missing)})"
        raise ValueError(f"{name} needs {' and '.join(missing)}{also}: {call}.")
    if unnamed:
        raise ValueError(f"{name} takes {', '.join(known)}, each once and by its name.")


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
