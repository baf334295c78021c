"""Checks on randomised code: each is itself a test with a stated probability of failing falsely."""

from __future__ import annotations

import numpy as np
from scipy import stats

FALSE_FAILURE = 1e-6
"""Probability that a check fails although the code is right."""


def assert_rate_at_most(events: int, trials: int, rate: float) -> None:
    """Fails with probability at most FALSE_FAILURE when the true rate is at most ``rate``."""
    p = stats.binom.sf(events - 1, trials, rate)
    assert p > FALSE_FAILURE, f"{events}/{trials} events; P(this many | rate {rate}) = {p:.1e}"


def assert_rate_is(events: int, trials: int, rate: float) -> None:
    """Fails with probability at most FALSE_FAILURE when the true rate is exactly ``rate``."""
    p = 2 * min(stats.binom.sf(events - 1, trials, rate), stats.binom.cdf(events, trials, rate))
    assert p > FALSE_FAILURE, f"{events}/{trials} events; two-sided p at rate {rate} = {p:.1e}"


def assert_same_law(first: np.ndarray, second: np.ndarray) -> None:
    """Two-sample Kolmogorov-Smirnov; fails with probability at most FALSE_FAILURE when the laws agree."""
    p = stats.ks_2samp(first, second).pvalue
    assert p > FALSE_FAILURE, f"Kolmogorov-Smirnov p = {p:.1e} for samples of {len(first)} and {len(second)}"


def assert_has_law(sample: np.ndarray, cdf) -> None:
    """One-sample Kolmogorov-Smirnov against a known cumulative distribution function."""
    p = stats.kstest(sample, cdf).pvalue
    assert p > FALSE_FAILURE, f"Kolmogorov-Smirnov p = {p:.1e} for a sample of {len(sample)}"
