"""Balls and bins: every record draws its batch independently. Its pair is the 0/1 pair."""

from __future__ import annotations

import dataclasses

from guarantees.checks import checked
from guarantees.claim import Claim, unusual
from guarantees.shuffling.isolated import isolated_shuffle
from guarantees.vocabulary import Relation


@checked
def balls_and_bins(*, rounds: int, noise_multiplier: float, epochs: int = 1, relation: Relation = "zero_out") -> Claim:
    """Each record in one uniformly drawn batch per epoch, independently of the others. [chua2025]

    Where a record lies tells nothing about the others, so the 0/1 pair of ``isolated_shuffle`` dominates whatever
    the others do, and the promise holds for zero-out and add/remove neighbours. It does NOT hold for batches of
    fixed size, however shuffled.

    Args:
      rounds: batches in one epoch, from 1 to 1e8.
      noise_multiplier: standard deviation of the noise over the clipping norm, at least 0.1.
      epochs: how often all records are assigned again, at least 1.
      relation: which neighbours the promise is for; it is proved for ``"zero_out"`` and ``"add_remove"`` only.

    Returns:
      The claim.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> claim = guarantees.balls_and_bins(rounds=1, noise_multiplier=2.0, epochs=4)
      >>> round(claim.epsilon(1e-5), 2)  # one batch an epoch hides nothing: four times 0.5-GDP is 1-GDP
      4.38
    """
    isolated = isolated_shuffle(rounds=rounds, noise_multiplier=noise_multiplier, epochs=epochs)
    return dataclasses.replace(
        isolated,
        name="balls_and_bins",
        parameters={"rounds": rounds, "noise_multiplier": noise_multiplier, "epochs": epochs}
        | unusual(relation, "zero_out"),
        relation=relation,
        observation="all noisy batch sums, every record's batch drawn independently and uniformly each epoch",
        source="chua2025",
    )
