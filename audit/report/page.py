"""The report: one self-contained HTML page made from records alone."""

from __future__ import annotations

from pathlib import Path

from audit.diagnosis import words
from audit.record.record import AuditRecord
from audit.report.plots import trade_off_svg
from audit.report.table import p_value_told, told


def write_report(records: tuple[AuditRecord, ...], folder: Path, *, title: str) -> Path:
    """Write index.html into a folder; the page needs nothing else to be read."""
    import jinja2

    loader = jinja2.PackageLoader("audit.report", "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(told=told, p_value=p_value_told, distinguisher=distinguisher)
    environment.filters.update(looks_wrong=words.looks_wrong, remarks=words.remarks, asked=words.asked)
    page = environment.get_template("index.html").render(
        title=title,
        records=records,
        plots=[trade_off_svg(record) for record in records],
        unexpected=sum(not record.as_expected for record in records),
        suite_risk=sum(record.risk for record in records),
    )
    path = folder / "index.html"
    path.write_text(page)
    return path


def distinguisher(record: AuditRecord) -> str:
    """The distinguisher's own parameters; the mechanism and pair are named only where they are not the audited ones."""
    audited = {"mechanism": record.mechanism.parameters, "neighbours": record.neighbours.parameters}
    shown = [
        f"{key}={value!r}"
        for key, value in record.distinguisher.parameters.items()
        if key not in audited or _without_kind(value) != audited[key]
    ]
    return f"{record.distinguisher.name}({', '.join(shown)})"


def _without_kind(value: object) -> object:
    return {k: v for k, v in value.items() if k != "kind"} if isinstance(value, dict) else value
