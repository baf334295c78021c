"""What a claim promises, in words instead of the call that makes it."""

from __future__ import annotations

from audit.record.record import ClaimPart

WORDS = {
    "gaussian": "a Gaussian mechanism with mu {mu:g}",
    "epsilon_delta": "({epsilon:g}, {delta:g})-differential privacy",
    "laplace": "a Laplace mechanism with epsilon {epsilon:g}",
    "randomised_response": "randomised response with epsilon {epsilon:g}",
    "subsampled_gaussian": "one step of DP-SGD at sampling rate {rate:g} with noise multiplier {noise_multiplier:g}",
    "poisson_training": "{steps:,} steps of DP-SGD on Poisson batches at sampling rate {rate:g} with noise multiplier "
    "{noise_multiplier:g}",
    "deterministic_batches": "DP-SGD on fixed batches with noise multiplier {noise_multiplier:g}",
    "opacus_claim": "what Opacus's {accountant} accountant says of one step",
    "claim_from_history": "what the training's accountant counted",
    "claim_from_table": "what the accountant printed",
}
"""By the constructor's name, from its parameters."""


def in_words(claim: ClaimPart) -> str:
    """A claim as people say it; one without words of its own by its name and its numbers."""
    times = f", {claim.times:,} times" if claim.times > 1 else ""
    try:
        return WORDS[claim.name].format(**claim.parameters) + times
    except (KeyError, ValueError, TypeError):
        numbers = [f"{key.replace('_', ' ')} {value}" for key, value in claim.parameters.items() if _plain(value)]
        inside = f" ({', '.join(numbers)})" if numbers else ""
        return f"{claim.name.replace('_', ' ')}{inside}{times}"


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
