"""One replay of PyTorch code: the facts that its runs show together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from mechanisms.adapters.pytorch.replay import comparing, joint_noise, mixing, short_rounds
from mechanisms.adapters.pytorch.replay.differing_outputs import CHANGED, OTHER_NUMBER, differing, noise_apart
from mechanisms.adapters.pytorch.replay.draws import Bank, Seedings, batches_drawn
from mechanisms.adapters.pytorch.replay.facts import Cost, Fact, Seen
from mechanisms.adapters.pytorch.replay.records import enlarged, others_apart
from mechanisms.adapters.pytorch.replay.run import Run
from mechanisms.adapters.pytorch.replay.runs import Runs
from mechanisms.adapters.pytorch.replay.sampling import Nobody, Sampler, without_noise
from mechanisms.adapters.pytorch.replay.stacks import Stack, lines_run, turned_away
from mechanisms.adapters.pytorch.replay.unseen_noise import beside_tensors
from mechanisms.adapters.pytorch.streams import stream_of

FACTOR = 50.0
"""How many times larger a record is made."""
SCALES = (FACTOR**2, FACTOR)
"""Factors of the record if it is made larger twice, in this order."""
COMPANY = ((True, True, False), (True, True, True, *[False] * 61))
"""Which of the first other records a Poisson batch holds, look by look: the record begins a group of its own in a batch
of n or of n + 1 records, and padding shows in a small one."""
CERTAIN = frozenset(("not_followed", "key_used_twice", "in_every_batch", "sampled_otherwise"))
"""Kinds of facts that do not follow from numbers of Python's."""
BESIDE = (
    "noise drawn here is added by NumPy or among Python's own numbers, which are not followed, and what it changes may "
    "be covered by it"
)
MOST_TWICE = 2**20
"""Numbers in the outputs of code that is looked at twice."""


class Replay(Runs):
    """What the runs of one piece of code on a pair show together."""

    def seen(self) -> Seen:
        """Run and compare: only the rounds before noise meets data where nobody sees it, if more look wrong."""
        seen, one = self._seen(), self._one
        certain = tuple(fact for fact in seen.facts if fact.kind in CERTAIN)
        left = None if one is None or certain == seen.facts else beside_tensors(one, self._bank, self._on_draws)
        if one is None or self._full is None or left is None:
            return seen
        (where, number), told = left, self._full.releases.told
        beside = Fact(kind="not_followed", stacks={"drawn": where}, words={"why": BESIDE})
        if number == 1:
            return dataclasses.replace(seen, facts=(*certain, beside), costs=())
        later = number <= one.releases.round
        if later:
            self._facts, self._most = [], number - 1
            seen = self._seen()
        facts = [*certain, *seen.facts] if later else [fact for fact in seen.facts if fact.kind != CHANGED]
        # more noise may have met what reaches no output as it was
        costs = [(fact.words.get("cost"), fact) for fact in facts]
        kept = [fact for cost, fact in costs if cost is None or (cost.top.stack, cost.number) in told]
        judged = seen.judged and len(kept) == len(facts)
        changed = later or len(kept) < len(seen.facts)
        return dataclasses.replace(seen, facts=(*kept, beside), judged=judged) if changed else seen

    def _seen(self) -> Seen:
        one, other = self._pair()
        self._one, self._full = one, other
        self._about_randomness(one, other)
        choice = other.ledger.choice
        if choice.differs:
            how = f"at rates {choice.rates[0]:.4g} and {choice.rates[1]:.4g}" if choice.rates else "otherwise"
            origin = f": on equal draws the two datasets sample the same {choice.of} records {how}"
            self._say("randomness_from_data", {"draw": choice.stack}, origin=origin, rates=choice.rates)
        if choice.apart:
            self._about_outputs(one, other)
            return self._answer(one, other, ())
        if other.releases.astray or one.ledger.phase != other.ledger.phase:
            self._about_rounds(one, other)
            return self._answer(one, other, ())
        largest = [other]
        if not self._about_outputs(one, other):
            self._about_mixing(one, other, (self._without, self._with))
            if self._elsewhere(one, other):
                if not self._facts:
                    self._facts.append(mixing.other_batches(other, unseen=self._moves_without_draws(one)))
                return self._answer(one, other, ())
            self._about_ranks(other)
            largest += self._about_clipping(one, other)
            for run, scale in zip(largest[1:], SCALES, strict=False):
                if self._changes(one, run, scale):
                    del largest[1:]
        reused = all(fact.kind == "key_used_twice" for fact in self._facts)
        own = {self._seed, stream_of(self._seed)}
        if reused and not joint_noise.drawn_by_the_seed(other, own) and (again := self._of_another_seed()) is not None:
            names = [*other.outputs] or ["what is released"]
            found = joint_noise.same_in_every_run(other, again, comparing.together(names))
            self._facts += self._constant(other, found)
        elsewhere = any(other.draws[number].seed not in own for number in joint_noise.picking(other))
        if self._rate is not None and not self._facts and elsewhere and (again := self._of_another_seed()) is not None:
            self._facts += self._constant(other, joint_noise.same_batches_in_every_run(other, again))
        self._facts += noise_apart(other)
        for read, draw in dict.fromkeys(other.releases.chosen):
            self._say("randomness_from_data", {"read": read, "draw": draw})
        costs = [
            list(comparing.round_costs(run.releases.events, scale))
            for run, scale in zip(largest, (1.0, *SCALES), strict=False)
        ]
        costs += self._costs_otherwise(one, other, costs)
        told: Sequence[Cost] = costs[0]
        dependent = any("shared" in fact.stacks for fact in self._facts)
        if not self._about_tensors(one, other) and self._stated is not None and not dependent:
            repeated = other.reads.repeated or one.reads.repeated
            batches = batches_drawn(other.draws, self._place)
            places = {"repeated": repeated, "again": other.reads.again, "begun": other.begun, "batches": batches}
            short = short_rounds.short_rounds(costs, self._stated, last=self._last_round(), **places)
            # a record of another size may take another way than both datasets
            if short is not None and (short[1] is told or not self._about_numbers(one, other)):
                fact, told = short
                index = None if self._place is None else self._place.index
                self._facts.append(dataclasses.replace(fact, words={**fact.words, "index": index}))
        self._about_unknown(other)
        self._about_numbers(one, other)
        if not (self._stated is None or self._facts or joint_noise.rounds_depend(other.releases.events)):
            self._facts += short_rounds.nearly_right(told, self._stated)
        far = self._clip is not None and any(cost.sensitivity > self._clip * (1 + mixing.SLACK) for cost in told)
        foreign = (far or bool(self._facts)) and self._moves_without_draws(one)
        if foreign:
            self._facts = [fact for fact in self._facts if fact.kind == "key_used_twice"]
            self._say(
                "not_followed",
                {},
                why="random numbers that no PyTorch generator draws (NumPy's, Python's) reach the release",
            )
        return self._answer(one, other, told, followed=not foreign)

    def sampling(self, runs: int, steps: int) -> tuple[Fact, ...]:
        """Facts about batches that are not as claimed; the claim counts ``steps`` of them.

        ``runs`` are those that show whether every batch holds the record.
        """
        rate, one, other, place = self._rate, self._one, self._full, self._place
        if rate is None or one is None or other is None or place is None:
            return ()
        sampler = Sampler(one, other, place, self._bank, self._further, self._with, self._seed)
        if (found := sampler.drawn_once(steps)) is not None:
            return (found,)
        if sampler.leaves_out(rate):
            return ()
        found = sampler.too_often(rate) or sampler.fixed(rate)
        found = found or sampler.shared(rate, runs, self._without) or sampler.always_there(runs, rate, self._without)
        return () if found is None else (found,)

    def skipped(self) -> tuple[Fact, ...]:
        """The fact that a round with an empty batch gets no noise, after ``seen`` has found nothing."""
        if self._place is None or self._full is None:
            return ()
        noise = {event.draw for event in self._full.releases.events if event.round == 1 and event.moved}
        bank = Nobody(self._place, taken=self._bank.taken, noise=noise)
        empty = self._further(self._without, None, bank=bank)
        event = None if empty is None else without_noise(self._full, empty, bank)
        if event is None:
            return ()
        nobody = Nobody(self._place, taken=self._bank.taken, noise=noise, always=True)
        lines = lines_run(lambda: self._further(self._without, None, bank=nobody))
        stacks = {"skipped": turned_away(event.stack, lines), "noisy": event.stack}
        return (Fact(kind="released_without_noise", stacks=stacks, words={"leaf": "A round whose batch is empty"}),)

    def _answer(self, one: Run, other: Run, costs: Sequence[Cost], *, followed: bool = True) -> Seen:
        opaque = tuple(dict.fromkeys([*one.lost, *other.lost]))
        if one.releases.ended:
            opaque += (f"what comes after the first {len(one.releases.meetings)} releases, for want of memory",)
        releases = {event.stack for event in other.releases.events}
        return Seen(
            facts=tuple(map(self._numbers(one, other).beside, self._facts)),
            costs=tuple(costs),
            draws=len({draw.stack for draw in other.draws}),
            releases=len(releases),
            opaque=opaque,
            read=frozenset(other.read),
            judged=not costs or (followed and not joint_noise.rounds_depend(other.releases.events)),
            again=self._bank.in_company and sum(out.value.numel() for out in one.outputs.values()) <= MOST_TWICE,
        )

    def _about_randomness(self, one: Run, other: Run) -> None:
        reused = joint_noise.reused_states(other)
        if reused and (again := self._further(self._with, one, seedings=Seedings())) is not None:
            reused = joint_noise.with_seedings(reused, other, again)
        self._facts += reused or joint_noise.repeated_noise(other.releases.events)
        apart = [
            (slot, where)
            for slot, (seed, where) in other.seeds.items()
            if slot in one.seeds and one.seeds[slot][0] != seed
        ]
        if apart:
            again = self._run(self._without, None)
            apart = [(slot, where) for slot, where in apart if again.seeds.get(slot) == one.seeds[slot]]
        if apart:
            self._say(
                "randomness_from_data", {"draw": apart[0][1]}, origin=": their seed differs between the two datasets"
            )

    def _constant(self, other: Run, found: list[Fact]) -> list[Fact]:
        """What another seed does not change, nor other draws: a seed may be drawn."""
        if not found:
            return []
        fresh = self._further(self._with, None, seed=self._seed + 1, stirred=True, bank=Bank())
        return found if fresh is None else joint_noise.of_one_seed(found, other, fresh)

    def _about_rounds(self, one: Run, other: Run) -> None:
        again = self._further(self._without, one)
        both = None if again is None else comparing.in_other_shares(again.releases.events, other.releases.events)
        if both is not None and math.isclose(*both, rel_tol=mixing.SLACK):
            self._say("not_followed", {}, why="noise is added in another number of shares on the two datasets")
            return
        if both is not None and other.releases.scaled:
            self._facts += noise_apart(other)
            return
        for at in dict.fromkeys(other.releases.reached):
            self._say("changed_after_release", {"at": at}, origin=OTHER_NUMBER)
        if other.releases.reached:
            return
        ended = min((one, other), key=lambda run: run.ledger.phase)
        stops = ended.numbers or one.numbers or other.numbers
        times = (one.ledger.phase, other.ledger.phase)
        if times[0] != times[1] and stops and (draw := self._noise_of_each(one, other)):
            self._say("noise_scale_from_data", {"each": draw})
        elif times[0] != times[1] and stops and not comparing.draw_alike(one, other):
            origin = f", and decide how often it is released: {times[0]} and {times[1]} times"
            self._say("changed_after_release", {"at": stops[-1]}, origin=origin)
        else:
            self._say("not_followed", {}, why="the two datasets do not take the same steps")

    def _about_outputs(self, one: Run, other: Run) -> bool:
        """What still differs at the end; whether something does that cannot be looked through."""
        told, unseen = differing(
            one, other, lambda noised: self._exceeds_its_noise(noised, one, other), self._reached(one)
        )
        if other.more_noise and (draw := self._noise_of_each(one, other)):
            told = [Fact(kind="noise_scale_from_data", stacks={"each": draw})]
        self._facts += told
        return unseen

    def _exceeds_its_noise(self, noised: Stack, one: Run, other: Run) -> bool:
        """Whether single records that get noise are not bounded there: one is too long for it, or a larger one is."""
        if self._stated and other.over_noise[noised] * self._stated > 1 + mixing.SLACK:
            return True
        larger = None if self._place is None else enlarged(self._with, self._place.index, FACTOR)
        run = None if larger is None else self._further(larger, one)
        return run is not None and run.noised[noised] > comparing.MUCH * other.noised[noised] > 0

    def _about_ranks(self, other: Run) -> None:
        """Whether a median, say, mixes records: it moves if the record stands above all others, or below them."""
        if self._facts or self._place is None or not other.ranks:
            return
        for factor in (FACTOR, 1 / FACTOR):
            without, with_record = (others_apart(side, self._place, factor) for side in (self._without, self._with))
            if without is None or with_record is None:
                return
            one = self._further(without, None)
            two = None if one is None else self._further(with_record, one)
            if one is not None and two is not None and not self._facts:
                self._about_mixing(one, two, (without, with_record))

    def _about_mixing(self, one: Run, other: Run, pair: tuple[Any, Any]) -> None:
        """Whether the record's share of a release depends on who else is in it: suspected on the way, then tried."""
        suspects = [
            number
            for number, event in enumerate(other.releases.events)
            if event.moved
            and not event.superseded
            and (event.mixed or event.bent)
            and event.round <= self._last_round()
        ]
        if not suspects or self._place is None:
            return
        company = mixing.Company(one, other, pair, self._place, self._further)
        found = mixing.mixing(company, other, suspects, elsewhere=self._elsewhere(one, other))
        numbers = self._numbers(one, other)
        if any(fact.words.get("why") == mixing.UNPLACED for fact in found):
            found = numbers.mixing() or self._mixed_by_another(one, other, pair, suspects) or found
        covered = [
            cost.deviation / self._stated for cost in comparing.round_costs(other.releases.events) if self._stated
        ]
        most = min(covered, default=0.0) if self._clip is None else self._clip
        self._facts += map(numbers.through, company.moved_too_far(found, SCALES, most))

    def _mixed_by_another(self, one: Run, other: Run, pair: tuple[Any, Any], suspects: list[int]) -> list[Fact]:
        """The line that another record shows, where this one adds too little."""
        assert self._place is not None
        larger = enlarged(pair[1], self._place.index, -FACTOR)
        run = None if larger is None else self._further(larger, one)
        if run is None or run.releases.astray or len(run.releases.events) != len(other.releases.events):
            return []
        company = mixing.Company(one, run, (pair[0], larger), self._place, self._further)
        found = mixing.mixing(company, run, suspects, elsewhere=self._elsewhere(one, run))
        return [fact for fact in found if fact.words.get("why") != mixing.UNPLACED]

    def _about_clipping(self, one: Run, other: Run) -> list[Run]:
        """Whether a record many times larger moves the releases further, and then further again."""
        moved = [number for number, event in enumerate(other.releases.events) if event.moved and not event.superseded]
        if self._place is None or not moved or any(fact.kind != "key_used_twice" for fact in self._facts):
            return []
        lengths, runs = [comparing.length_of(other.releases.events, moved)], []
        for factor in SCALES:
            dataset = enlarged(self._with, self._place.index, factor)
            run = None if dataset is None else self._further(dataset, one)
            if run is None or run.releases.astray or len(run.releases.events) != len(other.releases.events):
                return runs
            if short_rounds.is_covered(list(comparing.round_costs(run.releases.events)), self._stated):
                return [*runs, run]
            length = comparing.length_of(run.releases.events, moved)
            if not math.isfinite(length):
                return runs
            if length <= mixing.GROWN * lengths[0]:
                return [*runs, run]
            lengths.append(length)
            runs.append(run)
        times = lengths[1] / lengths[2]
        if times > comparing.MUCH:
            event = max((other.releases.events[number] for number in moved), key=comparing.size_of)
            if event.raw:
                self._say(CHANGED, {"at": event.raw}, origin="")
                return []
            stacks = {"at": event.stack, "origin": event.origin}
            leaves = comparing.unbounded(other, runs, moved)
            cost = next(comparing.round_costs(other.releases.events), None)
            self._say("not_clipped", stacks, scale=FACTOR, times=times, leaves=leaves, cost=cost)
            return []
        return runs

    def _costs_otherwise(self, one: Run, other: Run, costs: Sequence[Sequence[Cost]]) -> list[list[Cost]]:
        """What a smaller record costs, and one of the other sign where the record is too short to be clipped.

        A length that leaves out a bias is nearly right for a large record. None where one as it is costs too much.
        """
        numbers = sum(out.value.numel() for out in one.outputs.values())
        if self._stated is None or self._place is None or self._facts or not costs[0] or numbers > MOST_TWICE:
            return []
        least = min(cost.multiplier for found in costs for cost in found)
        if least * (1 + mixing.SLACK) < self._stated:
            return []
        found = []
        scales = (1 / FACTOR,) if least <= self._stated * (1 + mixing.SLACK) else (1 / FACTOR, -FACTOR)
        for scale in (*scales, *short_rounds.near_the_bound(costs, self._clip, self._stated)):
            dataset = enlarged(self._with, self._place.index, scale)
            run = None if dataset is None else self._further(dataset, one)
            if run is None or run.releases.astray or len(run.releases.events) != len(other.releases.events):
                continue
            if self._changes(one, run, scale):
                return []
            own = list(comparing.round_costs(run.releases.events, scale))
            found += [own] if all(math.isfinite(cost.sensitivity) for cost in own) else []
        return found

    def _about_tensors(self, one: Run, other: Run) -> bool:
        """Whether a tensor has less noise than others that are clipped together with it."""
        if self._stated is None or self._place is None or self._facts:
            return False
        runs, events = [other], other.releases.events
        for turned in (False, True) if short_rounds.is_uneven(events, self._stated) else ():
            dataset = enlarged(self._with, self._place.index, FACTOR, turned=turned)
            run = None if dataset is None else self._further(dataset, one)
            if run is not None and len(run.releases.events) == len(events):
                runs.append(run)
        found = short_rounds.short_parts([run.releases.events for run in runs], self._stated)
        for event, fact in found:
            names = comparing.holding(other, [event])
            some = fact.words["some"]
            leaf = names[0] if len(names) == 1 else "the sum" if some else "one tensor"
            self._facts.append(dataclasses.replace(fact, words={**fact.words, "leaf": f"{some}{leaf}"}))
        return bool(found)

    def _about_unknown(self, other: Run) -> None:
        """Noise of which nobody knows the deviation: no multiplier is told, and silence would read as a right one."""
        if self._facts:
            return
        moved = [event for event in other.releases.events if event.moved and not event.superseded]
        unknown = [event for event in moved if not event.known or joint_noise.squared_length([event]) is None]
        if unknown:
            why = "the deviation of the noise could not be followed from where it is drawn to where it is added"
            self._say("not_followed", {"beyond": unknown[0].uneven, "at": unknown[0].stack}, why=why)

    def _about_numbers(self, one: Run, other: Run) -> bool:
        found = [] if self._facts else self._numbers(one, other).deciding_alike()
        self._facts += found
        return bool(found)

    def _changes(self, one: Run, run: Run, scale: float) -> bool:
        """Whether a record of another size changes a released value, where the record as it is shows nothing."""
        told, _ = ([], False) if self._facts else differing(one, run, lambda noised: False, self._reached(one))
        changed = [self._numbers(one, run).beside(fact) for fact in told if fact.kind == CHANGED]
        self._facts += [dataclasses.replace(fact, words={**fact.words, "scale": scale}) for fact in changed]
        return bool(changed)
