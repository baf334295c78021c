"""The table that a run prints."""

from __future__ import annotations

import re
import textwrap

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from audit.record.record import AuditRecord
from audit.record.unrun import NOT_BUILT
from audit.report.caveats import close_call, ended_early, no_wrong_line, other_than_told, what_shows_more
from audit.report.diagnoses import as_a_sentence, but_for, heading, looks_wrong, not_followed, untold
from audit.report.escaping import shown
from audit.report.repeat import NOT_REPEATABLE
from audit.verdict.judgement import SMALLEST_RISK
from guarantees.numerics.rounding import at_least, at_most

LOG_WIDTH = 140
STYLES = {"violation": "red", "no_violation_found": "green", "inconclusive": "yellow", "could_not_run": "magenta"}
MOST_PASSED = 5
"""Most passed audits for which a summary says one by one what they would have found."""
NOTHING = "–"
"""Text in place of a number, for an audit that could not run."""
NOT_KNOWN = "not known"
"""Text in place of a claimed epsilon that the claim's numerical error leaves unknown."""


def log_width() -> int:
    """Columns of the terminal; for a log or a pipe, which has no edge, enough for a table."""
    console = Console()
    return console.width if console.is_terminal else LOG_WIDTH


def readable(name: str) -> str:
    """A verdict, or another internal name, as people write it."""
    return name.replace("_", " ")


def readable_p_value(p: float) -> str:
    """A p-value; very small ones are known only to be at most the smallest computed."""
    return f"≤ {SMALLEST_RISK:g}" if p <= SMALLEST_RISK else f"{p:.2g}"


def proven_epsilon(record: AuditRecord) -> str:
    """'proven (claimed)' epsilon at the record's delta."""
    proven = at_least(record.epsilon(record.report_delta)) if record.ran else NOTHING
    return f"{proven} ({_claimed(record, record.claim.epsilon)})"


def proven_delta(record: AuditRecord) -> str:
    """'proven (claimed)' delta at epsilon 0; not for one training, where a delta counts for every canary."""
    proven = at_least(record.delta(0.0)) if record.ran and record.one_run is None else NOTHING
    return f"{proven} ({_claimed(record, record.claim.advantage)})"


def broken_at(record: AuditRecord) -> tuple[str, str, str] | None:
    """What a violation exceeds, as ``violated_at.says`` has it: the quantity, what is proven and what is claimed.

    Where no place on the curve is known and the proven epsilon is no more than claimed, the p-value.
    """
    if record.violated_at is None:
        claimed = record.claim.epsilon
        if record.verdict != "violation" or (claimed is not None and record.epsilon(record.report_delta) > claimed):
            return None
        return "p-value", readable_p_value(record.p_value), f"risk {record.risk:.3g}"
    says = record.violated_at.says
    if number := re.match(r"(.+?): (at least \S+|more), claimed at most (\S+?)\.?(?: |$)", says):
        quantity, proven, claimed = number.groups()
        return quantity, proven, claimed
    seen, _, allowed = says.rstrip(".").partition(", where the claim allows ")
    return "errors", seen, allowed


def broken_in_short(record: AuditRecord) -> str:
    """What a violation exceeds as 'quantity: proven (claimed)', empty without one."""
    if (broken := broken_at(record)) is None:
        return ""
    quantity, proven, claimed = broken
    told = f"{quantity}: {proven.removeprefix('at least ')}"
    return f"{told} ({claimed})" if claimed else told


def _claimed(record: AuditRecord, number: float | None) -> str:
    if record.claim.source == NOT_BUILT:
        return NOTHING
    return NOT_KNOWN if number is None else at_most(number)


def print_table(records: tuple[AuditRecord, ...], *, suite_risk: float) -> None:
    """Print audit, claim, proven bounds, verdict, and whether it was expected; then what is violated."""
    records = tuple(map(shown, records))
    console = Console(width=log_width())
    deltas = sorted({record.report_delta for record in records})
    at = f"{deltas[0]:g}" if len(deltas) == 1 else "delta"
    looks = sorted({record.look for record in records} - {0})
    which = f" (look {looks[-1]})" if looks else ""
    besides = but_for(records, lambda name: escape(repr(name)))
    table = Table(
        caption=f"All lower bounds hold together at risk {suite_risk:g}{which}{besides}{_alone(records)}."
        if any(record.ran for record in records)
        else None,
        caption_justify="left",
    )
    broke = "\nwhat broke: proven (claimed)" if any(map(broken_in_short, records)) else ""
    table.add_column(f"audit{broke}")
    table.add_column("trials", justify="right")
    table.add_column(f"epsilon at {at}\nproven (claimed)", justify="right")
    table.add_column("delta at 0\nproven (claimed)", justify="right")
    table.add_column("p-value", justify="right")
    table.add_column("verdict")
    table.add_column("expected")
    for record in records:
        # of a claim that was not built the suite's words say little, and may be long
        against = "" if record.claim.source == NOT_BUILT else f"\n[dim]against {escape(record.claim.short())}[/dim]"
        broken = f"\n[red]{escape(said)}[/red]" if (said := broken_in_short(record)) else ""
        table.add_row(
            f"{escape(record.name)}{against}{broken}",
            f"{record.trials:,}" if record.one_run is None else record.sample,
            proven_epsilon(record) + (f"\nat {record.report_delta:g}" if len(deltas) > 1 else ""),
            proven_delta(record),
            readable_p_value(record.p_value) if record.ran else NOTHING,
            f"[{STYLES[record.verdict]}]{readable(record.verdict)}[/]",
            "yes" if record.as_expected else f"[bold red]no[/]\n(expects {readable(record.expect)})",
        )
    console.print(table)
    explained, rest = reasons_told(records)
    alike: dict[str, list[str]] = {}
    for record in records:
        said = [record.reason.removeprefix(f"audit {record.name!r}: ")] if record in explained else []
        if record.claim.error_exceeds(record.report_delta):
            said.append(f"claimed epsilon {record.claim.epsilon_at(record.report_delta)}.")
        said += [] if record.violated_at is None else [record.violated_at.says]
        wrong = looks_wrong(record.diagnoses)
        said += [f"{heading(record)}: {wrong[0]}", *map(as_a_sentence, wrong[1:])] if wrong else []
        said += [f"which line? {says}" for says in not_followed(record.diagnoses)]
        said += untold(record.diagnoses)
        said += [f"{other}."] if (other := other_than_told(record)) else []
        said += filter(None, (ended_early(record), close_call(record)))
        said += [NOT_REPEATABLE] if record.repeatable is False else []
        said += [what_shows_more(record)] if record in explained else []
        if any(said):
            alike.setdefault("\n  ".join(filter(None, said)), []).append(record.name)
    below = [f"{', '.join(names)}: {said}" for said, names in alike.items()]
    # names of files and commands stay in one piece, to be copied
    indented = textwrap.TextWrapper(
        console.width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    for said in filter(None, (*below, rest, no_wrong_line(records))):
        print("\n".join(map(indented.fill, said.splitlines())))


def _alone(records: tuple[AuditRecord, ...]) -> str:
    """What a p-value is to be compared with, if a suite's audits share its risk."""
    shares = sorted({f"{record.risk:.2g}" for record in records if record.suite and record.suite.audits > 1})
    return f"; an audit's p-value is judged at its share, {' or '.join(shares)}" if shares else ""


def reasons_told(records: tuple[AuditRecord, ...]) -> tuple[tuple[AuditRecord, ...], str]:
    """Audits whose reason a summary prints, those without a violation; and a note on any left out.

    Of an audit that passed the reason says what it would have found.
    """
    passed = tuple(record for record in records if record.verdict == "no_violation_found")
    undecided = tuple(record for record in records if record.verdict in ("inconclusive", "could_not_run"))
    if len(passed) <= MOST_PASSED:
        return (*undecided, *passed), ""
    return undecided, f"The report says what the {len(passed)} audits without a violation would have found."
