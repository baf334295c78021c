"""dpsgd-audit report: records in another format."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from audit.commands.json_output import print_json
from audit.record.files import make_folder, require_apart, require_writable, write_whole
from audit.record.of_one_run import told_apart
from audit.record.record import AuditRecord
from audit.record.stored import load_records, stored_title
from audit.report.catalogue import PAGE, text_report
from audit.report.diagnoses import function_place
from audit.report.figures import save_figures, width_in_inches
from audit.report.latex import figures, files
from audit.report.page import is_page, write_report
from audit.report.sarif import sarif

UNTITLED = "Privacy audit"


def execute(arguments: argparse.Namespace) -> int:
    """Read record files and write one report, or one figure an audit."""
    loaded = {path: load_records(path) for path in arguments.records}
    records = told_apart(itertools.chain.from_iterable(loaded.values()))
    arguments.title = arguments.title or _title(arguments.records)
    if arguments.figures or arguments.format == PAGE:
        written = _in_folder(records, arguments)
    elif arguments.format == "latex" and arguments.out and not Path(arguments.out).suffix:
        written = _files(records, arguments)
    else:
        if arguments.format == "sarif":
            # its readers want a place for each result: where nothing better is known, the file of records
            files_of = [path for path, found in loaded.items() for _ in found]
            places = {own.name: function_place(own) or f"{path}:1" for path, own in zip(files_of, records, strict=True)}
            text = sarif(records, places=places)
        else:
            text = text_report(records, arguments.format, title=arguments.title)
        if not arguments.out:
            _say(arguments, told={"format": arguments.format, "text": text}, text=text)
            return 0
        _require_apart(arguments)
        write_whole(arguments.out, text)
        written = [Path(arguments.out)]
    paths = [str(path) for path in written]
    _say(arguments, told={"written": paths}, text="\n".join([*paths, ""]))
    return 0


def _title(paths: list[str]) -> str:
    """The common title of the suites that made the files, if they have one."""
    titles = {stored_title(path) for path in paths}
    return (titles.pop() if len(titles) == 1 else None) or UNTITLED


def _in_folder(records: tuple[AuditRecord, ...], arguments: argparse.Namespace) -> list[Path]:
    if not arguments.figures and is_page(arguments.out or ""):
        _require_apart(arguments)
        require_writable(arguments.out)
        return [write_report(records, arguments.out, title=arguments.title)]
    folders = {Path(path).parent for path in arguments.records}
    out = make_folder(arguments.out or (folders.pop() if len(folders) == 1 else "audit-report"))
    if not arguments.figures:
        return [write_report(records, out, title=arguments.title)]
    written = save_figures(records, out, ending=arguments.figures, width=width_in_inches(arguments.width))
    if arguments.figures in ("pdf", "png"):
        write_whole(out / "figures.tex", figures(records, [path.name for path in written]))
        written.append(out / "figures.tex")
    return written


def _require_apart(arguments: argparse.Namespace) -> None:
    require_apart({"--out": arguments.out}, {f"the records {path}": path for path in arguments.records})


def _files(records: tuple[AuditRecord, ...], arguments: argparse.Namespace) -> list[Path]:
    """Write a paper's files into a folder: LaTeX with an ``--out`` without an ending."""
    out = make_folder(arguments.out)
    written = []
    for name, text in files(records, title=arguments.title).items():
        write_whole(out / name, text)
        written.append(out / name)
    return written


def _say(arguments: argparse.Namespace, *, told: dict[str, object], text: str) -> None:
    if arguments.json:
        print_json(told)
    elif not arguments.quiet:
        print(text, end="")
