"""The documents tell the truth: their lines of code run, and their references exist."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import guarantees

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "theorems.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
KEY = re.compile(r"\b[a-z]{2,}(?:19|20)\d{2}[a-z]?\b")


@pytest.mark.parametrize("number", range(1, len(SNIPPETS) + 1))
def test_the_lines_that_show_an_error_of_a_paper_run(number):
    parsed = doctest.DocTestParser().get_doctest(
        SNIPPETS[number - 1], {"guarantees": guarantees}, f"error {number}", "docs/theorems.md", 0
    )
    report: list[str] = []
    doctest.DocTestRunner().run(parsed, out=report.append)
    assert not report, "".join(report)


def test_all_ten_errors_are_shown():
    assert len(SNIPPETS) == 10


def where():
    """Code in the second column of the theorem tables."""
    tables = TEXT.partition("# Where the papers err")[0]
    cells = [line.split(" | ")[-2] for line in tables.splitlines() if line.startswith("| ") and line.count(" | ") >= 2]
    return sorted({name for cell in cells for name in re.findall(r"`([^`]+)`", cell)})


def test_the_theorem_tables_name_code_that_exists():
    assert len(where()) > 30
    for name in where():
        if name.endswith(".py"):
            assert (ROOT / "guarantees" / name).exists(), name
        else:
            first, _, rest = name.partition(".")
            assert first in dir(guarantees), name
            assert not rest or hasattr(getattr(guarantees, first), rest), name


def cited(text):
    """Keys inside square brackets."""
    return {key for inside in re.findall(r"\[([^\[\]]+)\]", text) for key in KEY.findall(inside)}


def test_every_reference_exists():
    known = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "guarantees" / "references.bib").read_text(), flags=re.MULTILINE))
    used = cited(TEXT)
    for package in ("guarantees", "mechanisms", "distinguishers", "audit"):
        for file in sorted((ROOT / package).rglob("*.py")):
            used |= cited(file.read_text())
    assert used - known == set()
