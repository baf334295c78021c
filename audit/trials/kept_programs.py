"""Programs kept on disk: a later process does not compile them again, and does not even trace those of our own parts.

JAX keeps what it compiles under a digest of the program's text, and makes that text first, by tracing and lowering.
That takes longer than most audits draw. A program of this package's own parts is found by what decides the text: the
structure of its arguments, our code, the versions of JAX and what it was told, and the device. One with a user's code
in it is JAX's to keep. Where nobody says where, none is written down: programs are compiled in the same way and live as
long as the process.
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
"""Bytes of all kept programs: the oldest are removed beyond that."""
PACKAGES = ("audit", "distinguishers", "guarantees", "mechanisms")
VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE")
WHERE = ("jax_compilation_cache", "jax_persistent_cache", "jax_log_compiles", "jax_raise_persistent_cache_errors")
"""Settings of JAX that say where programs are kept, not what they compute."""
FEW_CORES = 2
"""Up to here all of them are busy while a program is compiled: parts of it compiled side by side only cost more."""
ALONE: dict[str, Any] = {"xla_cpu_parallel_codegen_split_count": 1} if (os.cpu_count() or 1) <= FEW_CORES else {}
QUICK_TO_COMPILE: dict[str, Any] = {"cpu": {"xla_cpu_use_fusion_emitters": False, **ALONE}}
"""XLA's older code generator for CPUs takes two thirds of the time to compile our programs. They run as fast, except on
long vectors, and a score differs in its last bit at most (on some CPUs)."""
FOR_ONE_AUDIT: dict[str, Any] = {"cpu": {"xla_backend_optimization_level": 2}}
"""The last of three levels takes most of the time to compile a user's step, 13 of 14 seconds for a CNN. Without it
a step takes between a quarter less and a fifth more to run; outputs differ in their last bits at most."""


LAPACK = "@lapack_"
"""In the text of a program that calls LAPACK on a CPU, for decompositions and solves of matrices."""
_turn = threading.Lock()


PROGRAMS = Shelf()
programs_kept_in = PROGRAMS.kept_in


class KeptProgram:
    """A function that JAX compiles, called as ``jax.jit`` of it is; static arguments are keywords.

    ``told`` says whether its arguments tell all that it computes with. ``long`` says of given arguments whether the
    program draws long vectors. ``once`` says that one audit alone runs it, so that compiling must be quick. ``in_turn``
    says that no other such program may run at the same time: XLA's calls of LAPACK hold a thread of its pool while they
    wait for another, so two programs on two cores wait for ever.
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
        """As JAX finds and keeps it."""
        return jax.jit(self.function, static_argnames=self.static, compiler_options=self._options())

    def __call__(self, *arguments: Any, **static: Any) -> Any:
        """The function's value, by a kept program where there is one."""
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arguments)):
            # a part of another program, which is compiled with options of its own
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
            # a file may be whole and its program still not run here
            self._found[key] = functools.partial(self.jitted, **static)
            return self._found[key](*arguments)

    def eval_shape(self, *arguments: Any, **static: Any) -> Any:
        """Shapes and dtypes of the function's value."""
        key = None if PROGRAMS.folder is None else self._key("shapes", arguments, static)
        if key is None:
            return self.jitted.eval_shape(*arguments, **static)
        return self._once(key, lambda: self._shapes(key, arguments, static))

    def _key(self, what: str, arguments: tuple[Any, ...], static: dict[str, Any]) -> str | None:
        """Everything that decides a program of our own parts; None for any other."""
        if not self.told or not _is_usual():
            return None
        try:
            told = [signature(each) for each in arguments]
        except NoSignatureError:
            return None
        process = () if PROGRAMS.folder is None else _process()
        return json.dumps([what, self.name, static, told, process, _settings()])

    def _once(self, key: str, make: Callable[[], Any]) -> Any:
        """What was made for this key, by whichever thread came first."""
        with self._locks.setdefault(key, threading.Lock()):
            if key not in self._found:
                self._found[key] = make()
            return self._found[key]

    def _program(self, key: str, arguments: tuple[Any, ...], static: dict[str, Any]) -> Any:
        if PROGRAMS.folder is None:
            return self._compiled(self.function, arguments, static)
        return _kept(key, arguments, lambda: self._compiled(self._renamed(), arguments, static))

    def _renamed(self) -> Callable[..., Any]:
        """The function by a name of its own, so that it is compiled: one that JAX takes from its own cache cannot be
        written down again.

        JAX finds those by their text, of which the name is a part.
        """

        @functools.wraps(self.function)
        def own(*given: Any, **fixed: Any) -> Any:
            return self.function(*given, **fixed)

        own.__name__ = own.__qualname__ = f"{self.name}_{secrets.token_hex(8)}"
        return own

    def _compiled(self, function: Callable[..., Any], arguments: tuple[Any, ...], static: dict[str, Any]) -> Any:
        lowered = jax.jit(function, static_argnames=self.static).lower(*arguments, **static)
        return lowered.compile(compiler_options=None if self.long(*arguments) else _quick(jax.default_backend()))

    def _options(self) -> dict[str, Any] | None:
        return _quick(jax.default_backend(), once=True) if self.once else None

    def _shapes(self, key: str, arguments: tuple[Any, ...], static: dict[str, Any]) -> Any:
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
    """Whether programs are compiled, and for one device."""
    return not jax.config.values["jax_disable_jit"] and len(jax.devices()) == 1


def _kept(key: str, arguments: tuple[Any, ...], compile_it: Callable[[], Any]) -> Any:
    """The program that lies under a key, compiled and written down where there is none."""
    assert PROGRAMS.folder is not None
    file = named_by(PROGRAMS.folder, key, SUFFIX)
    content = read_whole(file, key)
    if content is not None:
        with contextlib.suppress(Exception):
            program, tree = pickle.loads(content)
            own = jax.tree.structure((arguments, {}))
            return serialize_executable.deserialize_and_load(program, own, pickle.loads(tree))
    compiled = compile_it()
    # what this JAX cannot write down is compiled in each process
    with contextlib.suppress(Exception):
        program, _, tree = serialize_executable.serialize(compiled)
        content = pickle.dumps((program, pickle.dumps(tree)))
        write_whole(file, key, content)
        remove_oldest(file.parent, SUFFIX, most=MOST, added=len(content))
    return compiled


@functools.cache
def _quick(backend: str, *, once: bool = False) -> dict[str, Any] | None:
    """Options by which XLA compiles quickly; none where this release of it does not know them."""
    quick, less = QUICK_TO_COMPILE.get(backend, {}), FOR_ONE_AUDIT.get(backend, {}) if once else {}
    for options in filter(None, (quick | less, less)):
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            jax.jit(lambda: 0).lower().compile(compiler_options=options)
            return options
    return None


def _settings() -> list[Any]:
    """What JAX was told, which may change while a process runs."""
    values = jax.config.values
    told = {name: repr(values[name]) for name in sorted(values) if not name.startswith(WHERE)}
    return [told, {name: os.environ.get(name, "") for name in VARIABLES}]


@functools.cache
def _process() -> tuple[str, ...]:
    """Our code, the versions of JAX and the device."""
    root, device = Path(__file__).resolve().parent.parent.parent, jax.devices()[0]
    code = [digest_of_package(root / name) for name in PACKAGES]
    versions = [platform.python_version(), jax.__version__, version_of("jaxlib"), device.client.platform_version]
    return (*code, *versions, device.platform, device.device_kind, _instructions())


def _instructions() -> str:
    """What this machine's processor can do. A home folder may serve several machines, and a program compiled for one
    processor may end another's process."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    told = {line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))}
    # elsewhere a machine is known by its name alone
    return "\n".join([platform.machine(), *(sorted(told) or [platform.processor(), platform.node()])])
