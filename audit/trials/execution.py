"""How an audit runs: everything that affects its time and place, but no number of its record."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

from audit.trials.executor import LOCAL, Executor
from audit.trials.fit_trials import ignore_fitting
from audit.trials.source import Tally
from dpsgd_audit.warn_once import warn_once
from guarantees.checks import Count, checked


def ignore_tally(tally: Tally) -> None:
    """Default listener of an audit whose progress nobody follows."""


class TooFewTrialsWarning(UserWarning):
    """So few trials can only end inconclusive unless a violation is found, which is known before the first."""


def forewarn(sentence: str) -> None:
    """Warn, except in a test: where warnings are errors this would fail an audit that may find a violation."""
    if "PYTEST_CURRENT_TEST" not in os.environ:
        # the level of run_audit's caller, past its decorators
        warn_once(sentence, TooFewTrialsWarning, stacklevel=8)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """How ``run_audit`` runs: where trials are drawn, how many at once, until when, and who gets the progress.

    Trial i is a function of the key and of i alone. So nothing here changes the record, except a deadline that cuts
    the audit short: the record then has fewer trials.

    Args:
      executor: who draws the trials, such as ``audit.dask_executor``; by default this process and all its devices.
      chunk: trials per compiled call; by default what fits into memory.
      deadline: a ``time.monotonic()`` value after which no further trials are drawn. It never looks at the data.
      progress: called with the counts after every chunk.
      fitting: called before that, while scores and thresholds are learned, with how many fit trials are drawn and how
        many are planned; maybe from another thread.
      foreseen: called with a sentence before the first trial of foreign code if without a violation so few trials can
        only end inconclusive; by default it warns (``TooFewTrialsWarning``), outside of pytest.
      resume: counts that ``progress`` reported earlier, to continue from with otherwise the same arguments.

    Raises:
      ValueError: an argument has another type, or ``chunk`` is below 1.

    Examples:
      >>> import audit, time
      >>> audit.Execution(deadline=time.monotonic() + 60.0).chunk is None  # one minute, chunks as they fit
      True
    """

    executor: Executor = LOCAL
    chunk: Count | None = None
    deadline: float | None = None
    progress: Callable[[Tally], None] = ignore_tally
    fitting: Callable[[int, int], None] = ignore_fitting
    foreseen: Callable[[str], None] = forewarn
    resume: Tally | None = None


USUAL = Execution()
"""The default: in this process, in chunks that fit, without a deadline."""
