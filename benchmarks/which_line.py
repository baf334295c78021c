"""The table of docs/which-line-measured.md: every bug of the zoo and its right twin, replayed."""

from __future__ import annotations

import inspect
import sys
import time
from pathlib import Path

import jax

from audit.diagnosis.explain import Explanation, explain
from audit.diagnosis.explain.dispatch import promised
from mechanisms.contract import Mechanism

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from zoo.faults import Fault, zoo


def main() -> None:
    """Print the table."""
    print("| bug | found | line | seconds | right twin |\n|---|---|---|---:|---|")
    for fault in zoo():
        began = time.monotonic()
        told = replayed(fault.step, fault)
        seconds = time.monotonic() - began
        right = replayed(fault.right, fault)
        kind = told.findings[0].kind if told.findings else "nothing"
        twin = "silent" if not right.suspicions else right.suspicions[0].kind
        print(f"| `{fault.name}` | {kind} | {line_of(told, fault)} | {seconds:.1f} | {twin} |", flush=True)


def replayed(step: Mechanism, fault: Fault) -> Explanation:
    """One replay, with the noise multiplier of the claim."""
    return explain(step, fault.neighbours, key=jax.random.key(0), noise_multiplier=promised(fault.claim))


def line_of(told: Explanation, fault: Fault) -> str:
    """Whether one of the first finding's lines lies in the faulty function; simulators have no line of a user's."""
    if not told.suspicions:
        return ""
    function = getattr(fault.step, "given", None)
    if function is None:
        return "in the simulator"
    source, start = inspect.getsourcelines(function)
    inside = [line for path, line in told.suspicions[0].lines if start <= line < start + len(source)]
    return f"steps.py:{inside[0]}" if inside else "another function"


if __name__ == "__main__":
    main()
