"""Ten bugs written before their author had read a rule of the diagnosis: a NumPy step with a switch, and the truth.

They were committed before the rules were changed, so that what the diagnosis says of them is a fair measurement.
"""

from __future__ import annotations

import dataclasses

import numpy as np

import mechanisms
from mechanisms.contract import BatchMechanism

RATE, CLIP, NOISE = 0.5, 1.0, 1.0
TENSORS = {"weight": (4, 6), "bias": (6,)}


@dataclasses.dataclass(frozen=True)
class Unseen:
    """What is wrong, and the words that an answer may use without being false."""

    what: str
    truths: tuple[str, ...]
    """The most telling first: noise (a share of what is due), sensitivity, clipping, sampling, division, repeats,
    shared (noise among coordinates), bare (coordinates without noise), shape (of the noise)."""


UNSEEN = {
    "noise_over_root_batch": Unseen("noise divided by the root of the expected batch", ("noise",)),
    "clipped_after_noise": Unseen("the noisy sum is clipped, the gradients are not", ("clipping", "sensitivity")),
    "sparse_noise": Unseen("noise only where the batch's sum is not zero", ("bare",)),
    "antithetic_noise": Unseen("the second half of the noise is the first half, negated", ("shared",)),
    "half_normal_noise": Unseen("noise is the absolute value of a normal number", ("shape", "noise")),
    "weighted_after_clipping": Unseen("the last record weighs three times after clipping", ("sensitivity", "noise")),
    "root_of_norm": Unseen("clipped by the root of the norm", ("clipping", "sensitivity", "noise")),
    "divided_by_clipped": Unseen("divided by the number of records that were clipped", ("division",)),
    "seeded_by_batch_size": Unseen("the noise's generator is seeded with the size of the batch", ("repeats",)),
    "oversampled": Unseen("the last record is sampled at 1.8 times the rate", ("sampling",)),
}
"""Bugs by the name of their switch."""


def step(seed: int, gradients: dict[str, np.ndarray], *, bug: str = "") -> dict[str, np.ndarray]:
    """The noisy sum of clipped gradients over a Poisson batch."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([given.reshape(len(given), -1) for given in gradients.values()], axis=1)
    rates = np.full(len(rows), RATE)
    if bug == "oversampled":
        rates[-1] = 1.8 * RATE
    taken = rng.random(len(rows)) < rates
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths = np.sqrt(norms) if bug == "root_of_norm" else norms
    clipped = rows if bug == "clipped_after_noise" else rows / np.maximum(1.0, lengths / CLIP)
    if bug == "weighted_after_clipping":
        clipped = clipped * np.where(np.arange(len(rows)) == _last_record(rows), 3.0, 1.0)[:, None]
    total = taken @ clipped
    if bug == "seeded_by_batch_size":
        rng = np.random.default_rng(int(taken.sum()))
    released = total + _noise(rng, total, bug)
    if bug == "clipped_after_noise":
        released = released / max(1.0, np.linalg.norm(released) / (8 * CLIP))
    if bug == "divided_by_clipped":
        released = released / max(1, int(np.sum(taken & (norms[:, 0] > CLIP))))
    weight, bias = released[:24].reshape(TENSORS["weight"]), released[24:]
    return {"weight": weight, "bias": bias}


def _last_record(rows: np.ndarray) -> int:
    return len(rows) - 1 if len(rows) > RECORDS else -1


def _noise(rng: np.random.Generator, total: np.ndarray, bug: str) -> np.ndarray:
    noise = NOISE * CLIP * rng.standard_normal(total.shape)
    if bug == "noise_over_root_batch":
        return noise / np.sqrt(RATE * RECORDS)
    if bug == "sparse_noise":
        return np.where(total != 0, noise, 0.0)
    if bug == "antithetic_noise":
        half = noise[: len(noise) // 2]
        return np.concatenate([half, -half])
    if bug == "half_normal_noise":
        return np.abs(noise)
    return noise


RECORDS = 8


def datasets() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Dense gradients of several lengths, and one record more, over-long, alone in the first three biases."""
    rng = np.random.default_rng(11)
    rows = rng.standard_normal((RECORDS + 1, 30))
    rows *= (np.append(np.linspace(0.5, 3.0, RECORDS), 4.0) / np.linalg.norm(rows, axis=1))[:, None]
    rows[:-1, 24:27] = 0.0
    return tuple({"weight": own[:, :24].reshape(-1, 4, 6), "bias": own[:, 24:]} for own in (rows[:-1], rows))


def pair() -> mechanisms.Neighbours:
    """The same datasets as gradients, one row a record, its tensors in the order of a release's flat view."""
    without, with_record = (np.hstack([own["bias"], own["weight"].reshape(-1, 24)]) for own in datasets())
    return mechanisms.Neighbours(without=without, with_record=with_record, relation="add_remove")


def mechanism(bug: str = "") -> BatchMechanism:
    """The step on such rows."""

    def on_rows(seed: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        return step(seed, {"weight": rows[:, 6:].reshape(-1, 4, 6), "bias": rows[:, :6]}, bug=bug)

    return mechanisms.callable_step(on_rows)
