"""How an audit runs: what decides its time and its place, and no number of its record."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable

from audit.trials.executor import LOCAL, Executor
from audit.trials.fit_trials import unfollowed
from audit.trials.source import Tally
from guarantees.checks import Count, checked


def unheard(tally: Tally) -> None:
    """For an audit whose progress nobody follows."""


class TooFewTrialsWarning(UserWarning):
    """Without a violation an audit of so few trials ends inconclusive, which is known before the first of them."""


def forewarn(sentence: str) -> None:
    """A warning, though not in a test: where warnings are errors it would fail an audit that may find a violation."""
    if "PYTEST_CURRENT_TEST" not in os.environ:
        # up to who called run_audit, past its decorators
        warnings.warn(sentence, TooFewTrialsWarning, stacklevel=8)


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
    progress: Callable[[Tally], None] = unheard
    fitting: Callable[[int, int], None] = unfollowed
    foreseen: Callable[[str], None] = forewarn
    resume: Tally | None = None


USUAL = Execution()
"""Here, in chunks that fit, without an end."""
