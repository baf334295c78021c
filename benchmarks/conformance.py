"""Which bug of which library goes red in the default run of the conformance class, by which pair and score, how soon.

python benchmarks/conformance.py [--libraries numpy torch jax] [--bugs right NAME ...] [--whole] [--json FILE]
python benchmarks/conformance.py --table FILE ...

Each line is a pytest session with the plugin's defaults. Without ``--whole`` a bug's session holds only the test where
it shows most, at the share of the risk and with the key that this test has in the whole run, so that it says there what
it says here. ``right`` is the library without a bug, always the whole run. ``--table`` prints the table of
docs/conformance.md from the JSON lines of earlier runs.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
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

from audit.conformance import STEP_CASES, TRAINING_CASES  # noqa: E402
from dpsgd_audit.pytest_plugin import DEFAULT_RISK  # noqa: E402

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


def session(library: str, bug: str, *, only: str | None = None, seed: int = 0) -> dict[str, Any]:
    """One run of pytest in this process."""
    seen, began, cpu = Seen(), time.monotonic(), time.process_time()
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        # the key of an audit follows from the test's name, which must not hold the folder's
        os.chdir(folder)
        # a name of its own: modules stay imported from one session to the next
        file = f"test_{library}_{bug or 'right'}.py"
        Path(file).write_text(SESSION.format(library, bug))
        chosen = [] if only is None else ["-k", only, f"--dp-audit-risk={DEFAULT_RISK / TESTS!r}"]
        options = ["-q", "--import-mode=importlib", "-p", "no:cacheprovider", "-W", "ignore"]
        options += ["--rootdir", folder, f"--dp-audit-seed={seed}"]
        code = pytest.main([file, *options, *chosen], plugins=[seen])
        os.chdir(here)
    if code not in (0, 1):
        raise SystemExit(said.getvalue())
    spent = {"seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(time.process_time() - cpu, 1)}
    return {"library": library, "bug": bug, "verdict": seen.verdict, **spent, **dataclasses.asdict(seen)}


def due(bug: str) -> str:
    return BUGS[bug].verdict if bug else GREEN


def table(files: list[str]) -> str:
    """One row a bug, one cell a library; the last line of the same bug and library counts."""
    found = {}
    for file in files:
        for text in Path(file).read_text().splitlines():
            line = json.loads(text)
            found[line["library"], line["bug"]] = line
    rows = ["| bug | " + " | ".join(LIBRARIES) + " |", "|---" * (1 + len(LIBRARIES)) + "|"]
    for bug in ["", *BUGS]:
        cells = [cell(found.get((library, bug)), bug) for library in LIBRARIES]
        rows.append(f"| {BUGS[bug].what if bug else 'none: right'} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def cell(line: dict[str, Any] | None, bug: str) -> str:
    if line is None:
        return "not run"
    spoke = line["leaks"] or line["differs"]
    first, said = next(iter(spoke.items()), ("", ""))
    where = first.partition("[")[2].rstrip("]") or ("" if not first else "law")
    wrong = "" if line["verdict"] == due(bug) else " (wrong)"
    return (
        f"{line['verdict']}{wrong}" + (f": {where}, {said.rstrip('.')}" if spoke else "") + f"; {line['cpu_seconds']} s"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--libraries", nargs="*", default=LIBRARIES)
    options.add_argument("--bugs", nargs="*", default=["right", *BUGS])
    options.add_argument("--whole", action="store_true", help="the whole run for every bug")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--json")
    options.add_argument("--table", nargs="*")
    given = options.parse_args()
    if given.table:
        print(table(given.table))
        return
    for library in given.libraries:
        for bug in ("" if name == "right" else name for name in given.bugs):
            only = BUGS[bug].shows if bug and not given.whole else None
            line = session(library, bug, only=only, seed=given.seed)
            mark = "" if line["verdict"] == due(bug) else f"  <-- due: {due(bug)} {line['errors']}"
            spoke = line["leaks"] or line["differs"]
            print(
                f"{library:6} {bug or 'right':24} {line['verdict']:26} {line['cpu_seconds']:6.1f}s {spoke}{mark}",
                flush=True,
            )
            if given.json:
                with open(given.json, "a") as out:
                    out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
