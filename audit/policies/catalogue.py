"""Every policy that a suite can name, one line each, and the one that is taken where none is named."""

from __future__ import annotations

from audit.policies.anytime import Anytime
from audit.policies.chosen import FromTheory, Split
from audit.policies.fixed import Fixed
from audit.policies.policy import Policy
from audit.policies.reused import Reused
from guarantees.trade_off import TradeOff

FEWEST = 20
"""Fit trials of a split, however few are judged."""
_ALL: tuple[type[Policy], ...] = (
    Anytime,
    Fixed,
    FromTheory,
    Split,
)
POLICIES: dict[str, type[Policy]] = {policy.kind: policy for policy in _ALL}
"""Policies by their kind, the name that suites and records use."""
RECORDED: dict[str, type[Policy]] = {**POLICIES, Reused.kind: Reused}
"""The same and the one that only `run --like` makes."""


def default_policy(curve: TradeOff | None, trials: int, *, costly: bool = False) -> Policy:
    """From theory where the distinguisher knows its curve, otherwise on a split of a tenth of the trials or so.

    Few trials are split less finely: at least 1000 of them choose the test, but a third of what is judged, or 100.
    Where trials are ``costly``, as those of foreign code may be, half of what is judged does if that is less than 100.
    """
    if curve is not None:
        return FromTheory()
    fewest = max(FEWEST, min(100, trials // 2)) if costly else 100
    least = min(1000, max(fewest, trials // 3))
    return Split(fit_trials=2 * (max(least, min(trials // 10, 100_000)) // 2))
