"""Counted guesses of coins, and what this many right ones prove, however their number was chosen."""

from __future__ import annotations

import dataclasses

from audit.bounds import bounds_from_guesses as worst
from audit.bounds.implied import mu_of
from audit.bounds.sharp_guesses import Side
from guarantees.numerics.search import halved

ROUNDING = 1e-9
"""Relative error allowed in a tail while a delta is searched: more than its special functions err."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guesses:
    """Coins guessed: 'in' for the highest scores, 'out' for the lowest, and how many were right.

    Numbers of guesses that were fixed beforehand prove an epsilon at any delta. Numbers chosen by revealed coins do at
    one delta, declared beforehand, because tail and stake are capped apart: whatever was chosen, refuting takes
    ``F <= split * risk`` and ``B F / (v b) <= (1 - split) * risk``. [docs/one-run-validity.md]
    """

    guessed_in: int
    guessed_out: int
    right_in: int
    right_out: int
    canaries: int
    risk: float
    """These guesses' share of the risk, fixed beforehand."""
    at_delta: float | None = None
    """The declared delta of numbers that revealed coins chose; None: fixed beforehand, for any delta."""
    revealed: int = 0
    """Coins that chose the numbers of guesses; ``sampled`` of them at random, before any other was looked at."""
    sampled: int = 0
    split: float = 1.0
    """Share of the risk for chance; the rest pays for what delta exposes. It depends on canaries times delta alone."""

    @property
    def guessed(self) -> int:
        """Number of guesses on both sides."""
        return self.guessed_in + self.guessed_out

    @property
    def right(self) -> int:
        """Number of right guesses on both sides."""
        return self.right_in + self.right_out

    def __str__(self) -> str:
        """The counts in words."""
        return (
            f"{self.right:,} of {self.guessed:,} guesses were right ({self.guessed_in:,} guessed in, "
            f"{self.guessed_out:,} out)"
        )

    @property
    def side(self) -> Side:
        """The sides on which coins are guessed."""
        return "both" if self.guessed_in and self.guessed_out else "in" if self.guessed_in else "out"

    @property
    def coins(self) -> float:
        """Coins whose leak counts: all that might have been guessed, or the half that lands on the one side guessed."""
        if self.at_delta is not None:
            return self.canaries - self.sampled
        return self.canaries if self.side == "both" else self.canaries / 2

    def speak_of(self, delta: float) -> bool:
        """Whether these guesses can prove an epsilon at this delta; one proven at a delta holds at smaller ones."""
        return self.at_delta is None or delta <= self.at_delta

    def epsilon(self, delta: float) -> float:
        """Lower bound on epsilon at ``delta`` from these guesses alone, at their share of the risk."""
        if self.at_delta is None:
            return worst.epsilon_from_guesses(self.right, self.guessed, exposed=self.coins * delta, risk=self.risk)
        if delta > self.at_delta:
            return 0.0
        exposed = self.coins * self.at_delta
        return worst.capped_epsilon(self.right, self.guessed, exposed=exposed, risk=self.risk, split=self.split)

    def delta(self, epsilon: float) -> float:
        """Lower bound on delta at ``epsilon`` from these guesses alone, at their share of the risk."""

        def kept(delta: float) -> bool:
            return self.p_value(self.right, epsilon=epsilon, delta=delta) * (1 + ROUNDING) > self.risk

        if self.at_delta is not None:
            return 0.0 if kept(self.at_delta) else self.at_delta
        return 0.0 if kept(0.0) else halved(kept, 0.0, 1.0, rounds=60)[0]

    def mu(self, above: float = 0.0) -> float:
        """Largest mu such that these guesses refute mu-GDP, if it exceeds ``above``; else ``above``."""
        if self.at_delta is not None:
            epsilon = self.epsilon(self.at_delta)
            return max(above, mu_of(epsilon, self.at_delta)) if epsilon > 0 else above
        return worst.mu_refuted(self.right, self.guessed, coins=self.coins, risk=self.risk, above=above)

    def p_value(self, right: int, *, epsilon: float, delta: float) -> float:
        """Smallest share of the risk at which this many right guesses refute (epsilon, delta)."""
        if self.at_delta is None:
            return worst.worst_tail(right, self.guessed, epsilon=epsilon, exposed=self.coins * delta)
        # A training that keeps a smaller delta keeps the declared one; of a larger one nothing is known.
        if delta > self.at_delta:
            return 1.0
        exposed = self.coins * self.at_delta
        return worst.capped_tail(right, self.guessed, epsilon=epsilon, exposed=exposed, split=self.split)
