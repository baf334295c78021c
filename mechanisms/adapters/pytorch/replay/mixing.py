"""Whether what a record adds to a release depends on the others, also where the batches hold other records."""

from __future__ import annotations

import collections
import dataclasses
import math
from typing import Any

import torch

from mechanisms.adapters.pytorch.replay import comparing, noise, traces
from mechanisms.adapters.pytorch.replay.cells import Event
from mechanisms.adapters.pytorch.replay.draws import Slot
from mechanisms.adapters.pytorch.replay.facts import Fact
from mechanisms.adapters.pytorch.replay.ledger import Bend
from mechanisms.adapters.pytorch.replay.noise import PRODUCTS
from mechanisms.adapters.pytorch.replay.records import Place, among_others, enlarged, replaced
from mechanisms.adapters.pytorch.replay.run import Further, Run
from mechanisms.adapters.pytorch.replay.stacks import Stack

SLACK = 0.02
"""What rounding may add to a difference, over it."""
GROWN = 1.5
"""How many times further a larger record moves what is not bounded, at least."""
SMALLER = 1 / 50
"""By which the record is multiplied to see whether others change what that does."""
OTHER_BATCHES = Fact(
    kind="not_followed",
    stacks={},
    words={
        "why": "on equal draws the batches of the two datasets differ in more than the one record, as where a batch's "
        "size is computed from the number of records, those that were taken and others fill a fixed number of places, "
        "records are sorted by what they hold, or noise is drawn before a loop that draws a number for each record"
    },
)
DRAWN_ELSEWHERE = (
    "NumPy or Python draws which records a batch holds, and a replay makes only PyTorch's draws equal on the two "
    "datasets: draw them with PyTorch, as by torch.rand(len(data)) < rate"
)
UNPLACED = "what the record adds to the sum depends on the other records, and the line that makes it so was not found"
BOUNDED_AGAIN = (
    "a sum of records, each of which is bounded on its own, is changed once more, and how far the record then moves it "
    "depends on the others"
)
REPEATED = (
    "a batch holds a record more than once, as where it is padded with copies, and how often depends on chance or on "
    "the other records"
)
EXTREME = frozenset(("max", "amax", "min", "amin", "median", "kthvalue"))
"""What makes one number of all records and sums none."""
ADDING_UP = noise.ADDING | PRODUCTS | {"sum", "mean", "cumsum"}
"""What sums records, if it is given several; a loss that is told for each of them is none of these."""


class Company:
    """Runs of both sides among other records: those of ``pair``, beside ``one`` and ``other`` as they are."""

    def __init__(self, one: Run, other: Run, pair: tuple[Any, Any], place: Place, further: Further):
        self._one, self._other, self._index, self._further = one, other, place.index, further
        self.repeated = other.reads.repeated or one.reads.repeated or other.ledger.several
        """Where places were made that hold a record more than once, in a batch of either side."""
        # a dataset that lacks the record has another there
        sides = among_others(pair[0], None if place.added else place.index), among_others(pair[1], place.index)
        self._runs = [] if any(side is None for side in sides) else self._alike(*sides)
        self._without, self._with = pair[0], (pair[1], sides[1])
        self._small: list[Run] | None = None

    def _alike(self, *datasets: Any) -> list[Run]:
        """Runs that release as often; none where one of them does not."""
        many = len(self._other.releases.events)
        runs = [run for side in datasets if (run := self._further(side, self._one)) is not None]
        return runs if len(runs) == len(datasets) and all(len(run.releases.events) == many for run in runs) else []

    def changes(self, number: int) -> bool:
        """Whether one more record moves a release otherwise among others."""
        return bool(self._runs) and self._apart(number, *self._runs)

    def mixes(self, number: int) -> bool:
        """Whether others change what it does to make the record smaller: not where batches merely hold others.

        So where that cannot be tried.
        """
        if self._small is None:
            smaller = [enlarged(side, self._index, SMALLER) for side in self._with]
            if any(side is None for side in smaller):
                smaller = [replaced(side, self._index) for side in self._with]
            self._small = [] if any(side is None for side in smaller) else self._alike(*smaller)
        if not self._small:
            return True
        alone, among = (run.releases.events[number].difference for run in self._small)
        event, then = (run.releases.events[number].difference for run in (self._other, self._runs[1]))
        if len({alone.shape, among.shape, event.shape, then.shape}) > 1:
            return True
        return self._more(number, then - among - event + alone, event, then)

    def bends(self, *, smaller: bool) -> list[dict[Slot, Bend]]:
        """Of the two sides as they are and among others; ``smaller``: of the record made smaller, not left out."""
        without, among = self._small if smaller and self._small else (self._one, self._runs[0])
        return [run.ledger.bends for run in (without, self._other, among, self._runs[1])]

    def moved_too_far(self, found: list[Fact], scales: tuple[float, ...], most: float) -> list[Fact]:
        """Without sums that are changed again, if no record, as it is or larger, moves them or their results further.

        ``most`` is how far a record may; 0 if nobody says. Then it is told whether single records are bounded at all.
        """
        after_sum = [fact for fact in found if fact.kind == "clipped_after_sum"]
        if not after_sum:
            return found
        larger = [enlarged(self._with[0], self._index, scale) for scale in scales]
        runs = [self._other, *(run for side in larger if side is not None and (run := self._further(side, self._one)))]
        before = [] if len(runs) <= len(scales) else self._moved_before(runs)
        bounded = bool(before) and max(before) <= (most * (1 + SLACK) if most else GROWN * before[0])
        after = max(self._moved_after(runs))
        far = most > 0 and after > most * (1 + SLACK)
        if bounded and not far:
            again = Fact(kind="not_followed", stacks={"at": after_sum[-1].stacks["at"]}, words={"why": BOUNDED_AGAIN})
            return [*(fact for fact in found if fact not in after_sum), *([] if most else [again])]
        longest = max(before, default=0.0)
        words = {"grows": not bounded and longest > GROWN * before[0]} if before else {"grows": False}
        words |= {"bounds": (before[0], most)} if most and before and before[0] > most * (1 + SLACK) else {}
        words |= {"reached": (after, most)} if far and bounded else {}
        return [dataclasses.replace(one, words={**one.words, **words}) if one in after_sum else one for one in found]

    def _moved_before(self, runs: list[Run]) -> list[float]:
        """How far the record moves sums that nothing but linear has changed, in each run; none if that is unknown."""
        wanted = frozenset[Slot]().union(*(run.ledger.bent_sums for run in runs))
        before = self._further(self._without, None, wanted=wanted)
        found = [] if before is None else [_moved(before, run) for run in runs]
        return found if found and 0 < max(found) < math.inf else []

    def _moved_after(self, runs: list[Run]) -> list[float]:
        """How far it moves the releases of one round at most, in each run and among others."""
        moved = [[event.difference for event in run.releases.events] for run in runs]
        if self._runs:
            both = zip(*(run.releases.events for run in self._runs), strict=True)
            moved.append([second.difference - first.difference for first, second in both])
        return [_of_rounds(self._other.releases.events, own) for own in moved]

    def _apart(self, number: int, without: Run, with_record: Run) -> bool:
        event, first, second = (run.releases.events[number].difference for run in (self._other, without, with_record))
        if first.shape != event.shape or second.shape != event.shape:
            return False
        return self._more(number, second - first - event, event, first, second)

    def _more(self, number: int, left: torch.Tensor, event: torch.Tensor, *others: torch.Tensor) -> bool:
        size = event.norm() + 0.01 * sum(other.norm() for other in others)
        return float(left.norm()) > SLACK * float(size) + comparing.rounding(self._other.releases.events, number)


def mixing(company: Company, other: Run, suspects: list[int], *, elsewhere: bool) -> list[Fact]:
    """Whether the record's share of a release depends on who else is in it: suspected on the way, then tried.

    ``elsewhere`` says that batches hold other records: what one record more does then depends on them in any case, and
    rows differ. So they do where a batch is filled up with copies.
    """
    changed = [(number, other.releases.events[number]) for number in suspects if company.changes(number)]
    if elsewhere:
        changed = [(number, event) for number, event in changed if event.bent and company.mixes(number)]
    elif company.repeated and changed:
        changed = [(number, event) for number, event in changed if company.mixes(number)]
        if not changed or (other.ledger.several and not any(event.bent for _, event in changed)):
            return [_repeated(company.repeated)]
    facts = []
    for _, event in changed:
        mixed = event.mixed and not elsewhere
        facts.append(_mixed(event, other) if mixed else _bent(event, company.bends(smaller=elsewhere), other))
    return list({fact.stacks.get("at"): fact for fact in reversed(facts)}.values())[::-1]


def _of_rounds(events: list[Event], moved: list[torch.Tensor]) -> float:
    """The length of what belongs to one round, at most."""
    squares: dict[int, float] = collections.defaultdict(float)
    for event, own in zip(events, moved, strict=False):
        squares[event.round] += 0.0 if event.superseded else float(own.double().square().sum())
    return math.sqrt(max(squares.values(), default=math.inf))


def _moved(one: Run, other: Run) -> float:
    """How far the record moves such sums of one round together, at most; infinite where they cannot be compared."""
    squares: dict[int, dict[float, float]] = collections.defaultdict(dict)
    for slot, after in other.ledger.bent_sums.items():
        before = one.ledger.bent_sums.get(slot)
        if before is None or after.shape != before.shape:
            return math.inf
        # a sum that is used twice counts once
        apart = (after - before).double()
        squares[slot[0]][traces.weighed(apart).by_place] = float(apart.square().sum())
    # a record that moves nothing moves no sum
    least = math.inf if any(event.moved for event in other.releases.events) else 0.0
    return math.sqrt(max((sum(found.values()) for found in squares.values()), default=least))


def other_batches(run: Run, *, unseen: bool) -> Fact:
    """Why batches that hold other records are not judged; ``unseen`` random numbers are not PyTorch's."""
    if unseen:
        return Fact(kind="not_followed", stacks={"at": run.reads.chosen_at}, words={"why": DRAWN_ELSEWHERE})
    return _repeated(run.reads.repeated) if run.reads.repeated else OTHER_BATCHES


def _repeated(at: Stack) -> Fact:
    return Fact(kind="not_followed", stacks={"at": at}, words={"why": REPEATED})


def _bent(event: Event, bends: list[dict[Slot, Bend]], other: Run) -> Fact:
    """What is not linear in several records: a sum of theirs, the largest of them, their number, or who is taken."""
    places = _bent_at(event, bends, other.backward)
    if isinstance(places, Fact):
        return places
    origin, *at = places
    made = other.sums.get(origin, set())
    if origin in other.taken and not made & ADDING_UP:
        return Fact(kind="records_mixed_before_sum", stacks={"at": origin})
    if made and made <= EXTREME:
        return Fact(kind="records_mixed_before_sum", stacks={"at": at[-1], "through": origin})
    fact = _clipped(origin, *at)
    # what is bounded is summed once more
    fact = dataclasses.replace(fact, words={"parts": event.origin != origin})
    return dataclasses.replace(fact, words={**fact.words, "accumulated": True}) if origin in other.accumulated else fact


def _mixed(event: Event, other: Run) -> Fact:
    if event.mixed in other.ledger.normalising:
        by = {"by": "batch normalisation"}
        return Fact(kind="records_mixed_before_sum", stacks={"at": event.mixed}, words=by)
    through = {"through": event.mixed_by} if event.mixed_by and event.mixed_by != event.mixed else {}
    through |= {"bounded": event.bounded} if event.bounded and event.mixed in other.backward else {}
    return Fact(kind="records_mixed_before_sum", stacks={"at": event.mixed, **through})


def _clipped(origin: Stack, *at: Stack) -> Fact:
    return Fact(kind="clipped_after_sum", stacks={"origin": origin, "at": at[-1], "measured": at[0]})


def _bent_at(event: Event, bends: list[dict[Slot, Bend]], backward: set[Stack]) -> tuple[Stack, ...] | Fact:
    """Where records were summed, and each place where what the record adds depends on the others, in order.

    The four are those of the two sides as they are, and among other records. ``backward`` are places where PyTorch
    computes gradients by itself: what those depend on was made elsewhere. A division by the number of records, or no
    place at all, is a fact of its own.
    """
    found: list[tuple[Stack, Stack]] = []
    for slot, bend in bends[1].items():
        own = [run.get(slot) for run in bends]
        sums = [one.sums for one in own if one is not None]
        alike = len({one.shape for one in sums}) == 1
        without, with_record, without_then, with_then = (
            0.0 if one is None else one.sums.by_place if alike else one.sums.by_column for one in own
        )
        added, then = with_record - without, with_then - without_then
        size = max(one.size for one in sums)
        factors = [one.factor for one in own if one is not None and one.factor is not None]
        if bend.where in backward or (factors and _all_alike(factors)):
            continue
        if bend.where in event.bends and abs(added - then) > SLACK * (abs(added) + abs(then)) + traces.TOLERANCE * size:
            if not found and factors and _count_records(factors):
                return Fact(kind="records_mixed_before_sum", stacks={"at": bend.where}, words={"by": "their number"})
            found.append((event.bent_sum if bend.where == event.bent else bend.summed or event.bent_sum, bend.where))
    if not found and event.bent in {bend.where for bend in bends[1].values()}:
        # it was looked at, and what the record adds there is the same among others
        return Fact(kind="not_followed", stacks={"at": event.origin}, words={"why": UNPLACED})
    if not found:
        return event.bent_sum, event.bent
    return found[0][0], *(where for _, where in found)


def _all_alike(numbers: list[float]) -> bool:
    return max(numbers) - min(numbers) <= traces.TOLERANCE * max(map(abs, numbers))


def _count_records(factors: list[float]) -> bool:
    """Whether a factor, on both sides and among others on both, is another with one more record and by nothing else."""
    return len(factors) == 4 and all(_all_alike([*pair]) for pair in zip(factors[:2], factors[2:], strict=True))
