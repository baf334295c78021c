"""Distinguishers: functions from an output to a score, larger when the record seems to have been there."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from distinguishers.battery import Battery, battery
from distinguishers.contract import Distinguisher, distinguisher
from distinguishers.learned import Learned, fit
from distinguishers.likelihood import OneRoundRatio, likelihood_ratio
from distinguishers.max_coordinate import MaxCoordinate, max_coordinate
from distinguishers.normality import NormalityTest, normality_test
from distinguishers.projection import Norm, SpanScore, contrast, norm, projection, ratio

CATALOGUE: Mapping[str, Callable[..., Distinguisher]] = MappingProxyType(
    {
        "likelihood_ratio": likelihood_ratio,
        "normality_test": normality_test,
        "max_coordinate": max_coordinate,
        "projection": projection,
        "norm": norm,
        "ratio": ratio,
        "contrast": contrast,
        "battery": battery,
    }
)
"""Distinguishers by the names that suites use; ``fit`` makes one from outputs."""

__all__ = [
    "CATALOGUE",
    "Battery",
    "Distinguisher",
    "Learned",
    "MaxCoordinate",
    "Norm",
    "NormalityTest",
    "OneRoundRatio",
    "SpanScore",
    "battery",
    "contrast",
    "distinguisher",
    "fit",
    "likelihood_ratio",
    "max_coordinate",
    "norm",
    "normality_test",
    "projection",
    "ratio",
]
