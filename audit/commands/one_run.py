"""dpsgd-audit bound --one-run: valid bounds from scores of canaries in one training."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import numpy as np

from audit.commands.arguments import risk_of
from audit.commands.json_output import print_json
from audit.one_run.plan import plan_one_run
from audit.one_run.procedure import one_run
from audit.one_run.result import OneRun
from audit.record.record import plain
from audit.report.table import readable
from audit.suites.claim_names import claim_from_text
from guarantees.claim import Claim
from guarantees.numerics.rounding import at_least, at_most


def execute(arguments: argparse.Namespace, left_out: np.ndarray, included: np.ndarray) -> OneRun:
    """Compute and print the bounds, and return the result."""
    if arguments.threshold:
        raise ValueError("--one-run guesses coins: give --guesses IN OUT, not --threshold.")
    claim = None if arguments.claim is None else claim_from_text(arguments.claim)
    # what flipping a coin does is vouched for: it is what the claim is about, where the claim says
    stated: dict[str, Any] = {} if claim is None or claim.relation == "any" else {"relation": claim.relation}
    found = one_run(
        np.concatenate([np.ravel(left_out), np.ravel(included)]),
        np.repeat([False, True], [np.size(left_out), np.size(included)]),
        risk=risk_of(arguments.confidence),
        delta=arguments.delta,
        guesses=arguments.guesses,
        claim=claim,
        seed=arguments.seed,
        **stated,
    )
    if arguments.json:
        epsilon = {"epsilon": found.epsilon(arguments.delta), "epsilon_at_delta": arguments.delta}
        answers = {**epsilon, "delta": arguments.delta, "verdict": found.verdict}
        refuted = {"mu": found.mu, "says": _not_gdp(found)}
        rest = plain(dataclasses.replace(found, claim=None)) | {"claim": None if claim is None else claim.describe()}
        print_json(plain({**answers, "not_gdp": refuted, **rest}))
    elif not arguments.quiet:
        _print(found, claim, delta=arguments.delta, declared=arguments.guesses is not None)
    return found


def _not_gdp(found: OneRun) -> str:
    return f"if it is Gaussian DP, its mu exceeds {at_least(found.mu)}; this says nothing about epsilon"


def _print(found: OneRun, claim: Claim | None, *, delta: float, declared: bool) -> None:
    print(f"epsilon at delta {delta:g}: at least {at_least(found.epsilon(delta))}")
    print(_not_gdp(found) + ".")
    sure = at_least(1 - found.risk, ".4g")
    print(f"Both hold together at confidence {sure}, from one training with {found.canaries:,} canaries, ", end="")
    print(f"{found.included:,} included;")
    chosen = [each for each in found.guesses if each.at_delta is not None]
    for each in chosen:
        print(f"{each}, a number chosen with {each.revealed:,} other coins for delta {each.at_delta:g}.")
    if not chosen:
        best = max(found.guesses, key=lambda each: each.epsilon(delta))
        several = f"{len(found.guesses)} declared numbers of guesses share the risk; the most telling: "
        print(f"{several if len(found.guesses) > 1 else ''}{best}{'' if declared else ', as many as the claim fixes'}.")
    if claim is not None:
        limit = plan_one_run(claim=claim, canaries=found.canaries, delta=delta, risk=found.risk).limit
        print(f"If canaries leak all that is claimed, no valid test has a median bound above {at_most(limit, '.2f')}.")
    if found.judgement is not None:
        judged = found.judgement
        print(
            f"verdict: {readable(judged.verdict)} (p-value {judged.p_value:.2g}), {judged.judged_by}; {judged.reason}"
        )
    print("Valid if you can vouch that:")
    *others, last = found.conditions
    print("\n".join([*(f"  - {condition};" for condition in others), f"  - {last}."]))
