"""Whether a stated epsilon holds: by each claim, and if the loader shuffles."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from audit.suites.exit_codes import EXIT_EXPECTED, EXIT_INCONCLUSIVE, EXIT_UNEXPECTED
from guarantees.claim import Claim
from guarantees.numerics.rounding import at_least, at_most
from guarantees.summary import EpsilonRange

LEAKS = ("fixed_batch_shuffle", "fixed_batch_event", "adaptive_shuffle", "max_coordinate")
"""Curves that are lower bounds of a leak: they can refute a number and never promise one."""

ROUNDING = 1e-9
"""Share by which a computed epsilon may exceed the number of its own table."""


FORMS = (".4g", ".6g", ".9g", ".12g")
"""Formats with four digits, or as many as it takes to see on which side of the stated number another lies."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """A sentence with its exit code: 0 it holds, 1 it does not or is not promised, 3 not known."""

    says: str
    code: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stated:
    """A stated epsilon: the number of a paper, a model card or a colleague."""

    epsilon: float
    delta: float

    def __str__(self) -> str:
        return f"Stated epsilon {self.epsilon:.12g} at delta {self.delta:g}"

    def promised(self, found: EpsilonRange) -> Answer:
        """What a promise with this epsilon says about the stated one."""
        if self._covers(found):
            most = min(found.at_most, self.epsilon)
            shown = next((text for form in FORMS if float(text := at_most(most, form)) <= self.epsilon), f"{most!r}")
            return Answer(says=f"it holds (epsilon is at most {shown})", code=EXIT_EXPECTED)
        return Answer(says=f"it is not promised (epsilon is {found.says})", code=EXIT_UNEXPECTED)

    def leaked(self, found: EpsilonRange) -> Answer:
        """What a leak of this epsilon says about the stated one."""
        if found.at_least > self.epsilon:
            least = found.at_least
            shown = next((text for form in FORMS if float(text := at_least(least, form)) > self.epsilon), f"{least!r}")
            return Answer(says=f"it does not hold (at least {shown} leaks)", code=EXIT_UNEXPECTED)
        says = f"it is not refuted (at least {at_least(found.at_least, '.4g')} leaks), and not promised either"
        return Answer(says=says, code=EXIT_INCONCLUSIVE)

    def by_each(self, claims: Sequence[Claim]) -> list[Answer]:
        """One sentence per claim."""
        answers = []
        for claim in claims:
            found = claim.epsilon_range(self.delta)
            answer = self.leaked(found) if claim.name in LEAKS else self.promised(found)
            answers.append(Answer(says=f"{self}, judged by {claim.describe()}: {answer.says}.", code=answer.code))
        return answers

    def if_shuffled(self, poisson: EpsilonRange, leak: EpsilonRange, guarantee: EpsilonRange) -> Answer:
        """The answer if the accountant assumes Poisson and the loader shuffles; its code is that of shuffling."""
        if self._covers(guarantee):
            shuffled = self.promised(guarantee)
        elif leak.at_least > self.epsilon:
            shuffled = self.leaked(leak)
        else:
            low, high = at_least(leak.at_least, ".4g"), at_most(guarantee.at_most, ".4g")
            known = f"at least {low} leaks and at most {high} is guaranteed"
            shuffled = Answer(says=f"nobody knows whether it holds ({known})", code=EXIT_INCONCLUSIVE)
        on_poisson = self.promised(poisson).says
        says = f"{self}: on Poisson batches {on_poisson}; on shuffled batches {shuffled.says}."
        return Answer(says=says, code=shuffled.code)

    def _covers(self, found: EpsilonRange) -> bool:
        return found.at_most <= self.epsilon * (1 + ROUNDING)
