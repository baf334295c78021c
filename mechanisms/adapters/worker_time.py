"""How long a worker may take: only a process of its own can be ended."""

from __future__ import annotations

WORKER_SECONDS = 60.0
"""For the trials that a worker is asked for at once, where nothing else is said."""


def worker_seconds(timeout: float | None, *, workers: int) -> float:
    """The time-out of a step that runs in so many workers; without any there is nothing that could end it."""
    if timeout is None:
        return WORKER_SECONDS
    if not workers:
        raise ValueError(
            f"timeout={timeout:g} ends a worker that is stuck, and workers=0 calls the code in this process, where "
            "nothing can end it: add workers=1, or leave timeout= out."
        )
    return timeout


def require_workers(timeout: float, *, workers: int) -> None:
    """The same of a step that records describe with its time-out: the usual one may have been left out."""
    worker_seconds(None if timeout == WORKER_SECONDS else timeout, workers=workers)
