"""Folders from which code is loaded: made for their owner alone, and used only while nobody else can write to them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

OTHERS = stat.S_IWGRP | stat.S_IWOTH


class SharedFolderError(OSError):
    """A folder in which others could put code that this process would run."""


def private_folder(base: Path, *inside: str) -> Path:
    """The folder ``inside`` of ``base``, made if missing; an OSError if it cannot be made or is not ours alone.

    Folders above ``base`` are as safe as the system and its user made them. Windows has other rights, and is not asked.
    """
    folder = base
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    refuse_shared(folder)
    for name in inside:
        folder = folder / name
        folder.mkdir(exist_ok=True, mode=0o700)
        refuse_shared(folder)
    return folder


def refuse_shared(folder: Path) -> None:
    """Raise an error if somebody else owns a folder or may write to it."""
    if not hasattr(os, "geteuid"):
        return
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise SharedFolderError(f"{folder} belongs to another user; choose a folder of your own.")
    if found.st_mode & OTHERS:
        raise SharedFolderError(f"{folder} can be written to by others; `chmod go-w` it, or choose another folder.")
