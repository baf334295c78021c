"""Holm's procedure: many tests at one risk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: those at most ``risk`` reject a true hypothesis with that probability at most. [holm1979]

    The smallest of n is multiplied by n, the next by n - 1 and so on; none may fall below one before it.
    """
    given = np.asarray(p_values, np.float64)
    order = np.argsort(given, kind="stable")
    adjusted = np.empty(len(given))
    adjusted[order] = np.minimum(np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1)), 1.0)
    return adjusted.tolist()
