"""Rounds whose noise is less than is due to what the record moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mechanisms.adapters.pytorch.replay.facts import Cost, Fact
from mechanisms.adapters.pytorch.replay.mixing import SLACK
from mechanisms.adapters.pytorch.replay.stacks import Stack


def short_rounds(
    costs: Sequence[Sequence[Cost]],
    due: float,
    *,
    last: float,
    repeated: Stack,
    again: tuple[Stack, int],
    begun: Mapping[Stack, Stack],
) -> tuple[Fact, Sequence[Cost]] | None:
    """The round with the least noise, and all rounds of its run: of the record as it is, if that shows one.

    ``costs`` are those of the record as it is, then made larger; rounds after ``last`` are not judged. ``repeated`` is
    where places were made that hold a record more than once, ``again`` where those that hold the record in
    several parts, and how often, ``begun`` where tensors were last emptied to which
    sums of several rounds were added.
    """
    every = [[cost for cost in found if cost.number <= last] for found in costs]
    for told, found in zip(costs, every, strict=True):
        worst = min(found, key=lambda cost: cost.multiplier, default=None)
        if worst is None or worst.multiplier * (1 + SLACK) >= due:
            continue
        fresh = [cost for own in every for cost in own if not cost.carried]
        kept = bool(fresh) and all(cost.multiplier * (1 + SLACK) >= due for cost in fresh)
        stacks = {"at": worst.at, "origin": worst.origin, "draw": worst.draw, "bounded": worst.bounded}
        stacks |= {"carried": worst.carried} if worst.carried and kept else {}
        stacks |= {"begun": begun[worst.carried]} if "carried" in stacks and worst.carried in begun else {}
        stacks |= {"again": again[0]} | ({"repeated": repeated} if repeated else {})
        lengths = [cost.lengths for own in every for cost in own if cost.number == worst.number]
        words = {"cost": worst, "due": due, "lengths": lengths, "times": again[1]}
        return Fact(kind="too_little_noise", stacks=stacks, words=words), told
    return None
