"""What a record keeps of trials that no code of ours drew: one training's guesses, or scores that somebody gave."""

from __future__ import annotations

import dataclasses

from audit.bounds.counted_guesses import Guesses
from audit.risk import Statement
from guarantees.numerics.rounding import at_least, at_most


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRunPart:
    """The guesses of one training with many canaries, each in it by its own fair coin."""

    guesses: tuple[Guesses, ...]
    canaries: int
    included: int
    seed: int
    tied: int
    conditions: tuple[str, ...]
    """What the user vouches for."""

    def epsilon(self, delta: float) -> float:
        """Proven lower bound on epsilon at ``delta``; 0 also at a delta that was not declared."""
        return max((each.epsilon(delta) for each in self.guesses if each.speak_of(delta)), default=0.0)

    def delta(self, epsilon: float) -> float:
        """Proven lower bound on delta at ``epsilon``."""
        return max(each.delta(epsilon) for each in self.guesses)

    @property
    def mu(self) -> float:
        """Proven lower bound on mu."""
        best = 0.0
        for each in self.guesses:
            best = each.mu(above=best)
        return best

    def most(self, delta: float) -> float:
        """What the guesses would prove of epsilon at ``delta`` if all of them were right."""
        right = [dataclasses.replace(own, right_in=own.guessed_in, right_out=own.guessed_out) for own in self.guesses]
        return dataclasses.replace(self, guesses=tuple(right)).epsilon(delta)

    def told(self, delta: float) -> str:
        """The counts in words, and what they prove of epsilon at ``delta``."""
        proven, most = at_least(self.epsilon(delta)), at_most(self.most(delta))
        they_prove = f"They prove epsilon {proven} at delta {delta:g}"
        return f"{self.counted}. {they_prove}; all right would have proven at most {most}"

    @property
    def counted(self) -> str:
        """The canaries and the guesses about them in words."""
        counts = "; ".join(map(str, self.guesses))
        return f"one training with {self.canaries:,} canaries, {self.included:,} of them in; {counts}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoresPart:
    """Scores or outputs that somebody gave, each from a run of its own."""

    seed: int | None
    """What set scores aside to choose thresholds, or drew the outputs that learn; None where thresholds were given."""
    target: Statement | None
    """The statement that has the whole risk; None where several share it."""
    learned_from: tuple[int, int] | None
    """Of how many outputs of each side a score was learned; None where scores were given."""
    conditions: tuple[str, ...]
    """What the user vouches for."""

    @property
    def what(self) -> str:
        """What was given."""
        return "scores" if self.learned_from is None else "outputs"
