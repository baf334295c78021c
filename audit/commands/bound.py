"""dpsgd-audit bound: scores from anywhere, valid bounds out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from audit.record import plain
from audit.suite import EXIT_EXPECTED, EXIT_INCONCLUSIVE, EXIT_UNEXPECTED
from audit.table import told

EXITS = {"violation": EXIT_UNEXPECTED, "no_violation_found": EXIT_EXPECTED, "inconclusive": EXIT_INCONCLUSIVE}


def execute(arguments: argparse.Namespace) -> int:
    """Read two score files, print bounds and what the user must vouch for."""
    from audit.claim_words import claim_from_words
    from audit.scores import from_scores

    found = from_scores(
        _load(arguments.without),
        _load(arguments.with_record),
        risk=1 - arguments.confidence,
        thresholds=tuple(arguments.threshold or ()),
        claim=None if arguments.claim is None else claim_from_words(arguments.claim),
        delta=arguments.delta,
    )
    if arguments.json:
        numbers = {"epsilon": found.epsilon(arguments.delta), "delta": found.delta(0.0), "mu": found.mu}
        print(json.dumps(plain({**numbers, **plain(found)})))
    else:
        print(f"epsilon at delta {arguments.delta:g}: at least {found.epsilon(arguments.delta):.4f}")
        print(f"delta at epsilon 0:      at least {found.delta(0.0):.4f}")
        print(f"mu:                      at least {found.mu:.4f}")
        judged = found.counts[0]
        given = ", ".join(f"{t:.4g}" for t in arguments.threshold or ())
        cuts = f"at the threshold {given}" if given else "at every threshold at once"
        print(f"together at confidence {1 - found.risk:.4g}, from {judged.trials_without:,} judged scores without and")
        print(f"{judged.trials_with:,} with the record, {cuts}.")
        if found.verdict is not None:
            print(
                f"verdict: {told(found.verdict.outcome)} (p-value {found.verdict.p_value:.2g}); {found.verdict.reason}"
            )
        print("Valid if you can vouch that:")
        for condition in found.conditions:
            print(f"  - {condition};")
    return 0 if found.verdict is None else EXITS[found.verdict.outcome]


def _load(path: str) -> np.ndarray:
    if not Path(path).exists():
        raise FileNotFoundError(f"{path}: no such file; write scores with numpy.save('scores.npy', scores).")
    try:
        return np.load(path, allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path}: not a .npy file of numbers ({error}); write it with numpy.save.") from None
