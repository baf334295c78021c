"""Mechanisms and neighbours by the names that suites use; a report looks up names and loads none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from dpsgd_audit.face import ByName

if TYPE_CHECKING:
    from mechanisms.contract import BatchMechanism, Mechanism
    from mechanisms.pairs.neighbours import Neighbours

MECHANISMS: ByName[Callable[..., Mechanism | BatchMechanism]] = ByName(
    "mechanisms",
    "one_round",
    "many_rounds",
    "gaussian_mechanism",
    "opacus_step",
    "optax_step",
    "jax_privacy_step",
    "command_step",
    "callable_step",
    "jax_training",
    "torch_training",
    "flax_step",
) | ByName("mechanisms.simulators.one_round", "collapsed_round")
"""Mechanisms by the names that suites use."""

COLLAPSED: Mapping[str, str] = MappingProxyType({"collapsed_rounds": "many_rounds"})
"""Fast forms that suites request with the mechanism's name and ``simulator = "collapsed"``."""

NEIGHBOURS: ByName[Callable[..., Neighbours]] = (
    ByName("mechanisms", "worst_case_pair", "zero_pair", "scalar_pair", "image_pair")
    | ByName("mechanisms.pairs.gradient_pairs", "orthogonal_pair")
    | ByName("mechanisms.pairs.foreign_pairs", "exchanged_pair", "labelled_pair", "long_pair")
)
"""Constructions of neighbouring datasets by the names that suites use."""
