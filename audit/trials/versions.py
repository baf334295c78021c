"""Versions that must be the same in every process that draws trials of one audit. Imports nothing heavy."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
OWN = ("audit", "distinguishers", "guarantees", "mechanisms")
"""Packages of this toolkit."""
LIBRARIES = ("dpsgd-audit", "jax", "jaxlib", "numpy")
"""Distributions whose versions are compared."""
CODE = "dpsgd-audit's code"


@functools.cache
def versions() -> Mapping[str, str]:
    """Versions of Python and of the libraries that determine a trial, and a digest of our own files."""
    return {"python": platform.python_version(), **{name: version_of(name) for name in LIBRARIES}, CODE: own_code()}


def version_of(name: str) -> str:
    """The version of an installed distribution; a checkout on the path has none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


@functools.cache
def own_code() -> str:
    """A digest of every Python file of our packages."""
    digest = hashlib.sha256()
    for package in OWN:
        for path in sorted((HOME / package).rglob("*.py")):
            digest.update(f"{path.relative_to(HOME).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """What differs, each as 'name: this there, that here'."""
    return [
        f"{name}: {there.get(name, 'unknown')} there, {version} here"
        for name, version in here.items()
        if there.get(name) != version
    ]
