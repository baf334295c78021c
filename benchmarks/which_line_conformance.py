"""Which line, for conformance's three libraries: every bug, replayed on the pair where it shows.

python benchmarks/which_line_conformance.py [--only jax torch]
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import jax

from audit.conformance.cases import STEP_CASES, TRAINING_CASES
from audit.diagnosis.explain import Explanation, explain

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from conformance.bugs import BUGS
from conformance.classes import LIBRARIES, TENSORS, conformance_class

CASES = {**STEP_CASES, **TRAINING_CASES}
LAW = {"a_step_is": "dense", "a_training_is": "equal_steps"}
"""Pairs for bugs that leak nothing: they show in the law, which has no pair."""
NEAR = 3
"""Lines of a library below the one with the bug's name that belong to it."""
SIZES = tuple(map(math.prod, TENSORS.values()))


def replayed(library: str, bug: str, case: str) -> tuple[Explanation, float]:
    """What a replay says, and the seconds of processor time that it took."""
    stated = CASES[case]
    step = conformance_class(library, bug)()._mechanism(stated.settings(), None if stated.steps == 1 else stated.steps)
    pair = stated.neighbours(SIZES, "add_remove")
    began = time.process_time()
    told = explain(step, pair, key=jax.random.key(0), clip=stated.clip, noise_multiplier=stated.noise_multiplier)
    return told, time.process_time() - began


def cell(library: str, bug: str, case: str) -> tuple[str, str, float]:
    """What was found, at which lines (those of the bug in bold), and the seconds."""
    path = Path(__file__).parents[1] / "tests" / "conformance" / f"{library}_library.py"
    named = {number for number, line in enumerate(path.read_text().splitlines(), 1) if bug and f'"{bug}"' in line}
    near = {number + offset for number in named for offset in range(NEAR + 1)}
    told, seconds = replayed(library, bug, case)
    kinds = ", ".join(dict.fromkeys(found.kind for found in told.findings)) or "nothing"
    lines = [line for found in told.suspicions for _, line in found.lines]
    return kinds, ", ".join(f"**{line}**" if line in near else str(line) for line in lines), seconds


def main() -> None:
    """Print one row for every bug, the right library on every pair last, and the counts."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", default=LIBRARIES, choices=LIBRARIES)
    libraries = options.parse_args().only
    heads = " | ".join(f"{library} | lines | seconds" for library in libraries)
    print(f"| bug | pair | {heads} |\n|---|---|{'---|---|---:|' * len(libraries)}")
    found = dict.fromkeys(libraries, 0)
    placed = dict.fromkeys(libraries, 0)
    shown = {bug: LAW.get(told.shows, told.shows) for bug, told in BUGS.items()}
    for bug, case in (*shown.items(), *(("", case) for case in CASES)):
        row = [f"`{bug}`" if bug else "none: right", case]
        for library in libraries:
            kinds, lines, seconds = cell(library, bug, case)
            row += [kinds, lines, f"{seconds:.1f}"]
            found[library] += bool(bug and lines)
            placed[library] += "**" in lines
        print(f"| {' | '.join(row)} |", flush=True)
    for library in libraries:
        print(f"\n{library}: {found[library]} of {len(BUGS)} found, {placed[library]} at a line of the bug")


if __name__ == "__main__":
    main()
