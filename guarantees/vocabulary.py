"""Words that every part of the toolkit shares: relations, units, directions, normalisers."""

from __future__ import annotations

from typing import Literal, get_args

PairRelation = Literal["add_remove", "zero_out", "substitution"]
"""How two neighbouring data sets differ."""
PAIR_RELATIONS: tuple[PairRelation, ...] = get_args(PairRelation)
"""Every way."""
Relation = Literal["any", "add_remove", "zero_out", "substitution"]
"""Which neighbours a promise speaks about."""
RELATIONS: tuple[Relation, ...] = get_args(Relation)
Unit = Literal["step", "epoch", "training", "release"]
"""How much output a promise covers; a release is whatever is released at once, be it one step or a training."""
Direction = Literal["both", "with_given_without", "without_given_with"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
Normaliser = Literal["none", "expected_batch", "realised_batch", "floored_expected_batch"]
"""What the noisy sum is divided by: SGM, EASGM, ASGM, FEASGM."""
NORMALISERS: tuple[Normaliser, ...] = get_args(Normaliser)
"""Every normaliser."""
ASKED_DELTAS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Where a library's accountant is asked for epsilon: its answers together are near the curve that it computes."""
