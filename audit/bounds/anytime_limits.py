"""Upper limits on error rates that hold at every trial number at once, so also where one chose to stop."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, xlog1py, xlogy

from audit.bounds.clopper_pearson import ErrorCounts, Limits
from guarantees.checks import require
from guarantees.numerics.search import halved

BISECTIONS = 60


def anytime_upper(errors: ArrayLike, trials: ArrayLike, *, risk: ArrayLike) -> np.ndarray:
    """Upper limit on an error rate, exceeded by the truth at any trial number with probability at most ``risk``.

    ``M_n(p) = B(k + 1/2, n - k + 1/2) / B(1/2, 1/2) / (p^k (1-p)^(n-k))`` has mean 1 under p for every n and is a
    martingale, so it ever reaches ``1/risk`` with probability at most ``risk``; the limit is the largest p at which
    it has not. [ville1939; robbins1970]

    Wider than Clopper-Pearson by a term of order ``ln n``: the price of looking at any time.
    """
    k, n, share = np.broadcast_arrays(np.asarray(errors, float), np.asarray(trials, float), np.asarray(risk, float))
    require("risk", bool(np.all((share > 0) & (share < 1))), "in (0, 1)", risk)
    require("errors", bool(np.all((k >= 0) & (k <= n) & (n > 0))), "in 0..trials", errors)
    mixture = betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5)

    def excluded(p: np.ndarray) -> np.ndarray:
        return mixture - xlogy(k, p) - xlog1py(n - k, -p) >= -np.log(share)

    # rounded outwards: at the upper end the rate is excluded, unless every trial erred
    return np.where(k == n, 1.0, halved(excluded, k / n, np.ones_like(k), rounds=BISECTIONS)[1])


def anytime_limits(counts: tuple[ErrorCounts, ...], risks: np.ndarray) -> tuple[Limits, ...]:
    """Limits for several tests, each at its own share of the risk, half on alpha and half on beta."""
    alpha = anytime_upper([c.false_alarms for c in counts], [c.trials_without for c in counts], risk=risks / 2)
    beta = anytime_upper([c.misses for c in counts], [c.trials_with for c in counts], risk=risks / 2)
    return tuple(Limits(alpha=float(a), beta=float(b)) for a, b in zip(alpha, beta, strict=True))
