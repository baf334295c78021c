"""Parts of records whose trials no code of ours drew: the guesses of one training, or scores that somebody gave."""

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
    """Assumptions that the user vouches for."""

    def epsilon(self, delta: float) -> float:
        """Proven lower bound on epsilon at ``delta``; 0 also at a delta that was not declared."""
        return max((guesses.epsilon(delta) for guesses in self.guesses if guesses.speak_of(delta)), default=0.0)

    def delta(self, epsilon: float) -> float:
        """Proven lower bound on delta at ``epsilon``."""
        return max(guesses.delta(epsilon) for guesses in self.guesses)

    @property
    def mu(self) -> float:
        """Proven lower bound on mu."""
        best = 0.0
        for guesses in self.guesses:
            best = guesses.mu(above=best)
        return best

    def most(self, delta: float) -> float:
        """Largest epsilon at ``delta`` that these guesses could prove: if all of them were right."""
        right = [
            dataclasses.replace(each, right_in=each.guessed_in, right_out=each.guessed_out) for each in self.guesses
        ]
        return dataclasses.replace(self, guesses=tuple(right)).epsilon(delta)

    def told(self, delta: float) -> str:
        """The counts in words, with the epsilon that they prove at ``delta``."""
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
    """Scores or outputs that somebody gave, each from an independent run."""

    seed: int | None
    """Seed that set scores aside to choose thresholds, or outputs to learn from; None if thresholds were given."""
    target: Statement | None
    """Statement that has the whole risk; None if several share it."""
    learned_from: tuple[int, int] | None
    """Number of outputs of each side that a score was learned from; None if scores were given."""
    conditions: tuple[str, ...]
    """Assumptions that the user vouches for."""

    @property
    def what(self) -> str:
        """What was given."""
        return "scores" if self.learned_from is None else "outputs"
