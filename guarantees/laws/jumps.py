"""Rare large losses composed apart from the many small ones, so that each gets a lattice of its own.

One step is made of two independent outputs: the jump, which is the loss if it lies beyond a cut and 'none' otherwise,
and the body, a loss given that it lies within, which is dropped where there was a jump. So bodies and jumps together
leak at least what the steps do. Conversely, whoever sees a step and, where there was a jump, fills in a body drawn
without the record has both outputs, but for a total variation of ``P_with(jump)`` times that of the body: together they
leak more by at most that.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from guarantees.answers import hands_on
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.hockey_stick import hockey_stick
from guarantees.laws.lattice import Reach
from guarantees.laws.law import LossLaw, Reversed, Tails
from guarantees.laws.profile import HalfProfile, law_from_halves
from guarantees.numerics.array import Array

MANY = 1000
"""Below this many losses, jumps are not split off."""
SPENT = 1e-11
"""Most that splitting off jumps may add to any delta, over all losses."""
CUTS = 80


@hands_on("law", "error", "work")
@dataclasses.dataclass(frozen=True, eq=False)
class BodyLaw(LossLaw):
    """A loss, given that it lies above ``-cut`` and not above ``cut``."""

    law: LossLaw
    cut: float

    @functools.cached_property
    def outside(self) -> Tails:
        """Mass beyond the cuts: ``below`` is at or below ``-cut``, ``above`` is above ``cut``."""
        ends = self.law.tails(np.array([-self.cut, self.cut]))
        return Tails(
            without_above=ends.without_above[1],
            without_below=ends.without_below[0],
            with_above=ends.with_above[1],
            with_below=ends.with_below[0],
        )

    @functools.cached_property
    def jump_rates(self) -> tuple[float, float]:
        """Probability of a jump without and with the record."""
        out = self.outside
        return float(out.without_above + out.without_below), float(out.with_above + out.with_below)

    @functools.cached_property
    def shift(self) -> float:
        """Loss of the event 'no jump'; the body's losses are smaller than the law's by this."""
        return float(np.log1p(-self.jump_rates[1]) - np.log1p(-self.jump_rates[0]))

    @functools.cached_property
    def variation(self) -> float:
        """Total variation between the bodies of the two sides."""
        return float(hockey_stick(self, np.zeros(1))[0])

    @property
    def support(self) -> tuple[float, float]:
        """The law's range of losses, limited to the cuts."""
        low, high = self.law.support or (-np.inf, np.inf)
        return max(low, -self.cut) - self.shift, min(high, self.cut) - self.shift

    def tails(self, threshold: Array) -> Tails:
        """The law's tails within the cuts, as a share of the mass there."""
        within = np.clip(np.asarray(threshold, float) + self.shift, -self.cut, self.cut)
        found, out = self.law.tails(within), self.outside
        without, with_record = (1 - rate for rate in self.jump_rates)
        return Tails(
            without_above=np.maximum(found.without_above - out.without_above, 0.0) / without,
            without_below=np.maximum(found.without_below - out.without_below, 0.0) / without,
            with_above=np.maximum(found.with_above - out.with_above, 0.0) / with_record,
            with_below=np.maximum(found.with_below - out.with_below, 0.0) / with_record,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class JumpLaw(LossLaw):
    """A loss if it lies beyond the cuts of a body; otherwise only the fact that it does not."""

    body: BodyLaw

    @property
    def error(self) -> float:
        """No error of its own: an error of the law's tails beyond the cuts counts with the body."""
        return 0.0

    @property
    def work(self) -> int:
        """Work of the original law."""
        return self.body.law.work

    def tails(self, threshold: Array) -> Tails:
        """Tails of the original law at the next loss beyond the cuts."""
        t, cut = np.asarray(threshold, float), self.body.cut
        return self.body.law.tails(np.where(t >= self.body.shift, np.maximum(t, cut), np.minimum(t, -cut)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundedJumps:
    """Jumps rounded to a lattice without the record, ``offset`` apart from it so that both sides sum to 1."""

    first: int
    log_masses: Array
    offset: float
    moved: float
    """Total variation by which one output of jump and body may leak less than the pair on the lattice."""


def rounded(law: JumpLaw, span: Reach, spacing: float) -> RoundedJumps:
    """Every jump at the nearest lattice point; masses with the record follow from those without it.

    A lattice that leaks less through every single loss would have no room for the loss of 'no jump', which is far
    smaller than its spacing: here the error is one total variation, for all losses together.
    """
    body, cut = law.body, law.body.cut
    above = np.arange(int(np.rint(cut / spacing)), max(int(np.ceil(span.upper / spacing)), int(cut / spacing)) + 2)
    below = np.arange(int(np.rint(cut / spacing)), max(int(np.ceil(span.lower / spacing)), int(cut / spacing)) + 2)
    up, down = (np.append(np.maximum(cut, spacing * (at[1:] - 0.5)), np.inf) for at in (above, below))
    tails_up = body.law.tails(np.append(cut, up[:-1]))
    tails_down = body.law.tails(np.append(-cut, -down[:-1]))
    p_up, q_up = (-np.diff(np.append(side, 0.0)) for side in (tails_up.without_above, tails_up.with_above))
    p_down, q_down = (-np.diff(np.append(side, 0.0)) for side in (tails_down.without_below, tails_down.with_below))
    first, size = -int(below[-1]), int(below[-1] + above[-1]) + 1
    masses, with_record = np.zeros(size), np.zeros(size)
    for at, p, q in ((above - first, p_up, q_up), (-below - first, p_down, q_down)):
        np.add.at(masses, at, p)
        np.add.at(with_record, at, q)
    losses = spacing * (first + np.arange(size))
    offset = -float(np.log1p(np.sum(np.expm1(losses) * masses)))
    moved = float(np.sum(np.abs(with_record - np.exp(losses + offset) * masses)))
    masses[-first] += 1 - body.jump_rates[0]
    with np.errstate(divide="ignore"):
        log_masses = np.log(masses)
    return RoundedJumps(
        first=first, log_masses=log_masses, offset=offset, moved=moved + body.jump_rates[1] * body.variation
    )


def body_of(law: LossLaw, times: int) -> BodyLaw | None:
    """The law between the nearest cuts at which splitting off jumps costs at most ``SPENT``; None if there are none."""
    whole = law.certificate is None and law.losses is None and law.is_pair
    if times < MANY or not whole or isinstance(law, BodyLaw | JumpLaw):
        return None
    cuts = np.geomspace(1e-6, 16.0, CUTS)
    tails = law.tails(np.concatenate([cuts, -cuts]))
    rate = tails.with_above[:CUTS] + tails.with_below[CUTS:]
    variation = float(hockey_stick(law, np.zeros(1))[0])
    rare = (times * rate * variation <= SPENT) & (rate < 0.1)
    return BodyLaw(law, float(cuts[np.argmax(rare)])) if rare.any() else None


def lowered(law: DiscreteLaw, by: float) -> DiscreteLaw:
    """A law whose ``sup_S Q(S) - x P(S)`` is smaller by at least this at every x, where it is not 0 (or 1 - x)."""

    def half(one: LossLaw, losses: Array, steep: float) -> HalfProfile:
        eps = np.append(0.0, losses[(losses > 0) & np.isfinite(losses)])
        with np.errstate(over="ignore"):
            delta = hockey_stick(one, eps) - by * np.exp(steep * eps)
        # the chord down to nothing lies below the one that would end at a positive value
        last = max(int(np.argmax(delta < 0)) - 1, 0) if (delta < 0).any() else len(delta) - 1
        return HalfProfile(epsilon=eps[: last + 1], delta=np.append(delta[:last], 0.0))

    upper, lower = half(law, law.losses, 0.0), half(Reversed(law), -law.losses[::-1], 1.0)
    start = min(upper.delta[0], lower.delta[0])
    return law_from_halves(upper.starting_at(start), lower.starting_at(start))
