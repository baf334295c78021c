"""Shuffled epochs and other batch samplers: exact curves, bounds and asymptotics."""

from guarantees.shuffling.adaptive import adaptive_shuffle
from guarantees.shuffling.balls_and_bins import DeltaEstimate, balls_and_bins, balls_and_bins_estimate
from guarantees.shuffling.berry_esseen import (
    BerryEsseenBound,
    coefficient_ratio,
    coefficient_ratio_midpoint,
    edgeworth_cdf,
    largest_delta,
    largest_noise_multiplier,
    poisson_mu,
    rounds_needed,
    shuffle_berry_esseen,
    shuffle_mu,
)
from guarantees.shuffling.fixed_batch import fixed_batch_bracket, fixed_batch_shuffle
from guarantees.shuffling.fixed_batch_bounds import deterministic_batches, fixed_batch_event
from guarantees.shuffling.guarantee import fixed_batch_upper
from guarantees.shuffling.isolated import isolated_bracket, isolated_shuffle
from guarantees.shuffling.lognormal_lattice import Bracket
from guarantees.shuffling.max_coordinate import fixed_point_separation, max_coordinate

__all__ = [
    "BerryEsseenBound",
    "Bracket",
    "DeltaEstimate",
    "adaptive_shuffle",
    "balls_and_bins",
    "balls_and_bins_estimate",
    "coefficient_ratio",
    "coefficient_ratio_midpoint",
    "deterministic_batches",
    "edgeworth_cdf",
    "fixed_batch_bracket",
    "fixed_batch_event",
    "fixed_batch_shuffle",
    "fixed_batch_upper",
    "fixed_point_separation",
    "isolated_bracket",
    "isolated_shuffle",
    "largest_delta",
    "largest_noise_multiplier",
    "max_coordinate",
    "poisson_mu",
    "rounds_needed",
    "shuffle_berry_esseen",
    "shuffle_mu",
]
