"""One run of the conformance class on one of the libraries, and what it said."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from audit.conformance import STEP_CASES, TRAINING_CASES
from conformance.bugs import DIFFERS, LEAKS
from dpsgd_audit.pytest_plugin import DEFAULT_RISK

TESTS = len(STEP_CASES) + len(TRAINING_CASES) + 2
SESSION = "from conformance.classes import conformance_class\nTestLibrary = conformance_class({!r}, {!r})\n"
GREEN = "green"


@dataclasses.dataclass
class Seen:
    """What one session said: the plugin object that listens to it."""

    passed: list[str] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)
    leaks: dict[str, str] = dataclasses.field(default_factory=dict)
    """By test: the member of the battery on which the verdict rests."""
    differs: dict[str, str] = dataclasses.field(default_factory=dict)
    """By test: the statistic that fits worst."""
    errors: dict[str, str] = dataclasses.field(default_factory=dict)
    p_values: dict[str, float] = dataclasses.field(default_factory=dict)

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid.split("::")[-1].removeprefix("test_")
        self.p_values.update((name, value) for told, value in report.user_properties if told == "p_value")
        for record in getattr(report, "dp_audit_records", []):
            self.p_values[name] = record["p_value"]
            if name in self.leaks:
                self.leaks[name] = record["points"][0]["member"]
        if report.when != "call" and report.passed:
            return
        said = report.longreprtext.partition("\n")[0]
        if report.passed:
            self.passed.append(name)
        elif report.skipped:
            self.skipped.append(name)
        elif said.startswith(DIFFERS):
            self.differs[name] = said.partition("): ")[2]
        elif f": {LEAKS}" in said:
            self.leaks[name] = ""
        else:
            self.errors[name] = report.longreprtext[-2000:]

    @property
    def verdict(self) -> str:
        return "error" if self.errors else LEAKS if self.leaks else DIFFERS if self.differs else GREEN


def session(
    library: str, bug: str, *, only: str | None = None, seed: int = 0, more: tuple[str, ...] = ()
) -> dict[str, Any]:
    """One run of pytest in this process: all tests, or ``only`` one at its share of the whole run's risk."""
    seen, began, cpu = Seen(), time.monotonic(), time.process_time()
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        # the key of an audit follows from the test's name, which must not hold the folder's
        os.chdir(folder)
        # a name of its own: modules stay imported from one session to the next
        file = f"test_{library}_{bug or 'right'}.py"
        Path(file).write_text(SESSION.format(library, bug))
        chosen = [] if only is None else ["-k", only, f"--dp-audit-risk={DEFAULT_RISK / TESTS!r}"]
        # by its module: a checkout on the path need not be installed
        options = ["-p", "no:dpsgd-audit", "-p", "dpsgd_audit.pytest_plugin"]
        options += ["-q", "--import-mode=importlib", "-p", "no:cacheprovider", "-W", "ignore"]
        options += ["--rootdir", folder, f"--dp-audit-seed={seed}"]
        code = pytest.main([file, *options, *chosen, *more], plugins=[seen])
        os.chdir(here)
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (0, 1):
        raise SystemExit(said.getvalue())
    spent = {"seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(time.process_time() - cpu, 1)}
    return {"library": library, "bug": bug, "verdict": seen.verdict, **spent, **dataclasses.asdict(seen)}
