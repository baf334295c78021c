"""Which values of a record are primary: nothing else in the record says them, so only drawing again can check them."""

from __future__ import annotations

from typing import Literal

from audit.record.record import AuditRecord

Source = Literal["drawn", "trained", "given", "told"]
"""Whether the trials made a value, so that drawing them again makes it again, one training or given scores did, or
somebody said it."""

DRAWN: tuple[str, ...] = (
    "mechanism",
    "neighbours",
    "distinguisher",
    "releases",
    "steps",
    "key",
    "fit_trials",
    "grids",
    "points.target",
    "points.member",
    "points.threshold",
    "points.rejects",
    "points.on_alpha",
    "state.refit_trials",
    "state.refit_false_alarms",
    "state.refit_misses",
    "state.refit_log_wealth",
    "state.peak",
    "diagnoses",
    "one_run",
    "scores",
)
"""What was audited, with which key, and what its trials gave."""
TOLD: tuple[str, ...] = (
    "name",
    "expect",
    "report_delta",
    "trials_planned",
    "policy",
    "claim.name",
    "claim.parameters",
    "claim.relation",
    "claim.times",
    "diagnose",
    "repeatable",
    "gradient_lengths",
    "look",
    "suite",
    "environment",
    "started",
    "seconds",
)
"""What the audit was asked, and what only the run itself could see: its versions, its clock."""
SENTENCES: tuple[str, ...] = ("reason", "violated_at.says", "diagnoses.says", "diagnoses.assumes", "diagnoses.question")
"""Derived values that are worded: another version may say the same in other words."""


def primary_keys(record: AuditRecord, *, theory_known: bool, source_told: bool) -> dict[str, Source]:
    """The keys of this record under which values are primary."""
    made: Source = "trained" if record.one_run is not None else "given" if record.scores is not None else "drawn"
    keys: dict[str, Source] = {**dict.fromkeys(DRAWN, made), **dict.fromkeys(TOLD, "told")}
    if record.scores is not None:
        # which scores were set aside is in no grid
        keys["points.counts"] = made
    if not record.ran:
        # nothing is drawn: its parts, its claim and the reason are what somebody says
        keys = dict.fromkeys((*keys, "reason", "claim"), "told")
    if source_told:
        keys["claim.source"] = "told"
    if record.suite is None:
        # the suite's risk is shared by a rule; outside a suite the risk is what was asked
        keys["risk"] = "told"
    if not theory_known and record.theory is None:
        keys |= {"theory": made, "exact_epsilon": made}
    return keys
