"""dpsgd-audit bound: scores from anywhere, valid bounds out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from audit.bounds.model_estimates import ModelEstimate, gaussian_shift, subsampled_gaussian
from audit.commands import risk_of
from audit.record.record import plain
from audit.report.table import readable
from audit.suites.run import EXIT_EXPECTED, EXIT_INCONCLUSIVE, EXIT_UNEXPECTED

EXITS = {"violation": EXIT_UNEXPECTED, "no_violation_found": EXIT_EXPECTED, "inconclusive": EXIT_INCONCLUSIVE}


def execute(arguments: argparse.Namespace) -> int:
    """Read two score files, print bounds and what the user must vouch for."""
    from audit.scores import from_scores
    from audit.suites.claim_text import claim_from_text

    sides = _load(arguments.without), _load(arguments.with_record)
    found = from_scores(
        *sides,
        risk=risk_of(arguments.confidence),
        thresholds=tuple(arguments.threshold or ()),
        claim=None if arguments.claim is None else claim_from_text(arguments.claim),
        delta=arguments.delta,
    )
    estimate = _assumed(arguments, *sides, assumption_free=found.epsilon(arguments.delta))
    if arguments.json:
        answers = {
            "epsilon": found.epsilon(arguments.delta),
            "delta": found.delta(0.0),
            "mu": found.mu,
            "verdict": found.verdict,
        }
        print(json.dumps(plain({**answers, **plain(found), "assumed": plain(estimate) if estimate else None})))
    else:
        print(f"epsilon at delta {arguments.delta:g}: at least {found.epsilon(arguments.delta):.4f}")
        print(f"delta at epsilon 0:      at least {found.delta(0.0):.4f}")
        print(f"mu:                      at least {found.mu:.4f}")
        counts = found.counts[0]
        given = ", ".join(f"{t:.4g}" for t in arguments.threshold or ())
        cuts = f"at the threshold {given}" if given else "at every threshold at once"
        print(f"together at confidence {1 - found.risk:.4g}, from {counts.trials_without:,} judged scores without and")
        print(f"{counts.trials_with:,} with the record, {cuts}.")
        if found.judgement is not None:
            judged = found.judgement
            print(f"verdict: {readable(judged.verdict)} (p-value {judged.p_value:.2g}); {judged.reason}")
        print("Valid if you can vouch that:")
        for condition in found.conditions:
            print(f"  - {condition};")
        if estimate is not None:
            print(f"Under an assumption: {estimate.wording}")
    return 0 if found.verdict is None else EXITS[found.verdict]


def _assumed(
    arguments: argparse.Namespace, without: np.ndarray, with_record: np.ndarray, *, assumption_free: float
) -> ModelEstimate | None:
    """What would follow from a model, if one was named."""
    if arguments.assume is None:
        return None
    given = {"delta": arguments.delta, "risk": risk_of(arguments.confidence), "assumption_free": assumption_free}
    if arguments.assume == "gaussian":
        return gaussian_shift(without, with_record, **given)
    if arguments.rate is None:
        raise ValueError("--assume subsampled-gaussian needs the known --rate.")
    return subsampled_gaussian(without, with_record, rate=arguments.rate, **given)


def _load(path: str) -> np.ndarray:
    if not Path(path).exists():
        raise FileNotFoundError(f"{path}: no such file; write scores with numpy.save('scores.npy', scores).")
    try:
        return np.load(path, allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path}: not a .npy file of numbers ({error}); write it with numpy.save.") from None
