"""Simulators: pure JAX functions from a key and a dataset to an output."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mechanisms.adapters.for_callable import callable_step
from mechanisms.adapters.for_command import command_step
from mechanisms.adapters.for_flax import flax_step
from mechanisms.adapters.for_jax_privacy import jax_privacy_claim, jax_privacy_step
from mechanisms.adapters.for_opacus import opacus_step
from mechanisms.adapters.for_optax import optax_claim, optax_step
from mechanisms.adapters.opacus_claims import opacus_claim
from mechanisms.constructions import (
    neighbours_from_gradients,
    opposite_pair,
    orthogonal_pair,
    worst_case_pair,
    zero_pair,
)
from mechanisms.contract import OUTPUT_KINDS, BatchMechanism, Collapsed, Mechanism, OutputKind, Step, mechanism
from mechanisms.images import image_pair, read_idx
from mechanisms.neighbours import RELATIONS, GradientTable, Neighbours, Relation, materialise, prepare
from mechanisms.one_round import (
    NORMALISERS,
    CollapsedRound,
    Normaliser,
    OneRound,
    collapsed_round,
    one_round,
)
from mechanisms.textbook import (
    bit_pair,
    gaussian_mechanism,
    laplace_mechanism,
    randomised_response,
    scalar_pair,
)

CATALOGUE: Mapping[str, Callable[..., Mechanism | BatchMechanism]] = MappingProxyType(
    {
        "one_round": one_round,
        "collapsed_round": collapsed_round,
        "gaussian_mechanism": gaussian_mechanism,
        "laplace_mechanism": laplace_mechanism,
        "randomised_response": randomised_response,
        "opacus_step": opacus_step,
        "optax_step": optax_step,
        "jax_privacy_step": jax_privacy_step,
        "command_step": command_step,
        "flax_step": flax_step,
    }
)
"""Mechanisms by the names that suites use."""

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

__all__ = [
    "CATALOGUE",
    "NEIGHBOURS",
    "NORMALISERS",
    "OUTPUT_KINDS",
    "RELATIONS",
    "BatchMechanism",
    "Collapsed",
    "CollapsedRound",
    "GradientTable",
    "Mechanism",
    "Neighbours",
    "Normaliser",
    "OneRound",
    "OutputKind",
    "Relation",
    "Step",
    "bit_pair",
    "callable_step",
    "collapsed_round",
    "command_step",
    "flax_step",
    "gaussian_mechanism",
    "image_pair",
    "jax_privacy_claim",
    "jax_privacy_step",
    "laplace_mechanism",
    "materialise",
    "mechanism",
    "neighbours_from_gradients",
    "one_round",
    "opacus_claim",
    "opacus_step",
    "opposite_pair",
    "optax_claim",
    "optax_step",
    "orthogonal_pair",
    "prepare",
    "randomised_response",
    "read_idx",
    "scalar_pair",
    "worst_case_pair",
    "zero_pair",
]
