"""A running program: requests on its standard input, answers on its standard output, what it says as an error."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import struct
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping
from typing import IO

import numpy as np

from dpsgd_audit.spelling import counted

PIECE = 2**16
HEADER, SEED, FLOAT = 12, 8, 4
"""Bytes of a request's header, of a seed and of a number."""
PAUSE = 1.0
"""Seconds without a byte, within its first answer, after which a program is asked for its first trial again."""
GREETING, READY = struct.pack("<4sII", b"HELO", 0, 0), b"OKAY"
STDERR_SHOWN = 4000
"""Of what a program writes to its standard error the last so many bytes are kept."""
SHOWN = 60
"""Of an answer that seems to be text the first so many bytes are shown."""


class CommandError(RuntimeError):
    """The program failed, stopped or did not answer in time; the message ends with what it wrote to stderr."""


class Tail:
    """Reads a pipe to its end in a thread and keeps the last bytes: a program that says much cannot fill memory."""

    def __init__(self, pipe: IO[bytes], kept: int):
        self._pipe, self._kept, self._last = pipe, kept, b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # a closed pipe ends the reading as its end does
        with contextlib.suppress(OSError, ValueError), self._pipe:
            while piece := os.read(self._pipe.fileno(), PIECE):
                self._last = (self._last + piece)[-self._kept :]

    def text(self) -> str:
        """What came last; the program has been ended, so its pipe is about to be."""
        self._reader.join(timeout=1.0)
        return self._last.decode(errors="replace").strip()


class Program:
    """A running program; its input is closed when this object is dropped, which is its signal to stop."""

    def __init__(self, command: tuple[str, ...], *, folder: str | None, timeout: float, environment: Mapping[str, str]):
        self._command = command
        self._timeout = timeout
        if os.name != "posix":
            raise CommandError(
                f"cannot start {command[0]!r}: command_step works on Linux and macOS only, because it waits on the "
                "pipes of a program. On Windows use WSL, or wrap a Python function: callable_step."
            )
        try:
            # a session of its own is a process group of its own, which can be ended with all that it started
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=dict(environment),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise CommandError(f"cannot start {command[0]!r}: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._errors = Tail(self._process.stderr, STDERR_SHOWN)
        self._answered = False
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        self._close = weakref.finalize(self, _stop, self._process)

    def greet(self, timeout: float) -> None:
        """Wait until the program is ready, which may take longer than any answer."""
        answer = self.exchange(GREETING, len(READY), timeout=timeout)
        if answer != READY:
            self._close()
            self._fail(
                f"answered {answer!r} to the greeting HELO, and {READY!r} was due{_printed(answer)}; leave "
                "start_timeout= out for a program that does not know it"
            )

    def rows(self, seeds: np.ndarray, width: int) -> bytes:
        """One row of so many float32 for each seed."""
        asked = f"; {counted(len(seeds), 'output')} of {counted(width, 'float32 number')}, which outputs= sets"
        again = b"" if self._answered else _draw_request(seeds[:1])
        answer = self.exchange(_draw_request(seeds), len(seeds) * width * 4, asked=asked, again=again)
        self._answered = True
        return answer

    def exchange(
        self, request: bytes, wanted: int, *, timeout: float | None = None, asked: str = "", again: bytes = b""
    ) -> bytes:
        """Write a request and read ``wanted`` bytes, both at once: neither side can block the other for ever.

        ``asked`` says in words what they should be. ``again`` asks for the first trial once more, if the program pauses
        within its answer: one whose rows are too short answers that, and it need not be waited for.
        """
        try:
            return self._exchange(request, wanted, self._timeout if timeout is None else timeout, asked, again)
        except BaseException:
            # also Ctrl-C, which a group of its own does not get from the terminal
            self._close()
            raise

    def _exchange(self, request: bytes, wanted: int, timeout: float, asked: str, again: bytes) -> bytes:
        deadline = time.monotonic() + timeout
        self._refuse_unasked()
        unsent, answer, before, more = memoryview(request), bytearray(), 0, 0
        trials = (len(request) - HEADER) // SEED
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            selector.register(self._input, selectors.EVENT_WRITE)
            while unsent or len(answer) < wanted + more:
                left = max(0.0, deadline - time.monotonic())
                events = selector.select(timeout=min(left, PAUSE) if again and answer else left)
                if not events and again and answer and left > PAUSE:
                    if before:
                        self._refuse_short_rows(bytes(answer), before, trials, wanted)
                    elif not unsent:
                        before, more, unsent = len(answer), wanted // trials, memoryview(again)
                        selector.register(self._input, selectors.EVENT_WRITE)
                elif not events:
                    came = f"{len(answer)} of {wanted} bytes came{asked}{_printed(bytes(answer))}"
                    self._fail(f"did not answer within {timeout:g} s ({came})")
                for event, _ in events:
                    if event.fd == self._output:
                        answer += self._read(len(answer), wanted)
                    else:
                        unsent = self._write(unsent)
                        if not unsent:
                            selector.unregister(self._input)
        if len(answer) > wanted + more:
            said = _printed(bytes(answer)) or (_outputs(len(answer), trials) if asked else "")
            self._fail(f"answered {len(answer)} bytes where {wanted} were asked for{asked}{said}")
        return bytes(answer[:wanted])

    def _refuse_short_rows(self, answer: bytes, before: int, trials: int, wanted: int) -> None:
        """Where the first trial, asked for once more, came again after what is too short for all of them."""
        row, rest = divmod(before, trials)
        if not rest and row % FLOAT == 0 and answer[before:] == answer[:row]:
            came, due = row // FLOAT, wanted // (trials * FLOAT)
            self._fail(
                f"answers {counted(came, 'number')} where {due} are expected: set outputs={came}{_printed(answer)}"
            )

    def _refuse_unasked(self) -> None:
        """What is there before a request is no answer to it: too much was answered before, or something printed."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            if not selector.select(timeout=0):
                return
        # the end of the output is told by the exchange, with the exit code
        if unasked := os.read(self._output, PIECE):
            self._fail(f"wrote {len(unasked)} bytes that nobody asked for{_printed(unasked)}")

    def _read(self, have: int, wanted: int) -> bytes:
        piece = os.read(self._output, PIECE)
        if not piece:
            self._process.wait(timeout=5.0)
            when = f"after {have} of {wanted} bytes" if wanted > have else "before it was asked anything"
            self._fail(f"stopped with exit code {self._process.returncode} {when}")
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
        said = self._errors.text()
        raise CommandError(f"the program {' '.join(self._command)!r} {what}. Its standard error: {said or 'nothing'}")


def _printed(answer: bytes) -> str:
    """The text that an answer begins with, where it does: somebody printed to standard output."""
    first = answer[:SHOWN].split(b"\n")[0]
    if len(first) < 3 or not all(32 <= byte < 127 for byte in first):
        return ""
    return f" (it begins with the text {first.decode()!r}: print to standard error, or use examples/command/serve.py)"


def _outputs(came: int, trials: int) -> str:
    """What to set if the program answers longer rows; more may come than was read."""
    row, rest = divmod(came, trials * FLOAT)
    return "" if rest else f" (if each output has {row} numbers, set outputs={row})"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Close its input, wait a moment, then end it and whatever it started."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
    finally:
        # also where Ctrl-C comes while it waits
        _kill_group(process)
    process.wait()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a program's process group; its number stays taken as long as anyone is in it."""
    if not hasattr(os, "killpg"):
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _draw_request(seeds: np.ndarray) -> bytes:
    return struct.pack("<4sII", b"DRAW", len(seeds), 0) + seeds.astype("<u8").tobytes()
