"""Laws made of other laws: one of several drawn and revealed, and one made to hold in both directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from guarantees.answers import hands_on
from guarantees.laws.hockey_stick import hockey_stick
from guarantees.laws.law import Certificate, LossLaw, Reversed, Tails, carried, estimate, exchanged, four
from guarantees.numerics.array import Array

ROUNDING = 64 * np.finfo(float).eps
"""How much two leaks may differ and count as equal, in units of the tails whose difference they are."""


@dataclasses.dataclass(frozen=True)
class MixtureLaw(LossLaw):
    """One of several pairs, drawn with known weights and revealed: the tails are averaged.

    The curve lies on or below that of the same mixture with the choice hidden. [wang2026, theorem 3.6]
    """

    laws: tuple[LossLaw, ...]
    weights: tuple[float, ...]

    @property
    def error(self) -> float:
        """Average error of the parts."""
        return float(sum(w * law.error for law, w in zip(self.laws, self.weights, strict=True)))

    @property
    def support(self) -> tuple[float, float] | None:
        """Smallest and largest loss of all parts; None unless every part states its own."""
        ranges = [law.support for law in self.laws]
        known = [r for r in ranges if r is not None]
        if len(known) < len(ranges):
            return None
        return min(r[0] for r in known), max(r[1] for r in known)

    @property
    def smallest_delta(self) -> float:
        """The largest of the parts' limits: the mixture is trusted no further than any part."""
        return max(law.smallest_delta for law in self.laws)

    @property
    def certificate(self) -> Certificate | None:
        """What is proved about the mixture: a side is proved if every part proves it."""
        return jointly(self.laws, lambda laws: MixtureLaw(laws=tuple(laws), weights=self.weights), self.error)

    @property
    def is_pair(self) -> bool:
        """Whether every part's tails are those of one pair."""
        return all(law.is_pair for law in self.laws)

    def defect(self) -> float:
        """Average defect of the parts."""
        return float(sum(w * law.defect() for law, w in zip(self.laws, self.weights, strict=True)))

    def tails(self, threshold: Array) -> Tails:
        """Weighted sums of the parts' tails."""
        parts = (law.tails(threshold) for law in self.laws)
        return four(lambda *rates: np.tensordot(self.weights, np.stack(rates), 1), *parts)

    def far_delta(self, epsilon: Array) -> Array:
        """Average delta of the parts: the choice is revealed."""
        return np.tensordot(self.weights, np.stack([hockey_stick(law, epsilon) for law in self.laws]), 1)

    def reversed_far_delta(self, epsilon: Array) -> Array:
        """Average delta of the parts for the exchanged pair."""
        return np.tensordot(self.weights, np.stack([hockey_stick(Reversed(law), epsilon) for law in self.laws]), 1)

    @property
    def closed(self) -> bool:
        """Whether every part has a closed form."""
        return all(law.closed for law in self.laws)


@hands_on("law", "error", "smallest_delta", "is_pair", "defect", "closed")
@dataclasses.dataclass(frozen=True)
class SymmetrisedLaw(LossLaw):
    """The best symmetric curve below a curve and its inverse: the convex hull of their minimum.

    Its privacy profile is the larger of the two directions, so its tails are those of whichever direction
    leaks more at the threshold. [dong2022, theorem 4.2]
    """

    law: LossLaw

    @property
    def support(self) -> tuple[float, float] | None:
        """The larger of the two directions' ranges, mirrored."""
        support = self.law.support
        if support is None:
            return None
        reach = max(-support[0], support[1])
        return -reach, reach

    @property
    def certificate(self) -> Certificate | None:
        """The proven sides, symmetrised: that keeps the order of curves."""
        return carried(self.law.certificate, SymmetrisedLaw)

    def _upper(self, threshold: Array) -> Tails:
        """Tails at thresholds >= 0."""
        first, second = self.law.tails(threshold), Reversed(self.law).tails(threshold)
        leak1 = hockey_stick(self.law, threshold, first)
        leak2 = hockey_stick(Reversed(self.law), threshold, second)
        # Both leak the same at threshold 0; above it the flatter one leaks more, next to 0 by less than rounding.
        alike = np.abs(leak1 - leak2) <= ROUNDING * (first.with_above + second.with_above)
        take = np.where(alike, first.without_above <= second.without_above, leak1 > leak2)
        return four(lambda one, other: np.where(take, one, other), first, second)

    def tails(self, threshold: Array) -> Tails:
        """Tails of the leakier direction above zero, and their mirror image below."""
        t = np.asarray(threshold, float)
        up = self._upper(np.abs(t))
        return four(lambda below, above: np.where(t < 0, below, above), exchanged(up), up)

    def reversed_threshold(self, alpha: Array) -> Array:
        """The threshold of the exchanged pair: the same, as the curve is symmetric."""
        return self.threshold(alpha)

    def far_delta(self, epsilon: Array) -> Array:
        """The larger delta of the two directions."""
        return np.maximum(hockey_stick(self.law, epsilon), hockey_stick(Reversed(self.law), epsilon))

    def reversed_far_delta(self, epsilon: Array) -> Array:
        """Delta of the exchanged pair: the same, as the curve is symmetric."""
        return self.far_delta(epsilon)


def sides(law: LossLaw) -> tuple[LossLaw | None, LossLaw | None]:
    """Laws whose curves are proved to lie on or below, and on or above, the truth; a closed form is both."""
    certificate = law.certificate
    return (law, law) if certificate is None else (certificate.safe, certificate.leaked)


def jointly(laws: Sequence[LossLaw], build: Callable[[Sequence[LossLaw]], LossLaw], error: float) -> Certificate | None:
    """The certificate of a law built of several by an operation that keeps the order of curves."""
    stated = [law.certificate for law in laws]
    known = [certificate for certificate in stated if certificate is not None]
    if not known:
        return None
    safe, leaked = ([law for law in side if law is not None] for side in zip(*map(sides, laws), strict=True))
    proved = list(dict.fromkeys(c.proved for c in known if c.safe is not None or c.leaked is not None))
    whole = len(safe) == len(laws), len(leaked) == len(laws)
    if not any(whole):
        return estimate("; ".join(dict.fromkeys(c.estimated for c in known)), error)
    return Certificate(
        proved="; ".join(proved),
        estimated="; ".join(dict.fromkeys(c.estimated for c in known)),
        round_off=max(c.round_off for c in known),
        safe=build(safe) if whole[0] else None,
        leaked=build(leaked) if whole[1] else None,
    )
