"""Suites: their keys and audits, and the error that says what is wrong or unknown in one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dpsgd_audit.spelling import did_you_mean

TARGETS = ("verdict", "epsilon", "delta", "mu")
PARTS = ("mechanism", "neighbours", "distinguisher", "claim", "policy")
MOST_LOOKS = 20
MOST_AUDITS = 10_000
"""Most audits that one suite may stand for, with its grids multiplied out."""
MOST_TRIALS = 2**62
SUITE_KEYS = ("title", "risk", "trials", "delta", "seed", "time_budget", "environments", "defaults", "audit")
AUDIT_KEYS = (
    "name",
    "expect",
    "trials",
    "delta",
    "target",
    "time_budget",
    "diagnose",
    "environment",
    "parameters",
    *PARTS,
)
ENVIRONMENT_KEYS = ("python", "packages")


CODE_KEY = "function"
"""Key of a table without a kind: 'package.module:name', the part itself or what makes it."""


class SuiteError(ValueError):
    """A suite that cannot be run: the message says where and what to do."""


class UnbuiltError(SuiteError):
    """One audit, whose words are right, cannot be built: code or a library fails, or a part refuses what it is given.

    The others may run.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditSpec:
    """One audit of a suite, with defaults filled in and grids expanded."""

    name: str
    expect: str
    trials: int
    delta: float
    target: str | None
    time_budget: float | None
    parameters: Mapping[str, Any]
    mechanism: Mapping[str, Any]
    neighbours: Mapping[str, Any]
    claim: Mapping[str, Any]
    distinguisher: Mapping[str, Any] | None
    policy: Mapping[str, Any] | None
    where: str
    diagnose: bool = True
    own_parameters: tuple[str, ...] = ()
    """Parameters that the audit itself states: each must be taken by a part."""
    places: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    """'file:line' of every word of its parts and parameters."""

    def at(self, word: str) -> str:
        """'file:line' of a word or, if the audit does not state it, of the audit."""
        return self.places.get(word, self.where)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """Audits that share one risk."""

    title: str
    risk: float
    seed: int
    time_budget: float | None
    audits: tuple[AuditSpec, ...]
    look: int = 0
    """Number of the look at these audits, from 1; 0 for the only one."""
    defaults: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """'file:line' of each parameter of [defaults]: each must be taken by a part of some audit."""


def refuse_unknown(table: Any, known: Iterable[str], where: Callable[[str], str], what: str) -> None:
    """Refuse an unknown key, naming its line and the nearest spelling."""
    known = tuple(known)
    if not isinstance(table, Mapping):
        raise SuiteError(f"{where(what)}: {what} must be a table, got {table!r}.")
    for key in table:
        if key not in known:
            meant, allowed = did_you_mean(key, known), ", ".join(sorted(known))
            raise SuiteError(f"{where(key)}: unknown key {key!r} in {what}{meant}. Allowed: {allowed}.")
