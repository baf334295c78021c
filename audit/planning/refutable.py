"""Whether counting errors can refute a claim at all, whatever the attack."""

from __future__ import annotations

import numpy as np

from guarantees.claim import Claim

RATES = np.geomspace(1e-300, 1.0, 2000)


def refutable(claim: Claim, *, trials_per_side: int, risk: float) -> bool:
    """Whether an attack that never errs in these trials would refute the claim.

    The claim allows tests with error rates ``(alpha, beta(alpha))``; such a test makes no error at all with probability
    ``((1 - alpha) (1 - beta(alpha)))^n``. Where that exceeds the risk for some alpha, no counts refute the claim: those
    without an error are the most telling that there are.
    """
    for curve in (claim, claim.reverse):
        beta = np.clip(np.asarray(curve.beta(RATES), float), 0.0, 1.0)
        with np.errstate(divide="ignore"):
            no_errors = trials_per_side * (np.log1p(-RATES) + np.log1p(-beta))
        if no_errors.max() > np.log(risk):
            return False
    return True
