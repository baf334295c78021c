"""dpsgd-audit compare: what got worse between two record files."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from audit.commands.arguments import risk_of
from audit.commands.json_output import print_json
from audit.trials.disk_cache import laws_kept

if TYPE_CHECKING:
    from audit.record.compare import Change
    from audit.record.record import AuditRecord

STYLES = {
    "worse": "red",
    "better": "green",
    "no_change_shown": "default",
    "not_compared": "yellow",
    "added": "default",
    "missing": "yellow",
}
EXIT_NOT_COMPARED = 4
"""Exit code if nothing got worse as far as was seen, but some audit of the old records, or all, was not compared."""
NOTHING_COMPARED = "No audit was compared, so this says nothing about what changed."
OBSERVED = "Observed advantages are read at one threshold that both records have: estimates, and no bounds."
DOUBTED = "the {} record contradicts its own counts ({}); `dpsgd-audit verify` says more"
VERDICTS_ALONE = "No counts were compared: an audit is called worse by its verdict alone."


@laws_kept()
def execute(arguments: argparse.Namespace) -> int:
    """Print one line an audit; 1 if anything got worse, else 4 if something was not compared or is missing, else 0."""
    risk = risk_of(arguments.confidence)
    from audit.record.compare import compare
    from audit.record.record import plain
    from audit.record.stored import load_records
    from audit.suites.exit_codes import EXIT_EXPECTED, EXIT_UNEXPECTED

    old, new = load_records(arguments.old), load_records(arguments.new)
    doubted = _doubted(old, "old") | _doubted(new, "new")
    changes = tuple(_believed(change, doubted.get(change.name)) for change in compare(old, new, risk=risk))
    if arguments.json:
        print_json({"risk": risk, "changes": [plain(change) for change in changes]})
    elif not arguments.quiet:
        _print(changes, risk)
    states = {change.state for change in changes}
    if "worse" in states:
        return EXIT_UNEXPECTED
    whole = _any_compared(changes) and not states & {"not_compared", "missing"}
    return EXIT_EXPECTED if whole else EXIT_NOT_COMPARED


def _doubted(records: tuple[AuditRecord, ...], which: str) -> dict[str, str]:
    """Audits with records that contradict their counts, and why: no change can be read from those."""
    from audit.verify.procedure import contradiction

    doubts = {record.name: contradiction(record) for record in records}
    return {name: DOUBTED.format(which, why) for name, why in doubts.items() if why is not None}


def _believed(change: Change, doubt: str | None) -> Change:
    """A change, or a doubt if one of its records contradicts itself; what got worse or is missing stays."""
    if doubt is None:
        return change
    if change.state in ("worse", "missing"):
        return dataclasses.replace(change, reason=f"{change.reason}; {doubt}")
    return dataclasses.replace(change, state="not_compared", reason=doubt, test=None)


def _any_compared(changes: tuple[Change, ...]) -> bool:
    """Whether any counts were compared, or two audits that could not run, as expected."""
    return any(change.test is not None or change.state == "no_change_shown" for change in changes)


def _caption(changes: tuple[Change, ...], risk: float) -> str:
    if _any_compared(changes):
        worse = f"If nothing changed, some audit is called worse by its counts with probability at most {risk:g}."
        return f"{worse} {OBSERVED}" if any(change.test is not None for change in changes) else worse
    return VERDICTS_ALONE if any(change.state == "worse" for change in changes) else NOTHING_COMPARED


def _print(changes: tuple[Change, ...], risk: float) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from audit.report.escaping import visible
    from audit.report.table import log_width, readable

    console = Console(width=log_width())
    table = Table(caption=_caption(changes, risk), caption_justify="left")
    for column in ("audit", "verdict before", "now", "change"):
        table.add_column(column)
    for change in changes:
        note = " (the claim changed)" if change.claim_changed else ""
        table.add_row(
            escape(visible(change.name)),
            readable(change.old_verdict or "-"),
            readable(change.new_verdict or "-"),
            f"[{STYLES[change.state]}]{readable(change.state)}[/]: {escape(change.reason)}{note}",
        )
    console.print(table)
