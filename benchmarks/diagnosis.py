"""What the diagnosis says of every known bug: right, wrong, or nothing.

python benchmarks/diagnosis.py [--trials 1000] [--library numpy|torch|jax] [--lists zoo conformance unseen] [--only ...]

Each bug is drawn on the pair where it shows best, with the settings that its users stated; the answers share a risk
of 1%. Right: everything that reports would show is true. The last ten bugs were written, and committed, before their
author had read a rule.
"""

from __future__ import annotations

import argparse
import collections
import functools
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "audit" / "diagnosis")]

import unseen_bugs  # noqa: E402
from truths import CONFORMANCE, ZOO, judged, said  # noqa: E402
from zoo import steps as faulty_steps  # noqa: E402
from zoo.faults import Fault, zoo  # noqa: E402

from audit.diagnosis import diagnose_mechanism  # noqa: E402
from audit.record.diagnosis_answer import Diagnosis, not_asked  # noqa: E402

Case = tuple[str, tuple[str, ...], Any, Any, dict[str, float]]
"""Name, truths, mechanism, pair, and what was stated."""


def zoo_cases(_: str) -> Iterator[Case]:
    for fault in zoo():
        yield fault.name, ZOO[fault.name], fault.step, fault.neighbours, _stated(fault)


def _stated(fault: Fault) -> dict[str, float]:
    """What the users of a bug of the zoo believed."""
    told = fault.claim.parameters
    clip = faulty_steps.WIDE_CLIP if fault.name == "noise_without_clip" else faulty_steps.CLIP
    noise = told.get("noise_multiplier", faulty_steps.NOISE)
    return {"clip": clip, "noise_multiplier": noise, "rate": told.get("rate", 1.0)}


def conformance_cases(library: str) -> Iterator[Case]:
    from conformance.bugs import BUGS
    from conformance.classes import TENSORS

    from audit.conformance import STEP_CASES, TRAINING_CASES
    from audit.conformance.library import Form, LibraryStep

    code = importlib.import_module(f"conformance.{library}_library")
    sizes = (24, 6)
    for name, truths in CONFORMANCE.items():
        case = {**STEP_CASES, **TRAINING_CASES}[BUGS[name].shows]
        steps, settings = (None if case.steps == 1 else case.steps), case.settings()
        own = code.step if steps is None else code.training
        step = functools.partial(own, **settings, bug=name)
        form = Form(tensors=TENSORS, dimension=sum(sizes), steps=steps)
        mechanism = LibraryStep(step=step, form=form, library=library, settings=settings)
        yield name, truths, mechanism, case.neighbours(sizes, "add_remove"), settings


def unseen_cases(_: str) -> Iterator[Case]:
    settings = {"clip": unseen_bugs.CLIP, "noise_multiplier": unseen_bugs.NOISE, "rate": unseen_bugs.RATE}
    for name, bug in unseen_bugs.UNSEEN.items():
        yield name, bug.truths, unseen_bugs.mechanism(name), unseen_bugs.pair(), settings


LISTS = {
    "the zoo": zoo_cases,
    "a conformance library": conformance_cases,
    "ten bugs of an author who had not read the rules": unseen_cases,
}


def row(name: str, result: str, answers: tuple[Diagnosis, ...]) -> str:
    says = " / ".join(answer.says for answer in said(answers)) or "nothing"
    return f"| {name} | {result} | {says} |"


def asked(step: Any, pair: Any, stated: dict[str, float], *, trials: int, key: jax.Array) -> tuple[Diagnosis, ...]:
    """The answers, or as in a record why there are none."""
    try:
        return diagnose_mechanism(step, pair, **stated, trials=trials, key=key)
    except ValueError as error:
        return (not_asked(str(error)),)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--trials", type=int, default=1000)
    options.add_argument("--seed", type=int, default=2026)
    options.add_argument("--library", choices=("numpy", "torch", "jax"), default="numpy")
    options.add_argument("--lists", nargs="*", choices=("zoo", "conformance", "unseen"))
    options.add_argument("--only", nargs="*")
    given = options.parse_args()
    for place, (title, cases) in enumerate(LISTS.items()):
        if given.lists and cases.__name__.removesuffix("_cases") not in given.lists:
            continue
        counted: collections.Counter[str] = collections.Counter()
        print(f"\n### {title[0].upper()}{title[1:]}\n\n| bug | judged | said |\n|---|---|---|")
        for index, (name, truths, step, pair, stated) in enumerate(cases(given.library)):
            if given.only and name not in given.only:
                continue
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(given.seed), place), index)
            answers = asked(step, pair, stated, trials=given.trials, key=key)
            result = judged(answers, truths, unseen=cases is unseen_cases)
            counted[result] += 1
            print(row(name, result, answers), flush=True)
        total = counted.total()
        print(f"\nRight {counted['right']} of {total}, nothing said {counted['nothing']}, wrong {counted['wrong']}.")


if __name__ == "__main__":
    main()
