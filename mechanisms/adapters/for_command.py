"""Any program in any language: requests on its standard input, little-endian float32 on its standard output.

The protocol is in docs/command-protocol.md: a request is a 12-byte header (four ASCII letters and two uint32) and its
payload; ``DATA`` carries the dataset and has no answer, ``DRAW`` carries one uint64 seed a trial and is answered
by one row of float32 a trial.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from guarantees.checks import AboveZero, Count, FromZero, Positive, checked, require
from mechanisms.adapters.environments import Environment
from mechanisms.adapters.program import Program
from mechanisms.adapters.stated_by_user import StatedByUser, stated_functions, stated_numbers
from mechanisms.contract import Draw, Releases
from mechanisms.pairs.neighbours import materialise

ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT")
"""Variables that a program is given unless told otherwise."""
NOT_SHOWN = "(not shown)"
"""What records say in place of a variable's value, which may be a secret."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandStep(StatedByUser):
    """A program as a mechanism: what ``command_step`` builds."""

    command: Sequence[str]
    outputs: Count | None = None
    folder: str | None = None
    depends_on: Sequence[str] = ()
    releases: Releases = "update"  # pyright: ignore[reportIncompatibleMethodOverride]
    environment: Sequence[str] = ENVIRONMENT
    packages: Sequence[str] = ()
    python: str | None = None
    workers: FromZero = 0
    timeout: AboveZero = 60.0
    start_timeout: AboveZero | None = None
    clip: Positive | None = None
    noise_multiplier: Positive | None = None
    own_gradients: Callable[[Any], Any] | None = None

    def __post_init__(self):
        require("command", len(self.command) > 0, "a sequence of words, the program first", self.command)
        good = self.releases in ("update", "final")
        require("releases", good, "update or final (a program gives vectors)", self.releases)
        for name in ("command", "depends_on", "environment", "packages"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        require("python", self.python is None or bool(self.packages), "given with packages", self.python)

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
            column = "; of one number per record write rows[:, None]" if rows.ndim == 1 else ""
            raise ValueError(f"command_step needs a dataset of shape (records, dimension), got {rows.shape}{column}.")
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
            answer = program.rows(seeds, width)
            return np.frombuffer(answer, "<f4").reshape(len(seeds), width)

        return draw


@checked
def command_step(
    *,
    command: Sequence[str],
    outputs: Count | None = None,
    folder: str | None = None,
    depends_on: Sequence[str] = (),
    releases: Releases = "update",
    environment: Sequence[str] = ENVIRONMENT,
    packages: Sequence[str] = (),
    python: str | None = None,
    workers: FromZero = 0,
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
