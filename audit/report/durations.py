"""Durations in words."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours in words; '-' if unknown."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return "< 1 s"
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
