"""Formats of reports by name: the command line lists them, and each is imported only when written."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from audit.record.record import AuditRecord

PAGE = "html"
"""The one format that is a folder: ``audit.write_report``."""
FIGURES = ("pdf", "pgf", "svg", "png")
"""File endings of figures."""


class TextFormat(NamedTuple):
    """A function that turns records into text, and the module of this package that has it."""

    module: str
    function: str
    titled: bool = True
    """Whether the function also takes a ``title``."""


TEXTS = {
    "text": TextFormat("short_story", "short_report"),
    "markdown": TextFormat("formats", "markdown"),
    "model-card": TextFormat("statement", "model_card"),
    "statement": TextFormat("statement", "statement", titled=False),
    "junit": TextFormat("formats", "junit"),
    "sarif": TextFormat("sarif", "sarif", titled=False),
    "latex": TextFormat("latex", "latex"),
    "csv": TextFormat("formats", "separated", titled=False),
    "bibtex": TextFormat("latex", "bibtex", titled=False),
}


def text_report(records: tuple[AuditRecord, ...], name: str, *, title: str) -> str:
    """The records as text in the format of this name."""
    module, function, titled = TEXTS[name]
    written = getattr(importlib.import_module(f"audit.report.{module}"), function)
    return written(records, title=title) if titled else written(records)
