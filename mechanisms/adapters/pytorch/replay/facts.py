"""What a replay of PyTorch code saw: plain values, each with its stacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from mechanisms.adapters.pytorch.replay.cells import Event
from mechanisms.adapters.pytorch.replay.stacks import Stack
from mechanisms.adapters.pytorch.replay.weights import Weight


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fact:
    """One fact: the code of its kind, where it was seen, and the numbers that its sentence needs."""

    kind: str
    stacks: Mapping[str, Stack]
    words: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of all releases of one round together."""

    number: int
    scale: float
    """How many times larger the record was made; negative where its sign was changed."""
    sensitivity: float
    deviation: float
    multiplier: float
    own_deviation: float
    """Noise deviation of the release that costs most."""
    between: tuple[float, float]
    """Smallest and largest noise deviation of the releases."""
    lengths: tuple[float, ...]
    """How far the record moves each release."""
    before: float
    """How far it moved all of them together before any was multiplied by a number."""
    factors: tuple[tuple[Stack, float], ...]
    """Where one was, and by which."""
    largest: tuple[float, int]
    """How far the record moves one coordinate at most, and how many by about as much."""
    top: Event
    """The release that costs most: its places are reported."""
    weights: tuple[Weight, ...] = ()
    """By what the record was multiplied, if that explains how far it moves each of them."""
    parts: tuple[float, ...] = ()
    """How long the record is in each of several parts that were added up, if it was multiplied in each by itself."""
    shared: Stack = ()
    """Where coordinates came to share random numbers."""
    measured: Stack = ()
    """Where the number was made by which records were multiplied last, if it is not known how."""
    some_bounded: Stack = ()
    """Where some of them were bounded, if others were not."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """Everything that the runs of a replay showed."""

    facts: tuple[Fact, ...] = ()
    costs: tuple[Cost, ...] = ()
    draws: int = 0
    releases: int = 0
    opaque: tuple[str, ...] = ()
    read: frozenset[tuple[str, int]] = frozenset()
    """Frames that were open while records were read one by one."""
    judged: bool = True
    """Whether each round costs what is told of it: not where rounds share random numbers, as in a matrix mechanism."""
    again: bool = False
    """Whether another batch may show more, and is worth the time."""
