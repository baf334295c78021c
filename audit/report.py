"""The report: one self-contained HTML page made from records alone."""

from __future__ import annotations

from pathlib import Path

from audit.plots import trade_off_svg
from audit.record import AuditRecord
from audit.table import told


def write_report(records: tuple[AuditRecord, ...], folder: Path, *, title: str) -> Path:
    """Write index.html into a folder; the page needs nothing else to be read."""
    import jinja2

    loader = jinja2.PackageLoader("audit", "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["told"] = told
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
