"""Which line, for PyTorch: every known fault and every right step, replayed; a table of what was found where.

python benchmarks/which_line_torch.py
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "audit" / "diagnosis")]

import torch_steps  # noqa: E402
import torch_unseen  # noqa: E402
from conformance import bugs, torch_library  # noqa: E402

from audit.diagnosis.explain import Explanation, explain  # noqa: E402
from mechanisms import callable_step  # noqa: E402

KEY = jax.random.key(3)
CLIP, NOISE, RATE, RECORDS, STEPS = 2.0, 1.2, 0.5, 12, 3
OF_TRAININGS = {
    "reseeded_every_step",
    "same_batch_every_step",
    "shuffled",
    "last_step_dropped",
    "noise_on_last_step",
    "noise_negated",
    "momentum_before_noise",
}
NEAR = 3
"""Lines of the library below the one with the bug's name that belong to it."""


def regression(records: int) -> tuple[torch.Tensor, ...]:
    """The data of the steps: the last record is long."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, torch_steps.COLUMNS)).astype("f4"), rng.normal(size=9).astype("f4")
    x[-1], y[-1] = 6 * x[-1], -20
    return torch.tensor(x[:records]), torch.tensor(y[:records])


def gradients(records: int, step: int = 0) -> dict[str, torch.Tensor]:
    """The data of the library: the last record is long, all others are shorter than the bound."""
    rng = np.random.default_rng(1 + step)
    found = {"weight": rng.normal(size=(RECORDS, 4, 6)), "bias": rng.normal(size=(RECORDS, 6))}
    sizes = np.append(np.full(RECORDS - 1, 0.15), 3.0)
    scaled = {name: rows * sizes.reshape(-1, *[1] * (rows.ndim - 1)) for name, rows in found.items()}
    return {name: torch.tensor(rows[:records].astype("f4")) for name, rows in scaled.items()}


def asked(function: Any, without: Any, with_record: Any, multiplier: float) -> tuple[Explanation, float]:
    """The explanation, and the processor's seconds that it took."""
    sides: Any = types.SimpleNamespace(without=without, with_record=with_record, relation="add_remove")
    start = time.process_time()
    told = explain(callable_step(function), sides, key=KEY, noise_multiplier=multiplier)
    return told, time.process_time() - start


def steps() -> Iterator[tuple[str, str, Explanation, set[int], float]]:
    """Steps and trainings of tests/audit/diagnosis; their faults say where they are."""
    for group, module in (("written before", torch_steps), ("unseen", torch_unseen)):
        for function in (*module.WRONG, *module.RIGHT):
            source, first = inspect.getsourcelines(function)
            lines = {first + number for number, text in enumerate(source) if "  # " in text}
            told, seconds = asked(function, regression(8), regression(9), module.NOISE)
            yield group, function.__name__, told, lines, seconds


def library() -> Iterator[tuple[str, str, Explanation, set[int], float]]:
    """The switches of conformance's library in PyTorch."""
    text = Path(str(torch_library.__file__)).read_text().splitlines()
    for bug in ("", *(name for name in bugs.BUGS if any(f'"{name}"' in line for line in text))):
        named = [number for number, line in enumerate(text, 1) if bug and f'"{bug}"' in line]
        near = {number + offset for number in named for offset in range(NEAR + 1)}
        several = bug in OF_TRAININGS
        function = functools.partial(
            torch_library.training if several else torch_library.step,
            rate=RATE,
            clip=CLIP,
            noise_multiplier=NOISE,
            bug=bug,
        )
        sides = [
            [gradients(n, step) for step in range(STEPS)] if several else gradients(n) for n in (RECORDS - 1, RECORDS)
        ]
        told, seconds = asked(function, *sides, NOISE)
        yield "conformance", bug or "right_library", told, near, seconds


def main() -> None:
    """Print the table."""
    print("| list | step | found | lines | at the fault | CPU seconds |\n|---|---|---|---|---|---|")
    for group, name, told, right, seconds in (*steps(), *library()):
        kinds = ", ".join(dict.fromkeys(found.kind for found in told.findings)) or "nothing"
        lines = [line for found in told.suspicions for _, line in found.lines]
        at = "" if not lines else "yes" if right & set(lines) else "no"
        print(f"| {group} | {name} | {kinds} | {', '.join(map(str, lines[:4]))} | {at} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
