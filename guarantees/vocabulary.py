"""Words that every part of the toolkit shares: relations, units, directions."""

from __future__ import annotations

from typing import Literal

Relation = Literal["any", "add_remove", "zero_out", "substitution"]
RELATIONS = ("any", "add_remove", "zero_out", "substitution")
Unit = Literal["step", "epoch", "training"]
UNITS = ("step", "epoch", "training")
Direction = Literal["both", "with_given_without", "without_given_with"]
DIRECTIONS = ("both", "with_given_without", "without_given_with")
