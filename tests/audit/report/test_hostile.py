"""A record whose every word tries to break the format that it is written in: each is read back by a real parser."""

import csv
import dataclasses
import io
import itertools
import shutil
import subprocess
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from audit.report.escaping import LONGEST, visible
from audit.report.formats import junit, markdown, separated
from audit.report.latex import latex

DOCUMENT = r"""\documentclass{article}
\usepackage{booktabs,amsmath,graphicx}
\newcommand{\citep}[1]{[#1]}
\begin{document}
BODY
\end{document}
"""
MARKS = r" *a* _b_ ~~c~~ `d` [e](http://f) ![g](h) \[i\] <b>j</b> &amp; # k | l"


@pytest.fixture(scope="module")
def worst(hostile):
    """Its name, reason and parts."""
    name = hostile.name + MARKS
    parts = {
        key: dataclasses.replace(getattr(hostile, key), name=name, parameters={name: name})
        for key in ("mechanism", "neighbours", "distinguisher", "claim")
    }
    return dataclasses.replace(hostile, name=name, reason=name, **parts)


def text_of(token):
    """What a reader of the rendered Markdown sees; anything but text is a breach."""
    assert {child.type for child in token.children} <= {"text"}, {child.type for child in token.children}
    return "".join(child.content for child in token.children)


def test_markdown_shows_names_as_text(violation, worst):
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = parser.parse(markdown((worst, violation), title=worst.name))
    cells = [inside for cell, inside in itertools.pairwise(tokens) if cell.type == "td_open"]
    assert len(cells) == 2 * 7
    assert text_of(cells[0]) == visible(worst.name)
    heading = next(inside for tag, inside in itertools.pairwise(tokens) if tag.type == "heading_open")
    assert text_of(heading).startswith(visible(worst.name))
    assert not {"html_block", "fence", "code_block"} & {token.type for token in tokens}


def test_csv_keeps_rows_and_columns(violation, worst):
    header, *rows = csv.reader(io.StringIO(separated((worst, violation)), newline=""), strict=True)
    assert [len(row) for row in rows] == [len(header)] * 2
    assert rows[1][0] == violation.name
    assert not {"\x00", "\x1b", "\u202e"} & set("".join(rows[0]))


def test_junit_is_xml(violation, worst):
    root = ElementTree.fromstring(junit((worst, violation), title=worst.name))
    assert [case.get("name") for case in root.iter("testcase")] == [visible(worst.name), violation.name]
    assert {element.tag for element in root.iter()} == {"testsuites", "testsuite", "testcase", "failure"}


def test_latex_cuts_names_that_no_page_holds(worst):
    cell = next(line for line in latex((worst,), title="t").splitlines() if line.endswith(r"\\*") and "xxx" in line)
    assert "x" * LONGEST not in cell
    assert r"\ldots" in cell


@pytest.mark.parametrize("first", ["[", "*"])
def test_latex_takes_no_name_for_an_argument_of_the_row_before(violation, first):
    rows = latex((violation, dataclasses.replace(violation, name=f"{first}3in] a")), title="t")
    assert f"{{{first}}}3in{{]}} a" in rows
    assert not [row for row in rows.splitlines() if row.startswith((first, f"{{{first}"))]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
def test_latex_compiles(violation, worst, tmp_path):
    (tmp_path / "paper.tex").write_text(DOCUMENT.replace("BODY", latex((violation, worst), title=worst.name)))
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-2000:]
