"""Which records code reads between two releases, and where it chose them."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from mechanisms.adapters.pytorch.replay import noise
from mechanisms.adapters.pytorch.replay.cells import Cell
from mechanisms.adapters.pytorch.replay.ledger import Ledger
from mechanisms.adapters.pytorch.replay.records import Place, rows_read, tensors_in
from mechanisms.adapters.pytorch.replay.stacks import Stack, stack
from mechanisms.adapters.pytorch.replay.storages import tensors_among
from mechanisms.pairs.datasets import records_of

COPYING = frozenset(("stack", "cat"))
"""What single records are put together by."""
ROW_BY_ROW = noise.ADDING | noise.SCALING | noise.SAME | {"slice", "view", "unsqueeze"}
"""What leaves every record in its row, where there are as many rows as before."""


class Reads:
    """Kept by one run, operation by operation. ``place`` is that of the pair's record."""

    def __init__(self, place: Place | None, ledger: Ledger):
        self._place, self._ledger = place, ledger
        self.batches: dict[int, set[int]] = collections.defaultdict(set)
        """Places of the records that were read between two releases."""
        self.first: Stack = ()
        """Where the first of them was."""
        self.chosen_at: Stack = ()
        """Where the places of the first batch were made."""
        self.again: tuple[Stack, int] = ((), 1)
        """Where they were made in which the record stands more than once between two releases, and how often."""
        self.sorted: list[list[int]] = []
        """Orders that what records hold puts all of them into."""
        self._dataset: list[tuple[torch.Tensor, int, bool]] = []
        self._arrays: list[tuple[np.ndarray, int]] = []
        """Arrays of all records, of which the code may make tensors, and the place of the first."""
        self._many: int | None = None
        """Records of the dataset."""
        self._places = WeakTensorKeyDictionary()
        """Where the first record of each of its tensors stands."""
        self._alone = WeakTensorKeyDictionary()
        """The same of those that hold one record each."""
        self._records = WeakTensorKeyDictionary()
        """Tensors that hold all records, each in its own row, and a number for each."""
        self._single = WeakTensorKeyDictionary()
        """Records that were read alone, and a number for each."""
        self._counted = itertools.count()
        self._used: dict[tuple[int, str, Stack], collections.Counter[int]] = collections.defaultdict(
            collections.Counter
        )
        """How often each record was read or used alone, between two releases and at one place."""
        self._whole: set[int] = set()
        """Between which releases all records were taken over, and none of them singly so far."""
        self._repeated: Stack = ()
        self._parts: dict[tuple[int, int, int], set[int]] = collections.defaultdict(set)

    def mark(self, dataset: Any) -> Iterator[torch.Tensor]:
        """This holds the records, in these tensors."""
        self._many = records_of(dataset)
        for tensor, first, alone in tensors_in(dataset):
            if isinstance(tensor, np.ndarray):
                self._arrays += [] if alone else [(tensor, first)]
                continue
            self._dataset.append((tensor, first, alone))
            self._places[tensor] = first
            if alone:
                self._alone[tensor] = first
            else:
                self._records[tensor] = next(self._counted)
            yield tensor

    def lifted(self, tensor: torch.Tensor) -> None:
        """A tensor was made: of an array that holds all records, it does so, too."""
        made = tensor.numpy()
        for array, first in self._arrays:
            if array.ndim and array.shape == made.shape and bool(((array == made) | (array != array)).all()):
                self._records[tensor], self._places[tensor] = next(self._counted), first
                return

    def note(
        self, name: str, args: Any, tensors: Sequence[torch.Tensor], out: Any, known: dict[int, Cell | None]
    ) -> None:
        """What an operation reads. ``known`` is what is known of its ``tensors``."""
        if self._alone and (alone := {self._alone[part] for part in tensors if part in self._alone}):
            self._read(alone, whole=False)
            self.first = self.first or stack()
        if args and isinstance(args[0], torch.Tensor) and args[0] in self._records:
            self._rows(name, args, out, known)
        elif name in COPYING and any(cell is not None for cell in known.values()) and self._is_copy(out):
            # whoever puts all records into one tensor has not taken a batch yet
            self._records[out] = next(self._counted)
            self.none_read()
        self._use(name, args, out)

    def none_read(self) -> None:
        """The batch begins here."""
        phase = self._ledger.phase
        self.batches[phase].clear()
        self.first = self.first if phase else ()

    @property
    def repeated(self) -> Stack:
        """Where the places were made by which a record was taken more than once into one batch, or where it is used.

        Whoever takes every record as often, as for several augmentations, repeats none.
        """
        uneven = (where for (_, _, where), used in self._used.items() if len(set(used.values())) > 1)
        return self._repeated or next(uneven, ())

    def _rows(self, name: str, args: Any, out: Any, known: dict[int, Cell | None]) -> None:
        """Records that are read from a tensor of all."""
        first = self._places.get(args[0]) or 0
        order = [first + row for row in rows_read(name, args)]
        rows = set(order)
        self._read(rows, whole=self._keeps_rows(name, args[0], out))
        self.first = self.first or (stack() if rows else ())
        if name not in ("index", "index_select") or not rows:
            return
        places = args[2] if name == "index_select" else args[1][0]
        cell = known.get(id(places))
        made = (cell is not None and cell.drawn) or stack()
        if cell is not None and cell.data and len(rows) == len(out) == len(args[0]):
            self.sorted.append(order)
        self._repeated = self._repeated or (made if len(rows) < len(out) else ())
        self.chosen_at = self.chosen_at if self._ledger.phase else made
        if self._place is not None and self._place.index in rows:
            self._read_again(args[0], places, made)

    def _keeps_rows(self, name: str, records: torch.Tensor, out: Any) -> bool:
        """Whether all records are taken over in their order, as ``xs[:]`` and ``xs / 255`` do."""
        keeps = name in ROW_BY_ROW and records.dim() > 0 and out.shape[:1] == records.shape[:1]
        if keeps:
            self._records[out] = next(self._counted)
        return keeps

    def _read(self, rows: set[int], *, whole: bool) -> None:
        """Whoever reads all records, and then some, has taken only these into the batch."""
        phase = self._ledger.phase
        if whole and rows:
            self._whole.add(phase)
        elif rows and phase in self._whole:
            self._whole.remove(phase)
            self.none_read()
        self.batches[phase] |= rows

    def _use(self, name: str, args: Any, out: Any) -> None:
        """A record that is read or used alone, or put together with others."""
        first = args[0] if args else None
        if name in COPYING:
            used = [self._single[part] for part in tensors_among(first) if part in self._single]
        elif not isinstance(first, torch.Tensor):
            return
        elif name in ("select", "unbind") and first in self._records and not any(args[1:2]):
            self._single |= {row: next(self._counted) for row in tensors_among(out)}
            used = rows_read(name, args)
        else:
            used = [self._single[first]] if first in self._single else []
        if used:
            self._used[self._ledger.phase, name, stack()].update(used)

    def _read_again(self, records: torch.Tensor, places: torch.Tensor, made: Stack) -> None:
        """The record is in two parts of one tensor of places; whoever reads the same part twice may sum it once."""
        parts = self._parts[self._ledger.phase, self._records[records], places.untyped_storage()._cdata]
        parts.add(int(places.storage_offset()))
        if len(parts) > self.again[1]:
            self.again = made, len(parts)

    def _is_copy(self, tensor: torch.Tensor) -> bool:
        """Whether it holds all records, in their order: of one tensor, or of several."""
        if not tensor.dim() or (self._many or len(tensor)) != len(tensor):
            return False
        rows = tensor.reshape(len(tensor), -1)
        found = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        for own, first, alone in (*self._dataset, *((own, 0, False) for own in self._records if own.dim())):
            values = own.reshape(1 if alone or not own.dim() else len(own), -1)[max(0, -first) :]
            here = slice(max(0, first), max(0, first) + len(values))
            values = values[: len(rows[here])]
            if len(values) and values.shape[1] == rows.shape[1]:
                found[here] |= (rows[here] == values.to(rows.dtype)).all(1)
        return bool(found.all())
