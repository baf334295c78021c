"""Files that later processes believe: whole, the owner's, and about what their key says."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOOK_AFTER = 1 / 16
_unseen: dict[tuple[Path, str], int] = {}
"""Bytes that this process has added to a folder since it looked at it."""


class Shelf:
    """Where this process keeps things of one kind; nowhere until it is told."""

    folder: Path | None = None
    told = False

    @contextlib.contextmanager
    def kept_in(self, folder: Path | None) -> Iterator[None]:
        """Keep them in this folder meanwhile (None: nowhere). It must be the caller's alone: what is found there is
        believed, and run."""
        before = self.folder, self.told
        self.folder, self.told = folder, True
        try:
            yield
        finally:
            self.folder, self.told = before


def digest_of_package(root: Path) -> str:
    """One digest of the text of every module under a folder."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def named_by(folder: Path, key: str, suffix: str) -> Path:
    """The file of a key."""
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()}{suffix}"


def read_whole(file: Path, key: str) -> bytes | None:
    """What was written under this key; None where nothing was, or by another user, under another key or in part."""
    try:
        if hasattr(os, "geteuid") and file.stat().st_uid != os.geteuid():
            return None
        stated, _, rest = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(rest).hexdigest().encode() != stated:
        return None
    own, _, content = rest.partition(b"\n")
    return content if own == key.encode() else None


def write_whole(file: Path, key: str, content: bytes) -> None:
    """Whole or not at all; a disk that does not take it is no reason to fail. The key is one line."""
    rest = key.encode() + b"\n" + content
    with contextlib.suppress(OSError):
        with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as part:
            part.write(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
        os.replace(part.name, file)


def remove_oldest(folder: Path, suffix: str, *, most: int, added: int) -> None:
    """Remove the oldest files where all of them have more bytes than that, after so many were ``added``.

    There may be thousands: a process looks after its first file, and then whenever it has added a share of the room.
    """
    unseen = _unseen.get((folder, suffix), most) + added
    _unseen[folder, suffix] = unseen if unseen < LOOK_AFTER * most else 0
    if unseen < LOOK_AFTER * most:
        return
    with contextlib.suppress(OSError):
        # asked once a file
        with os.scandir(folder) as found:
            files = [(own.stat(), own.path) for own in found if own.name.endswith(suffix)]
        total = sum(told.st_size for told, _ in files)
        for told, own in sorted(files, key=lambda each: each[0].st_mtime) if total > most else ():
            if total > most:
                Path(own).unlink(missing_ok=True)
                total -= told.st_size
