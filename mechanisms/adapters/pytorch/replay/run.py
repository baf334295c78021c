"""One run of PyTorch code on shared draws, followed operation by operation and compared with a run before it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mechanisms.adapters.noise_terms import Terms
from mechanisms.adapters.pytorch.replay import draws, noise
from mechanisms.adapters.pytorch.replay.cells import ROUNDING, Cell, Operation, merged, overwritten, terms_of
from mechanisms.adapters.pytorch.replay.reads import Reads
from mechanisms.adapters.pytorch.replay.releases import Enough
from mechanisms.adapters.pytorch.replay.results import Results
from mechanisms.adapters.pytorch.replay.stacks import Stack, stack
from mechanisms.adapters.pytorch.replay.storages import covers, elements, laid, nothing, tensors_among, variance_in
from mechanisms.adapters.pytorch.replay.weights import WHOLE, Number
from mechanisms.adapters.same_draws import OF_STEP

Sway = tuple[float, float]
"""Factors by which numbers are multiplied in turns."""


@dataclasses.dataclass(frozen=True)
class Output:
    """A released tensor as it left the code."""

    value: torch.Tensor
    cell: Cell | None
    terms: Terms
    """Noise of the output."""


class Run(Results, TorchDispatchMode):
    """Follows what happens inside ``with run:``. ``reference`` is a finished run, on the other dataset.

    Where noise meets data the result becomes the reference's: from there on both sides are equal, as in the proof of
    adaptive composition. What differs later was never covered by noise. ``swayed`` are places where numbers of the data
    are given to Python as others, with the factors that they get in turns.
    """

    def __init__(
        self,
        bank: draws.Bank,
        reference: Run | None = None,
        seedings: draws.Seedings | None = None,
        swayed: dict[Stack, Sway] | None = None,
    ):
        TorchDispatchMode.__init__(self)
        Results.__init__(self, reference, bank.place)
        self.more_noise = False
        """Whether the noise that records bring along adds up to another deviation than in the reference."""
        self._told_before = {} if reference is None else reference.outputs
        self._bank, self._seedings = bank, seedings
        self.draws: list[draws.Draw] = []
        self.seeds: dict[draws.Slot, tuple[int, Stack]] = {}
        self.outputs: dict[str, Output] = {}
        self._drawn = 0
        """Independent numbers that noise has been made of."""
        self.lost: list[str] = []
        self.steps: dict[Stack, collections.Counter[int | str]] = collections.defaultdict(collections.Counter)
        """Where weights were changed by data without noise, and how often each."""
        self.covered_steps: dict[Stack, None] = {}
        """Where weights were changed by what has noise."""
        self.early: Stack = ()
        """The first such place, if it came before all noise."""
        self.reads = Reads(bank.place, self.ledger)
        self._chosen = False
        """Whether something was drawn that chooses the first batch."""
        self.lifted = 0
        """Draws before data last came from NumPy or from Python's numbers."""
        self._swayed, self._turns = swayed or {}, 0
        self._reading = 0

    def mark(self, dataset: Any) -> None:
        """Note that this dataset holds the records."""
        for tensor in self.reads.mark(dataset):
            self.memory.put(tensor, Cell(data=True))

    def tell(self, name: str, tensor: Any) -> None:
        """Note that the code releases this tensor."""
        value = torch.as_tensor(tensor).detach()
        cell = self.memory.get(value)
        terms = terms_of(cell, value)
        if cell is not None and cell.shares:
            if name in self._told_before:
                cell = self._release(value, cell, terms, self._told_before[name])
            else:
                self.releases.keep_told(name, value, cell)
        own = None if cell is None else dataclasses.replace(cell)
        if own is not None and OF_STEP in name:
            # an optimizer is about to take it
            own.stepped = self._stepped([own], stack(), name.partition(OF_STEP)[0])
        self.outputs[name] = Output(value.clone(), own, terms)
        self.releases.close(frozenset() if cell is None else cell.draws)
        if cell is not None:
            self.releases.put_out(cell)

    def _release(self, value: torch.Tensor, cell: Cell, terms: Terms, before: Output) -> Cell:
        """A sum whose records brought their noise along is told: it becomes that of the reference, if that is known."""
        known = before.value.shape == value.shape and 0 not in value.stride()
        known &= not (cell.opaque or before.cell is None or before.cell.opaque)
        variances = variance_in(terms), variance_in(before.terms)
        self.more_noise |= known and not torch.allclose(*variances, rtol=ROUNDING, atol=0)
        alike = known and noise.made_alike(terms, before.terms)
        if not alike or not self.releases.brought(cell, terms, value, before.value):
            return dataclasses.replace(cell, opaque=True)
        value.copy_(before.value)
        released = Cell(released=True, draws=cell.draws, events=(self.releases.events[-1],))
        self.memory.put(value, released)
        return released

    def follow(self, code: Callable[[], None]) -> None:
        """Run it to its end, or as far as it can be kept."""
        watching = contextlib.nullcontext() if self._seedings is None else self._seedings.watching()
        with contextlib.suppress(Enough), self, watching:
            code()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, then note what is known of its results."""
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        if name in draws.DRAWS:
            scaled = draws.scaled_draw(name, args, kwargs)
            if scaled is None:
                return self._draw(func, name, args, kwargs)
            with self:
                return scaled()
        tensors = tensors_among((args, kwargs))
        known = {id(part): self._cell(part) for part in tensors}
        cells = [cell for cell in known.values() if cell is not None]
        before = args
        if func._schema.is_mutable and any(cell.terms is not None for cell in cells):
            before = (_copied(args[0]), *args[1:])
        out = func(*args, **kwargs)
        if name == "_local_scalar_dense" and self._swayed:
            out = self._sway(out, args[0])
        self.reads.note(name, args, tensors, out, known)
        if name in noise.NEW and isinstance(out, torch.Tensor):
            self._constants.put(out, Cell(drawn=stack()))
        if name == "native_batch_norm" and args[5] and (given := known[id(args[0])]) is not None:
            self._keep_statistics(given, args[3:5], stack())
        if name == "lift_fresh" and not cells and tensors[0].numel() > 1:
            # made of NumPy's numbers or Python's
            self.lifted = len(self.draws)
            self.memory.put(out, Cell(data=True))
            self.reads.lifted(out)
        elif cells:
            try:
                self._follow(name, args, before, kwargs, out, known, func._schema.is_mutable, stack())
            except Exception as error:
                # a fault of ours must not end the code that is followed
                self.lost.append(f"{name}: {type(error).__name__}: {error}")
                for part in tensors_among(out):
                    self.memory.put(part, Cell(data=any(cell.data for cell in cells), opaque=True))
        return out

    def _keep_statistics(self, given: Cell, running: Any, where: Stack) -> None:
        """Batch normalisation writes over its running statistics, which no result of it tells."""
        for part in running if given.data else ():
            if part is None:
                continue
            kept = Cell(data=True, summed=where, round=self.releases.round, draws=given.draws, opaque=given.opaque)
            if not self.ledger.alike(part, where, "running statistics"):
                # the record is in them, and changes what they normalise
                kept.mixed = where
                self.ledger.normalising.add(where)
            self.memory.put(part, kept)

    def _cell(self, tensor: torch.Tensor) -> Cell | None:
        found = self.memory.get(tensor)
        if found is not None and found.noise and not found.released and isinstance(tensor, torch.nn.Parameter):
            # initial weights are drawn, and public
            self.used |= found.draws
            self.memory.put(tensor, None)
            return None
        return found

    def _draw(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        where, generator = stack(), draws.generator_of(kwargs)
        before = draws.state_of(generator)
        out = func(*args, **kwargs)
        slot = self.ledger.slot(where, name)
        seed = None if generator is None else generator.initial_seed()
        took = draws.state_of(generator) != before
        weights = not isinstance(out, torch.Tensor) or isinstance(out, torch.nn.Parameter)
        picks = not weights and self._bank.picks(name, out)
        # noise may be uniform, too
        if name in draws.SELECTING or (name in draws.UNIFORM and picks):
            self.releases.new_round()
        if (name == "randperm" or picks) and out.numel() > 1 and not (self._chosen or self.ledger.phase):
            # records that are read before, as for their shape, are not chosen
            self._chosen = True
            self.reads.none_read()
        seeded = () if self._seedings is None else self._seedings.of(generator)
        draw = draws.Draw(
            number=len(self.draws),
            name=name,
            slot=slot,
            stack=where,
            entries=0 if weights else out.numel(),
            round=self.releases.round,
            picks=picks,
            state=before if took else None,
            seed=seed,
            seeded=seeded,
            rate=None if self._bank.place is None else draws.rate_of(name, args, kwargs, self._bank.place.index),
        )
        self.draws.append(draw)
        if seed is not None:
            self.seeds[slot] = (seed, where)
        if isinstance(out, tuple):
            self._drop(args, out, slot, draw)
            return out
        self._bank.settle(slot, name, out)
        self.ledger.compare_rates(name, args, out, where)
        cell = Cell(draws=frozenset({draw.number}), drawn=where)
        if name in draws.CONTINUOUS and out.is_floating_point():
            old = self.memory.get(out)
            rest = None if old is None else old.terms
            fresh = noise.drawn(name, self._drawn, out.shape)
            cell.terms = laid(out, fresh, nothing(elements(out)) if rest is None else rest)
            self._drawn += out.numel()
            cell.draws |= frozenset() if old is None or covers(out) else old.draws
            cell = cell.looked_over(where)
        self.memory.put(out, None if isinstance(out, torch.nn.Parameter) else cell)
        return out

    def _drop(self, args: Any, out: Any, slot: draws.Slot, draw: draws.Draw) -> None:
        """Fused dropout: the result is made again from the mask that every run gets."""
        value, mask = out[0], out[1]
        self._bank.settle(slot, "bernoulli", mask)
        keep = 1 - args[1]
        value.copy_(args[0] * mask / keep if keep else torch.zeros_like(value))
        given = self._cell(args[0]) or Cell()
        self.memory.put(value, dataclasses.replace(given, draws=given.draws | {draw.number}))

    def _follow(
        self,
        name: str,
        args: Any,
        before: Any,
        kwargs: Any,
        out: Any,
        known: dict[int, Cell | None],
        writes: bool,
        where: Stack,
    ) -> None:
        if name.startswith("_foreach_"):
            # operations on lists, tensor by tensor
            for index, result in enumerate(args[0] if out is None else out):
                one, first = (
                    tuple(part[index] if isinstance(part, list | tuple) else part for part in given)
                    for given in (args, before)
                )
                self._follow(name.removeprefix("_foreach_"), one, first, kwargs, result, known, writes, where)
            return
        parts = tensors_among((args, kwargs))
        given = [args[1]] if name == "copy_" else parts
        pairs = [(part, cell) for part in given if (cell := known.get(id(part))) is not None]
        results = tensors_among(out)
        if not results:
            self._number(pairs, where)
            return
        looked_at = set() if writes else {part.untyped_storage()._cdata for part in parts}
        for result in results:
            if result.untyped_storage()._cdata in looked_at:
                if name == "expand":
                    self._spread.put(result, Cell(drawn=where))
                continue
            if name in noise.NEW or not pairs:
                self.memory.put(result, overwritten(self.memory.get(result), result, where))
                continue
            done = Operation(
                name=name, args=args, before=before, kwargs=kwargs, out=result, known=known, pairs=pairs, where=where
            )
            cell = self._joined(done)
            if cell.opaque and not cell.opaque_by[0]:
                cell.opaque_by = next(
                    (own.opaque_by for own in done.cells if own.opaque_by[0]), (noise.way(done), where)
                )
            if writes and not covers(result):
                cell = merged(cell, self.memory.get(result), result, where)
            if writes and isinstance(result, torch.nn.Parameter):
                self._step(done, cell)
            self.memory.put(result, cell)

    def _step(self, done: Operation, cell: Cell) -> None:
        """A weight is changed in its place."""
        before = done.cell(done.out)
        by = [own for part, own in done.pairs if part is not done.out]
        stepped = self._stepped(by, done.where, done.out.untyped_storage()._cdata)
        cell.stepped = (() if before is None else before.stepped) or stepped

    def _stepped(self, by: list[Cell], where: Stack, weight: int | str) -> Stack:
        """Where a weight is changed, if it is by data without noise."""
        if any(own.data and own.summed and not own.changed for own in by):
            self.steps[where][weight] += 1
            self.early = self.early or (() if self.ledger.phase else where)
            return where
        if any(own.covered or own.changed for own in by):
            self.covered_steps[where] = None
        return ()

    def _number(self, pairs: list[tuple[torch.Tensor, Cell]], where: Stack) -> None:
        for part, cell in pairs:
            if cell.data:
                self.numbers.append(where)
                if part.numel() == 1:
                    self.ledger.number(float(part) if cell.margin is None else cell.margin, where)
                self._numbers |= {float(part): where} if part.numel() == 1 else {}
                if part.numel() == 1 and cell.row == WHOLE:
                    # of this round alone
                    self.own_reads = self.own_reads if self._reading == self.ledger.phase else []
                    self._reading = self.ledger.phase
                    self.own_reads.append(Number(where, float(part), first=True))
            else:
                self._choose(cell.draws, released=bool(cell.released))

    def _sway(self, number: Any, part: torch.Tensor) -> Any:
        """Another number in its place, to see whether it decides anything."""
        cell = self.memory.get(part)
        if cell is None or not cell.data or stack() not in self._swayed:
            return number
        self._turns += 1
        return number is False if isinstance(number, bool) else number * self._swayed[stack()][self._turns % 2]


Further = Callable[..., Run | None]
"""A run on a dataset, maybe a changed one, beside a reference; None where the code stops with an error."""


def _copied(part: Any) -> Any:
    return [one.clone() for one in part] if isinstance(part, list | tuple) else part.clone()
