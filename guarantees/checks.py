"""Refusing a bad argument at the border."""

from __future__ import annotations

from typing import Any


def require(argument: str, holds: Any, rule: str, value: Any) -> None:
    """Refuse a bad argument with its name, the rule and the value."""
    if not holds:
        raise ValueError(f"{argument} must be {rule}, got {value!r}.")
