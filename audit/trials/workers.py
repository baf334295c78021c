"""Draw batches of trials of foreign code, here or in spawned worker processes. No scores and no statistics."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import re
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Protocol

import numpy as np

from audit.trials.user_code_errors import (
    MechanismError,
    Terminated,
    contained,
    empty_batch,
    last_words,
    own_traceback,
    passes,
    raised_at,
)
from mechanisms.adapters.trial_seeds import trial_seeds
from mechanisms.contract import BatchMechanism, Draw
from mechanisms.pairs.lent import LentDataset, copied
from mechanisms.release import Layout, LostDigitsError, flatten_rows, host_array, leaves, stack

START_SECONDS = 180.0
"""Time that a worker may take to start, import a library and prepare a side, before its first trials of it."""

ONE_SIDE = (
    "; {} the record the same seed gives a release, so the failure alone tells the two datasets apart (to audit that, "
    "return a fixed row instead of failing)"
)

ONE_FRAME = re.compile(r"Traceback \(most recent call last\):\n +File .*\n(?: {4}.*\n)*\S.*")
"""A traceback that says no more than its last line and its only place."""

Use = Callable[[int, np.ndarray], None]
"""Called with the first trial and the outputs of a batch."""


class ForeignError(MechanismError):
    """Foreign code failed, died or did not answer; the message names the side and the trials, with the traceback."""


class Batch(NamedTuple):
    """Trials start..stop-1 of one side under one key."""

    side: str
    key_data: np.ndarray
    start: int
    stop: int


class Drawn(NamedTuple):
    """Outputs of one batch in their flat view, and their layout."""

    rows: np.ndarray
    layout: Layout


class _Request(NamedTuple):
    """A batch sent to a worker, its deadline, and whether the worker is known to be ready for it."""

    batch: Batch
    deadline: float
    ready: bool


class Drawer(Protocol):
    """Draws batches and hands each to ``use(first trial, outputs)``, in any order."""

    def draw(self, batches: list[Batch], use: Use) -> None:
        """Draw all batches."""
        ...

    def layout(self, batch: Batch) -> Layout:
        """Layout of the outputs of a batch."""
        ...


def drawer(mechanism: BatchMechanism, datasets: Mapping[str, Any], workers: int) -> Drawer:
    """A drawer with so many workers or, for none, in this process."""
    return Workers(mechanism, datasets, workers) if workers else Local(mechanism, datasets)


class _PreparedSides:
    """The prepared sides of one mechanism in one process."""

    def __init__(self, mechanism: BatchMechanism, datasets: Mapping[str, Any]):
        self.mechanism = mechanism
        self.datasets = datasets
        self.lent: dict[str, LentDataset] = {}
        self.prepared: dict[str, Draw] = {}
        self.writes = False
        """Whether the code writes into its dataset: then every trial gets it as it was."""

    def run(self, batch: Batch, ready: Callable[[], None] = lambda: None) -> Drawn:
        """Outputs of one batch, or a ForeignError naming the first failing trial; calls ``ready`` once prepared."""
        seeds = trial_seeds(batch.key_data, batch.start, batch.stop)
        try:
            if batch.side not in self.prepared:
                self.lent[batch.side] = LentDataset(self.datasets[batch.side])
                self.prepared[batch.side] = self.mechanism.prepare(self.lent[batch.side].lent)
                ready()
            return Drawn(*flatten_rows(self._draw(batch.side, seeds), len(seeds), self.mechanism.kind))
        except LostDigitsError as error:
            raise ForeignError(f"on the side '{batch.side}' of {self.mechanism.name}: {error}") from None
        except BaseException as error:
            if passes(error):
                raise
            if isinstance(error, ModuleNotFoundError) and error.name is not None:
                raise ForeignError(
                    f"{self.mechanism.name} imports {error.name!r}{raised_at(error)}, which the Python that runs it "
                    f"({sys.executable}) does not find"
                ) from None
            text, empty_array = own_traceback(error), empty_batch(error)
            message = f"{self.describe_failure(batch, seeds)} {last_words(text)}. {empty_array}".rstrip()
            # the message already has a program's standard error, unless that has several lines
            details = (
                text.partition(". Its standard error: ")[2] if text.startswith("CommandError: ") else text
            ).strip()
            more = "\n" in details and ONE_FRAME.fullmatch(details) is None
            raise ForeignError(f"{message}\n{details}" if more else message) from None

    def _draw(self, side: str, seeds: np.ndarray) -> Any:
        """Releases of these seeds, each on the dataset as it was given."""
        draw, dataset = self.prepared[side], self.lent[side]
        if not self.writes:
            releases = draw(seeds)
            self.writes = dataset.restore()
            if not self.writes or len(seeds) == 1:
                return releases
        alone = []
        for index in range(len(seeds)):
            release = draw(seeds[index : index + 1])
            alone.append({name: host_array(part)[0] for name, part in leaves(release)})
            dataset.restore()
        return stack(alone)

    def describe_failure(self, batch: Batch, seeds: np.ndarray) -> str:
        """Which trial fails if freshly prepared code draws each alone, and whether the other side fails too."""
        where = f"on the side '{batch.side}' of {self.mechanism.name}"
        self.prepared.pop(batch.side, None)
        try:
            with contained():
                draw = self.mechanism.prepare(copied(self.datasets[batch.side]))
        except Exception:
            return f"preparing the trials {where} failed{self._beside(batch.side, seeds[:1])}:"
        for index in range(len(seeds)):
            seed = seeds[index : index + 1]
            try:
                with contained():
                    flatten_rows(draw(seed), 1, self.mechanism.kind)
            except Exception:
                failed = f"trial {batch.start + index} {where} (seed {seed[0]}) failed"
                if index and self._answers(batch.side, seed):
                    return f"{failed} after {index} others, though it succeeds alone:"
                return f"{failed}{self._beside(batch.side, seed)}:"
        trials = f"trial {batch.start} {where} (seed {seeds[0]})"
        if len(seeds) > 1:
            trials = f"trials {batch.start} to {batch.stop - 1} {where}"
        if self._answers(batch.side, seeds):
            return f"{trials} failed once and succeeded when drawn again, as code that fails in its first call only:"
        return f"{trials} failed together, though each succeeds alone:"

    def _beside(self, side: str, seed: np.ndarray) -> str:
        """Say that the other side gives a release for the seed of a failed trial, which is a leak by itself."""
        other = "with" if side == "without" else "without"
        return ONE_SIDE.format(other) if self._answers(other, seed) else ""

    def _answers(self, side: str, seeds: np.ndarray) -> bool:
        """Whether freshly prepared code gives releases for these seeds."""
        try:
            with contained():
                draw = self.mechanism.prepare(copied(self.datasets[side]))
                flatten_rows(draw(seeds), len(seeds), self.mechanism.kind)
        except Exception:
            return False
        return True


class Local:
    """Draws in this process: no start-up cost, no time-out."""

    def __init__(self, mechanism: BatchMechanism, datasets: Mapping[str, Any]):
        self._trials = _PreparedSides(mechanism, datasets)
        self._turn = threading.Lock()

    def draw(self, batches: list[Batch], use: Use) -> None:
        """Draw one batch at a time, although sides are counted in two threads: foreign code seeds global generators."""
        for batch in batches:
            with self._turn:
                drawn = self._trials.run(batch)
            use(batch.start, drawn.rows)

    def layout(self, batch: Batch) -> Layout:
        """Layout of the outputs of a batch, drawn here."""
        with self._turn:
            return self._trials.run(batch).layout


def _serve(connection: Connection, payload: bytes) -> None:
    """Serve batches in a worker process until the pipe closes: outputs out, or the text of an error.

    Before its first trials of a side the worker sends None, to say that it is ready for them. It leaves Ctrl-C to its
    parent; when the parent ends it, it exits regularly, so that programs which it started are ended too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    with contextlib.suppress(Terminated):
        _answer(connection, payload)


def _end(*_: object) -> None:
    """Answer a request to end."""
    _leave()
    raise Terminated


def _leave() -> None:
    """Ignore further requests to end, which would interrupt this process while it ends its programs."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _answer(connection: Connection, payload: bytes) -> None:
    """Draw batches as they arrive, and send their outputs or errors."""
    mechanism, datasets = pickle.loads(payload)
    trials = _PreparedSides(mechanism, datasets)
    while True:
        try:
            batch = connection.recv()
        except EOFError:
            return _leave()
        try:
            connection.send((batch.start, trials.run(batch, lambda: connection.send(None)), None))
        except ForeignError as error:
            connection.send((batch.start, None, str(error)))


class Workers:
    """Spawned processes that serve both sides; spawned, because neither JAX nor PyTorch survives a fork."""

    def __init__(self, mechanism: BatchMechanism, datasets: Mapping[str, Any], workers: int):
        self._name = mechanism.name
        self._timeout = mechanism.timeout
        try:
            payload = pickle.dumps((mechanism, dict(datasets)))
        except Exception as error:
            raise ValueError(
                f"{mechanism.name} cannot be sent to worker processes ({error}); define its function at the top of an "
                "importable module, or set workers=0."
            ) from error
        context = multiprocessing.get_context("spawn")
        self._processes, self._pipes = [], []
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, payload), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)
        self._warm: set[tuple[int, str]] = set()
        self._turn = threading.Lock()
        self._close = weakref.finalize(self, _shut_down, self._processes, self._pipes)

    def draw(self, batches: list[Batch], use: Use) -> None:
        """Give every worker the next batch when it has answered; one caller at a time, since the pipes are shared."""
        with self._turn:
            self._draw(batches, lambda start, drawn: use(start, drawn.rows))

    def layout(self, batch: Batch) -> Layout:
        """Layout of the outputs of a batch, drawn by a worker."""
        found: list[Layout] = []
        with self._turn:
            self._draw([batch], lambda _, drawn: found.append(drawn.layout))
        return found[0]

    def _draw(self, batches: list[Batch], use: Callable[[int, Drawn], None]) -> None:
        if not self._close.alive:
            raise ForeignError(f"the workers of {self._name} were closed after an earlier error; run the audit again.")
        waiting = batches[::-1]
        busy: dict[Connection, _Request] = {}
        try:
            while waiting or busy:
                for pipe in self._pipes:
                    if waiting and pipe not in busy:
                        busy[pipe] = self._send(pipe, waiting.pop())
                self._receive(busy, use)
        except BaseException:
            # An answer may still be on its way: these pipes can no longer be matched to requests.
            self._close()
            raise

    def _send(self, pipe: Connection, batch: Batch) -> _Request:
        place = (self._pipes.index(pipe), batch.side)
        ready = place in self._warm
        allowed = self._timeout + (0.0 if ready else START_SECONDS)
        self._warm.add(place)
        try:
            pipe.send(batch)
        except OSError:
            self._died(pipe, batch)
        return _Request(batch, time.monotonic() + allowed, ready)

    def _receive(self, busy: dict[Connection, _Request], use: Callable[[int, Drawn], None]) -> None:
        until = min(waiting.deadline for waiting in busy.values())
        ready = wait(list(busy), timeout=max(0.0, until - time.monotonic()))
        for pipe in ready:
            assert isinstance(pipe, Connection)
            batch = busy.pop(pipe).batch
            try:
                answer = pipe.recv()
            except (EOFError, ConnectionError):
                self._died(pipe, batch)
            else:
                if answer is None:
                    busy[pipe] = _Request(batch, time.monotonic() + self._timeout, ready=True)
                    continue
                start, drawn, error = answer
                if error is not None:
                    raise ForeignError(error)
                use(start, drawn)
        late = [waiting for waiting in busy.values() if waiting.deadline <= time.monotonic()]
        if late:
            raise ForeignError(self._too_late(late[0]))

    def _too_late(self, waiting: _Request) -> str:
        batch = waiting.batch
        if not waiting.ready:
            return (
                f"a worker of {self._name} was not ready for the side '{batch.side}' within "
                f"{START_SECONDS + self._timeout:g} s: starting, importing its code or preparing its data hangs or is "
                "slow; where it is slow, raise timeout=."
            )
        fewer = ", or draw fewer trials at once with chunk=" if batch.stop - batch.start > 1 else ""
        return (
            f"{_span(batch)} of {self._name} did not answer within {self._timeout:g} s: it may hang; where it is slow, "
            f"as in a first call that imports or compiles, raise timeout={fewer}."
        )

    def _died(self, pipe: Connection, batch: Batch) -> None:
        process = self._processes[self._pipes.index(pipe)]
        process.join(timeout=5.0)
        raise ForeignError(
            f"a worker of {self._name} died (exit code {process.exitcode}) while drawing {_span(batch)}; its own "
            "messages are on standard error. In a script, call the audit below "
            "`if __name__ == '__main__':`."
        )


def _span(batch: Batch) -> str:
    """Name the trials of a batch."""
    several = batch.stop - batch.start > 1
    which = f"trials {batch.start} to {batch.stop - 1}" if several else f"trial {batch.start}"
    return f"{which} on the side '{batch.side}'"


def _shut_down(processes: list[Any], pipes: list[Connection]) -> None:
    """Close the pipes, which ends idle workers, and terminate busy ones."""
    for pipe in pipes:
        pipe.close()
    for process in processes:
        process.join(timeout=0.2)
        if process.is_alive():
            process.terminate()
    for process in processes:
        process.join(timeout=2.0)
        if process.is_alive():
            process.kill()
