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
TV_EXCESS = 0.1
EPSILON_FACTOR = 1.5
OF_THE_ROOM = 0.5
"""No advantage above the claim counts as moderate that takes more than this part of the misses that it leaves."""
GROUPS = 400
"""Numbers of false alarms that are summed over."""
POWER = 0.8
ONE_BY_ONE = (2,) * 14
TOGETHER = (16, 32, 32)
"""Parts into which the steps of a search divide what is left, to a ten-thousandth: one test or many at a time."""
THIRDS = 20
"""Cut off one after the other, a range is a three-thousandth of itself."""
TINY = 1e-300
BENDS = 256


Power = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Of tests with these false-alarm and miss rates."""


class TestKind(Protocol):
    """A kind of test: given a claim, a size and a risk, its power as a function of its error rates."""

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
    """The leaks that an audit of this claim must be able to find."""
    claimed = claim.epsilon_range(delta).promised
    pure = claim.law.smallest_delta == 0 and np.isfinite(claim.epsilon_range(0.0).promised)
    if pure or not np.isfinite(claimed):
        excess = float(min(TV_EXCESS, OF_THE_ROOM * left_errors(claim)[1]))
        return Moderate(tv_excess=excess, epsilon=EPSILON_FACTOR * claimed if np.isfinite(claimed) else None)
    return Moderate(tv_excess=None, epsilon=max(EPSILON_FACTOR * claimed, _more_advantage(claimed, delta)))


def _more_advantage(epsilon: float, delta: float) -> float:
    """Epsilon of the Gaussian mechanism whose advantage is 0.1 above that of the one with this epsilon; 0 if none."""
    (noise,) = noise_at(np.array([epsilon]), delta)
    advantage = 1 - 2 * ndtr(-0.5 / noise) + TV_EXCESS
    return float(TradeOff(GaussianLaw(mu=2 * ndtri((1 + advantage) / 2))).epsilon(delta)) if advantage < 1 else 0.0


def noise_at(epsilon: np.ndarray, delta: float) -> np.ndarray:
    """The noise multipliers 1 / mu of the Gaussian mechanisms that have these epsilons at a delta."""
    return _noise_at(tuple(epsilon.tolist()), delta)


@functools.lru_cache(maxsize=256)
def _noise_at(epsilons: tuple[float, ...], delta: float) -> np.ndarray:
    """The same; a search for a number of trials asks for the same epsilons at each of them."""
    epsilon = np.array(epsilons, float)

    # the tails themselves, not Claims, in 1 / mu, which they fall with
    def excess(noise: np.ndarray, own: np.ndarray) -> np.ndarray:
        return gaussian_delta(own, 1 / noise) - delta

    found = crossing(excess, np.full(epsilon.shape, 1e-3), np.full(epsilon.shape, 1e6), epsilon)
    found.flags.writeable = False
    return found


def refutation_power(claim: Claim | TradeOff, *, alpha: float, beta: float, trials_per_side: int, risk: float) -> float:
    """Probability that a test with these error rates refutes the claim.

    The rectangle refutes iff misses <= M(false alarms), so it is one sum of a pmf times a cdf.
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
    """False alarms and misses that the claim leaves to the best attack: the advantage that it allows is 1 less both."""
    alpha, beta = (float(np.squeeze(rate)) for rate in one_pair(claim.curve).errors(0.0))
    return alpha, beta


def advantage_alternatives(claim: Claim) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """From advantages above the claim's to the error rates, of all that have them, at which they are hardest to see.

    There the farthest line of the claim lies fewest deviations of the counts away. That number is quasiconvex along
    the rates of one advantage (a linear gap over a concave deviation, largest over the lines): thirds are cut off.
    At a corner of the claim both rates fall; fewer misses alone would show e to the epsilon times as much.
    """
    lines, left = tabulate(claim), sum(left_errors(claim))
    slope, which, times = np.unique(lines.slope, return_index=True, return_counts=True)
    # straight parts of the claim, and of the lines along its bends so many that their number hardly matters
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
    """From epsilons to the most telling points of the Gaussian mechanisms that have them at the goal's delta."""
    alpha = np.concatenate([tail := np.logspace(-6, np.log10(0.5), 40), 1 - tail[-2::-1]])
    level, rate = ndtri(alpha), refutation_rates(alpha, goal)

    def alternatives(epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        beta = ndtr(-level - 1 / noise_at(epsilon, goal.delta)[:, None])
        best = np.array([int(np.argmax(rate(own))) for own in beta], int)
        return alpha[best], beta[np.arange(len(best)), best]

    return alternatives


def refutation_rate(alpha: np.ndarray, beta: np.ndarray, goal: Goal) -> np.ndarray:
    """Exponent at which trials refute the claim: the KL distance of (alpha, beta) from its curve.

    Negative where the point does not lie below the curve. Rates are moved towards 1/2 by one error, what one can
    still hope to show with this many trials.
    """
    return refutation_rates(alpha, goal)(beta)


def refutation_rates(alpha: np.ndarray, goal: Goal) -> Callable[[np.ndarray], np.ndarray]:
    """The same for many miss rates at the same false-alarm rates: what depends on these is found once."""
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
    return rel_entr(p, q) + rel_entr(1 - p, 1 - q)


def refuting(claim: Claim | TradeOff, *, trials_per_side: int, risk: float) -> Power:
    """The power of the rectangle as a function of tests' error rates."""

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
    """Smallest leaks found with power 0.8, and whether those of moderate size are among them.

    ``test`` is the kind of test that decides; by default the rectangle.
    ``at_once`` says into how many parts each step of a search divides what is left: many where power is found for many
    tests in the time that it takes for one.
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

    # all that both searches see of the claim is its lines and where they begin
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
    """The power against Gaussian mechanisms, as a function of their epsilons."""
    leak = gaussian_alternatives(Goal(claim=claim, delta=delta, trials_per_side=trials_per_side, risk=0.05))
    return lambda epsilons: power(*leak(epsilons))


def is_conclusive(
    claim: Claim, *, delta: float, trials_per_side: int, power: Power, wanted: Moderate | None = None
) -> bool:
    """What ``detectable`` says of moderate leaks, one by one, in a tenth of the time: the smallest is not found out.

    ``wanted`` are those leaks, where the caller knows them already.
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
    """Whether ``_smallest``, one by one, ends at ``most`` or below: as power grows, the last value up to it tells."""
    cells = math.prod(ONE_BY_ONE)
    cell = cells if most >= high else math.floor((most - low) / (high - low) * cells)
    return cell > 0 and bool(power(np.array([low + (high - low) * cell / cells]))[0] >= POWER)


def _smallest(
    power: Callable[[np.ndarray], np.ndarray], low: float, high: float, at_once: tuple[int, ...]
) -> float | None:
    """Smallest value with power >= POWER, to a ten-thousandth of the range (power grows with the leak)."""
    found = None
    for parts in at_once:
        between = np.linspace(low, high, parts + 1)
        # the end is asked once
        enough = power(between[1:] if found is None else between[1:-1]) >= POWER
        enough = enough if found is None else np.append(enough, True)
        if not enough[-1]:
            return None
        first = int(np.argmax(enough))
        low, high = float(between[first]), float(between[first + 1])
        found = high
    return found


def trials_needed(claim: Claim, *, delta: float, risk: float, test: TestKind, more_than: int = 1) -> int | None:
    """Smallest even number of trials, both sides together, at which a moderate leak is found with power 0.8.

    To two per cent, looked for above ``more_than`` per side; None where ``MOST_TRIALS`` per side would not do.
    """
    wanted = moderate(claim, delta=delta)

    def conclusive(trials_per_side: int) -> bool:
        power = test(claim, trials_per_side=trials_per_side, risk=risk)
        return is_conclusive(claim, delta=delta, trials_per_side=trials_per_side, power=power, wanted=wanted)

    # many audits of a suite may ask the same; the search sees the claim as that of ``detectable`` does
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
    """Twice the fewest per side, to two per cent; 0 where none would do."""
    low, high = more_than, 2 * more_than
    while not conclusive(high):
        low, high = high, 2 * high
        if high > MOST_TRIALS:
            return 0
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        low, high = (low, middle) if conclusive(middle) else (middle, high)
    return 2 * high
