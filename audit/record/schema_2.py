"""Reads records of schema 2, the one before: its shares, points and band become one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from audit.record.read import require_key
from audit.risk import ROUNDING, on_points

SCHEMA = 2
OF_A_BAND = "band"
"""What the points of a band are called: its risk is that of all of them together."""


def upgraded(data: Mapping[str, Any]) -> dict[str, Any]:
    """A record of schema 2 as schema 3 writes it: ``shares`` became ``budget``.

    What ``shares`` calls the rest was even between points and band, or all of the points' where the audit could stop
    early; without shares the points had what their own risks say, and the band what they left.
    """
    shares, risk = data.get("shares"), _number("risk", data.get("risk"))
    require_key("risk", 0 < risk < 1, "in (0, 1)", risk)
    require_key("shares", isinstance(shares, Mapping), "an object", shares)
    assert isinstance(shares, Mapping)
    kept = {key: value for key, value in data.items() if key != "shares"}
    if shares:
        stated = {name: share for name, share in shares.items() if name != "rest"}
        rest = _number("shares.rest", shares.get("rest", 0.0))
        on_band = 0.0 if data.get("stops_early") else rest / 2
        budget = {"risk": risk, **stated, "points": rest - on_band, "band": on_band}
    else:
        budget = _of_points(risk, data.get("points"))
    return {**kept, "schema": 3, "budget": budget}


def _of_points(risk: float, points: Any) -> dict[str, float]:
    listed = isinstance(points, Sequence) and all(isinstance(point, Mapping) for point in points)
    require_key("points", listed, "a list of objects", points)
    if any(point.get("target") == OF_A_BAND for point in points):
        return {"risk": risk, "band": risk}
    risks = [_number(f"points[{i}].risk", point.get("risk")) for i, point in enumerate(points)]
    require_key("points", sum(risks) <= risk * (1 + ROUNDING), f"within the risk {risk:g} in sum", sum(risks))
    found = on_points(risk, risks)
    return {"risk": risk, "points": found.points, "band": found.band}


def _number(key: str, value: Any) -> float:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    require_key(key, known, "a probability", value)
    return float(value)
