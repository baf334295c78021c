"""The report: one self-contained HTML page made from records alone."""

from __future__ import annotations

import os
from pathlib import Path

from audit.record.record import AuditRecord
from audit.report.diagnoses import asked, looks_wrong, remarks
from audit.report.plots import trade_off_svg
from audit.report.table import readable, readable_p_value
from audit.report.visible import shown, visible


def write_report(records: tuple[AuditRecord, ...], folder: str | os.PathLike[str], *, title: str) -> Path:
    """Write index.html into a folder; the page needs nothing else to be read."""
    import jinja2

    records, folder = tuple(map(shown, records)), Path(folder)
    loader = jinja2.PackageLoader("audit.report", "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(readable=readable, p_value=readable_p_value, distinguisher=distinguisher)
    environment.filters.update(looks_wrong=looks_wrong, remarks=remarks, asked=asked)
    page = environment.get_template("index.html").render(
        title=visible(title),
        records=records,
        plots=[trade_off_svg(record) for record in records],
        unexpected=sum(not record.as_expected for record in records),
        suite_risk=sum(record.risk for record in records),
    )
    path = folder / "index.html"
    path.write_text(page, encoding="utf-8")
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
