"""Privacy by Renyi orders, as the papers account for it: by dp-accounting, an extra."""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def renyi_accountant(rate: float, noise: float, steps: int) -> Any:
    """Poisson sampled Gaussian steps under the orders that dp-accounting tries by default."""
    import dp_accounting

    accountant = dp_accounting.rdp.RdpAccountant()
    accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise)), steps)
    return accountant
