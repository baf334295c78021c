"""Answer questions about trials in a worker of a cluster. JAX is imported with the first of them.

A job arrives as bytes that are read only if versions agree, and what was made of it is kept for the next question.
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
"""Most jobs that a worker keeps ready."""
REMEDY = "install the same versions and the same checkout of dpsgd-audit there and start its workers again."


class UnlikeWorkerError(RuntimeError):
    """A worker has other versions or another device than the asking process, and might draw other trials."""


class Payload(NamedTuple):
    """Pickled data and its digest."""

    digest: str
    data: bytes


class Key(NamedTuple):
    """A key as plain numbers."""

    words: np.ndarray
    implementation: str


class Ask(NamedTuple):
    """One question about trials start..stop-1 of one side under one key."""

    what: str
    """One of chunk, layout, cells, scores and outputs."""
    side: str = ""
    key: Key | None = None
    start: int = 0
    stop: int = 0
    edges: np.ndarray | None = None
    size: int = 0


class Expected(NamedTuple):
    """Versions of the asking process, and the device if it is known."""

    versions: Mapping[str, str]
    device: str | None


_turn = threading.Lock()


def hold(payload: Payload) -> Payload:
    """Return a job as the result of a task, so that the scheduler can have it held again if a worker dies."""
    return payload


def running() -> dict[str, str]:
    """Versions of this worker."""
    return dict(versions())


def device() -> str:
    """Name of the device on which this worker draws."""
    from audit.trials.devices import device_name

    return device_name()


@contained()
def answer(expected: Expected, job: Payload, score: Payload | None, ask: Ask) -> Any:
    """Answer a question with counts, scores, outputs, their layout, or the number of trials drawn at once."""
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
    """Refuse to draw with other versions or on another device; checked also for workers that joined late."""
    wrong = differences(expected.versions, versions())
    if not wrong and expected.device not in (None, device()):
        raise UnlikeWorkerError(
            f"a worker draws on {device()}, others on {expected.device}: their trials would differ in the last digit. "
            "Start workers of one kind."
        )
    if wrong:
        raise UnlikeWorkerError(f"a worker runs other versions ({'; '.join(wrong)}); {REMEDY}")


def _sides(job: Payload) -> BothSides:
    """The source of trials of a job."""
    with _turn:
        return _sides_of(_ByDigest(job))


def _scored(job: Payload, score: Payload) -> tuple[Scored, Scored]:
    """Both sides of a job with a score."""
    sides = _sides(job)
    with _turn:
        return _scores_of(_ByDigest(job), _ByDigest(score), sides)


class _ByDigest:
    """A payload that is compared by its digest."""

    def __init__(self, payload: Payload):
        self.payload = payload

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByDigest) and self.payload.digest == other.payload.digest

    def __hash__(self) -> int:
        return hash(self.payload.digest)


@functools.lru_cache(maxsize=KEPT_JOBS)
def _sides_of(job: _ByDigest) -> BothSides:
    """Read a job."""
    from audit.trials.both_sides import both_sides

    mechanism, neighbours = pickle.loads(job.payload.data)
    # this process is the worker; a child of its own keeps the time-out, where it may have one
    return both_sides(mechanism, neighbours, workers=0 if multiprocessing.current_process().daemon else 1)


@functools.lru_cache(maxsize=KEPT_JOBS)
def _scores_of(job: _ByDigest, score: _ByDigest, sides: BothSides) -> tuple[Scored, Scored]:
    """Read a score."""
    distinguisher, chunk, learnt = pickle.loads(score.payload.data)
    return sides.scored(distinguisher, chunk=chunk, learnt=learnt)


def _key(key: Key | None) -> Any:
    """A key from plain numbers."""
    import jax
    import jax.numpy as jnp

    assert key is not None
    return jax.random.wrap_key_data(jnp.asarray(key.words), impl=key.implementation)
