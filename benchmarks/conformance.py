"""Which bug of which library goes red in the default run of the conformance class, by which pair and score, how soon.

python benchmarks/conformance.py --json FILE [--jobs N] [--repetitions 20] [--runs LIBRARY:BUG ...] [--whole]
python benchmarks/conformance.py --table FILE ...
python benchmarks/conformance.py --judge FILE ...

Each line of the file is a pytest session with the plugin's defaults, run in one of N processes; lines that it has
already are not run again, so that a run that was cut is continued by the same command. Without ``--whole`` a bug's
session holds only the test where it shows most, at the share of the risk and with the key that this test has in the
whole run, so that it says there what it says here. The bug ``right`` is the library without one: always the whole run,
once for each of the ``--repetitions`` seeds. ``--table`` prints a table, ``--judge`` how many p-values of right
libraries lie below .05 and .01, with the chance that uniform ones have as many or more.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
ONE_CORE = {
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""Of a process among several."""
LEVELS = (0.05, 0.01)
RIGHT = "right"

from conformance.bugs import BUGS  # noqa: E402
from conformance.classes import LIBRARIES  # noqa: E402

from audit.conformance.cases import TRAINING_CASES  # noqa: E402


class Run(NamedTuple):
    """One session."""

    library: str
    bug: str
    seed: int
    whole: bool


def due(bug: str) -> str:
    return BUGS[bug].verdict if bug else "green"


def planned(given: argparse.Namespace) -> list[Run]:
    """Right libraries come first, seed by seed, then bugs of trainings: they take longest."""
    named = given.runs or [f"{library}:{bug}" for bug in (RIGHT, *BUGS) for library in LIBRARIES]
    runs = []
    for library, bug in (name.split(":") for name in named):
        if library not in LIBRARIES or bug not in (RIGHT, *BUGS):
            raise SystemExit(f"--runs {library}:{bug}: a library is one of {LIBRARIES}, a bug one of {[RIGHT, *BUGS]}.")
        own = "" if bug == RIGHT else bug
        seeds = range(given.seed, given.seed + (1 if own else given.repetitions))
        runs += [Run(library, own, seed, given.whole or not own) for seed in seeds]
    return sorted(
        runs, key=lambda run: (bool(run.bug), run.seed, run.bug and BUGS[run.bug].shows not in TRAINING_CASES)
    )


def perform(run: Run) -> dict[str, Any]:
    """In a process of its own or one that has run others, whose compiled programs it then finds."""
    from conformance.session import session

    fresh = "jax" not in sys.modules
    only = None if run.whole else BUGS[run.bug].shows
    return {**run._asdict(), "fresh": fresh, **session(run.library, run.bug, only=only, seed=run.seed)}


def read(files: Iterable[str]) -> dict[Run, dict[str, Any]]:
    """The last line of each session."""
    found = {}
    for file in files:
        for text in Path(file).read_text().splitlines():
            line = json.loads(text)
            found[Run(line["library"], line["bug"], line["seed"], line["whole"])] = line
    return found


def work(runs: list[Run], file: str | None, jobs: int) -> None:
    done = read([file]) if file and Path(file).exists() else {}
    left = [run for run in runs if run not in done]
    if jobs > 1:
        os.environ.update(ONE_CORE)
    began = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(perform, run) for run in left]
        for number, future in enumerate(concurrent.futures.as_completed(waiting), 1):
            line = future.result()
            if file:
                with open(file, "a") as out:
                    out.write(json.dumps(line) + "\n")
            tell(line, f"{number} of {len(left)} after {time.monotonic() - began:.0f} s")


def tell(line: dict[str, Any], place: str) -> None:
    wrong = "" if line["verdict"] == due(line["bug"]) else f"  <-- due: {due(line['bug'])} {line['errors']}"
    print(
        f"{line['library']:6} {line['bug'] or RIGHT:24} seed {line['seed']:2} {line['verdict']:26} "
        f"{line['cpu_seconds']:6.1f}s {line['leaks'] or line['differs']}{wrong}  ({place})",
        flush=True,
    )


def table(found: dict[Run, dict[str, Any]]) -> str:
    """One row a bug, one cell a library."""
    rows = ["| bug | " + " | ".join(LIBRARIES) + " |", "|---" * (1 + len(LIBRARIES)) + "|"]
    for bug in ["", *BUGS]:
        own = [[line for run, line in found.items() if run[:2] == (library, bug)] for library in LIBRARIES]
        cells = [cell(lines[-1], bug) if bug and lines else several(lines) for lines in own]
        rows.append(f"| {BUGS[bug].what if bug else 'none: right'} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def several(lines: list[dict[str, Any]]) -> str:
    if not lines:
        return "not run"
    green, most = sum(line["verdict"] == due("") for line in lines), max(line["cpu_seconds"] for line in lines)
    return f"green in {green} of {len(lines)} whole runs; at most {most} s"


def cell(line: dict[str, Any], bug: str) -> str:
    spoke = line["leaks"] or line["differs"]
    first, said = next(iter(spoke.items()), ("", ""))
    where = first.partition("[")[2].rstrip("]") or ("" if not first else "law")
    wrong = "" if line["verdict"] == due(bug) else " (wrong)"
    return (
        f"{line['verdict']}{wrong}" + (f": {where}, {said.rstrip('.')}" if spoke else "") + f"; {line['cpu_seconds']} s"
    )


def judged(found: dict[Run, dict[str, Any]]) -> str:
    """Counts of small p-values of right libraries, and one-sided binomial tests of 'not below uniform'."""
    from scipy.stats import binom

    rows = ["| library | runs | p-values | " + " | ".join(f"below {level}" for level in LEVELS) + " |"]
    rows.append("|---" * (3 + len(LEVELS)) + "|")
    for name in (*LIBRARIES, "all"):
        lines = [line for run, line in found.items() if not run.bug and name in (run.library, "all")]
        pooled = [p for line in lines for p in line["p_values"].values()]
        counts = [sum(p <= level for p in pooled) for level in LEVELS]
        chances = [binom.sf(count - 1, len(pooled), level) for count, level in zip(counts, LEVELS, strict=True)]
        means = [level * len(pooled) for level in LEVELS]
        cells = [
            f"{count} (uniform: {mean:.1f}; so many or more: {chance:.2g})"
            for count, mean, chance in zip(counts, means, chances, strict=True)
        ]
        rows.append(f"| {name} | {len(lines)} | {len(pooled)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", nargs="*", metavar="LIBRARY:BUG", help="(default: every library, right and bugs)")
    options.add_argument("--repetitions", type=int, default=1, help="seeds of a right library")
    options.add_argument("--whole", action="store_true", help="the whole run for every bug")
    options.add_argument("--seed", type=int, default=0, help="the first seed")
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--table", nargs="*", metavar="FILE")
    options.add_argument("--judge", nargs="*", metavar="FILE")
    given = options.parse_args()
    if given.table:
        print(table(read(given.table)))
    if given.judge:
        print(judged(read(given.judge)))
    if not given.table and not given.judge:
        work(planned(given), given.json, given.jobs)


if __name__ == "__main__":
    main()
