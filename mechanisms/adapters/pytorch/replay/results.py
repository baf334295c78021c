"""What becomes known of an operation's result: noise, a release, or something that records reached."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import torch

from mechanisms.adapters.pytorch.replay import noise
from mechanisms.adapters.pytorch.replay.cells import Cell, Memory, Operation
from mechanisms.adapters.pytorch.replay.ledger import Ledger
from mechanisms.adapters.pytorch.replay.noise import PRODUCTS, WEIGHING, bends, multiple, record_sum
from mechanisms.adapters.pytorch.replay.records import Place
from mechanisms.adapters.pytorch.replay.releases import Releases
from mechanisms.adapters.pytorch.replay.stacks import Stack, in_backward
from mechanisms.adapters.pytorch.replay.storages import covers, elements, laid, nothing
from mechanisms.adapters.pytorch.replay.weights import WHOLE, Number, by_python, length, measured, weighed

RANKING = frozenset(("median", "nanmedian", "kthvalue", "sort", "topk", "min", "amin", "aminmax"))
"""Operations that pick values by their size, which one record more need not change."""
CLAMPING = frozenset(("clamp", "clamp_", "clamp_max", "clamp_max_", "clamp_min", "clamp_min_", "hardtanh", "hardtanh_"))
"""What bounds each number by itself."""
TAKING = noise.MOVING | {"topk", "sort"}
"""What leaves records as they are: a number of them that is the same on both sides is no sum."""
CHOOSING = frozenset(("where", "masked_fill", "masked_scatter"))
"""What keeps a released value where raw data choose it."""
COMPARING = frozenset(("lt", "le", "gt", "ge"))
AVERAGING = frozenset(("lerp", "lerp_"))
SHRINKING = frozenset(("mul_", "div_", "lerp_"))
MOST_ROWS = 2**20
"""Rows of a tensor that are compared one by one."""


@dataclasses.dataclass(frozen=True)
class Cut:
    """Where drawn numbers were first compared with something, as a Poisson sampler does."""

    where: Stack
    limits: torch.Tensor | None
    """What with, where that is no drawn number."""
    sized: tuple[Stack, ...]
    """Where they were changed before, the last place first."""
    everybody: bool
    """Whether the comparison holds for all of them."""


class Results:
    """The results of one run. ``reference`` is a finished one, on the other dataset."""

    def __init__(self, reference: Results | None, place: Place | None):
        self.memory = Memory()
        self.ledger = Ledger(None if reference is None else reference.ledger, place)
        self.releases = Releases(self.ledger, None if reference is None else reference.releases)
        self.numbers: list[Stack] = []
        """Where data became a number of Python's."""
        self._numbers: dict[float, Stack] = {}
        """The same by the number."""
        self.noised: dict[Stack, float] = collections.defaultdict(float)
        """Where noise met single records, and how long the longest is there."""
        self.over_noise: dict[Stack, float] = collections.defaultdict(float)
        """The same over the deviation of that noise."""
        self.choosing: set[int] = set()
        """Draws that chose something."""
        self.used: set[int] = set()
        """Draws of noise that an operation used together with data, or that are initial weights."""
        self.cuts: dict[int, Cut] = {}
        """Where drawn numbers were compared, by their draw."""
        self.read: set[tuple[str, int]] = set()
        """Frames that were open while records were read one by one."""
        self._weights: set[int] = set()
        """Draws of releases with which records were read."""
        self.sums: dict[Stack, set[str]] = collections.defaultdict(set)
        """Where several records became one value, as far as the form shows it, and the operations that did it."""
        self.taken: set[Stack] = set()
        """Where some of the records were taken, or filled up to a fixed number: none are summed there."""
        self.plain: dict[Stack, Stack] = {}
        """Where a constant was added to data, as where others have noise added, and where it was made."""
        self.begun: dict[Stack, Stack] = {}
        """Where a sum of an earlier round was added to a later one, and where the tensor of both was last emptied."""
        self.raw: dict[Stack, tuple[Stack, int]] = {}
        """Where a released value met raw data, where those were summed, and in which round."""
        self.scales: dict[Stack, tuple[float, float]] = {}
        """Where other numbers of Python's scaled a release or noise than in the reference: both."""
        self.of_each: set[Stack] = set()
        """Where noise of another size was summed, of which each record has some."""
        self.own_reads: list[Number] = []
        """Numbers of the record's own that Python read since the last release."""
        self.backward: set[Stack] = set()
        """Where PyTorch computed gradients by itself, which bounds no sum."""
        self.accumulated: set[Stack] = set()
        """Where a backward pass added gradients to those of an earlier one, which nothing set to zero."""
        self._constants = Memory()
        self._spread = Memory()
        """Where a tensor was last spread over more places than it has numbers."""
        self.ranks = False
        """Whether values of records were picked by their size."""

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
        if done.name == "copy_" and done.out.dtype == torch.uint8 and all(cell.covered for cell in done.cells):
            # the bytes of a release, of which a deep copy is made
            return self._released(done)
        if not done.out.is_floating_point() and not done.data:
            self._cut(done)
            self._choose(done.draws)
            # noise that is cut to whole numbers is none whose deviation is known; a mask of it is a choice
            cut = done.out.dtype != torch.bool and (done.opaque or (bool(noisy) and done.name in noise.SAME))
            return Cell(draws=done.draws, drawn=done.where, opaque=cut)
        records = [cell for cell in done.cells if cell.data]
        for _, cell in noisy if records else ():
            self.used |= cell.draws
        both = len(done.args) > 1 and all(isinstance(part, torch.Tensor) for part in done.args[:2])
        brought = any(cell.shares for cell in records)
        if noisy and both and not brought and done.name in noise.ADDING and all(cell.summed for cell in records):
            found = self.releases.met(done)
            if found is not None:
                return self._on_records(done, found) if found.data else found
        if both and not brought and done.name in noise.ADDING and (more := self.releases.more(done)) is not None:
            return more
        # a number that depends on the data scales noise, which the release shows; rows of data weigh nothing
        numbers = all(part.numel() == 1 or (cell.summed and not cell.ragged) for part, cell in done.pairs if cell.data)
        if noisy and (not records or (done.name in noise.SCALING and numbers)):
            return self._noise(done)
        if not records:
            return self._released(done)
        for part, cell in noisy:
            if done.name in WEIGHING and not cell.released and not all(own.summed for own in records):
                # a drawn tensor that weighs records is a weight
                self.memory.put(part, Cell(draws=cell.draws))
        found = self._data(done)
        if brought or (noisy and done.name not in WEIGHING):
            self._bring(done, found)
        return self._on_records(done, found) if noisy and both and done.name in noise.ADDING else found

    def _cut(self, done: Operation) -> None:
        limits = [part for part in done.args if isinstance(part, float | int | torch.Tensor) and not done.cell(part)]
        sized = tuple(place for cell in done.cells for place in cell.sized)
        limit = torch.as_tensor(limits[0]).detach().clone() if limits else None
        cut = Cut(done.where, limit, sized, done.out.dtype == torch.bool and bool(done.out.all()))
        self.cuts |= {number: cut for number in done.draws if number not in self.cuts}

    def _bring(self, done: Operation, found: Cell) -> None:
        """Noise of single records is known still where all is linear; elsewhere it goes a way that is not followed."""
        linear = done.name in noise.ADDING | noise.SAME | noise.MOVING | {"sum", "mean"}
        linear |= done.name in noise.SCALING | PRODUCTS and len(done.pairs) == 1
        linear &= all(part.is_floating_point() and not cell.released for part, cell in done.pairs if cell.data)
        terms = noise.followed(done) if linear and not any(cell.covered for cell in done.cells) else None
        if terms is None or not np.isfinite(terms.variance).all():
            found.opaque = True
            return
        self.releases.noise |= {number for cell in done.cells if cell.noise for number in cell.draws}
        found.terms = laid(done.out, terms, nothing(elements(done.out)))
        found.drawn = next((cell.drawn for cell in done.cells if cell.terms is not None and cell.drawn), ())
        found.sized = tuple(dict.fromkeys(place for cell in done.cells for place in cell.sized))

    def _on_records(self, done: Operation, found: Cell) -> Cell:
        """Noise on single records."""
        own = [part.detach() for part, cell in done.pairs if cell.data and part.numel()]
        rows = [part.reshape(len(part) if part.dim() else 1, -1) for part in own]
        length = max(float(part.norm(dim=1).max()) for part in rows)
        deviation = max(float(done.variance(part).max().sqrt()) for part, cell in done.pairs if cell.noise)
        self.noised[done.where] = max(length, self.noised[done.where])
        self.over_noise[done.where] = max(length / deviation, self.over_noise[done.where]) if deviation else 0.0
        return dataclasses.replace(found, noised=found.noised or done.where)

    def _noise(self, done: Operation) -> Cell:
        """Noise and constants, or noise and a number that depends on the data."""
        noisy = [cell for cell in done.cells if cell.noise]
        scaled, scale_of = next(((cell.scaled, cell.scale_of) for cell in noisy if cell.scaled), ((), ()))
        numbers, alike = self.ledger.other_number(done), self.ledger.alike(done.out, done.where, done.name)
        if not alike and not scaled:
            self.of_each |= {done.where} if done.name == "sum" else set()
            self.scales |= {} if numbers is None else {done.where: numbers}
            scaled, scale_of = done.where, next((cell.summed for cell in done.cells if cell.data), ())
        sized = [place for cell in noisy for place in cell.sized]
        drawn = next((cell.drawn for cell in noisy if cell.drawn), ())
        resized = done.name in noise.SCALING and done.where != drawn
        terms = noise.followed(done)
        shared = next((cell.shared for cell in noisy if cell.shared), ())
        if not shared and not terms.plain:
            spread = (self._spread.get(part) for part, cell in done.pairs if cell.noise and 0 in part.stride())
            shared = next((cell.drawn for cell in spread if cell is not None), done.where)
        found = Cell(
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
        if not np.isfinite(terms.variance).all() and all(
            done.variance(part).isfinite().all() for part, _ in done.pairs
        ):
            # from here on nobody knows it
            found.uneven = done.where
        return found.looked_over(done.where)

    def _released(self, done: Operation) -> Cell:
        """Released values and constants: whatever is made of them must be the same on both sides."""
        if not any(cell.released for cell in done.cells):
            return Cell(draws=done.draws, opaque=done.opaque)
        if (numbers := self.ledger.other_number(done)) is not None:
            self.scales.setdefault(done.where, numbers)
        if not self.ledger.alike(done.out, done.where, done.name):
            if done.opaque:
                return Cell(data=True, summed=done.where, draws=done.draws, opaque=True)
            self.releases.leaked.append(done.where)
            return Cell(data=True, changed=done.where, summed=done.where, draws=done.draws, released=True)
        events = done.events
        if done.name in noise.ADDING or done.name in ("sum", "mean"):
            events = self.releases.combined(done)
        return Cell(released=True, draws=done.draws, events=events, opaque=done.opaque)

    def _read_with(self, draws: set[int]) -> None:
        """Records are read with weights of these draws: a round begins if they are new, not with every microbatch.

        A weight that a microbatch did not read is no newer than those that it read.
        """
        drawn = draws & self.releases.noise
        self.releases.close(drawn)
        if not drawn or (drawn - self._weights) & self.releases.of_this_round:
            self.releases.new_round()
        self._weights |= drawn

    def _data(self, done: Operation) -> Cell:
        """Something that records reached and no noise covers."""
        self.ranks |= done.name in RANKING
        own = [cell for cell in done.cells if cell.data]
        if any(not cell.summed for cell in own):
            self.read.update(done.where)
        found = Cell(data=True, draws=done.draws, changed=self._changed(done, own), opaque=done.opaque)
        backward = in_backward()
        self._pass_on(done, own, found)
        self._about_rows(done, own, found, backward=backward)
        self._about_gradients(done, own, found, backward=backward)
        self._about_sums(done, own, found)
        self._about_bounds(done, own, found, backward=backward)
        if done.name in COMPARING and done.out.numel() == 1:
            found.margin = float(done.args[0]) - float(done.args[1])
        return found

    def _changed(self, done: Operation, own: list[Cell]) -> Stack:
        """Where a released value met these data, here or before; a round may begin with that."""
        covered = [cell for cell in done.cells if cell.released and not cell.data]
        changed = next((cell.changed for cell in own if cell.changed), ())
        numbers = all(part.numel() == 1 or (cell.summed and not cell.ragged) for part, cell in done.pairs if cell.data)
        by_numbers = done.name in noise.SCALING and numbers
        if covered and done.name not in noise.ADDING:
            for event in done.events:
                event.consumed = True
        # what spoils one tensor of a release does not begin a round; reading records with spoilt weights does
        # a released bias that is added to rows of records is a weight of theirs
        whole = any(part.shape == done.out.shape for part, cell in done.pairs if cell in covered)
        added = done.name in noise.ADDING and (whole or not covered)
        if not added and ((covered and not by_numbers) or (changed and not numbers)):
            self._read_with({number for cell in done.cells if cell in covered or cell.changed for number in cell.draws})
        if covered and whole and numbers and (done.name in noise.ADDING or by_numbers or done.name in CHOOSING):
            changed = changed or done.where
            self.raw[done.where] = next(((cell.summed, cell.round) for cell in own if cell.summed), ((), 0))
        return changed

    def _pass_on(self, done: Operation, own: list[Cell], found: Cell) -> None:
        """What was known of the data before."""
        latest = max((cell for cell in own if cell.summed), key=lambda cell: cell.round, default=None)
        found.summed = done.where if record_sum(done) else latest.summed if latest else ()
        found.bent, found.bent_sum = next(((cell.bent, cell.bent_sum) for cell in own if cell.bent), ((), ()))
        found.mixed, found.mixed_by = next(((cell.mixed, cell.mixed_by) for cell in own if cell.mixed), ((), ()))
        found.noised = next((cell.noised for cell in own if cell.noised), ())
        found.drowned = next((cell.drowned for cell in reversed(own) if cell.drowned), ())
        found.left, found.left_sum = next(((cell.left, cell.left_sum) for cell in own if cell.left), ((), ()))
        if done.name in noise.SAME | noise.MOVING:
            found.stepped = next((cell.stepped for cell in own if cell.stepped), ())
        found.carried = next((cell.carried for cell in own if cell.carried), ())
        found.copied = next((cell.copied for cell in own if cell.copied), ())
        divided = self.ledger.divided(done) if found.summed else None
        found.divided = divided or next((cell.divided for cell in own if cell.divided), None)

    def _about_rows(self, done: Operation, own: list[Cell], found: Cell, *, backward: bool) -> None:
        """Which row is the record's, where rows can be compared, and what weighs it."""
        ragged, out = any(cell.ragged for cell in own), done.out
        comparable = out.is_floating_point() or out.dtype == torch.bool
        if comparable and out.dim() and 0 < len(out) <= MOST_ROWS:
            self.ledger.compare_rows(done, found, ragged)
            if found.mixed == done.where and not found.mixed_by:
                found.mixed_by = next((self._numbers.get(one, ()) for one in done.args if isinstance(one, float)), ())
        else:
            found.ragged = out.dim() > 0 and ragged and not done.name.startswith(noise.GROUPING)
            found.row = self.ledger.row_of_number(done) if out.dim() == 0 else None
        found.numbers, found.weights = weighed(done, found.row, mixed=found.mixed, backward=backward)
        if (weight := by_python(done, self.own_reads)) is not None:
            found.weights = (weight,)
        kept = (cell.joined for part, cell in done.pairs if cell.joined and part.numel() <= out.numel())
        found.joined = done.where if done.name == "cat" else next(kept, ())

    def _about_gradients(self, done: Operation, own: list[Cell], found: Cell, *, backward: bool) -> None:
        """Which backward pass computed it; a second one may add to the gradients of the first."""
        found.graded = backward or any(cell.graded for cell in own)
        if backward:
            self.backward.add(done.where)
            found.passed = torch._C._current_graph_task_id()
            if done.name in noise.ADDING and any(-1 < cell.passed != found.passed for cell in own):
                self.accumulated.add(done.where)
        elif done.name.endswith("_"):
            # a gradient that is changed in its place is still in .grad
            found.passed = max(cell.passed for cell in own)

    def _about_sums(self, done: Operation, own: list[Cell], found: Cell) -> None:
        """Where records are summed, in which round, and sums of earlier rounds that come into later ones."""
        if found.summed == done.where and done.name in TAKING:
            self.taken.add(done.where)
        if done.name in noise.ADDING and len(done.pairs) == 1:
            constants = (part for part in done.args if isinstance(part, torch.Tensor) and done.cell(part) is None)
            made = [self._constants.get(part) for part in constants]
            self.plain[done.where] = next((cell.drawn for cell in made if cell is not None), ())
        # a line that sums may also multiply what an earlier round has summed there
        if summed := record_sum(done):
            self.sums[done.where].add(done.name)
        found.added, found.lengths = next(((cell.added, cell.lengths) for cell in own if cell.added), ((), ()))
        rounds = {cell.round for cell in own if cell.summed}
        held = [cell for cell in own if cell.lengths or cell.weights]
        together = [id(weight) for cell in held for weight in cell.weights]
        # a tensor that is added to itself holds the record no more often
        if done.name in noise.ADDING and len(held) > 1 and len(rounds) == 1 and len({*together}) == len(together):
            found.added, found.lengths = done.where, sum((cell.lengths or (length(cell.weights),) for cell in held), ())
        found.round = self.releases.round if summed else max(rounds, default=0)
        kept = {cell.round for cell in own if cell.summed and not cell.changed}
        if len(kept) > 1 and done.name in noise.ADDING | AVERAGING:
            found.carried = found.carried or done.where
            if (begun := self._constants.get(done.out)) is not None:
                self.begun[done.where] = begun.drawn
        if done.name in SHRINKING:
            # momentum, and no sum that is begun anew
            self._constants.put(done.out, None)

    def _about_bounds(self, done: Operation, own: list[Cell], found: Cell, *, backward: bool) -> None:
        """What bounds a record or a sum, here or before."""
        found.bends = frozenset().union(*(cell.bends for cell in own))
        last = next((cell for cell in reversed(own) if cell.bounded), None)
        if last is not None:
            found.bounded, found.each, found.measured = last.bounded, last.each, last.measured
            found.resized = noise.resized(done, last)
        summed = next((cell.summed for cell in own if cell.summed), ())
        if not backward and summed and (factor := multiple(done)) is not None:
            scaled = done.cell(done.args[1]) if done.name in noise.ADDING else None
            summed = summed if scaled is None else scaled.summed
            self.ledger.bend(done, summed, factor)
            found.bends |= {done.where}
        # what the other side lacks, and is made of nothing else, is the record's own
        made_of = [(part, cell) for part, cell in done.pairs if cell.data and part.is_floating_point()]
        found.alone = found.row == WHOLE and all(_of_one_record(part, cell) for part, cell in made_of)
        shared = not found.alone
        if done.out.is_floating_point() and bends(done):
            shared &= self.ledger.bend(done, summed)
            found.bends |= {done.where}
            found.bounded, found.each, found.measured = done.where, done.name in CLAMPING, measured(done)
            found.resized = ()
            found.drowned = done.where if found.noised else ()
        if torch._C._current_graph_task_id() != -1:
            # a model bends gradients on their way and bounds none
            found.bounded, found.each, found.measured = (), False, ()
        ragged = found.ragged or any(cell.ragged for cell in own)
        plain = shared and not found.bent and found.summed and not ragged
        first = (self.ledger.other_factor(done) or bends(done)) and plain
        if done.name in noise.SCALING | noise.ADDING or bends(done):
            # every run asks: which results are sums may show only beside a reference
            self.ledger.bend_first(done, first=bool(first))
        if first:
            found.bent = done.where
            found.bent_sum = summed or found.summed


def _of_one_record(part: torch.Tensor, cell: Cell) -> bool:
    """Whether nothing but one record is in a tensor that the other side may lack: made of it alone, or read so."""
    return cell.alone or (not cell.summed and (cell.row == WHOLE or not covers(part)))
