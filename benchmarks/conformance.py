"""Which bug of which library goes red in the default run of the conformance class, by which pair and score, how soon.

python benchmarks/conformance.py [--libraries numpy torch jax] [--bugs NAME ...] [--cases NAME ...] [--json FILE]

Every line is one whole pytest session with the plugin's defaults (risk 1e-3 for all of its tests). ``right`` is the
library without a bug.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from conformance.bugs import BUGS, DIFFERS, LEAKS  # noqa: E402
from conformance.classes import LIBRARIES  # noqa: E402

SESSION = "from conformance.classes import conformance_class\nTestLibrary = conformance_class({!r}, {!r})\n"


@dataclasses.dataclass
class Seen:
    """What one session said: the plugin object that listens to it."""

    passed: list[str] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)
    leaks: dict[str, str] = dataclasses.field(default_factory=dict)
    differs: dict[str, str] = dataclasses.field(default_factory=dict)
    errors: dict[str, str] = dataclasses.field(default_factory=dict)
    p_values: dict[str, float] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid.split("::")[-1].removeprefix("test_")
        records = getattr(report, "dp_audit_records", [])
        if report.when == "teardown" and records:
            self.p_values[name] = records[0]["p_value"]
            if name in self.leaks:
                self.leaks[name] = _speaker(records[0])
        if report.when != "call" and report.passed:
            return
        self.seconds[name] = report.duration
        if report.passed:
            self.passed.append(name)
        elif report.skipped:
            self.skipped.append(name)
        elif DIFFERS in report.longreprtext.partition("\n")[0]:
            self.differs[name] = report.longreprtext.partition("\n")[0].partition("): ")[2]
        elif ": violation" in report.longreprtext:
            self.leaks[name] = ""
        else:
            self.errors[name] = report.longreprtext[-2000:]

    @property
    def verdict(self) -> str:
        return "error" if self.errors else LEAKS if self.leaks else DIFFERS if self.differs else "green"


def _speaker(record: dict[str, Any]) -> str:
    """The member of the battery on which the verdict rests."""
    point = next((point for point in record["points"] if point.get("member")), {})
    return str(point.get("member", ""))


def session(library: str, bug: str, *, cases: list[str] | None = None, seed: int = 0) -> tuple[Seen, float]:
    """One default run."""
    seen, began = Seen(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        file = Path(folder) / "test_library.py"
        file.write_text(SESSION.format(library, bug))
        chosen = ["-k", " or ".join(cases)] if cases else []
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", folder, f"--dp-audit-seed={seed}", "-W", "ignore"]
        code = pytest.main([str(file), *options, *chosen], plugins=[seen])
    if code not in (0, 1):
        raise SystemExit(said.getvalue())
    return seen, time.monotonic() - began


def line(library: str, bug: str, seen: Seen, seconds: float) -> dict[str, Any]:
    return {"library": library, "bug": bug, "verdict": seen.verdict, "total": round(seconds, 1)} | dataclasses.asdict(seen)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--libraries", nargs="*", default=LIBRARIES)
    options.add_argument("--bugs", nargs="*", default=["right", *BUGS])
    options.add_argument("--cases", nargs="*")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--json")
    given = options.parse_args()
    for library in given.libraries:
        for bug in given.bugs:
            seen, seconds = session(library, "" if bug == "right" else bug, cases=given.cases, seed=given.seed)
            due = BUGS[bug].verdict if bug in BUGS else "green"
            mark = "" if seen.verdict == due else "  <-- due: " + due
            print(f"{library:6} {bug:24} {seen.verdict:26} {seconds:6.1f}s {seen.leaks or seen.differs}{mark}", flush=True)
            for name, text in seen.errors.items():
                print(f"    error in {name}: {text[-600:]}", flush=True)
            if given.json:
                with open(given.json, "a") as out:
                    out.write(json.dumps(line(library, bug, seen, seconds)) + "\n")


if __name__ == "__main__":
    main()
