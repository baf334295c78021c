"""Whether the best threshold against a known leak refutes a claim with enough power."""

from __future__ import annotations

import numpy as np

from audit.power.joint_power import jointly_refuting
from audit.power.power import POWER, TestKind
from guarantees.claim import Claim
from guarantees.numerics.array import Array
from guarantees.trade_off import TradeOff

LEVELS = np.concatenate([tail := np.logspace(-7, np.log10(0.5), 60), 1 - tail[-2::-1]])
"""False-alarm rates among which the leaky mechanism's best test is looked for."""
COARSE = 8
"""Of these one in so many is asked first."""


def is_found(
    test: TestKind,
    claim: Claim | TradeOff,
    missed: Array,
    *,
    trials_per_side: int,
    risk: float,
    enough: float = POWER,
) -> bool:
    """Whether some level's power is ``enough``, given the miss rates at ``LEVELS``.

    Power rises and falls once, so around the best of a few levels more are looked at.
    """
    power = test(claim, trials_per_side=trials_per_side, risk=risk)
    if test is jointly_refuting:
        # which asks for all levels at once
        return bool(np.max(power(LEVELS, missed)) >= enough)
    few = np.arange(0, len(LEVELS), COARSE)
    powers = power(LEVELS[few], missed[few])
    best = few[np.argmax(powers)]
    near = np.arange(max(best - COARSE + 1, 0), min(best + COARSE, len(LEVELS)))
    return bool(np.max(powers) >= enough or np.max(power(LEVELS[near], missed[near])) >= enough)
