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
LAW = "dense"
"""The pair for bugs that leak nothing: they show in the law, which has no pair."""
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


def main() -> None:
    """Print one row for every library and bug, and their counts."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", default=LIBRARIES, choices=LIBRARIES)
    given = options.parse_args()
    print("| library | bug | pair | found | lines | a line of the bug | seconds |\n|---|---|---|---|---|---|---:|")
    for library in given.only:
        path = Path(__file__).parents[1] / "tests" / "conformance" / f"{library}_library.py"
        text = path.read_text().splitlines()
        counts = dict.fromkeys(("bugs", "found", "at"), 0)
        for bug in ("", *(name for name in BUGS if any(f'"{name}"' in line for line in text))):
            cases = [BUGS[bug].shows if BUGS[bug].shows in CASES else LAW] if bug else [*CASES]
            for case in cases:
                told, seconds = replayed(library, bug, case)
                named = {number for number, line in enumerate(text, 1) if bug and f'"{bug}"' in line}
                near = {number + offset for number in named for offset in range(NEAR + 1)}
                kinds = ", ".join(dict.fromkeys(found.kind for found in told.findings)) or "nothing"
                lines = [line for found in told.suspicions for _, line in found.lines]
                at = "" if not lines else "yes" if near & set(lines) else "no"
                counts["bugs"] += bool(bug)
                counts["found"] += bool(bug and lines)
                counts["at"] += at == "yes"
                row = [library, bug or "right", case, kinds, ", ".join(map(str, lines[:4])), at, f"{seconds:.1f}"]
                print(f"| {' | '.join(row)} |", flush=True)
        print(f"\n{library}: {counts['found']} of {counts['bugs']} found, {counts['at']} at a line of the bug\n")


if __name__ == "__main__":
    main()
