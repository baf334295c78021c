"""Every policy that a suite can name, one line each, and the one that is taken where none is named."""

from __future__ import annotations

from audit.policies.anytime import Anytime
from audit.policies.chosen import FromTheory, Split
from audit.policies.fixed import Fixed
from audit.policies.policy import Policy
from audit.policies.simultaneous import Simultaneous
from guarantees.trade_off import TradeOff

_ALL: tuple[type[Policy], ...] = (
    Anytime,
    Fixed,
    FromTheory,
    Simultaneous,
    Split,
)
POLICIES: dict[str, type[Policy]] = {policy.kind: policy for policy in _ALL}
"""Policies by their kind, the name that suites and records use."""


def default_policy(curve: TradeOff | None, trials: int) -> Policy:
    """From theory where the distinguisher knows its curve, otherwise on a split of a tenth of the trials or so."""
    if curve is not None:
        return FromTheory()
    return Split(fit_trials=max(1000, 2 * (trials // 20)) if trials < 10**6 else 100_000)
