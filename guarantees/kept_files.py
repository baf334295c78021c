"""Cache files that later processes may trust: complete, the caller's own, and stored under a checked key."""

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
    """The folder in which this process keeps one kind of thing; none until it is set."""

    folder: Path | None = None
    told = False

    @contextlib.contextmanager
    def kept_in(self, folder: Path | None) -> Iterator[None]:
        """Use this folder inside the block (None: no folder). It must be the caller's alone: files in it are run."""
        before = self.folder, self.told
        self.folder, self.told = folder, True
        try:
            yield
        finally:
            self.folder, self.told = before


def digest_of_package(root: Path) -> str:
    """Digest of the text of all modules in a folder."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def named_by(folder: Path, key: str, suffix: str) -> Path:
    """Path of the cache file for a key."""
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()}{suffix}"


def read_whole(file: Path, key: str) -> bytes | None:
    """Content stored under a key; None if there is none, it is incomplete, or its owner or key is another."""
    try:
        if hasattr(os, "geteuid") and file.stat().st_uid != os.geteuid():
            return None
        stated, _, rest = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(rest).hexdigest().encode() != stated:
        return None
    stored_key, _, content = rest.partition(b"\n")
    return content if stored_key == key.encode() else None


def write_whole(file: Path, key: str, content: bytes) -> None:
    """Write a cache file completely or not at all; a full or read-only disk is no error. The key is one line."""
    rest = key.encode() + b"\n" + content
    with contextlib.suppress(OSError):
        with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as part:
            part.write(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
        os.replace(part.name, file)


def remove_oldest(folder: Path, suffix: str, *, most: int, added: int) -> None:
    """Remove the oldest files once all exceed ``most`` bytes together; ``added`` is how many bytes were just written.

    There may be thousands: a process looks after its first file, and then whenever it has added a share of the room.
    """
    unseen = _unseen.get((folder, suffix), most) + added
    _unseen[folder, suffix] = unseen if unseen < LOOK_AFTER * most else 0
    if unseen < LOOK_AFTER * most:
        return
    with contextlib.suppress(OSError):
        # asked once a file
        with os.scandir(folder) as listing:
            files = [(path.stat(), path.path) for path in listing if path.name.endswith(suffix)]
        total = sum(stat.st_size for stat, _ in files)
        for stat, path in sorted(files, key=lambda each: each[0].st_mtime) if total > most else ():
            if total > most:
                Path(path).unlink(missing_ok=True)
                total -= stat.st_size
