"""What a worker of a cluster is asked: trials by their numbers. JAX is imported with the first of them.

A job comes as bytes that are read only where versions agree, and what was made of it is kept for the next question.
"""

from __future__ import annotations

import functools
import multiprocessing
import pickle
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from audit.trials.user_code_errors import contained
from audit.trials.versions import differences, versions

if TYPE_CHECKING:
    import numpy as np

    from audit.trials.both_sides import BothSides
    from audit.trials.source import Scored

KEPT_JOBS = 4
REMEDY = "install the same versions and the same checkout of dpsgd-audit there and start its workers again."


class UnlikeWorkerError(RuntimeError):
    """A worker has other versions or another device than the process that asks: it could draw other trials."""


class Payload(NamedTuple):
    """Something pickled, and what it is known by."""

    digest: str
    data: bytes


class Key(NamedTuple):
    """A key as it travels."""

    words: np.ndarray
    implementation: str


class Ask(NamedTuple):
    """One question about trials start..stop-1 of one side under one key."""

    what: str
    """chunk, layout, cells, scores or outputs."""
    side: str = ""
    key: Key | None = None
    start: int = 0
    stop: int = 0
    edges: np.ndarray | None = None
    size: int = 0


class Expected(NamedTuple):
    """What the asking process runs; a device of its own only where it is known."""

    versions: Mapping[str, str]
    device: str | None


_turn = threading.Lock()


def hold(payload: Payload) -> Payload:
    """A job as the result of a task: where the worker that holds it dies, the scheduler has another hold it."""
    return payload


def running() -> dict[str, str]:
    """What this worker runs."""
    return dict(versions())


def device() -> str:
    """The device on which this worker draws."""
    from audit.trials.devices import device_name

    return device_name()


@contained()
def answer(expected: Expected, job: Payload, score: Payload | None, ask: Ask) -> Any:
    """Counts, scores or outputs of the trials asked for."""
    _refuse_unlike(expected)
    sides = _sides(job)
    if ask.what == "layout":
        return sides.layout()
    if ask.what == "outputs":
        return sides.piece(ask.side, _key(ask.key), ask.start, ask.stop, size=ask.size)
    assert score is not None
    without, with_record = _scored(job, score)
    if ask.what == "chunk":
        from audit.trials.keys import key_from_seed

        return without.source(key_from_seed(0)).chunk
    source = (without if ask.side == "without" else with_record).source(_key(ask.key))
    if ask.what == "cells":
        assert ask.edges is not None
        return source.cells(ask.start, ask.stop, ask.edges)
    return source.scores(ask.start, ask.stop)


def _refuse_unlike(expected: Expected) -> None:
    """Also of a worker that joined after the others had been compared."""
    wrong = differences(expected.versions, versions())
    if not wrong and expected.device not in (None, device()):
        raise UnlikeWorkerError(
            f"a worker draws on {device()}, others on {expected.device}: their trials would differ in the last digit. "
            "Start workers of one kind."
        )
    if wrong:
        raise UnlikeWorkerError(f"a worker runs other versions ({'; '.join(wrong)}); {REMEDY}")


def _sides(job: Payload) -> BothSides:
    with _turn:
        return _made(_Same(job))


def _scored(job: Payload, score: Payload) -> tuple[Scored, Scored]:
    sides = _sides(job)
    with _turn:
        return _made_scores(_Same(job), _Same(score), sides)


class _Same:
    """A payload that is compared by its digest."""

    def __init__(self, payload: Payload):
        self.payload = payload

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.payload.digest == other.payload.digest

    def __hash__(self) -> int:
        return hash(self.payload.digest)


@functools.lru_cache(maxsize=KEPT_JOBS)
def _made(job: _Same) -> BothSides:
    from audit.trials.both_sides import both_sides

    mechanism, neighbours = pickle.loads(job.payload.data)
    # this process is the worker; a child of its own keeps the time-out, where it may have one
    return both_sides(mechanism, neighbours, workers=0 if multiprocessing.current_process().daemon else 1)


@functools.lru_cache(maxsize=KEPT_JOBS)
def _made_scores(job: _Same, score: _Same, sides: BothSides) -> tuple[Scored, Scored]:
    distinguisher, chunk, learnt = pickle.loads(score.payload.data)
    return sides.scored(distinguisher, chunk=chunk, learnt=learnt)


def _key(key: Key | None) -> Any:
    import jax
    import jax.numpy as jnp

    assert key is not None
    return jax.random.wrap_key_data(jnp.asarray(key.words), impl=key.implementation)
