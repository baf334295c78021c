"""What an audit can be expected to show, computed before it runs."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtr

from audit.bounds import joint
from audit.bounds.bounded_numbers import Question
from audit.bounds.clopper_pearson import ErrorCounts, require_risk
from audit.bounds.inversion import approximate_bound, joint_epsilon_bound
from audit.bounds.supporting_lines import SupportingLines, corners, curve_of, tabulate
from audit.power.joint_power import CURVE_POINTS, Point, critical_statistic, joint_power, jointly_refuting
from audit.power.less_noise import most_noise_found
from audit.power.power import advantage_alternatives, left_errors, refutation_power
from audit.risk import STOPPING_WEIGHTS, Statement, shared
from audit.verdict.proven_numbers import questions
from guarantees.checks import Delta, Share, checked, require
from guarantees.claim import Claim
from guarantees.families.closed_form import gaussian
from guarantees.numerics.array import Array
from guarantees.numerics.distributions import binom
from guarantees.numerics.search import halved
from guarantees.trade_off import TradeOff

CANDIDATES = 41
MOST_TRIALS = 2**30
FEW_TRIALS = 64
LARGEST_MU = 40.0
ANYTIME_TESTS = 12
PILOT_ERRORS = 2.0
"""Standard errors of a pilot's rates for which the number of trials is given."""
STATEMENTS: tuple[Statement, ...] = ("verdict", "epsilon", "delta", "mu", "rest")
"""Statements among which an audit of a fixed number of trials divides its risk."""
RATES = np.geomspace(1e-300, 1.0, 2000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refutation:
    """Trials, both sides together, that refute the claim with the stated power; None if no number does."""

    joint_trials: int | None
    joint_point: Point | None
    """Error rates of the threshold at which the fewest trials suffice."""
    anytime_trials: int | None
    """Typical trials until the anytime test stops, by a rule of thumb: ln(tests / risk) / growth rate."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallestLeak:
    """The smallest leaks that the planned trials detect with the stated power; None if there are none of a kind."""

    tv_excess: float | None
    """Attack advantage above the claim's, found by the rectangle."""
    tv_excess_joint: float | None
    """Attack advantage above the claim's, found by the joint test."""
    epsilon: float | None
    """Epsilon at delta of a Gaussian mechanism, found by the rectangle at its best threshold."""
    mu: float | None
    """The mu of this Gaussian mechanism."""
    noise_multiplier: float | None = None
    """For claims about sampled batches: the largest noise multiplier below the claimed one that the joint test finds at
    the verdict's share of the risk."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpectedBounds:
    """Bounds at the median counts of a mechanism exactly as claimed, each at its best threshold fixed beforehand."""

    epsilon: float
    delta: float
    """Delta at epsilon 0."""
    mu: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What to expect of an audit with this many trials, half on each dataset."""

    trials: int
    risk: float
    delta: float
    power: float
    refutation: Refutation | None
    """Trials that refute the claim; None if nothing is known about the mechanism."""
    smallest_leak: SmallestLeak
    largest_provable_epsilon: float
    """The bound if no error at all is made: these trials can never prove more."""
    expected: ExpectedBounds
    seconds: float | None
    """Time for the planned trials and for what comes before them."""
    seconds_to_refute: float | None
    """Time for the trials that refute the claim, and for what comes before them."""


@checked
def plan(
    claim: Claim,
    mechanism: Claim | TradeOff | Sequence[Point] | None = None,
    *,
    trials: int,
    risk: Share,
    delta: Delta,
    power: Share = 0.8,
    seconds_per_trial: float | None = None,
    seconds_before: float = 0.0,
) -> Plan:
    """What an audit of this size can show: trials needed, smallest detectable leak, largest provable epsilon.

    Powers of the joint test use one critical value for all counts. [docs/validity.md, section 6] A plan from a pilot
    inherits the pilot's error: the true number of trials may be several times larger or smaller.

    Args:
      claim: the promise to be judged.
      mechanism: the exact curve of what is audited, or error rates of its tests (``pilot_points``), or None if unknown.
      trials: outputs in total, half on each dataset.
      risk: risk of the audit.
      delta: where epsilon is bounded.
      power: probability of finding the leak.
      seconds_per_trial: to turn trials into time.
      seconds_before: what passes before the first trial is judged, such as learning a distinguisher.

    Returns:
      The plan; ``refutation`` is None where nothing is known about the mechanism.

    Raises:
      ValueError: an argument is out of range, or ``trials`` is odd.

    Examples:
      >>> import audit, guarantees
      >>> found = audit.plan(guarantees.gaussian(mu=0.5), trials=1000, risk=0.05, delta=1e-5)
      >>> round(found.largest_provable_epsilon, 1)  # even if no error is made at all
      5.8
    """
    require_risk(risk)
    require("trials", trials >= 2 and trials % 2 == 0, "even and >= 2 (half are drawn on each dataset)", trials)
    lines = tabulate(claim, points=CURVE_POINTS)
    points = operating_points(mechanism)
    side = trials // 2
    known = _OfClaim(
        claim=claim,
        told=claim.describe(),
        table=lines.x.tobytes() + lines.y.tobytes(),
        trials_per_side=side,
        risk=risk,
        delta=delta,
        power=power,
    )
    leak, expected = _of_the_claim(known)
    refutation = _refutation(lines, points, risk, power) if points else None
    needed = refutation.joint_trials if refutation else None
    pace = seconds_per_trial
    return Plan(
        trials=trials,
        risk=risk,
        delta=delta,
        power=power,
        refutation=refutation,
        smallest_leak=leak,
        largest_provable_epsilon=joint_epsilon_bound(_clean(side), delta=delta, risk=risk),
        expected=expected,
        seconds=None if pace is None else seconds_before + trials * pace,
        seconds_to_refute=None if pace is None or needed is None else seconds_before + needed * pace,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OfClaim:
    """The part of a plan that depends on the claim alone: a suite has many audits of one claim."""

    claim: Claim = dataclasses.field(compare=False)
    told: str
    table: bytes
    trials_per_side: int
    risk: float
    delta: float
    power: float


@functools.lru_cache(maxsize=64)
def _of_the_claim(known: _OfClaim) -> tuple[SmallestLeak, ExpectedBounds]:
    claim, side, risk, delta = known.claim, known.trials_per_side, known.risk, known.delta
    lines = tabulate(claim, points=CURVE_POINTS)
    leak = _smallest_leak(claim, lines, side, risk, delta, known.power)
    return leak, expected_bounds(claim, trials_per_side=side, delta=delta, risk=risk)


def operating_points(mechanism: Claim | TradeOff | Sequence[Point] | None) -> tuple[Point, ...]:
    """Error rates at which a mechanism may be tested: along its curve, or as given."""
    if mechanism is None:
        return ()
    if isinstance(mechanism, Claim | TradeOff):
        alpha = ndtr(np.linspace(-4.0, 4.0, CANDIDATES))
        beta = np.asarray(curve_of(mechanism).beta(alpha), float)
        return tuple((float(a), float(b)) for a, b in zip(alpha, beta, strict=True))
    for point in mechanism:
        require("mechanism", min(point) >= 0 and max(point) <= 1, "pairs of rates in [0, 1]", point)
    return tuple(mechanism)


def pilot_points(pilot: Sequence[ErrorCounts]) -> tuple[Point, ...]:
    """Error rates estimated from pilot counts at several thresholds, half an error added to each."""
    return tuple(
        ((c.false_alarms + 0.5) / (c.trials_without + 1), (c.misses + 0.5) / (c.trials_with + 1)) for c in pilot
    )


def within_pilot_error(claim: Claim, point: Point, *, trials: int, pilot_per_side: int) -> tuple[int, int | None]:
    """Range of trials needed if the pilot's error rates are off by two standard errors either way.

    Trials go by the reciprocal of the growth rate. None: with both rates two standard errors higher the point keeps the
    claim, and no number of trials refutes it. The threshold was chosen on the same pilot, which flatters it besides.
    """
    errors = [PILOT_ERRORS * math.sqrt(rate * (1 - rate) / pilot_per_side) for rate in point]
    moved = [
        tuple(float(np.clip(rate + sign * error, 0.0, 1.0)) for rate, error in zip(point, errors, strict=True))
        for sign in (0, -1, 1)
    ]
    likely, better, worse = growth_rates(tabulate(claim, points=CURVE_POINTS), [(alpha, beta) for alpha, beta in moved])
    return math.ceil(trials * likely / better), math.ceil(trials * likely / worse) if worse > 0 else None


def growth_rates(lines: SupportingLines, points: Sequence[Point]) -> Array:
    """``min_x KL(alpha || x) + KL(beta || f(x))`` of each point, 0 on or above the claim: the growth per trial."""
    alpha, beta = np.array(points, float).T
    table = corners(lines)
    if not len(table.x):
        return np.zeros(len(alpha))
    distance = joint.divergence(alpha[:, None], table.x) + joint.divergence(beta[:, None], table.y)
    return np.where(beta < lines.below(alpha), distance.min(1), 0.0)


def expected_bounds(claim: Claim, *, trials_per_side: int, delta: float, risk: float) -> ExpectedBounds:
    """Bounds at median counts along the claim's own curve, at the best threshold for each and its share of the risk.

    By the normal approximation of the joint inversion, which is close. [docs/validity.md, section 12]
    """
    n = trials_per_side
    alpha = ndtr(np.linspace(-6.0, 6.0, 241))
    beta = np.asarray(claim.beta(alpha), float)
    errors = binom.ppf(0.5, n, alpha), binom.ppf(0.5, n, beta)
    share = shared(risk, STATEMENTS).shares

    def best(question: Question, name: Statement) -> float:
        return float(approximate_bound(*errors, trials=(n, n), question=question, risk=share[name]).max())

    return ExpectedBounds(**{name: best(question, name) for name, question in questions(delta).items()})


def _clean(trials_per_side: int) -> ErrorCounts:
    return ErrorCounts(false_alarms=0, trials_without=trials_per_side, misses=0, trials_with=trials_per_side)


def _refutation(lines: SupportingLines, points: tuple[Point, ...], risk: float, power: float) -> Refutation:
    rates = growth_rates(lines, points)
    best = int(rates.argmax())
    if rates[best] <= 0:
        return Refutation(joint_trials=None, joint_point=None, anytime_trials=None)
    needed = _trials_needed(lines, points[best], risk, power, start=math.ceil(1 / rates[best]))
    return Refutation(
        joint_trials=_both(needed),
        joint_point=None if needed is None else points[best],
        anytime_trials=_both(math.ceil(math.log(ANYTIME_TESTS / (risk * STOPPING_WEIGHTS["verdict"])) / rates[best])),
    )


def _both(trials_per_side: int | None) -> int | None:
    return None if trials_per_side is None else 2 * trials_per_side


def _trials_needed(lines: SupportingLines, point: Point, risk: float, power: float, *, start: int) -> int | None:
    """Fewest trials, to half a per cent, at which the joint test reaches the power."""

    @functools.cache
    def critical(n: int) -> float:
        return critical_statistic(lines, point, trials_per_side=n, risk=risk)

    def enough(n: int) -> bool:
        # The critical value depends on few trials, and hardly on many: those share it up to the next power of 4.
        known = critical(n if n <= FEW_TRIALS else 4 ** math.ceil(math.log(n, 4)))
        return joint_power(lines, point, trials_per_side=n, risk=risk, critical=known) >= power

    low, high = 0, max(start, 2)
    while not enough(high):
        low, high = high, 2 * high
        if high > MOST_TRIALS:
            return None
    while high - low > max(1, high // 200):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _smallest_leak(
    claim: Claim, lines: SupportingLines, trials: int, risk: float, delta: float, power: float
) -> SmallestLeak:
    def rectangle(point: Point) -> float:
        return refutation_power(claim, alpha=point[0], beta=point[1], trials_per_side=trials, risk=risk)

    alternatives, left = advantage_alternatives(claim), left_errors(claim)

    def hardest(excess: float) -> Point:
        (alpha,), (beta,) = (rate.tolist() for rate in alternatives(np.array([excess])))
        return alpha, beta

    tv = _least(lambda excess: rectangle(hardest(excess)), 0.0, sum(left), power)
    critical = critical_statistic(lines, left, trials_per_side=trials, risk=risk)

    def by_joint(excess: float) -> float:
        return joint_power(lines, hardest(excess), trials_per_side=trials, risk=risk, critical=critical)

    def gaussian_leak(mu: float) -> float:
        points = operating_points(gaussian(mu=mu))
        return rectangle(points[int(growth_rates(lines, points).argmax())])

    mu = _least(gaussian_leak, 1e-6, LARGEST_MU, power)
    return SmallestLeak(
        tv_excess=tv,
        tv_excess_joint=_least(by_joint, 0.0, sum(left), power),
        epsilon=None if mu is None or delta == 0 else float(gaussian(mu=mu).epsilon(delta)),
        mu=mu,
        noise_multiplier=most_noise_found(
            claim,
            trials_per_side=trials,
            risk=shared(risk, STATEMENTS).shares["verdict"],
            test=jointly_refuting,
            enough=power,
        ),
    )


def _least(power_of: Callable[[float], float], low: float, high: float, power: float) -> float | None:
    """Smallest value at which an increasing power reaches the wanted one, by bisection."""
    if power_of(high) < power:
        return None
    return halved(lambda value: power_of(value) >= power, low, high, rounds=24)[1]


def refutable(claim: Claim, *, trials_per_side: int, risk: float) -> bool:
    """Whether an attack that never errs in these trials would refute the claim.

    The claim allows tests with error rates ``(alpha, beta(alpha))``; such a test makes no error at all with probability
    ``((1 - alpha) (1 - beta(alpha)))^n``. Where that exceeds the risk for some alpha, no counts refute the claim: those
    without an error are the most telling that there are.
    """
    for curve in (claim, claim.reverse):
        beta = np.clip(np.asarray(curve.beta(RATES), float), 0.0, 1.0)
        with np.errstate(divide="ignore"):
            no_errors = trials_per_side * (np.log1p(-RATES) + np.log1p(-beta))
        if no_errors.max() > np.log(risk):
            return False
    return True
