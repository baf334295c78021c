"""A billion trials per side in the memory of a million: N(1,1) against N(0,1), epsilon at delta 1e-5, 95%.

    python benchmarks/billion.py [--per-side 1000000 1000000000] [--seed 0]

Each number of trials runs in a process of its own: a whole audit, threshold from theory, counts alone kept. The truth
is 4.377. 'Device' is the most that JAX had allocated there ('-' where the device does not tell, as a CPU). Runs from a
checkout too, with nothing of this project installed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

DELTA = 1e-5
GOAL = 4.25
MEBI = 2**20


def audited(per_side: int, seed: int) -> dict[str, float | str | None]:
    """One audit and what it took; the rate is that of the whole audit, compilation included."""
    began = time.perf_counter()
    import jax

    import audit
    import distinguishers
    import guarantees
    import mechanisms

    pair = mechanisms.scalar_pair()
    step = mechanisms.gaussian_mechanism(noise_multiplier=1.0)
    ratio = distinguishers.likelihood_ratio(step, pair)
    claim = guarantees.gaussian(mu=1.0)
    imported = time.perf_counter()
    record = audit.run_audit(
        step, pair, ratio, claim=claim, trials=2 * per_side, risk=0.05, key=jax.random.key(seed), target="epsilon"
    )
    device = jax.devices()[0]
    allocated = (device.memory_stats() or {}).get("peak_bytes_in_use")
    counted = [sum(side) for side in (record.grids[0].without, record.grids[0].with_record)]
    assert counted == [per_side, per_side], counted
    return {
        "per_side": per_side,
        "epsilon": record.epsilon(delta=DELTA),
        "truth": claim.epsilon(DELTA),
        "verdict": record.verdict,
        "seconds": time.perf_counter() - imported,
        "with_imports": time.perf_counter() - began,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "peak_device_mib": None if allocated is None else allocated / MEBI,
        "device": f"{device.platform}: {device.device_kind}, jax {jax.__version__}",
    }


def row(found: dict[str, float | str | None]) -> str:
    device = found["peak_device_mib"]
    told = "-" if device is None else f"{device:,.1f}"
    return (
        f"| {found['per_side']:,} | {found['epsilon']:.4f} | {found['truth']:.4f} | {found['verdict']} "
        f"| {found['seconds']:.1f} | {found['with_imports']:.1f} | {found['peak_rss_mib']:,.0f} | {told} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--per-side", type=int, nargs="+", default=[10**6, 10**9])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="also write everything that was measured")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        print(json.dumps(audited(arguments.per_side[0], arguments.seed)))
        return 0
    print("| trials per side | epsilon >= | truth | verdict | seconds | with imports | peak RSS, MiB | device, MiB |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    found = []
    for per_side in arguments.per_side:
        words = [sys.executable, __file__, "--alone", "--per-side", str(per_side), "--seed", str(arguments.seed)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        print(row(found[-1]), flush=True)
    print(f"\n{found[-1]['device']}; seed {arguments.seed}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1))
    last = found[-1]
    if last["per_side"] >= 10**9:
        reached = "reached" if last["epsilon"] >= GOAL else "missed"
        print(f"goal {GOAL} at 1e9 per side: {reached} ({last['epsilon']:.4f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
