"""What is known of a value beside its numbers: what they met, by what they were multiplied, what noise covers them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from audit.diagnosis.explain.places import Place
from audit.diagnosis.explain.wrong_lengths import Number
from mechanisms.adapters.noise_terms import Blocks, Terms, apart

Origin = Place | str
"""Where a difference comes from: a line, or what no record's values make."""


@dataclasses.dataclass(frozen=True)
class Leak:
    """Where raw data met a release."""

    at: Place
    origin: Origin
    read: Place
    """Where the function that stands there first read them."""
    muted: Place | None = None
    """Where noise that was to cover them was multiplied by zero."""
    choice: Place | None = None
    """Where they became a choice."""
    picked: bool = False
    """Whether the release says which of them to take."""


@dataclasses.dataclass(frozen=True)
class Mixed:
    """Where other records than the differing one began to differ."""

    at: Place
    through: Origin | None
    leak: Leak | None
    muted: Place | None = None
    """Where noise that was to cover that was multiplied by zero."""
    clipped: bool = False
    """Whether that is a sum of records that were multiplied by numbers of their own, as clipping does."""
    way: tuple[Place, ...] = ()
    """Where that sum went."""
    shape: tuple[int, ...] = ()
    overwritten: bool = False
    """Whether these are choices, of which the number of records overwrites one."""


@dataclasses.dataclass(frozen=True)
class Idle:
    """Raw data meet something in a number that is the same on both sides of this pair."""

    at: Place
    hidden: Place
    """Where their difference went away."""
    meets: str
    """What they meet: RECORDS, RELEASE or NOISE of ``sentences.py``."""


Slot = tuple[Any, ...]
"""One equation in one pass of a run: the same in every run of a program."""


@dataclasses.dataclass(frozen=True)
class Bent:
    """Where what the record adds began to depend on the other records."""

    at: Place
    origin: Place
    """Where records were taken together before."""
    before: tuple[Slot, ...]
    """What was read there."""


@dataclasses.dataclass(frozen=True)
class Gain:
    """By what a value was multiplied since some equation."""

    since: object
    times: float = 1.0
    made: object = dataclasses.field(default_factory=object)
    """That equation with what it read: the same where it stands twice."""


@dataclasses.dataclass(frozen=True, eq=False)
class Weight:
    """The record was multiplied by a number of its own, as clipping does; two parts may be alike in all of it."""

    at: Place
    factor: Place
    """Where that number was computed."""
    before: float
    """Length of the record."""
    after: float
    by: float
    """The number."""
    numbers: tuple[Number, ...] = ()
    """What the number is made of, such as the record's length, from what was made of entries of the record on."""
    instead: float = 0.0
    """Length, after that, of what the other side has in the record's place."""


@dataclasses.dataclass(frozen=True)
class Scaled:
    """Noise was multiplied by something that is not the same on both sides."""

    at: Place
    since: Place | None
    """Where that began to differ; None where it is a constant of the program."""
    what: str
    """What it depends on."""


@dataclasses.dataclass(frozen=True)
class Resized:
    """Noise was multiplied by a number, or made into numbers of another law."""

    at: Place
    before: float
    """Its deviation."""
    times: float | None
    """None where the law changed, as by rounding."""
    again: bool
    """Whether it was multiplied before: numbers of deviation 1 may be as large as they should be by chance."""


@dataclasses.dataclass(eq=False)
class Release:
    """Noise met data: how far the record moves it, and the variance of what covers it."""

    at: Place
    draw: Place
    origin: Origin | None
    round: tuple[Any, ...]
    first: bool
    """Whether no earlier release feeds it."""
    moved: np.ndarray
    taken: np.ndarray
    """What it covers, with the record."""
    variance: np.ndarray
    exact: bool
    blocks: Blocks = ()
    """Coordinates whose noise depends on one another's."""
    terms: Terms | None = None
    """Its noise as a linear map of independent numbers, where that is known."""
    resized: Resized | None = None
    """Where its noise was last multiplied by a number."""
    drawn: float = 0.0
    """Numbers of noise from which the variance was estimated; 0 where a program or a library's law tells it."""
    unknown: str | None = None
    """Why its cost is not judged, if it is not."""
    lost: Place | None = None
    """Where what it covers became no number."""
    correlated: bool = False
    """Whether its noise is made of noise that other releases have, too."""
    nonlinear: Place | None = None
    weights: tuple[Weight, ...] = ()
    longer: Place | None = None
    kept: Place | None = None
    filled: Place | None = None
    doubled: Place | None = None
    unclipped: Place | None = None
    cut: Place | None = None
    way: tuple[Place, ...] = ()
    inside: Place | None = None
    """The branch that it stands in."""
    summed: bool = False
    """Whether it covers a sum over records, for certain."""
    summed_by: float = 0.0
    """How far the record moves the sum over records, before anything is done to the sum."""
    bent: Bent | str | None = None
    bends: frozenset[Slot] = frozenset()
    gain: Gain = dataclasses.field(default_factory=lambda: Gain(object()))
    sampled: bool = False
    """Whether what it covers depends on draws, as a sum over a drawn batch does."""
    covering: frozenset[int] = frozenset()
    """Draws of its noise, by their numbers."""
    repeats: frozenset[int] = frozenset()
    """Those of them that gave the same numbers again, for the same release times a number."""
    choosing: frozenset[int] = frozenset()
    """Draws that went into what it covers."""
    carried: Place | None = None
    joined_again: bool = False
    shares: tuple[Release, ...] = ()
    """Releases of which this is the joint law, since their noise shares random numbers."""
    output: str = ""
    """Where it stands in the output of the program, if it does."""
    linear: bool = False
    """Whether linear maps alone lead it there."""

    @property
    def weighted(self) -> Weight | None:
        """Where the record, or the longest part of it, was multiplied by a number of its own."""
        return max(self.weights, key=lambda weight: weight.before, default=None)

    def is_given_again(self, noise: Terms | None, gain: Gain) -> bool:
        """Whether the key of its noise gives the same numbers once more, for what it covers times a number."""
        if self.terms is None or noise is None or self.terms.numbers is None or gain.made != self.gain.made:
            return False
        return np.array_equal(self.terms.numbers, noise.numbers)

    def drawn_again(self, draws: frozenset[int]) -> None:
        """Remember draws that gave its noise once more."""
        self.repeats |= draws - self.covering
        self.covering |= draws

    @property
    def cost(self) -> float:
        """Length of the difference in units of the noise: one over the multiplier."""
        return float(np.sqrt(apart(self.moved, self.variance, self.blocks)))

    @property
    def epsilon(self) -> float:
        """What it costs if its noise is Laplace noise and everything is told that it covers."""
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.abs(self.moved) / np.sqrt(self.variance / 2)
        return float(np.sum(np.nan_to_num(each, posinf=np.inf)))

    @property
    def cost_apart(self) -> float:
        """The same if no coordinate's noise depended on another's."""
        return float(np.sqrt(apart(self.moved, self.variance, ())))


@dataclasses.dataclass(frozen=True, eq=False)
class Open:
    """Releases that stand in a value as numbers times their coordinates."""

    releases: tuple[Release, ...]
    coordinates: Terms | None
    """Of those that nobody has seen yet; None where all of them were seen."""
    among: tuple[Terms, ...] = ()
    """Those of which this is one, as a draw or data choose."""
