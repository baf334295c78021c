"""Any program in any language: requests on its standard input, little-endian float32 on its standard output.

The protocol is in docs/command-protocol.md: a request is a 12-byte header (four ASCII letters and two uint32) and its
payload; ``DATA`` carries the dataset and has no answer, ``DRAW`` carries one uint64 seed a trial and is answered
by one row of float32 a trial.
"""

from __future__ import annotations

import dataclasses
import os
import selectors
import struct
import subprocess
import tempfile
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from guarantees.checks import require
from mechanisms.contract import Described, Draw, Releases
from mechanisms.neighbours import materialise

PIECE = 2**16
STDERR_SHOWN = 4000


class CommandError(RuntimeError):
    """The program failed, stopped or did not answer in time; the message ends with what it wrote to stderr."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandStep(Described):
    """One release by a program that speaks the protocol of docs/command-protocol.md.

    ``outputs`` is how many numbers a trial gives (default: the dataset's dimension); ``folder`` is where the program
    runs; with ``workers`` as many copies of it run at once. The program is not confined in any way. Files and folders
    that it ``depends_on``, beside its own, are watched: an interrupted run is not continued after one changed.
    """

    command: Sequence[str]
    outputs: int | None = None
    folder: str | None = None
    depends_on: Sequence[str] = ()
    releases: Releases = "update"  # pyright: ignore[reportIncompatibleMethodOverride]
    workers: int = 0
    timeout: float = 60.0

    def __post_init__(self):
        good = not isinstance(self.command, str) and len(self.command) > 0
        require("command", good, "a sequence of words, the program first", self.command)
        object.__setattr__(self, "command", tuple(self.command))
        require("depends_on", not isinstance(self.depends_on, str), "a sequence of paths", self.depends_on)
        object.__setattr__(self, "depends_on", tuple(self.depends_on))
        good = self.releases in ("update", "final")
        require("releases", good, "update or final (a program gives vectors)", self.releases)
        require("outputs", self.outputs is None or self.outputs >= 1, ">= 1", self.outputs)
        require("workers", self.workers >= 0, ">= 0", self.workers)
        require("timeout", self.timeout > 0, "> 0", self.timeout)

    def prepare(self, dataset: Any) -> Draw:
        """Start the program and send it the dataset."""
        rows = np.ascontiguousarray(materialise(dataset), "<f4")
        if rows.ndim != 2:
            raise ValueError(f"a program reads a dataset of shape (records, dimension), got {rows.shape}.")
        width = self.outputs or rows.shape[1]
        program = Program(tuple(self.command), folder=self.folder, timeout=self.timeout)
        data = struct.pack("<4sII", b"DATA", *rows.shape) + rows.tobytes()
        program.exchange(data, 0)

        def draw(seeds: np.ndarray) -> np.ndarray:
            request = struct.pack("<4sII", b"DRAW", len(seeds), 0) + seeds.astype("<u8").tobytes()
            answer = program.exchange(request, len(seeds) * width * 4)
            return np.frombuffer(answer, "<f4").reshape(len(seeds), width)

        return draw


command_step = CommandStep
"""The constructor, by the name that suites and records use."""


class Program:
    """A running program; its input is closed when this object is dropped, which is its signal to stop."""

    def __init__(self, command: tuple[str, ...], *, folder: str | None, timeout: float):
        self._command = command
        self._timeout = timeout
        # a file and not a pipe: nobody reads it until something goes wrong
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, cwd=folder
            )
        except OSError as error:
            raise CommandError(f"cannot start {command[0]!r}: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        self._close = weakref.finalize(self, _stop, self._process)

    def exchange(self, request: bytes, wanted: int) -> bytes:
        """Write a request and read ``wanted`` bytes, both at once: neither side can block the other for ever."""
        deadline = time.monotonic() + self._timeout
        unsent, answer = memoryview(request), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            selector.register(self._input, selectors.EVENT_WRITE)
            while unsent or len(answer) < wanted:
                events = selector.select(timeout=max(0.0, deadline - time.monotonic()))
                if not events:
                    self._fail(f"did not answer within {self._timeout:g} s ({len(answer)} of {wanted} bytes came)")
                for event, _ in events:
                    if event.fd == self._output:
                        answer += self._read(len(answer), wanted)
                    else:
                        unsent = self._write(unsent)
                        if not unsent:
                            selector.unregister(self._input)
        if len(answer) > wanted:
            self._fail(f"answered {len(answer)} bytes where {wanted} were asked for")
        return bytes(answer)

    def _read(self, have: int, wanted: int) -> bytes:
        piece = os.read(self._output, PIECE)
        if not piece:
            self._process.wait(timeout=5.0)
            self._fail(f"stopped with exit code {self._process.returncode} after {have} of {wanted} bytes")
        return piece

    def _write(self, unsent: memoryview) -> memoryview:
        try:
            return unsent[os.write(self._input, unsent[:PIECE]) :]
        except BlockingIOError:
            return unsent
        except BrokenPipeError:
            self._process.wait(timeout=5.0)
            self._fail(f"stopped with exit code {self._process.returncode} while it was sent a request")
            raise

    def _fail(self, what: str) -> None:
        self._close()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()[-STDERR_SHOWN:]
        raise CommandError(f"the program {' '.join(self._command)!r} {what}. Its standard error: {said or 'nothing'}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Close its input, then end it."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
