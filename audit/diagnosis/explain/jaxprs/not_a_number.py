"""Where a value became no number with the record, and not without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain.jaxprs.value import Value, host, rounding
from audit.diagnosis.explain.places import NOWHERE, Place


def lost_at(out: Value, ins: Sequence[Value], place: Place) -> Place | None:
    """The first place on the way to a value that is no number; NOWHERE where the record itself holds none."""
    if not _is_lost(out):
        return None
    known = next((value.lost for value in ins if value.lost is not None), None)
    return known or (NOWHERE if any(map(_is_lost, ins)) else place)


def _is_lost(value: Value) -> bool:
    return value.differs and is_no_number(value.b)


def is_no_number(array: Any) -> bool:
    """Whether one of its entries is none."""
    return rounding(array) > 0 and bool(np.isnan(host(array)).any())
