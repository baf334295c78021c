"""By what a sum is multiplied on its way to its noise, as long as that is the same number for all of its entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain.jaxprs.facts import Gain
from audit.diagnosis.explain.jaxprs.noise import SUMS
from audit.diagnosis.explain.jaxprs.value import Value, host

KEEPS = SUMS | frozenset(
    {"broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p", "device_put", "expand_dims", "neg"}
    | {"optimization_barrier", "reduce_precision", "reshape", "slice", "squeeze", "stack", "stop_gradient", "transpose"}
)
"""Equations that multiply nothing."""


def gain_after(name: str, params: dict[str, Any], out: Value, ins: Sequence[Value]) -> Gain:
    """The gain of a result; one begins anew at an equation that does more than to multiply by a number."""
    differing = [value for value in ins if value.differs]
    gains = {value.gain for value in differing}
    if out.tag is None and name in KEEPS and len(gains) == 1:
        return gains.pop()
    if out.tag is None and name == "select_n" and len({gain.since for gain in gains}) == 1:
        # one of the cases may be bounded, the other is the sum as it is
        return next((value.gain for value in differing if value.bent is None), Gain(object()))
    if out.tag is None and (name in ("mul", "div") or (name == "dot_general" and _adds_nothing(params, ins))):
        return _product(name, ins, differing)
    return Gain(object())


def _product(name: str, ins: Sequence[Value], differing: Sequence[Value]) -> Gain:
    factors = [value for value in ins if _is_number(value)]
    if len(factors) != 1 or (name == "div" and factors[0] is ins[0]):
        return Gain(object())
    (factor,) = factors
    sums = [value for value in differing if value is not factor]
    if not sums:
        return Gain(object())
    if factor.differs:
        # a number that bounds the sum, and makes it no longer
        return sums[0].gain
    by = float(host(factor.a).ravel()[0])
    if not np.isfinite(by) or not by:
        return Gain(object())
    return Gain(sums[0].gain.since, sums[0].gain.times * (1 / by if name == "div" else by))


def _adds_nothing(params: dict[str, Any], ins: Sequence[Value]) -> bool:
    """Whether a product sums over axes of one entry alone."""
    (contracting, _), _ = params["dimension_numbers"]
    return all(np.shape(ins[0].a)[dim] == 1 for dim in contracting)


def _is_number(value: Value) -> bool:
    """Whether all entries are one number."""
    return all(np.size(side) and np.all(host(side) == host(side).ravel()[0]) for side in (value.a, value.b))
