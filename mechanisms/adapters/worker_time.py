"""Time-outs of workers: only a separate process can be ended."""

from __future__ import annotations

WORKER_SECONDS = 60.0
"""Default time-out for the trials that a worker draws at once."""


def worker_seconds(timeout: float | None, *, workers: int) -> float:
    """The time-out of a step that runs in workers; without workers nothing could enforce one."""
    if timeout is None:
        return WORKER_SECONDS
    if not workers:
        raise ValueError(
            f"timeout={timeout:g} ends a worker that is stuck, and workers=0 calls the code in this process, where "
            "nothing can end it: add workers=1, or leave timeout= out."
        )
    return timeout


def require_workers(timeout: float, *, workers: int) -> None:
    """The time-out of a step that records describe with it: the usual one may have been left out."""
    worker_seconds(None if timeout == WORKER_SECONDS else timeout, workers=workers)
