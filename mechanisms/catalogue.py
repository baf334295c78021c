"""Mechanisms and neighbours by the names that suites use; a report looks up names and loads none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from dpsgd_audit.face import ByName

if TYPE_CHECKING:
    from mechanisms.contract import BatchMechanism, Mechanism
    from mechanisms.pairs.neighbours import Neighbours

MECHANISMS: Mapping[str, Callable[..., Mechanism | BatchMechanism]] = ByName(
    "mechanisms",
    "one_round",
    "collapsed_round",
    "many_rounds",
    "gaussian_mechanism",
    "laplace_mechanism",
    "randomised_response_mechanism",
    "opacus_step",
    "optax_step",
    "jax_privacy_step",
    "command_step",
    "callable_step",
    "jax_training",
    "torch_training",
    "flax_step",
)
"""Mechanisms by the names that suites use."""

COLLAPSED: Mapping[str, str] = MappingProxyType({"collapsed_rounds": "many_rounds"})
"""Fast forms that suites name by the mechanism itself and ``simulator = "collapsed"``."""

FOREIGN_PAIRS = ("exchanged_pair", "labelled_pair")
"""Pairs for code of others, which Python imports from ``mechanisms.pairs.foreign_pairs``."""

NEIGHBOURS: Mapping[str, Callable[..., Neighbours]] = ByName(
    "mechanisms",
    "worst_case_pair",
    "opposite_pair",
    "orthogonal_pair",
    "zero_pair",
    "scalar_pair",
    "bit_pair",
    "image_pair",
) | ByName("mechanisms.pairs.foreign_pairs", *FOREIGN_PAIRS)
"""Constructions of neighbouring datasets by the names that suites use."""
