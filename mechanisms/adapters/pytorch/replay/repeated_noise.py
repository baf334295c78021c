"""The same numbers in the noise of two releases, however they came there."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable

from mechanisms.adapters.pytorch.replay.cells import Event
from mechanisms.adapters.pytorch.replay.facts import Fact
from mechanisms.adapters.pytorch.replay.run import Run
from mechanisms.adapters.pytorch.replay.stacks import Stack

FEWEST = 4
"""Numbers that must agree before they are called the same draw."""


def reused_states(run: Run) -> list[Fact]:
    """Noise that is drawn in a state in which its generator drew before, for noise or for a choice."""
    chosen = run.choosing | run.releases.choosing
    by_state: dict[int, list[int]] = collections.defaultdict(list)
    for draw in run.draws:
        if draw.state is not None:
            by_state[draw.state].append(draw.number)
    facts = []
    for numbers in by_state.values():
        covering = [number for number in numbers if number in run.releases.covering]
        rest = [number for number in numbers if number in run.releases.covering | chosen]
        if len(numbers) > 1 and covering and len(rest) > 1:
            first, second = (run.draws[number] for number in sorted({covering[-1], *rest})[:2])
            facts.append(_used_twice(first.stack, second.stack, " from the same state of its generator"))
    return facts


def repeated_noise(events: Iterable[Event]) -> list[Fact]:
    """The first release whose noise covers another one too, or covers many coordinates with few numbers."""
    known: dict[float, Event] = {}
    for event in events:
        if not event.moved or event.superseded or event.standard is None:
            continue
        values = [float(f"{value:.5g}") for value in event.standard.tolist() if math.isfinite(value)]
        again = collections.Counter(known[value] for value in values if value in known)
        if again and again.most_common(1)[0][1] >= max(FEWEST, len(values) // 2):
            first = again.most_common(1)[0][0]
            return [_used_twice(first.draw or first.stack, event.stack, " (the same numbers are added more than once)")]
        if len(values) >= FEWEST and len(set(values)) < len(values) // 2:
            return [
                _used_twice(
                    event.draw or event.stack,
                    event.stack,
                    f" ({len(set(values))} different numbers in {len(values)} coordinates)",
                )
            ]
        known |= dict.fromkeys(values, event)
    return []


def _used_twice(first: Stack, second: Stack, how: str) -> Fact:
    return Fact(kind="key_used_twice", stacks={"first": first, "second": second}, words={"how": how})
