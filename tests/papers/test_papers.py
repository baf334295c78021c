"""The papers' numbers: nothing missing, twice or invented, and counted as the documents say."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from papers.__main__ import main
from papers.catalogue import PAPERS, chosen, compared
from papers.figures import DRAWINGS
from papers.item import Item, agrees, allowed, answered, read

ROOT = Path(__file__).parents[2]
EVERYTHING = {
    "wang2026": [*(f"Figure {n}" for n in range(1, 8)), "Table 1", "Table 2"],
    "vandijk2026": ["Table 1", "Figure 1", "Figure 2", "Figure 3"],
    "gomez2025": [*(f"Figure {n}" for n in range(1, 9)), *(f"Table {n}" for n in range(1, 6))],
    "chua2024": [f"Figure {n}" for n in range(1, 8)],
    "ertan2026": [*(f"Table {n}" for n in range(1, 11)), *(f"Figure {n}" for n in range(1, 5))],
}
SECTION = re.compile(r"(\d|[A-H])(\.\d)*")


@pytest.mark.parametrize(
    ("printed", "value", "agreed"),
    [
        ("1.57", 1.5664, True),
        ("1.57", 1.5649, False),
        ("1.57e9", 1.5744e9, True),
        ("1.57e9", 1.58e9, False),
        ("114", 113.7, True),
        ("<0.01", 0.0099, True),
        ("<0.01", 0.0101, False),
        ("<1.96", 1.9512, True),
        ("<1.96", 1.4, False),
        (">0.226", 0.2264, True),
        (">0.226", 0.2259, False),
        (">0.226", 0.3, False),
        ("≈1e-3", 0.0011, True),
        ("≈0.17", 0.34, False),
        ("≈0.17", 0.172, True),
        ("12%", 0.124, True),
        ("1", float("nan"), False),
    ],
)
def test_numbers_agree_to_their_printed_digits(printed, value, agreed):
    assert agrees(printed, value) is agreed


def test_a_tolerance_of_its_own_replaces_that_of_the_digits():
    assert allowed("≈1e-3") == 5e-4
    assert allowed("≈1e-3", 1e-4) == 1e-4
    assert agrees("√2", 1.4142, 1e-3)
    assert not agrees("√2", 1.4142)


def test_what_is_no_number_is_refused():
    with pytest.raises(ValueError, match="no printed number"):
        read("about two")


def test_a_number_that_a_paper_does_not_print_is_no_item():
    with pytest.raises(ValueError, match="prints no number for it; make it an Aside"):
        Item(where="Theorem 3.10", section="3.4", what="total variation", ours=lambda: 0.288)
    with pytest.raises(ValueError, match="say which section prints it"):
        Item(where="Theorem 3.10", section="", what="total variation", printed="0.694", ours=lambda: 0.288)
    with pytest.raises(ValueError, match="say what is missing"):
        Item(where="Table 2", section="4", what="accuracies")


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.key)
def test_every_table_and_figure_has_a_row_and_no_row_stands_twice(paper):
    found = list(paper.items())
    for place in EVERYTHING[paper.key]:
        assert any(place in item.where for item in found), place
    assert Counter((item.where, item.what) for item in found).most_common(1)[0][1] == 1
    assert Counter((aside.where, aside.what) for aside in paper.asides()).most_common(1)[0][1] == 1
    assert paper.key in DRAWINGS


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.key)
def test_an_item_says_where_it_is_printed_and_how_near_a_match_must_be(paper):
    for item in paper.items():
        assert SECTION.fullmatch(item.section), item
        if item.ours is not None:
            number = read(item.printed)
            assert allowed(item.printed, item.tolerance) > 0, item
            # 'greater than 0' is no number of theirs, but our reading of a sentence
            assert number.sign not in ("<", ">") or number.value != 0, item


def test_states():
    given = {"where": "a", "section": "1", "what": "b"}
    assert answered("p", Item(**given, printed="2.0", ours=lambda: 2.01)).state == "match"
    assert answered("p", Item(**given, printed="2.0", ours=lambda: 2.3)).state == "differs"
    assert answered("p", Item(**given, printed="2.0", why="a training study")).state == "not checkable"
    row = answered("p", Item(**given, why="it prints no values"))
    assert (row.state, row.ours, row.tolerance) == ("not checkable", None, None)


def stated():
    """The table of the documents: of each paper items, match, differs, not checkable, asides."""
    lines = (ROOT / "docs" / "reports.md").read_text().splitlines()
    start = lines.index("| paper | items | match | differs | not checkable | asides |")
    rows = [re.findall(r"[\w]+", line) for line in lines[start + 2 : start + 8]]
    return {key: tuple(int(word) for word in words) for key, *words in rows}


def test_the_counts_of_the_documents_add_up_and_are_those_of_the_code():
    """An item has a reason exactly where it does not match: the long test below computes them all."""
    counted = {}
    for paper in PAPERS:
        items = list(paper.items())
        lacking = sum(item.ours is None for item in items)
        differing = sum(item.ours is not None and bool(item.why) for item in items)
        counted[paper.key] = (
            len(items),
            len(items) - lacking - differing,
            differing,
            lacking,
            len(list(paper.asides())),
        )
    counted["all"] = tuple(sum(column) for column in zip(*counted.values(), strict=True))
    assert stated() == counted


@pytest.mark.long
def test_limits_from_the_command(tmp_path, capsys):
    assert main(["ertan2026", "--quick", "--json", "--out", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["counts"] == {"match": 74, "not checkable": 13}
    assert len(said["asides"]) == 6
    assert (tmp_path / "ertan2026-figure-3.svg").exists()
    assert "Table 10" in (tmp_path / "index.html").read_text()


def test_a_paper_that_we_do_not_know(capsys):
    with pytest.raises(ValueError, match="no paper nobody2020; there are chua2024"):
        chosen(["nobody2020"])
    assert main(["nobody2020"]) == 2
    assert "no paper nobody2020" in capsys.readouterr().err


@pytest.mark.long
def test_what_does_not_match_has_its_reason_and_what_matches_has_none():
    assert [row.where for row in compared(PAPERS) if (row.state == "match") == bool(row.why)] == []
