"""Comparing two runs of a replay: how much they differ, what each round costs, and the names of its tensors."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator

import torch

from mechanisms.adapters.pytorch.replay import traces
from mechanisms.adapters.pytorch.replay.cells import Event
from mechanisms.adapters.pytorch.replay.facts import Cost
from mechanisms.adapters.pytorch.replay.joint_noise import single, squared_length
from mechanisms.adapters.pytorch.replay.run import Run
from mechanisms.adapters.pytorch.replay.stacks import Stack
from mechanisms.adapters.pytorch.replay.weights import Weight, length
from mechanisms.adapters.same_draws import OF_STEP

OUTPUT_SLACK = 2e-5
"""Share of an output's largest number below which a difference is rounding."""
OF_SUMS = 0.1
"""Rounding of sums of all records, over that of what one record moves."""
NEAR = 0.02
"""Share of the largest number up to which another is about as large."""
MOST_NAMED = 4
"""Tensors that one sentence names beside the first."""
MUCH = 5.0
"""Growth between two sizes of a record that only an unbounded one shows."""


def took_part(one: Run, other: Run) -> bool:
    """Whether the record changed an output or moved a release."""
    outputs = one.outputs.keys() == other.outputs.keys() and outputs_differ(one, other)
    return outputs or any(event.moved for event in other.releases.events)


def outputs_differ(one: Run, other: Run) -> bool:
    """Whether two runs release anything in the end that is not the same; their outputs have the same names."""
    return any(apart_from(one.outputs[name].value, mine.value) for name, mine in other.outputs.items())


def releases_differ(one: Run, other: Run) -> bool:
    """Whether two runs differ in an output, in what noise was added to, or in how often that happened."""
    before, after = one.releases.meetings, other.releases.meetings
    if before.keys() != after.keys() or one.outputs.keys() != other.outputs.keys():
        return True
    return outputs_differ(one, other) or any(apart_from(after[slot].value, before[slot].value) for slot in before)


def first_sums_differ(one: Run, other: Run) -> bool:
    """Whether noise is first added to something else."""
    before, after = (next(iter(run.releases.meetings.values()), None) for run in (one, other))
    return before is None or after is None or apart_from(before.value, after.value)


def apart_from(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors differ by more than rounding."""
    if one.shape != other.shape:
        return True
    if not one.numel():
        return False
    a, b = one.double(), other.double()
    slack = traces.tolerance(one) if one.dtype in traces.COARSE else OUTPUT_SLACK
    return bool((a - b).abs().max() > slack * torch.maximum(a.abs(), b.abs()).max())


def size_of(event: Event) -> float:
    """How far the record moves one release."""
    return float(event.difference.norm())


def rounding(events: list[Event], number: int) -> float:
    """What rounding may change of one release: a share of its round, each tensor in units of its noise.

    A gradient that is zero, as of a bias before a normalisation, is made of terms that cancel, as large as others.
    """
    event = events[number]
    own = [one for one in events if one.round == event.round and not one.superseded and one.known]
    deviations = {id(one): _deviation(one) for one in own}
    if not deviations.get(id(event)):
        return 0.0
    whole = 0.0
    for one in own:
        sums = 0.0 if one.result is None else OF_SUMS * float(one.result.double().norm())
        whole = math.hypot(whole, (size_of(one) + sums) / (deviations[id(one)] or math.inf))
    share = 0.1 * traces.tolerance(event.difference if event.result is None else event.result)
    return share * deviations[id(event)] * whole


def length_of(events: list[Event], numbers: list[int]) -> float:
    """How far the record moves several releases together."""
    return math.sqrt(sum(float(events[number].difference.double().square().sum()) for number in numbers))


def draw_alike(one: Run, other: Run) -> bool:
    """Whether noise is drawn as often on both sides, by the lines: then no number decides how often it is added."""
    noise = {run.draws[number].stack for run in (one, other) for number in run.releases.noise}
    first, second = (collections.Counter(draw.stack for draw in run.draws) for run in (one, other))
    return all(first[where] == second[where] for where in noise)


def in_other_shares(one: list[Event], other: list[Event]) -> tuple[float, float] | None:
    """The variances of the first round to which both sides add noise in another number of shares; None without one."""
    for number in sorted({event.round for event in other}):
        rounds = [[event for event in events if event.round == number] for events in (one, other)]
        if all(rounds) and len(rounds[0]) != len(rounds[1]):
            first, second = ([float(event.variance.sum()) for event in own if not event.superseded] for own in rounds)
            return sum(first), sum(second)
    return None


def round_costs(events: list[Event], scale: float = 1.0) -> Iterator[Cost]:
    """Of every round that the record, made ``scale`` times larger, moves and whose noise is known."""
    rounds: dict[int, list[Event]] = collections.defaultdict(list)
    for event in events:
        if not event.superseded:
            rounds[event.round].append(event)
    for number, found in sorted(rounds.items()):
        moved = [event for event in found if event.moved]
        if not moved or not all(event.known for event in moved):
            continue
        squares = squared_length(moved)
        noise = torch.cat([event.variance.double().flatten() for event in moved])
        entries = torch.cat([event.difference.double().abs().flatten() for event in moved])
        most, deviations = float(entries.max()), list(map(_deviation, moved))
        top = max(moved, key=single)
        bounded = [event.bounded for event in moved]
        if squares:
            yield Cost(
                number=number,
                scale=scale,
                sensitivity=math.sqrt(sum(float(event.difference.double().square().sum()) for event in moved)),
                deviation=float(noise[noise > 0].mean().sqrt()),
                own_deviation=_deviation(top),
                between=(min(deviations), max(deviations)),
                multiplier=1 / math.sqrt(squares),
                lengths=tuple(map(size_of, moved)),
                before=math.hypot(*(size_of(event) / math.prod(by for _, by in event.resized) for event in moved)),
                factors=tuple(factor for event in moved for factor in event.resized),
                largest=(most, int((entries > (1 - NEAR) * most).sum())),
                top=top,
                weights=_weights(moved),
                measured=next((event.measured for event in (top, *moved) if event.measured), ()),
                shared=next((event.shared for event in moved if event.shared), ()),
                parts=_parts(moved),
                some_bounded=() if all(bounded) else _bound_of_others(moved),
            )


def _bound_of_others(events: list[Event]) -> Stack:
    """Where some are bounded; where their factor is made, if the others are summed on the same line."""
    other = max(events, key=lambda event: event.bounded)
    if not any(event.origin == other.bounded != event.bounded for event in events) or not other.weights:
        return other.bounded
    return other.weights[-1].numbers[-1].where if other.weights[-1].numbers else other.bounded


def _parts(events: list[Event]) -> tuple[float, ...]:
    """How long the record is in each part that was added up, over all releases; nothing where they have no such."""
    many = {len(event.lengths) for event in events}
    return (
        tuple(math.hypot(*own) for own in zip(*(event.lengths for event in events), strict=True))
        if len(many) == 1
        else ()
    )


def _weights(events: list[Event]) -> tuple[Weight, ...]:
    """By what the record was multiplied, where each release moves as far as that says; of losses, if by one number."""
    every = [weight for event in events for weight in event.weights]
    of_losses = [weight for weight in every if math.isnan(weight.before)]
    if of_losses:
        same = all(abs(weight.by - every[0].by) <= NEAR * abs(every[0].by) for weight in every)
        return tuple(every) if same and len(of_losses) == len(every) and all(event.weights for event in events) else ()
    after = [length(event.weights) for event in events]
    told = all(abs(size_of(event) - own) <= NEAR * own for event, own in zip(events, after, strict=True) if own)
    return tuple(every) if told and all(after) else ()


def _deviation(event: Event) -> float:
    noise = event.variance.double()
    return float(noise[noise > 0].mean().sqrt()) if bool((noise > 0).any()) else 0.0


def together(names: list[str]) -> str:
    """The first name in full, and the other names without their steps."""
    _, *others = dict.fromkeys(name.partition(OF_STEP)[0] for name in names)
    more = [*others[:MOST_NAMED], f"{len(others) - MOST_NAMED} more"] if len(others) > MOST_NAMED else others
    return f"{names[0]} (also {', '.join(more)})" if more else names[0]


def unbounded(other: Run, runs: list[Run], moved: list[int]) -> str:
    """Which outputs hold what grows with the record, where others do not."""
    large, small = (run.releases.events for run in runs)
    grown = [number for number in moved if size_of(large[number]) > MUCH * size_of(small[number]) > 0]
    names = holding(other, [other.releases.events[number] for number in grown])
    return f" for {together(names)}" if names and len(grown) < len(moved) else ""


def holding(run: Run, events: list[Event]) -> list[str]:
    """The outputs that these releases are in."""
    return [
        name
        for name, out in run.outputs.items()
        if out.cell is not None and any(event is one for event in out.cell.events for one in events)
    ]
