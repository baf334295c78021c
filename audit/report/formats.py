"""Records in common formats: Markdown, CSV, JUnit XML, GitHub annotations."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from audit.record.record import AuditRecord
from audit.record.unrun import NOT_BUILT
from audit.report.audited import NOT_REPEATABLE, command, libraries
from audit.report.ceiling import ceiling
from audit.report.diagnoses import (
    Place,
    asked,
    beside_the_verdict,
    but_for,
    code_lines,
    heading,
    in_a_row,
    in_short,
    looks_wrong,
    places_of,
    suspects,
)
from audit.report.escaping import command_property, command_text, markdown_text, shown, visible
from audit.report.table import broken_in_short, proven_delta, proven_epsilon, readable, reasons_told
from audit.report.text import brief_lines, not_as_expected
from dpsgd_audit.spelling import counted
from guarantees.numerics.rounding import at_most


def markdown(records: tuple[AuditRecord, ...], *, title: str) -> str:
    """A summary of about ten lines: a table, then everything that is not as expected."""
    records = tuple(map(shown, records))
    surprises = [record for record in records if not record.as_expected]
    deltas = {record.report_delta for record in records}
    at = "a delta" if len(deltas) > 1 else f"delta {next(iter(deltas), 0.0):g}"
    explained, rest = reasons_told(records)
    causes = [in_short(record) for record in records]
    # a column that would be empty says nothing
    cause, rule = (" | looks wrong", "|---") if any(causes) else ("", "")
    broke, line = (" | what broke: proven (claimed)", "|---") if any(map(broken_in_short, records)) else ("", "")
    state = "every verdict as expected" if not surprises else f"{len(surprises)} not as expected"
    if suspected := sum(bool(beside_the_verdict(record)) for record in records):
        state += f"; code that looks wrong in {suspected}"
    lines = [
        f"### {markdown_text(title)}: {counted(len(records), 'audit')}, {state}",
        "",
        f"| audit | claim{broke} | epsilon at {at} proven (claimed) | delta at epsilon 0 proven (claimed) | verdict | "
        f"as expected{cause} |",
        f"|---|---|---|---|---|---{line}{rule}|",
    ]
    for record, looks in zip(records, causes, strict=True):
        seen = "yes" if record.as_expected else "**no**"
        own = f" at {record.report_delta:g}" if len(deltas) > 1 else ""
        numbers = f"{proven_epsilon(record)}{own} | {proven_delta(record)}"
        named = f"{markdown_text(record.name)} | {markdown_text(record.claim.short())}"
        named += f" | {markdown_text(broken_in_short(record))}" if broke else ""
        end = f" | {markdown_text(looks)}" if cause else ""
        lines.append(f"| {named} | {numbers} | {readable(record.verdict)} | {seen}{end} |")
    risk = sum(record.risk for record in records)
    for record in records:
        reasons = [record.reason] if record in explained else []
        reasons += [] if record.violated_at is None else [record.violated_at.says]
        if wrong := in_a_row(looks_wrong(record.diagnoses)):
            many = asked(record.diagnoses)
            reasons.append(f"{heading(record).capitalize()}: {wrong}{f' ({many}.)' if many else ''}")
        if reasons:
            ended = f"{readable(record.verdict)}{not_as_expected(record)}; {markdown_text(' '.join(reasons))}"
            lines += ["", f"**{markdown_text(record.name)}**: {ended}"]
    if changing := [markdown_text(record.name) for record in records if record.repeatable is False]:
        lines += ["", f"{NOT_REPEATABLE.capitalize()} ({', '.join(changing)})."]
    lines += ["", rest] if rest else []
    besides = but_for(records, lambda name: markdown_text(repr(name)))
    lines += ["", f"All lower bounds hold together at risk {at_most(risk)}{besides}."]
    return "\n".join(lines) + "\n"


def separated(records: tuple[AuditRecord, ...]) -> str:
    """CSV with one line per audit: proven, claimed and possible numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rows = [_row(record) for record in records]
    writer.writerow(rows[0] if rows else ())
    writer.writerows(row.values() for row in rows)
    return text.getvalue()


def _row(record: AuditRecord) -> dict[str, object]:
    most, known = ceiling(record), record.claim.source != NOT_BUILT
    return {
        "audit": _cell(record.name),
        "verdict": record.verdict,
        "expected": record.expect,
        "trials": record.trials,
        "delta": record.report_delta,
        "epsilon": record.epsilon(record.report_delta) if record.ran else "",
        "epsilon_claimed": "" if not known or record.claim.epsilon is None else record.claim.epsilon,
        "epsilon_ceiling": "" if most is None else most.epsilon,
        "epsilon_exact": "" if record.exact_epsilon is None else record.exact_epsilon,
        "delta_at_0": record.delta(0.0) if record.ran else "",
        "delta_at_0_claimed": record.claim.advantage if known else "",
        "mu": record.mu if record.ran else "",
        "p_value": record.p_value if record.ran else "",
        "adjusted_p_value": record.adjusted_p_value if record.ran else "",
        "risk": record.risk,
        "claim": _cell(record.claim.describe()),
        "audited": _cell(record.mechanism.name),
        "command": _cell(command(record)),
        "libraries": _cell(libraries(record)),
        "repeatable": "" if record.repeatable is None else record.repeatable,
        "looks_wrong": _cell(in_a_row(suspects(record.diagnoses))),
    }


def _cell(text: str) -> str:
    """Text that no spreadsheet reads as a formula and no build log as a command."""
    plain = visible(text)
    return f"'{plain}" if plain.startswith(("=", "+", "-", "@")) else plain


def junit(records: tuple[AuditRecord, ...], *, title: str, places: Mapping[str, str] | None = None) -> str:
    """JUnit XML, one test case per audit: an unexpected verdict is a failure, skipped if inconclusive, an error if the
    audit could not run. ``places`` says where an audit is written, as ``file:line``, by its name."""
    where = places or {}
    stated = [where.get(record.name) for record in records]
    records = tuple(map(shown, records))
    ends = Counter(_junit_end(record) for record in records if not record.as_expected)
    suite = ElementTree.Element(
        "testsuite",
        name=visible(title),
        tests=str(len(records)),
        failures=str(ends["failure"]),
        skipped=str(ends["skipped"]),
        errors=str(ends["error"]),
        time=f"{sum(record.seconds for record in records):.3f}",
    )
    for record, place in zip(records, stated, strict=True):
        case = ElementTree.SubElement(
            suite, "testcase", classname="dpsgd-audit", name=record.name, time=f"{record.seconds:.3f}"
        )
        for path, line in places_of(record, place)[:1]:
            case.set("file", visible(path))
            case.set("line", str(line))
        text = "\n".join(brief_lines(record))
        if not record.as_expected:
            message = f"{readable(record.verdict)}, expected {readable(record.expect)}"
            if record.violated_at is not None:
                message = f"{readable(record.verdict)}: {record.violated_at.says}"
                if lines := code_lines(record.diagnoses):
                    message += " First suspect: {}:{}.".format(*lines[0])
            if not record.ran:
                message = f"{readable(record.verdict)}: {record.reason}"
            ElementTree.SubElement(case, _junit_end(record), message=message).text = text
        else:
            ElementTree.SubElement(case, "system-out").text = text
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _junit_end(record: AuditRecord) -> str:
    return {"inconclusive": "skipped", "could_not_run": "error"}.get(record.verdict, "failure")


def github_annotations(records: tuple[AuditRecord, ...], *, places: Mapping[str, str] | None = None) -> list[str]:
    """Workflow commands that GitHub shows beside the run: an error or warning per surprise, and findings of replays.

    ``places`` says where an audit is written, as ``file:line``, by its name.
    """
    found = []
    for record in records:
        where = places_of(record, (places or {}).get(record.name))
        if not record.as_expected:
            level = "warning" if record.verdict == "inconclusive" else "error"
            found.append(annotation(level, record.name, "\n".join(brief_lines(record)), where))
        else:
            shown_wrong = beside_the_verdict(record)
            found += [annotation("warning", record.name, one.says, [*one.lines] or where) for one in shown_wrong]
    return found


def annotation(level: str, title: str, text: str, places: Sequence[Place]) -> str:
    """One workflow command, pointing at the first of the places."""
    where = "".join(f"file={command_property(path)},line={line}," for path, line in places[:1])
    return f"::{level} {where}title={command_property(title)}::{command_text(text)}"
