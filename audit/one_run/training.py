"""Train once, with many canaries in distinct coordinates, and judge: one call for PyTorch, JAX and anything else."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from audit.one_run.procedure import judged, one_run
from audit.one_run.result import OneRun
from guarantees.checks import Count, Delta, FromZero, Positive, Rate, Share, checked
from guarantees.claim import Claim
from guarantees.vocabulary import Relation
from mechanisms.pairs.coordinate_canaries import CoordinateCanaries, coordinate_canaries

Training = Callable[[CoordinateCanaries], Iterable[ArrayLike]]
"""Trains with the included canaries, and yields ``canaries.seen`` of the noisy sum of every step."""
FAR, SURE = 0.1, 5.0
"""A canary's movement is reported as different if it differs by this share of the clipping norm and by so many
standard errors."""


class AnotherClipWarning(UserWarning):
    """Canaries move the noisy sum by another length than ``clip=`` implies."""


@checked
def one_training(
    train: Training,
    *,
    weights: Count,
    places: Count,
    each: Count = 1,
    rate: Rate = 1.0,
    clip: Positive = 1.0,
    noise_multiplier: Positive,
    length: Positive = 10.0,
    risk: Share = 0.05,
    delta: Delta | None = None,
    guesses: Sequence[tuple[int, int]] | None = None,
    claim: Claim | None = None,
    relation: Relation = "add_remove",
    seed: FromZero = 0,
    name: str = "one training",
) -> OneRun:
    """Make canaries, train once, score every update, judge.

    A canary's gradient is one coordinate, longer than the clipping norm. It joins batches as a row of gradients: the
    user's own code clips it, sums it and adds noise, whatever the framework. Several canaries may share a coordinate;
    then one of them is guessed and the coins of the others are revealed, which scores use.
    [steinke2023; keinan2025; docs/one-run-validity.md, 'A fixed number of guesses']

    Says nothing about final weights alone, nor about records whose gradients are not crafted.

    Args:
      train: trains once. For each step it adds ``canaries.rows(joining)`` to the batch's gradients, clips, sums, adds
        noise, and collects ``canaries.seen(noisy_sum)``; ``canaries.batches(steps)`` draws who joins.
      weights: how many weights the model has.
      places: coordinates that hold canaries, each of which is one guess.
      each: canaries in one coordinate.
      rate: how often a record joins a batch; 1 for full batches.
      clip: the clipping norm. It and the noise multiplier are for the scores: wrong ones cost tightness, not validity.
      noise_multiplier: deviation of the noise in the sum, in clipping norms.
      length: norm of a canary's gradient.
      risk: probability that any of the statements is wrong.
      delta: where epsilon is proven; by default the claim's, else 1e-5.
      guesses: pairs (in, out) fixed before the training, as for ``one_run``.
      claim: a promise to judge, if there is one.
      relation: what leaving a canary out does.
      seed: draws coins and batches; the training must not know it.
      name: what records and reports call it.

    Returns:
      What the guesses prove: ``epsilon(delta)``, ``delta(epsilon)``, ``mu`` and, with a claim, ``verdict``.

    Raises:
      ValueError: an argument is out of range, an update has another size than the weights, or no step moves a
        coordinate.

    Examples:
      >>> import audit, numpy as np
      >>> rng = np.random.default_rng(1)
      >>> def train(canaries):
      ...     for joining in canaries.batches(1):
      ...         rows = np.concatenate(list(canaries.rows(joining)))
      ...         norms = np.linalg.norm(rows, axis=1, keepdims=True)
      ...         clipped = rows / np.maximum(1.0, norms)
      ...         yield canaries.seen(clipped.sum(0) + 0.5 * rng.normal(size=1000))
      >>> found = audit.one_training(train, weights=1000, places=1000, noise_multiplier=0.5)
      >>> found.epsilon(1e-5) > 1
      True
    """
    canaries = coordinate_canaries(weights, places=places, each=each, length=length, rate=rate, seed=seed)
    seen = _moved(train(canaries))
    _warn_of_another_clip(canaries, seen, clip)
    known = _known(canaries, len(seen))
    vouched = [f"the training did not know the seed {seed}, which drew the coins"]
    scores = canaries.scores(seen, clip=clip, noise_multiplier=noise_multiplier)
    found = one_run(
        scores,
        canaries.guessed,
        risk=risk,
        delta=delta,
        guesses=guesses,
        claim=claim,
        relation=relation,
        seed=seed,
        name=name,
    )
    if each > 1:
        vouched.append(
            f"of {each} canaries in a coordinate {each - 1} have revealed coins, which are never guessed and may enter "
            "the scores of the one that is"
        )
    judgement = found.judgement
    if claim is not None and found.verdict == "inconclusive":
        judgement = judged(found.guesses, claim, delta=found.report_delta, weights=weights)
    return dataclasses.replace(found, conditions=(*found.conditions, *vouched), known=known, judgement=judgement)


def _moved(steps: Iterable[ArrayLike]) -> np.ndarray:
    """What all steps showed; an error if nothing moved, which cannot happen with noise."""
    seen = np.stack([np.asarray(step, float) for step in steps])
    if not seen.any():
        raise ValueError(
            f"in {len(seen)} steps no canary's coordinate moved, not even by noise: the training does not update the "
            "weights that are read. Does its optimizer hold the parameters of this model?"
        )
    return seen


def _known(canaries: CoordinateCanaries, steps: int) -> dict[str, str]:
    """What the auditor saw and, if ``canaries.batches`` drew the batches, how they were sampled."""
    known = {
        "auditor_saw": f"the noisy sum of every update ({steps:,} in all) in the coordinates of the canaries",
        "weights": f"{canaries.size:,}",
    }
    if len(canaries.drawn) == steps:
        rate = f"at rate {canaries.rate:g}" if canaries.rate < 1 else "that hold every canary that is in"
        known["sampler"] = f"Poisson batches {rate}, drawn by canaries.batches; of other records it is not known"
    return known


def _warn_of_another_clip(canaries: CoordinateCanaries, seen: np.ndarray, clip: float) -> None:
    """Warn if canaries move the noisy sum by another length than the clipping norm implies."""
    expected = min(canaries.length, clip)
    moved, error = canaries.moved_by(seen)
    if abs(moved - expected) > max(FAR * expected, SURE * error):
        warnings.warn(
            f"a canary that joins moves the noisy sum by about {moved:.3g} (standard error {error:.2g}), and "
            f"clip={clip:g} implies {expected:g}. If the training clips at another norm, pass that norm; canaries.seen "
            "takes the sum, not a mean. If neither is the reason, the training does not clip as stated. The bounds "
            "hold anyway and may prove less.",
            AnotherClipWarning,
            stacklevel=4,
        )
