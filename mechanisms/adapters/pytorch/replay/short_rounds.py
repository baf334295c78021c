"""Rounds, and single parts of a release, whose noise is less than is due to what a record moves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import torch

from mechanisms.adapters.pytorch.replay.cells import Event
from mechanisms.adapters.pytorch.replay.facts import Cost, Fact
from mechanisms.adapters.pytorch.replay.mixing import SLACK
from mechanisms.adapters.pytorch.replay.stacks import Stack

ALIKE = 1e-4
"""Relative difference of lengths that are one number."""
APART = 0.02
"""Share of the whole by which the length of one part changes while that of all together does not: if nothing held them
together, that length would change by more than ALIKE."""
LESS = 1.5
"""How many times less a record moves that is much longer, at least, where none is that is clipped rightly."""
ABOVE = (1.15, 1.8)
"""Lengths over the bound at which a wrong factor may show."""
SMALLER = (1 / 2, 1 / 4, 1 / 10, 1 / 20)
"""Factors for a record whose length is unknown."""
ROUNDING = 1e-3
"""By how much a multiplier may be too small without a word, over it. Half precision may explain more, up to SLACK."""
NEGLIGIBLE = 1000.0
"""Noise over what a record moves, above which its size tells nothing of clipping."""
MOST_PARTS = 8
"""Different deviations in one tensor; noise of more is scaled coordinate by coordinate."""


def short_rounds(
    costs: Sequence[Sequence[Cost]],
    due: float,
    *,
    last: float,
    repeated: Stack,
    again: tuple[Stack, int],
    begun: Mapping[Stack, Stack],
    batches: Mapping[int, Sequence[Stack]],
) -> tuple[Fact, Sequence[Cost]] | None:
    """The round with the least noise, and all rounds of its run: of the record as it is, if that shows one.

    ``costs`` are those of the record as it is, then made larger; rounds after ``last`` are not judged. ``repeated`` is
    where places were made that hold a record more than once, ``again`` where those that hold the record in
    several parts, and how often, ``begun`` where tensors were last emptied to which
    sums of several rounds were added, ``batches`` where those of each round were drawn.
    """
    every = [[cost for cost in found if cost.number <= last] for found in costs]
    for told, found in zip(costs, every, strict=True):
        worst = min(found, key=lambda cost: cost.multiplier, default=None)
        if worst is None or worst.multiplier * (1 + SLACK) >= due:
            continue
        fresh = [cost for own in every for cost in own if not cost.top.carried]
        kept = bool(fresh) and all(cost.multiplier * (1 + SLACK) >= due for cost in fresh)
        top = worst.top
        if top.raw:
            return Fact(kind="changed_after_release", stacks={"at": top.raw}, words={"origin": ""}), told
        stacks = {"at": top.stack, "origin": top.origin, "draw": top.draw, "bounded": top.bounded}
        stacks |= {"carried": top.carried} if top.carried and kept else {}
        stacks |= {"begun": begun[top.carried]} if "carried" in stacks and top.carried in begun else {}
        stacks |= {"again": again[0]} | ({"repeated": repeated} if repeated else {})
        drawn = batches.get(worst.number, ())
        stacks |= {"batches": drawn[0]} if len(drawn) > 1 else {}
        lengths = [cost.lengths for own in every for cost in own if cost.number == worst.number]
        words = {"cost": worst, "due": due, "lengths": lengths, "times": again[1], "batches": len(drawn)}
        words["before"] = [cost.deviation for cost in found if cost.number < worst.number]
        return Fact(kind="too_little_noise", stacks=stacks, words=words), told
    return None


def is_covered(costs: Sequence[Cost], stated: float | None) -> bool:
    """Whether the record moves every release by no more than is promised, or by next to nothing."""
    return bool(costs) and all(cost.multiplier * (1 + SLACK) >= (stated or NEGLIGIBLE) for cost in costs)


def nearly_short(costs: Sequence[Cost], due: float) -> Cost | None:
    """The round with the least noise, if that is less than is due by more than rounding."""
    worst = min(costs, key=lambda cost: cost.multiplier, default=None)
    return None if worst is None or worst.multiplier * (1 + ROUNDING) >= due else worst


def nearly_right(costs: Sequence[Cost], due: float) -> list[Fact]:
    """That a multiplier is below the stated one by more than rounding of single precision, and by less than SLACK."""
    worst = nearly_short(costs, due)
    if worst is None:
        return []
    why = (
        f"the noise multiplier of round {worst.number} is {worst.multiplier:.4g}, and {due:.4g} is expected: rounding "
        "in half precision may make such a difference, and so may a length or a deviation that is a little wrong"
    )
    return [Fact(kind="not_followed", stacks={"at": worst.top.stack, "origin": worst.top.origin}, words={"why": why})]


def near_the_bound(costs: Sequence[Sequence[Cost]], clip: float | None, due: float) -> tuple[float, ...]:
    """How to change a record so that it moves most, where it moves less the longer it is, or a little too far.

    Where the square of its length is taken for its length, one just above the bound is not clipped. Where its length
    leaves out a part, as the biases, that part is a larger share of a smaller record.
    """
    if nearly_short(costs[0], due) is not None:
        return SMALLER
    if len(costs) < 2 or not costs[1] or costs[1][0].sensitivity * LESS > costs[0][0].sensitivity:
        return ()
    length = math.hypot(*(weight.before for weight in costs[0][0].weights))
    return tuple(above * clip / length for above in ABOVE) if clip and 0 < length < math.inf else SMALLER


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """The coordinates of one tensor that have the same noise."""

    number: int
    """Of the release that it belongs to."""
    deviation: float
    where: torch.Tensor
    """Which coordinates, as a mask."""

    def length(self, events: Sequence[Event]) -> float:
        """How far the record moves it in one run."""
        return float(events[self.number].difference[self.where].norm())


def _parts_of(events: Sequence[Event]) -> list[Part]:
    """What is released first, both sides beginning it with the same weights; nothing where some noise is unknown.

    Coordinates without noise are no part: the record moves none of them, or that is said already.
    """
    first = [number for number, event in enumerate(events) if event.round == 1 and not event.superseded]
    if not all(events[number].known for number in first):
        return []
    return [part for number in first for part in _split(number, events[number].variance) if part.deviation]


def _split(number: int, variance: torch.Tensor) -> Iterator[Part]:
    """A tensor by the deviations of its noise; one with many counts as one part with the least of them."""
    if not variance.numel():
        return
    least, most = float(variance.min()), float(variance.max())
    values = [least] if least == most else torch.unique(variance.float()).tolist()
    if not 1 < len(values) <= MOST_PARTS:
        yield Part(number, math.sqrt(least), torch.ones_like(variance, dtype=torch.bool))
        return
    for value in values:
        yield Part(number, math.sqrt(value), variance.float() == value)


def is_uneven(events: Sequence[Event], due: float, parts: Sequence[Part] = ()) -> bool:
    """Whether some parts have less noise than others, and it would be too little for all that the record moves."""
    parts = parts or _parts_of(events)
    if len(parts) < 2:
        return False
    deviations, length = [part.deviation for part in parts], _length(parts, events)
    return min(deviations) * (1 + SLACK) < due * length <= max(deviations) * (1 + SLACK)


def short_parts(runs: Sequence[Sequence[Event]], due: float) -> list[tuple[Event, Fact]]:
    """Parts whose noise is less than is due to a record whose whole gradient lies in them.

    The runs have the record in different sizes. Where it moves all parts together by the same length in two of them,
    and those with one deviation by another, they are clipped together: these alone may be as long as all are now.
    Parts whose length stays the same may have a bound of their own, and noise of their own with it, as a block of
    layers or a number of records has.
    """
    parts = _parts_of(runs[0])
    pairs = [(one, other) for place, one in enumerate(runs) for other in runs[place + 1 :]]
    together = next(((one, other) for one, other in pairs if _clipped_together(parts, one, other)), None)
    if together is None:
        return []
    one, whole = together[0], _length(parts, together[0])
    alike = [run for run in runs if abs(_length(parts, run) - whole) <= ALIKE * whole]
    changing = [own for own in _by_noise(parts) if any(_change(own, one, run) > ALIKE * whole for run in alike)]
    parts = [part for own in changing for part in own]
    if not is_uneven(one, due, parts):
        return []
    length, most = _length(parts, one), max(parts, key=lambda part: part.deviation)
    return [
        (runs[0][part.number], _short(part, runs[0], most, length, due))
        for part in parts
        if part.deviation * (1 + SLACK) < due * length and any(part.length(events) for events in runs)
    ]


def _short(part: Part, events: Sequence[Event], most: Part, length: float, due: float) -> Fact:
    event, right = events[part.number], events[most.number].sized
    # what is done to the noise of all of them does not tell them apart
    made = event.uneven or next(iter([*(where for where in event.sized if where not in right), *event.sized]), ())
    stacks = {"at": event.stack, "draw": event.draw} | ({"made": made} if made else {})
    count, of = int(part.where.sum()), part.where.numel()
    some = f"{count} of {of} coordinates of " if count < of else ""
    words = {"some": some, "deviation": part.deviation, "others": most.deviation, "length": length, "due": due}
    return Fact(kind="too_little_noise", stacks=stacks, words=words)


def _clipped_together(parts: Sequence[Part], one: Sequence[Event], other: Sequence[Event]) -> bool:
    length = _length(parts, one)
    if not math.isfinite(length) or not length or _change(parts, one, other) > ALIKE * length:
        return False
    return any(_change(own, one, other) > APART * length for own in _by_noise(parts))


def _by_noise(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts whose noise has the same deviation."""
    groups: list[list[Part]] = []
    for part in sorted(parts, key=lambda part: part.deviation):
        if not groups or part.deviation > groups[-1][-1].deviation * (1 + ALIKE):
            groups.append([])
        groups[-1].append(part)
    return groups


def _change(parts: Sequence[Part], one: Sequence[Event], other: Sequence[Event]) -> float:
    return abs(_length(parts, one) - _length(parts, other))


def _length(parts: Sequence[Part], events: Sequence[Event]) -> float:
    return math.sqrt(sum(part.length(events) ** 2 for part in parts))
