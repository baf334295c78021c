"""A pytest plugin: audits as tests. JAX is imported only when a test asks for one."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from audit.suite_file import SuiteError, seconds

if TYPE_CHECKING:
    from audit.record import AuditRecord
    from audit.thresholds import Policy
    from distinguishers.contract import Distinguisher
    from guarantees.claim import Claim
    from mechanisms.neighbours import Neighbours

DEFAULT_RISK = 1e-3
DEFAULT_TRIALS = 10_000
PROPERTY = "dp_audit_record"
MARKER = "dp_audit(trials=None, risk=None, delta=1e-5, time_budget=None): defaults of the dp_audit fixture in this test"


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
        self._share = request.config.getoption("--dp-audit-risk") / max(users, 1)
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
        from audit.suite import audit_key

        self._calls += 1
        own = self._node.get_closest_marker("dp_audit")
        stated = own.kwargs if own is not None else {}
        label = name or (self._node.name if self._calls == 1 else f"{self._node.name} #{self._calls}")
        seed = self._config.getoption("--dp-audit-seed")
        record = run_audit(
            step,
            neighbours,
            distinguisher,
            claim=claim,
            trials=trials or self._config.getoption("--dp-audit-trials") or stated.get("trials") or DEFAULT_TRIALS,
            risk=stated.get("risk", self._share) / (self._calls * (self._calls + 1)),
            key=audit_key(seed, f"{self._node.nodeid} {self._calls}"),
            delta=delta if delta is not None else stated.get("delta", 1e-5),
            policy=policy,
            name=label,
            deadline=self._deadline(stated),
        )
        self._node.user_properties.append((PROPERTY, json.dumps(record.to_json())))
        if record.verdict == "violation":
            pytest.fail(self._told(record, seed), pytrace=False)
        if record.verdict == "inconclusive":
            if self._config.getoption("--dp-audit-inconclusive") == "fail":
                pytest.fail(self._told(record, seed), pytrace=False)
            warnings.warn(InconclusiveAuditWarning(f"{label}: {record.reason}"), stacklevel=2)
        return record

    def _deadline(self, stated: dict[str, Any]) -> float | None:
        budget = self._config.getoption("--dp-audit-budget") or stated.get("time_budget")
        if budget is None:
            return None
        try:
            return time.monotonic() + seconds(budget, "--dp-audit-budget")
        except SuiteError as error:
            raise pytest.UsageError(str(error)) from None

    def _told(self, record: AuditRecord, seed: int) -> str:
        from audit.summary_text import record_lines

        again = f'pytest "{self._node.nodeid}" --dp-audit-seed={seed} --dp-audit-trials={record.trials_planned}'
        return "\n".join([*record_lines(record), f"  reproduce: {again}"])


class _Gatherer:
    """Collects records from all workers and writes the report at the end."""

    def __init__(self, config: pytest.Config):
        self._config = config
        self._found: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Records travel with the test reports, so they also come from xdist workers."""
        if report.when == "call":
            self._found += [str(value) for key, value in report.user_properties if key == PROPERTY]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the report, and say where it is."""
        folder = self._config.getoption("--dp-audit-report")
        if not folder or not self._found:
            return
        from audit.record import from_json, save_records
        from audit.report import write_report

        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        records = tuple(from_json(json.loads(text)) for text in self._found)
        save_records(records, out / "records.json")
        terminalreporter.write_line(f"dp-audit report: {write_report(records, out, title='pytest')}")
