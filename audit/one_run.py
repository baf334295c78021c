"""One training with many canaries, each included by its own fair coin: bounds from guessing the coins."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from audit.bounds import guesses as worst
from audit.bounds.clopper_pearson import require_risk
from audit.bounds.inside_out import ChosenGuesses, best_guesses, inside_out, risk_split, sampled_canaries
from audit.bounds.label_scan import correct_guesses
from audit.bounds.ranking import from_highest, tied
from audit.bounds.rounding import at_least
from audit.bounds.stakes import SMALLEST, Side, profile_of, sharp_mu, sharp_tail
from audit.bounds.supporting_lines import tabulate
from audit.power.power import EPSILON_FACTOR, POWER, TV_EXCESS
from audit.verdict.verdict import Verdict
from guarantees.checks import Delta, Share, checked, require
from guarantees.claim import Claim
from guarantees.laws.textbook import GaussianLaw
from guarantees.numerics.distributions import binom
from guarantees.vocabulary import Relation

DELTA = 1e-5
"""At which epsilon is proven where neither ``delta`` nor a claim names one."""
UNFAIR = 1e-9
"""Coins are refused where their number of heads is less likely than this."""
MISSED = 0.5
"""A leak found with less power than this would be missed."""
EPSILON_CLAIMS = ("epsilon_delta", "randomised_response")
NUMBERS = "the numbers of guesses were fixed before looking at these scores and coins"
FLIPS = {
    "add_remove": "adds or removes one canary",
    "zero_out": "replaces one canary by a record that contributes nothing",
    "substitution": "exchanges one canary for another record",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guesses:
    """Coins guessed: 'in' for the highest scores, 'out' for the lowest, and how many were right."""

    guessed_in: int
    guessed_out: int
    right_in: int
    right_out: int
    canaries: int
    risk: float
    """This number's share of the risk, fixed beforehand."""

    @property
    def guessed(self) -> int:
        """All guesses."""
        return self.guessed_in + self.guessed_out

    @property
    def right(self) -> int:
        """All right guesses."""
        return self.right_in + self.right_out

    @property
    def side(self) -> Side:
        """Which guesses there are."""
        return "both" if self.guessed_in and self.guessed_out else "in" if self.guessed_in else "out"

    @property
    def coins(self) -> float:
        """Coins whose leak counts: with guesses for one side only, the half that lands there."""
        return self.canaries if self.side == "both" else self.canaries / 2

    def epsilon(self, delta: float) -> float:
        """Lower bound on epsilon at ``delta`` from these guesses alone, at their share of the risk."""
        return worst.epsilon_from_guesses(self.right, self.guessed, exposed=self.coins * delta, risk=self.risk)

    def p_value(self, right: int, *, epsilon: float, delta: float) -> float:
        """Smallest share of the risk at which so many right guesses refute (epsilon, delta)."""
        return worst.worst_tail(right, self.guessed, epsilon=epsilon, exposed=self.coins * delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRunJudgement:
    """A verdict on a claim from one training."""

    verdict: Verdict
    p_value: float
    judged_by: str
    """``guesses against epsilon and delta`` or ``guesses against the claimed curve``."""
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRun:
    """What the guesses of one training prove, and what the user must vouch for.

    Statements from numbers of guesses fixed beforehand (``guesses``: epsilon at any delta, the refuted mu, the verdict)
    are tails of the same counts at the same shares of the risk; those from numbers that revealed coins chose
    (``chosen``) each have a share and a delta of their own. All hold together with probability at least ``1 - risk``.
    [docs/validity.md, 'One training, many canaries' and 'Inside out']
    """

    guesses: tuple[Guesses, ...]
    """Numbers of guesses fixed beforehand, by the user or by the claim."""
    chosen: tuple[ChosenGuesses, ...]
    """Numbers of guesses that revealed coins chose, one for each declared delta."""
    canaries: int
    included: int
    relation: Relation
    """What flipping one coin does to the training set."""
    risk: float
    seed: int
    """Ordered tied scores, and drew the canaries whose coins were revealed first."""
    tied: int
    """Canaries whose score another one shares."""
    conditions: tuple[str, ...]
    judgement: OneRunJudgement | None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the claim; None where no claim was given."""
        return None if self.judgement is None else self.judgement.verdict

    def epsilon(self, delta: float) -> float:
        """Proven lower bound on epsilon at ``delta``, whatever the scores' laws. Zero shows nothing.

        Raises:
          ValueError: for a delta above every declared one, where revealed coins chose how many to guess.
        """
        require("delta", 0 <= delta < 1, "in [0, 1)", delta)
        # Epsilon falls with delta, so what holds at a declared delta holds at smaller ones.
        known = [each.epsilon(delta) for each in self.guesses] + [
            each.epsilon for each in self.chosen if delta <= each.delta
        ]
        if not known:
            declared = max(each.delta for each in self.chosen)
            raise ValueError(
                f"epsilon was proven at delta {declared:g}, which says nothing at the larger {delta:g}; "
                "give one_run that delta, or numbers of guesses, before you look."
            )
        return max(known)

    @property
    def refuted_mu(self) -> float:
        """The training is not mu-GDP for any mu up to this: no bound on epsilon at other deltas follows from it."""
        best = max((worst.mu_of_epsilon(each.epsilon, each.delta) for each in self.chosen), default=0.0)
        for each in self.guesses:
            best = worst.mu_refuted(each.right, each.guessed, coins=each.coins, risk=each.risk, above=best)
        return best

    @property
    def sharply_refuted_mu(self) -> float:
        """The same by the sharp tail, in seconds: slightly more where numbers of guesses were fixed beforehand."""
        best = self.refuted_mu
        for each in self.guesses:
            best = sharp_mu(each.right, each.guessed, coins=each.coins, risk=each.risk, above=best)
        return best


@checked
def one_run(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    risk: Share,
    delta: Delta | None = None,
    guesses: Sequence[tuple[int, int]] | None = None,
    claim: Claim | None = None,
    relation: Relation = "add_remove",
    seed: int = 0,
) -> OneRun:
    """Bounds from one training in which each canary was included by its own fair coin.

    The highest scores are guessed 'in', the lowest 'out', the rest are not guessed. By default the coins of the middle
    scores, revealed and never guessed, choose how many ('inside out'), and epsilon is proven at ``delta``. A claim that
    is
    a curve chooses for itself, by what a training that just keeps it would show. An (epsilon, delta) claim is judged by
    epsilon, any other by its curve. [steinke2023; mahloujifar2024; docs/validity.md, 'One training, many canaries' and
    'Inside out']

    Does not hold for coins that are not fair and independent, for a fixed number of canaries on each side, or for a
    ``delta``, ``guesses`` or ``seed`` that were tried out on these scores and coins.

    Args:
      scores: one per canary, larger for 'it was in'. They may depend on each other in any way.
      included: whether each canary was included.
      risk: probability that any of the statements is wrong.
      delta: where epsilon is proven; by default the claim's, else 1e-5.
      guesses: pairs (in, out) fixed before the training; they share the risk equally.
      claim: a promise to judge, if there is one.
      relation: what flipping one coin does to the training set.
      seed: orders tied scores and draws the first canaries to reveal.

    Returns:
      What the guesses prove: ``epsilon(delta)``, ``refuted_mu`` and, with a claim, ``verdict``.

    Raises:
      ValueError: scores and coins differ in length, a score is NaN, or an argument is out of range.

    Examples:
      >>> import audit, numpy as np
      >>> rng = np.random.default_rng(0)
      >>> included = rng.random(1000) < 0.5
      >>> found = audit.one_run(rng.normal(size=1000) + 3.0 * included, included, risk=0.05, delta=1e-5)
      >>> found.epsilon(1e-5) > 2.0
      True
    """
    require_risk(risk)
    require("relation", relation in FLIPS, f"one of {tuple(FLIPS)}", relation)
    values, coins = _canaries(scores, included)
    if claim is not None and not claim.covers(relation):
        raise ValueError(
            f"the claim is for {claim.relation} neighbours but flipping a coin is {relation}; "
            "restate the claim or give the relation of the canaries."
        )
    order, shared = from_highest(values, seed=seed), tied(values)
    ordered, deltas = coins[order], _deltas(delta, claim)
    found, chosen, numbers = (), (), NUMBERS
    if guesses is not None:
        found = _count(ordered, _pairs(guesses, len(values)), risk=risk)
    elif claim is not None and not _by_epsilon(claim):
        found = _count(ordered, (guesses_of_claim(claim, len(values), delta=deltas[0], risk=risk),), risk=risk)
        numbers = "the claim, which says how many coins are guessed, was fixed before looking at these scores and coins"
    else:
        each, sampled = risk / len(deltas), sampled_canaries(len(values), seed=seed)[order]
        chosen = tuple(inside_out(values[order], ordered, sampled=sampled, delta=own, risk=each) for own in deltas)
        numbers = (
            f"delta {' and '.join(f'{own:g}' for own in deltas)} was fixed before looking at these scores and coins "
            "(how many coins are guessed was chosen by other coins, which are not guessed)"
        )
    return OneRun(
        guesses=found,
        chosen=chosen,
        canaries=len(values),
        included=int(coins.sum()),
        relation=relation,
        risk=risk,
        seed=seed,
        tied=shared,
        conditions=_conditions(relation, numbers=numbers, seed=_seed_condition(seed, tied=shared, chosen=chosen)),
        judgement=None if claim is None else _judge(found or chosen, claim, delta=deltas[0]),
    )


def guesses_of_claim(claim: Claim, canaries: int, *, delta: float, risk: float) -> tuple[int, int]:
    """The numbers of guesses that would prove most of epsilon at ``delta`` if the training just kept the claim.

    At most what stays three deviations of the coins below half of the canaries.
    """
    tail = np.logspace(-7, np.log10(0.5), 200)
    alpha = np.concatenate([[0.0], tail, 1 - tail[-2::-1], [1.0]])
    beta = tabulate(claim).below(alpha)
    ks = np.arange(1, max(1, int(canaries / 2 - 1.5 * math.sqrt(canaries))) + 1)
    # Of k = m/2 (alpha + 1 - beta) guesses 'in' m/2 (1 - beta) are right, and of k = m/2 (beta + 1 - alpha) 'out' ...
    right_in = np.interp(ks, canaries / 2 * (alpha + 1 - beta), canaries / 2 * (1 - beta))
    right_out = np.interp(ks, canaries / 2 * (beta + 1 - alpha)[::-1], canaries / 2 * (1 - alpha)[::-1])
    exposed = canaries * delta
    k_in, k_out = best_guesses(right_in, right_out, exposed=exposed, risk=risk, split=risk_split(exposed))
    return k_in, min(k_out, canaries - k_in)


def _deltas(delta: float | None, claim: Claim | None) -> tuple[float, ...]:
    """The deltas that statements are about, each of which has a share of the risk."""
    if claim is None or not _by_epsilon(claim):
        return (DELTA if delta is None else delta,)
    promised = float(claim.parameters.get("delta", 0.0))
    return (promised,) if delta is None or delta == promised else (promised, delta)


def _by_epsilon(claim: Claim) -> bool:
    return claim.name in EPSILON_CLAIMS and claim.times == 1


def _pairs(guesses: Sequence[tuple[int, int]], canaries: int) -> tuple[tuple[int, int], ...]:
    pairs = tuple((int(a), int(b)) for a, b in guesses)
    for pair in pairs:
        require("guesses", min(pair) >= 0 and 1 <= sum(pair) <= canaries, f"1..{canaries} in all", pair)
    require("guesses", len(pairs) > 0, "at least one pair", pairs)
    return pairs


def _seed_condition(seed: int, *, tied: int, chosen: tuple[ChosenGuesses, ...]) -> tuple[str, ...]:
    """That the seed was not tried out, where anything depends on it."""
    drew = ["drew the canaries that are revealed first"] if any(each.sampled for each in chosen) else []
    does = " and ".join([*drew, *(["ordered tied scores"] if tied else [])])
    return (f"the seed {seed}, which {does}, was not tried out on these coins",) if does else ()


def _conditions(relation: Relation, *, numbers: str, seed: tuple[str, ...]) -> tuple[str, ...]:
    return (
        "each canary was included by its own fair coin, independent of the other coins and of everything else",
        "the scores were computed from what the training released and from the canaries, never from the coins; "
        "they may depend on each other in any way",
        "one rule made every guess: highest scores 'in', lowest 'out'",
        f"flipping one coin {FLIPS[relation]}: the bounds are about {relation} neighbours",
        numbers,
        *seed,
    )


def _canaries(scores: ArrayLike, included: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Finite scores and their coins, or an error that says what is wrong."""
    values, coins = np.asarray(scores), np.asarray(included)
    require("scores", values.ndim == 1 and len(values) > 0, "a non-empty vector", f"shape {values.shape}")
    require("scores", np.issubdtype(values.dtype, np.number), "an array of numbers", values.dtype)
    values = values.astype(float)
    if not np.isfinite(values).all():
        where = int(np.argmin(np.isfinite(values)))
        raise ValueError(f"scores[{where}] is {values[where]}; a score must be finite. Do not drop the canary.")
    require("included", coins.shape == values.shape, f"of the shape {values.shape}", coins.shape)
    require("included", bool(np.all((coins == 0) | (coins == 1))), "0 or 1", "other values")
    heads = int(coins.sum())
    likely = 2 * binom.cdf(min(heads, len(values) - heads), len(values), 0.5)
    require("included", likely > UNFAIR, "drawn by fair coins", f"{heads} of {len(values)} included")
    return values, coins.astype(bool)


def _count(coins: np.ndarray, pairs: tuple[tuple[int, int], ...], *, risk: float) -> tuple[Guesses, ...]:
    """The right guesses of every pair, which share the risk; coins come from the highest score to the lowest."""
    top = (0, *correct_guesses(coins, range(1, len(coins) + 1)))
    bottom = (0, *correct_guesses(~coins[::-1], range(1, len(coins) + 1)))
    return tuple(
        Guesses(
            guessed_in=k_in,
            guessed_out=k_out,
            right_in=top[k_in],
            right_out=bottom[k_out],
            canaries=len(coins),
            risk=risk / len(pairs),
        )
        for k_in, k_out in pairs
    )


class _Judge:
    """P-values of one claim for any guesses: by epsilon and delta where the claim is that, else by its curve."""

    def __init__(self, claim: Claim):
        self.by_epsilon = _by_epsilon(claim)
        self.claim = claim
        self._inverses: dict[Side, worst.Inverse] = {}

    def p_value(self, each: Guesses | ChosenGuesses, right: int) -> float:
        """Smallest share of the risk at which so many right guesses refute the claim."""
        instant = self.instant(each, right)
        if self.by_epsilon or isinstance(each, ChosenGuesses) or instant <= SMALLEST:
            return instant
        # Both bound the same tail, so the smaller one does.
        profile = profile_of(self.claim.curve, each.side)
        return min(instant, sharp_tail(right, each.guessed, coins=each.coins, profile=profile))

    def instant(self, each: Guesses | ChosenGuesses, right: int) -> float:
        """The same in no time, for a curve not sharp."""
        if self.by_epsilon or isinstance(each, ChosenGuesses):
            epsilon, delta = self.claim.parameters["epsilon"], self.claim.parameters.get("delta", 0.0)
            return each.p_value(right, epsilon=epsilon, delta=delta)
        return worst.curve_p_value(right, each.guessed, coins=each.coins, inverse=self._inverse(each.side))

    def _inverse(self, side: Side) -> worst.Inverse:
        law = self.claim.law
        if isinstance(law, GaussianLaw):
            return worst.gaussian_inverse(law.mu)
        if side not in self._inverses:
            curve = self.claim.curve
            whole = {"in": curve, "out": curve.reverse}
            self._inverses[side] = worst.inverse_of(whole.get(side) or curve.symmetrise())
        return self._inverses[side]


def _judge(found: tuple[Guesses, ...] | tuple[ChosenGuesses, ...], claim: Claim, *, delta: float) -> OneRunJudgement:
    """The verdict; without a violation, whether a leak of the usual size would have been found."""
    judge = _Judge(claim)
    p = min(1.0, len(found) * min(judge.p_value(each, each.right) for each in found))
    how = "guesses against epsilon and delta" if judge.by_epsilon else "guesses against the claimed curve"
    if p <= found[0].risk * len(found):
        reason = "more guesses were right than any training that keeps the claim allows."
        if not judge.by_epsilon:
            reason += " This refutes the claimed curve; it bounds no epsilon."
        return OneRunJudgement(verdict="violation", p_value=p, judged_by=how, reason=reason)
    chance = _leak(claim, delta=delta)
    needed = [_critical(judge, each) for each in found]
    power = max(0.0 if v is None else _power(each, v, chance) for v, each in zip(needed, found, strict=True))
    leak = f"a training that answers each coin by randomised response, right with probability {chance:.6g},"
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
    reason = f"{why}; use more canaries or more trainings."
    return OneRunJudgement(verdict="inconclusive", p_value=p, judged_by=how, reason=reason)


def _power(each: Guesses | ChosenGuesses, needed: int, chance: float) -> float:
    """At least the probability of so many right guesses if each coin is answered rightly with probability ``chance``.

    The answers say 'in' for Bin(m, 1/2) canaries: where these are fewer than the guesses 'in', the missing guesses
    contradict their answers and are counted as wrong; likewise 'out'.
    """
    m = each.canaries
    told_in = np.arange(*binom.ppf([1e-9, 1 - 1e-9], m, 0.5).astype(int))
    lacking = np.maximum(each.guessed_in - told_in, 0) + np.maximum(each.guessed_out - (m - told_in), 0)
    found = binom.sf(needed - 1, each.guessed - lacking, chance)
    return float(np.sum(binom.pmf(told_in, m, 0.5) * found))


def _leak(claim: Claim, *, delta: float) -> float:
    """How often guesses are right under the leak that should be found: advantage 0.1 or half an epsilon more."""
    epsilon = claim.epsilon_range(max(delta, claim.law.smallest_delta)).promised
    return float(min(1.0, max(expit(EPSILON_FACTOR * epsilon), expit(epsilon) + TV_EXCESS / 2)))


def _critical(judge: _Judge, each: Guesses | ChosenGuesses) -> int | None:
    """So many right guesses refute the claim, fewer may for a curve; None if even all right would not."""
    low, high = 0, each.guessed
    if judge.p_value(each, high) > each.risk:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if judge.instant(each, middle) <= each.risk else (middle, high)
    return high
