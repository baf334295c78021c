"""One job, four auditors: scores N(1,1) against N(0,1), epsilon at delta 1e-5, 95%, with time and peak memory.

    python benchmarks/peer_scores.py [--per-side 10000000] [--python PEERS]

Each runs in a process of its own, the peers in that of the Python given (which has them: `peers.py`). Ours draws and
counts in a stream, its threshold fixed from theory; jax_privacy draws all scores and splits them; the two others are
told the threshold at which their own bound is largest in expectation. TF-Privacy knows no delta: its number is for
delta 0, where the truth is infinite. At delta 1e-5 the truth is 4.377.
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


def drawn(per_side: int):
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.normal(size=per_side), rng.normal(size=per_side) + 1


def best_threshold(bound, per_side: int) -> float:
    """Where ``bound(false_alarms, misses)`` is largest at the expected counts."""
    import numpy as np
    from scipy.special import ndtr

    candidates = np.linspace(1.0, 6.0, 51)
    return max(candidates, key=lambda t: bound(round(per_side * ndtr(-t)), round(per_side * ndtr(t - 1))))


def privacy_estimates(per_side: int) -> float:
    from privacy_estimates import AttackResults, compute_eps_lo

    def bound(false_alarms: int, misses: int) -> float:
        counts = AttackResults(FN=misses, FP=false_alarms, TN=per_side - false_alarms, TP=per_side - misses)
        return float(compute_eps_lo(counts, 1e-5, 0.05, "beta"))

    threshold = best_threshold(bound, per_side)
    without, with_record = drawn(per_side)
    return bound(int((without > threshold).sum()), int((with_record <= threshold).sum()))


def tf_privacy(per_side: int) -> float:
    import numpy as np
    from tensorflow_privacy.privacy.privacy_tests import epsilon_lower_bound as peer

    method = peer.BoundMethod.CLOPPER_PEARSON

    def bound(false_alarms: int, misses: int) -> float:
        ratio = peer.RatioBound(per_side - misses, false_alarms, per_side, per_side, 0.05).compute_bound(method)
        return float(np.log(max(ratio, 1e-300)))

    threshold = best_threshold(bound, per_side)
    without, with_record = drawn(per_side)
    found = peer.EpsilonLowerBound(with_record, without, 0.05, thresholds=np.array([threshold]))
    return float(found.compute_epsilon_lower_bound(method)[0])


JOBS = {
    "dpsgd-audit": ours,
    "jax_privacy": jax_privacy,
    "privacy-estimates": privacy_estimates,
    "TF-Privacy, delta 0": tf_privacy,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--per-side", type=int, default=10_000_000)
    parser.add_argument("--python", default=sys.executable, help="that has the peers")
    parser.add_argument("--job", choices=JOBS)
    arguments = parser.parse_args()
    if arguments.job:
        began, processor = time.perf_counter(), time.process_time()
        bound = JOBS[arguments.job](arguments.per_side)
        wall, cpu = time.perf_counter() - began, time.process_time() - processor
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {arguments.job} | {bound:.3f} | {wall:.1f} | {cpu:.1f} | {peak:,.0f} |")
        return
    print(f"{arguments.per_side:,} scores per side")
    print("| auditor | epsilon >= | seconds, imports included | CPU s | peak MiB |\n|---|---|---|---|---|")
    for job in JOBS:
        python = sys.executable if job == "dpsgd-audit" else arguments.python
        words = [python, __file__, "--job", job, "--per-side", str(arguments.per_side)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        why = done.stderr.strip().splitlines()[-1:] or ["failed"]
        print(done.stdout.strip() or f"| {job} | {why[0]} | | | |", flush=True)


if __name__ == "__main__":
    main()
