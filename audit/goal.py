"""What a test is fixed, run and judged for."""

from __future__ import annotations

import dataclasses

from guarantees.claim import Claim


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goal:
    """The claim to refute, the delta at which epsilon is stated, the planned size and the risk."""

    claim: Claim
    delta: float
    trials_per_side: int
    risk: float
