"""Every policy that a suite can name, and the default."""

from __future__ import annotations

from audit.policies.anytime import Anytime
from audit.policies.chosen import FromTheory, Split
from audit.policies.fixed import Fixed
from audit.policies.policy import Policy
from audit.policies.reused import Reused
from guarantees.trade_off import TradeOff

FEWEST = 20
"""Fewest fit trials of a split."""
_ALL: tuple[type[Policy], ...] = (
    Anytime,
    Fixed,
    FromTheory,
    Split,
)
POLICIES: dict[str, type[Policy]] = {policy.kind: policy for policy in _ALL}
"""Policies by their kind, the name that suites and records use."""
RECORDED: dict[str, type[Policy]] = {**POLICIES, Reused.kind: Reused}
"""Policies that a record may name: these, and the one that only `run --like` makes."""


def default_policy(curve: TradeOff | None, trials: int, *, costly: bool = False) -> Policy:
    """From theory if the distinguisher knows its curve, otherwise a split of about a tenth of the trials.

    Few trials are split less finely: at least 1000 choose the test, unless that is more than a third of those judged;
    then a third, or 100. If trials are ``costly``, as foreign code may be, half of those judged are enough, if that is
    less.
    """
    if curve is not None:
        return FromTheory()
    fewest = max(FEWEST, min(100, trials // 2)) if costly else 100
    least = min(1000, max(fewest, trials // 3))
    return Split(fit_trials=2 * (max(least, min(trials // 10, 100_000)) // 2))
