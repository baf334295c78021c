"""A proven guarantee for shuffled fixed-size batches: the best of all bounds known to us."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from guarantees.answers import answers, hands_on
from guarantees.checks import AboveZero, Count, checked
from guarantees.claim import Claim
from guarantees.laws.composition import composed_law
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.large_losses import LARGE
from guarantees.laws.law import Certificate, LossLaw, Tails, exchanged
from guarantees.laws.profile import law_from_profile
from guarantees.numerics.array import Array
from guarantees.shuffling.shuffle_bound import FAINT, ShuffleBound, shuffle_bound
from guarantees.shuffling.stop_loss import Kind
from guarantees.trade_off import TradeOff

ROUND_OFF = 1e-12
"""Relative error of the few additions after the bounded ones, and of ndtr (far more than was seen)."""
NEXT_TO_ZERO = 1e-3
"""Epsilons up to this are also bounded by the total variation."""
TABLE_POINTS = 30
TABLE_END = 1e-9
WIDEST, TABLE_HALVINGS = 256.0, 7
"""The table's last epsilon is looked for within this factor of the fixed order's, on a scale of logarithms."""
PROVED = (
    "delta from above, at every epsilon, for any data, batch size and adaptive queries; lattice, truncation, "
    "wrap-around and the transform's rounding included. Nothing is proved from below: the truth may leak less"
)


@answers(is_pair=False)
@hands_on("table", "vertices")
@dataclasses.dataclass(frozen=True, eq=False)
class UpperLaw(LossLaw):
    """A promise known by its profile in both directions: each threshold gives one line below the curve.

    At a threshold t >= 0 the line is ``1 - delta(t) - e^t a``, at t < 0 it is ``e^t (1 - delta'(-t) - a)`` with the
    other direction's delta': all mass of the pair that it belongs to is at infinite loss or at 0. Levels are answered
    from a table of epsilons, each line of which is proved.
    """

    bound: ShuffleBound
    error: float = ROUND_OFF

    @property
    def certificate(self) -> Certificate:
        """A one-sided certificate: every line is a proven promise, and no leak is claimed."""
        return _one_sided(self)

    def delta(self, epsilon: float, kind: Kind) -> float:
        """The smallest bound at one epsilon >= 0, never above the total variation, which has no direction.

        The total variation takes seconds: where the bound is faint already it is not asked, nor in its own direction
        but next to 0, where the search for the best bound may end a little above it.
        """
        found = self.bound.delta(kind, epsilon)
        if (kind == "with_given_without" and epsilon > NEXT_TO_ZERO) or found <= FAINT:
            return found
        return min(found, self.bound.delta("with_given_without", 0.0))

    def tails(self, threshold: Array) -> Tails:
        """Tails whose line is the one of this threshold, as the class says."""
        t = np.asarray(threshold, float)
        upper = t >= 0

        def value(at: float) -> float:
            kind: Kind = "with_given_without" if at >= 0 else "without_given_with"
            return self.delta(abs(at), kind) if np.isfinite(at) else 0.0

        delta = np.array([value(float(v)) for v in t.ravel()]).reshape(t.shape)
        return Tails(
            without_above=np.where(upper, 0.0, 1 - delta),
            without_below=np.where(upper, 1.0, delta),
            with_above=np.where(upper, delta, 1.0),
            with_below=np.where(upper, 1 - delta, 0.0),
        )

    def far_delta(self, epsilon: Array) -> Array:
        """The smallest bound, as at any epsilon."""
        return self.tails(epsilon).with_above

    def reversed_far_delta(self, epsilon: Array) -> Array:
        """The smallest bound in the other direction."""
        return self.tails(-epsilon).without_below

    @cached_property
    def table(self) -> DiscreteLaw:
        """The curve that the deltas at some epsilons prove, down to a delta of 1e-9."""
        bound, mu = self.bound, 1 / self.bound.noise_multiplier
        high = (6.5 + 0.5 * mu) * mu
        low = high / WIDEST
        for _ in range(TABLE_HALVINGS):
            middle = float(np.sqrt(low * high))
            # the direction that leaks more
            low, high = (middle, high) if bound.delta("with_given_without", middle) > TABLE_END else (low, middle)
        grid = np.concatenate([[0.0], np.geomspace(high / 60, high, TABLE_POINTS)])
        deltas = [[bound.delta(kind, float(e)) for e in grid] for kind in ("with_given_without", "without_given_with")]
        found = law_from_profile(grid, deltas[0], deltas[1], error=ROUND_OFF)
        return dataclasses.replace(found, certificate=_one_sided(found))

    @property
    def tabled(self) -> LossLaw:
        """The table of the curve."""
        return self.table

    def threshold(self, alpha: Array) -> Array:
        """The highest line at each level among those at the table's losses; any line would be valid."""
        losses = self.table.losses
        return losses[_highest(alpha, losses, self.tails(losses))]

    def reversed_threshold(self, alpha: Array) -> Array:
        """The highest line at each level for the exchanged pair."""
        losses = -self.table.losses
        return losses[_highest(alpha, losses, exchanged(self.tails(-losses)))]

    def compose(self, times: int) -> LossLaw:
        """Composition of independently shuffled epochs: the table's pair leaks all that the promise allows."""
        return self if times == 1 else composed_law([(self.table, times)])


def _highest(alpha: Array, losses: Array, tails: Tails) -> Array:
    """Which line ``with_below + e^loss (without_above - a)`` is highest: their maximum is always convex.

    The table's own curve is higher still where neighbours lower its value at 0; no line has that value.
    """
    level = np.asarray(alpha, float)[..., None]
    finite = np.isfinite(losses)
    # beyond the clip a line falls at once; at a loss of minus infinity it is the axis, at plus infinity there is none
    slopes = np.exp(np.clip(losses, -LARGE, LARGE))
    lines = np.where(finite, tails.with_below + slopes * (tails.without_above - level), np.where(losses < 0, 0.0, -1.0))
    return np.argmax(lines, axis=-1)


def _one_sided(law: LossLaw) -> Certificate:
    return Certificate(proved=PROVED, estimated="floating point of closed forms", round_off=ROUND_OFF, safe=law)


@checked
def fixed_batch_upper(*, rounds: Count, noise_multiplier: AboveZero) -> Claim:
    """A guarantee for one shuffled epoch of fixed-size batches, any batch size, adaptive queries. (ours)

    The smallest, at each epsilon and in each direction, of three proven bounds: displacement, fine clones and the
    deterministic order's [chua2024, theorem 4.1]; the proofs are in docs/shuffling-upper-bound.md. Their free numbers
    are searched. One-sided: between it and ``adaptive_shuffle`` the truth is unknown, and nothing is said about what
    leaks. Gains next to nothing below a noise multiplier of .8. Once per (rounds, noise multiplier), an epsilon takes
    up to 5 s and a summary up to 10 s at noise multipliers .7 to 5 and 1,000 to 10,000 rounds.

    Args:
      rounds: batches in one epoch, at least 1.
      noise_multiplier: standard deviation of the noise over the clipping norm, above 0.

    Returns:
      The claim, for one epoch and zero_out neighbours.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees
      >>> round(guarantees.fixed_batch_upper(rounds=10, noise_multiplier=2.0).delta(1.0), 4)
      0.003
      >>> round(guarantees.deterministic_batches(noise_multiplier=2.0).delta(1.0), 4)  # without shuffling
      0.0068
    """
    return Claim(
        curve=TradeOff(UpperLaw(shuffle_bound(int(rounds), float(noise_multiplier)))),
        name="fixed_batch_upper",
        parameters={"rounds": rounds, "noise_multiplier": noise_multiplier},
        relation="zero_out",
        unit="epoch",
        steps=int(rounds),
        observation="all batch sums of one shuffled epoch with noise, queries adaptive: a guarantee",
        source="docs/shuffling-upper-bound.md; chua2024, theorem 4.1; feldman2021",
    )
