"""The papers' items: nothing missing, nothing twice, numbers compared as they are printed."""

import json
from collections import Counter

import pytest

from audit.cli import main
from audit.reproduce.figures import DRAWINGS
from audit.reproduce.item import Item, agrees, answered
from audit.reproduce.papers import PAPERS, reproduced

EVERYTHING = {
    "wang2026": [*(f"Figure {n}" for n in range(1, 8)), "Table 1", "Table 2"],
    "vandijk2026": [
        *("Table 1", "Figure 1", "Figure 2", "Figure 3", "Theorem 5.1", "Theorem 5.2", "Corollary 5.3", "Section 6.2")
    ],
    "gomez2025": [
        *(f"Figure {n}" for n in range(1, 9)),
        *(f"Table {n}" for n in range(1, 6)),
        *("Proposition 4.1", "Proposition 6.1", "Proposition 6.2"),
    ],
    "chua2024": [
        *(f"Figure {n}" for n in range(1, 8)),
        *("Theorem 4.1", "Theorem 4.2", "Conjecture 4.3", "Proposition C.2"),
    ],
    "ertan2026": [
        *(f"Table {n}" for n in range(1, 11)),
        *(f"Figure {n}" for n in range(1, 5)),
        *("Lemma 6.4", "Theorem 6.1"),
    ],
}


@pytest.mark.parametrize(
    ("printed", "value", "agreed"),
    [
        ("1.57", 1.5664, True),
        ("1.57", 1.5649, False),
        ("1.57e9", 1.5744e9, True),
        ("1.57e9", 1.58e9, False),
        ("114", 113.7, True),
        ("<0.01", 0.0099, True),
        (">0", -1e-9, False),
        ("≈1e-3", 0.0011, True),
        ("≈1e-3", 0.01, False),
        ("12%", 0.124, True),
    ],
)
def test_numbers_agree_to_their_printed_digits(printed, value, agreed):
    assert agrees(printed, value) is agreed


def test_what_is_no_number_is_refused():
    with pytest.raises(ValueError, match="no printed number"):
        agrees("about two", 2.0)


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.key)
def test_every_table_and_figure_has_a_row_and_no_row_stands_twice(paper):
    found = list(paper.items())
    for place in EVERYTHING[paper.key]:
        assert any(place in item.where for item in found), place
    assert Counter((item.where, item.what) for item in found).most_common(1)[0][1] == 1
    assert paper.key in DRAWINGS


def test_items_without_a_computation_say_why():
    silent = [item.where for paper in PAPERS for item in paper.items() if item.ours is None and not item.why]
    assert silent == []


def test_states():
    assert answered("p", Item(where="a", what="b", theirs="2.0", ours=lambda: 2.01)).state == "match"
    assert answered("p", Item(where="a", what="b", theirs="2.0", ours=lambda: 2.3)).state == "differs"
    assert answered("p", Item(where="a", what="b", ours=lambda: 2.3)).state == "not checkable"
    assert answered("p", Item(where="a", what="b", why="training study")).state == "not reproduced"


def test_limits_from_the_command(tmp_path, capsys):
    assert main(["reproduce", "ertan2026", "--quick", "--json", "--out", str(tmp_path)]) == 0
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert counts == {"match": 85, "differs": 1, "not checkable": 5, "not reproduced": 9}
    assert (tmp_path / "ertan2026-figure-3.svg").exists()
    assert "Table 10" in (tmp_path / "index.html").read_text()


def test_a_paper_that_we_do_not_know():
    with pytest.raises(ValueError, match="no paper nobody2020; there are chua2024"):
        list(reproduced(["nobody2020"]))


@pytest.mark.long
def test_every_difference_has_its_reason():
    differing = [row for row in reproduced() if row.state == "differs"]
    assert [row.where for row in differing if not row.why] == []
