"""Environments of their own for other people's packages: made once, kept by their content, used without a network."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Protocol, runtime_checkable

from guarantees.checks import require
from mechanisms.adapters.private_folder import private_folder, refuse_shared

SHOWN = 300
"""Of what an installer says when it fails the last so many characters are told."""
LONGEST = 3600.0
"""Seconds after which an installer counts as stuck."""


class NotInstalledError(ImportError):
    """An environment that is not here, or that could not be made: the message says which and why."""


@runtime_checkable
class NeedsEnvironment(Protocol):
    """A mechanism that may need one."""

    @property
    def installs(self) -> Environment | None:
        """What must be installed before it runs; None: nothing."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """Packages, and the Python that imports them.

    It is kept under a digest of its packages, its Python, this platform and the content of local packages. Nothing here
    installs anything but ``install``; whoever calls it has asked the user.
    """

    packages: tuple[str, ...]
    """As installers take them: 'name==version', or a path."""
    python: str | None = None
    """The version, '3.11' say; None: this one."""
    beside: bool = False
    """A folder over this Python's own packages, for its import path, and without dependencies."""

    def __post_init__(self):
        require("packages", len(self.packages) > 0, "at least one", self.packages)
        for package in self.packages:
            good = isinstance(package, str) and package.strip() and not package.strip().startswith("-")
            require("packages", good, "requirements such as 'name==1.0', not options of an installer", package)

    def __str__(self) -> str:
        where = "over this Python" if self.beside else f"Python {self._version}"
        return f"{', '.join(self.packages)} ({where})"

    @functools.cached_property
    def folder(self) -> Path:
        """Where it is, or would be."""
        content = {
            "packages": [_content(package) for package in self.packages],
            "python": self._version,
            "beside": self.beside,
            "platform": sysconfig.get_platform(),
        }
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
        return _cache() / f"environment-{digest}"

    @property
    def installed(self) -> bool:
        """Whether its folder exists; a folder is moved there only when it is complete."""
        return self.folder.is_dir()

    def required(self) -> Path:
        """Its folder; an error where it is not installed, or where somebody else could have put code into it."""
        if not self.installed:
            raise NotInstalledError(
                f"{self} is not installed in {self.folder}; run the suite with --allow-install, which downloads "
                "packages and runs their installers."
            )
        refuse_shared(self.folder.parent)
        refuse_shared(self.folder)
        return self.folder

    @property
    def programs(self) -> Path:
        """The folder of its Python."""
        return self.required() / ("Scripts" if os.name == "nt" else "bin")

    def install(self) -> None:
        """Make it where it is not here, by uv, or by venv and pip; afterwards no network is needed."""
        if self.installed:
            return
        cache = private_folder(self.folder.parent)
        with tempfile.TemporaryDirectory(dir=cache) as place:
            made = Path(place) / "made"
            self._make(made)
            try:
                made.rename(self.folder)
            except OSError:
                # another process was faster
                if not self.installed:
                    raise

    def _make(self, place: Path) -> None:
        uv = shutil.which("uv")
        if self.beside:
            words = ["install", "--quiet", "--no-deps", "--target", str(place), *self.packages]
            _run([*_installer(uv), *words, *(["--python", sys.executable] if not _has_pip() else [])], self)
        elif uv is not None:
            _run([uv, "venv", "--quiet", "--no-project", "--python", self._version, str(place)], self)
            _run([uv, "pip", "install", "--quiet", "--python", str(_python(place)), *self.packages], self)
        else:
            _run([self._interpreter(), "-m", "venv", str(place)], self)
            _run([str(_python(place)), "-m", "pip", "install", "--quiet", *self.packages], self)

    def _interpreter(self) -> str:
        if self._version == _own_version():
            return sys.executable
        found = shutil.which(f"python{self._version}")
        if found is None:
            raise NotInstalledError(
                f"{self} needs Python {self._version}, which is not installed; install it, or uv, which downloads it."
            )
        return found

    @property
    def _version(self) -> str:
        return self.python or _own_version()


def _own_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpsgd-audit"


def _python(place: Path) -> Path:
    return place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def _installer(uv: str | None) -> list[str]:
    """By pip, or by uv where an environment has no pip."""
    if _has_pip():
        return [sys.executable, "-m", "pip"]
    if uv is None:
        raise NotInstalledError("installing packages needs pip or uv; neither was found.")
    return [uv, "pip"]


def _content(package: str) -> list[str]:
    """A requirement by its text; a local package by its files too."""
    path = Path(package)
    files = [path] if path.is_file() else sorted(filter(Path.is_file, path.rglob("*")))
    files = [file for file in files if not any(map(_is_made, file.relative_to(path).parts))]
    if not path.exists():
        return [package]
    return [str(path.resolve()), *(f"{file} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files)]


def _is_made(name: str) -> bool:
    """Whether building or importing a package writes a file or folder of this name into it."""
    return name in ("__pycache__", "build", ".git") or name.endswith(".egg-info")


def _run(command: list[str], wanted: Environment) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(f"installing {wanted} failed: {error}") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[-SHOWN:] or "no message"
        raise NotInstalledError(f"installing {wanted} failed: {said}")
