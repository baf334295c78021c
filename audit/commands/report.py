"""dpsgd-audit report: records in another format."""

from __future__ import annotations

import argparse
import itertools

from audit.record.files import make_folder, write_whole
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
    records = tuple(itertools.chain.from_iterable(load_records(path) for path in arguments.records))
    if arguments.figures or arguments.format == "html":
        out = make_folder(arguments.out or "audit-report")
        if not arguments.figures:
            print(write_report(records, out, title=arguments.title))
            return 0
        width = width_in_inches(arguments.width)
        for path in save_figures(records, out, ending=arguments.figures, width=width):
            print(path)
        return 0
    text = FORMATS[arguments.format](records, title=arguments.title)
    if arguments.out:
        write_whole(arguments.out, text)
    else:
        print(text, end="")
    return 0
