"""Reads records of schema 1, the one before: the same numbers under the present names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from audit.record.read import require_key

SCHEMA = 1


def upgraded(data: Mapping[str, Any]) -> dict[str, Any]:
    """A record of schema 1 as schema 2 writes it.

    ``claim.delta`` became ``claim.advantage``; ``stops_early`` was known from the policy's name alone; all numbers were
    read off the points, so there were no shares of their own.
    """
    for key in ("claim", "policy"):
        require_key(key, isinstance(data.get(key), Mapping), "an object", data.get(key))
    claim = {("advantage" if key == "delta" else key): value for key, value in data["claim"].items()}
    added = {"stops_early": data["policy"].get("kind") == "anytime", "numbers": [], "shares": {}}
    return {**data, "schema": 2, "claim": claim, **added}
