"""Which source files belong to a library or to this toolkit, and so hold none of the user's code."""

from __future__ import annotations

import filecmp
import functools
import json
import os
import sysconfig
from pathlib import Path
from urllib.parse import unquote, urlparse

PACKAGES = ("audit", "distinguishers", "dpsgd_audit", "guarantees", "mechanisms")
INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


@functools.lru_cache(maxsize=4096)
def is_library(path: str) -> bool:
    """Whether a file belongs to an installed library, to Python or to this toolkit, and not to the user.

    A package whose source lies in the working folder is the user's, however it was installed.
    """
    if path.startswith("<frozen") or is_ours(path):
        return True
    if any(part in path for part in INSTALLED):
        return source_of(path) is None
    return path.startswith(sysconfig.get_paths()["stdlib"] + os.sep)


@functools.lru_cache(maxsize=4096)
def is_ours(path: str) -> bool:
    """Whether a file belongs to this toolkit."""
    root = Path(__file__).parents[2]
    return any(path.startswith(f"{root / name}{os.sep}") for name in PACKAGES)


def relative(path: str) -> str:
    """A path relative to the working folder, if the file or the source that it is a copy of lies inside."""
    source = source_of(path)
    if source is not None and os.path.isfile(path) and filecmp.cmp(path, source, shallow=False):
        path = source
    return os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path


def source_of(path: str) -> str | None:
    """The file of the project in the working folder from which a file was installed; None if there is none."""
    return _source(path, os.getcwd())


@functools.lru_cache(maxsize=4096)
def _source(path: str, folder: str) -> str | None:
    """The source of an installed file in this folder or in projects installed from it."""
    for part in INSTALLED:
        site, installed, name = path.rpartition(part)
        if installed:
            homes = (Path(folder), *_projects(site + part, folder))
            candidates = (str(home / below / name) for home in homes for below in ("", "src"))
            return next((file for file in candidates if part not in file and os.path.isfile(file)), None)
    return None


@functools.cache
def _projects(site: str, folder: str) -> tuple[Path, ...]:
    """Projects in or around the working folder that were installed from their own folders."""
    origins = [json.loads(file.read_text(encoding="utf-8")) for file in Path(site).glob("*.dist-info/direct_url.json")]
    urls = [urlparse(origin.get("url", "")) for origin in origins]
    roots = [Path(unquote(url.path)) for url in urls if url.scheme == "file"]
    return tuple(root for root in roots if root.is_relative_to(folder) or Path(folder).is_relative_to(root))
