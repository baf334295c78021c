"""Words shared by all parts of the toolkit: relations, units, directions, normalisers."""

from __future__ import annotations

from typing import Literal, get_args

PairRelation = Literal["add_remove", "zero_out", "substitution"]
"""How two neighbouring data sets differ."""
PAIR_RELATIONS: tuple[PairRelation, ...] = get_args(PairRelation)
"""All relations of a pair of data sets."""
Relation = Literal["any", "add_remove", "zero_out", "substitution"]
"""Neighbours for which a promise holds."""
RELATIONS: tuple[Relation, ...] = get_args(Relation)
Unit = Literal["step", "epoch", "training", "release"]
"""How much output a promise covers; a ``release`` is whatever is published at once, one step or a training."""
Direction = Literal["both", "with_given_without", "without_given_with"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
Normaliser = Literal["none", "expected_batch", "realised_batch", "floored_expected_batch"]
"""What the noisy sum is divided by: SGM, EASGM, ASGM, FEASGM."""
NORMALISERS: tuple[Normaliser, ...] = get_args(Normaliser)
"""Every normaliser."""
ASKED_DELTAS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Deltas at which a library's accountant is asked for epsilon; together the answers come close to its curve."""
