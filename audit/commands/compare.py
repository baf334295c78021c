"""dpsgd-audit compare: what got worse between two record files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from audit.commands import risk_of

if TYPE_CHECKING:
    from audit.record.compare import Change

STYLES = {"worse": "red", "better": "green", "same": "default", "added": "default", "missing": "yellow"}


def execute(arguments: argparse.Namespace) -> int:
    """Print one line an audit; 1 if anything got worse, 0 otherwise."""
    risk = risk_of(arguments.confidence)
    from audit.record.compare import compare
    from audit.record.record import load_records, plain
    from audit.suites.run import EXIT_EXPECTED, EXIT_UNEXPECTED

    paths = [Path(arguments.old), Path(arguments.new)]
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file; records are written by `dpsgd-audit run`.")
    changes = compare(load_records(paths[0]), load_records(paths[1]), risk=risk)
    if arguments.json:
        print(json.dumps({"risk": risk, "changes": [plain(change) for change in changes]}))
    else:
        _print(changes, risk)
    return EXIT_UNEXPECTED if any(change.state == "worse" for change in changes) else EXIT_EXPECTED


def _print(changes: tuple[Change, ...], risk: float) -> None:
    from rich.console import Console
    from rich.table import Table

    from audit.report.table import LOG_WIDTH, readable

    console = Console()
    if not console.is_terminal:
        console.width = LOG_WIDTH
    table = Table(
        caption=f"If nothing changed, some audit is called worse by its counts with probability at most {risk:g}.",
        caption_justify="left",
    )
    for column in ("audit", "verdict before", "now", "change"):
        table.add_column(column)
    for change in changes:
        note = " (the claim changed)" if change.claim_changed else ""
        table.add_row(
            change.name,
            readable(change.old_verdict or "-"),
            readable(change.new_verdict or "-"),
            f"[{STYLES[change.state]}]{change.state}[/]: {change.reason}{note}",
        )
    console.print(table)
