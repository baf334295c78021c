"""Interrupted runs resume: counts so far, kept on disk under a digest of everything that decides them."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from audit.record.files import FileError, clear_waiting, file_error, write_whole
from audit.record.record import AuditRecord
from audit.record.stored import from_json
from audit.trials.source import Tally

try:
    import fcntl
except ImportError:
    fcntl = None

SAVE_SECONDS = 2.0
BECAUSE = ".decided.json"
"""Files that say what decided a finished audit, beside its record."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Where one audit's progress is kept. Another seed, trial number or parameter gives another file."""

    folder: Path
    digest: str
    decided: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Digests of each thing that decides the audit's numbers."""

    @property
    def _counts(self) -> Path:
        return self.folder / f"{self.digest}.counts.json"

    @property
    def _record(self) -> Path:
        return self.folder / f"{self.digest}.record.json"

    @property
    def _because(self) -> Path:
        return self.folder / f"{self.digest}{BECAUSE}"

    def finished(self) -> AuditRecord | None:
        """The record, if this audit was completed before the interruption; None if it cannot be read."""
        try:
            return from_json(json.loads(self._record.read_text())) if self._record.exists() else None
        except (ValueError, KeyError, TypeError):
            return None

    def started(self, *, at_most: int | None = None) -> Tally | None:
        """The counts of an audit under way; None without one, or if they do not add up (``at_most`` per side)."""
        if not self._counts.exists():
            return None
        try:
            data = json.loads(self._counts.read_text())
            tally = Tally(
                without=np.asarray(data["without"], np.int64),
                with_record=np.asarray(data["with_record"], np.int64),
                trials_per_side=data["trials_per_side"],
                state=data["state"],
                test=data["test"],
            )
        except (ValueError, KeyError, TypeError, OverflowError):
            return None
        return tally if _adds_up(tally, at_most) else None

    def keep(self, tally: Tally) -> None:
        """Save the counts, in one step."""
        data = {
            "without": tally.without.tolist(),
            "with_record": tally.with_record.tolist(),
            "trials_per_side": tally.trials_per_side,
            "state": dict(tally.state),
            "test": tally.test,
        }
        self._write(self._counts, json.dumps(data))

    def close(self, record: AuditRecord) -> None:
        """Save the finished record; its counts are complete and never added to."""
        self._write(self._record, json.dumps(record.to_json()))
        self._write(self._because, json.dumps({"name": record.name, "decided": dict(self.decided)}))
        self._counts.unlink(missing_ok=True)

    def changed(self, name: str) -> list[str]:
        """What is not the same as when an audit of this name was finished here; nothing if none was."""
        differ = []
        for file in sorted(self.folder.glob(f"*{BECAUSE}")):
            try:
                kept = json.loads(file.read_text())
                if kept["name"] == name:
                    differ.append([what for what, mine in self.decided.items() if kept["decided"].get(what) != mine])
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        return sorted(min(differ, key=len, default=[]))

    def _write(self, path: Path, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)


def _adds_up(tally: Tally, at_most: int | None) -> bool:
    """Every member's cells hold each trial once."""
    trials = tally.trials_per_side
    if not isinstance(trials, int) or trials < 0 or (at_most is not None and trials > at_most):
        return False
    sides = (tally.without, tally.with_record)
    right = [side.ndim == 2 and (side >= 0).all() and (side.sum(axis=1) == trials).all() for side in sides]
    return all(right) and sides[0].shape == sides[1].shape


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for one run, and clear what a killed one left half written; a second run is refused.

    The lock goes with the process, however it ends. Where there are no such locks (Windows) nothing is held.
    """
    with _lock_file(folder) as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise FileError(
                    f"another run is writing to {folder.parent}; wait for it or choose another --out."
                ) from None
        for place in (folder, folder.parent):
            clear_waiting(place)
        yield


def _lock_file(folder: Path) -> IO[bytes]:
    """The lock's file, as it is: in a folder that others write to, a link in its place is refused and not followed."""
    try:
        if folder.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        folder.mkdir(parents=True, exist_ok=True)
        return os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666), "rb+")
    except OSError as error:
        raise file_error(folder, "locked", error) from None


def checkpoint(folder: Path, decided_by: Any) -> Checkpoint:
    """The checkpoint of an audit that is decided by this (plain) data."""
    each = decided_by.items() if isinstance(decided_by, Mapping) else ()
    return Checkpoint(folder=folder, digest=_digest(decided_by), decided={what: _digest(value) for what, value in each})


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:24]


class Saver:
    """Keeps counts at most every few seconds; the last ones are kept when an interruption passes through."""

    def __init__(self, place: Checkpoint):
        self._place = place
        self._saved = time.monotonic()
        self._latest: Tally | None = None

    def __call__(self, tally: Tally) -> None:
        """Take note of the counts so far."""
        self._latest = tally
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is known now."""
        if self._latest is not None:
            self._place.keep(self._latest)
            self._saved = time.monotonic()
