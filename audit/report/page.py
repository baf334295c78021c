"""The report as one self-contained HTML page, made from records alone."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from audit.one_run.result import OneRun
from audit.record.diagnosis_answer import REPLAY
from audit.record.files import write_whole
from audit.record.of_one_run import as_records
from audit.record.record import AuditRecord
from audit.report.caveats import learned_note, other_than_told, trials_note
from audit.report.ceiling import CEILING, Ceiling, ceiling, most_epsilon
from audit.report.diagnoses import as_a_sentence, asked, but_for, heading, in_short, looks_wrong, remarks, untold
from audit.report.drawings import drawing, drawn
from audit.report.escaping import as_html, shown, visible
from audit.report.given import judged_scores, source
from audit.report.promises import covered
from audit.report.repeat import NOT_REPEATABLE, command_of, suite_of
from audit.report.spent import spent
from audit.report.story import consequence, outcome, remedy, story
from audit.report.table import broken_in_short, proven_delta, proven_epsilon, readable, readable_p_value
from audit.verdict.score_bounds import ScoreBounds
from guarantees.checks import checked
from guarantees.numerics.rounding import at_least, at_most

MOST_OPEN = 12
"""Most audits whose sections are open at first; of more, each opens at a click and draws only judged scores."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One audit and what the page says about it."""

    record: AuditRecord
    ceiling: Ceiling | None
    outcome: str
    consequence: str
    remedy: str
    command: str
    """Command that repeats this audit; empty if no suite has it."""
    members: tuple[str, ...]
    """Scores to draw."""


@checked
def write_report(
    records: tuple[AuditRecord | OneRun | ScoreBounds, ...],
    folder: str | os.PathLike[str],
    *,
    title: str,
    command: str = "",
    replayed: tuple[str, ...] = (),
) -> Path:
    """Write a self-contained page about the records.

    It says no more than the records do: a file of records that somebody sent you is checked by ``dpsgd-audit verify``.

    Args:
      records: what to report; results of ``from_scores``, ``one_run`` and ``one_training`` among them, if they judged
        a claim.
      folder: where to write ``index.html``; made if need be. A name that ends in ``.html`` is the page itself.
      title: the page's heading.
      command: the command that made the records, shown for whoever wants to repeat it.
      replayed: what a replay without trials, such as ``dp_explain``, found in code: one name and line each.

    Returns:
      The path of the page.

    Raises:
      OSError: the folder cannot be written to.

    Examples:
      >>> import audit, tempfile
      >>> audit.write_report((), tempfile.mkdtemp(), title="Nothing audited yet").name
      'index.html'
    """
    import jinja2
    from markupsafe import Markup, escape

    entries = [_entry(shown(record), command, unjudged=len(records) <= MOST_OPEN) for record in as_records(records)]
    kept = tuple(entry.record for entry in entries)
    loader = jinja2.PackageLoader("audit.report", "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update({function.__name__: function for function in FILTERS})
    environment.filters.update(p_value=readable_p_value, code=lambda text: Markup(as_html(text)))
    opened = len(records) <= MOST_OPEN
    page = environment.get_template("index.html").render(
        title=visible(title),
        entries=entries,
        story=story(kept) if kept else None,
        replayed=[visible(each) for each in replayed],
        unexpected=sum(not record.as_expected for record in kept),
        suite_risk=sum(record.risk for record in kept),
        everywhere=_everywhere(kept),
        opened=opened,
        not_repeatable=NOT_REPEATABLE,
        but_for=but_for(kept),
        ceiling_means=CEILING,
        drawings=_script_data([drawing(entry.record, entry.ceiling, unjudged=opened) for entry in entries]),
        style=_asset("style.css"),
        scripts=[_asset("table.js"), _asset("plots.js")],
    )
    if suite := suite_of(command):
        # records do not keep the name of their file
        page = page.replace("dpsgd-audit run SUITE ", f"dpsgd-audit run {escape(visible(suite))} ")
    path = Path(folder) if is_page(folder) else Path(folder) / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)
    return path


def is_page(path: str | os.PathLike[str]) -> bool:
    """Whether a path names the page itself and not a folder for it."""
    return Path(path).suffix.lower() in (".html", ".htm") and not Path(path).is_dir()


def _entry(record: AuditRecord, command: str, *, unjudged: bool) -> Entry:
    most = ceiling(record)
    return Entry(
        record=record,
        ceiling=most,
        outcome=outcome(record),
        consequence=consequence(record, most),
        remedy=remedy(record),
        command=visible(command_of(record, command)),
        members=tuple(grid.member for grid in drawn(record, unjudged=unjudged)),
    )


def _everywhere(records: tuple[AuditRecord, ...]) -> list[tuple[str, str]]:
    """What all records say about where they ran, which a page says once."""
    first = records[0].environment.items() if records else ()
    shared = [item for item in first if all(item in record.environment.items() for record in records)]
    return [item for item in shared if item[0] != REPLAY]


def _script_data(value: Any) -> str:
    """JSON for a script element: nothing in it can close the element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return resources.files("audit.report").joinpath("templates", name).read_text(encoding="utf-8")


def distinguisher(record: AuditRecord) -> str:
    """The distinguisher's own parameters; mechanism and pair are named only if they are not the audited ones."""
    audited = {"mechanism": record.mechanism.parameters, "neighbours": record.neighbours.parameters}
    shown = [
        f"{key}={value!r}"
        for key, value in record.distinguisher.parameters.items()
        if key not in audited or _without_kind(value) != audited[key]
    ]
    return f"{record.distinguisher.name}({', '.join(shown)})"


def _without_kind(value: object) -> object:
    return {k: v for k, v in value.items() if k != "kind"} if isinstance(value, dict) else value


FILTERS: tuple[Callable[..., Any], ...] = (
    *(
        as_a_sentence,
        asked,
        at_least,
        at_most,
        broken_in_short,
        covered,
        distinguisher,
        heading,
        in_short,
        judged_scores,
        learned_note,
    ),
    *(
        looks_wrong,
        most_epsilon,
        other_than_told,
        proven_delta,
        proven_epsilon,
        readable,
        remarks,
        source,
        spent,
        trials_note,
        untold,
    ),
)
"""Functions that the template calls, by their own names."""
