"""Which values of a record are primary: nothing else in it implies them, so that only drawing again can check them."""

from __future__ import annotations

from typing import Literal

from audit.record.record import AuditRecord

Source = Literal["drawn", "trained", "given", "told"]
"""Origin of a value: "drawn" by trials, which can be drawn again; "trained" or "given" for one training or given
scores; "told" by somebody."""

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
"""What was audited, with which key, and the results of its trials."""
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
"""What was requested, and what only the run itself could observe: versions, the clock."""
SENTENCES: tuple[str, ...] = ("reason", "violated_at.says", "diagnoses.says", "diagnoses.assumes", "diagnoses.question")
"""Derived values in words, which another version may phrase differently."""


def primary_keys(record: AuditRecord, *, theory_known: bool, source_told: bool) -> dict[str, Source]:
    """Keys of the primary values of this record, and their origin."""
    made: Source = "trained" if record.one_run is not None else "given" if record.scores is not None else "drawn"
    keys: dict[str, Source] = {**dict.fromkeys(DRAWN, made), **dict.fromkeys(TOLD, "told")}
    if record.scores is not None:
        # the grid does not say which scores were set aside
        keys["points.counts"] = made
    if not record.ran:
        # nothing was drawn: parts, claim and reason are what somebody said
        keys = dict.fromkeys((*keys, "reason", "claim"), "told")
    if source_told:
        keys["claim.source"] = "told"
    if record.suite is None:
        # inside a suite the risk follows from the suite's
        keys["risk"] = "told"
    if not theory_known and record.theory is None:
        keys |= {"theory": made, "exact_epsilon": made}
    return keys
