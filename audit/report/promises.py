"""What a claim promises and what a score reads, in words instead of constructor calls."""

from __future__ import annotations

from audit.record.record import AuditRecord, ClaimPart
from audit.report.audited import trains
from dpsgd_audit.spelling import counted
from guarantees import gaussian
from guarantees.numerics.rounding import at_least

WORDS = {
    "gaussian": "a Gaussian mechanism with mu {mu:g}",
    "epsilon_delta": "({epsilon:g}, {delta:g})-differential privacy",
    "laplace": "a Laplace mechanism with epsilon {epsilon:g}",
    "randomised_response": "randomised response with epsilon {epsilon:g}",
    "subsampled_gaussian": "one step of DP-SGD at sampling rate {rate:g} with noise multiplier {noise_multiplier:g}",
    "poisson_training": "{counted} of DP-SGD on Poisson batches at sampling rate {rate:g} with noise multiplier "
    "{noise_multiplier:g}",
    "deterministic_batches": "DP-SGD on fixed batches with noise multiplier {noise_multiplier:g}",
    "opacus_claim": "what the {accountant} accountant of Opacus {version} says of one step",
    "claim_from_history": "what an accountant counts for {counted}",
    "claim_from_table": "a table of epsilons and deltas",
}
"""Words for a claim's parameters, by its constructor's name."""


SCORES = {
    "battery": "a battery of scores, some of them learned from further outputs",
    "fit": "a network trained on further outputs",
    "likelihood_ratio": "the likelihood ratio",
    "max_coordinate": "the largest coordinate",
    "normality_test": "a test of normality",
    "projection": "the projection on the record's gradient",
    "norm": "the norm",
}
"""Words for a score, by the distinguisher's name."""


def scored_by(name: str) -> str:
    """A distinguisher in the words of a methods section; its name if it has none."""
    return SCORES.get(name) or name.replace("_", " ")


def in_words(claim: ClaimPart) -> str:
    """A claim in plain words; its name and numbers if it has none."""
    times = f", {claim.times:,} times" if claim.times > 1 else ""
    try:
        steps = claim.parameters.get("steps", (claim.steps or 1) // claim.times)
        taken = "one step" if steps == 1 else f"{steps:,} steps"
        return WORDS[claim.name].format(**claim.parameters, counted=taken) + times
    except (KeyError, ValueError, TypeError):
        numbers = [f"{key.replace('_', ' ')} {value}" for key, value in claim.parameters.items() if _plain(value)]
        inside = f" ({', '.join(numbers)})" if numbers else ""
        return f"{claim.name.replace('_', ' ')}{inside}{times}"


def covered(record: AuditRecord) -> str:
    """How much output the claim covers, and what was released, if the claim is about a whole training."""
    claim = record.claim
    times = f", {claim.times:,} times" if claim.times > 1 else ""
    whole = record.releases in ("transcript", "final")
    if claim.steps is None and claim.times == 1 and claim.unit in ("step", "release"):
        if whole:
            return "one release of the whole training; the claim does not say how many steps it counts"
        return "one release"
    if claim.steps == 1 and record.releases == "update":
        # whatever unit its author gave: an update is no training
        return "one step" if trains(record) else "one release"
    unchecked = unchecked_steps(record)
    return f"one {claim.unit}{times}{f'; {unchecked}' if unchecked else ''}"


def unchecked_steps(record: AuditRecord) -> str:
    """Caveat if the claim counts the steps of a training and nobody knows how many it took."""
    steps = record.claim.steps
    if record.conditions or record.releases in ("", "update") or steps is None or record.steps is not None:
        return ""
    return (
        f"the claim counts {counted(steps, 'step')}, and how many the program took is not known to the audit: check it"
    )


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def refuted_gaussian(record: AuditRecord) -> str:
    """The Gaussian mechanism that one training's guesses refute too, if it has more epsilon than is promised.

    Its curve is refuted as the claimed one is, at the same risk; it is no bound on epsilon at one delta.
    """
    if record.one_run is None or not record.mu or record.claim.epsilon is None:
        return ""
    epsilon = gaussian(mu=record.mu).epsilon(record.report_delta)
    if epsilon <= record.claim.epsilon:
        return ""
    at = f"epsilon {at_least(epsilon)} at delta {record.report_delta:g}"
    return f"; so many right guesses refute even a Gaussian mechanism with {at}"
