"""Noise and what it is added to, and sums of several releases that are one."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch

from mechanisms.adapters.noise_terms import Terms, together
from mechanisms.adapters.pytorch.replay import noise, traces
from mechanisms.adapters.pytorch.replay.cells import Event, Operation
from mechanisms.adapters.pytorch.replay.storages import variance_in


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Noise and what it was added to, each with its sign and factor, and both together."""

    value: torch.Tensor
    noise: torch.Tensor
    result: torch.Tensor
    round: int = 0
    variance: float = math.nan
    """Of the noise: all coordinates, each with a weight of its own."""


def signs_of(done: Operation) -> tuple[float, float]:
    """The factor with which each of two terms comes into a sum."""
    factor = done.kwargs.get("alpha", 1)
    return {"a": (1, factor), "s": (1, -factor), "r": (-factor, 1)}[done.name[0]]


def meeting_of(done: Operation, place: int) -> tuple[Meeting, Terms]:
    """The noise at one of the two places of a sum, with what it meets, and its terms."""
    signs = signs_of(done)
    parts = [part.detach() * sign for part, sign in zip(done.before[:2], signs, strict=True)]
    shape, own = done.out.shape, done.terms(done.args[place])
    sign = np.full(tuple(shape), signs[place], float)
    value, drawn = (parts[number].expand(shape) for number in (1 - place, place))
    terms = own.scaled(sign) or own.alone.scaled(sign)
    weighed = traces.weighed(variance_in(terms)).by_place
    return Meeting(value, drawn, done.out.detach().clone(), variance=weighed), terms


def joined(done: Operation) -> Event | None:
    """The one release that a sum of releases is, where each is known as it stands."""
    own = [(part, [event for event in cell.events if not event.consumed]) for part, cell in done.pairs]
    if not all(len(events) == 1 and events[0].difference.shape == part.shape for part, events in own):
        return None
    one = own[0][1][0]
    if done.name in noise.ADDING and len(own) == 2 and done.name != "rsub":
        other = own[1][1][0]
        factor = done.kwargs.get("alpha", 1) * (1 if done.name.startswith("add") else -1)
        if one is other or one.difference.shape != other.difference.shape:
            return None
        difference, terms = one.difference + factor * other.difference, together(one.terms, other.terms, factor)
    elif done.name in ("sum", "mean") and len(own) == 1:
        share = one.difference.numel() // max(1, done.out.numel()) if done.name == "mean" else 1
        difference, axes = torch.sum(one.difference, *done.args[1:]) / share, noise.axes_of(done.args)
        summed = one.terms.summed(axes) or one.terms.alone.summed(axes)
        terms = summed.reshaped(difference.shape).scaled(1 / share)
    else:
        return None
    moved = any(events[0].moved for _, events in own)
    return dataclasses.replace(one, difference=difference, terms=terms, moved=moved, result=None)


def size_of(tensor: torch.Tensor) -> float:
    """The sum of its numbers, without their signs."""
    return float(tensor.abs().sum())


def is_moved(value: torch.Tensor, other: torch.Tensor, difference: torch.Tensor) -> torch.Tensor:
    """Which coordinates the record moves, by more than rounding."""
    if not difference.numel():
        return torch.zeros(difference.shape, dtype=torch.bool)
    largest = max(float(other.abs().max()), float(value.abs().max()))
    return difference.abs() > 0.02 * traces.tolerance(value) * largest
