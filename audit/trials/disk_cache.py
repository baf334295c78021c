"""Keep compiled programs and computed laws between processes; programs only if JAX keeps none already."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from guarantees.laws.kept import LAWS, laws_kept_in
from mechanisms.adapters.private_folder import SharedFolderError, private_folder

SETTING = "DPSGD_AUDIT_CACHE"
"""Environment variable with a folder of the user's choice, or ``off``."""
JAX_SETTINGS = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
"""JAX's own environment variables for such a cache."""
WORTH_KEEPING = 0.3
"""Seconds of compilation from which on a program is kept."""


def keep_compiled() -> Path | None:
    """Let JAX keep what it compiles in the user's cache folder; returns the folder, or None if nothing is changed.

    JAX finds a program by a digest of its whole text, the options, its own version and the device's: a kept one gives
    the same numbers. A folder that others can write to is not used. The library never sets this: only a process of the
    command does, for itself, and only if neither JAX's own settings nor DPSGD_AUDIT_CACHE=off say otherwise.
    """
    import jax

    folder = _programs_folder()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
    return folder


def _programs_folder() -> Path | None:
    """Folder for compiled programs; None if JAX has its own, or none can be used."""
    import jax

    configured = (
        any(name in os.environ for name in JAX_SETTINGS) or jax.config.values["jax_compilation_cache_dir"] is not None
    )
    return None if configured else _folder("compiled", "compiled programs")


@contextlib.contextmanager
def laws_kept() -> Iterator[Path | None]:
    """Let ``guarantees`` keep laws that took long to compute in the same place, under all that determines them."""
    folder = _folder("laws", "laws")
    with laws_kept_in(folder):
        yield folder


@contextlib.contextmanager
def kept_in_sessions() -> Iterator[None]:
    """Let an audit in Python keep laws and its own programs there, unless this process has set a place for them.

    JAX's settings stay the session's: what else it compiles is kept where the user tells JAX to.
    """
    from audit.trials.kept_programs import PROGRAMS

    with contextlib.ExitStack() as stack:
        if not LAWS.told:
            stack.enter_context(laws_kept())
        if not PROGRAMS.told:
            stack.enter_context(PROGRAMS.kept_in(_programs_folder()))
        yield


def _folder(name: str, what: str) -> Path | None:
    """The user's folder for one kind of file; None if nothing is to be kept, or others could write there."""
    setting = os.environ.get(SETTING, "")
    if setting == "off":
        return None
    try:
        if setting:
            # programs have always lain in the chosen folder itself
            inside = () if name == "compiled" else (name,)
            return private_folder(Path(setting).expanduser(), *inside, _machine())
        return private_folder(_default(), name, _machine())
    except SharedFolderError as error:
        _warn(f"{what} are not kept: {error}")
        return None
    except OSError:
        return None


@functools.cache
def _warn(message: str) -> None:
    """Print a warning once per process."""
    print(f"warning: {message}", file=sys.stderr)


def _default() -> Path:
    """The default cache folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # the specification says that a relative path is ignored
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "dpsgd-audit"


def _machine() -> str:
    """Name of a folder for this kind of processor: home folders are shared between machines, machine code is not."""
    text = platform.machine() + platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    text += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.system()}-{platform.machine()}-{hashlib.sha256(text.encode()).hexdigest()[:12]}".lower()
