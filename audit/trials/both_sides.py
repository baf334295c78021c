"""The one source of trials: from here on, mechanisms that JAX traces and foreign code look the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import jax
import numpy as np

from audit.trials.foreign import ForeignSides
from audit.trials.source import DrawListener, Scored, ignore_draws
from audit.trials.traced import TracedSides
from audit.trials.user_code_errors import blamed
from distinguishers.contract import Distinguisher
from mechanisms.contract import BatchMechanism, Mechanism
from mechanisms.contract import mechanism as as_mechanism
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout

Auditable = Mechanism | BatchMechanism
"""Whatever can be audited: a mechanism that JAX traces, or foreign code."""


class BothSides(Protocol):
    """A mechanism on both datasets. Trial i is a function of (key, i), whatever the size of a piece."""

    def scored(
        self, distinguisher: Distinguisher, *, chunk: int | None = None, learnt: bool = False
    ) -> tuple[Scored, Scored]:
        """Scores without and with the record; ``chunk`` is the number of trials drawn at once.

        A ``learnt`` score is compiled for this audit alone, and therefore as seldom as can be.
        """
        ...

    def layout(self) -> Layout:
        """Layout of the outputs, the same on both sides; scores read their flat view."""
        ...

    def outputs(
        self,
        keys: tuple[jax.Array, jax.Array],
        trials: int,
        *,
        size: int,
        deadline: float | None = None,
        drew: DrawListener = ignore_draws,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Full outputs of ``trials`` per side, at most ``size`` at a time; fewer where the deadline passes.

        ``keys`` are those without and with the record; ``drew`` is called with the number of each part drawn, of either
        side and from any thread.
        """
        ...

    def piece(self, side: str, key: jax.Array, start: int, stop: int, *, size: int) -> Any:
        """Full outputs of trials start..stop-1 of one side under a key of its own."""
        ...

    def read_without(
        self, key: jax.Array, *, size: int, pieces: int, read: Callable[[Any], Any], use: Callable[[Any], None]
    ) -> None:
        """Stream ``pieces`` of ``size`` outputs without the record: ``use(read(outputs))`` in any order.

        ``read`` is traced by JAX, so that outputs need not leave the device.
        """
        ...


def is_foreign(mechanism: Auditable) -> bool:
    """Whether JAX cannot trace the mechanism: its code may do anything, and depend on anything."""
    return not isinstance(mechanism, Mechanism)


def both_sides(
    mechanism: Auditable | Callable[[jax.Array, Any], Any], neighbours: Neighbours, *, workers: int | None = None
) -> BothSides:
    """The source of trials of this mechanism on this pair; ``workers`` limits those of foreign code."""
    step = as_mechanism(mechanism)
    if isinstance(step, Mechanism):
        return TracedSides(mechanism=step, neighbours=neighbours)
    return ForeignSides(step, neighbours, workers=step.workers if workers is None else min(workers, step.workers))


def steps_taken(step: Auditable, neighbours: Neighbours, sides: BothSides) -> int | None:
    """Number of steps of a training, as the mechanism says or a transcript shows."""
    if step.releases == "update":
        return 1
    with blamed(f"{step.name!r} failed on the side 'without'") if is_foreign(step) else contextlib.nullcontext():
        stated = step.steps_on(neighbours.without)
    return sides.layout().rounds if stated is None and step.kind == "transcript" else stated
