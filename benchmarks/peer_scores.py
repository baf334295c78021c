"""One job, two auditors: scores N(1,1) against N(0,1), epsilon at delta 1e-5, 95%, with time and peak memory.

    python benchmarks/peer_scores.py [--per-side 10000000]

Each runs in a process of its own. Ours draws and counts in a stream, its threshold fixed from theory; jax_privacy
(install it beside: pip install jax-privacy) draws all scores and splits them. The truth is 4.377.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time


def ours(per_side: int) -> float:
    import jax

    import audit
    import distinguishers
    import guarantees
    import mechanisms

    pair = mechanisms.scalar_pair()
    step = mechanisms.gaussian_mechanism(noise_multiplier=1.0)
    record = audit.run_audit(
        step,
        pair,
        distinguishers.likelihood_ratio(step, pair),
        claim=guarantees.gaussian(mu=1.0),
        trials=2 * per_side,
        risk=0.05,
        key=jax.random.key(0),
        target="epsilon",
    )
    return record.epsilon(delta=1e-5)


def jax_privacy(per_side: int) -> float:
    import numpy as np
    from jax_privacy import auditing

    rng = np.random.default_rng(0)
    auditor = auditing.CanaryScoreAuditor(rng.normal(size=per_side) + 1, rng.normal(size=per_side))
    split = auditing.Split(seed=0)
    return float(auditor.epsilon_clopper_pearson(0.05, 1e-5, threshold_strategy=split))


JOBS = {"dpsgd-audit": ours, "jax_privacy": jax_privacy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--per-side", type=int, default=10_000_000)
    parser.add_argument("--job", choices=JOBS)
    arguments = parser.parse_args()
    if arguments.job:
        began = time.perf_counter()
        bound = JOBS[arguments.job](arguments.per_side)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {arguments.job} | {bound:.3f} | {time.perf_counter() - began:.1f} | {peak:,.0f} |")
        return
    print(f"{arguments.per_side:,} scores a side")
    print("| auditor | epsilon >= | seconds, imports included | peak MiB |\n|---|---|---|---|")
    for job in JOBS:
        words = [sys.executable, __file__, "--job", job, "--per-side", str(arguments.per_side)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        why = done.stderr.strip().splitlines()[-1:] or ["failed"]
        print(done.stdout.strip() or f"| {job} | {why[0]} | | |", flush=True)


if __name__ == "__main__":
    main()
