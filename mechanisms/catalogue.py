"""Mechanisms and neighbours by the names that suites use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mechanisms.adapters.for_callable import callable_step
from mechanisms.adapters.for_command import command_step
from mechanisms.adapters.for_flax import flax_step
from mechanisms.adapters.for_jax import jax_training
from mechanisms.adapters.for_jax_privacy import jax_privacy_step
from mechanisms.adapters.for_optax import optax_step
from mechanisms.adapters.torch.for_opacus import opacus_step
from mechanisms.adapters.torch.for_torch import torch_training
from mechanisms.contract import BatchMechanism, Mechanism
from mechanisms.pairs.gradient_pairs import opposite_pair, orthogonal_pair, worst_case_pair, zero_pair
from mechanisms.pairs.images import image_pair
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.simulators.one_round import collapsed_round, one_round
from mechanisms.simulators.textbook import (
    bit_pair,
    gaussian_mechanism,
    laplace_mechanism,
    randomised_response_mechanism,
    scalar_pair,
)
from mechanisms.simulators.training import many_rounds

MECHANISMS: Mapping[str, Callable[..., Mechanism | BatchMechanism]] = MappingProxyType(
    {
        "one_round": one_round,
        "collapsed_round": collapsed_round,
        "many_rounds": many_rounds,
        "gaussian_mechanism": gaussian_mechanism,
        "laplace_mechanism": laplace_mechanism,
        "randomised_response_mechanism": randomised_response_mechanism,
        "opacus_step": opacus_step,
        "optax_step": optax_step,
        "jax_privacy_step": jax_privacy_step,
        "command_step": command_step,
        "callable_step": callable_step,
        "jax_training": jax_training,
        "torch_training": torch_training,
        "flax_step": flax_step,
    }
)
"""Mechanisms by the names that suites use."""

COLLAPSED: Mapping[str, str] = MappingProxyType({"collapsed_rounds": "many_rounds"})
"""Fast forms that suites name by the mechanism itself and ``simulator = "collapsed"``."""

NEIGHBOURS: Mapping[str, Callable[..., Neighbours]] = MappingProxyType(
    {
        "worst_case_pair": worst_case_pair,
        "opposite_pair": opposite_pair,
        "orthogonal_pair": orthogonal_pair,
        "zero_pair": zero_pair,
        "scalar_pair": scalar_pair,
        "bit_pair": bit_pair,
        "image_pair": image_pair,
    }
)
"""Constructions of neighbouring datasets by the names that suites use."""
