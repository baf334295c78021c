"""One training, the same scores, every auditor: wrong bounds on nulls, medians on Gaussian canaries, seconds.

    python benchmarks/one_run_peers.py [--nulls 2000] [--canaries 1000] [--seeds 20] [--only ours] [--python PATH ...]

Peers are looked for in this Python, in `.venv/peers` (python benchmarks/peers.py) and in every --python given. opake
needs one with `pip install opake-auditing==0.16.1`, PrivacyGuard this one with `pip install --no-deps
privacyguard-platform==0.0.2`: its one-run analysis takes counts of guesses, here those that ours makes from the claim.

Nulls: coins answered by randomised response at epsilon 1; nothing shown at all; everything shown with probability .1
and nothing else, asked at delta .1, whose epsilon is 0. A bound above the truth is wrong, and .05 of them may be.
A method that is slow judges fewer runs, as many as fit into --budget CPU seconds for each kind.
'assumes' is what a method needs beyond fair coins: 'mu-GDP' means that its epsilon is proven of such trainings only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import peers

RISK, DELTA, SHOWN = 0.05, 1e-5, 0.1
NULLS = {"randomised response": 1.0, "nothing shown": 0.0, "all shown, .1 of the time": 0.0}
METHODS = {
    "ours, inside out (default)": ("audit", "nothing"),
    "ours, labelled, k from the claim": ("audit", "mu-GDP"),
    "jax_privacy one-run, Bonferroni": ("jax_privacy", "nothing"),
    "jax_privacy one-run, Split": ("jax_privacy", "nothing"),
    "jax_privacy one-run f-DP, Split": ("jax_privacy", "mu-GDP"),
    "PrivacyGuard one-run f-DP, k from the claim": ("privacy_guard", "mu-GDP"),
    "opake eps_delta, threshold .5": ("opake", "nothing"),
    "opake eps_delta, its own threshold": ("opake", "nothing"),
    "opake gdp, its own threshold": ("opake", "mu-GDP"),
}
"""The module and the assumption of each."""


def bound(method: str, scores: np.ndarray, coins: np.ndarray, delta: float) -> float:
    """Epsilon at ``delta`` by one method. Imports here: each Python has only some of the modules."""
    if METHODS[method][0] == "audit":
        import audit
        import guarantees

        if METHODS[method][1] == "nothing":
            return audit.one_run(scores, coins, risk=RISK, delta=delta).epsilon(delta)
        found = of_claim(scores, coins).mu
        return float(guarantees.gaussian(mu=found).epsilon(delta)) if found else 0.0
    if METHODS[method][0] == "privacy_guard":
        from privacy_guard.analysis.mia.fdp_analysis_node import FDPAnalysisNode

        (own,) = of_claim(scores, coins).guesses
        counts = len(scores), own.right_in + own.right_out, own.guessed_in + own.guessed_out
        node = FDPAnalysisNode(*counts, threshold=RISK, delta=delta)
        return float(node.run_analysis_with_parameters(*counts).eps)
    if METHODS[method][0] == "jax_privacy":
        from jax_privacy import auditing

        auditor = auditing.CanaryScoreAuditor(scores[coins], scores[~coins])
        strategy = auditing.Split(seed=0) if method.endswith("Split") else auditing.Bonferroni()
        proven = auditor.epsilon_one_run_fdp if "f-DP" in method else auditor.epsilon_one_run
        return float(proven(RISK, delta, threshold_strategy=strategy))
    from opake import auditing
    from opake.api.auditing.types import CoinFlip

    places = np.arange(len(scores))
    flip = CoinFlip(
        num_canaries=len(scores),
        canary_indices=places,
        _in_mask=coins,
        in_indices=places[coins],
        out_indices=places[~coins],
    )
    found = auditing.one_run(auditing.canary_scores(scores, canary_indices=places), coin_flip=flip)
    way = found.gdp() if "gdp" in method else found.eps_delta()
    threshold = 0.5 if method.endswith(".5") else None
    return float(way.epsilon_at(delta=delta, significance=RISK, threshold=threshold))


def of_claim(scores: np.ndarray, coins: np.ndarray) -> Any:
    """One number of guesses, from what these Gaussian canaries keep, and fixed whatever the scores are."""
    import audit
    import guarantees
    from audit.one_run.procedure import guesses_of_claim

    pair = guesses_of_claim(guarantees.gaussian(mu=1.0), len(scores), delta=DELTA, risk=RISK)
    return audit.one_run(scores, coins, risk=RISK, guesses=[pair])


def null(kind: str, rng: np.random.Generator, coins: np.ndarray) -> np.ndarray:
    """Scores of a training that keeps the truth of its kind."""
    height = rng.random(len(coins))
    if kind == "randomised response":
        told = coins ^ (rng.random(len(coins)) > np.e / (1 + np.e))
        return told * (0.5 + height / 2) + ~told * (height / 2)
    shows = kind != "nothing shown" and rng.random() < SHOWN
    return 0.9 * coins + 0.05 * height if shows else height


def work(folder: Path, method: str, budget: float) -> None:
    """Bounds and seconds of all runs, in the Python that has the method's module."""
    data = np.load(folder / "runs.npz")
    answers: dict[str, list[list[float]]] = {}
    for name in data.files:
        kind, part = name.rsplit("/", 1)
        if part == "coins":
            delta = SHOWN if kind.startswith("all shown") else DELTA
            begun = time.process_time()
            for coins, scores in zip(data[name], data[f"{kind}/scores"], strict=True):
                start = time.process_time()
                if start - begun > budget:
                    break
                proven = bound(method, scores, coins, delta)
                answers.setdefault(kind, []).append([proven, time.process_time() - start])
    (folder / "answers.json").write_text(json.dumps(answers))


def runs(options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Coins and scores of everything that is judged."""
    found: dict[str, np.ndarray] = {}
    kinds = [*NULLS, "gaussian"]
    for kind in kinds:
        number = options.seeds if kind == "gaussian" else options.nulls
        drawn = []
        for seed in range(number):
            rng = np.random.default_rng((kinds.index(kind), seed))
            coins = rng.random(options.gaussian if kind == "gaussian" else options.canaries) < 0.5
            drawn.append((coins, coins + rng.normal(size=len(coins)) if kind == "gaussian" else null(kind, rng, coins)))
        found[f"{kind}/coins"] = np.stack([coins for coins, _ in drawn])
        found[f"{kind}/scores"] = np.stack([scores for _, scores in drawn])
    return found


def python_with(module: str, given: list[str]) -> str | None:
    """The first Python that can import a module."""
    for python in [sys.executable, str(peers.PYTHON), *given]:
        words = [python, "-c", f"import {module}"]
        if Path(python).exists() and subprocess.run(words, check=False, capture_output=True).returncode == 0:
            return python
    return None


def row(method: str, folder: Path, options: argparse.Namespace) -> str:
    """One line of the table."""
    module, assumes = METHODS[method]
    python = python_with(module, options.python)
    if python is None:
        return f"| {method} | {assumes} | not installed |"
    subprocess.run([python, __file__, "--budget", str(options.budget), "--work", str(folder), method], check=True)
    answers = json.loads((folder / "answers.json").read_text())
    cells = [f"{sum(proven > NULLS[kind] for proven, _ in answers[kind])} of {len(answers[kind])}" for kind in NULLS]
    median = np.median([proven for proven, _ in answers["gaussian"]])
    seconds = np.median([spent for _, spent in answers["gaussian"]])
    return f"| {method} | {assumes} | " + " | ".join(cells) + f" | {median:.2f} | {seconds:.2f} |"


def main() -> None:
    """Print a row for each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nulls", type=int, default=2000)
    parser.add_argument("--only", default="", help="methods whose name begins so")
    parser.add_argument("--canaries", type=int, default=1000, help="of a null run")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--gaussian", type=int, default=1000, help="canaries of a run with Gaussian scores, mu 1")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(Path(options.work[0]), options.work[1], options.budget)
        return
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "runs.npz", **runs(options))
        print("| method | assumes | " + " | ".join(f"wrong, {kind}" for kind in NULLS) + " | median, mu 1 | CPU s |")
        print("|---|---|" + "---|" * (len(NULLS) + 2))
        for method in filter(lambda name: name.startswith(options.only), METHODS):
            print(row(method, Path(folder), options), flush=True)


if __name__ == "__main__":
    main()
