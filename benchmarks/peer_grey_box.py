"""dp-recorder's own way into the zoo: two runs of each mechanism, its noise call instrumented, no statistics.

    python benchmarks/peer_grey_box.py --checkout PATH [--repetitions 3]

Records the run without the record and replays it with the record and the same noise. It objects where what the noise
is added to moves by more than the sensitivity that the noise was made for (its deviation over the promised noise
multiplier), where the noise itself changes, or where there is none. Bugs that draw noise without the instrumented call
are not asked. Prints lines like those of `peer_verdicts.py`; runs in the peers' Python, with this project on its path.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from pathlib import Path

import jax
from peer_verdicts import Absent

from mechanisms.contract import Mechanism, Step
from mechanisms.pairs.neighbours import materialise
from mechanisms.randomness.noise import normal

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from zoo import steps as faulty_steps
from zoo.faults import Fault, zoo

SLACK = 1 + 1e-6
"""Sums are float32, and its own tolerance is 1e-9."""


def instrumented(fault: Fault) -> bool:
    """Whether all of its noise comes from the call that is instrumented."""
    step = fault.step
    source = inspect.getsource(step.given) if isinstance(step, Step) else "normal("
    return "normal(" not in source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=3, help="of every right twin")
    parser.add_argument("--only", nargs="*", help="bugs")
    arguments = parser.parse_args()
    began = time.process_time()
    sys.path.insert(0, str(arguments.checkout / "src"))
    sys.meta_path.append(Absent(("matplotlib", "seaborn", "graphviz", "pandas")))
    from dp_recorder.auditing.audit_primitives import Auditor, audit_spec
    from dp_recorder.auditing.metrics import dist_l2

    @audit_spec(kind="gaussian", input_arg="total", sensitivity_arg="sensitivity", metric_fn=dist_l2)
    def primitive(total: jax.Array, sensitivity: float, key: jax.Array, deviation: float) -> jax.Array:
        return total + deviation * normal(key, total.shape)

    def accused(step: Mechanism, fault: Fault, key: jax.Array) -> bool:
        promised = fault.claim.parameters
        noise = promised["noise_multiplier"] if "rate" in promised else 1 / promised["mu"]

        def noisy(key: jax.Array, total: jax.Array, deviation: float = faulty_steps.NOISE * faulty_steps.CLIP):
            return primitive(total, float(deviation) / noise * SLACK, key, float(deviation))

        faulty_steps.noisy = noisy
        auditor = Auditor()
        try:
            with auditor:
                step(key, materialise(fault.neighbours.without))
            auditor.set_replay()
            with auditor:
                step(key, materialise(fault.neighbours.with_record))
            auditor.validate_records()
        except (AssertionError, ValueError, RuntimeError):
            return True
        return False

    print(f"imports {time.process_time() - began:.2f}", flush=True)
    for fault in zoo():
        if not instrumented(fault) or (arguments.only and fault.name not in arguments.only):
            continue
        for twin, step, runs in (("wrong", fault.step, 1), ("right", fault.right, arguments.repetitions)):
            for seed in range(runs):
                began = time.process_time()
                said = accused(step, fault, jax.random.key(seed))
                print(f"{fault.name}.{twin}.{seed} {int(said)} {time.process_time() - began:.4f}", flush=True)


if __name__ == "__main__":
    main()
