"""What one training with many canaries can be expected to prove, and what no valid test can exceed."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy.special import ndtri

from audit.bounds import bounds_from_guesses as worst
from audit.bounds.clopper_pearson import require_risk
from audit.bounds.counted_guesses import Guesses
from audit.bounds.number_of_guesses import SAMPLE, best_guesses, risk_split
from audit.one_run.judgement import Judge, by_epsilon, critical, refutable
from audit.one_run.procedure import planned_guesses
from audit.power.less_noise import AT_BEST, in_its_place, in_so_many_runs, sampled
from audit.power.power import POWER as USUAL
from guarantees.checks import Count, Delta, Share, checked, require
from guarantees.claim import Claim
from guarantees.laws.law import LossLaw
from guarantees.numerics.array import Array
from guarantees.numerics.rounding import at_most
from guarantees.numerics.search import halved

CELLS = 20_000
"""Number of cells for the losses of one canary."""
UNLIKELY = 1e-13
"""Losses less likely than this on both sides share a cell."""
LATTICE = 1 << 15
"""Points of the lattice on which losses of all canaries are summed."""
WIDTH = 24.0
"""Fewest standard deviations that the lattice spans."""
CLIPS = 40
FEWEST_CLIPPED, MOST_CLIPPED = 0.05, 20_000.0
"""How many canaries, on average, an adversary clips."""
TINY = 1e-300
ALIKE = 1e-6
"""Spread of the log ratio of answers below which they are indistinguishable."""
NO_VIOLATION = (
    ". This few canaries cannot refute this claim, even if all guesses were right; `one_run` says how many would be "
    "enough"
)
FOUND = f". {in_so_many_runs(USUAL).capitalize()} they find {{}}, if no canary hides another"
LEAST_NOISE = math.log(16)
"""Log of the largest factor by which the noise is reduced in the search."""
POWER = 0.5
"""Power of the tests that the limit is about: they succeed in half of all runs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRunPlan:
    """Expected result for canaries that do not interfere, each of which leaks all that the claim allows."""

    canaries: int
    delta: float
    risk: float
    claimed: float | None
    """Epsilon of the claim; None if its numerical error leaves it unknown."""
    expected: float
    """Epsilon that the default procedure proves if every count is its expectation; about its median."""
    limit: float
    """Epsilon that no valid test without further assumptions proves with probability above one half."""
    refutable: bool = True
    """Whether the claim would be refuted if all guesses were right; otherwise no training can refute it."""
    noise_found: str = ""
    """In words, the too small noise that is found in 8 of 10 runs; "" if there is none."""

    def __str__(self) -> str:
        claimed = "not known" if self.claimed is None else at_most(self.claimed)
        return (
            f"One training with {self.canaries:,} canaries that leak all that is claimed (epsilon {claimed} "
            f"at delta {self.delta:g}): at risk {self.risk:g} expect to prove an epsilon of about {self.expected:.2f}; "
            f"no valid test has a median bound above {at_most(self.limit, '.2f')}"
            f"{'' if self.refutable else NO_VIOLATION}"
            f"{FOUND.format(self.noise_found) if self.noise_found else ''}"
        )


@checked
def plan_one_run(*, claim: Claim, canaries: Count, delta: Delta = 1e-5, risk: Share = 0.05) -> OneRunPlan:
    """What ``audit.one_run`` can prove if canaries leak as much as a claim allows, and what limits every test.

    Args:
      claim: how much one canary leaks at most. The plan supposes that each leaks just this, independently.
      canaries: how many there are, each included by a fair coin of its own; at least 2.
      delta: at which epsilon is to be proven, in [0, 1).
      risk: of a false bound, in (0, 1).

    Returns:
      The expected bound and a limit. Both are computed on lattices and not certified: they advise, they prove nothing.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import audit, guarantees
      >>> claim = guarantees.randomised_response(epsilon=1.0)
      >>> planned = audit.plan_one_run(claim=claim, canaries=50, delta=0.0)
      >>> round(planned.expected, 2)
      0.42
    """
    require_risk(risk)
    require("canaries", canaries >= 2, "at least 2", canaries)
    losses = _losses(claim.curve.law)
    return OneRunPlan(
        canaries=canaries,
        delta=delta,
        risk=risk,
        claimed=claim.epsilon_range(delta).claimed,
        expected=_expected(losses, canaries=canaries, delta=delta, risk=risk),
        limit=_limit(losses, canaries=canaries, delta=delta, risk=risk),
        refutable=_refutable(claim, canaries, delta=delta, risk=risk),
        noise_found=_noise_found(claim, canaries, delta=delta, risk=risk),
    )


def _noise_found(claim: Claim, canaries: int, *, delta: float, risk: float) -> str:
    """Less noise than claimed, with which enough of the guesses that the claim fixes are right to refute it."""
    promised = sampled(claim)
    if promised is None or by_epsilon(claim):
        return ""
    (guesses,) = planned_guesses(claim, canaries, delta=delta, risk=risk)
    needed = guesses.guessed and critical(Judge(claim), guesses)
    if not needed:
        return ""

    def found(log_factor: float) -> bool:
        certain = promised.surely_leaks(promised.noise_multiplier * math.exp(-log_factor))
        right_in, right_out = _right_of(_losses(certain.law), canaries)
        right = np.interp(guesses.guessed_in, *right_in) + np.interp(guesses.guessed_out, *right_out)
        spread = math.sqrt(right * max(0.0, 1 - right / guesses.guessed))
        return float(right) - float(ndtri(USUAL)) * spread >= needed

    if not found(LEAST_NOISE):
        return ""
    log_factor = halved(found, 0.0, LEAST_NOISE, rounds=8)[1]
    return in_its_place(promised.noise_multiplier * math.exp(-log_factor), promised).removesuffix(f". {AT_BEST}")


def _refutable(claim: Claim, canaries: int, *, delta: float, risk: float) -> bool:
    """Whether right guesses could refute the claim: those it fixes, or all that revealed coins may choose."""
    if not by_epsilon(claim):
        (planned,) = planned_guesses(claim, canaries, delta=delta, risk=risk)
        return planned.guessed > 0 and refutable(planned, claim)
    promised = float(claim.parameters.get("delta", 0.0))
    revealed = int(SAMPLE * canaries)
    all_guesses = Guesses(
        guessed_in=canaries - revealed,
        guessed_out=0,
        right_in=0,
        right_out=0,
        canaries=canaries,
        risk=risk if delta == promised else risk / 2,
        at_delta=promised,
        sampled=revealed,
        split=risk_split((canaries - revealed) * promised),
    )
    return refutable(all_guesses, claim)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """Probabilities of cells of the loss of one canary, lowest first."""

    without: Array
    with_record: Array

    @property
    def both(self) -> Array:
        """Probabilities for a fair coin."""
        return (self.without + self.with_record) / 2

    @property
    def right(self) -> Array:
        """Probability that the likelier side is the true one, in each cell."""
        more = np.maximum(self.without, self.with_record)
        return np.divide(more, 2 * self.both, out=np.full(len(more), 0.5), where=self.both > 0)


def _losses(law: LossLaw) -> Losses:
    """Probabilities of the loss of one canary on both sides."""
    ends = np.array([-float(law.reversed_threshold(np.array(UNLIKELY))), float(law.threshold(np.array(UNLIKELY)))])
    low, high = np.clip(ends, -600.0, 600.0)
    edges = np.concatenate([[-np.inf], np.linspace(low, high, CELLS), [np.inf]])
    tails = law.tails(edges)

    def masses(above: Array, below: Array) -> Array:
        # each difference of the smaller tails, to keep its digits
        return np.maximum(np.where(below[:-1] < above[:-1], np.diff(below), -np.diff(above)), 0.0)

    return Losses(
        without=masses(tails.without_above, tails.without_below),
        with_record=masses(tails.with_above, tails.with_below),
    )


def _expected(losses: Losses, *, canaries: int, delta: float, risk: float) -> float:
    """Epsilon that the default procedure proves if every count is its expectation."""
    n = canaries - int(SAMPLE * canaries)
    exposed, split = n * delta, risk_split(n * delta)
    hidden = np.arange(1, max(2, n // 2) + 1)

    right_in, right_out = (np.interp(hidden, *side) for side in _right_of(losses, n))
    k_in, k_out = best_guesses(right_in, right_out, exposed=exposed, risk=risk, split=split)
    found = (right_in[k_in - 1] if k_in else 0.0) + (right_out[k_out - 1] if k_out else 0.0)
    return worst.capped_epsilon(int(found), k_in + k_out, exposed=exposed, risk=risk, split=split)


def _right_of(losses: Losses, canaries: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Expected guesses among the highest scores and how many are right, as two curves; likewise for the lowest."""

    def side(true: Array, both: Array) -> tuple[Array, Array]:
        whole, half = canaries * np.cumsum(both), canaries / 2 * np.cumsum(true)
        return np.concatenate([[0.0], whole]), np.concatenate([[0.0], half])

    return side(losses.with_record[::-1], losses.both[::-1]), side(losses.without, losses.both)


def _limit(losses: Losses, *, canaries: int, delta: float, risk: float) -> float:
    """The least epsilon that some adversary keeps and that a test with power one half cannot refute.

    An adversary answers, with probability rho, like the truth but with odds clipped at ``e^c``, and otherwise at
    random. A test that finds the truth in half of all runs rejects the clipped answers with probability at least beta,
    by Neyman and Pearson; if it is valid, rho beta is at most the risk, and what the adversary with rho = risk / beta
    keeps is not refuted.
    """
    right, both = losses.right, losses.both
    order = np.argsort(-right)
    count = canaries * np.cumsum(both[order])
    limit = math.inf
    for clipped in np.geomspace(FEWEST_CLIPPED, min(MOST_CLIPPED, 0.9 * canaries), CLIPS):
        place = min(int(np.searchsorted(count, clipped)), len(order) - 1)
        clip = float(right[order[place]])
        if not 0.5 < clip < 1:
            continue
        beta = _rejected(right[order[:place]], both[order[:place]], clip, canaries)
        if beta >= risk:
            limit = min(limit, _kept(losses, clip, share=risk / beta, delta=delta))
    return limit


def _rejected(right: Array, both: Array, clip: float, canaries: int) -> float:
    """Probability that clipped answers look at least as telling as the truth's median."""
    steps = np.concatenate([np.log(right / clip), np.log(np.maximum(1 - right, TINY) / (1 - clip))])
    masses = np.concatenate([both * right, both * (1 - right)])
    mean, spread = float(canaries * (masses @ steps)), math.sqrt(canaries * (masses @ steps**2))
    if spread < ALIKE:
        return POWER
    spacing = WIDTH * spread / LATTICE
    place = steps / spacing
    floor = np.floor(place).astype(int)
    one_canary = np.bincount(floor % LATTICE, masses * (1 - (place - floor)), LATTICE)
    one_canary += np.bincount((floor + 1) % LATTICE, masses * (place - floor), LATTICE)
    # the remaining canaries have a log ratio of 0
    law = np.fft.irfft(np.exp(canaries * np.log1p(np.fft.rfft(one_canary) - masses.sum())), LATTICE)
    first = round(mean / spacing) - LATTICE // 2
    truth = np.maximum(np.roll(law, -first), 0.0)
    log_ratio = spacing * (first + np.arange(LATTICE))
    above = np.cumsum(truth[::-1])[::-1] >= POWER
    # the probability under clipped answers follows from that under the truth by the log ratio
    return float(truth[above.sum() - 1 :] @ np.exp(-log_ratio[above.sum() - 1 :]))


def _kept(losses: Losses, clip: float, *, share: float, delta: float) -> float:
    """Epsilon at ``delta`` of an adversary that answers a share of the time, with clipped odds."""
    share = min(1.0, share)
    clipped = np.minimum(losses.right, clip)
    answer = np.where(losses.with_record >= losses.without, 1, -1)

    def leaks(epsilon: float) -> float:
        gain = 2 * losses.both * np.maximum(clipped - math.exp(epsilon) * (1 - clipped), 0.0)
        return share * max(float(gain[answer > 0].sum()), float(gain[answer < 0].sum()))

    return halved(lambda epsilon: leaks(epsilon) <= delta, 0.0, math.log(clip / (1 - clip)), rounds=50)[1]
