"""Any program in any language: requests on its standard input, little-endian float32 on its standard output.

The protocol is in docs/command-protocol.md: a request is a 12-byte header (four ASCII letters and two uint32) and its
payload; ``DATA`` carries the dataset and has no answer, ``DRAW`` carries one uint64 seed a trial and is answered
by one row of float32 a trial.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import selectors
import shutil
import signal
import struct
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from dpsgd_audit.spelling import counted
from guarantees.checks import AboveZero, Positive, checked, require
from mechanisms.adapters.environments import Environment
from mechanisms.adapters.stated_by_user import stated_functions, stated_gradients, stated_numbers
from mechanisms.contract import Described, Draw, Releases
from mechanisms.pairs.neighbours import materialise

PIECE = 2**16
GREETING, READY = struct.pack("<4sII", b"HELO", 0, 0), b"OKAY"
STDERR_SHOWN = 4000
"""Of what a program writes to its standard error the last so many bytes are kept."""
SHOWN = 60
"""Of an answer that seems to be text the first so many bytes are shown."""
ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT")
"""Variables that a program is given unless told otherwise."""
NOT_SHOWN = "(not shown)"
"""What records say in place of a variable's value, which may be a secret."""


class CommandError(RuntimeError):
    """The program failed, stopped or did not answer in time; the message ends with what it wrote to stderr."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandStep(Described):
    """A program as a mechanism: what ``command_step`` builds."""

    command: Sequence[str]
    outputs: int | None = None
    folder: str | None = None
    depends_on: Sequence[str] = ()
    releases: Releases = "update"  # pyright: ignore[reportIncompatibleMethodOverride]
    environment: Sequence[str] = ENVIRONMENT
    packages: Sequence[str] = ()
    python: str | None = None
    workers: int = 0
    timeout: AboveZero = 60.0
    start_timeout: AboveZero | None = None
    clip: Positive | None = None
    noise_multiplier: Positive | None = None
    own_gradients: Callable[[Any], Any] | None = None

    def __post_init__(self):
        good = not isinstance(self.command, str) and len(self.command) > 0
        require("command", good, "a sequence of words, the program first", self.command)
        object.__setattr__(self, "command", tuple(self.command))
        require("depends_on", not isinstance(self.depends_on, str), "a sequence of paths", self.depends_on)
        object.__setattr__(self, "depends_on", tuple(self.depends_on))
        good = self.releases in ("update", "final")
        require("releases", good, "update or final (a program gives vectors)", self.releases)
        require("environment", not isinstance(self.environment, str), "a sequence of names", self.environment)
        object.__setattr__(self, "environment", tuple(self.environment))
        require("packages", not isinstance(self.packages, str), "a sequence of requirements", self.packages)
        object.__setattr__(self, "packages", tuple(self.packages))
        require("python", self.python is None or bool(self.packages), "given with packages", self.python)
        require("outputs", self.outputs is None or self.outputs >= 1, ">= 1", self.outputs)
        require("workers", self.workers >= 0, ">= 0", self.workers)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What its constructor was given, but for the values of variables: records are shown to others."""
        given = {**super().parameters, "environment": tuple(map(_without_value, self.environment))}
        for name in ("clip", "noise_multiplier", "own_gradients"):
            del given[name]
        if not self.packages:
            del given["packages"], given["python"]
        if self.start_timeout is None:
            del given["start_timeout"]
        told = stated_numbers(clip=self.clip, noise_multiplier=self.noise_multiplier)
        return {**given, **told, **stated_functions(gradients=self.own_gradients)}

    @property
    def installs(self) -> Environment | None:
        """What must be installed before it runs: the environment of its packages."""
        return Environment(packages=tuple(self.packages), python=self.python) if self.packages else None

    @property
    def gradients_told(self) -> bool:
        """Whether the user gave them."""
        return self.own_gradients is not None

    def gradients(self, dataset: Any) -> Any:
        """What the user tells."""
        return stated_gradients(self, self.own_gradients, dataset)

    @property
    def files(self) -> tuple[Path, ...]:
        """The program's own, those among its words, and what it declares to depend on."""
        folder, words = Path(self.folder or "."), self.command
        program = shutil.which(words[0], path=os.environ.get("PATH")) or str(folder / words[0])
        named = [Path(program), *(folder / word for word in words[1:]), *(folder / each for each in self.depends_on)]
        return tuple(path for path in named if path.exists())

    def prepare(self, dataset: Any) -> Draw:
        """Start the program and send it the dataset."""
        rows = np.ascontiguousarray(materialise(dataset), "<f4")
        if rows.ndim != 2:
            raise ValueError(f"command_step needs a dataset of shape (records, dimension), got {rows.shape}.")
        width = self.outputs or rows.shape[1]
        given = chosen_environment(self.environment)
        if self.installs is not None:
            given["PATH"] = os.pathsep.join([str(self.installs.programs), given.get("PATH", os.defpath)])
        program = Program(tuple(self.command), folder=self.folder, timeout=self.timeout, environment=given)
        if self.start_timeout is not None:
            program.greet(self.start_timeout)
        data = struct.pack("<4sII", b"DATA", *rows.shape) + rows.tobytes()
        program.exchange(data, 0)

        def draw(seeds: np.ndarray) -> np.ndarray:
            request = struct.pack("<4sII", b"DRAW", len(seeds), 0) + seeds.astype("<u8").tobytes()
            asked = f"; {counted(len(seeds), 'output')} of {counted(width, 'float32 number')}, which outputs= sets"
            answer = program.exchange(request, len(seeds) * width * 4, asked=asked)
            return np.frombuffer(answer, "<f4").reshape(len(seeds), width)

        return draw


@checked
def command_step(
    *,
    command: Sequence[str],
    outputs: int | None = None,
    folder: str | None = None,
    depends_on: Sequence[str] = (),
    releases: Releases = "update",
    environment: Sequence[str] = ENVIRONMENT,
    packages: Sequence[str] = (),
    python: str | None = None,
    workers: int = 0,
    timeout: AboveZero = 60.0,
    start_timeout: AboveZero | None = None,
    clip: Positive | None = None,
    noise_multiplier: Positive | None = None,
    gradients: Callable[[Any], Any] | None = None,
) -> CommandStep:
    """One release by a program that speaks the protocol of docs/command-protocol.md.

    The program is not confined in any way. It leads a process group of its own, which is ended as a whole.

    Args:
      command: the program and its arguments.
      outputs: how many numbers each trial gives; by default the dataset's dimension.
      folder: where the program runs.
      depends_on: files and folders to watch beside the program's own: an interrupted run is not continued after one
        changed.
      releases: ``"update"`` or ``"final"``.
      environment: variables that it is given, as names or as ``NAME=value``.
      packages: requirements (``name==1.0``, or a path) of an environment of its own, whose ``python`` the command then
        names. ``dpsgd-audit run --allow-install`` makes it, once; nothing else does.
      python: the version of that environment's Python, such as ``"3.11"``; by default the one that audits.
      workers: how many copies run at once; 0 runs one.
      timeout: seconds after which a program counts as stuck.
      start_timeout: seconds that it may take to start, for example to import a large library. It is then sent ``HELO``
        first and must answer ``OKAY`` once it is ready, as examples/command/serve.py does. None sends no greeting.
      clip: the bound that it clips to, where it does; with ``noise_multiplier`` diagnoses can ask about its noise.
      noise_multiplier: deviation of its noise over ``clip``.
      gradients: ``gradients(dataset)``, its per-example gradients (records, coordinates), not clipped: scores and
        diagnoses read them, nothing else does. Without it they are the records themselves, where those fit the output.

    Returns:
      A mechanism for ``run_audit``; the program is started when it first draws.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import mechanisms
      >>> mechanisms.command_step(command=("./step", "1.0")).name
      'command_step'
    """
    return CommandStep(
        command=command,
        outputs=outputs,
        folder=folder,
        depends_on=depends_on,
        releases=releases,
        environment=environment,
        packages=packages,
        python=python,
        workers=workers,
        timeout=timeout,
        start_timeout=start_timeout,
        clip=clip,
        noise_multiplier=noise_multiplier,
        own_gradients=gradients,
    )


def _without_value(entry: str) -> str:
    name, stated, _ = entry.partition("=")
    return f"{name}={NOT_SHOWN}" if stated else name


def chosen_environment(listed: Sequence[str]) -> dict[str, str]:
    """The listed variables as they are here, and those that are listed with a value."""
    given = {}
    for entry in listed:
        name, stated, value = entry.partition("=")
        if stated:
            given[name] = value
        elif name in os.environ:
            given[name] = os.environ[name]
    return given


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

    def exchange(self, request: bytes, wanted: int, *, timeout: float | None = None, asked: str = "") -> bytes:
        """Write a request and read ``wanted`` bytes, both at once: neither side can block the other for ever.

        ``asked`` says in words what they should be.
        """
        try:
            return self._exchange(request, wanted, self._timeout if timeout is None else timeout, asked)
        except BaseException:
            # also Ctrl-C, which a group of its own does not get from the terminal
            self._close()
            raise

    def _exchange(self, request: bytes, wanted: int, timeout: float, asked: str) -> bytes:
        deadline = time.monotonic() + timeout
        self._refuse_unasked()
        unsent, answer = memoryview(request), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            selector.register(self._input, selectors.EVENT_WRITE)
            while unsent or len(answer) < wanted:
                events = selector.select(timeout=max(0.0, deadline - time.monotonic()))
                if not events:
                    came = f"{len(answer)} of {wanted} bytes came{asked}{_printed(bytes(answer))}"
                    self._fail(f"did not answer within {timeout:g} s ({came})")
                for event, _ in events:
                    if event.fd == self._output:
                        answer += self._read(len(answer), wanted)
                    else:
                        unsent = self._write(unsent)
                        if not unsent:
                            selector.unregister(self._input)
        if len(answer) > wanted:
            self._fail(f"answered {len(answer)} bytes where {wanted} were asked for{asked}{_printed(bytes(answer))}")
        return bytes(answer)

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
        said = self._errors.text()
        raise CommandError(f"the program {' '.join(self._command)!r} {what}. Its standard error: {said or 'nothing'}")


def _printed(answer: bytes) -> str:
    """The text that an answer begins with, where it does: somebody printed to standard output."""
    first = answer[:SHOWN].split(b"\n")[0]
    if len(first) < 3 or not all(32 <= byte < 127 for byte in first):
        return ""
    return f" (it begins with the text {first.decode()!r}: print to standard error, or use examples/command/serve.py)"


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
