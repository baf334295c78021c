"""Check that the counts of a program agree with the scores of its own trials.

A compilation cache that hands out the wrong program, or a device that fails, makes counts that look like any others.
Fit trials have been scored one by one before: counting them again, by the program that judges, costs one chunk.
"""

from __future__ import annotations

import numpy as np

from audit.trials.source import Source, WrongCountsError

FEWEST_COMPARED = 20
ROUNDING = 1e-3
"""Share of the largest score: two programs round differently, so a score this near to an edge may fall on either
side."""
TOLERATED = 0.25
"""Share of the trials that may disagree: rounding moves a few over an edge, a wrong program most of them."""


def require_agreement(side: Source, scores: np.ndarray, edges: np.ndarray, *, name: str) -> None:
    """Count the first fit trials, whose scores (trials, members) are known, and refuse counts that contradict them."""
    known = scores[: side.chunk]
    if len(known) < FEWEST_COMPARED:
        return
    below = np.cumsum(side.cells(0, len(known), edges), axis=1)[:, :-1]
    slack = ROUNDING * np.abs(known).max(axis=0)[:, None]
    fewest, most = (_at_most(known, edges + shift) for shift in (-slack, slack))
    worst = int(np.maximum(fewest - below, below - most).max(initial=0))
    if worst > TOLERATED * len(known):
        raise WrongCountsError(
            f"the counts of {len(known)} trials on the side '{name}' contradict the scores of the same trials: {worst} "
            "of them were counted on the wrong side of a threshold. No result can be trusted. Run it again with "
            "DPSGD_AUDIT_CACHE=off (and without JAX_COMPILATION_CACHE_DIR): a compilation cache may have given the "
            "wrong program. If this happens again, please report it with the versions of jax and jaxlib and the device."
        )


def _at_most(scores: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How many scores of each member lie at or below each edge."""
    pairs = zip(np.sort(scores.T, axis=1), edges, strict=True)
    return np.stack(
        [np.searchsorted(member_scores, member_edges, side="right") for member_scores, member_edges in pairs]
    )
