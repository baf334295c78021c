"""Sizes of a Poisson batch, with a bound on the mass of the unlikely ones that are dropped."""

from __future__ import annotations

import math

import numpy as np

from guarantees.numerics.array import Array
from guarantees.numerics.distributions import binom
from guarantees.numerics.line_table import LOG_NEGLIGIBLE


def batch_sizes(records: int, rate: float, *, negligible: float = LOG_NEGLIGIBLE) -> tuple[Array, Array, float]:
    """Binomial sizes, their log-probabilities, and a bound on the mass of those left out.

    Left out are sizes whose probability is below ``e^negligible`` of the likeliest one's.
    """
    mean, reach = records * rate, 40.0 * math.sqrt(records * rate * (1 - rate)) + 100.0
    sizes = np.arange(max(0, math.floor(mean - reach)), min(records, math.ceil(mean + reach)) + 1)
    # Not logpmf: its log-gamma functions cancel, which costs six digits at 1e5 records.
    weights = binom.pmf(sizes, records, rate)
    keep = weights > weights.max() * math.exp(negligible)
    sizes, log_weights = sizes[keep], np.log(weights[keep])
    lost = binom.cdf(sizes[0] - 1, records, rate) + binom.sf(sizes[-1], records, rate)
    return sizes, log_weights, float(lost)
