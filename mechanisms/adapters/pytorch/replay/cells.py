"""What is known of each piece of memory, and of one operation on some: data, noise, and what covered them."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from mechanisms.adapters.noise_terms import Terms
from mechanisms.adapters.pytorch.replay.stacks import Stack
from mechanisms.adapters.pytorch.replay.storages import covers, elements, laid, nothing, seen, variance_in
from mechanisms.adapters.pytorch.replay.weights import Number, Weight

PURGE_EVERY = 4096
EITHER = ("data", "ragged", "summed", "mixed", "bent", "bounded", "copied", "left", "left_sum", "noised", "drowned")
EITHER += ("changed", "carried", "divided", "stepped", "shared", "drawn", "uneven", "scaled", "released", "opaque")
"""What a storage has of the part that was written, or else of the rest."""
BESIDE = {"mixed_by": "mixed", "bent_sum": "bent", "each": "bounded", "resized": "bounded", "scale_of": "scaled"}
BESIDE |= {"opaque_by": "opaque"}
"""Facts that go with another one: when a part of a storage is written, both come from the same side of the merge."""
ROUNDING = 1e-6
"""Relative difference below which two variances count as the same."""


@dataclasses.dataclass(frozen=True)
class Divided:
    """A division by a number of records, and that number without the record and with it."""

    where: Stack
    numbers: tuple[int, int]


@dataclasses.dataclass(eq=False)
class Event:
    """One release: how far the two sides were apart where noise met data, and that noise."""

    stack: Stack
    origin: Stack
    draw: Stack
    round: int
    difference: torch.Tensor
    terms: Terms
    """The release's noise as a linear map of independent numbers."""
    shared: Stack = ()
    """Where one number of noise came to stand in several coordinates."""
    mixed: Stack = ()
    mixed_by: Stack = ()
    bent: Stack = ()
    bent_sum: Stack = ()
    bends: frozenset[Stack] = frozenset()
    carried: Stack = ()
    bounded: Stack = ()
    measured: Stack = ()
    copied: Stack = ()
    divided: Divided | None = None
    each: bool = False
    resized: tuple[tuple[Stack, float], ...] = ()
    sized: tuple[Stack, ...] = ()
    uneven: Stack = ()
    weights: tuple[Weight, ...] = ()
    added: Stack = ()
    lengths: tuple[float, ...] = ()
    """How long the record was in each part that was added up there."""
    raw: Stack = ()
    """Where data that nothing had bounded were added after the noise, to a sum of bounded records."""
    covering: frozenset[int] = frozenset()
    """Numbers of the draws that make its noise."""
    choosing: frozenset[int] = frozenset()
    """Numbers of the draws that went into what the noise covers, those of earlier releases among them."""
    moved: bool = False
    """Whether the record moves the release at all."""
    standard: torch.Tensor | None = None
    """A part of the noise, divided by its deviation."""
    result: torch.Tensor | None = None
    """The released value."""
    consumed: bool = False
    exact: bool = True
    superseded: bool = False
    """Whether the release is only seen as a part of another."""
    told: bool = False
    """Whether it is a sum whose records brought their noise along, released where it was told."""
    parts: tuple[Event, ...] = ()
    """The releases of which it is a sum."""

    @functools.cached_property
    def variance(self) -> torch.Tensor:
        """Variance of the noise."""
        return variance_in(self.terms)

    @property
    def leaves(self) -> set[Event]:
        """The releases of which it is made in the end, or itself."""
        return set().union(*(part.leaves for part in self.parts)) or {self}

    @property
    def known(self) -> bool:
        """Whether the noise's deviation is known everywhere that the record moves."""
        return self.exact and bool(torch.isfinite(self.variance).all())


@dataclasses.dataclass(eq=False)
class Cell:
    """Of one storage."""

    data: bool = False
    ragged: bool = False
    """Its shape is not the other side's: single records are still apart."""
    summed: Stack = ()
    """Where records were last summed."""
    mixed: Stack = ()
    """Where one record changed the values of others."""
    mixed_by: Stack = ()
    """Where the number was made of all of them that did it, if it was one."""
    bent: Stack = ()
    """Where a sum over records went through something that is not linear."""
    bent_sum: Stack = ()
    """Where that sum was made: there may be another one after it."""
    bends: frozenset[Stack] = frozenset()
    """Every place where data on its way here went through something that is not linear."""
    bounded: Stack = ()
    """The last place where data on its way here went through something that is not linear."""
    each: bool = False
    """Whether that place bounds every coordinate by itself."""
    resized: tuple[tuple[Stack, float], ...] = ()
    """Where it was multiplied by a number after that, and by which."""
    measured: Stack = ()
    """Where the number was made by which records were multiplied there, if it is not known how."""
    joined: Stack = ()
    """Where parts of records were last put together."""
    copied: Stack = ()
    """Where the record came to have several rows, as far as it still has them or had them when they were summed."""
    graded: bool = False
    """Whether a backward pass made it, or something that it is made of."""
    passed: int = -1
    """The number of the backward pass that made it, if one did."""
    row: int | None = None
    """Index of the record's row, if known."""
    alone: bool = False
    """Whether it is made of the record alone, and the other side lacks it."""
    numbers: tuple[Number, ...] = ()
    """Numbers of the record's own from which it is made, if it is made of nothing else."""
    weights: tuple[Weight, ...] = ()
    """By what the record in it was multiplied."""
    added: Stack = ()
    """Where parts of a sum were added up that hold the record, each multiplied by itself."""
    lengths: tuple[float, ...] = ()
    """How long the record was in each of them."""
    left: Stack = ()
    """Where a part of a sum stayed, or became again, without the noise that the rest has."""
    left_sum: Stack = ()
    """Where that sum was made."""
    noised: Stack = ()
    """Where noise met single records."""
    drowned: Stack = ()
    """Where they last went through something that is not linear after that, as clipping is."""
    stepped: Stack = ()
    """Where a weight was first changed by data without noise, as by an optimizer's step."""
    changed: Stack = ()
    """Where a released value met raw data."""
    round: int = 0
    """The round in which records were summed."""
    carried: Stack = ()
    """Where a sum of an earlier round was added to a later one."""
    divided: Divided | None = None
    """Where a sum of records was last divided by a number of records."""
    terms: Terms | None = None
    """The noise of each element of the storage; None where it has none."""
    shared: Stack = ()
    """Where one of them came to stand in several elements."""
    drawn: Stack = ()
    """Where its noise was drawn; of places of records, where they were made."""
    sized: tuple[Stack, ...] = ()
    """Where its deviation was changed after the draw, the last place first."""
    uneven: Stack = ()
    """Where noise that was the same everywhere became more in some places than in others."""
    scaled: Stack = ()
    """Where noise first differed between the two sides."""
    scale_of: Stack = ()
    """Where the records were summed that it was scaled by, if it was by a tensor of theirs."""
    draws: frozenset[int] = frozenset()
    released: bool = False
    events: tuple[Event, ...] = ()
    meeting: tuple[Any, ...] = ()
    """The slot in which noise and data were added to it, where nothing but that was done."""
    margin: float | None = None
    """Of one truth value: by how much what was compared is larger."""
    opaque: bool = False
    """Randomness or data came here by a way that is not followed."""
    opaque_by: tuple[str, Stack] = ("", ())
    """The first operation on that way, in words, and where it was called."""

    @property
    def noise(self) -> bool:
        """Whether it holds noise and nothing of the data."""
        return self.terms is not None and not self.data

    @property
    def shares(self) -> bool:
        """Whether single records brought noise along, which is known still: what is told of their sum is a release."""
        return self.data and bool(self.noised) and self.terms is not None

    @property
    def covered(self) -> bool:
        """Whether it holds releases and nothing that was not covered."""
        return self.released and not self.data

    def looked_over(self, where: Stack) -> Cell:
        """The same after something was done to its noise: whether that made it uneven."""
        if self.terms is None:
            return self
        variance = variance_in(self.terms)
        least, most = torch.aminmax(variance) if variance.numel() else (0.0, 0.0)
        even = bool(most - least <= ROUNDING * most)
        return dataclasses.replace(self, uneven=() if even else self.uneven or where)


class Memory:
    """Cells by storage. Storages are held weakly: nothing is kept alive, and no address is taken for another."""

    def __init__(self) -> None:
        self._cells: dict[int, tuple[StorageWeakRef, Cell]] = {}
        self._puts = 0

    def get(self, tensor: torch.Tensor) -> Cell | None:
        """What is known of a tensor's memory; None for constants."""
        try:
            found = self._cells.get(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):
            return None
        return None if found is None else found[1]

    def put(self, tensor: torch.Tensor, cell: Cell | None) -> None:
        """Set what is known of a tensor's memory."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return
        if cell is None:
            self._cells.pop(storage._cdata, None)
            return
        self._cells[storage._cdata] = (StorageWeakRef(storage), cell)
        self._puts += 1
        if self._puts % PURGE_EVERY == 0:
            gone = [key for key, (reference, _) in self._cells.items() if reference.expired()]
            for key in gone:
                del self._cells[key]


def terms_of(cell: Cell | None, tensor: torch.Tensor) -> Terms:
    """The noise in each element of a tensor."""
    return nothing(*tensor.shape) if cell is None or cell.terms is None else seen(cell.terms, tensor)


def overwritten(old: Cell | None, out: torch.Tensor, where: Stack) -> Cell | None:
    """What is known of a storage when constants were written over all or a part of it."""
    if old is None or covers(out):
        return None
    if old.terms is None:
        return old
    return dataclasses.replace(old, terms=laid(out, nothing(*out.shape), old.terms)).looked_over(where)


def merged(new: Cell, old: Cell | None, out: torch.Tensor, where: Stack) -> Cell:
    """What is known of a storage when a part of it was written and the rest is as it was."""
    if old is None:
        return new
    terms = None
    if new.terms is not None or old.terms is not None:
        terms = laid(out, terms_of(new, out), nothing(elements(out)) if old.terms is None else old.terms)
    kept = {name: getattr(new, name) or getattr(old, name) for name in EITHER}
    kept |= {name: getattr(new if getattr(new, of) else old, name) for name, of in BESIDE.items()}
    found = Cell(
        **kept,
        bends=new.bends | old.bends,
        weights=tuple(dict.fromkeys((*old.weights, *new.weights))),
        round=max(new.round, old.round),
        terms=terms,
        sized=tuple(dict.fromkeys((*new.sized, *old.sized))),
        draws=new.draws | old.draws,
        events=tuple(dict.fromkeys((*new.events, *old.events))),
    )
    if (new.covered and old.data) or (old.covered and new.data):
        found.left, found.left_sum = found.left or where, found.left_sum or found.summed
    return found.looked_over(where)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation:
    """Its name and arguments, one of its results, and where it was called."""

    name: str
    args: tuple[Any, ...]
    before: tuple[Any, ...]
    """The arguments as they were, where the operation writes over one that is still needed."""
    kwargs: dict[str, Any]
    out: torch.Tensor
    known: dict[int, Cell | None]
    pairs: list[tuple[torch.Tensor, Cell]]
    """Tensors of which something is known; the others are constants."""
    where: Stack

    @property
    def cells(self) -> list[Cell]:
        """Cells of all arguments that are not constants."""
        return [cell for _, cell in self.pairs]

    @property
    def draws(self) -> frozenset[int]:
        """Numbers of all draws that went into the arguments."""
        return frozenset().union(*(cell.draws for cell in self.cells))

    @property
    def data(self) -> bool:
        """Whether records reach it."""
        return any(cell.data for cell in self.cells)

    @property
    def opaque(self) -> bool:
        """Whether something reached it by a way that is not followed."""
        return any(cell.opaque for cell in self.cells)

    @property
    def events(self) -> tuple[Event, ...]:
        """Releases from which the arguments are made."""
        return tuple(dict.fromkeys(event for cell in self.cells for event in cell.events))

    def cell(self, part: Any) -> Cell | None:
        """What was known of an argument."""
        return self.known.get(id(part))

    def variance(self, part: torch.Tensor) -> torch.Tensor:
        """Of the noise in each element of an argument; NaN where it is there and not known."""
        return variance_in(self.terms(part))

    def terms(self, part: torch.Tensor) -> Terms:
        """The noise of an argument as a sum of independent numbers."""
        return terms_of(self.cell(part), part)
