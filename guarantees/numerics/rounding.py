"""Printing bounds so that they claim no more than is proven: lower bounds are rounded down, upper limits up.

Every report writes the epsilon, delta and mu of an audit in three digits, so that two reports of it never disagree.
"""

from __future__ import annotations

import decimal
import math

ROUND_OFF = 1e-12
"""Relative tolerance: a bound of .3 that is stored as .29999999999999998 is still printed as .3."""

THREE_DIGITS = ".3g"

LONGEST = 309
"""Digits of the largest float before the decimal point."""


def at_least(value: float, form: str = THREE_DIGITS) -> str:
    """A lower bound as ``.3f`` or ``.3g`` would write it, never more than is proven but for round-off."""
    return _written(value * (1 + math.copysign(ROUND_OFF, value)), form, decimal.ROUND_FLOOR)


def at_most(value: float, form: str = THREE_DIGITS) -> str:
    """An upper limit, rounded up: never less than is proven."""
    return _written(value * (1 - math.copysign(ROUND_OFF, value)), form, decimal.ROUND_CEILING)


def between(low: float, high: float, form: str) -> str:
    """Both ends of an interval, rounded outwards."""
    return f"{at_least(low, form)} to {at_most(high, form)}"


def _written(value: float, form: str, rounding: str) -> str:
    if not math.isfinite(value):
        return format(value, form)
    digits, kind = int(form[1:-1]), form[-1]
    exact = decimal.Decimal(float(value))
    if kind == "f":
        room = decimal.Context(prec=LONGEST + digits, rounding=rounding)
        cut = exact.quantize(decimal.Decimal(1).scaleb(-digits), context=room)
    else:
        cut = decimal.Context(prec=digits, rounding=rounding).plus(exact)
    # no minus before a zero
    return format(float(cut) + 0.0, form)
