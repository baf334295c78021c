"""Judge a claim by the guesses of one training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from scipy.special import expit, logit

from audit.bounds import bounds_from_guesses as worst
from audit.bounds.counted_guesses import Guesses
from audit.bounds.number_of_guesses import risk_split
from audit.bounds.sharp_guesses import SMALLEST, Side, profile_of, sharp_tail
from audit.one_run.result import OneRunJudgement
from audit.power.power import EPSILON_FACTOR, OF_THE_ROOM, POWER, TV_EXCESS
from guarantees.claim import Claim
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.numerics.distributions import binom
from guarantees.numerics.rounding import at_least, at_most
from guarantees.numerics.search import first, halved

MOST_CANARIES = 1_000_000
"""Most canaries that are considered when it is said how many would be enough."""
MOST_PARTS = 20
"""Numbers of guesses that are tried where the model has no room for more canaries."""
NOT_ENOUGH = "would not be enough"
"""In a reason: no number of canaries, or of guesses that the model has room for, shows the leak in one training."""
Planned = Callable[[int], tuple[Guesses, ...]]
"""Guesses about a number of canaries, if the procedure fixes them beforehand; right ones are not counted."""
MISSED = 0.5
"""Power below which a leak would be missed."""
EPSILON_CLAIMS = ("epsilon_delta", "randomised_response")


def by_epsilon(claim: Claim) -> bool:
    """Whether a claim is an epsilon and a delta, which guesses refute directly; others are judged by their curve."""
    return claim.name in EPSILON_CLAIMS and claim.times == 1


class Judge:
    """P-values of one claim for any guesses: by epsilon and delta if that is the claim, otherwise by its curve."""

    def __init__(self, claim: Claim):
        self.by_epsilon = by_epsilon(claim)
        self.claim = claim
        self._inverses: dict[Side, worst.Inverse] = {}

    def p_value(self, each: Guesses, right: int) -> float:
        """Smallest share of the risk at which so many right guesses refute the claim."""
        instant = self.instant(each, right)
        if self.by_epsilon or instant <= SMALLEST:
            return instant
        # both are bounds on the same tail, so that the smaller one is valid
        profile = profile_of(self.claim.curve, each.side)
        return min(instant, sharp_tail(right, each.guessed, coins=each.coins, profile=profile))

    def instant(self, each: Guesses, right: int) -> float:
        """A p-value that is computed instantly; for a curve it is not sharp."""
        if self.by_epsilon:
            epsilon, delta = self.claim.parameters["epsilon"], self.claim.parameters.get("delta", 0.0)
            return each.p_value(right, epsilon=epsilon, delta=delta)
        return worst.curve_p_value(right, each.guessed, coins=each.coins, inverse=self._inverse(each.side))

    def refutes(self, each: Guesses, right: int) -> bool:
        """Whether so many right guesses refute the claim at their share, by the instant p-value, in one pass."""
        if self.by_epsilon:
            return self.instant(each, right) <= each.risk
        inverse = self._inverse(each.side)
        return worst.curve_refuted(right, each.guessed, coins=each.coins, inverse=inverse, risk=each.risk)

    def _inverse(self, side: Side) -> worst.Inverse:
        law = self.claim.law
        if isinstance(law, GaussianLaw):
            return worst.gaussian_inverse(law.mu)
        if side not in self._inverses:
            curve = self.claim.curve
            whole = {"in": curve, "out": curve.reverse}
            self._inverses[side] = worst.inverse_of(whole.get(side) or curve.symmetrise())
        return self._inverses[side]


def judge(
    guesses: tuple[Guesses, ...],
    claim: Claim,
    *,
    delta: float,
    planned: Planned | None = None,
    weights: int | None = None,
) -> OneRunJudgement:
    """Judge a claim; without a violation, say whether a leak of moderate size would have been found, or what it
    takes, also where each guessed canary needs one of so many ``weights``."""
    judge_of_claim = Judge(claim)
    p = min(1.0, len(guesses) * min(judge_of_claim.p_value(each, each.right) for each in guesses))
    how = "guesses against epsilon and delta" if judge_of_claim.by_epsilon else "guesses against the claimed curve"
    if p <= guesses[0].risk * len(guesses):
        reason = "more guesses were right than any training that keeps the claim allows."
        if not judge_of_claim.by_epsilon:
            reason += (
                " This refutes the claimed curve as a whole; the proven epsilon is a statement about one delta, and "
                "it may be below the claimed one."
            )
        return OneRunJudgement(verdict="violation", p_value=p, judged_by=how, reason=reason)
    chance = _leak(claim, delta=delta)
    needed = [critical(judge_of_claim, each) for each in guesses]
    power = max(0.0 if v is None else _power(each, v, chance) for v, each in zip(needed, guesses, strict=True))
    claimed = claim.epsilon_range(max(delta, claim.law.smallest_delta)).promised
    # as many digits as tell it from 1
    digits = max(4, 1 - math.floor(math.log10(1 - chance))) if chance < 1 else 4
    leak = f"a training that lets each guess be right with probability {chance:.{digits}g}"
    if chance < 1:
        leak += f" (randomised response with epsilon {logit(chance):.3g}, where {at_most(claimed)} is claimed)"
    # never rounded up: .996 is not 1
    sure = f"would have been found with power {at_least(power, '.2g')}"
    if power >= POWER:
        reason = f"{leak} {sure}."
        return OneRunJudgement(verdict="no_violation_found", p_value=p, judged_by=how, reason=reason)
    if not any(needed):
        why = "even if all guesses were right the claim could not be refuted"
    elif power < MISSED:
        why = f"{leak} would be missed more often than found (power {at_least(power, '.2g')})"
    else:
        why = f"{leak} {sure} only"
    more = _enough(judge_of_claim, guesses, chance, planned)
    room = "" if weights is None or NOT_ENOUGH in more else _room(judge_of_claim, guesses, chance, weights, planned)
    reason = f"{why}; {more}.{room}"
    return OneRunJudgement(verdict="inconclusive", p_value=p, judged_by=how, reason=reason)


def _enough(asked: Judge, found: tuple[Guesses, ...], chance: float, planned: Planned | None) -> str:
    """Say how many canaries, or guesses, would show the leak with the usual power."""

    def in_proportion(canaries: int) -> tuple[Guesses, ...]:
        return tuple(_scaled(each, canaries / each.canaries) for each in found)

    chosen = _fewest(asked, found, chance, planned) if planned else None
    canaries = _fewest(asked, found, chance, in_proportion)
    if chosen is not None and (canaries is None or chosen <= canaries):
        return f"about {chosen:,} canaries would be enough"
    if canaries is None:
        return f"even {MOST_CANARIES:,} canaries {NOT_ENOUGH}: use more trainings"
    best = max(found, key=lambda each: each.guessed)
    if planned is None and any(each.at_delta is not None for each in found):
        guesses = _two_digits(canaries * best.guessed / best.canaries)
        return (
            f"about {guesses:,} guesses would be enough, where these scores allow {best.guessed:,} of "
            f"{best.canaries:,} canaries: use more canaries, ones that leak more, or more trainings"
        )
    enough = f"about {canaries:,} canaries would be enough, with the same part of them guessed"
    if planned is None:
        return enough
    more = _scaled(best, canaries / best.canaries)
    enough += f": guesses=[({more.guessed_in}, {more.guessed_out})], fixed before the training"
    return enough if chosen is None else f"{enough}; about {chosen:,}, where the claim says how many are guessed"


def _room(asked: Judge, found: tuple[Guesses, ...], chance: float, weights: int, planned: Planned | None) -> str:
    """Say what would show the leak in a model of so few weights, if the number of canaries that was named is larger."""
    has = f" Each guessed canary needs a weight of its own, and the model has {weights:,}"
    if any(each.at_delta is not None for each in found):
        return f"{has}."
    full = [*(_scaled(each, weights / each.canaries) for each in found), *(planned(weights) if planned else ())]
    if any(each.guessed and _shows(asked, each, chance) for each in full):
        return ""
    best = max(found, key=lambda each: each.guessed)
    # more cannot be guessed without guesses that contradict the leak's own answers
    most = (weights - 3 * math.sqrt(weights)) / max(1, best.guessed)
    for part in np.geomspace(1, most, MOST_PARTS) if most > 1 else ():
        sides = {name: math.ceil(part * getattr(best, name)) for name in ("guessed_in", "guessed_out")}
        if _shows(asked, dataclasses.replace(best, **sides, right_in=0, right_out=0, canaries=weights), chance):
            guessed = f"guesses=[({sides['guessed_in']}, {sides['guessed_out']})]"
            return f"{has}: of {weights:,} canaries guess more, {guessed}, fixed before the training."
    return f"{has}: as many guesses as there are weights {NOT_ENOUGH}. Use a larger model, or more trainings."


def _fewest(asked: Judge, found: tuple[Guesses, ...], chance: float, of: Planned) -> int | None:
    """The fewest canaries whose guesses show the leak with the usual power, to two digits."""

    def shown(log_canaries: float) -> bool:
        return any(each.guessed and _shows(asked, each, chance) for each in of(round(math.exp(log_canaries))))

    least, most = math.log(found[0].canaries), math.log(MOST_CANARIES)
    if least >= most or not shown(most):
        return None
    return _two_digits(math.exp(halved(shown, least, most, within=0.01)[1]))


def refutable(each: Guesses, claim: Claim) -> bool:
    """Whether the claim would be refuted if all of these guesses were right."""
    return Judge(claim).refutes(each, each.guessed)


def _two_digits(number: float) -> int:
    """A number rounded up to two digits."""
    unit = 10 ** max(0, len(str(math.ceil(number))) - 2)
    return math.ceil(number / unit) * unit


def _scaled(each: Guesses, factor: float) -> Guesses:
    """Guesses about more canaries, of which the same share is guessed."""
    sizes = ("guessed_in", "guessed_out", "canaries", "revealed", "sampled")
    more = dataclasses.replace(each, **{name: round(factor * getattr(each, name)) for name in sizes})
    return more if each.at_delta is None else dataclasses.replace(more, split=risk_split(more.coins * each.at_delta))


def _shows(asked: Judge, each: Guesses, chance: float) -> bool:
    """Whether as many right guesses as the leak gives with the usual power refute the claim."""
    right = first(lambda right: _power(each, right, chance) < POWER, 0, each.guessed + 1) - 1
    return right > 0 and asked.refutes(each, right)


def _power(each: Guesses, needed: int, chance: float) -> float:
    """Lower bound on the probability of so many right guesses if each coin is answered rightly with this ``chance``.

    The answers say 'in' for Bin(m, 1/2) canaries: if these are fewer than the guesses 'in', the missing guesses
    contradict their answers and count as wrong; likewise for 'out'.
    """
    m = each.canaries
    answered_in = np.arange(*binom.ppf([1e-9, 1 - 1e-9], m, 0.5).astype(int))
    missing = np.maximum(each.guessed_in - answered_in, 0) + np.maximum(each.guessed_out - (m - answered_in), 0)
    found = binom.sf(needed - 1, each.guessed - missing, chance)
    return float(np.sum(binom.pmf(answered_in, m, 0.5) * found))


def _leak(claim: Claim, *, delta: float) -> float:
    """Probability of a right guess under the leak that should be found.

    1.5 times the claimed epsilon, or an advantage 0.1 above the claim's that leaves half of its wrong guesses.
    """
    epsilon = claim.epsilon_range(max(delta, claim.law.smallest_delta)).promised
    more = min(TV_EXCESS / 2, OF_THE_ROOM * float(expit(-epsilon)))
    return float(max(expit(EPSILON_FACTOR * epsilon), expit(epsilon) + more))


def critical(asked: Judge, each: Guesses) -> int | None:
    """Number of right guesses that refutes the claim (a curve may need fewer); None if even all would not."""
    if asked.p_value(each, each.guessed) > each.risk:
        return None
    return first(lambda right: asked.instant(each, right) <= each.risk, 0, each.guessed)
