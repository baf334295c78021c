"""How the code chooses the records of its first batch, beside Poisson batches of a claimed rate."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from mechanisms.adapters.joining_rate import LARGEST_UNIFORM, SLACK, joining_rate, same_size_by_chance
from mechanisms.adapters.pytorch.replay.comparing import size_of
from mechanisms.adapters.pytorch.replay.draws import UNIFORM, Bank, Draw
from mechanisms.adapters.pytorch.replay.facts import Fact
from mechanisms.adapters.pytorch.replay.records import Place, same_batches
from mechanisms.adapters.pytorch.replay.run import Run
from mechanisms.adapters.pytorch.replay.stacks import Stack

RISK = 1e-4
"""Probability at most of saying of Poisson batches that they all have one size."""
MOST_RUNS = 40
ORDERING = frozenset(("randperm", "randint", "randint_like", "random_", "multinomial"))
"""What draws places of records, or an order of them."""

Further = Callable[..., Run | None]
"""A run on a dataset beside a reference; None where the code stops with an error."""


@dataclasses.dataclass(frozen=True)
class Sampler:
    """What a run with the record shows of its batches, and how to run the code again on that dataset."""

    one: Run
    other: Run
    place: Place
    bank: Bank
    further: Further
    dataset: Any
    seed: int

    def too_often(self, rate: float) -> Fact | None:
        """That a Poisson sampler takes the record with a larger probability than ``rate``, but not always."""
        draw, most = self._own_draw(), rate * (1 + SLACK)
        if draw is None:
            return None
        joins = functools.partial(self._joins, draw)
        found = self._told_rate(draw) if draw.rate is not None else joining_rate(joins, most)
        if found is None or not most < found < 1:
            return None
        return Fact(kind="sampled_otherwise", stacks={"draw": self.chosen_at(rate)}, words={"found": found})

    def leaves_out(self, rate: float) -> bool:
        """Whether the record is known to join batches at most at this rate."""
        draw, most = self._own_draw(), rate * (1 + SLACK)
        if draw is None or most >= 1:
            return False
        if draw.rate is not None:
            return draw.rate <= most and self._joins(draw, 0.0) is False
        return self._joins(draw, most) is False

    def chosen_at(self, rate: float) -> Stack:
        """Where the first batch is chosen: where numbers become a choice, or else where they are drawn or changed.

        The latter if they are compared with the claim's own rate.
        """
        draw = self._own_draw()
        if draw is None:
            return self.other.chosen_at
        cut = self.other.cuts.get(draw.number)
        if cut is None or draw.rate is not None:
            return draw.stack
        limit = None if cut.limits is None or not cut.limits.numel() else float(cut.limits.flatten()[-1])
        if limit is not None and any(abs(limit - right) <= SLACK * right for right in (rate, 1 - rate)):
            return next(iter(cut.sized), draw.stack)
        return cut.where

    def fixed(self, rate: float) -> Fact | None:
        """That batches have one size, cut from an order of the records or from nothing that is drawn."""
        runs: list[Run] = []
        for run in self._free_runs():
            runs.append(run)
            batch, ordered = run.batches[0], _ordered(run)
            if ordered is None or not 0 < len(batch) < self.place.records or len(batch) != len(runs[0].batches[0]):
                return None
            if not ordered and batch != runs[0].batches[0]:
                return None
            records = self.place.records + self.place.added
            if same_size_by_chance(len(runs), records, rate) <= RISK:
                words = {"runs": len(runs), "size": len(batch), "of": records}
                at = ordered[0].stack if ordered else run.first_read
                kind = "draw" if ordered else "taken"
                return Fact(kind="sampled_otherwise", stacks={kind: at}, words=words)
        return None

    def always_there(self, runs: int, rate: float, without: Any) -> Fact | None:
        """That the record moves the first round of so many runs, in which nothing made a batch hold it.

        If batches differ in more than the record, as where the last one is always taken, it must be seen in each.
        """
        fact, everybody, held = None, True, True
        for number in range(runs):
            bank, more = Bank(self.place, taken=None), {"seed": self.seed + 1 + number, "stirred": True, "rounds": 1}
            one = self.further(without, None, bank=bank, **more)
            other = None if one is None else self.further(self.dataset, one, bank=bank, **more)
            fact = None if other is None else _moved_at_first(other)
            if fact is None or one is None or other is None:
                return None
            held &= self.place.index in other.batches[0]
            if not held and not same_batches(one.batches, other.batches, self.place):
                return None
            own = [cut for draw, cut in other.cuts.items() if other.draws[draw].picks and other.draws[draw].round == 1]
            everybody &= bool(own) and all(cut.everybody for cut in own)
        # numbers that leave the record out, and a batch that holds it: the places are wrong
        taken = (self.other.chosen_at if held and not everybody else ()) or self.chosen_at(rate)
        if fact is None or not taken:
            return fact
        words = {"everybody": everybody, "held": held}
        return dataclasses.replace(fact, stacks={**fact.stacks, "taken": taken}, words=words)

    def _own_draw(self) -> Draw | None:
        """The only draw of the first round that gives the record a number of its own."""
        added = self.place.added
        if added and self.place.index != self.place.records:
            return None
        own = [draw for draw in _at_first(self.other) if draw.name in UNIFORM or draw.rate is not None]
        each = [draw for draw in own if draw.entries == self.place.records + added]
        # a loop over records draws one number for each
        single = [draw for draw in own if draw.entries == 1]
        times = collections.Counter(draw.stack for draw in single)
        if len(each) == 1 and len(own) == 1:
            return each[0]
        if len(times) == 1 and len(own) == len(single) == self.place.records + added:
            return single[self.place.index]
        return None

    def _joins(self, draw: Draw, share: float) -> bool | None:
        """Whether the record moves the first round if its number is this share of all numbers; None if unknown."""
        from_top = draw.rate is None and bool(self.bank.taken)
        bank = self.bank.changed(draw.slot, LARGEST_UNIFORM - share if from_top else share)
        run = self.further(self.dataset, self.one, bank=bank, rounds=1)
        if run is None or run.releases.astray or run.ledger.choice.apart:
            return None
        return any(event.moved for event in run.releases.events if event.round == 1)

    def _told_rate(self, draw: Draw) -> float | None:
        """What the call is given, if the record joins the batch where the draw is one and only there."""
        return draw.rate if self._joins(draw, 1.0) and self._joins(draw, 0.0) is False else None

    def _free_runs(self) -> Iterator[Run]:
        """First rounds that leave the batch to chance."""
        for number in range(MOST_RUNS):
            more = {"seed": self.seed + 1 + number, "stirred": True, "rounds": 1}
            run = self.further(self.dataset, None, bank=Bank(self.place, taken=None), **more)
            if run is None:
                return
            yield run


def _ordered(run: Run) -> list[Draw] | None:
    """The draws of places or of an order in the first round; None if something else is drawn that may choose."""
    # loaders draw the seeds of their workers
    own = [draw for draw in _at_first(run) if draw.entries > 1 or draw.name not in ORDERING]
    return own if all(draw.name in ORDERING for draw in own) else None


def _at_first(run: Run) -> list[Draw]:
    """The draws of the first round that are neither noise nor initial weights."""
    return [draw for draw in run.draws if draw.round == 1 and draw.entries and draw.number not in run.releases.noise]


def _moved_at_first(run: Run) -> Fact | None:
    """The release of the first round that the record moves most, and where the batch was chosen; None where none is."""
    events = run.releases.events
    own = [event for event in events if event.round == events[0].round and not event.superseded]
    moved = [event for event in own if event.moved]
    if run.releases.astray or run.ledger.choice.apart or not moved or not all(event.known for event in own):
        return None
    top = max(moved, key=size_of)
    stacks = {"origin": top.origin, "at": top.stack} | ({"taken": run.chosen_at} if run.chosen_at else {})
    return Fact(kind="in_every_batch", stacks=stacks)
