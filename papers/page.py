"""The comparison as one HTML page."""

from __future__ import annotations

from collections import Counter
from importlib import resources
from pathlib import Path

from audit.record.files import write_whole
from papers.catalogue import PAPERS
from papers.item import Remark, Row


def write_page(rows: tuple[Row, ...], remarks: tuple[Remark, ...], figures: list[Path], folder: Path) -> Path:
    """Write index.html into a folder, with the figures inside it."""
    import jinja2

    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    style = resources.files("audit.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    seen = {row.paper for row in rows}
    page = environment.from_string(text).render(
        rows=rows,
        remarks=remarks,
        counts=Counter(row.state for row in rows),
        papers=[paper for paper in PAPERS if paper.key in seen],
        style=style,
        figures={path.stem: path.read_text(encoding="utf-8").partition("?>")[2] for path in figures},
    )
    path = Path(folder) / "index.html"
    write_whole(path, page)
    return path
