"""How the code chooses the records of its first batch, beside Poisson batches, and what it does with an empty one."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import torch

from mechanisms.adapters.joining_rate import LARGEST_UNIFORM, SLACK, joining_rate, same_size_by_chance
from mechanisms.adapters.pytorch.replay.cells import Event
from mechanisms.adapters.pytorch.replay.coins import Coin, coin_of
from mechanisms.adapters.pytorch.replay.comparing import first_sums_differ, size_of
from mechanisms.adapters.pytorch.replay.draws import COINS, PLACING, UNIFORM, Bank, Draw, Slot
from mechanisms.adapters.pytorch.replay.facts import Fact
from mechanisms.adapters.pytorch.replay.records import Place, same_batches
from mechanisms.adapters.pytorch.replay.releases import Enough
from mechanisms.adapters.pytorch.replay.run import Further, Run
from mechanisms.adapters.pytorch.replay.stacks import Stack

RISK = 1e-4
"""Probability at most of saying of Poisson batches that they all have one size."""
MOST_RUNS = 40
MOST_COINS = 2
"""Numbers of one record that are all tried on both sides."""
ORDERING = PLACING | {"randperm"}
"""Draws of places of records, or of an order of all of them."""


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
            return self._by_coins(most)
        joins = functools.partial(self._joins, draw)
        found = joining_rate(joins, most) if draw.rate is None else draw.rate
        if draw.rate is not None and not (joins(1.0) and joins(0.0) is False):
            # it does not join where the draw is one, or not only there
            return None
        if found is None or not most < found < 1:
            return None
        return Fact(kind="sampled_otherwise", stacks={"draw": self.chosen_at(rate)}, words={"found": found})

    def _by_coins(self, most: float) -> Fact | None:
        """A rate that is too large, if a few numbers of the record decide, each only by its side of a limit."""
        if self.place.added and self.place.index != self.place.records:
            return None
        own = {draw.slot: coin_of(draw, self.other.cuts.get(draw.number)) for draw in self._own_coins(self.other) or ()}
        coins = {slot: coin for slot, coin in own.items() if coin is not None}
        for thorough in (False, True):
            found = self._share(self.bank, coins, (), thorough)
            if found is None or not most < found < 1:
                return None
        return Fact(kind="sampled_otherwise", stacks={"draw": [*coins.values()][-1].where}, words={"found": found})

    def _share(self, bank: Bank, coins: dict[Slot, Coin], tossed: tuple[Slot, ...], thorough: bool) -> float | None:
        """How often the record moves the first round, given what it tossed so far; None if that is unknown."""
        run = self._first_round(bank)
        own = None if run is None else self._own_coins(run)
        if run is None or own is None:
            return None
        if not (left := [draw for draw in own if draw.slot not in tossed]):
            return float(_moves_first(run))
        slot, total = left[0].slot, 0.0
        # a number that an earlier one makes useless is compared with nothing
        coin = coin_of(left[0], run.cuts.get(left[0].number)) or coins.get(slot)
        if coin is None or slot not in bank or len(tossed) >= MOST_COINS:
            return None
        coins[slot] = coin
        for side in coin.sides:
            tried = side.tried if thorough else side.tried[len(side.tried) // 2 :][:1]
            share, *others = {self._share(bank.changed(slot, at), coins, (*tossed, slot), thorough) for at in tried}
            if share is None or others:
                return None
            total += side.rate * share
        return total

    def _own_coins(self, run: Run) -> list[Draw] | None:
        """The draws of the first round that give the record, the last one, a number of its own, where all are such.

        A loop over records draws one number or several for each, maybe another only if the first leaves it out.
        """
        records = self.place.records + self.place.added
        own = [draw for draw in _at_first(run) if draw.name in UNIFORM or draw.rate is not None]
        if all(draw.entries == records for draw in own):
            return own
        known = {draw.slot for draw in self.one.draws}
        return [draw for draw in own if draw.slot not in known] if all(draw.entries == 1 for draw in own) else None

    def shared(self, rate: float, runs: int, without: Any) -> Fact | None:
        """That one number takes the record together with others, or none of them, in all of so many runs.

        In a draw with fewer numbers than there are records, each taken at the claimed rate at least. Whoever knows the
        others then knows who is in the batch.
        """
        records = self.place.records + self.place.added
        known = {draw.slot: draw.entries for draw in self.one.draws}
        own = [draw for draw in _at_first(self.other) if draw.name in UNIFORM | COINS and 1 < draw.entries < records]
        if not (self.place.added and self.place.index == self.place.records and len(own) == 1):
            return None
        coin = coin_of(own[0], self.other.cuts.get(own[0].number))
        if coin is None or known.get(coin.draw.slot) != coin.draw.entries:
            return None
        for place in dict.fromkeys((coin.draw.entries - 1, self.place.index % coin.draw.entries)):
            taken = (self._takes_others(coin, place, number, rate, without) for number in range(runs))
            if runs and all(taken):
                return Fact(kind="sampled_otherwise", stacks={"draw": coin.draw.stack}, words={"together": runs})
        return None

    def _takes_others(self, coin: Coin, place: int, number: int, rate: float, without: Any) -> bool:
        """Whether a number of a draw takes the record and others, where all else is left to chance."""
        more = {"seed": self.seed + 1 + number, "stirred": True, "rounds": 1}
        bank, alone, moved = Bank(self.place, taken=None), [], []
        if self.further(self.dataset, None, bank=bank, **more) is None or coin.draw.slot not in bank:
            return False
        for side in coin.sides:
            changed = bank.changed(coin.draw.slot, side.tried[len(side.tried) // 2], place)
            one = self.further(without, None, bank=changed, **more)
            other = None if one is None else self.further(self.dataset, one, bank=changed, **more)
            if one is None or other is None or other.releases.astray:
                return False
            alone.append(one)
            moved += [side] if _moved_at_first(other) is not None else []
        often = len(moved) == 1 and moved[0].rate >= rate * (1 - SLACK)
        return often and first_sums_differ(*alone)

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
            return self.other.reads.chosen_at
        cut = self.other.cuts.get(draw.number)
        if cut is None or draw.rate is not None:
            return draw.stack
        limit = None if cut.limits is None or not cut.limits.numel() else float(cut.limits.flatten()[-1])
        if limit is not None and any(abs(limit - right) <= SLACK * right for right in (rate, 1 - rate)):
            return next(iter(cut.sized), draw.stack)
        return cut.where

    def drawn_once(self, steps: int) -> Fact | None:
        """That one draw chooses the batches of several rounds, of as many as the claim counts at most.

        Without the record in that draw alone, the record is in none of them.
        """
        events = [event for event in self.other.releases.events if event.moved and not event.superseded]
        rounds = {event.round for event in events}
        draw, many = self._first_of_batches()
        if draw is None or not many < len(rounds) <= steps:
            return None
        bank = self.bank.changed(
            draw.slot, 0.0 if draw.rate is not None else LARGEST_UNIFORM - (self.bank.taken or 0.0)
        )
        run = self.further(self.dataset, self.one, bank=bank)
        if run is None or run.releases.astray or run.ledger.choice.apart:
            return None
        of_it = rounds - {event.round for event in run.releases.events if event.moved}
        if len(of_it) < 2:
            return None
        at = next(event.stack for event in events if event.round in of_it)
        stacks = {"draw": draw.stack, "at": at}
        return Fact(kind="sampled_otherwise", stacks=stacks, words={"rounds": len(of_it)})

    def fixed(self, rate: float) -> Fact | None:
        """That batches have one size, cut from an order of the records or from nothing that is drawn."""
        runs: list[Run] = []
        for run in self._free_runs():
            runs.append(run)
            batch, ordered = run.reads.batches[0], _ordered(run)
            first = runs[0].reads.batches[0]
            if ordered is None or not 0 < len(batch) < self.place.records or _size(run) != _size(runs[0]):
                return None
            if not ordered and batch != first:
                return None
            records = self.place.records + self.place.added
            if same_size_by_chance(len(runs), records, rate) <= RISK:
                words = {"runs": len(runs), "size": _size(run), "of": records}
                at = ordered[0].stack if ordered else run.reads.first
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
            held &= self.place.index in other.reads.batches[0]
            if not held and not same_batches(one.reads.batches, other.reads.batches, self.place):
                return None
            own = [cut for draw, cut in other.cuts.items() if other.draws[draw].picks and other.draws[draw].round == 1]
            everybody &= bool(own) and all(cut.everybody for cut in own)
        # numbers that leave the record out, and a batch that holds it: the places are wrong
        taken = (self.other.reads.chosen_at if held and not everybody else ()) or self.chosen_at(rate)
        if fact is None or not taken:
            return fact
        words = {"everybody": everybody, "held": held}
        return dataclasses.replace(fact, stacks={**fact.stacks, "taken": taken}, words=words)

    def _first_of_batches(self) -> tuple[Draw | None, int]:
        """The first draw that gives the record a number of its own, and how many batches there are such draws for."""
        if self.place.added and self.place.index != self.place.records:
            return None, 0
        drawn = [draw for draw in self.other.draws if draw.number not in self.other.releases.noise]
        own = [draw for draw in drawn if draw.name in UNIFORM or draw.rate is not None]
        records = self.place.records + self.place.added
        if each := [draw for draw in own if draw.entries == records]:
            return each[0], len(each)
        single = [draw for draw in own if draw.entries == 1]
        if len({draw.stack for draw in single}) != 1 or len(single) % records:
            return None, 0
        return single[self.place.index], len(single) // records

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
        return self._moves(self.bank.changed(draw.slot, LARGEST_UNIFORM - share if from_top else share))

    def _moves(self, bank: Bank) -> bool | None:
        """Whether the record moves the first round with these draws; None if unknown."""
        run = self._first_round(bank)
        return None if run is None else _moves_first(run)

    def _first_round(self, bank: Bank) -> Run | None:
        run = self.further(self.dataset, self.one, bank=bank, rounds=1)
        return None if run is None or run.releases.astray or run.ledger.choice.apart else run

    def _free_runs(self) -> Iterator[Run]:
        """First rounds that leave the batch to chance."""
        for number in range(MOST_RUNS):
            more = {"seed": self.seed + 1 + number, "stirred": True, "rounds": 1}
            run = self.further(self.dataset, None, bank=Bank(self.place, taken=None), **more)
            if run is None:
                return
            yield run


def _size(run: Run) -> int:
    """How many records the first batch has, each as often as its place is drawn."""
    drawn = [draw for draw in _ordered(run) or () if draw.name in PLACING and draw.stack == run.reads.chosen_at]
    return drawn[0].entries if len(drawn) == 1 else len(run.reads.batches[0])


def _ordered(run: Run) -> list[Draw] | None:
    """The draws of places or of an order in the first round; None if something else is drawn that may choose."""
    # loaders draw the seeds of their workers
    own = [draw for draw in _at_first(run) if draw.entries > 1 or draw.name not in ORDERING]
    return own if all(draw.name in ORDERING for draw in own) else None


def _at_first(run: Run) -> list[Draw]:
    """The draws of the first round that are neither noise nor initial weights."""
    return [draw for draw in run.draws if draw.round == 1 and draw.entries and draw.number not in run.releases.noise]


def _moves_first(run: Run) -> bool:
    return any(event.moved for event in run.releases.events if event.round == 1)


def _moved_at_first(run: Run) -> Fact | None:
    """The release of the first round that the record moves most, and where the batch was chosen; None where none is."""
    events = run.releases.events
    own = [event for event in events if event.round == events[0].round and not event.superseded]
    moved = [event for event in own if event.moved]
    if run.releases.astray or run.ledger.choice.apart or not moved or not all(event.known for event in own):
        return None
    top = max(moved, key=size_of)
    stacks = {"origin": top.origin, "at": top.stack} | ({"taken": run.reads.chosen_at} if run.reads.chosen_at else {})
    return Fact(kind="in_every_batch", stacks=stacks)


class Nobody(Bank):
    """Draws with which a Poisson sampler takes no record into the first batch, or ``always`` into none."""

    def __init__(self, place: Place, *, taken: float | None, noise: set[Stack], always: bool = False):
        super().__init__(place, taken=taken)
        self.noise = noise
        """Where that of a first round is drawn."""
        self._leaves, self._always = LARGEST_UNIFORM - (taken or 0.0), always
        self.where: Stack = ()
        """Where the batch is drawn."""
        self.times = 0
        """How many draws it takes: one, or one for each record."""
        self._again = False
        """Whether another one was drawn."""
        self.noisy = False
        """Whether noise was drawn after the first."""

    def settle(self, slot: Slot, name: str, value: torch.Tensor) -> None:
        """Make ``value``, just drawn, leave all records out, if it chooses among them."""
        assert self.place is not None
        _, where, _, passed = slot
        if self.where and where in self.noise and not self._again:
            self.noisy = True
            raise Enough
        each, uniform = value.numel() == 1, name in UNIFORM
        if isinstance(value, torch.nn.Parameter) or not (uniform or name in COINS):
            return
        many = value.dim() == 1 and len(value) in (self.place.records, self.place.records + 1)
        first = not self.where or (each and where == self.where and passed <= self.place.records)
        if (each or many) and (first or self._always):
            value.fill_(self._leaves if uniform else 0)
            self.where, self.times = where, self.times + 1
        self._again |= where == self.where and not first


def without_noise(full: Run, empty: Run, bank: Nobody) -> Event | None:
    """A release of the first round whose noise nobody draws where the batch is empty, there or at any other line.

    A batch that is drawn again until it holds somebody takes nothing away from the noise.
    """
    draws, drawn = empty.draws, [number for number, draw in enumerate(empty.draws) if draw.stack == bank.where]
    events = [event for event in full.releases.events if event.draw in bank.noise]
    if not drawn or not events or bank.noisy:
        return None
    noise, known = bank.noise, {draw.stack for draw in full.draws}
    times = min(bank.times, len(drawn))
    then = draws[drawn[times - 1] + 1 : drawn[times] if times < len(drawn) else None]
    if any(draw.stack not in known for draw in then):
        return None
    fewer, all_of_it = (sum(draw.stack in noise for draw in run.draws) for run in (empty, full))
    return events[0] if fewer < all_of_it else None
