"""Distinguishers by the names that suites use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from distinguishers.battery import battery, default_battery
from distinguishers.contract import Distinguisher, Learner
from distinguishers.learned import fit
from distinguishers.likelihood import likelihood_ratio
from distinguishers.max_coordinate import max_coordinate
from distinguishers.normality import normality_test
from distinguishers.projection import contrast, norm, projection, ratio
from distinguishers.transcripts import largest_round

CATALOGUE: Mapping[str, Callable[..., Distinguisher | Learner]] = MappingProxyType(
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
