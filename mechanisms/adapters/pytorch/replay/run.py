"""One run of PyTorch code on shared draws, followed operation by operation and compared with a run before it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mechanisms.adapters.noise_terms import independent
from mechanisms.adapters.pytorch.replay import noise
from mechanisms.adapters.pytorch.replay.cells import Cell, Memory, merged, overwritten, shadow
from mechanisms.adapters.pytorch.replay.draws import (
    CONTINUOUS,
    DRAWS,
    SELECTING,
    UNIFORM,
    Bank,
    Draw,
    Slot,
    generator_of,
    scaled_draw,
    state_of,
)
from mechanisms.adapters.pytorch.replay.ledger import Ledger
from mechanisms.adapters.pytorch.replay.operation import Operation
from mechanisms.adapters.pytorch.replay.records import rows_read
from mechanisms.adapters.pytorch.replay.releases import Enough, Releases
from mechanisms.adapters.pytorch.replay.seedings import Seedings
from mechanisms.adapters.pytorch.replay.stacks import Stack, stack
from mechanisms.adapters.pytorch.replay.storages import covers, elements
from mechanisms.adapters.pytorch.replay.summing import WEIGHING, bends, record_sum
from mechanisms.adapters.pytorch.replay.terms import laid, nothing, variance_in

COPYING = frozenset(("stack", "cat"))
"""What single records are put together by."""
RANKING = frozenset(("median", "nanmedian", "kthvalue", "sort", "topk", "min", "amin", "aminmax"))
"""Operations that pick values by their size, which one record more need not change."""
CLAMPING = frozenset(("clamp", "clamp_", "clamp_max", "clamp_max_", "clamp_min", "clamp_min_", "hardtanh", "hardtanh_"))
"""What bounds each number by itself."""
TAKING = noise.MOVING | {"topk", "sort"}
"""What leaves records as they are: a number of them that is the same on both sides is no sum."""
AVERAGING = frozenset(("lerp", "lerp_"))
MOST_ROWS = 2**20
"""Rows of a tensor that are compared one by one."""


@dataclasses.dataclass(frozen=True)
class Output:
    """A released tensor as it left the code."""

    value: torch.Tensor
    cell: Cell | None


class Run(TorchDispatchMode):
    """Follows what happens inside ``with run:``. ``reference`` is a finished run, on the other dataset.

    Where noise meets data the result becomes the reference's: from there on both sides are equal, as in the proof of
    adaptive composition. What differs later was never covered by noise.
    """

    def __init__(self, bank: Bank, reference: Run | None = None, seedings: Seedings | None = None):
        super().__init__()
        self._bank, self._seedings = bank, seedings
        self.memory = Memory()
        self.ledger = Ledger(None if reference is None else reference.ledger, bank.place)
        self.releases = Releases(self.ledger, None if reference is None else reference.releases)
        self.draws: list[Draw] = []
        self.seeds: dict[Slot, tuple[int, Stack]] = {}
        self.outputs: dict[str, Output] = {}
        self.numbers: list[Stack] = []
        """Where data became a number of Python's."""
        self._numbers: dict[float, Stack] = {}
        """The same by the number."""
        self.noised: dict[Stack, float] = collections.defaultdict(float)
        """Where noise met single records, and their largest number there."""
        self.choosing: set[int] = set()
        """Draws that chose something."""
        self.read: set[tuple[str, int]] = set()
        """Frames that were open while records were read one by one."""
        self.batches: dict[int, set[int]] = collections.defaultdict(set)
        """Places of the records that were read between two releases."""
        self._records: dict[int, torch.Tensor] = {}
        self._weights: set[int] = set()
        """Draws of releases with which records were read."""
        self._drawn = 0
        """Independent numbers that noise has been made of."""
        self.lost: list[str] = []
        self.sums: dict[Stack, set[str]] = collections.defaultdict(set)
        """Where several records became one value, as far as the form shows it, and the operations that did it."""
        self.taken: set[Stack] = set()
        """Where some of the records were taken, or filled up to a fixed number: none are summed there."""
        self.repeated: Stack = ()
        """Where the places were made by which a record was taken more than once into one batch."""
        self.plain: set[Stack] = set()
        """Where a constant was added to data, as where others have noise added."""
        self.ranks = False
        """Whether values of records were picked by their size."""

    def mark(self, tensors: Iterable[torch.Tensor]) -> None:
        """These hold records."""
        for tensor in tensors:
            self.memory.put(tensor, Cell(data=True))
            self._records[id(tensor)] = tensor

    def tell(self, name: str, tensor: Any) -> None:
        """The code releases this."""
        value = torch.as_tensor(tensor).detach()
        cell = self.memory.get(value)
        self.outputs[name] = Output(value.clone(), None if cell is None else dataclasses.replace(cell))
        self.releases.close(frozenset() if cell is None else cell.draws)

    def follow(self, code: Callable[[], None]) -> None:
        """Run it to its end, or as far as it can be kept."""
        watching = contextlib.nullcontext() if self._seedings is None else self._seedings.watching()
        with contextlib.suppress(Enough), self, watching:
            code()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, then note what is known of its results."""
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        if name in DRAWS:
            scaled = scaled_draw(name, args, kwargs)
            if scaled is None:
                return self._draw(func, name, args, kwargs)
            with self:
                return scaled()
        tensors = [part for part in tree_leaves((args, kwargs)) if isinstance(part, torch.Tensor)]
        known = {
            id(part): None if (cell := self._cell(part)) is None else dataclasses.replace(cell) for part in tensors
        }
        cells = [cell for cell in known.values() if cell is not None]
        before = args
        if func._schema.is_mutable and any(cell.variance is not None for cell in cells):
            before = (_copied(args[0]), *args[1:])
        out = func(*args, **kwargs)
        if args and id(args[0]) in self._records:
            rows = rows_read(name, args)
            self.batches[self.ledger.phase] |= rows
            if name in ("index", "index_select") and 0 < len(rows) < len(out):
                places = known.get(id(args[2] if name == "index_select" else args[1][0]))
                self.repeated = self.repeated or (places is not None and places.drawn) or stack()
        elif cells and name in COPYING and self._is_copy(out):
            # whoever puts all records into one tensor has not taken a batch yet
            self._records[id(out)] = out
            self.batches[self.ledger.phase].clear()
        if name == "lift_fresh" and not cells and tensors[0].numel() > 1:
            # made of NumPy's numbers or Python's
            self.memory.put(out, Cell(data=True))
        elif cells:
            try:
                self._follow(name, args, before, kwargs, out, known, func._schema.is_mutable, stack())
            except Exception as error:
                # a fault of ours must not end the code that is followed
                self.lost.append(f"{name}: {type(error).__name__}: {error}")
                for part in tree_leaves(out):
                    if isinstance(part, torch.Tensor):
                        self.memory.put(part, Cell(data=any(cell.data for cell in cells), opaque=True))
        return out

    def _is_copy(self, tensor: torch.Tensor) -> bool:
        """Whether it holds all records, in their order."""
        return tensor.dim() > 0 and any(
            len(tensor) == len(own)
            and tensor.numel() == own.numel()
            and torch.equal(tensor.flatten().to(own.dtype), own.flatten())
            for own in self._records.values()
            if own.dim()
        )

    def _cell(self, tensor: torch.Tensor) -> Cell | None:
        found = self.memory.get(tensor)
        if found is not None and found.noise and not found.released and isinstance(tensor, torch.nn.Parameter):
            # initial weights are drawn, and public
            self.memory.put(tensor, None)
            return None
        return found

    def _draw(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        where, generator = stack(), generator_of(kwargs)
        before = state_of(generator)
        out = func(*args, **kwargs)
        slot = self.ledger.slot(where, name)
        seed = None if generator is None else generator.initial_seed()
        took = state_of(generator) != before
        picks = isinstance(out, torch.Tensor) and self._bank.picks(name, out)
        # noise may be uniform, too
        if name in SELECTING or (name in UNIFORM and picks):
            self.releases.new_round()
        seeded = () if self._seedings is None else self._seedings.of(generator)
        draw = Draw(
            number=len(self.draws),
            stack=where,
            round=self.releases.round,
            picks=picks,
            state=before if took else None,
            seed=seed,
            seeded=seeded,
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
        if name in CONTINUOUS and out.is_floating_point():
            old = self.memory.get(out)
            rest = None if old is None or covers(out) else old.variance
            variance = noise.drawn_variance(name)
            cell.variance = shadow(out, variance, rest)
            fresh = None if math.isnan(variance) else independent(self._drawn, out.shape, variance)
            cell.terms = laid(out, fresh, nothing(elements(out)) if rest is None else old and old.terms)
            self._drawn += out.numel()
            cell.draws |= frozenset() if old is None or covers(out) else old.draws
            cell = cell.looked_over(where)
        self.memory.put(out, None if isinstance(out, torch.nn.Parameter) else cell)
        return out

    def _drop(self, args: Any, out: Any, slot: Slot, draw: Draw) -> None:
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
        parts = [part for part in tree_leaves((args, kwargs)) if isinstance(part, torch.Tensor)]
        given = [args[1]] if name == "copy_" else parts
        pairs = [(part, cell) for part in given if (cell := known.get(id(part))) is not None]
        results = [part for part in tree_leaves(out) if isinstance(part, torch.Tensor)]
        if not results:
            self._number(pairs, where)
            return
        looked_at = set() if writes else {part.untyped_storage()._cdata for part in parts}
        for result in results:
            if result.untyped_storage()._cdata in looked_at:
                continue
            if name in noise.NEW or not pairs:
                self.memory.put(result, overwritten(self.memory.get(result), result, where))
                continue
            done = Operation(
                name=name, args=args, before=before, kwargs=kwargs, out=result, known=known, pairs=pairs, where=where
            )
            cell = self._joined(done)
            if writes and not covers(result):
                cell = merged(cell, self.memory.get(result), result, where)
            self.memory.put(result, cell)

    def _number(self, pairs: list[tuple[torch.Tensor, Cell]], where: Stack) -> None:
        for part, cell in pairs:
            if cell.data:
                self.numbers.append(where)
                self._numbers |= {float(part): where} if part.numel() == 1 else {}
            else:
                self._choose(cell.draws, released=bool(cell.released))

    def _choose(self, draws: frozenset[int], *, released: bool = False) -> None:
        """Drawn numbers decide something, as which records a batch holds; those of an earlier batch begin no other."""
        if not released and not draws <= self.choosing:
            self.releases.new_round()
        self.choosing |= draws

    def _joined(self, done: Operation) -> Cell:
        """What is known of the result of one operation."""
        noisy = [(part, cell) for part, cell in done.pairs if cell.noise]
        if not done.out.is_floating_point() and (not done.data or noisy):
            self.ledger.compare_choice(done)
        if not done.out.is_floating_point() and not done.data:
            self._choose(done.draws)
            return Cell(draws=done.draws, drawn=done.where)
        both = len(done.args) > 1 and all(isinstance(part, torch.Tensor) for part in done.args[:2])
        records = [cell for cell in done.cells if cell.data]
        if noisy and both and done.name in noise.ADDING and all(cell.summed for cell in records):
            found = self.releases.met(done)
            if found is not None:
                return self._on_records(done, found) if found.data else found
        if both and done.name in noise.ADDING and (more := self.releases.more(done)) is not None:
            return more
        # a number that depends on the data scales noise, which the release shows; rows of data weigh nothing
        numbers = all(part.numel() == 1 or (cell.summed and not cell.ragged) for part, cell in done.pairs if cell.data)
        if noisy and (not records or (done.name in noise.SCALING and numbers)):
            return self._noise(done)
        if not records:
            return self._released(done)
        for part, cell in noisy:
            if done.name in WEIGHING and not cell.released:
                # a drawn tensor that weighs data is a weight
                self.memory.put(part, Cell(draws=cell.draws))
        found = self._data(done)
        found.opaque |= bool(noisy) and done.name not in WEIGHING
        return self._on_records(done, found) if noisy and both and done.name in noise.ADDING else found

    def _on_records(self, done: Operation, found: Cell) -> Cell:
        """Noise on single records."""
        largest = max((float(part.detach().abs().max()) for part, cell in done.pairs if cell.data and part.numel()))
        self.noised[done.where] = max(largest, self.noised[done.where])
        return dataclasses.replace(found, noised=found.noised or done.where)

    def _noise(self, done: Operation) -> Cell:
        """Noise and constants, or noise and a number that depends on the data."""
        noisy = [cell for cell in done.cells if cell.noise]
        scaled, scale_of = next(((cell.scaled, cell.scale_of) for cell in noisy if cell.scaled), ((), ()))
        if not self.ledger.alike(done) and not scaled:
            scaled, scale_of = done.where, next((cell.summed for cell in done.cells if cell.data), ())
        sized = [place for cell in noisy for place in cell.sized]
        drawn = next((cell.drawn for cell in noisy if cell.drawn), ())
        resized = done.name in noise.SCALING and done.where != drawn
        terms = noise.followed(done)
        shared = next((cell.shared for cell in noisy if cell.shared), ())
        if terms is not None and not shared and not terms.plain:
            shared = done.where
        found = Cell(
            variance=shadow(done.out, noise.carried(done) if terms is None else variance_in(terms)),
            terms=laid(done.out, terms),
            shared=shared,
            draws=done.draws,
            drawn=drawn,
            sized=tuple(dict.fromkeys([done.where, *sized] if resized else sized)),
            uneven=next((cell.uneven for cell in noisy if cell.uneven), ()),
            scaled=scaled,
            scale_of=scale_of,
            released=any(cell.released for cell in noisy),
            events=done.events,
            opaque=done.opaque,
        )
        return found.looked_over(done.where)

    def _released(self, done: Operation) -> Cell:
        """Released values and constants: whatever is made of them must be the same on both sides."""
        if not any(cell.released for cell in done.cells):
            return Cell(draws=done.draws, opaque=done.opaque)
        if not self.ledger.alike(done):
            if done.opaque:
                return Cell(data=True, summed=done.where, draws=done.draws, opaque=True)
            self.releases.leaked.append(done.where)
            return Cell(data=True, changed=done.where, summed=done.where, draws=done.draws, released=True)
        events = done.events
        if done.name in noise.ADDING or done.name in ("sum", "mean"):
            events = self.releases.combined(done)
        return Cell(released=True, draws=done.draws, events=events, opaque=done.opaque)

    def _read_with(self, draws: set[int]) -> None:
        """Records are read with weights of these draws: a round begins if they are new, not with every microbatch."""
        drawn = draws & self.releases.noise
        self.releases.close(drawn)
        if not drawn or drawn - self._weights:
            self.releases.new_round()
        self._weights |= drawn

    def _data(self, done: Operation) -> Cell:
        """Something that records reached and no noise covers."""
        self.ranks |= done.name in RANKING
        own = [cell for cell in done.cells if cell.data]
        if any(not cell.summed for cell in own):
            self.read.update(done.where)
        covered = [cell for cell in done.cells if cell.released and not cell.data]
        changed = next((cell.changed for cell in own if cell.changed), ())
        numbers = all(part.numel() == 1 or (cell.summed and not cell.ragged) for part, cell in done.pairs if cell.data)
        by_numbers = done.name in noise.SCALING and numbers
        if covered and done.name not in noise.ADDING:
            for event in done.events:
                event.consumed = True
        # what spoils one tensor of a release does not begin a round; reading records with spoilt weights does
        if done.name not in noise.ADDING and ((covered and not by_numbers) or (changed and not numbers)):
            self._read_with({number for cell in done.cells if cell in covered or cell.changed for number in cell.draws})
        # a released bias that is added to single records is a weight of theirs
        if covered and numbers and (done.name in noise.ADDING or by_numbers):
            changed = changed or done.where
        found = Cell(data=True, draws=done.draws, changed=changed, opaque=done.opaque)
        latest = max((cell for cell in own if cell.summed), key=lambda cell: cell.round, default=None)
        found.summed = done.where if record_sum(done) else latest.summed if latest else ()
        found.bent, found.bent_sum = next(((cell.bent, cell.bent_sum) for cell in own if cell.bent), ((), ()))
        found.mixed, found.mixed_by = next(((cell.mixed, cell.mixed_by) for cell in own if cell.mixed), ((), ()))
        found.noised = next((cell.noised for cell in own if cell.noised), ())
        found.drowned = next((cell.drowned for cell in reversed(own) if cell.drowned), ())
        found.left, found.left_sum = next(((cell.left, cell.left_sum) for cell in own if cell.left), ((), ()))
        found.carried = next((cell.carried for cell in own if cell.carried), ())
        ragged, out = any(cell.ragged for cell in own), done.out
        comparable = out.is_floating_point() or out.dtype == torch.bool
        if comparable and out.dim() and 0 < len(out) <= MOST_ROWS:
            self.ledger.compare_rows(done, found, ragged)
            if found.mixed == done.where and not found.mixed_by:
                found.mixed_by = next((self._numbers.get(one, ()) for one in done.args if isinstance(one, float)), ())
        else:
            found.ragged = out.dim() > 0 and ragged
        if found.summed == done.where and done.name in TAKING:
            self.taken.add(done.where)
        if done.name in noise.ADDING and len(done.pairs) == 1:
            self.plain.add(done.where)
        if record_sum(done):
            self.sums[done.where].add(done.name)
        rounds = {cell.round for cell in own if cell.summed}
        found.round = self.releases.round if found.summed == done.where else max(rounds, default=0)
        if len(rounds) > 1 and done.name in noise.ADDING | AVERAGING:
            found.carried = found.carried or done.where
        found.bends = frozenset().union(*(cell.bends for cell in own))
        last = next((cell for cell in reversed(own) if cell.bounded), None)
        found.bounded, found.each = (last.bounded, last.each) if last else ((), False)
        if out.is_floating_point() and bends(done):
            self.ledger.bend(done, next((cell.summed for cell in own if cell.summed), ()))
            found.bends |= {done.where}
            found.bounded, found.each = done.where, done.name in CLAMPING
            found.drowned = done.where if found.noised else ()
        if torch._C._current_graph_task_id() != -1:
            # a model bends gradients on their way and bounds none
            found.bounded, found.each = (), False
        plain = not found.bent and found.summed and not ragged and not found.ragged
        if plain and (bends(done) or self.ledger.other_factor(done)):
            found.bent = done.where
            found.bent_sum = next((cell.summed for cell in own if cell.summed), found.summed)
        return found


def _copied(part: Any) -> Any:
    return [one.clone() for one in part] if isinstance(part, list | tuple) else part.clone()
