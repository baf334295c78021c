"""A pytest plugin for `make test-full`: which tests there are, and one line for each that ends.

A line holds what came of the test (passed, failed, skipped), the seconds of CPU time that it took with its fixtures and
child processes, and its name. Every worker appends its own lines, so an interrupted run keeps what it has done.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

FINISHED = ("passed", "skipped")


def read(ledgers: Iterable[Path]) -> dict[str, tuple[str, float]]:
    """What came of each test, and its CPU seconds; of several lines for one test the last that finished counts."""
    lines = [line for file in ledgers for line in file.read_text().splitlines()]
    known: dict[str, tuple[str, float]] = {}
    for outcome, seconds, name in (line.split("\t", 2) for line in lines):
        if outcome in FINISHED or known.get(name, ("failed",))[0] not in FINISHED:
            known[name] = (outcome, float(seconds))
    return known


def pytest_addoption(parser: pytest.Parser) -> None:
    """Three files."""
    group = parser.getgroup("ledger")
    group.addoption("--names", type=Path, help="write every test's name here, the long ones marked")
    group.addoption("--listed", type=Path, help="run the tests that are named here and no others")
    group.addoption("--ledger", type=Path, help="append a line here for each test that ends")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Markers are final here."""
    if names := config.getoption("--names"):
        kinds = ("long" if item.get_closest_marker("long") else "fast" for item in items)
        names.write_text("".join(f"{kind}\t{item.nodeid}\n" for kind, item in zip(kinds, items, strict=True)))
    if listed := config.getoption("--listed"):
        chosen = set(listed.read_text().splitlines())
        items[:] = [item for item in items if item.nodeid in chosen]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """From the first fixture to the last."""
    began = _cpu_seconds()
    done = yield
    if ledger := item.config.getoption("--ledger"):
        outcome = item.stash.get(OUTCOME, "failed")
        with ledger.open("a") as lines:
            lines.write(f"{outcome}\t{_cpu_seconds() - began:.2f}\t{item.nodeid}\n")
    return done


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test has failed if any of its three phases has."""
    report = yield
    if item.stash.get(OUTCOME, "passed") == "passed":
        item.stash[OUTCOME] = report.outcome
    return report


OUTCOME = pytest.StashKey[str]()


def _cpu_seconds() -> float:
    return sum(os.times()[:4])
