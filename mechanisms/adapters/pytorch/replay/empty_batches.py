"""Whether a round whose batch is empty gets no noise, as where a training skips it, and the line that decides so."""

from __future__ import annotations

import collections
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch

from mechanisms.adapters.joining_rate import LARGEST_UNIFORM
from mechanisms.adapters.pytorch.replay.cells import Event
from mechanisms.adapters.pytorch.replay.draws import UNIFORM, Bank, Slot
from mechanisms.adapters.pytorch.replay.records import Place
from mechanisms.adapters.pytorch.replay.releases import Enough
from mechanisms.adapters.pytorch.replay.run import Run
from mechanisms.adapters.pytorch.replay.stacks import Stack, told
from mechanisms.adapters.watched_calls import lines_told_to

Lines = dict[CodeType, set[int]]
"""That were run, by their function."""


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

    def settle(self, slot: Slot, name: str, value: torch.Tensor) -> None:
        """Make ``value``, just drawn, leave all records out, if it chooses among them."""
        assert self.place is not None
        _, where, _, passed = slot
        if self.where and where in self.noise and not self._again:
            # it has noise
            raise Enough
        each, uniform = value.numel() == 1, name in UNIFORM
        if isinstance(value, torch.nn.Parameter) or not (uniform or name in ("bernoulli", "bernoulli_")):
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
    if not drawn or not events:
        return None
    noise, known = bank.noise, {draw.stack for draw in full.draws}
    times = min(bank.times, len(drawn))
    then = draws[drawn[times - 1] + 1 : drawn[times] if times < len(drawn) else None]
    if any(draw.stack in noise or draw.stack not in known for draw in then):
        return None
    fewer, all_of_it = (sum(draw.stack in noise for draw in run.draws) for run in (empty, full))
    return events[0] if fewer < all_of_it else None


def lines_run(code: Callable[[], Any]) -> Lines:
    """Every line of the user's that a piece of code runs."""
    found: Lines = collections.defaultdict(set)

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if not told(frame.f_code.co_filename):
            return None
        if event == "line":
            found[frame.f_code].add(frame.f_lineno)
        return watch

    with lines_told_to(watch):
        code()
    return found


def turned_away(noise: Stack, lines: Lines) -> Stack:
    """The last line before the first caller of the noise that is not run: what decides that, or is done instead."""
    run = {(code.co_filename, line) for code, own in lines.items() for line in own}
    for depth in reversed(range(len(noise))):
        path, line = noise[depth]
        if (path, line) in run:
            continue
        around = [code for code in lines if code.co_filename == path and code.co_firstlineno <= line <= _last(code)]
        own = max(around, key=lambda code: code.co_firstlineno, default=None)
        before = [] if own is None else [one for one in lines[own] if one < line]
        return ((path, max(before)), *noise[depth + 1 :]) if before else noise[depth + 1 :]
    return noise


def _last(code: CodeType) -> int:
    return max((line for _, _, line in code.co_lines() if line), default=0)
