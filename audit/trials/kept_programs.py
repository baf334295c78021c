"""Keep compiled programs on disk, so that a later process need neither compile nor trace those of our own parts.

JAX keeps what it compiles under a digest of the program's text, which it first makes by tracing and lowering. That
takes longer than most audits draw. A program of this package's own parts is found by what determines the text: the
structure of its arguments, our code, the versions and settings of JAX, and the device. Programs with a user's code are
left to JAX. If nobody says where to keep programs, none is written: they are compiled in the same way and live as long
as the process.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import platform
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.core import Tracer
from jax.experimental import serialize_executable

from audit.trials.versions import version_of
from guarantees.kept_files import Shelf, digest_of_package, named_by, read_whole, remove_oldest, write_whole
from mechanisms.structure import NoSignatureError, signature

SUFFIX = ".program"
MOST = 2**29
"""Most bytes of all kept programs: beyond that the oldest are removed."""
PACKAGES = ("audit", "distinguishers", "guarantees", "mechanisms")
"""Packages whose code determines a program."""
VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE")
"""Environment variables that determine a program."""
STORAGE_SETTINGS = (
    "jax_compilation_cache",
    "jax_persistent_cache",
    "jax_log_compiles",
    "jax_raise_persistent_cache_errors",
)
"""Settings of JAX for where programs are kept, which do not change what they compute."""
FEW_CORES = 2
"""With so few cores compiling parts of a program in parallel only costs more: all are busy anyway."""
ALONE: dict[str, Any] = {"xla_cpu_parallel_codegen_split_count": 1} if (os.cpu_count() or 1) <= FEW_CORES else {}
"""Option to compile a program as a whole."""
QUICK_TO_COMPILE: dict[str, Any] = {"cpu": {"xla_cpu_use_fusion_emitters": False, **ALONE}}
"""XLA's older code generator for CPUs takes two thirds of the time to compile our programs. They run as fast, except on
long vectors, and a score differs in its last bit at most (on some CPUs)."""
FOR_ONE_AUDIT: dict[str, Any] = {"cpu": {"xla_backend_optimization_level": 2}}
"""XLA's last of three optimisation levels takes most of the time to compile a user's step, 13 of 14 seconds for a
CNN. Without it a step takes between a quarter less and a fifth more time; outputs differ in their last bits at
most."""


LAPACK = "@lapack_"
"""Occurs in the text of a program that calls LAPACK on a CPU, for matrix decompositions and solves."""
_turn = threading.Lock()


PROGRAMS = Shelf()
programs_kept_in = PROGRAMS.kept_in


class KeptProgram:
    """A function that JAX compiles, called like ``jax.jit`` of it; static arguments are keywords.

    ``told`` says whether its arguments determine all that it computes with. ``long`` is a function of the arguments:
    does the program draw long vectors? ``once`` says that only one audit runs it, so that it must compile quickly.
    ``in_turn`` says that no other such program may run at the same time: XLA's calls of LAPACK hold a thread of its
    pool while they wait for another, so that two programs on two cores would wait forever.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        static: tuple[str, ...] = (),
        told: bool = True,
        once: bool = False,
        in_turn: bool = False,
        long: Callable[..., bool] = lambda *arguments: False,
    ):
        self.name, self.function, self.static = function.__name__, function, static
        self.told, self.once, self.in_turn, self.long = told, once, in_turn, long
        self._found: dict[str, Any] = {}
        self._locks: dict[str, threading.Lock] = {}

    @functools.cached_property
    def jitted(self) -> Any:
        """The function as JAX compiles and keeps it."""
        return jax.jit(self.function, static_argnames=self.static, compiler_options=self._options())

    def __call__(self, *arguments: Any, **static: Any) -> Any:
        """The function's value, computed by a kept program if possible."""
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arguments)):
            # inside another program, which has its own options
            return self.function(*arguments, **static)
        if self.in_turn:
            with _turn:
                return jax.block_until_ready(self.jitted(*arguments, **static))
        key = self._key("program", arguments, static)
        if key is None:
            return self.jitted(*arguments, **static)
        program = self._once(key, lambda: self._program(key, arguments, static))
        try:
            return program(*arguments)
        except jax.errors.JaxRuntimeError:
            # a file may be intact although its program does not run here
            self._found[key] = functools.partial(self.jitted, **static)
            return self._found[key](*arguments)

    def eval_shape(self, *arguments: Any, **static: Any) -> Any:
        """Shapes and dtypes of the function's value."""
        key = None if PROGRAMS.folder is None else self._key("shapes", arguments, static)
        if key is None:
            return self.jitted.eval_shape(*arguments, **static)
        return self._once(key, lambda: self._shapes(key, arguments, static))

    def _key(self, what: str, arguments: tuple[Any, ...], static: dict[str, Any]) -> str | None:
        """Text of everything that determines a program of our own parts; None for any other program."""
        if not self.told or not _is_usual():
            return None
        try:
            signatures = [signature(argument) for argument in arguments]
        except NoSignatureError:
            return None
        process = () if PROGRAMS.folder is None else _process()
        return json.dumps([what, self.name, static, signatures, process, _settings()])

    def _once(self, key: str, make: Callable[[], Any]) -> Any:
        """What was made for this key, by the first thread that asked."""
        with self._locks.setdefault(key, threading.Lock()):
            if key not in self._found:
                self._found[key] = make()
            return self._found[key]

    def _program(self, key: str, arguments: tuple[Any, ...], static: dict[str, Any]) -> Any:
        if PROGRAMS.folder is None:
            return self._compiled(self.function, arguments, static)
        return _kept(key, arguments, lambda: self._compiled(self._renamed(), arguments, static))

    def _renamed(self) -> Callable[..., Any]:
        """The function under a unique name, so that JAX compiles it: a program from JAX's cache cannot be saved again.

        JAX finds programs by their text, which includes the name.
        """

        @functools.wraps(self.function)
        def renamed(*given: Any, **fixed: Any) -> Any:
            return self.function(*given, **fixed)

        renamed.__name__ = renamed.__qualname__ = f"{self.name}_{secrets.token_hex(8)}"
        return renamed

    def _compiled(self, function: Callable[..., Any], arguments: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """The compiled program."""
        lowered = jax.jit(function, static_argnames=self.static).lower(*arguments, **static)
        return lowered.compile(compiler_options=None if self.long(*arguments) else _quick(jax.default_backend()))

    def _options(self) -> dict[str, Any] | None:
        return _quick(jax.default_backend(), once=True) if self.once else None

    def _shapes(self, key: str, arguments: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Shapes from a file or, if there is none, by tracing."""
        assert PROGRAMS.folder is not None
        file = named_by(PROGRAMS.folder, key, SUFFIX)
        content = read_whole(file, key)
        if content is not None:
            with contextlib.suppress(Exception):
                return pickle.loads(content)
        shapes = self.jitted.eval_shape(*arguments, **static)
        with contextlib.suppress(Exception):
            write_whole(file, key, pickle.dumps(shapes))
        return shapes


def _is_usual() -> bool:
    """Whether programs are compiled at all, and for one device."""
    return not jax.config.values["jax_disable_jit"] and len(jax.devices()) == 1


def _kept(key: str, arguments: tuple[Any, ...], compile_it: Callable[[], Any]) -> Any:
    """The program kept under a key; if there is none, compile and save it."""
    assert PROGRAMS.folder is not None
    file = named_by(PROGRAMS.folder, key, SUFFIX)
    content = read_whole(file, key)
    if content is not None:
        with contextlib.suppress(Exception):
            program, tree = pickle.loads(content)
            structure = jax.tree.structure((arguments, {}))
            return serialize_executable.deserialize_and_load(program, structure, pickle.loads(tree))
    compiled = compile_it()
    # a program that this JAX cannot write down is compiled in each process
    with contextlib.suppress(Exception):
        program, _, tree = serialize_executable.serialize(compiled)
        content = pickle.dumps((program, pickle.dumps(tree)))
        write_whole(file, key, content)
        remove_oldest(file.parent, SUFFIX, most=MOST, added=len(content))
    return compiled


@functools.cache
def _quick(backend: str, *, once: bool = False) -> dict[str, Any] | None:
    """Options with which XLA compiles quickly; None if this version does not know them."""
    quick, one_audit = QUICK_TO_COMPILE.get(backend, {}), FOR_ONE_AUDIT.get(backend, {}) if once else {}
    for options in filter(None, (quick | one_audit, one_audit)):
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            jax.jit(lambda: 0).lower().compile(compiler_options=options)
            return options
    return None


def _settings() -> list[Any]:
    """Settings of JAX that determine a program, which may change while a process runs."""
    values = jax.config.values
    settings = {name: repr(values[name]) for name in sorted(values) if not name.startswith(STORAGE_SETTINGS)}
    return [settings, {name: os.environ.get(name, "") for name in VARIABLES}]


@functools.cache
def _process() -> tuple[str, ...]:
    """What determines programs in this process: our code, the versions of JAX and the device."""
    root, device = Path(__file__).resolve().parent.parent.parent, jax.devices()[0]
    code = [digest_of_package(root / name) for name in PACKAGES]
    versions = [platform.python_version(), jax.__version__, version_of("jaxlib"), device.client.platform_version]
    return (*code, *versions, device.platform, device.device_kind, _instructions())


def _instructions() -> str:
    """What this machine's processor can do.

    A home folder may serve several machines, and a program compiled for one processor may crash another's process.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    features = {line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))}
    # without that file only the name tells machines apart
    return "\n".join([platform.machine(), *(sorted(features) or [platform.processor(), platform.node()])])
