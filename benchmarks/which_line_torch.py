"""Which line, for PyTorch: every fault and every right step of the tests, replayed; a table of what was found where.

Conformance's library has a script of its own (which_line_conformance.py).

python benchmarks/which_line_torch.py
"""

from __future__ import annotations

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

from audit.diagnosis.explain import Explanation, explain  # noqa: E402
from mechanisms import callable_step  # noqa: E402

KEY = jax.random.key(3)


def regression(records: int) -> tuple[torch.Tensor, ...]:
    """The data of the steps: the last record is long."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, torch_steps.COLUMNS)).astype("f4"), rng.normal(size=9).astype("f4")
    x[-1], y[-1] = 6 * x[-1], -20
    return torch.tensor(x[:records]), torch.tensor(y[:records])


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


def main() -> None:
    """Print the table."""
    print("| list | step | found | lines | at the fault | CPU seconds |\n|---|---|---|---|---|---|")
    for group, name, told, right, seconds in steps():
        kinds = ", ".join(dict.fromkeys(found.kind for found in told.findings)) or "nothing"
        lines = [line for found in told.suspicions for _, line in found.lines]
        at = "" if not lines else "yes" if right & set(lines) else "no"
        print(f"| {group} | {name} | {kinds} | {', '.join(map(str, lines[:4]))} | {at} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
