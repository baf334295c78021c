"""What a suite is: its keys, its audits, and the error that says what is wrong with one or unknown in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dpsgd_audit.spelling import did_you_mean

TARGETS = ("verdict", "epsilon", "delta", "mu")
PARTS = ("mechanism", "neighbours", "distinguisher", "claim", "policy")
MOST_LOOKS = 20
MOST_AUDITS = 10_000
"""Audits that one suite may stand for, its grids multiplied out."""
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
"""Of a table without a kind: 'package.module:name', the part itself or what makes it."""


class SuiteError(ValueError):
    """A suite that cannot be run: the message says where and what to do."""


class UnbuiltError(SuiteError):
    """One audit, whose words are right, cannot be built: code or a library fails, or a part refuses what it is given.

    The others may run.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditSpec:
    """One audit as the file states it, defaults filled in and grids expanded."""

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
    """Parameters that the audit itself states: each must be one of its parts'."""
    places: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    """'file:line' of every word of its parts and parameters."""

    def at(self, word: str) -> str:
        """'file:line' of a word; of the audit where it states no such word."""
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
    """Which look at these audits, from 1; 0: the only one."""
    defaults: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Where each parameter of [defaults] stands: each must be one of some audit's parts."""


def refuse_unknown(table: Any, known: Iterable[str], where: Callable[[str], str], what: str) -> None:
    """An unknown key is an error that names its line and the nearest spelling."""
    known = tuple(known)
    if not isinstance(table, Mapping):
        raise SuiteError(f"{where(what)}: {what} must be a table, got {table!r}.")
    for key in table:
        if key not in known:
            meant, allowed = did_you_mean(key, known), ", ".join(sorted(known))
            raise SuiteError(f"{where(key)}: unknown key {key!r} in {what}{meant}. Allowed: {allowed}.")
