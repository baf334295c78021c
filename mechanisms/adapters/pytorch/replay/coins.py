"""Draws that choose records by a comparison with a limit: in a Poisson sampler, each record's coin."""

from __future__ import annotations

import dataclasses

from mechanisms.adapters.pytorch.replay.draws import Draw
from mechanisms.adapters.pytorch.replay.results import Cut
from mechanisms.adapters.pytorch.replay.stacks import Stack

SPOTS = (0.02, 0.5, 0.98)
"""Positions tried on one side of a limit, as shares of the numbers there."""


@dataclasses.dataclass(frozen=True)
class Side:
    """The numbers on one side of the limit."""

    rate: float
    """Probability of a number on this side."""
    tried: tuple[float, ...]
    """Some numbers of this side, the middle one in the middle."""


@dataclasses.dataclass(frozen=True)
class Coin:
    """A draw whose numbers are compared with one limit as they are drawn."""

    draw: Draw
    where: Stack
    """Where they are compared, or drawn as ones and zeros."""
    sides: tuple[Side, Side]


def coin_of(draw: Draw, cut: Cut | None) -> Coin | None:
    """The coin that a draw tosses; None if another number decides."""
    if draw.rate is not None:
        return Coin(draw, draw.stack, (Side(draw.rate, (1.0,)), Side(1 - draw.rate, (0.0,))))
    if cut is None or cut.sized or cut.limits is None or not cut.limits.numel():
        return None
    limits = cut.limits.double()
    limit = float(limits.min())
    if not 0 < limit < 1 or float(limits.max()) != limit:
        return None
    below, above = (tuple(share * spot for spot in SPOTS) for share in (limit, 1 - limit))
    return Coin(draw, cut.where, (Side(limit, below), Side(1 - limit, tuple(1 - one for one in above))))
