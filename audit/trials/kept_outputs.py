"""Outputs of judged trials of foreign code: a diagnosis that looks at them waits for no second training."""

from __future__ import annotations

import itertools

import numpy as np

from audit.trials.workers import Batch, Drawer, Use

MOST_TRIALS = 1000
"""Of one side and key, from the first on: as many as diagnoses look at."""
MOST_ENTRIES = 20_000_000
"""Coordinates that are kept of them, 80 MB."""


class KeptOutputs:
    """Rows by side, key and number of the trial."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, bytes], dict[int, np.ndarray]] = {}

    def keep(self, batch: Batch, rows: np.ndarray) -> None:
        """As many of them as there is room for."""
        own = self._rows.setdefault(_place(batch), {})
        most = min(MOST_TRIALS, MOST_ENTRIES // max(rows[0].size, 1))
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
