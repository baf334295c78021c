"""Where noise meets data: what each release costs, and that both sides are equal from there on."""

from __future__ import annotations

import collections
import dataclasses
import math

import torch

from mechanisms.adapters.noise_terms import Terms, together
from mechanisms.adapters.pytorch.replay import noise, traces
from mechanisms.adapters.pytorch.replay.cells import Cell, Event, Operation
from mechanisms.adapters.pytorch.replay.draws import Slot
from mechanisms.adapters.pytorch.replay.facts import Fact
from mechanisms.adapters.pytorch.replay.ledger import Ledger
from mechanisms.adapters.pytorch.replay.meetings import Meeting, is_moved, joined, meeting_of, signs_of, size_of
from mechanisms.adapters.pytorch.replay.stacks import Stack
from mechanisms.adapters.pytorch.replay.storages import laid, variance_in

PASSED_ON = ("mixed_by", "bent_sum", "bends", "carried", "bounded", "measured", "copied", "divided", "each", "weights")
PASSED_ON += ("resized", "added", "lengths")
"""What a release knows of the value that it covers."""
MOST_STORED = 2**28
"""Numbers of releases that are kept for comparison (1 GiB); a longer training is followed so far."""
MOST_COMPARED = 64
"""Numbers of a release's noise that are looked for in others."""


class Enough(BaseException):
    """More rounds than can be kept. Not an Exception: the code's own ``except Exception`` must not catch it."""


class Releases:
    """The releases of one run, compared with those of a run before it."""

    def __init__(self, ledger: Ledger, reference: Releases | None):
        self._ledger, self._reference = ledger, reference
        self.meetings: dict[Slot, Meeting] = {}
        self.events: list[Event] = []
        self.noise: set[int] = set()
        """Draws of the noise of all releases."""
        self.of_this_round: set[int] = set()
        """Those of the round that is under way."""
        self.covering: set[int] = set()
        """Draws of the noise of releases that the record moves."""
        self.choosing: set[int] = set()
        """Draws that went into what they cover."""
        self.scaled: list[tuple[Stack, Stack, Stack]] = []
        """Where noise was scaled otherwise on the two sides, where it was drawn, and where its scale comes from."""
        self.chosen: list[tuple[Stack, Stack]] = []
        """Where a number of the data was read last before other noise was added on the two sides, and its draw."""
        self.leaked: list[Stack] = []
        """Where something released became different on the two sides."""
        self.uncovered: list[Fact] = []
        """Parts of sums that were released while noise met the rest."""
        self.reached: list[Stack] = []
        """Those of them that came into a later release."""
        self.ended = False
        """Whether it was stopped for want of memory."""
        self.astray = False
        """Whether noise met something where it did not in the reference."""
        self.round, self.most = 1, math.inf
        """The round, and the last one that is followed."""
        self._fresh, self._stored = False, 0
        self._told: set[Event] = set()
        """That reached an output."""
        self._made_of: dict[Event, list[Event]] = collections.defaultdict(list)
        """The sums of several releases, by each of these."""
        self._sums: dict[Slot, tuple[torch.Tensor, frozenset[int]]] = {}
        """What noise was added to, as far as it is summed, and the noise's draws; nothing has been made of it yet."""

    def new_round(self) -> None:
        """Something is done that a round begins with; nothing is where nothing was released since the last one."""
        if self._fresh:
            if self.round == self.most:
                raise Enough
            self.round, self._fresh = self.round + 1, False
            self.of_this_round.clear()

    def close(self, draws: frozenset[int] | set[int]) -> None:
        """Sums with this noise are used or told: what is added to them from now on comes after their release."""
        self._sums = {slot: held for slot, held in self._sums.items() if not held[1] & draws}

    def met(self, done: Operation) -> Cell | None:
        """Noise is added to something that is no noise; None where it is not, or covers nothing more."""
        one, other = done.cell(done.args[0]), done.cell(done.args[1])
        if one is not None and other is not None and one.noise and other.noise:
            return None
        place = 0 if one is not None and one.noise else 1
        covering, cell = (one, other) if place == 0 else (other, one)
        assert covering is not None
        data = cell is not None and cell.data
        meeting, terms = meeting_of(done, place)
        if covering.released and not data:
            # that of another part of the batch, which is empty, counts as well
            return self._covered_again(done, cell, terms, covering) if cell is not None and cell.events else None
        if covering.released and not terms.times.any():
            # a part of a tensor whose noise has met data: more records, or a release that is changed
            return Cell(data=True, summed=done.where, draws=done.draws, opaque=True)
        self.noise |= covering.draws
        self.of_this_round |= covering.draws
        slot = self._ledger.slot(done.where, done.name, "meets")
        self._ledger.phase += 1
        if cell is not None and cell.released and not data:
            return self._covered_again(done, cell, terms, covering)
        if self._reference is None:
            self._keep(slot, meeting)
        elif not self._compare(slot, meeting, terms, done, cell or Cell(), covering):
            return Cell(data=True, ragged=True, draws=done.draws, opaque=True)
        if cell is None:
            # noise on a constant is noise still, until data meets it
            return dataclasses.replace(covering, terms=laid(done.out, terms), released=True, events=())
        self._fresh = True
        self._sums[slot] = meeting.value, covering.draws
        return Cell(released=True, draws=covering.draws, events=tuple(self.events[-1:]), meeting=slot)

    def more(self, done: Operation) -> Cell | None:
        """Data is added to the sum that a release has just begun, as where records are added to noise one by one."""
        one, other = done.cell(done.args[0]), done.cell(done.args[1])
        place = 0 if one is not None and one.meeting else 1
        begun, cell = (one, other) if place == 0 else (other, one)
        if begun is None or cell is None or not begun.meeting or not cell.data or not cell.summed:
            return None
        if any(part.shape != done.out.shape for part in done.args[:2]) or any(event.consumed for event in begun.events):
            return None
        signs = signs_of(done)
        if signs[place] != 1 or begun.meeting not in self._sums:
            return None
        slot = begun.meeting
        before, draws = self._sums[slot]
        total = before + done.before[1 - place].detach() * signs[1 - place]
        self._sums[slot] = total, draws
        if self._reference is None:
            self.meetings[slot] = dataclasses.replace(
                self.meetings[slot], value=total.clone(), result=done.out.detach().clone()
            )
        elif (kept := self._reference.meetings.get(slot)) is not None and len(begun.events) == 1:
            (event,) = begun.events
            hidden = event.variance != 0
            difference = (total - kept.value).float()
            event.moved = bool(is_moved(total, kept.value, difference).any())
            event.difference = torch.where(hidden, difference, torch.zeros(()))
            if cell.round < event.round:
                event.carried = event.carried or done.where
            event.raw = event.raw or (done.where if event.bounded and not cell.bounded else ())
            event.bends |= cell.bends
            event.weights = cell.weights or event.weights
            event.copied = cell.copied or event.copied
            event.mixed, event.bent = event.mixed or cell.mixed, event.bent or cell.bent
            done.out.copy_(torch.where(hidden, kept.result, done.out.detach()))
            if event.moved:
                self.covering |= event.covering
                self.choosing |= cell.draws
        return begun

    def keep_told(self, name: str, value: torch.Tensor, cell: Cell) -> None:
        """Remember a sum whose records brought their noise along, for a run beside this one."""
        self._keep(("told", name), Meeting(value, torch.zeros_like(value), value), cell.round)

    def brought(self, cell: Cell, terms: Terms, value: torch.Tensor, other: torch.Tensor) -> bool:
        """A sum whose records brought their noise along is told: one release, if all that the record moves has some."""
        difference = (value - other).float()
        apart = is_moved(value, other, difference)
        if bool((apart & (variance_in(terms) == 0)).any()):
            return False
        covering = cell.draws & self.noise
        event = Event(
            stack=cell.noised,
            origin=cell.summed or cell.noised,
            draw=cell.drawn,
            # other tensors of its round may be told already
            round=cell.round or self.round,
            difference=difference,
            terms=terms,
            shared=() if terms.plain else cell.noised,
            mixed=cell.mixed,
            bent=cell.bent,
            **{name: getattr(cell, name) for name in PASSED_ON},
            sized=cell.sized,
            covering=frozenset(covering),
            choosing=cell.draws - covering,
            moved=bool(apart.any()),
            result=other,
            told=True,
        )
        self._fresh |= event.round == self.round
        self._record(event, cell)
        return True

    def _record(self, event: Event, cell: Cell) -> None:
        self.events.append(event)
        if event.moved:
            self.covering |= event.covering
            self.choosing |= cell.draws

    def combined(self, done: Operation) -> tuple[Event, ...]:
        """Noisy parts that are added up before anything is made of them are one release with all their noise."""
        events = [event for event in done.events if not event.consumed]
        parts = sum(any(not event.consumed for event in cell.events) for cell in done.cells)
        # one release and itself, as Nesterov's momentum adds it, is one release
        single = done.name in noise.ADDING and 1 in (parts, len(events))
        if len({event.round for event in events}) != 1 or single:
            return done.events
        whole = joined(done)
        if whole is None:
            for event in events:
                event.exact = False
            return done.events
        whole.parts = tuple(events)
        relatives = {other for leaf in whole.leaves for other in (leaf, *self._made_of[leaf])}
        # what is made besides of a release that has reached an output tells nothing more
        whole.superseded = not self._told.isdisjoint(relatives)
        for event in [] if whole.superseded else events:
            event.superseded = True
        for leaf in whole.leaves:
            self._made_of[leaf].append(whole)
        self.events.append(whole)
        return (whole,)

    def put_out(self, cell: Cell) -> None:
        """These releases reach an output: a sum that is made of one besides, as a metric is, tells nothing more.

        Nor does a sum of several that reaches none, where another one of them does.
        """
        # an optimiser has taken its step, or it is the end
        self.new_round()
        new = {*cell.events} - self._told
        self._told |= new
        for event in new:
            event.superseded = False
        for one in {one for event in new for leaf in event.leaves for one in self._made_of[leaf]}:
            relatives = {other for leaf in one.leaves for other in (leaf, *self._made_of[leaf])} - {one}
            others = {other for other in relatives & self._told if not self._follows(other)}
            if self._follows(one) or (others and one not in self._told):
                one.superseded = True
            elif others:
                one.exact = False

    @property
    def told(self) -> set[tuple[Stack, int]]:
        """Where noise was added to what reaches an output, and in which rounds."""
        return {(leaf.stack, leaf.round) for event in self._told for leaf in event.leaves}

    def _follows(self, event: Event) -> bool:
        """Whether a sum of releases is made of nothing but what reaches an output."""
        return bool(event.parts) and all(part in self._told or self._follows(part) for part in event.parts)

    def _covered_again(self, done: Operation, cell: Cell, terms: Terms, covering: Cell) -> Cell:
        """More noise on what has some: both count, while nothing was made of it yet."""
        events = [event for event in cell.events if not event.consumed]
        found = Cell(released=True, draws=cell.draws | covering.draws, events=cell.events)
        held = self._sums.get(cell.meeting)
        if held is not None and held[0].shape == done.out.shape:
            # more records may come, each part of them with its share of the noise
            self._sums[cell.meeting] = held[0], held[1] | covering.draws
            found.meeting = cell.meeting
        if self.astray:
            # the release that this belongs to has no counterpart
            return found
        if len(events) == 1 and events[0].difference.shape == done.out.shape:
            more = dataclasses.replace(events[0], terms=together(events[0].terms, terms), result=None)
            events[0].superseded = True
            self.events.append(more)
            found.events = (more,)
        else:
            for event in events:
                event.exact = False
        return found

    def _keep(self, slot: Slot, meeting: Meeting, number: int = 0) -> None:
        self._stored += 3 * meeting.result.numel()
        if self._stored > MOST_STORED:
            self.ended = True
            raise Enough
        value, drawn, result = (part.clone() for part in (meeting.value, meeting.noise, meeting.result))
        self.meetings[slot] = Meeting(value, drawn, result, number or self.round, meeting.variance)

    def _compare(self, slot: Slot, meeting: Meeting, terms: Terms, done: Operation, cell: Cell, covering: Cell) -> bool:
        """Whether this is a release: rows of records that are still apart are none."""
        reference = self._reference
        assert reference is not None
        other = reference.meetings.get(slot)
        if other is None and reference.ended and self._ledger.phase > len(reference.meetings):
            raise Enough
        if other is None or other.value.shape != meeting.value.shape:
            self.astray |= other is None
            return other is None
        difference = (meeting.value - other.value).float()
        if size_of(meeting.noise - other.noise) > traces.tolerance(done.out) * max(
            size_of(meeting.noise), size_of(other.noise)
        ):
            alike = math.isclose(meeting.variance, other.variance, rel_tol=traces.TOLERANCE)
            if not (alike or done.data or meeting.value.any()):
                # it has only begun: more shares of it may come
                return True
            read = () if covering.scaled else next(reversed(self._ledger.read), ())
            if read:
                self.chosen.append((read, covering.drawn))
            elif not alike:
                self.scaled.append((covering.scaled or done.where, covering.drawn, covering.scale_of))
        variance = variance_in(terms)
        hidden = variance != 0
        apart = is_moved(meeting.value, other.value, difference)
        if count := int((apart & ~hidden).sum()):
            # no part of it has noise where that is multiplied by zero
            leaf = f"A part of the sum ({count} of {hidden.numel()} coordinates)"
            leaf = leaf if hidden.any() else f"The sum of round {self.round}"
            left = {"left": covering.uneven} if covering.uneven else {}
            stacks = {"at": cell.summed or done.where, "noisy": done.where, **left}
            self.uncovered.append(Fact(kind="released_without_noise", stacks=stacks, words={"leaf": leaf}))
        done.out.copy_(torch.where(hidden, other.result, done.out.detach()))
        if cell.changed and cell.changed in self.leaked:
            self.reached.append(cell.changed)
        difference = torch.where(hidden, difference, torch.zeros(()))
        if (same := self._released_before(other.result, difference)) is not None:
            # the same sum with the same noise once more tells nothing new
            self.events.remove(same)
            self.events.append(same)
            return True
        event = Event(
            stack=done.where,
            origin=cell.summed or done.where,
            draw=covering.drawn,
            round=self.round,
            difference=difference,
            terms=terms,
            shared=covering.shared,
            # where released values were changed before, rows may differ for that reason
            mixed=() if cell.changed else cell.mixed,
            bent=() if cell.changed else cell.bent,
            **{name: getattr(cell, name) for name in PASSED_ON},
            sized=covering.sized if done.kwargs.get("alpha", 1) in (1, -1) else (done.where, *covering.sized),
            uneven=covering.uneven,
            covering=covering.draws,
            choosing=cell.draws,
            moved=bool(apart.any()),
            result=other.result,
            standard=(meeting.noise / variance.sqrt()).flatten()[:MOST_COMPARED],
        )
        self._record(event, cell)
        return True

    def _released_before(self, result: torch.Tensor, difference: torch.Tensor) -> Event | None:
        """The release of this round that is this one."""
        for event in reversed(self.events):
            if event.round != self.round or event.superseded or event.result is None:
                continue
            if torch.equal(event.result, result) and torch.equal(event.difference, difference):
                return event
        return None
