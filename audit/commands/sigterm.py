"""SIGTERM, which a batch system sends before it kills: the run unwinds, saves its counts and prints one line."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

from audit.trials.user_code_errors import Terminated


@contextlib.contextmanager
def ended_in_order() -> Iterator[Callable[[], None]]:
    """Inside the block SIGTERM unwinds as Ctrl-C does; a second one ends the process at once.

    What comes back raises once a signal has come: an exception that a signal raises is lost where Python happens to
    be collecting garbage, so whoever runs for long asks now and then.
    """
    asked = threading.Event()

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        asked.set()
        raise Terminated

    def check() -> None:
        if asked.is_set():
            raise Terminated

    if threading.current_thread() is not threading.main_thread():
        # only the main thread is told of signals
        yield check
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield check
    finally:
        signal.signal(signal.SIGTERM, before)
