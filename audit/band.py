"""A whole empirical trade-off curve with a band that holds at every threshold at once."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import betainccinv

from audit.bounds import require_risk


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveBand:
    """Upper limits on alpha and beta at each edge of a grid; all hold together."""

    alpha: np.ndarray
    beta: np.ndarray


def simultaneous_band(without: np.ndarray, with_record: np.ndarray, *, risk: float) -> CurveBand:
    """Clopper-Pearson limits at every edge of a fixed grid, the risk shared evenly by all of them.

    ``without`` and ``with_record`` are integer counts per cell. Valid for a grid fixed before the trials.
    """
    require_risk(risk)
    above = np.cumsum(without[::-1])[::-1][1:]
    below = np.cumsum(with_record)[:-1]
    share = risk / (2 * max(len(above), 1))
    return CurveBand(alpha=_upper(above, int(without.sum()), share), beta=_upper(below, int(with_record.sum()), share))


def _upper(errors: np.ndarray, trials: int, risk: float) -> np.ndarray:
    return np.where(errors >= trials, 1.0, betainccinv(errors + 1.0, np.maximum(trials - errors, 1.0), risk))
