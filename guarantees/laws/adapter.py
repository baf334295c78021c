"""The border with somebody else's law: what it leaves out gets the usual answers."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, cast

from guarantees.laws.law import Certificate, LossLaw, SimpleLaw, Tails
from guarantees.numerics.array import Array


class Tabled(Protocol):
    """The least that somebody else's law must have; ``as_law`` makes a whole law of it."""

    @property
    def error(self) -> float:
        """Absolute error of each tail."""
        ...

    def tails(self, threshold: Array) -> Tails:
        """The four tail probabilities at each threshold, which may be infinite."""
        ...

    def threshold(self, alpha: Array) -> Array:
        """A threshold whose supporting line touches the curve at ``alpha``."""
        ...


ASKED = (
    "reversed_threshold",
    "far_delta",
    "reversed_far_delta",
    "support",
    "losses",
    "vertices",
    "smallest_delta",
    "certificate",
    "compose",
    "noise",
    "is_pair",
    "defect",
)
"""What may be asked of a law beyond its tails, thresholds and error."""


@dataclasses.dataclass(frozen=True)
class _Adapted(SimpleLaw):
    """Somebody else's law; what it leaves out has the usual answer."""

    law: Any

    @property
    def error(self) -> float:
        return self.law.error

    def tails(self, threshold: Array) -> Tails:
        return self.law.tails(threshold)

    def threshold(self, alpha: Array) -> Array:
        return self.law.threshold(alpha)

    def reversed_threshold(self, alpha: Array) -> Array:
        own = getattr(self.law, "reversed_threshold", None)
        return super().reversed_threshold(alpha) if own is None else own(alpha)

    def far_delta(self, epsilon: Array) -> Array | None:
        own = getattr(self.law, "far_delta", None)
        return None if own is None else own(epsilon)

    def reversed_far_delta(self, epsilon: Array) -> Array | None:
        own = getattr(self.law, "reversed_far_delta", None)
        return None if own is None else own(epsilon)

    @property
    def support(self) -> tuple[float, float] | None:
        return getattr(self.law, "support", None)

    @property
    def losses(self) -> Array | None:
        return getattr(self.law, "losses", None)

    @property
    def vertices(self) -> Tails | None:
        return getattr(self.law, "vertices", None)

    @property
    def smallest_delta(self) -> float:
        return getattr(self.law, "smallest_delta", 0.0)

    @property
    def certificate(self) -> Certificate | None:
        return getattr(self.law, "certificate", None)

    def compose(self, times: int) -> LossLaw | None:
        own = getattr(self.law, "compose", None)
        return None if own is None else own(times)

    @property
    def noise(self) -> float | None:
        return getattr(self.law, "noise", None)

    @property
    def is_pair(self) -> bool:
        return getattr(self.law, "is_pair", True)

    def defect(self) -> float:
        own = getattr(self.law, "defect", None)
        return 0.0 if own is None else own()


def as_law(given: Tabled) -> LossLaw:
    """A law of which everything may be asked: itself, or with the usual answers where it gives none of its own.

    The one border: below it nothing asks whether a law has an attribute.
    """
    # names only: hasattr would compute what a law computes when asked
    whole = set(ASKED) <= set(dir(given))
    return cast(LossLaw, given) if whole else _Adapted(given)
