"""dpsgd-audit report: records in another format."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from audit.record.record import load_records
from audit.report.formats import junit, markdown
from audit.report.page import write_report


def execute(arguments: argparse.Namespace) -> int:
    """Read record files and write one report."""
    paths = [Path(name) for name in arguments.records]
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file; records are written by `dpsgd-audit run`.")
    records = tuple(itertools.chain.from_iterable(load_records(path) for path in paths))
    if arguments.format == "html":
        out = Path(arguments.out or "audit-report")
        out.mkdir(parents=True, exist_ok=True)
        print(write_report(records, out, title=arguments.title))
        return 0
    text = {"markdown": markdown, "junit": junit}[arguments.format](records, title=arguments.title)
    if arguments.out:
        Path(arguments.out).write_text(text)
    else:
        print(text, end="")
    return 0
