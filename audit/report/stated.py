"""Whether an epsilon that somebody states holds: by each claim, and where the loader shuffles."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from guarantees.claim import Claim
from guarantees.summary import EpsilonRange

LEAKS = ("fixed_batch_shuffle", "fixed_batch_event", "adaptive_shuffle", "max_coordinate")
"""Curves of what leaks at least: they refute a number and never promise one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stated:
    """The number of a paper, a model card or a colleague."""

    epsilon: float
    delta: float

    def __str__(self) -> str:
        return f"Stated epsilon {self.epsilon:g} at delta {self.delta:g}"

    def promised(self, found: EpsilonRange) -> str:
        """What a promise with this epsilon says of it."""
        if found.at_most <= self.epsilon:
            return f"it holds (epsilon is at most {found.at_most:.4g})"
        return f"it is not promised (epsilon is {found.says})"

    def leaked(self, found: EpsilonRange) -> str:
        """What a leak of this epsilon says of it."""
        if found.at_least > self.epsilon:
            return f"it does not hold (at least {found.at_least:.4g} leaks)"
        return f"it is not refuted (at least {found.at_least:.4g} leaks), and not promised either"

    def by_each(self, claims: Sequence[Claim]) -> list[str]:
        """One sentence a claim."""
        said = []
        for claim in claims:
            found = claim.epsilon_range(self.delta)
            answer = self.leaked(found) if claim.name in LEAKS else self.promised(found)
            said.append(f"{self}, by {claim.describe()}: {answer}.")
        return said

    def if_shuffled(self, poisson: EpsilonRange, leak: EpsilonRange, guarantee: EpsilonRange) -> str:
        """The answer for an accountant that says Poisson and a loader that shuffles."""
        if guarantee.at_most <= self.epsilon:
            shuffled = self.promised(guarantee)
        elif leak.at_least > self.epsilon:
            shuffled = self.leaked(leak)
        else:
            known = f"at least {leak.at_least:.4g} leaks and at most {guarantee.at_most:.4g} is guaranteed"
            shuffled = f"nobody knows whether it holds ({known})"
        return f"{self}: on Poisson batches {self.promised(poisson)}; on shuffled batches {shuffled}."
