"""A page's story in at most ten lines, for a terminal or a log."""

from __future__ import annotations

import re
import textwrap

from audit.record.record import AuditRecord
from audit.report.audited import names_of
from audit.report.caveats import found_leak
from audit.report.diagnoses import but_for, in_prose
from audit.report.escaping import shown, visible
from audit.report.given import judged_scores
from audit.report.promises import unchecked_steps
from audit.report.story import (
    NO_ANSWER,
    at_delta,
    largest_excess,
    leaking,
    listed,
    promised_epsilon,
    repeated_runs,
    story,
    trained_once,
)
from audit.report.table import log_width, readable
from audit.verdict.judgement import RUNS
from dpsgd_audit.spelling import counted

LABEL = 15
LINES_EACH = 2
PART_ENDS = re.compile(r"[.;] ")
NOT_LOOKED_AT = "other pairs, other attacks, other releases, time and memory; 'no violation found' never means private"


def short_report(records: tuple[AuditRecord, ...], *, title: str) -> str:
    """The title and the ten lines, as wide as a log; below them what looks wrong and which audits gave no answer."""
    width = log_width()
    return "\n".join([visible(title), *ten_lines(records, width=width), *_suspected(records, width=width)]) + "\n"


def _suspected(records: tuple[AuditRecord, ...], *, width: int) -> list[str]:
    """What looks wrong in every unexpected violation and beside other verdicts, and why there is no answer."""
    rows = []
    for record in map(shown, records):
        rows += _wrapped("valid if", "; ".join(record.conditions), width=width) if record.conditions else []
        if record.verdict in NO_ANSWER:
            rows += _wrapped("details", f"{record.name}, {readable(record.verdict)}: {record.reason}", width=width)
        if (prose := in_prose(record)) and not (record.verdict == "violation" and record.as_expected):
            rows += _wrapped("details", f"{record.name}, {prose}", width=width)
    return rows


def ten_lines(records: tuple[AuditRecord, ...], *, width: int) -> list[str]:
    """What is proven and what to do, then what was promised, audited and not looked at: two lines each at most."""
    records = tuple(map(shown, records))
    answers = {
        "proven": _proven(records),
        "to do": _in_whole_parts(story(records).to_do, width=width),
        "promised": f"epsilon {promised_epsilon(records)} at {at_delta(records)} by {_claims(records)}",
        "audited": _audited(records),
        "not looked at": NOT_LOOKED_AT,
    }
    rows = []
    for label, answer in answers.items():
        rows += _wrapped(label, answer, width=width, most=LINES_EACH)
    return rows


def _in_whole_parts(answer: str, *, width: int) -> str:
    """As many of the answer's sentences and half sentences as there is room for; the details below say the rest."""
    ends = reversed([found.start() for found in PART_ENDS.finditer(answer)])
    parts = (answer, *(f"{answer[:end]}." for end in ends))
    return next((part for part in parts if len(_wrapped("to do", part, width=width)) <= LINES_EACH), answer)


def _wrapped(label: str, answer: str, *, width: int, most: int | None = None) -> list[str]:
    return textwrap.wrap(
        answer,
        max(width - 1, 2 * LABEL),
        initial_indent=f"{label:{LABEL}}",
        subsequent_indent=" " * LABEL,
        max_lines=most,
        placeholder=" ...",
        break_on_hyphens=False,
    )


def _audited(records: tuple[AuditRecord, ...]) -> str:
    repeated = repeated_runs(records)
    names = listed(names_of(repeated))
    how = listed(sorted({record.neighbours.kind for record in records if record.neighbours.kind}))
    trials = sum(record.trials for record in repeated)
    drawn = [f"{counted(len(repeated), 'audit')}, {trials:,} outputs of {names}"] if repeated or not records else []
    drawn += [trained_once(records)] if any(record.one_run is not None for record in records) else []
    drawn += [judged_scores(record) for record in records if record.scores is not None]
    odd = sum(record.repeatable is False for record in records)
    again = f"; not repeatable: {counted(odd, 'audit')}" if odd else ""
    unknown = [record for record in records if unchecked_steps(record)]
    again += f"; number of steps not checked: {counted(len(unknown), 'audit')}" if unknown else ""
    return f"{'; '.join(drawn)}{f'; neighbours: {how}' if how else ''}{again}"


def _claims(records: tuple[AuditRecord, ...]) -> str:
    return listed(sorted({record.claim.name for record in records}))


def _proven(records: tuple[AuditRecord, ...]) -> str:
    broken = sum(record.verdict == "violation" for record in records)
    unknown = sum(record.verdict == "inconclusive" for record in records)
    unrun = sum(not record.ran for record in records)
    more = f", {unknown} could not tell" if unknown else ""
    more += f", {unrun} could not run" if unrun else ""
    if records and unrun == len(records):
        return "nothing: no audit could run"
    risk = f"at risk {sum(record.risk for record in records):.3g}"
    if not broken:
        return f"no violation found{more}; bounds hold {risk}{but_for(records, None)}{_power(records)}"
    worst, says = largest_excess(records)
    return f"{leaking(records)}{more}, {risk} in total{but_for(records, None)}; largest excess: {says} ({worst.name})"


def _power(records: tuple[AuditRecord, ...]) -> str:
    """What audits without a violation would have found, as often as their reasons say; smaller leaks may be there."""
    green = [record for record in records if record.verdict == "no_violation_found"]
    leaks = sorted({leak for record in green if (leak := found_leak(record))})
    where = " on one of these pairs" if len(leaks) > 1 else ""
    return f". {leaks[0].capitalize()} would be found {RUNS}{where}" if leaks else ""
