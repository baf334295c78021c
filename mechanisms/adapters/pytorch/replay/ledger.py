"""What one run wrote down about its operations, place by place, and comparisons with another run."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Set
from typing import Any

import torch

from mechanisms.adapters.pytorch.replay import noise, traces
from mechanisms.adapters.pytorch.replay.cells import Cell, Divided, Operation
from mechanisms.adapters.pytorch.replay.draws import COINS, Slot, rate_given
from mechanisms.adapters.pytorch.replay.records import Place
from mechanisms.adapters.pytorch.replay.stacks import Stack
from mechanisms.adapters.pytorch.replay.storages import elements
from mechanisms.adapters.pytorch.replay.weights import WHOLE, is_number

OTHER_RATE = 1e-6
"""Relative difference of two rates that is more than rounding."""
REPEATING = noise.MOVING - {"where", "masked_fill", "index_fill", "flip", "roll", "tril", "triu"}
"""What may give a record another row."""
MOST_BY_CHANCE = 2
"""Records that a rate of one over the number of records may choose otherwise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """How the records that both datasets have were chosen otherwise, although their draws are equal."""

    apart: int = 0
    of: int = 0
    rates: tuple[float, float] | None = None
    stack: Stack = ()

    @property
    def differs(self) -> bool:
        """Whether the rates are known to differ, or more records than a rate in steps may choose otherwise."""
        return self.rates is not None or self.apart > MOST_BY_CHANCE


@dataclasses.dataclass(frozen=True)
class Bend:
    """Something that is not linear: sums of its result, and where records were summed.

    What a record adds to the sum is the same among other records, unless several records were taken together before.
    """

    sums: traces.Weighed
    where: Stack
    summed: Stack
    factor: float | None = None
    """Of a multiple: by which number. It is linear unless the number depends on the records."""


class Ledger:
    """Pictures of results by slot: the place in the code, and how often it was passed since the last release."""

    def __init__(self, reference: Ledger | None, place: Place | None):
        self.reference, self._place = reference, place
        self.phase = 0
        """How often noise was added to something."""
        self._pictures: dict[Slot, traces.Picture] = {}
        self._rows: dict[Slot, traces.Rows] = {}
        self._factors: dict[Slot, float] = {}
        self._choices: dict[Slot, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self.bends: dict[Slot, Bend] = {}
        self.bent_sums: dict[Slot, torch.Tensor] = {}
        """Sums over records as they were before something that is not linear first changed them."""
        self.wanted: Set[Slot] = frozenset()
        """The same, of a run that has no reference and so cannot tell which are sums."""
        self.choice = Choice()
        self.several: Stack = ()
        """Where several rows of the record came to stand among those of the others."""
        self.normalising: set[Stack] = set()
        """Where batch normalisation mixed records."""
        self.read: dict[Stack, list[float]] = {}
        """Numbers of the data that Python read, by where it did, the last place last."""
        self._counts: collections.Counter[Slot] = collections.Counter()

    def slot(self, *what: Any) -> Slot:
        """The next slot of this place."""
        key = (self.phase, *what)
        self._counts[key] += 1
        return (*key, self._counts[key])

    def alike(self, out: torch.Tensor, where: Stack, name: str) -> bool:
        """Whether the reference saw the same result here, as far as it can be compared."""
        if not out.is_floating_point():
            return True
        slot = self.slot(where, name, "value")
        seen = self._pictures[slot] = traces.picture(out)
        other = None if self.reference is None else self.reference._pictures.get(slot)
        return other is None or other.shape != seen.shape or seen.like(other, 0.1 * traces.tolerance(out))

    def bend(self, done: Operation, summed: Stack, factor: float | None = None) -> bool:
        """Remember the result of something that is not linear, or of a multiple by a number of Python's.

        Whether the record changes it: others have the same on both sides.
        """
        slot = self.slot(done.where, done.name, "bend")
        own = self.bends[slot] = Bend(traces.weighed(done.out), done.where, summed, factor)
        other = None if self.reference is None else self.reference.bends.get(slot)
        return other is None or other.sums != own.sums

    def bend_first(self, done: Operation, *, first: bool) -> None:
        """Remember the sums over records that something not linear is about to change, if it is the first."""
        for number, part in enumerate(done.args):
            slot = self.slot(done.where, done.name, "sum", number)
            cell = done.cell(part) if first else None
            if slot in self.wanted or (cell is not None and cell.data and cell.summed):
                self.bent_sums[slot] = part.detach().clone()

    def compare_choice(self, done: Operation) -> None:
        """Whether the records that both datasets have are chosen alike, and at the same rates."""
        if done.out.dtype != torch.bool or done.out.dim() != 1 or done.name in noise.MOVING:
            return
        rates = [part for part in done.args if isinstance(part, float | torch.Tensor) and not _drawn(part, done)]
        rate = next(iter(rates), None)
        self._choose(self.slot(done.where, done.name, "choice"), done.out, rate, done.where)

    def compare_rates(self, name: str, args: tuple[Any, ...], out: torch.Tensor, where: Stack) -> None:
        """Compare the choices of a draw that is given its rates with those of the reference."""
        if name in COINS and out.dim() == 1:
            self._choose(self.slot(where, name, "choice"), out != 0, rate_given(name, args), where)

    def _choose(self, slot: Slot, chosen: torch.Tensor, rate: Any, where: Stack) -> None:
        rates = None if rate is None else torch.as_tensor(rate).detach().double().expand(chosen.shape).clone()
        self._choices[slot] = (chosen.clone(), rates)
        known = None if self.reference is None else self.reference._choices.get(slot)
        if known is None:
            return
        other, before = known
        common = min(len(other), len(chosen))
        apart = int((other[:common] != chosen[:common]).sum())
        if rates is not None and before is not None:
            before, rates = self._of_others(before, common), self._of_others(rates, common)
            change = (rates / before - 1).abs() if before.shape == rates.shape else torch.zeros(1)
            if bool((change > OTHER_RATE).any()):
                most = int(change.argmax())
                told = float(before[most]), float(rates[most])
                self.choice = Choice(apart=apart, of=common, rates=told, stack=where)
                return
        if apart > self.choice.apart:
            self.choice = Choice(apart=apart, of=common, stack=where)

    def _of_others(self, rates: torch.Tensor, common: int) -> torch.Tensor:
        """Without that of the record, which may have one of its own."""
        own, added = (common, True) if self._place is None else (self._place.index, self._place.added)
        return rates if added and len(rates) == common else torch.cat([rates[:own], rates[own + 1 :]])

    def number(self, value: float, where: Stack) -> None:
        """Data became a number of Python's."""
        numbers = self.read.pop(where, [])
        self.read[where] = numbers
        numbers.append(value)

    def read_otherwise(self) -> list[Stack]:
        """Where other numbers were read than in the reference, beside those that one more record adds."""
        if self.reference is None or self._place is None or not self._place.added:
            return []
        before = self.reference.read
        return [where for where, numbers in self.read.items() if not _among(before.get(where, []), numbers)]

    def other_factor(self, done: Operation) -> bool:
        """Whether a number scales a result by more or less than in the reference; one of Python's must be no count.

        Also where the reference has none, as in one more turn of a loop, and more than the record is scaled.
        """
        drawn = next((float(part) for part, cell in done.pairs if part.numel() == 1 and not cell.data), None)
        factor = next((part for part in (*done.args, done.kwargs.get("alpha")) if isinstance(part, float)), drawn)
        if done.name not in noise.SCALING | noise.ADDING or factor is None:
            return False
        slot = self.slot(done.where, done.name, "factor")
        self._factors[slot] = factor
        other = None if self.reference is None else self.reference._factors.get(slot)
        if self.reference is not None and other is None:
            scaled = done.cell(done.args[1] if done.name in noise.ADDING else done.args[0])
            return drawn is None and scaled is not None and bool(scaled.summed) and not scaled.alone
        if not other or not factor or abs(factor / other - 1) < traces.TOLERANCE:
            return False
        if drawn is not None:
            return True
        # n and n + 1 records, or the other way round
        count = 1 / abs(factor / other - 1)
        return min(count % 1, -count % 1) > 1e-3

    def other_number(self, done: Operation) -> tuple[float, float] | None:
        """The number of Python's by which a result is scaled, in the reference and here, if they are not the same."""
        given = [part for part in done.args if is_number(part)]
        if done.name not in noise.SCALING or len(given) != 1:
            return None
        slot = self.slot(done.where, done.name, "scale")
        self._factors[slot] = own = float(given[0])
        other = None if self.reference is None else self.reference._factors.get(slot)
        return None if other is None or other == own else (other, own)

    def divided(self, done: Operation) -> Divided | None:
        """Whether a result is divided by a number that is one more, or one less, with the record."""
        numbers = self.other_number(done)
        if numbers is None or not all(numbers):
            return None
        before, own = numbers if done.name.startswith("div") else (1 / one for one in numbers)
        counts = round(before), round(own)
        near = abs(before - counts[0]) + abs(own - counts[1]) < traces.TOLERANCE
        return Divided(done.where, counts) if near and abs(counts[0] - counts[1]) == 1 else None

    def compare_rows(self, done: Operation, found: Cell, ragged: bool) -> None:
        """Whether records are still apart in a result, and whether one has changed the values of others."""
        slot = self.slot(done.where, done.name, "rows")
        if self.reference is None:
            self._rows[slot] = traces.rows(done.out)
            return
        other = self.reference._rows.get(slot)
        if other is None:
            found.row = WHOLE
            return
        shape = tuple(done.out.shape)
        found.ragged = other.shape != shape
        if ragged and not found.ragged:
            found.summed = done.where
        if found.ragged and other.shape[1:] == shape[1:]:
            made = next((cell.drawn for cell in done.cells if cell.drawn and not cell.data), done.where)
            # a backward pass under vmap has a row for each channel of a record
            copies = found.copied or (made if done.name in REPEATING else ())
            found.copied = copies if shape[0] > other.shape[0] + 1 else ()
            rows = traces.rows(done.out)
            apart = traces.rows_that_differ(other, rows, traces.tolerance(done.out))
            # several rows of the record may stand between those of the others
            beside = bool(found.copied) and _among(other.totals.tolist(), rows.totals.tolist())
            self.several = self.several or (found.copied if apart.any() and beside else ())
            self._mix(done, found, mixes=bool(apart.any()) and not beside)
            # where the rows of others differ, it stands where it stood before
            before = [cell.row for _, cell in done.pairs if cell.row in range(shape[0])]
            first = int(apart.int().argmax()) if apart.any() else len(done.out) - 1
            inserted = not apart.any() or traces.rows_follow(other, rows, first)
            found.row = first if inserted or not before else before[0]
        elif not found.ragged and not found.summed:
            self._mix(done, found, mixes=_most_rows_differ(other, done.out))

    def _mix(self, done: Operation, found: Cell, *, mixes: bool) -> None:
        if not mixes:
            found.mixed = found.mixed_by = ()
        elif not found.mixed:
            if "batch_norm" in done.name:
                self.normalising.add(done.where)
            # one number that is spread over all records is still one
            by = [
                (min(part.numel(), elements(part)), one.summed)
                for part, one in done.pairs
                if one.data and not one.ragged
            ]
            found.mixed, (_, found.mixed_by) = done.where, min(by, default=(0, ()))

    def row_of_number(self, done: Operation) -> int | None:
        """The record's row of one number: ``WHOLE`` if the reference has no such number here, otherwise None."""
        slot = self.slot(done.where, done.name, "number")
        if self.reference is None:
            self._rows[slot] = traces.rows(done.out.reshape(1))
            return None
        return None if slot in self.reference._rows else WHOLE


def _among(some: list[float], numbers: list[float]) -> bool:
    """Whether numbers hold some in their order, beside others."""
    rest = iter(numbers)
    return all(any(abs(one - own) <= traces.TOLERANCE * max(abs(one), abs(own)) for own in rest) for one in some)


def _drawn(part: Any, done: Operation) -> bool:
    cell = done.cell(part) if isinstance(part, torch.Tensor) else None
    return cell is not None and cell.noise


def _most_rows_differ(other: traces.Rows, out: torch.Tensor) -> bool:
    """Of a pair that keeps its length one record's rows may differ; rows of zeros are padding."""
    seen = traces.rows(out)
    apart = traces.rows_that_differ(other, seen, traces.tolerance(out))
    there = int((torch.maximum(other.sizes, seen.sizes) > 0).sum())
    return there > 2 and int(apart.sum()) > 0.6 * there
