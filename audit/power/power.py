"""What a fixed number of trials can and cannot show: power of the Clopper-Pearson rectangle."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri, rel_entr

from audit.bounds.clopper_pearson import clopper_pearson_upper
from audit.bounds.supporting_lines import one_pair, tabulate
from audit.goal import Goal
from guarantees.claim import Claim
from guarantees.laws.gaussian_and_laplace import GaussianLaw, gaussian_delta
from guarantees.laws.kept import kept
from guarantees.numerics.distributions import binom
from guarantees.numerics.search import crossing
from guarantees.trade_off import TradeOff

MOST_TRIALS = 2**30
"""Most trials per side that are considered feasible."""
TV_EXCESS = 0.1
"""Advantage above the claim that counts as moderate."""
EPSILON_FACTOR = 1.5
"""Factor on the claimed epsilon that counts as moderate."""
OF_THE_ROOM = 0.5
"""Largest share of the misses that the claim leaves which an advantage of moderate size may take."""
GROUPS = 400
"""Number of groups of false-alarm counts in a sum."""
POWER = 0.8
"""Power at which a leak counts as found."""
ONE_BY_ONE = (2,) * 14
TOGETHER = (16, 32, 32)
"""Numbers of parts into which successive search steps divide the range, to a ten-thousandth in all; ONE_BY_ONE tests
one value a step."""
THIRDS = 20
"""Number of times that a third of a range is cut off, which leaves a three-thousandth."""
TINY = 1e-300
BENDS = 256


Power = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Power of tests as a function of their false-alarm and miss rates."""


class TestKind(Protocol):
    """A kind of test: power as a function of error rates, given a claim, a number of trials and a risk."""

    __name__: str

    def __call__(self, claim: Claim | TradeOff, *, trials_per_side: int, risk: float) -> Power:
        """Probability that a test with these error rates refutes the claim."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Detectable:
    """The smallest leaks that a test of this size would have found with power 0.8.

    ``tv_excess``: advantage above what the claim allows, at whichever error rates; ``epsilon``: that of a Gaussian
    mechanism, at the audit's delta. None: no leak of that kind can be found at this size. ``conclusive``: a moderate
    leak is among those found (``Moderate``).
    """

    tv_excess: float | None
    epsilon: float | None
    conclusive: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moderate:
    """The largest leaks of moderate size: an audit that would miss them too has nothing to say.

    A Gaussian mechanism (``epsilon``) with 1.5 times the claimed epsilon, or with an advantage 0.1 above that of the
    Gaussian mechanism that has the claimed epsilon. An advantage above what the claim itself allows (``tv_excess``)
    counts only for claims that no Gaussian mechanism keeps, pure epsilons, and where nothing is claimed at the audit's
    delta: the advantage that (3, 1e-5) allows, 0.905, is a Gaussian mechanism's with epsilon 19.
    """

    tv_excess: float | None
    epsilon: float | None


def moderate(claim: Claim, *, delta: float) -> Moderate:
    """Leaks of moderate size, which an audit of this claim must be able to find."""
    claimed = claim.epsilon_range(delta).promised
    pure = claim.law.smallest_delta == 0 and np.isfinite(claim.epsilon_range(0.0).promised)
    if pure or not np.isfinite(claimed):
        excess = float(min(TV_EXCESS, OF_THE_ROOM * left_errors(claim)[1]))
        return Moderate(tv_excess=excess, epsilon=EPSILON_FACTOR * claimed if np.isfinite(claimed) else None)
    return Moderate(tv_excess=None, epsilon=max(EPSILON_FACTOR * claimed, _more_advantage(claimed, delta)))


def _more_advantage(epsilon: float, delta: float) -> float:
    """Epsilon of the Gaussian mechanism with 0.1 more advantage than the one with this epsilon; 0 if there is none."""
    (noise,) = noise_at(np.array([epsilon]), delta)
    advantage = 1 - 2 * ndtr(-0.5 / noise) + TV_EXCESS
    return float(TradeOff(GaussianLaw(mu=2 * ndtri((1 + advantage) / 2))).epsilon(delta)) if advantage < 1 else 0.0


def noise_at(epsilon: np.ndarray, delta: float) -> np.ndarray:
    """Noise multipliers 1 / mu of the Gaussian mechanisms with these epsilons at a delta."""
    return _noise_at(tuple(epsilon.tolist()), delta)


@functools.lru_cache(maxsize=256)
def _noise_at(epsilons: tuple[float, ...], delta: float) -> np.ndarray:
    """Cached noise multipliers: a search for a number of trials needs the same ones at each number."""
    epsilon = np.array(epsilons, float)

    # the tails themselves, not Claims, in 1 / mu, which they fall with
    def excess(noise: np.ndarray, own: np.ndarray) -> np.ndarray:
        return gaussian_delta(own, 1 / noise) - delta

    found = crossing(excess, np.full(epsilon.shape, 1e-3), np.full(epsilon.shape, 1e6), epsilon)
    found.flags.writeable = False
    return found


def refutation_power(claim: Claim | TradeOff, *, alpha: float, beta: float, trials_per_side: int, risk: float) -> float:
    """Probability that a test with these error rates refutes the claim.

    The rectangle refutes iff misses <= M(false alarms), so that it is one sum of a pmf times a cdf.
    """
    n = trials_per_side
    low, high = binom.ppf([1e-9, 1 - 1e-9], n, alpha).astype(int)
    # Beyond a few hundred counts neighbouring ones are alike: group them instead of summing a million terms.
    edges = np.unique(np.linspace(low, high + 1, GROUPS + 1).astype(int))
    mass = np.diff(binom.cdf(edges - 1, n, alpha))
    false_alarms = edges[1:] - 1
    alpha_upper = clopper_pearson_upper(false_alarms, n, risk=risk / 2)
    # the table, not the claim: this is asked for hundreds of error rates
    room = tabulate(claim).below(np.clip(alpha_upper, 0, 1))
    allowed = np.where(room > 0, binom.ppf(risk / 2, n, room) - 1, -1)
    return float(np.sum(mass * binom.cdf(allowed, n, beta)))


def left_errors(claim: Claim) -> tuple[float, float]:
    """False alarms and misses of the best attack that the claim allows: its advantage is 1 less both."""
    alpha, beta = (float(np.squeeze(rate)) for rate in one_pair(claim.curve).errors(0.0))
    return alpha, beta


def advantage_alternatives(claim: Claim) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """A function from advantages above the claim to the error rates with that advantage that are hardest to detect.

    There the farthest line of the claim is fewest deviations of the counts away. That number is quasiconvex along the
    rates of one advantage (a linear gap over a concave deviation, largest over the lines): thirds are cut off. At a
    corner of the claim both rates fall; fewer misses alone would show e to the epsilon times as much.
    """
    lines, left = tabulate(claim), sum(left_errors(claim))
    slope, which, times = np.unique(lines.slope, return_index=True, return_counts=True)
    # all straight parts of the claim, and enough of the lines along its bends
    some = (times > 1) | (np.arange(len(slope)) % -(-len(slope) // BENDS) == 0)
    slope, height = slope[some], (lines.y + lines.slope * lines.x)[which[some]]

    def seen(alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        a, b = alpha[:, None], beta[:, None]
        gap, variance = height - slope * a - b, slope**2 * (a * (1 - a)) + b * (1 - b)
        return np.max(np.maximum(gap, 0) / np.sqrt(np.maximum(variance, TINY)), axis=1)

    def alternatives(excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total = np.maximum(left - excess, 0.0)
        low, high = np.zeros(total.shape), total
        for _ in range(THIRDS):
            first, second = low + (high - low) / 3, high - (high - low) / 3
            rising = seen(first, total - first) <= seen(second, total - second)
            low, high = np.where(rising, low, first), np.where(rising, second, high)
        alpha = (low + high) / 2
        return alpha, total - alpha

    return alternatives


def gaussian_alternatives(goal: Goal) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """A function from epsilons to the most telling points of the Gaussian mechanisms with them at the goal's delta."""
    alpha = np.concatenate([tail := np.logspace(-6, np.log10(0.5), 40), 1 - tail[-2::-1]])
    level, rate = ndtri(alpha), refutation_rates(alpha, goal)

    def alternatives(epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        beta = ndtr(-level - 1 / noise_at(epsilon, goal.delta)[:, None])
        best = np.array([int(np.argmax(rate(own))) for own in beta], int)
        return alpha[best], beta[np.arange(len(best)), best]

    return alternatives


def refutation_rate(alpha: np.ndarray, beta: np.ndarray, goal: Goal) -> np.ndarray:
    """Rate at which trials refute the claim: the KL distance of (alpha, beta) from its curve.

    Negative if the point is not below the curve. Rates are moved towards 1/2 by one error, which is what this many
    trials can still show.
    """
    return refutation_rates(alpha, goal)(beta)


def refutation_rates(alpha: np.ndarray, goal: Goal) -> Callable[[np.ndarray], np.ndarray]:
    """A function from miss rates to ``refutation_rate`` at fixed false-alarm rates, whose part is computed once."""
    n = goal.trials_per_side
    a = (n * alpha + 1) / (n + 2)
    tail = np.logspace(-8, np.log10(0.5), 150)
    x = np.concatenate([tail, 1 - tail[::-1]])
    lines = tabulate(goal.claim)
    f, own = lines.below(x), lines.below(a)
    across = _kl(a[:, None], x)

    def rate(beta: np.ndarray) -> np.ndarray:
        b = (n * beta + 1) / (n + 2)
        gap = own - b
        # only points below the curve have a distance
        below = gap > 0
        found = gap.copy()
        found[below] = np.min(across[below] + _kl(b[below, None], f), axis=1)
        return found

    return rate


def _kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Kullback-Leibler distance of two coins."""
    return rel_entr(p, q) + rel_entr(1 - p, 1 - q)


def refuting(claim: Claim | TradeOff, *, trials_per_side: int, risk: float) -> Power:
    """Power of the rectangle as a function of error rates."""

    def power(alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        found = [
            refutation_power(claim, alpha=a, beta=b, trials_per_side=trials_per_side, risk=risk)
            for a, b in zip(alpha.tolist(), beta.tolist(), strict=True)
        ]
        return np.array(found)

    return power


def detectable(
    claim: Claim,
    *,
    delta: float,
    trials_per_side: int,
    risk: float,
    test: TestKind | None = None,
    at_once: tuple[int, ...] = ONE_BY_ONE,
) -> Detectable:
    """The smallest leaks found with power 0.8, and whether those of moderate size are among them.

    ``test`` is the kind of test that decides, by default the rectangle. ``at_once`` says into how many parts each
    search step divides the range: many if the power of many tests takes no longer than that of one.
    """
    test = test or refuting
    power = test(claim, trials_per_side=trials_per_side, risk=risk)
    room = sum(left_errors(claim))
    claimed = claim.epsilon_range(delta).promised

    def searched() -> tuple[float | None, float | None]:
        hardest = advantage_alternatives(claim)
        tv = _smallest(lambda excess: power(*hardest(excess)), 0.0, room, at_once)
        if not np.isfinite(claimed):
            return tv, None
        leaking = _leaking(claim, delta=delta, trials_per_side=trials_per_side, power=power)
        return tv, _smallest(leaking, claimed, 2 * claimed + 10.0, at_once)

    def between(found: tuple[float | None, float | None]) -> bool:
        ends = ((0.0, room), (claimed, 2 * claimed + 10.0))
        return all(leak is None or low <= leak <= high for leak, (low, high) in zip(found, ends, strict=True))

    # the searches use nothing of the claim but its lines and where they begin
    lines = tabulate(claim)
    decided_by = (lines.x, lines.y, lines.slope, room, claimed, delta, trials_per_side, risk, at_once)
    tv, epsilon = kept(f"the smallest leaks, {test.__name__}", decided_by, searched, holds=between, package="audit")
    wanted = moderate(claim, delta=delta)
    conclusive = any(
        leak is not None and most is not None and leak <= most
        for leak, most in ((tv, wanted.tv_excess), (epsilon, wanted.epsilon))
    )
    return Detectable(tv_excess=tv, epsilon=epsilon, conclusive=conclusive)


def _leaking(claim: Claim, *, delta: float, trials_per_side: int, power: Power) -> Callable[[np.ndarray], np.ndarray]:
    """Power against Gaussian mechanisms, as a function of their epsilons."""
    leak = gaussian_alternatives(Goal(claim=claim, delta=delta, trials_per_side=trials_per_side, risk=0.05))
    return lambda epsilons: power(*leak(epsilons))


def is_conclusive(
    claim: Claim, *, delta: float, trials_per_side: int, power: Power, wanted: Moderate | None = None
) -> bool:
    """Whether a leak of moderate size is found, as ``detectable`` says, in a tenth of the time.

    ``wanted`` are those leaks, if the caller knows them; the smallest leak that is found is not computed.
    """
    hardest, room = advantage_alternatives(claim), sum(left_errors(claim))
    wanted = wanted or moderate(claim, delta=delta)
    if wanted.tv_excess is not None and _at_most(lambda excess: power(*hardest(excess)), 0.0, room, wanted.tv_excess):
        return True
    if wanted.epsilon is None:
        return False
    claimed = claim.epsilon_range(delta).promised
    leaking = _leaking(claim, delta=delta, trials_per_side=trials_per_side, power=power)
    return _at_most(leaking, claimed, 2 * claimed + 10.0, wanted.epsilon)


def _at_most(power: Callable[[np.ndarray], np.ndarray], low: float, high: float, most: float) -> bool:
    """Whether ``_smallest`` would end at ``most`` or below: as power grows, the last value up to it decides."""
    cells = math.prod(ONE_BY_ONE)
    cell = cells if most >= high else math.floor((most - low) / (high - low) * cells)
    return cell > 0 and bool(power(np.array([low + (high - low) * cell / cells]))[0] >= POWER)


def _smallest(
    power: Callable[[np.ndarray], np.ndarray], low: float, high: float, at_once: tuple[int, ...]
) -> float | None:
    """The smallest value with power >= POWER, to a ten-thousandth of the range; None if none has (power grows)."""
    found = None
    for parts in at_once:
        between = np.linspace(low, high, parts + 1)
        # the power at the end is computed once
        enough = power(between[1:] if found is None else between[1:-1]) >= POWER
        enough = enough if found is None else np.append(enough, True)
        if not enough[-1]:
            return None
        first = int(np.argmax(enough))
        low, high = float(between[first]), float(between[first + 1])
        found = high
    return found


def trials_needed(claim: Claim, *, delta: float, risk: float, test: TestKind, more_than: int = 1) -> int | None:
    """The fewest trials (both sides, an even number) with which a moderate leak is found with power 0.8.

    To two per cent, searched above ``more_than`` per side; None if ``MOST_TRIALS`` per side are not enough.
    """
    wanted = moderate(claim, delta=delta)

    def conclusive(trials_per_side: int) -> bool:
        power = test(claim, trials_per_side=trials_per_side, risk=risk)
        return is_conclusive(claim, delta=delta, trials_per_side=trials_per_side, power=power, wanted=wanted)

    # kept, since audits of a suite often share it; the search uses the claim as ``detectable`` does
    lines, room = tabulate(claim), sum(left_errors(claim))
    claimed = claim.epsilon_range(delta).promised
    seen = (lines.x, lines.y, lines.slope, room, claimed, wanted.tv_excess, wanted.epsilon)
    decided_by = (*seen, delta, risk, more_than)
    found = kept(
        f"trials enough, {test.__name__}",
        decided_by,
        lambda: fewest(conclusive, more_than),
        holds=lambda trials: isinstance(trials, int) and trials >= 0 and trials % 2 == 0,
        package="audit",
    )
    return found or None


def fewest(conclusive: Callable[[int], bool], more_than: int) -> int:
    """Twice the fewest trials per side that are conclusive, to two per cent; 0 if none are."""
    low, high = more_than, 2 * more_than
    while not conclusive(high):
        low, high = high, 2 * high
        if high > MOST_TRIALS:
            return 0
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        low, high = (low, middle) if conclusive(middle) else (middle, high)
    return 2 * high
