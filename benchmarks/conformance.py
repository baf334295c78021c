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
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from conformance.bugs import BUGS  # noqa: E402
from conformance.classes import LIBRARIES  # noqa: E402
from conformance.session import GREEN, session  # noqa: E402


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
