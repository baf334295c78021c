"""What one training with many canaries proves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from audit.bounds.counted_guesses import Guesses
from audit.verdict.verdict import Verdict
from audit.verdict.violated import ViolatedAt, by_number
from guarantees.checks import require
from guarantees.claim import Claim
from guarantees.numerics.rounding import at_least
from guarantees.vocabulary import Relation


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRunJudgement:
    """A verdict on a claim from one training."""

    verdict: Verdict
    p_value: float
    judged_by: str
    """``guesses against epsilon and delta`` or ``guesses against the claimed curve``."""
    reason: str


def weights_of(known: Mapping[str, str]) -> int | None:
    """How many canaries can be guessed, as each is one weight; None if it is not known."""
    weights = known.get("weights", "").replace(",", "")
    return int(weights) if weights.isdecimal() and int(weights) else None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class OneRun:
    """What the guesses of one training prove, and what the user must vouch for.

    It answers as a record does: ``epsilon(delta)``, ``delta(epsilon)`` and ``mu`` are proven lower bounds. Statements
    from numbers of guesses fixed beforehand, and the verdict, are tails of the same counts at the same shares of the
    risk; those from numbers that revealed coins chose each have a share and a delta of their own. All hold together
    with probability at least ``1 - risk``. [docs/one-run-validity.md, 'A fixed number of guesses' and 'Inside out']
    """

    guesses: tuple[Guesses, ...]
    """Numbers of guesses fixed by the user or by the claim, or chosen by revealed coins for each delta."""
    canaries: int
    included: int
    relation: Relation
    """What flipping one coin does to the training set."""
    risk: float
    seed: int
    """Seed that ordered tied scores, and drew the canaries whose coins were revealed first."""
    tied: int
    """Number of canaries that share their score with another."""
    conditions: tuple[str, ...]
    judgement: OneRunJudgement | None
    claim: Claim | None = None
    """The judged claim."""
    report_delta: float = 0.0
    """Delta at which reports state epsilon: the claim's, or the declared one."""
    known: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What is known of the training beside its canaries; stored in the environment of records."""
    name: str = "one training"
    """Name in records and reports."""

    def __repr__(self) -> str:
        """The answer in one line, as sessions show it."""
        judged = "" if self.judgement is None else f" {self.judgement.verdict};"
        epsilon = at_least(self.epsilon(self.report_delta))
        return (
            f"<OneRun {self.name!r}:{judged} proven epsilon >= {epsilon} at delta {self.report_delta:g}, mu >= "
            f"{at_least(self.mu)}; {self.canaries:,} canaries, risk {self.risk:g}>"
        )

    @property
    def reason(self) -> str | None:
        """The reason of the verdict; None if no claim was given."""
        return None if self.judgement is None else self.judgement.reason

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the claim; None if no claim was given."""
        return None if self.judgement is None else self.judgement.verdict

    @property
    def violated_at(self) -> ViolatedAt | None:
        """The proven epsilon at ``report_delta`` beside the claimed one, as a record says it.

        None where the claim is not violated, or only elsewhere on its curve: ``reason`` tells that, too.
        """
        if self.claim is None or self.verdict != "violation":
            return None
        proven, claimed = self.epsilon(self.report_delta), float(self.claim.epsilon(self.report_delta))
        return by_number("epsilon", self.report_delta, at_least=proven, claimed=claimed) if proven > claimed else None

    def epsilon(self, delta: float) -> float:
        """Proven lower bound on epsilon at ``delta``, whatever the scores' laws. Zero shows nothing.

        Raises:
          ValueError: for a delta above every declared one, where revealed coins chose how many to guess.
        """
        require("delta", 0 <= delta < 1, "in [0, 1)", delta)
        known = [each.epsilon(delta) for each in self.guesses if each.speak_of(delta)]
        if not known:
            declared = max(each.at_delta or 0.0 for each in self.guesses)
            raise ValueError(
                f"epsilon was proven at delta {declared:g}, which says nothing at the larger {delta:g}; "
                "pass that delta, or numbers of guesses, to one_run before you look at the coins."
            )
        return max(known)

    def delta(self, epsilon: float) -> float:
        """Proven lower bound on delta at ``epsilon``. Zero shows nothing.

        Where revealed coins chose how many to guess it is a declared delta or zero.
        """
        require("epsilon", epsilon >= 0, "at least 0", epsilon)
        return max(each.delta(epsilon) for each in self.guesses)

    @property
    def mu(self) -> float:
        """Proven lower bound on mu: no mu-GDP with a smaller mu holds. It bounds no epsilon at other deltas."""
        best = 0.0
        for each in self.guesses:
            best = each.mu(above=best)
        return best
