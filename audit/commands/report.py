"""dpsgd-audit report: records in another format."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from audit.record.record import load_records
from audit.report.figures import save_figures, width_in_inches
from audit.report.formats import junit, markdown, separated
from audit.report.latex import bibtex, latex
from audit.report.page import write_report

FORMATS = {
    "markdown": markdown,
    "junit": junit,
    "latex": latex,
    "csv": lambda records, title: separated(records),
    "bibtex": lambda records, title: bibtex(records),
}


def execute(arguments: argparse.Namespace) -> int:
    """Read record files and write one report, or one figure an audit."""
    paths = [Path(name) for name in arguments.records]
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file; records are written by `dpsgd-audit run`.")
    records = tuple(itertools.chain.from_iterable(load_records(path) for path in paths))
    if arguments.figures or arguments.format == "html":
        out = Path(arguments.out or "audit-report")
        out.mkdir(parents=True, exist_ok=True)
        if not arguments.figures:
            print(write_report(records, out, title=arguments.title))
            return 0
        width = width_in_inches(arguments.width)
        for path in save_figures(records, out, ending=arguments.figures, width=width):
            print(path)
        return 0
    text = FORMATS[arguments.format](records, title=arguments.title)
    if arguments.out:
        Path(arguments.out).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0
