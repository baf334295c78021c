"""A pytest plugin: audits as tests. JAX is imported only when a test asks for one."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from audit.suites.file import SuiteError, nearest, seconds

if TYPE_CHECKING:
    from audit.policies.policy import Policy
    from audit.record.record import AuditRecord
    from distinguishers.contract import Distinguisher
    from guarantees.claim import Claim
    from mechanisms.neighbours import Neighbours

DEFAULT_RISK = 1e-3
DEFAULT_TRIALS = 10_000
MARKER_OPTIONS = ("trials", "risk", "delta", "time_budget")
MARKER = (
    "dp_audit(trials=None, risk=None, delta=1e-5, time_budget=None): options of the dp_audit fixture in this test; "
    "a risk given here comes on top of the session's"
)
FOUND = pytest.StashKey[list[dict[str, Any]]]()
"""Records of one test, as plain data."""


class InconclusiveAuditWarning(UserWarning):
    """An audit had too few trials to say anything."""


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
    config.pluginmanager.register(_Gatherer(config), "dp-audit-gatherer")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Records travel with the last report of a test, so they also come from xdist workers."""
    report = yield
    if report.when == "teardown" and FOUND in item.stash:
        report.dp_audit_records = item.stash[FOUND]  # type: ignore[attr-defined]
    return report


@pytest.fixture
def dp_audit(request: pytest.FixtureRequest) -> Callable[..., AuditRecord]:
    """Audit a step against a claim: ``dp_audit(step, neighbours, claim=...)``; fails the test on a violation."""
    return _Auditor(request)


class _Auditor:
    """The fixture's value. The session's risk is shared by the tests that use it, and a test's by its calls."""

    def __init__(self, request: pytest.FixtureRequest):
        self._node = request.node
        self._config = request.config
        users = sum("dp_audit" in getattr(item, "fixturenames", ()) for item in request.session.items)
        self._share = self._option("risk") / max(users, 1)
        self._calls = 0

    def __call__(
        self,
        step: Any,
        neighbours: Neighbours,
        distinguisher: Distinguisher | None = None,
        *,
        claim: Claim,
        trials: int | None = None,
        delta: float | None = None,
        policy: Policy | None = None,
        name: str | None = None,
    ) -> AuditRecord:
        """Run one audit. Call k of a test spends 1 / (k (k + 1)) of the test's share: the sum never exceeds it."""
        from audit.procedure import run_audit
        from audit.suites.run import audit_key

        self._calls += 1
        stated = self._stated()
        call = self._node.nodeid if self._calls == 1 else f"{self._node.nodeid} #{self._calls}"
        record = run_audit(
            step,
            neighbours,
            distinguisher,
            claim=claim,
            trials=trials or self._option("trials") or stated.get("trials") or DEFAULT_TRIALS,
            risk=stated.get("risk", self._share) / (self._calls * (self._calls + 1)),
            key=audit_key(self._option("seed"), call),
            delta=delta if delta is not None else stated.get("delta", 1e-5),
            policy=policy,
            name=name or call,
            deadline=self._deadline(stated),
        )
        self._node.stash.setdefault(FOUND, []).append(record.to_json())
        strict = self._option("inconclusive") == "fail"
        if record.verdict == "violation" or (record.verdict == "inconclusive" and strict):
            pytest.fail(self._failure(record), pytrace=False)
        if record.verdict == "inconclusive":
            warnings.warn(InconclusiveAuditWarning(f"{record.name}: {record.reason}"), stacklevel=2)
        return record

    def _option(self, name: str) -> Any:
        return self._config.getoption(f"--dp-audit-{name}")

    def _stated(self) -> dict[str, Any]:
        """The marker's options, the nearest marker first."""
        stated = {}
        for marker in self._node.iter_markers("dp_audit"):
            for option in marker.kwargs:
                if option not in MARKER_OPTIONS:
                    allowed = ", ".join(MARKER_OPTIONS)
                    pytest.fail(
                        f"dp_audit marker: unknown option {option!r}{nearest(option, MARKER_OPTIONS)}. "
                        f"Allowed: {allowed}.",
                        pytrace=False,
                    )
            stated = {**marker.kwargs, **stated}
        return stated

    def _deadline(self, stated: dict[str, Any]) -> float | None:
        budget = self._option("budget") or stated.get("time_budget")
        if budget is None:
            return None
        try:
            return time.monotonic() + seconds(budget, "--dp-audit-budget")
        except SuiteError as error:
            raise pytest.UsageError(str(error)) from None

    def _failure(self, record: AuditRecord) -> str:
        from audit.report.text import record_lines

        # run alone, the test has the whole risk: stating its share gives the same thresholds and bounds
        again = f'pytest "{self._node.nodeid}" --dp-audit-seed={self._option("seed")} --dp-audit-risk={self._share!r}'
        if (trials := self._option("trials")) is not None:
            again += f" --dp-audit-trials={trials}"
        return "\n".join([*record_lines(record), f"  reproduce: {again}"])


class _Gatherer:
    """Collects records from all workers and writes the report at the end."""

    def __init__(self, config: pytest.Config):
        self._config = config
        self._found: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the records that a report carries."""
        self._found += getattr(report, "dp_audit_records", [])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the report, and say where it is."""
        folder = self._config.getoption("--dp-audit-report")
        if not folder or not self._found:
            return
        from audit.record.record import from_json, save_records
        from audit.report.page import write_report

        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        records = tuple(sorted(map(from_json, self._found), key=lambda record: record.name))
        save_records(records, out / "records.json")
        terminalreporter.write_line(f"dp-audit report: {write_report(records, out, title='pytest')}")
