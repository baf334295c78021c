"""Keep outputs of judged trials of foreign code, so that a diagnosis need not wait for a second training."""

from __future__ import annotations

import itertools

import numpy as np

from audit.trials.workers import Batch, Drawer, Use

MOST_TRIALS = 1000
"""Trials kept of one side and key, from the first on."""
FEW_ENTRIES = 50_000
"""Most coordinates of more trials than that: short outputs show little each."""
MOST_ENTRIES = 20_000_000
"""Most coordinates that are kept, 80 MB."""


def most_looked_at(entries: int) -> int:
    """Number of trials of a side that diagnoses use, for outputs of this many coordinates."""
    entries = max(entries, 1)
    return min(max(MOST_TRIALS, FEW_ENTRIES // entries), MOST_ENTRIES // entries)


class KeptOutputs:
    """Rows by side, key and trial number."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, bytes], dict[int, np.ndarray]] = {}

    def keep(self, batch: Batch, rows: np.ndarray) -> None:
        """Keep rows of a batch, as many as there is room for."""
        kept = self._rows.setdefault(_side_and_key(batch), {})
        most = most_looked_at(rows[0].size)
        kept |= zip(
            range(batch.start, min(batch.stop, most)), np.array(rows[: max(0, most - batch.start)]), strict=True
        )

    def draw(self, drawer: Drawer, batches: list[Batch], use: Use) -> None:
        """Hand every row to ``use(first trial, rows)``, drawing those that are not kept."""
        missing: list[Batch] = []
        for batch in batches:
            rows = self._rows.get(_side_and_key(batch), {})
            for is_kept, trials in itertools.groupby(range(batch.start, batch.stop), rows.__contains__):
                first, *more = trials
                if is_kept:
                    use(first, np.stack([rows[trial] for trial in (first, *more)]))
                else:
                    missing.append(batch._replace(start=first, stop=first + len(more) + 1))
        drawer.draw(missing, use)


def _side_and_key(batch: Batch) -> tuple[str, bytes]:
    """What the rows of a batch are kept under."""
    return batch.side, batch.key_data.tobytes()
