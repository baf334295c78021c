"""Printed numbers that say no more than is proven: lower bounds lose their digits downwards, upper limits upwards."""

from __future__ import annotations

import decimal
import math

ROUND_OFF = 1e-12
"""Relative: a bound of .3 that is stored as .29999999999999998 is still printed as .3."""


def at_least(value: float, form: str) -> str:
    """A lower bound as ``.3f`` or ``.3g`` would write it, never more than is proven but for round-off."""
    return _written(value * (1 + math.copysign(ROUND_OFF, value)), form, decimal.ROUND_FLOOR)


def at_most(value: float, form: str) -> str:
    """An upper limit, never less than is proven."""
    return _written(value * (1 - math.copysign(ROUND_OFF, value)), form, decimal.ROUND_CEILING)


def _written(value: float, form: str, rounding: str) -> str:
    if not math.isfinite(value):
        return format(value, form)
    digits, kind = int(form[1:-1]), form[-1]
    exact = decimal.Decimal(value)
    if kind == "f":
        cut = exact.quantize(decimal.Decimal(1).scaleb(-digits), rounding=rounding)
    else:
        cut = decimal.Context(prec=digits, rounding=rounding).plus(exact)
    return format(float(cut), form)
