"""The documents tell the truth: their lines of code run, and their references exist."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import guarantees

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "theorems.md").read_text()
NOTES = "# Errors, slips and easy misreadings of the papers"
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
KEY = re.compile(r"\b[a-z]{2,}(?:19|20)\d{2}[a-z]?\b")


@pytest.mark.few(5)
@pytest.mark.parametrize("number", range(1, len(SNIPPETS) + 1))
def test_the_lines_that_show_a_note_on_a_paper_run(number):
    parsed = doctest.DocTestParser().get_doctest(
        SNIPPETS[number - 1], {"guarantees": guarantees}, f"note {number}", "docs/theorems.md", 0
    )
    report: list[str] = []
    doctest.DocTestRunner().run(parsed, out=report.append)
    assert not report, "".join(report)


def test_every_note_on_a_paper_has_its_number_and_its_lines():
    notes = TEXT.partition(NOTES)[2]
    numbers = [int(found) for found in re.findall(r"^(\d+)\. ", notes, flags=re.MULTILINE)]
    assert numbers == list(range(1, len(SNIPPETS) + 1))
    for note in re.split(r"^\d+\. ", notes, flags=re.MULTILINE)[1:]:
        assert note.count("```python") == 1, note
    for referred in re.findall(r"\bnote (\d+)", TEXT):
        assert int(referred) in numbers


def test_notes_are_sorted_by_how_grave_they_are():
    assert re.findall(r"^## (.+)", TEXT.partition(NOTES)[2], flags=re.MULTILINE) == [
        "Errors",
        "Slips",
        "Right, and easily misread",
    ]


def where():
    """Code in the second column of the theorem tables."""
    tables = TEXT.partition(NOTES)[0]
    cells = [line.split(" | ")[-2] for line in tables.splitlines() if line.startswith("| ") and line.count(" | ") >= 2]
    return sorted({name for cell in cells for name in re.findall(r"`([^`]+)`", cell)})


def test_the_theorem_tables_name_code_that_exists():
    assert len(where()) > 30
    for name in where():
        if name.endswith(".py"):
            assert (ROOT / "guarantees" / name).exists(), name
        else:
            first, _, rest = name.partition(".")
            home = guarantees if first in dir(guarantees) else guarantees.trade_off
            assert hasattr(home, first), name
            assert not rest or hasattr(getattr(home, first), rest), name


def cited(text):
    """Keys inside square brackets."""
    return {key for inside in re.findall(r"\[([^\[\]]+)\]", text) for key in KEY.findall(inside)}


def test_every_reference_exists():
    known = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "guarantees" / "references.bib").read_text(), flags=re.MULTILINE))
    used = cited(TEXT)
    for package in ("guarantees", "mechanisms", "distinguishers", "audit", "papers"):
        for file in sorted((ROOT / package).rglob("*.py")):
            used |= cited(file.read_text())
    assert used - known == set()
