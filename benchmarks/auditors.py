"""Auditors, audited: how often the default call of each says more than the truth, at risk .05.

    python benchmarks/auditors.py [--runs 1000] [--per-side 1000] [--only TOOL] [--python PATH ...] [--json FILE]

Two mechanisms whose epsilon is known: scores that do not depend on the record (epsilon 0), and the Laplace mechanism of
epsilon 1 scored by its output. Each tool draws the same scores, run by run, in a process of its own, in the first
Python that has it: this one, that of `peers.py`, which installs peers, or one that is given. Two peers bring PyTorch
and need one that is given: `pip install opake-auditing==0.16.1`, `pip install privacyguard-platform==0.0.2`. One-run
auditors get as many canaries as a side has scores, each in by a fair coin. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RISK = 0.05
TRUTHS = {"no record in the scores": 0.0, "Laplace, epsilon 1": 1.0}


def scores(mechanism: str, per_side: int, run: int) -> tuple[np.ndarray, np.ndarray]:
    """Without the record and with it."""
    rng = np.random.default_rng([run, list(TRUTHS).index(mechanism)])
    shift = TRUTHS[mechanism]
    return rng.laplace(size=per_side), rng.laplace(size=per_side) + shift


def ours(without: np.ndarray, with_record: np.ndarray, run: int) -> float:
    import audit

    return audit.from_scores(without, with_record, risk=RISK, seed=run).epsilon(1e-5)


def jax_privacy_counts(without: np.ndarray, with_record: np.ndarray, run: int) -> float:
    from jax_privacy import auditing

    return float(auditing.CanaryScoreAuditor(with_record, without).epsilon_clopper_pearson(RISK))


def jax_privacy_gdp(without: np.ndarray, with_record: np.ndarray, run: int) -> float:
    from jax_privacy import auditing

    return float(auditing.CanaryScoreAuditor(with_record, without).epsilon_from_gdp(RISK, 1e-5))


def jax_privacy_raw(without: np.ndarray, with_record: np.ndarray, run: int) -> float:
    from jax_privacy import auditing

    return float(auditing.CanaryScoreAuditor(with_record, without).epsilon_raw_counts())


def privacy_estimates(without: np.ndarray, with_record: np.ndarray, run: int) -> float:
    from privacy_estimates import AttackResults, compute_eps_lo

    # it has no default threshold: one half, fixed before the scores are drawn
    misses, false_alarms = int((with_record <= 0.5).sum()), int((without > 0.5).sum())
    counts = AttackResults(FN=misses, FP=false_alarms, TN=len(without) - false_alarms, TP=len(with_record) - misses)
    return float(compute_eps_lo(counts, 0.0, RISK, "beta"))


def tf_privacy(without: np.ndarray, with_record: np.ndarray, run: int) -> float:
    from tensorflow_privacy.privacy.privacy_tests import epsilon_lower_bound as peer

    found = peer.EpsilonLowerBound(with_record, without, RISK)
    return float(found.compute_epsilon_lower_bound(peer.BoundMethod.CLOPPER_PEARSON, k=1)[0])


def opake(without: np.ndarray, with_record: np.ndarray, run: int) -> float:
    import one_run_peers

    coins = np.random.default_rng([run, 2]).random(len(without)) < 0.5
    scores = np.where(coins, with_record, without)
    # the threshold is its own, and delta 0, its default
    return one_run_peers.bound("opake eps_delta, its own threshold", scores, coins, 0.0)


def privacy_guard(without: np.ndarray, with_record: np.ndarray, run: int) -> float:
    import torch
    from privacy_guard.analysis.mia.mia_results import MIAResults

    found = MIAResults(torch.from_numpy(with_record), torch.from_numpy(without))
    return float(found.compute_acc_auc_ci_epsilon(1e-5)[2])


Call = Callable[[np.ndarray, np.ndarray, int], float]
TOOLS: dict[str, tuple[Call, str, str]] = {
    "dpsgd-audit": (ours, "`audit.from_scores(..., risk=.05)`, epsilon at delta 1e-5", "a lower bound at the risk"),
    "jax_privacy counts": (
        jax_privacy_counts,
        "jax_privacy 2.0.0 `epsilon_clopper_pearson(.05)`",
        "a lower bound, 'allowed probability of failure'",
    ),
    "jax_privacy gdp": (
        jax_privacy_gdp,
        "jax_privacy 2.0.0 `epsilon_from_gdp(.05, 1e-5)`",
        "'the estimated epsilon', with an 'allowed probability of failure'",
    ),
    "jax_privacy raw": (jax_privacy_raw, "jax_privacy 2.0.0 `epsilon_raw_counts()`", "an estimate"),
    "privacy-estimates": (
        privacy_estimates,
        "privacy-estimates 0.1.0 `compute_eps_lo(counts, 0, .05, 'beta')`, a fixed threshold",
        "a lower bound 'with confidence 100*(1 - alpha)%'",
    ),
    "tf-privacy": (
        tf_privacy,
        "tensorflow-empirical-privacy 0.1.0 `EpsilonLowerBound(..., .05)`, k=1",
        "'a statistical epsilon lower bound' for each of all thresholds; the largest is returned",
    ),
    "opake": (
        opake,
        "opake-auditing 0.16.1 `one_run(...).eps_delta().epsilon_at()`",
        "'epsilon lower bound at the given (delta, significance)'",
    ),
    "privacy-guard": (
        privacy_guard,
        "privacyguard-platform 0.0.2 `MIAResults(...).compute_acc_auc_ci_epsilon(1e-5)`",
        "'empirical epsilon computed using the Clopper-Pearson CI method'",
    ),
}
"""What is called, and what it promises, in its own words where they are quoted."""
MODULES = {
    "dpsgd-audit": "audit",
    "jax_privacy counts": "jax_privacy",
    "jax_privacy gdp": "jax_privacy",
    "jax_privacy raw": "jax_privacy",
    "privacy-estimates": "privacy_estimates",
    "tf-privacy": "tensorflow_privacy.privacy.privacy_tests",
    "opake": "opake.auditing",
    "privacy-guard": "privacy_guard",
}
"""What a Python must be able to import."""


def measured(tool: str, runs: int, per_side: int) -> dict[str, list[float]]:
    """What a tool says in each run."""
    call = TOOLS[tool][0]
    return {name: [call(*scores(name, per_side, run), run) for run in range(runs)] for name in TRUTHS}


def row(tool: str, found: dict[str, list[float]]) -> list[str]:
    """How often it is above the truth, and its median."""
    _, called, promise = TOOLS[tool]
    cells = [called, promise]
    for name, truth in TRUTHS.items():
        said = np.array(found[name])
        # what an accountant would round away is no error
        above = float(np.mean(said > truth + 1e-6))
        cells += [f"{100 * above:.1f}%", f"{statistics.median(said):.3f}"]
    return cells


def main() -> None:
    """All tools, or one of them for the process that asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--per-side", type=int, default=1000)
    parser.add_argument("--only", default="", help="tools whose name begins so")
    parser.add_argument("--python", action="append", default=[], help="that has peers")
    parser.add_argument("--tool", choices=list(TOOLS))
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    if arguments.tool:
        print(json.dumps(measured(arguments.tool, arguments.runs, arguments.per_side)))
        return
    found: dict[str, Any] = {}
    for tool in filter(lambda name: name.startswith(arguments.only), TOOLS):
        found[tool] = asked(tool, arguments)
    heads = ["default call", "what it promises"]
    heads += [f"{name}: {what}" for name in TRUTHS for what in ("above the truth", "median")]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for tool, said in found.items():
        cells = row(tool, said) if isinstance(said, dict) else [TOOLS[tool][1], f"not run: {said}", *["–"] * 4]
        print(f"| {' | '.join(cells)} |")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found))


def asked(tool: str, arguments: argparse.Namespace) -> dict[str, list[float]] | str:
    """What a tool says in a process of its own, or why it does not."""
    import one_run_peers

    python = one_run_peers.python_with(MODULES[tool], arguments.python)
    if python is None:
        return "no Python here has it"
    words = ["--tool", tool, "--runs", str(arguments.runs), "--per-side", str(arguments.per_side)]
    done = subprocess.run([python, __file__, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
