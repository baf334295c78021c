"""The doors that carry a name of our own: the command, the pytest plugin, and how the four packages show themselves.

``audit``, ``mechanisms``, ``distinguishers`` and ``guarantees`` are common words. Whatever runs merely because the
wheel is installed starts here and imports none of them until it is used.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """``from dpsgd_audit import audit``: ours, also where another package of that name comes first on the path."""
    from dpsgd_audit.name_clashes import PACKAGES, ours

    if name not in PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return ours(name)
