"""dpsgd-audit verify: whether a record follows from its counts, and whether the counts can be drawn again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from audit.commands.json_output import print_json
from audit.record.read import SchemaError
from audit.record.record import plain
from audit.record.stored import WRITTEN_BY, load_records
from audit.report.escaping import visible
from audit.suites.exit_codes import EXIT_EXPECTED, EXIT_INCONCLUSIVE, EXIT_UNEXPECTED
from audit.suites.read import read_suite
from audit.trials.disk_cache import laws_kept
from audit.verify.procedure import Check, Primary, Verified, verify
from dpsgd_audit.spelling import counted
from guarantees.laws.kept import laws_kept_in

MARKS = {"right": "right", "wrong": "WRONG", "not computed": "NOT COMPUTED", "not checked": "not checked"}


def execute(arguments: argparse.Namespace) -> int:
    """Print a line per audit, or more if not all is right; 1: something wrong, 3: not computed or drawn, else 0."""
    path = Path(arguments.records)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; {WRITTEN_BY}.")
    suite = None if arguments.suite is None else read_suite(arguments.suite)
    records = load_records(path)
    if not records:
        raise SchemaError(f"{path} holds no records, so there is nothing to verify; {WRITTEN_BY}.")
    with laws_kept_in(None) if arguments.strict else laws_kept():
        found = verify(records, rerun=arguments.rerun, suite=suite, told=lambda says: _tell(says, arguments))
    if arguments.json:
        print_json(plain(found))
    elif not arguments.quiet:
        _print(found, details=arguments.details)
    if found.any("wrong"):
        return EXIT_UNEXPECTED
    # trials are checked where --rerun asks for it
    missing = found.any("not computed") or found.any("not checked")
    incomplete = missing or (arguments.strict and not found.all_drawn)
    return EXIT_INCONCLUSIVE if incomplete else EXIT_EXPECTED


def _tell(says: str, arguments: argparse.Namespace) -> None:
    """Print progress on standard error: standard output has only the findings."""
    if not arguments.quiet:
        print(visible(says), file=sys.stderr, flush=True)


def _print(found: Verified, *, details: bool) -> None:
    from rich.console import Console

    console = Console()

    def line(text: str) -> None:
        console.print(visible(text), markup=False, highlight=False, soft_wrap=True)

    checks, primary = _by_audit(found.checks), _by_audit(found.primary)
    for name in {**checks, **primary}:
        of_audit = checks.get(name, [])
        texts = {check: f"{check.what}{f': {check.says}' if check.says else ''}" for check in of_audit}
        if not details and all(check.state == "right" for check in of_audit):
            more = "".join(f"; {texts[check]}" for check in of_audit if check.says)
            line(f"{MARKS['right']:12s} {name or 'all records'}: {counted(len(of_audit), 'check')}{more}")
            continue
        if name:
            line(name)
        for check in of_audit:
            if details or check.state != "right" or check.says:
                line(f"  {MARKS[check.state]:12s} {texts[check]}")
        for text in _named(primary.get(name, [])) if details else ():
            line(f"  {'primary':12s} {text}")
    line(_summary(found, details=details))
    if found.from_cache:
        kept = counted(found.from_cache, "curve or searched number", "curves and searched numbers")
        line(f"{kept} came from the cache folder of an earlier command: --strict computes them all.")


def _named(primary: list[Primary]) -> Iterable[str]:
    """Primary values by what can check them."""
    stated = [each for each in primary if each.source == "told"]
    drawn = [each for each in primary if each.source == "drawn" and not each.drawn_again]
    trained = [each for each in primary if each.source == "trained"]
    given = [each for each in primary if each.source == "given"]
    again = [each for each in primary if each.drawn_again]
    for group, what in (
        (again, "drawn again"),
        (drawn, "from the trials, which --rerun 1 checks"),
        (trained, "from one training, which nobody can repeat"),
        (given, "from the given scores, which `bound` counts again for who has them"),
        (stated, "stated, which nothing checks"),
    ):
        if group:
            keys = ", ".join(each.key if each.values == 1 else f"{each.key} ({each.values:,})" for each in group)
            yield f"{counted(sum(each.values for each in group), 'value')} {what}: {keys}"


def _by_audit(items: Iterable[Check | Primary]) -> Mapping[str, list]:
    found: dict[str, list] = {}
    for item in items:
        found.setdefault(item.audit, []).append(item)
    return found


def _summary(found: Verified, *, details: bool) -> str:
    wrong = sum(check.state == "wrong" for check in found.checks)
    missing = sum(check.state in ("not computed", "not checked") for check in found.checks)
    values = sum(each.values for each in found.primary)
    again = sum(each.values for each in found.primary if each.drawn_again)
    extent = f"{again:,} of them drawn again"
    if part := found.drawn_in_part:
        in_part = f"of {part} audit{'s' * (part > 1)} a part of the trials was drawn again"
        extent = f"{extent}, and {in_part}" if again else in_part
    return (
        f"{counted(len(found.checks), 'check')}: {wrong} wrong, {missing} not computed or checked; "
        f"{counted(values, 'primary value')}; {extent}.{_unchecked(found.primary)}"
        f"{'' if details else ' --details prints every check.'}"
    )


def _unchecked(primary: Sequence[Primary]) -> str:
    """What a reader trusts and nothing checked: measured diagnoses, and the code or the command that was audited."""
    undrawn = [each for each in primary if each.source == "drawn" and not each.drawn_again]
    measured = sum(each.values for each in undrawn if each.key == "diagnoses")
    audited = sum(each.values for each in undrawn if each.key == "mechanism" and not each.in_suite)
    parts = [f"{counted(measured, 'value')} of diagnoses (--rerun 1 measures them again)"] if measured else []
    parts += [f"{counted(audited, 'value')} of what was audited (--suite SUITE.toml compares them)"] if audited else []
    return f" Not checked: {', '.join(parts)}." if parts else ""
