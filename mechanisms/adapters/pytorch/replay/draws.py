"""Random numbers, drawn once and handed to every run (a longer draw begins with the shorter one), and their seeds."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

import torch

from mechanisms.adapters.joining_rate import LARGEST_UNIFORM
from mechanisms.adapters.pytorch.replay.records import Place
from mechanisms.adapters.pytorch.replay.stacks import Stack, stack
from mechanisms.adapters.watched_calls import calls_told_to

CONTINUOUS = frozenset(
    {"normal_", "normal", "randn", "randn_like", "rand", "rand_like", "uniform_", "exponential_", "log_normal_"}
    | {"cauchy_", "geometric_", "poisson", "binomial", "_standard_gamma"}
)
"""Draws of which noise may be made."""
SELECTING = frozenset(
    {"bernoulli", "bernoulli_", "randperm", "randint", "randint_like", "random_", "multinomial", "native_dropout"}
    | {"_fused_dropout"}
)
"""Draws that choose records or units."""
DRAWS = CONTINUOUS | SELECTING
PLACING = frozenset(("randint", "randint_like", "random_", "multinomial"))
"""Draws of places of records, possibly with replacement."""
UNIFORM = frozenset(("rand", "rand_like", "uniform_"))
COINS = frozenset(("bernoulli", "bernoulli_"))

Slot = tuple[Any, ...]
SEEDING = frozenset(("manual_seed", "seed", "set_state"))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Draw:
    """One call of a generator."""

    number: int
    name: str
    """Name of the drawing operation."""
    slot: Slot
    """Slot by which every run finds the draw."""
    stack: Stack
    round: int
    """Round in which it was made."""
    entries: int
    """Number of random numbers that it gave."""
    picks: bool
    """Whether it can choose records: a number for each of them, or places of some."""
    state: int | None
    """State of the generator before the call; None if it drew from no generator that can be asked."""
    seed: int | None = None
    """Seed that the generator was last given."""
    seeded: Stack = ()
    """Where the generator was seeded, if that was watched."""
    rate: float | None = None
    """The probability with which it is one for the record, where the call is given that."""


class Bank:
    """The values of every draw by its slot, and what the draws of the extra record are.

    ``taken`` is the uniform number with which a Poisson sampler takes the record; None leaves that to chance.
    ``company`` says of the first other records whether it takes them; the rest is left to chance.
    """

    def __init__(self, place: Place | None = None, *, taken: float | None = 0.0, company: tuple[bool, ...] = ()):
        self._values: dict[Slot, torch.Tensor] = {}
        self.place, self.taken, self._company = place, taken, company
        self.level: dict[Slot, dict[torch.Size, torch.Tensor]] = {}
        """Places that give every record the same numbers, and what these are by their shape."""
        self._begun: dict[Slot, int] = {}
        """In which phase each place first drew one number."""
        self.in_company = False
        """Whether a draw was made to take or leave other records."""
        self.permuted = False
        """Whether an order of records was drawn."""

    def __contains__(self, slot: Slot) -> bool:
        return slot in self._values

    def changed(self, slot: Slot, number: float, place: int | None = None) -> Bank:
        """The same values, except another number for the record in one draw, or for what is in that place."""
        assert self.place is not None
        copy = self._copy()
        value = copy._values[slot] = self._values[slot].clone()
        value.view(-1)[(self.place.index if place is None else place) if value.numel() > 1 else 0] = number
        return copy

    def scaled(self, factors: Mapping[Slot, float]) -> Bank:
        """The same values, with those of some draws multiplied."""
        copy = self._copy()
        copy._values |= {slot: self._values[slot] * by for slot, by in factors.items() if slot in self._values}
        return copy

    def _copy(self) -> Bank:
        copy = Bank(self.place, taken=self.taken, company=self._company)
        copy._values, copy.level = dict(self._values), self.level
        return copy

    def picks(self, name: str, value: torch.Tensor) -> bool:
        """Whether a draw can choose records; an order of all of them leaves none out."""
        if self.place is None or name == "randperm":
            return False
        each = value.numel() in (self.place.records, self.place.records + 1)
        return each or (not value.is_floating_point() and value.dtype != torch.bool and value.numel() > 1)

    def settle(self, slot: Slot, name: str, value: torch.Tensor) -> None:
        """Make ``value``, just drawn, the one that every run gets in this slot; the longest is kept."""
        known = self._values.get(slot)
        self.permuted |= name == "randperm"
        if (level := self.level.get(slot[1:3])) is not None and value.numel() and value.dim():
            value.copy_(level.setdefault(value.shape[1:], value[0].clone()))
            return
        if known is None:
            self._choose(name, value, self._wanted(value, slot))
            self._values[slot] = value.clone()
            return
        if known.shape == value.shape:
            value.copy_(known)
            return
        if name == "randperm":
            self._permute(slot, known, value)
            return
        axes = [
            axis for axis in range(value.dim()) if known.dim() == value.dim() and known.size(axis) != value.size(axis)
        ]
        if len(axes) != 1:
            return
        axis, common = axes[0], min(known.size(axes[0]), value.size(axes[0]))
        value.narrow(axis, 0, common).copy_(known.narrow(axis, 0, common))
        if value.size(axis) > known.size(axis):
            self._choose(name, value, {common: True} if self._wanted(value, slot) else {})
            self._values[slot] = value.clone()

    def _wanted(self, value: torch.Tensor, slot: Slot) -> dict[int, bool]:
        """Which numbers of a draw are to take a record, and which to leave it out.

        One has a number for each record, in a row, a column or any other shape with one long axis; or a loop over
        records draws one number for each.
        """
        many = value.numel()
        if self.place is None or self.taken is None:
            return {}
        records, own = self.place.records, self.place.index
        company = dict(zip((place for place in range(records) if place != own), self._company, strict=False))
        if many == max(value.shape, default=0) and many in (records, records + 1):
            found = {place: taken for place, taken in {**company, own: True}.items() if place < many}
        elif many == 1:
            phase, *where, passed = slot
            # noise that meets data inside of the loop begins the count anew
            begun = self._begun.setdefault((*where,), phase) == phase
            found = {**(company if begun else {}), own: True}
            found = {0: found[passed - 1]} if passed - 1 in found else {}
        else:
            found = {}
        return found

    def _choose(self, name: str, value: torch.Tensor, wanted: dict[int, bool]) -> None:
        """Let a Poisson sampler take the record, and leave others: a batch without it shows nothing of what it does."""
        if name in UNIFORM and value.is_floating_point():
            takes = self.taken or 0.0
            leaves = LARGEST_UNIFORM - takes
        elif name in COINS:
            takes, leaves = 1, 0
        else:
            return
        for place, taken in wanted.items():
            value.view(-1)[place] = takes if taken else leaves
        self.in_company |= bool(wanted and self._company)

    def _permute(self, slot: Slot, known: torch.Tensor, value: torch.Tensor) -> None:
        """The order of fewer records is that of more without the others."""
        if len(known) > len(value):
            value.copy_(known[known < len(value)])
        else:
            value.copy_(torch.cat([known, torch.arange(len(known), len(value), dtype=known.dtype)]))
            self._values[slot] = value.clone()


def cut_otherwise(one: Iterable[Draw], other: Iterable[Draw]) -> set[Slot]:
    """Places whose draws the two sides cut into other parts, as where one record more makes a batch be processed so.

    Then the same number is not the same record's: not even beside draws of equal length.
    """
    sides: list[dict[Slot, list[int]]] = [collections.defaultdict(list), collections.defaultdict(list)]
    for lengths, draws in zip(sides, (one, other), strict=True):
        for draw in draws:
            if draw.name != "randperm":
                lengths[draw.slot[:3]].append(draw.entries)
    found = set()
    for place in sides[0].keys() & sides[1].keys():
        both = [*itertools.zip_longest(*(lengths[place] for lengths in sides))]
        apart = [number for number, (before, after) in enumerate(both) if before != after]
        # all longer: each draw is for all records; only more of them: each is for one record, or for a few
        first = apart[0] if apart else len(both)
        if first < len(both) - 1 and None not in both[first] and (len(apart) < len(both) or None in both[-1]):
            found.add(place[1:])
    return found


def batches_drawn(draws: Iterable[Draw], place: Place | None) -> dict[int, list[Stack]]:
    """Where the batches of each round are drawn, each by a number for every record."""
    found: dict[int, list[Stack]] = collections.defaultdict(list)
    for draw in draws:
        if place is not None and draw.name in UNIFORM | COINS and draw.entries == place.records + place.added:
            found[draw.round].append(draw.stack)
    return found


def scaled_draw(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], torch.Tensor] | None:
    """A normal or uniform draw as a standard one that is scaled and moved: by how much may come from the data.

    None for other draws, and for uniform ones from 0 to 1, with which records are chosen.
    """
    written, given = (args[0], args[1:]) if name.endswith("_") else (None, args)
    if name not in ("normal", "normal_", "uniform_") or "out" in kwargs or isinstance(written, torch.nn.Parameter):
        return None
    uniform = name == "uniform_"
    words = ("from", "to") if uniform else ("mean", "std")
    given = (*given, *(0.0, 1.0)[len(given) :])
    first, second = (kwargs.get(word, one) for word, one in zip(words, given, strict=False))
    if uniform and (first, second) == (0, 1):
        return None
    shapes = [part.shape for part in (first, second) if isinstance(part, torch.Tensor)]
    like = {what: kwargs[what] for what in ("dtype", "device", "generator") if kwargs.get(what) is not None}
    if written is not None:
        shape, like = written.shape, {"dtype": written.dtype, "device": written.device, **like}
    else:
        shape = torch.broadcast_shapes(*shapes) if shapes else args[2]

    def draw() -> torch.Tensor:
        out = torch.rand(shape, **like) * (second - first) if uniform else torch.randn(shape, **like) * second
        out = out + first if isinstance(first, torch.Tensor) or first else out
        return out if written is None else written.copy_(out)

    return draw


def generator_of(kwargs: dict[str, Any]) -> torch.Generator | None:
    """The generator that a call draws from, if it is one of the processor's."""
    found = kwargs.get("generator")
    found = torch.default_generator if found is None else found
    return found if found.device.type == "cpu" else None


def rate_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], index: int) -> float | None:
    """The probability with which a draw is one in one place, where the call is given that."""
    if name not in COINS:
        return None
    rates = torch.as_tensor(kwargs.get("p", rate_given(name, args))).detach().double().expand(args[0].shape).flatten()
    return float(rates[min(index, len(rates) - 1)]) if len(rates) else None


def rate_given(name: str, args: tuple[Any, ...]) -> Any:
    """The probabilities that draws of ones and zeros are given."""
    given, *more = args
    return more[0] if more else given if name == "bernoulli" else 0.5


def state_of(generator: torch.Generator | None) -> int | None:
    """A number that two states share only if they are the same."""
    return None if generator is None else hash(generator.get_state().numpy().tobytes())


class Seedings:
    """Watches this thread's calls, which costs a run about half its time again."""

    def __init__(self) -> None:
        # by address: PyTorch wraps a generator anew for every call; kept, so that none gets the address of another
        self._places: dict[int, tuple[torch.Generator, Stack]] = {}

    def of(self, generator: torch.Generator | None) -> Stack:
        """Where this one was seeded; nowhere if it was not since the watch began."""
        return () if generator is None else self._places.get(_address(generator), (None, ()))[1]

    def watching(self) -> contextlib.AbstractContextManager[None]:
        """Watch meanwhile."""
        return calls_told_to(self._called)

    def _called(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ in SEEDING:
            generator = getattr(function, "__self__", None)
            if isinstance(generator, torch.Generator):
                self._places[_address(generator)] = generator, stack(frame)


def _address(generator: Any) -> int:
    return generator._cdata
