"""Error rates that the counts of one test leave possible, for every epsilon and delta at once."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import lambertw

from audit.bounds.clopper_pearson import ErrorCounts, clopper_pearson_upper, require_risk
from guarantees.numerics.array import Array

CORNERS = 128
"""Steps between the two ends of the region; more would bring its corners nearer to its edge."""
ROUND_OFF = 1e-9


def corners(counts: ErrorCounts, *, risk: float) -> tuple[Array, Array]:
    """Pairs of error rates: with probability ``1 - risk``, the true rates are both at most those of some pair.

    The p-values of 'alpha or more' and 'beta or more' are independent, so their product is at most k with probability
    ``k (1 - ln k)`` at most. [fisher1932; docs/validity.md, section 12] Holds for one test fixed before these trials.
    """
    require_risk(risk)
    least = _smallest_product(risk)
    p_value = np.geomspace(least, 1.0, CORNERS + 1)
    # between two neighbours alpha is largest at the smaller p-value, beta at the larger
    alpha = clopper_pearson_upper(counts.false_alarms, counts.trials_without, risk=p_value[:-1])
    beta = clopper_pearson_upper(counts.misses, counts.trials_with, risk=least / p_value[1:])
    return alpha, beta


def _smallest_product(risk: float) -> float:
    """The k with ``k (1 - ln k) = risk``."""
    return math.exp(1 + float(lambertw(-risk / math.e, -1).real)) * (1 - ROUND_OFF)
