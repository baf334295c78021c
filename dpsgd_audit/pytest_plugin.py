"""The pytest plugin: options, a marker and a fixture. It imports nothing of ours until a test asks for the fixture."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from dpsgd_audit import name_clashes

if TYPE_CHECKING:
    from audit.diagnosis.explain.findings import Explanation
    from audit.record.record import AuditRecord

DEFAULT_RISK = 1e-3
DEFAULT_TRIALS = 10_000
MARKER = (
    "dp_audit(trials=None, risk=None, delta=1e-5, time_budget=None): options of the dp_audit fixture "
    "in this test; a risk given here comes on top of the session's"
)
FOUND = pytest.StashKey[list[dict[str, Any]]]()
"""Records of one test, as plain data."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, all called --dp-audit-..."""
    group = parser.getgroup("dp-audit", "privacy audits")
    group.addoption("--dp-audit-trials", type=int, help=f"outputs drawn per audit (default: {DEFAULT_TRIALS:,})")
    group.addoption(
        "--dp-audit-risk",
        type=float,
        default=DEFAULT_RISK,
        help="probability of a false alarm anywhere in the session (default: %(default)s)",
    )
    group.addoption("--dp-audit-budget", metavar="60s", help="time per audit: 60s, 5m")
    group.addoption("--dp-audit-seed", type=int, default=0, help="every audit's key follows from it and its name")
    group.addoption("--dp-audit-inconclusive", choices=["warn", "fail"], default="warn", help="(default: %(default)s)")
    group.addoption("--dp-audit-report", metavar="DIR", help="write records.json and index.html there")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and the place where records are gathered."""
    config.addinivalue_line("markers", MARKER)
    name_clashes.explain()
    if folder := config.getoption("--dp-audit-report"):
        _require_folder(folder)
    config.pluginmanager.register(_Gatherer(config), "dp-audit-gatherer")


def _require_folder(folder: str) -> None:
    """Refuse a folder that cannot be written to before the session's audits have cost their time."""
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise pytest.UsageError(f"--dp-audit-report={folder}: cannot be written to ({error.strerror}).") from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Records travel with the last report of a test, so they also come from xdist workers."""
    report = yield
    if report.when == "teardown" and FOUND in item.stash:
        report.dp_audit_records = item.stash[FOUND]  # type: ignore[attr-defined]
    if report.when == "call" and report.passed and "dp_explain" in getattr(item, "fixturenames", ()):
        report.dp_audit_explained = [item.nodeid]  # type: ignore[attr-defined]
    if call.excinfo is not None and (lines := getattr(call.excinfo.value, "dp_explain_found", None)):
        report.dp_audit_suspected = [f"{item.nodeid}: {line}" for line in lines]  # type: ignore[attr-defined]
    return report


@pytest.fixture
def dp_audit(request: pytest.FixtureRequest) -> Iterator[Callable[..., AuditRecord]]:
    """Audit a step against a claim: ``dp_audit(step, neighbours, claim=...)``; fails the test on a violation."""
    if wrong := name_clashes.found():
        pytest.fail(f"dp_audit: {wrong}", pytrace=False)
    from audit.pytest_plugin import Auditor
    from audit.trials.disk_cache import laws_kept

    # between workers and sessions, as commands keep them
    with laws_kept():
        yield Auditor(request, kept=FOUND, trials=DEFAULT_TRIALS)


@pytest.fixture
def dp_explain() -> Callable[..., Explanation]:
    """Name the lines that look wrong: ``dp_explain(step, neighbours, claim=...)``; fails the test if any does."""
    if wrong := name_clashes.found():
        pytest.fail(f"dp_explain: {wrong}", pytrace=False)
    from audit import pytest_plugin

    return pytest_plugin.dp_explain


class _Gatherer:
    """Collects records from all workers and writes the report at the end."""

    def __init__(self, config: pytest.Config):
        self._config = config
        self._found: list[dict[str, Any]] = []
        self._explained: list[str] = []
        self._suspected: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the records that a report carries."""
        self._found += getattr(report, "dp_audit_records", [])
        self._explained += getattr(report, "dp_audit_explained", [])
        self._suspected += getattr(report, "dp_audit_suspected", [])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what was looked at and what was not; write the report, and say where it is."""
        if not (self._found or self._suspected):
            return
        from audit.pytest_plugin import look_wrong, looked_at, report

        audited = looked_at(self._found, self._explained) if self._found else []
        for line in [*audited, *look_wrong(self._suspected)]:
            terminalreporter.write_line(line)
        if folder := self._config.getoption("--dp-audit-report"):
            terminalreporter.write_line(f"dp-audit report: {report(self._found, folder, self._suspected)}")
