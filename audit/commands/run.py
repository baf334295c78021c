"""dpsgd-audit run: run a suite; print a table, write a report, set the exit code."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from audit.commands.arguments import risk_of
from audit.commands.json_output import print_json
from audit.commands.sigterm import ended_in_order
from audit.record.files import make_folder, require_apart, require_writable, write_whole
from audit.report.escaping import printable
from audit.suites.read import parse_suite, read_suite
from audit.suites.suite import MOST_LOOKS, MOST_TRIALS, Suite, SuiteError
from audit.trials.seeds import SEEDS, require_seed
from dpsgd_audit.spelling import counted

if TYPE_CHECKING:
    from audit.record.record import AuditRecord
    from audit.suites.suite import AuditSpec
    from audit.trials.executor import Executor
    from audit.trials.source import Tally


FLAGS = ("stop-early", "keep-going", "allow-install")
"""Options without a value that change what a run does."""


def execute(arguments: argparse.Namespace) -> int:
    """Run the suite, write records and report, print one table."""
    with ended_in_order() as check:
        return _execute(arguments, check)


def _execute(arguments: argparse.Namespace, check: Callable[[], None]) -> int:
    suite = _for_this_run(suite_of(arguments), arguments)
    _check_executor(arguments)
    out = make_folder(arguments.out)
    for path in _files(out, arguments):
        require_writable(path)
    _refuse_overwriting(out, arguments)
    # JAX takes seconds to import: a wrong suite is refused before.
    from audit.trials.disk_cache import laws_kept

    with laws_kept():
        return _run(suite, arguments, out, check)


def _run(suite: Suite, arguments: argparse.Namespace, out: Path, check: Callable[[], None]) -> int:
    from audit.record.stored import load_records, save_records
    from audit.report.look_again import look_again
    from audit.report.page import write_report
    from audit.report.progress import Progress
    from audit.report.short_story import ten_lines
    from audit.report.table import log_width, print_table
    from audit.resume.checkpoint import locked
    from audit.suites.each_audit import unnoticed
    from audit.suites.exit_codes import exit_code
    from audit.suites.run import run_suite
    from audit.trials.disk_cache import keep_compiled
    from audit.trials.kept_programs import programs_kept_in

    earlier = () if arguments.like is None else load_records(arguments.like)
    resume_in = out / ".resume"
    if arguments.fresh:
        shutil.rmtree(resume_in, ignore_errors=True)
    done: list[AuditRecord] = []

    def finished(record: AuditRecord) -> None:
        done.append(record)
        progress.finished(record)

    def fitting(spec: AuditSpec, drawn: int, planned: int) -> None:
        check()
        progress.fitting(spec, drawn, planned)

    def advanced(spec: AuditSpec, tally: Tally) -> None:
        check()
        progress.advanced(spec, tally)

    progress = Progress(suite, quiet=arguments.quiet)
    try:
        with (
            programs_kept_in(keep_compiled()),
            locked(resume_in),
            _executor(arguments) as executor,
            progress,
        ):
            records = run_suite(
                suite,
                only=arguments.audit or (),
                earlier=earlier,
                executor=executor,
                resume_in=resume_in,
                keep_foreign=arguments.resume,
                keep_going=arguments.keep_going,
                allow_install=arguments.allow_install,
                told=lambda sentence: None if arguments.quiet else print(printable(sentence), file=sys.stderr),
                started=progress.started,
                fitting=fitting,
                progress=advanced,
                finished=finished,
            )
    except KeyboardInterrupt:
        _write_part(tuple(done), out, suite, arguments)
        raise
    for sentence in unnoticed(_earlier(out / "records.json"), records):
        print(printable(f"warning: {sentence}"), file=sys.stderr)
    whole = _with_others(records, out, suite, arguments)
    save_records(whole, out / "records.json", title=suite.title)
    page = write_report(whole, out, title=suite.title, command=_command(arguments, suite))
    if not arguments.audit and all(record.ran or record.as_expected for record in records):
        # what could not run can be mended and run with the same command, which keeps what is finished
        shutil.rmtree(resume_in, ignore_errors=True)
    _speak_ci(records, suite, arguments)
    if arguments.quiet:
        for record in records:
            if not record.ran and not record.as_expected:
                print(printable(f"error: audit {record.name!r} could not run: {record.reason}"), file=sys.stderr)
    if arguments.json:
        print_json([record.to_json() for record in records])
    elif not arguments.quiet:
        print_table(records, suite_risk=sum(record.risk for record in records))
        lines = ten_lines(records, width=log_width())
        # records do not keep the name of their file
        print("\n".join(lines).replace("run SUITE", f"run {_named(arguments)}"))
        # where the two lines of what to do are about something else, or too short for it
        again = look_again(open_ones) if (open_ones := [r for r in records if r.verdict == "inconclusive"]) else ""
        shown = " ".join(line.strip() for line in lines)
        if rest := [sentence for sentence in re.split(r"(?<=\.) ", again) if sentence not in shown]:
            print(" ".join(rest).replace("run SUITE", f"run {_named(arguments)}"))
        if len(records) < len(suite.audits):
            print(f"{len(records)} of the suite's {len(suite.audits)} audits, each with its part of the suite's risk.")
        print(f"Report: {os.path.relpath(page)}   Records: {os.path.relpath(out / 'records.json')}")
    return exit_code(records)


def _write_part(done: tuple[AuditRecord, ...], out: Path, suite: Suite, arguments: argparse.Namespace) -> None:
    """Write the report of what an interrupted run has finished, which says that it is incomplete."""
    from audit.record.stored import save_records
    from audit.report.page import write_report
    from audit.suites.run import adjust

    if not done:
        return
    records, asked = _with_others(adjust(done), out, suite, arguments), len(arguments.audit or suite.audits)
    part = f"interrupted: {len(done)} of {counted(asked, 'audit')}"
    title = f"{suite.title} ({part})"
    save_records(records, out / "records.json", title=title)
    page = write_report(records, out, title=title, command=_command(arguments, suite))
    print(f"{part}; report of these: {os.path.relpath(page)}", file=sys.stderr)


def _check_executor(arguments: argparse.Namespace) -> None:
    """Refuse options of a cluster without ``--executor dask``."""
    for option in ("scheduler", "workers"):
        if arguments.executor != "dask" and getattr(arguments, option) is not None:
            raise SuiteError(f"--{option} only applies to a cluster; add --executor dask, or drop it.")
    if arguments.workers is not None and arguments.workers < 1:
        raise SuiteError(f"--workers must be >= 1, got {arguments.workers}.")


def _executor(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[Executor]:
    """The executor that draws the trials, until the run is over."""
    if arguments.executor == "dask":
        from audit.trials.start_cluster import dask_executor

        return dask_executor(arguments.scheduler, workers=arguments.workers)
    from audit.trials.executor import LOCAL

    return contextlib.nullcontext(LOCAL)


def _files(out: Path, arguments: argparse.Namespace) -> list[str | Path]:
    """All files that will be written when the audits are over."""
    also = [arguments.junit, arguments.markdown, arguments.sarif]
    if os.environ.get("GITHUB_ACTIONS") == "true":
        also.append(os.environ.get("GITHUB_STEP_SUMMARY"))
    return [out / "records.json", out / "index.html", *filter(None, also)]


def _refuse_overwriting(out: Path, arguments: argparse.Namespace) -> None:
    """Refuse two outputs with the same file."""
    asked = {"--junit": arguments.junit, "--markdown": arguments.markdown, "--sarif": arguments.sarif}
    read = {"the suite": arguments.suite, "the records of --like": arguments.like}
    kept = {"the records": out / "records.json", "the report": out / "index.html", **read}
    require_apart(*({what: path for what, path in each.items() if path} for each in (asked, kept)))


def _named(arguments: argparse.Namespace) -> str:
    return shlex.quote(arguments.suite) if arguments.suite else ""


def _command(arguments: argparse.Namespace, suite: Suite) -> str:
    """Command that repeats this run: every option that changes its numbers."""
    words = ["dpsgd-audit", "run", *([arguments.suite] if arguments.suite else []), "--seed", str(suite.seed)]
    for option in ("trials", "confidence", "look", "like"):
        if (value := getattr(arguments, option)) is not None:
            words += [f"--{option}", str(value)]
    words += [word for name in arguments.audit or () for word in ("--audit", name)]
    return shlex.join([*words, *(f"--{each}" for each in FLAGS if getattr(arguments, each.replace("-", "_")))])


def _earlier(path: Path) -> tuple[AuditRecord, ...]:
    """Records of an earlier run in the same folder; empty if they cannot be read."""
    from audit.record.stored import load_records

    try:
        return load_records(path) if path.exists() else ()
    except (ValueError, OSError):
        return ()


def _with_others(
    records: tuple[AuditRecord, ...], out: Path, suite: Suite, arguments: argparse.Namespace
) -> tuple[AuditRecord, ...]:
    """The records and those of an earlier run in the same folder for audits that this one left out.

    Only audits that share one risk and one seed are kept together.
    """
    if not arguments.audit:
        return records
    now, shares = {record.name for record in records}, {(record.suite, record.look) for record in records}
    others = [record for record in _earlier(out / "records.json") if record.name not in now]
    places = {spec.name: place for place, spec in enumerate(suite.audits)}
    kept = [record for record in others if (record.suite, record.look) in shares and record.name in places]
    for count, what in ((len(kept), "kept"), (len(others) - len(kept), "replaced: of another seed, risk or suite")):
        if count and not arguments.quiet:
            note = f"{counted(count, 'record')} of an earlier run in {os.path.relpath(out)}"
            print(printable(f"{note} {'is' if count == 1 else 'are'} {what}."), file=sys.stderr)
    return tuple(sorted((*kept, *records), key=lambda record: places[record.name]))


def _speak_ci(records: tuple[AuditRecord, ...], suite: Suite, arguments: argparse.Namespace) -> None:
    """Write JUnit, Markdown and SARIF files if asked for; annotations and a step summary if GitHub runs us."""
    from audit.report.formats import github_annotations, junit, markdown
    from audit.report.sarif import sarif

    title = suite.title
    # the suite that is built in is in no file of the user's
    places = {spec.name: spec.where for spec in suite.audits} if arguments.suite else {}
    if arguments.junit:
        write_whole(arguments.junit, junit(records, title=title, places=places))
    if arguments.markdown:
        write_whole(arguments.markdown, markdown(records, title=title))
    if arguments.sarif:
        write_whole(arguments.sarif, sarif(records, places=places))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in github_annotations(records, places=places):
            print(line, file=sys.stderr)
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            with open(summary, "a", encoding="utf-8") as file:
                file.write(markdown(records, title=title))


def suite_of(arguments: argparse.Namespace) -> Suite:
    """The suite file, or the built-in one, with the command line's overrides."""
    if arguments.suite is None:
        text = resources.files("audit").joinpath("suites/default.toml").read_text()
        suite = parse_suite(text, "the default suite")
    else:
        suite = read_suite(arguments.suite)
    if arguments.confidence is not None:
        suite = dataclasses.replace(suite, risk=risk_of(arguments.confidence))
    if arguments.trials is not None:
        if arguments.trials < 2 or arguments.trials % 2:
            raise SuiteError(f"--trials must be even and >= 2 (half on each dataset), got {arguments.trials}.")
        if arguments.trials > MOST_TRIALS:
            raise SuiteError(f"--trials must be at most 2^62, got {arguments.trials}.")
        audits = tuple(dataclasses.replace(audit, trials=arguments.trials) for audit in suite.audits)
        suite = dataclasses.replace(suite, audits=audits)
    return suite


def with_seed(suite: Suite, seed: int | None) -> Suite:
    """The suite with the command line's seed, or its own if none is given."""
    if seed is None:
        return suite
    try:
        require_seed(seed)
    except ValueError as error:
        raise SuiteError(f"--{error}") from None
    return dataclasses.replace(suite, seed=seed)


def _for_this_run(suite: Suite, arguments: argparse.Namespace) -> Suite:
    """The suite with what only a run can override: when to stop, and the seed."""
    if arguments.stop_early:
        audits = tuple(dataclasses.replace(audit, policy={"kind": "anytime"}, target=None) for audit in suite.audits)
        suite = dataclasses.replace(suite, audits=audits)
        if arguments.like is not None:
            raise SuiteError("give --stop-early or --like, not both: --like compares fixed numbers of trials.")
    if arguments.fresh_seed:
        if arguments.seed is not None:
            raise SuiteError("give --seed or --fresh-seed, not both.")
        arguments.seed = secrets.randbelow(SEEDS)
        print(f"seed: {arguments.seed}", file=sys.stderr)
    suite = with_seed(suite, arguments.seed)
    if arguments.look is not None:
        if not 1 <= arguments.look <= MOST_LOOKS:
            raise SuiteError(f"--look must lie between 1 and {MOST_LOOKS}, got {arguments.look}.")
        suite = dataclasses.replace(suite, look=arguments.look)
    if arguments.time_budget is not None:
        suite = dataclasses.replace(suite, time_budget=arguments.time_budget)
    return suite
