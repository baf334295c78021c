"""An empirical trade-off curve on a grid, with a band that holds at every threshold at once."""

from __future__ import annotations

import numpy as np

from audit.bounds.clopper_pearson import clopper_pearson_upper
from audit.bounds.local_levels import ThresholdBand, band_from_grid, wider_rate_band

LARGEST_EXACT = 2_000_000
"""Trials per side up to which local levels are computed exactly; beyond, the grid's edges share the risk evenly."""


def simultaneous_band(edges: np.ndarray, without: np.ndarray, with_record: np.ndarray, *, risk: float) -> ThresholdBand:
    """Upper limits on alpha and beta at every edge, all holding together with probability 1 - risk.

    ``without`` and ``with_record`` are integer counts per cell. The score must be fixed before the trials.
    [docs/validity.md]
    """
    if max(without.sum(), with_record.sum()) <= LARGEST_EXACT:
        return band_from_grid(edges, without, with_record, risk=risk)
    return _shared_by_edges(edges, without, with_record, risk=risk)


def wider_band(edges: np.ndarray, without: np.ndarray, with_record: np.ndarray, *, risk: float) -> ThresholdBand:
    """A band with smaller local levels, which are quick to find: for p-values, which ask at many risks.

    At a smaller risk it lies above the simultaneous band, and at a larger one nowhere below the level that this risk
    pays for, so either of them refutes a true claim only as often as the larger risk. [docs/validity.md, section 12]
    """
    if max(without.sum(), with_record.sum()) <= LARGEST_EXACT:
        return band_from_grid(edges, without, with_record, risk=risk, rates=wider_rate_band)
    return _shared_by_edges(edges, without, with_record, risk=risk)


def _shared_by_edges(edges: np.ndarray, without: np.ndarray, with_record: np.ndarray, *, risk: float) -> ThresholdBand:
    above = np.cumsum(without[::-1])[::-1][1:]
    below = np.cumsum(with_record)[:-1]
    share = risk / (2 * len(edges))
    return ThresholdBand(
        threshold=np.asarray(edges, float),
        alpha_upper=clopper_pearson_upper(above, int(without.sum()), risk=share),
        beta_upper=clopper_pearson_upper(below, int(with_record.sum()), risk=share),
        risk=risk,
    )
