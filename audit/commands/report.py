"""dpsgd-audit report: records in another format."""

from __future__ import annotations

import argparse
import itertools

from audit.record.files import make_folder, require_writable, write_whole
from audit.record.record import AuditRecord, load_records
from audit.report.formats import junit, markdown
from audit.report.page import write_report


def execute(arguments: argparse.Namespace) -> int:
    """Read record files and write one report."""
    if arguments.format == "html":
        out = make_folder(arguments.out or "audit-report")
        require_writable(out / "index.html")
        print(write_report(_read(arguments), out, title=arguments.title))
        return 0
    if arguments.out:
        require_writable(arguments.out)
    text = {"markdown": markdown, "junit": junit}[arguments.format](_read(arguments), title=arguments.title)
    if arguments.out:
        write_whole(arguments.out, text)
    else:
        print(text, end="")
    return 0


def _read(arguments: argparse.Namespace) -> tuple[AuditRecord, ...]:
    return tuple(itertools.chain.from_iterable(load_records(path) for path in arguments.records))
