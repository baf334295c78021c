"""dpsgd-audit compare: what got worse between two record files."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from audit.commands.arguments import risk_of
from audit.commands.json_output import print_json

if TYPE_CHECKING:
    from audit.record.compare import Change

STYLES = {
    "worse": "red",
    "better": "green",
    "same": "default",
    "not_compared": "yellow",
    "added": "default",
    "missing": "yellow",
}
EXIT_NOT_COMPARED = 4
"""Nothing got worse as far as was seen, but some audit of the old records was not compared, or none at all."""
NOTHING_COMPARED = "No audit was compared, so this says nothing about what changed."
VERDICTS_ALONE = "No counts were compared: an audit is called worse by its verdict alone."


def execute(arguments: argparse.Namespace) -> int:
    """Print one line an audit; 1 if anything got worse, else 4 if something was not compared or is missing, else 0."""
    risk = risk_of(arguments.confidence)
    from audit.record.compare import compare
    from audit.record.record import plain
    from audit.record.stored import load_records
    from audit.suites.exit_codes import EXIT_EXPECTED, EXIT_UNEXPECTED

    changes = compare(load_records(arguments.old), load_records(arguments.new), risk=risk)
    if arguments.json:
        print_json({"risk": risk, "changes": [plain(change) for change in changes]})
    elif not arguments.quiet:
        _print(changes, risk)
    states = {change.state for change in changes}
    if "worse" in states:
        return EXIT_UNEXPECTED
    whole = _any_compared(changes) and not states & {"not_compared", "missing"}
    return EXIT_EXPECTED if whole else EXIT_NOT_COMPARED


def _any_compared(changes: tuple[Change, ...]) -> bool:
    """Whether counts were, or two audits that could not run, as expected."""
    return any(change.test is not None or change.state == "same" for change in changes)


def _caption(changes: tuple[Change, ...], risk: float) -> str:
    if _any_compared(changes):
        return f"If nothing changed, some audit is called worse by its counts with probability at most {risk:g}."
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
