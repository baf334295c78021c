"""python -m papers: the five papers, number by number; python -m papers audits: published audits, judged again."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence

from audit.record.files import make_folder, write_whole
from audit.record.record import plain
from audit.report.escaping import json_text
from papers import audits
from papers.catalogue import chosen, commented, compared
from papers.figures import draw_all
from papers.item import Remark, Row
from papers.page import write_page


def main(words: Sequence[str] | None = None) -> int:
    """Compute every number, print it beside the paper's, write the page."""
    given = list(sys.argv[1:] if words is None else words)
    if given[:1] == ["audits"]:
        return audits.main(given[1:])
    arguments = _parser().parse_args(given)
    try:
        papers = chosen(arguments.papers)
    except ValueError as unknown:
        print(f"papers: {unknown}", file=sys.stderr)
        return 2
    out = make_folder(arguments.out)
    rows: list[Row] = []
    for row in compared(papers, quick=arguments.quick):
        rows.append(row)
        if not arguments.json:
            print(_line(row), flush=True)
    remarks: list[Remark] = []
    for remark in commented(papers, quick=arguments.quick):
        remarks.append(remark)
        if not arguments.json:
            print(f"{'aside':14s} {remark.paper} {remark.where}: {remark.what}: {remark.ours:.5g}", flush=True)
    counts = Counter(row.state for row in rows)
    items, asides = [plain(row) for row in rows], [plain(remark) for remark in remarks]
    write_whole(out / "items.json", json.dumps({"items": items, "asides": asides}, indent=1) + "\n")
    page = write_page(tuple(rows), tuple(remarks), draw_all({paper.key for paper in papers}, out), out)
    if arguments.json:
        print(json_text({"counts": counts, "items": items, "asides": asides}))
        return 0
    said = ", ".join(f"{number} {state}" for state, number in counts.items())
    left = sum(row.slow for paper in papers for row in (*paper.items(), *paper.asides())) if arguments.quick else 0
    print(f"{len(rows)} items: {said}; {len(remarks)} asides{f'; {left} slow ones left out' if left else ''}.")
    print(f"Page: {page}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m papers", description="The five papers, number by number: printed, ours, and whether they agree."
    )
    parser.add_argument(
        "papers",
        nargs="*",
        metavar="PAPER",
        help="keys of papers, as gomez2025 (default: all); or audits: published audits, judged again",
    )
    parser.add_argument("--quick", action="store_true", help="leave out what takes more than a few seconds")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--out", default="reproduction", metavar="DIR", help="(default: %(default)s)")
    return parser


def _line(row: Row) -> str:
    ours = "-" if row.ours is None else f"{row.ours:.5g}"
    near = "" if row.ours is None else f" within {row.tolerance:.2g}"
    why = f"  ({row.why})" if row.why else ""
    printed = row.printed or "-"
    return f"{row.state:14s} {row.paper} {row.where} [{row.section}]: {row.what}: {printed} | {ours}{near}{why}"


if __name__ == "__main__":
    sys.exit(main())
