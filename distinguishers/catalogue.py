"""Distinguishers by the names that suites use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from distinguishers.battery import battery, default_battery
from distinguishers.contract import Distinguisher, Learner
from distinguishers.exact.likelihood import likelihood_ratio
from distinguishers.exact.transcripts import largest_round
from distinguishers.learned.fitting import fit
from distinguishers.model_free.max_coordinate import max_coordinate
from distinguishers.model_free.normality import normality_test
from distinguishers.model_free.projection import contrast, norm, projection, ratio

DISTINGUISHERS: Mapping[str, Callable[..., Distinguisher | Learner]] = MappingProxyType(
    {
        "likelihood_ratio": likelihood_ratio,
        "normality_test": normality_test,
        "max_coordinate": max_coordinate,
        "largest_round": largest_round,
        "projection": projection,
        "norm": norm,
        "ratio": ratio,
        "contrast": contrast,
        "battery": battery,
        "default_battery": default_battery,
        "fit": fit,
    }
)
"""Distinguishers, and learners of them, by the names that suites use."""
