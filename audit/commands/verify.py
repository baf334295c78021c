"""dpsgd-audit verify: does a record follow from its counts, and do its counts come again?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from audit.record.record import load_records, plain
from audit.report.escaping import visible
from audit.suites.file import read_suite
from audit.suites.run import EXIT_EXPECTED, EXIT_UNEXPECTED
from audit.suites.verify import Check, verify

MARKS = {"right": "right", "wrong": "WRONG", "not checked": "not checked"}


def execute(arguments: argparse.Namespace) -> int:
    """Print one line a check; 1 if anything is wrong, 0 otherwise."""
    path = Path(arguments.records)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; records are written by `dpsgd-audit run`.")
    suite = None if arguments.suite is None else read_suite(arguments.suite)
    records = load_records(path)
    checks = [check for record in records for check in verify(record, rerun=arguments.rerun, suite=suite)]
    if arguments.json:
        print(json.dumps({"checks": [plain(check) for check in checks]}))
    elif not arguments.quiet:
        _print(checks)
    return EXIT_UNEXPECTED if any(check.state == "wrong" for check in checks) else EXIT_EXPECTED


def _print(checks: list[Check]) -> None:
    from rich.console import Console

    console = Console()
    name = None
    for check in checks:
        if check.audit != name:
            name = check.audit
            console.print(visible(name), markup=False, highlight=False)
        says = f": {check.says}" if check.says else ""
        console.print(visible(f"  {MARKS[check.state]:12s} {check.what}{says}"), markup=False, highlight=False)
    wrong = sum(check.state == "wrong" for check in checks)
    skipped = sum(check.state == "not checked" for check in checks)
    console.print(f"{len(checks)} checks: {wrong} wrong, {skipped} not checked.", highlight=False)
