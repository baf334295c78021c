"""Keys of a suite's tables that nobody knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from audit.suites.suite import SuiteError
from dpsgd_audit.spelling import did_you_mean


def refuse_unknown(table: Any, known: Iterable[str], where: Callable[[str], str], what: str) -> None:
    """An unknown key is an error that names its line and the nearest spelling."""
    known = tuple(known)
    if not isinstance(table, Mapping):
        raise SuiteError(f"{where(what)}: {what} must be a table, got {table!r}.")
    for key in table:
        if key not in known:
            meant, allowed = did_you_mean(key, known), ", ".join(sorted(known))
            raise SuiteError(f"{where(key)}: unknown key {key!r} in {what}{meant}. Allowed: {allowed}.")
