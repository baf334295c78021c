"""Distinguishers by the names that suites use; a report looks up names and loads none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dpsgd_audit.face import ByName

if TYPE_CHECKING:
    from distinguishers.contract import Distinguisher, Learner

DISTINGUISHERS: Mapping[str, Callable[..., Distinguisher | Learner]] = ByName(
    "distinguishers",
    "likelihood_ratio",
    "normality_test",
    "max_coordinate",
    "largest_round",
    "projection",
    "norm",
    "ratio",
    "contrast",
    "battery",
    "default_battery",
    "fit",
)
"""Distinguishers, and learners of them, by the names that suites use."""
