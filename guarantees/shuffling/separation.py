"""A lower bound on the noise of one epoch that is close to random guessing. [ertan2026]"""

from __future__ import annotations

from typing import Literal

import numpy as np

from guarantees.checks import checked, require

Sampler = Literal["shuffle", "poisson"]


@checked
def separation_bound(*, rounds: float, sampler: Sampler = "shuffle") -> float:
    """Separation that one epoch exceeds unless ``noise_multiplier >= noise_threshold(rounds)``.

    ``(1 - 1/sqrt(4 pi ln M)) / sqrt 8`` for shuffling, times ``1 - 1/e`` for Poisson sampling at rate 1/M.
    [ertan2026, theorems 6.1 and 6.3]

    For the 0/1 pair. The paper states it from M = 1 on, where it is minus infinity; M >= 2 is needed, and its proof
    drops a factor ``1 - 2/(M sqrt(4 pi ln M))``, which the exact separation makes up for (checked from M = 2 on).

    Args:
      rounds: M, batches in one epoch, at least 2; need not be an integer.
      sampler: ``"shuffle"`` or ``"poisson"``.

    Returns:
      The separation: distance between the curve and the diagonal of random guessing, at most ``1/sqrt 2``.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> round(guarantees.separation_bound(rounds=1000), 3)
      0.316
    """
    require("rounds", rounds >= 2, ">= 2 (ln 1 = 0: the theorem says nothing at one round)", rounds)
    bound = (1 - 1 / np.sqrt(4 * np.pi * np.log(rounds))) / np.sqrt(8)
    return float(bound if sampler == "shuffle" else -np.expm1(-1) * bound)


@checked
def noise_threshold(*, rounds: float) -> float:
    """``1 / sqrt(2 ln M)``: below this noise multiplier ``separation_bound`` applies. [ertan2026, theorem 6.1]

    More noise is necessary for a small separation, and not sufficient.

    Args:
      rounds: M, batches in one epoch, at least 2; need not be an integer.

    Returns:
      The noise multiplier.

    Raises:
      ValueError: ``rounds`` is below 2.

    Examples:
      >>> import guarantees
      >>> round(guarantees.noise_threshold(rounds=1000), 3)
      0.269
    """
    require("rounds", rounds >= 2, ">= 2", rounds)
    return float(1 / np.sqrt(2 * np.log(rounds)))


@checked
def epsilon_floor(*, separation: float, delta: float) -> float:
    """Smallest epsilon that is compatible with a separation: ``ln((1 + k sqrt 2 - 2 delta)/(1 - k sqrt 2))``.

    From ``separation(epsilon, delta) = (e^eps - 1 + 2 delta) / ((1 + e^eps) sqrt 2)``. [ertan2026, lemma E.3]

    A mechanism of this separation may have a much larger epsilon.

    Args:
      separation: k, distance between the curve and the diagonal of random guessing, in [0, 1/sqrt 2).
      delta: where epsilon is asked, in [0, 1].

    Returns:
      Epsilon, at least 0.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> least = guarantees.separation_bound(rounds=1000)
      >>> round(guarantees.epsilon_floor(separation=least, delta=1e-5), 2)  # with less noise than noise_threshold
      0.96
    """
    variation = separation * np.sqrt(2)
    require("separation", 0 <= variation < 1, "in [0, 1/sqrt 2)", separation)
    require("delta", 0 <= delta <= 1, "in [0, 1]", delta)
    return float(max(0.0, np.log1p(max(2 * (variation - delta) / (1 - variation), -1 + 1e-300))))


@checked
def single_epoch_ceiling(*, rounds: float, sampler: Sampler = "shuffle") -> float:
    """Largest separation that any noise multiplier can cause in one epoch of the 0/1 pair.

    Without noise shuffling reveals the record, separation ``1/sqrt 2``; Poisson sampling misses it altogether with
    probability ``(1 - 1/M)^M``, so its separation stays below ``(1 - (1 - 1/M)^M)/sqrt 2``: .530 at M = 2,
    .447 in the limit. The ``1/sqrt 2`` that the Gaussian limit predicts for it [ertan2026, appendix F.1] is impossible.
    """
    require("rounds", rounds >= 2, ">= 2", rounds)
    seen = 1.0 if sampler == "shuffle" else -np.expm1(rounds * np.log1p(-1 / rounds))
    return float(seen / np.sqrt(2))
