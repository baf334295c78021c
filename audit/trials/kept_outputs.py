"""Outputs of judged trials of foreign code: a diagnosis that looks at them waits for no second training."""

from __future__ import annotations

import itertools

import numpy as np

from audit.trials.workers import Batch, Drawer, Use

MOST_TRIALS = 1000
"""Of one side and key, from the first on."""
FEW_ENTRIES = 50_000
"""Coordinates up to which there may be more of them: few numbers a trial show little."""
MOST_ENTRIES = 20_000_000
"""Coordinates that are kept of them, 80 MB."""


def most_looked_at(entries: int) -> int:
    """Trials of a side that diagnoses look at, where each releases so many numbers."""
    entries = max(entries, 1)
    return min(max(MOST_TRIALS, FEW_ENTRIES // entries), MOST_ENTRIES // entries)


class KeptOutputs:
    """Rows by side, key and number of the trial."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, bytes], dict[int, np.ndarray]] = {}

    def keep(self, batch: Batch, rows: np.ndarray) -> None:
        """As many of them as there is room for."""
        own = self._rows.setdefault(_place(batch), {})
        most = most_looked_at(rows[0].size)
        own |= zip(range(batch.start, min(batch.stop, most)), np.array(rows[: max(0, most - batch.start)]), strict=True)

    def draw(self, drawer: Drawer, batches: list[Batch], use: Use) -> None:
        """Draw what is not kept, and hand every row to ``use(first trial, rows)``."""
        lacking: list[Batch] = []
        for batch in batches:
            own = self._rows.get(_place(batch), {})
            for kept, trials in itertools.groupby(range(batch.start, batch.stop), own.__contains__):
                first, *more = trials
                if kept:
                    use(first, np.stack([own[trial] for trial in (first, *more)]))
                else:
                    lacking.append(batch._replace(start=first, stop=first + len(more) + 1))
        drawer.draw(lacking, use)


def _place(batch: Batch) -> tuple[str, bytes]:
    return batch.side, batch.key_data.tobytes()
