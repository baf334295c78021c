"""Draw trials on the workers of a Dask cluster: ranges of trial numbers go out, counts come back."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from audit.trials import remote
from audit.trials.both_sides import Auditable, BothSides, both_sides
from audit.trials.remote import REMEDY, Ask, Expected, Key, Payload, UnlikeWorkerError
from audit.trials.source import DrawListener, OneSide, Source, complete, ignore_draws, joined
from audit.trials.versions import differences, versions
from distinguishers.contract import Distinguisher
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout

PIECES = 2
"""Ranges of one side per worker and count: with more than one, a slow worker delays the others less."""
START_SECONDS = 120.0
"""Time that workers may take to join."""
EMPTY_SECONDS = 60.0
"""Time that a run waits while there is no worker, as when all are being restarted."""
TURN_SECONDS = 0.5
"""Time between two checks whether any worker is left, and whether anybody still waits."""


class ClusterError(RuntimeError):
    """A cluster cannot be used, or is lost; the message says what to do."""


def installed_dask() -> Any:
    """The package ``distributed``."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError("a cluster needs Dask Distributed: pip install 'dpsgd-audit[cluster]'.") from error
    return distributed


class DaskExecutor:
    """An Executor whose trials are drawn by the workers of a Dask cluster.

    Python, JAX, NumPy and dpsgd-audit must be the same on all of them. Dask replaces a worker that dies and draws its
    ranges again elsewhere. Close it, or use it in ``with``; a cluster that already existed runs on.
    """

    def __init__(self, client: Any, *, workers: int, held: contextlib.ExitStack | None = None):
        """``held`` is closed with the executor."""
        self._client, self._held = client, held or contextlib.ExitStack()
        self._versions, self._given_up = versions(), threading.Event()
        try:
            self._wait_for(workers)
            self._compare()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> DaskExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        for end in (functools.partial(self._client.close, timeout=10), self._held.close):
            with contextlib.suppress(Exception):
                end()

    @property
    def device(self) -> str:
        """Device that the workers draw on: asked of one, and required of all."""
        return self._device

    @functools.cached_property
    def _device(self) -> str:
        return self.ask([self._client.submit(remote.device, pure=False)], lambda _: "asking for a worker's device")[0]

    @property
    def expected(self) -> Expected:
        """Versions and device that every worker must have before it draws."""
        return Expected(self._versions, self.device)

    @property
    def slots(self) -> int:
        """Number of ranges that are drawn at the same time."""
        return max(1, sum(self._client.nthreads().values()))

    def sides(self, mechanism: Auditable, neighbours: Neighbours) -> BothSides:
        """The source of trials, drawn by the workers."""
        return ClusterSides(self, mechanism, neighbours)

    def hold(self, value: Any, name: str) -> Any:
        """Send a value to the cluster as a task, identified by a digest of its bytes."""
        import cloudpickle

        try:
            data = cloudpickle.dumps(value)
        except Exception as error:
            raise ValueError(
                f"{name} cannot be sent to the workers of a cluster ({error}); define its functions at the top of an "
                "importable module, or use the executor 'local'."
            ) from error
        payload = Payload(hashlib.sha256(data).hexdigest(), data)
        with warnings.catch_warnings():
            # a large dataset travels in its task, so that the scheduler can have it held again
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self._client.submit(remote.hold, payload, key=f"dpsgd-audit-{payload.digest}")

    def submit(self, job: Any, score: Any, ask: Ask) -> Any:
        """Send one question to a worker."""
        return self._client.submit(remote.answer, self.expected, job, score, ask, pure=False)

    def ask(self, futures: Sequence[Any], what: Callable[[int], str]) -> list[Any]:
        """Wait for the answers, in order; the first error cancels the others. ``what(index)`` describes a question."""
        distributed = installed_dask()
        waiting, last_seen = set(futures), time.monotonic()
        try:
            while waiting:
                if self._given_up.is_set():
                    raise ClusterError("the run is shutting down.")
                try:
                    done, waiting = distributed.wait(waiting, timeout=TURN_SECONDS, return_when="FIRST_COMPLETED")
                except TimeoutError:
                    last_seen = self._last_seen(last_seen)
                    continue
                last_seen = time.monotonic()
                for future in done:
                    if future.status != "finished":
                        self._fail(future, what(futures.index(future)))
            return self._client.gather(list(futures))
        except (distributed.comm.CommClosedError, distributed.client.FutureCancelledError) as error:
            raise ClusterError(f"the connection to the cluster was lost while {what(0)}: {error}") from error
        finally:
            if waiting:
                with contextlib.suppress(Exception):
                    self._client.cancel(list(waiting))

    def give_up(self) -> None:
        """End every wait, since the run is over."""
        self._given_up.set()

    def _fail(self, future: Any, what: str) -> None:
        from distributed.scheduler import KilledWorker

        if future.status in ("cancelled", "lost"):
            raise ClusterError(f"the cluster dropped its work while {what}; is its scheduler still running?")
        error = future.exception()
        if isinstance(error, KilledWorker):
            raise ClusterError(
                f"{error.allowed_failures + 1} workers died one after the other while {what}, so that work "
                "probably kills them (too much memory, or a crash of the audited code). Read their logs, or use the "
                "executor 'local' to see the error here."
            ) from None
        if isinstance(error, ModuleNotFoundError):
            raise ClusterError(
                f"a worker cannot import {error.name!r} while {what}; install it there, or put its file on PYTHONPATH "
                "where the workers start."
            ) from error
        raise error

    def _last_seen(self, last_seen: float) -> float:
        """Time when workers were last there; a ClusterError if that is too long ago."""
        if self._client.nthreads():
            return time.monotonic()
        if time.monotonic() - last_seen > EMPTY_SECONDS:
            raise ClusterError(
                f"the cluster has had no worker for {EMPTY_SECONDS:.0f} s; start some (dask worker ADDRESS)."
            )
        return last_seen

    def _wait_for(self, workers: int) -> None:
        try:
            self._client.wait_for_workers(workers, timeout=START_SECONDS)
        except TimeoutError:
            raise ClusterError(
                f"{len(self._client.nthreads())} of {workers} workers joined the cluster within {START_SECONDS:g} s; "
                "start them (dask worker ADDRESS) or ask for fewer with workers=."
            ) from None

    def _compare(self) -> None:
        """Refuse a cluster whose workers run other versions, before anything is drawn. Imports no JAX there."""
        wrong = []
        for address, found in self._client.run(remote.running, on_error="return").items():
            if isinstance(found, BaseException):
                wrong.append(f"{address}: dpsgd-audit cannot be imported there ({found})")
            else:
                wrong += [f"{address}: {entry}" for entry in differences(self._versions, found)]
        if wrong:
            raise UnlikeWorkerError(f"workers of the cluster differ from this process. {'; '.join(wrong)}. {REMEDY}")


class ClusterSides:
    """BothSides whose trials the workers draw, of mechanisms that JAX traces and of foreign code alike."""

    def __init__(self, executor: DaskExecutor, mechanism: Auditable, neighbours: Neighbours):
        self._executor, self._name = executor, mechanism.name
        self._local = mechanism, neighbours
        self._job = executor.hold(self._local, mechanism.name)

    def scored(
        self, distinguisher: Distinguisher, *, chunk: int | None = None, learnt: bool = False
    ) -> tuple[OneSide, OneSide]:
        """Scores of both sides; a worker says how many trials it draws at once, and is the first to compile."""
        score = self._executor.hold((distinguisher, chunk, learnt), distinguisher.name)
        size = self._answer(Ask("chunk"), score, "scoring the first output")

        def one_side(side: str) -> OneSide:
            shared = {"executor": self._executor, "name": self._name, "job": self._job, "score": score, "size": size}
            return OneSide(lambda key: ClusterSource(key=_without_device(key), side=side, **shared))

        return one_side("without"), one_side("with")

    def layout(self) -> Layout:
        """Layout of the outputs, as a worker finds it."""
        return self._layout

    @functools.cached_property
    def _layout(self) -> Layout:
        return self._answer(Ask("layout"), None, "reading the form of an output")

    def piece(self, side: str, key: jax.Array, start: int, stop: int, *, size: int) -> Any:
        """Outputs of one side, drawn by one worker."""
        ask = Ask("outputs", side, _without_device(key), start, stop, size=size)
        return self._answer(ask, None, f"drawing trials {start} to {stop - 1} on the side '{side}'")

    def outputs(
        self,
        keys: tuple[jax.Array, jax.Array],
        trials: int,
        *,
        size: int,
        deadline: float | None = None,
        drew: DrawListener = ignore_draws,
    ) -> tuple[Any, Any]:
        """Full outputs of both sides, in turns, until all trials are drawn or the time is used up."""
        found: dict[str, list[Any]] = {"without": [], "with": []}
        travelling = dict(zip(found, map(_without_device, keys), strict=True))
        together = size * self._executor.slots
        for start in range(0, trials, together):
            if deadline is not None and time.monotonic() >= deadline:
                break
            spans = list(_spans(start, min(start + together, trials), size))
            asks = [Ask("outputs", side, travelling[side], *span, size=size) for side in found for span in spans]
            futures = [self._executor.submit(self._job, None, ask) for ask in asks]
            answers = self._executor.ask(futures, lambda index, asks=asks: _described(asks[index], self._name))
            for ask, answer in zip(asks, answers, strict=True):
                found[ask.side].append(answer)
                drew(ask.stop - ask.start)
        without, with_record = (joined(pieces, trials) for pieces in found.values())
        return without, with_record

    def read_without(
        self, key: jax.Array, *, size: int, pieces: int, read: Callable[[Any], Any], use: Callable[[Any], None]
    ) -> None:
        """Draw in this process, since ``read`` is traced here."""
        both_sides(*self._local).read_without(key, size=size, pieces=pieces, read=read, use=use)

    def _answer(self, ask: Ask, score: Any, what: str) -> Any:
        """Answer of one worker to one question."""
        future = self._executor.submit(self._job, score, ask)
        return self._executor.ask([future], lambda _: f"{what} of {self._name}")[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterSource(Source):
    """Scores of trials that workers draw by ranges of trial numbers; the order of answers does not matter."""

    key: Key
    side: str
    executor: DaskExecutor
    name: str
    job: Any
    score: Any
    size: int
    """Trials that a worker draws at once."""
    pace: ClassVar[float] = 2.0
    one_by_one: ClassVar[bool] = True

    @property
    def chunk(self) -> int:
        """Trials that all workers together draw at once."""
        return self.size * self.executor.slots

    def scores(self, start: int, stop: int, drew: DrawListener = ignore_draws) -> np.ndarray:
        """Scores of trials start..stop-1, shape (stop - start, members), told of once all have arrived."""
        found = np.concatenate(self._answers("scores", start, stop))
        drew(len(found))
        return found

    def cells(self, start: int, stop: int, edges: np.ndarray) -> np.ndarray:
        """Counts of the workers; outputs do not travel."""
        counts = np.sum(self._answers("cells", start, stop, np.asarray(edges, np.float32)), axis=0)
        return complete(counts, stop - start)

    def give_up(self) -> None:
        """End the wait for the workers."""
        self.executor.give_up()

    def _answers(self, what: str, start: int, stop: int, edges: np.ndarray | None = None) -> list[np.ndarray]:
        # whole chunks, since fewer trials cost a worker as much
        """Answers of the workers about a range of trials, in order."""
        chunks = -(-(stop - start) // (self.chunk * PIECES))
        spans = _spans(start, stop, max(1, chunks) * self.size)
        asks = [Ask(what, self.side, self.key, *span, edges) for span in spans]
        futures = [self.executor.submit(self.job, self.score, ask) for ask in asks]
        return self.executor.ask(futures, lambda index: _described(asks[index], self.name))


def _spans(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Split start..stop-1 into ranges of ``size`` trials."""
    return ((first, min(first + size, stop)) for first in range(start, stop, size))


def _described(ask: Ask, name: str) -> str:
    """Say what a worker is asked."""
    return f"drawing trials {ask.start} to {ask.stop - 1} on the side '{ask.side}' of {name}"


def _without_device(key: jax.Array) -> Key:
    """A key as plain numbers, for other processes."""
    return Key(np.asarray(jax.random.key_data(key)), str(jax.random.key_impl(key)))
