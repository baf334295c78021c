"""A tensor with less noise than others that are clipped together with it, whatever the record at hand shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mechanisms.adapters.pytorch.replay.cells import Event
from mechanisms.adapters.pytorch.replay.comparing import size_of
from mechanisms.adapters.pytorch.replay.facts import Fact

SLACK = 0.02
ALIKE = 1e-3
"""Relative difference of lengths that are one number."""
APART = 0.05
"""Share of the whole by which the length of one tensor changes while that of all together does not."""


def first_round(events: Sequence[Event]) -> list[int]:
    """What is released first, by its numbers: both sides begin it with the same weights."""
    return [number for number, event in enumerate(events) if event.round == 1 and not event.superseded]


def is_uneven(events: Sequence[Event], due: float) -> bool:
    """Whether some tensors have less noise than others, and it would be too little for all that the record moves."""
    own = [events[number] for number in first_round(events)]
    if len(own) < 2 or not all(event.known for event in own):
        return False
    deviations, length = list(map(_deviation, own)), _length(own)
    return min(deviations) * (1 + SLACK) < due * length <= max(deviations) * (1 + SLACK)


def short_tensors(runs: Sequence[Sequence[Event]], due: float) -> list[tuple[Event, Fact]]:
    """Tensors whose noise is less than is due to a record whose whole gradient lies in them.

    The runs have the record in different sizes. Where it moves all tensors together by the same length in two of them,
    and one tensor by another, they are clipped together: one alone may be as long as all are now. Tensors with bounds
    of their own may have noise of their own.
    """
    numbers = first_round(runs[0])
    parts = [[run[number] for number in numbers] for run in runs]
    pairs = [(one, other) for place, one in enumerate(parts) for other in parts[place + 1 :]]
    together = next((one for one, other in pairs if _clipped_together(one, other)), None)
    if together is None or not is_uneven(together, due):
        return []
    length, most = _length(together), max(map(_deviation, together))
    return [
        (event, _short(event, own, most, length, due))
        for event in parts[0]
        if (own := _deviation(event)) * (1 + SLACK) < due * length
    ]


def _short(event: Event, own: float, most: float, length: float, due: float) -> Fact:
    words = {"deviation": own, "others": most, "length": length, "due": due}
    return Fact(kind="too_little_noise", stacks={"at": event.stack, "draw": event.draw}, words=words)


def _clipped_together(one: Sequence[Event], other: Sequence[Event]) -> bool:
    length = _length(one)
    if not math.isfinite(length) or not length or abs(_length(other) - length) > ALIKE * length:
        return False
    return any(abs(size_of(a) - size_of(b)) > APART * length for a, b in zip(one, other, strict=True))


def _length(events: Sequence[Event]) -> float:
    return math.sqrt(sum(size_of(event) ** 2 for event in events))


def _deviation(event: Event) -> float:
    return math.sqrt(float(event.variance.min()))
