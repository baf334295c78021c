"""dpsgd-audit reproduce: the five papers, item by item."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter

from audit.record.files import make_folder, write_whole
from audit.record.record import plain
from audit.report.escaping import json_text
from audit.reproduce.figures import draw_all
from audit.reproduce.item import Row
from audit.reproduce.page import write_page
from audit.reproduce.papers import reproduced


def execute(arguments: argparse.Namespace) -> int:
    """Compute every item, print what differs, write the page."""
    out = make_folder(arguments.out)
    rows = []
    for row in reproduced(arguments.papers, quick=arguments.quick):
        rows.append(row)
        if not (arguments.json or arguments.quiet):
            print(_line(row), flush=True)
    counts = Counter(row.state for row in rows)
    said = ", ".join(f"{number} {state}" for state, number in counts.items())
    write_whole(out / "items.json", json.dumps([plain(row) for row in rows], indent=1) + "\n")
    figures = draw_all({row.paper for row in rows}, out)
    page = write_page(tuple(rows), figures, out)
    if arguments.json:
        print(json_text({"counts": counts, "items": [plain(row) for row in rows]}))
    elif not arguments.quiet:
        print(f"{len(rows)} items: {said}.\nPage: {page}", file=sys.stdout)
    return 0


def _line(row: Row) -> str:
    ours = "" if row.ours is None else f"{row.ours:.5g}"
    why = f"  ({row.why})" if row.state != "match" and row.why else ""
    return f"{row.state:14s} {row.paper} {row.where}: {row.what}: {row.theirs or '-'} | {ours or '-'}{why}"
