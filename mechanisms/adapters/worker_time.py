"""How long a worker may take: only a process of its own can be ended."""

from __future__ import annotations

WORKER_SECONDS = 60.0
"""For the trials that a worker is asked for at once, where nothing else is said."""


def worker_seconds(timeout: float | None, *, workers: int) -> float:
    """The time-out of a step that runs in so many workers; without any there is nothing that could end it."""
    if timeout is not None and not workers:
        raise ValueError(
            f"timeout={timeout:g} ends a worker that is stuck, and workers=0 calls the code in this process, where "
            "nothing can end it: add workers=1, or leave timeout= out."
        )
    return WORKER_SECONDS if timeout is None else timeout
