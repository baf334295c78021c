"""Interrupted runs resume: counts so far, kept on disk under a digest of everything that decides them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from audit.record.record import AuditRecord, from_json
from audit.trials.source import Tally

SAVE_SECONDS = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Where one audit's progress is kept. Another seed, trial number or parameter gives another file."""

    folder: Path
    digest: str

    @property
    def _counts(self) -> Path:
        return self.folder / f"{self.digest}.counts.json"

    @property
    def _record(self) -> Path:
        return self.folder / f"{self.digest}.record.json"

    def finished(self) -> AuditRecord | None:
        """The record, if this audit was completed before the interruption."""
        return from_json(json.loads(self._record.read_text())) if self._record.exists() else None

    def started(self) -> Tally | None:
        """The counts so far, if this audit was under way."""
        if not self._counts.exists():
            return None
        data = json.loads(self._counts.read_text())
        return Tally(
            without=np.asarray(data["without"], np.int64),
            with_record=np.asarray(data["with_record"], np.int64),
            trials_per_side=data["trials_per_side"],
            state=data["state"],
        )

    def keep(self, tally: Tally) -> None:
        """Save the counts, in one step."""
        data = {
            "without": tally.without.tolist(),
            "with_record": tally.with_record.tolist(),
            "trials_per_side": tally.trials_per_side,
            "state": dict(tally.state),
        }
        self._write(self._counts, json.dumps(data))

    def close(self, record: AuditRecord) -> None:
        """Save the finished record; its counts are complete and never added to."""
        self._write(self._record, json.dumps(record.to_json()))
        self._counts.unlink(missing_ok=True)

    def _write(self, path: Path, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        waiting = path.with_suffix(".part")
        waiting.write_text(text)
        waiting.replace(path)


def checkpoint(folder: Path, decided_by: Any) -> Checkpoint:
    """The checkpoint of an audit that is decided by this (plain) data."""
    digest = hashlib.sha256(json.dumps(decided_by, sort_keys=True, default=str).encode()).hexdigest()[:24]
    return Checkpoint(folder=folder, digest=digest)


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
