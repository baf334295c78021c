"""`make test-full`: its parts cover every test once, and a run goes on where it stopped."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import ledger
from tools.full_tests import dealt

FOUR = """
from pathlib import Path
import pytest

@pytest.fixture
def broken():
    yield
    raise OSError

def test_right(): pass
def test_wrong(): assert Path(__file__).with_name("mended").exists()
def test_wrong_after(broken): pass
@pytest.mark.skip
def test_skipped(): pass
"""


def run(file, *options):
    with contextlib.redirect_stdout(io.StringIO()):
        names = ["--rootdir", file.parent, "-p", "no:cacheprovider", "-p", "no:dpsgd-audit", "-p", "no:xdist"]
        return pytest.main([str(part) for part in (file, *names, *options)], plugins=[ledger])


def test_a_line_a_test_and_only_what_is_listed_runs(tmp_path):
    file, lines, names = tmp_path / "test_four.py", tmp_path / "a.tsv", tmp_path / "names.txt"
    file.write_text(FOUR)
    run(file, "--ledger", lines, "--names", names)
    outcomes = {name.split("::")[1]: outcome for name, (outcome, _) in ledger.read([lines]).items()}
    assert outcomes == {
        "test_right": "passed",
        "test_wrong": "failed",
        "test_wrong_after": "failed",
        "test_skipped": "skipped",
    }
    assert [line.split("::")[1] for line in names.read_text().splitlines()] == list(outcomes)
    listed, later = tmp_path / "listed.txt", tmp_path / "b.tsv"
    listed.write_text("test_four.py::test_wrong\n")
    (tmp_path / "mended").touch()
    run(file, "--ledger", later, "--listed", listed)
    assert list(ledger.read([later])) == ["test_four.py::test_wrong"]
    for both in ([lines, later], [later, lines]):
        known = ledger.read(both)
        assert known["test_four.py::test_wrong"][0] == "passed"
        assert known["test_four.py::test_wrong_after"][0] == "failed"


NAMES = [f"{file}::{test}" for file in "abc" for test in range(30)]


@settings(max_examples=30)
@given(
    tests=st.lists(st.tuples(st.sampled_from(["fast", "long"]), st.sampled_from(NAMES))),
    shards=st.integers(1, 9),
)
def test_every_test_is_in_one_shard_and_fast_ones_of_a_file_in_the_same(tests, shards):
    tests = list({name: (kind, name) for kind, name in tests}.values())
    parts = [dealt(tests, shard + 1, shards) for shard in range(shards)]
    assert sorted(name for part in parts for name in part) == sorted(name for _, name in tests)
    for file in "abc":
        fast = {name for kind, name in tests if kind == "fast" and name.startswith(file)}
        assert sum(bool(fast & set(part)) for part in parts) <= 1
