"""Claims as mathematics, for readers of a paper who expect no Python call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from audit.record.record import ClaimPart

SYMBOLS: Mapping[str, str] = {
    "epsilon": r"\varepsilon",
    "delta": r"\delta",
    "mu": r"\mu",
    "rho": r"\rho",
    "rate": "q",
    "sample_rate": "q",
    "noise_multiplier": r"\sigma",
    "steps": "T",
    "rounds": "T",
    "epochs": "E",
    "records": "N",
    "dimension": "d",
}
NAMES: Mapping[str, str] = {
    "gaussian": "GDP",
    "epsilon_delta": "DP",
    "zcdp": "zCDP",
    "laplace": "DP, Laplace",
    "subsampled_gaussian": "subsampled Gaussian",
    "poisson_training": "subsampled Gaussian, composed",
}


LONGEST, MOST_NUMBERS = 40, 6
"""Of a claim that is not ours: characters of a word, and numbers."""


def formula(claim: ClaimPart) -> str:
    """A claim's family and numbers in LaTeX's math mode, without need of escaping; only numbers are included."""
    if claim.name == "claim_from_history" and (parts := _history(claim.parameters.get("history"))):
        return f"{NAMES['subsampled_gaussian' if claim.steps == 1 else 'poisson_training']} ({', then '.join(parts)})"
    numbers = dict([(key, value) for key, value in claim.parameters.items() if _is_number(value)][:MOST_NUMBERS])
    inside = ", ".join(f"{SYMBOLS.get(key) or _upright(key)} = {number(value)}" for key, value in numbers.items())
    once = claim.name == "poisson_training" and claim.steps == 1
    name = NAMES.get("subsampled_gaussian" if once else claim.name) or _word(claim.name)
    times = f", ${claim.times}$ times" if claim.times > 1 else ""
    return f"{name} (${inside}$){times}" if inside else f"{name}{times}"


def _history(rounds: Any) -> list[str]:
    """Rate, noise multiplier and steps of each part that an accountant counted; empty if there are none."""
    try:
        parts = [[float(value) for value in part] for part in rounds]
        return [rf"$q = {number(q)}, \sigma = {number(z)}, T = {steps:.0f}$" for z, q, steps in parts][:MOST_NUMBERS]
    except (TypeError, ValueError):
        return []


def number(value: float) -> str:
    """A number in three digits, for math mode."""
    return in_math(f"{value:.3g}")


def in_math(written: str) -> str:
    """A number as math mode writes it."""
    mantissa, _, power = written.partition("e")
    if mantissa.lstrip("-") == "inf":
        return mantissa.replace("inf", r"\infty")
    if not power:
        return mantissa
    return rf"{mantissa} \cdot 10^{{{int(power)}}}" if mantissa != "1" else rf"10^{{{int(power)}}}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _upright(key: str) -> str:
    return rf"\text{{{_word(key)}}}"


def _word(name: str) -> str:
    """Letters and digits of a name, cut in length: nothing that TeX interprets."""
    return " ".join("".join(c if c.isascii() and c.isalnum() else " " for c in name).split())[:LONGEST]
