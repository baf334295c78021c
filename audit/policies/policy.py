"""Which test is judged: thresholds fixed before the trials that judge them.

Why each policy is valid: docs/validity.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy.special import betainccinv, logit, rel_entr
from scipy.stats import binom

from guarantees.checks import require
from guarantees.claim import Claim
from guarantees.trade_off import TradeOff

Target = Literal["verdict", "epsilon", "delta"]
TARGETS: tuple[Target, ...] = ("verdict", "epsilon", "delta")
Side = Literal["above", "below"]
Method = Literal["rectangle", "joint"]
METHODS: tuple[Method, ...] = ("rectangle", "joint")
"""What decides a verdict: Clopper-Pearson limits on both error rates, or the exact joint p-value of both counts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fixed:
    """Thresholds named by the user before any trial; they share the risk evenly."""

    thresholds: tuple[float, ...]
    kind: str = "fixed"

    def __post_init__(self):
        require("thresholds", len(self.thresholds) > 0, "at least one number", self.thresholds)
        require("thresholds", bool(np.isfinite(self.thresholds).all()), "finite", self.thresholds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FromTheory:
    """Thresholds that the exact curve says are best for this claim, delta, trials and risk: needs no data."""

    targets: tuple[Target, ...] = TARGETS
    method: Method = "rectangle"
    kind: str = "from_theory"

    def __post_init__(self):
        _check_method(self.method, self.targets)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """Thresholds (and sides, and members of a battery) chosen on fit trials that are then thrown away."""

    fit_trials: int = 2000
    targets: tuple[Target, ...] = TARGETS
    method: Method = "rectangle"
    kind: str = "split"

    def __post_init__(self):
        _check_method(self.method, self.targets)
        require(
            "fit_trials",
            self.fit_trials >= 20 and self.fit_trials % 2 == 0,
            "even and >= 20",
            self.fit_trials,
        )


def _check_method(method: str, targets: tuple[str, ...]) -> None:
    require("method", method in METHODS, f"one of {METHODS}", method)
    if method == "joint":
        require("targets", "verdict" in targets, "such that 'verdict' is among them with method='joint'", targets)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simultaneous:
    """Every threshold of the grid at once: a band pays for the choice."""

    kind: str = "simultaneous"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Anytime:
    """Look again and again and stop once the claim is refuted: several thresholds a score, fixed beforehand.

    They come from theory where the distinguisher knows its curve, otherwise from pilot trials that are thrown away.
    """

    thresholds: int = 10
    pilot_trials: int = 200
    kind: str = "anytime"

    def __post_init__(self):
        require("thresholds", self.thresholds >= 2 and self.thresholds % 2 == 0, "even and >= 2", self.thresholds)
        pilot = self.pilot_trials
        require("pilot_trials", pilot >= 20 and pilot % 2 == 0, "even and >= 20", pilot)


Policy = Fixed | FromTheory | Split | Simultaneous | Anytime


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cut:
    """One test: 'score above (or at most) the threshold means: with the record', and what it is for."""

    target: Target | Literal["fixed", "band", "anytime"]
    member: int
    threshold: float
    rejects: Side
    risk: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goal:
    """What thresholds are chosen for."""

    claim: Claim
    delta: float
    trials_per_side: int
    risk: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidates:
    """Tests to choose among, with the error rates that theory or the fit trials give them."""

    member: np.ndarray
    threshold: np.ndarray
    below: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray


def from_curve(curve: TradeOff) -> Candidates:
    """Likelihood-ratio tests spread over the whole curve, into both tails."""
    thresholds = spread(curve)
    alpha, beta = curve.errors(thresholds)
    return Candidates(
        member=np.zeros(len(thresholds), int),
        threshold=thresholds,
        below=np.zeros(len(thresholds), bool),
        alpha=alpha,
        beta=beta,
    )


def spread(curve: TradeOff) -> np.ndarray:
    """Float32 thresholds at which alpha, then beta, runs through levels from 1e-7 to 1 - 1e-7, and 0.

    Only the ends are searched for; between them the levels are interpolated, as nothing depends on hitting them.
    """
    tail = np.logspace(-7, np.log10(0.5), 100)
    levels = np.concatenate([tail, 1 - tail[-2::-1]])
    ends = curve.llr_threshold(np.array([tail[0], 1 - tail[0]]))
    other = -curve.reverse.llr_threshold(np.array([tail[0], 1 - tail[0]]))
    coarse = np.unique(np.concatenate([ends, other, [0.0]]))
    coarse = coarse[np.isfinite(coarse)]
    coarse = np.unique(np.concatenate([coarse, np.linspace(coarse[0], coarse[-1], 200)]))
    alpha, beta = curve.errors(coarse)
    found = [np.interp(logit(levels), logit(rate[order]), coarse[order]) for rate, order in _increasing(alpha, beta)]
    return np.unique(np.concatenate([coarse[[0, -1]], *found, [0.0]]).astype(np.float32)).astype(float)


def _increasing(alpha: np.ndarray, beta: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Each rate, kept off 0 and 1, with the order in which it increases."""
    inside = [np.clip(rate, 1e-12, 1 - 1e-12) for rate in (alpha, beta)]
    return tuple((rate, np.argsort(rate, kind="stable")) for rate in inside)


def from_fit(without: np.ndarray, with_record: np.ndarray, *, both_sides: bool = True) -> Candidates:
    """Tests at the quantiles of fit scores (shape (trials, members)), on both sides of each threshold.

    Rates are smoothed by half an error, so that an empty tail of the fit does not look like certainty.
    """
    parts = []
    tail = np.geomspace(0.5 / len(without), 0.5, 60)
    for member in range(without.shape[1]):
        zero, one = np.sort(without[:, member]), np.sort(with_record[:, member])
        levels = np.concatenate([tail, 1 - tail])
        both = np.concatenate([np.quantile(zero, levels), np.quantile(one, levels)])
        t = np.unique(both.astype(np.float32)).astype(float)
        above0 = len(zero) - np.searchsorted(zero, t, side="right")
        above1 = len(one) - np.searchsorted(one, t, side="right")
        alpha, beta = (above0 + 0.5) / (len(zero) + 1), (len(one) - above1 + 0.5) / (len(one) + 1)
        where = np.full(len(t), member)
        parts.append((where, t, np.zeros(len(t), bool), alpha, beta))
        if both_sides:
            parts.append((where, t, np.ones(len(t), bool), 1 - alpha, 1 - beta))
    member, threshold, below, alpha, beta = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Candidates(member=member, threshold=threshold, below=below, alpha=alpha, beta=beta)


def choose(candidates: Candidates, target: Target, goal: Goal) -> Cut:
    """The candidate with the best expected outcome for one target."""
    value = np.maximum(OBJECTIVES[target](candidates.alpha, candidates.beta, goal), 0.0)
    # where nothing can be shown every test is as good: take the one with the largest advantage
    best = int(np.argmax(value + 1e-9 * (1 - candidates.alpha - candidates.beta)))
    return Cut(
        target=target,
        member=int(candidates.member[best]),
        threshold=float(candidates.threshold[best]),
        rejects="below" if candidates.below[best] else "above",
        risk=goal.risk,
    )


def _expected_limits(alpha: np.ndarray, beta: np.ndarray, goal: Goal) -> tuple[np.ndarray, np.ndarray]:
    """Clopper-Pearson limits at five quantiles of each count, shapes (5, 1, tests) and (1, 5, tests)."""
    levels = np.array([0.1, 0.3, 0.5, 0.7, 0.9])[:, None]
    n = goal.trials_per_side

    def upper(rate: np.ndarray) -> np.ndarray:
        errors = binom.ppf(levels, n, rate)
        return np.where(errors >= n, 1.0, betainccinv(errors + 1, np.maximum(n - errors, 1), goal.risk / 2))

    return upper(alpha)[:, None, :], upper(beta)[None, :, :]


def _expected_epsilon(alpha: np.ndarray, beta: np.ndarray, goal: Goal) -> np.ndarray:
    a, b = _expected_limits(alpha, beta, goal)
    forward = np.log(np.maximum(1 - goal.delta - b, 1e-300) / a)
    backward = np.log(np.maximum(1 - goal.delta - a, 1e-300) / b)
    return np.maximum(np.maximum(forward, backward), 0.0).mean(axis=(0, 1))


def _expected_delta(alpha: np.ndarray, beta: np.ndarray, goal: Goal) -> np.ndarray:
    a, b = _expected_limits(alpha, beta, goal)
    return (1 - a - b).mean(axis=(0, 1))


def evidence_rate(alpha: np.ndarray, beta: np.ndarray, goal: Goal) -> np.ndarray:
    """Exponent at which trials refute the claim: the KL distance of (alpha, beta) from its curve.

    Negative where the point does not lie below the curve. Rates are moved towards 1/2 by one error, what one can
    still hope to show with this many trials.
    """
    n = goal.trials_per_side
    a, b = (n * alpha + 1) / (n + 2), (n * beta + 1) / (n + 2)
    tail = np.logspace(-8, np.log10(0.5), 150)
    x = np.concatenate([tail, 1 - tail[::-1]])
    f = goal.claim.beta(x)
    distance = np.min(_kl(a[:, None], x) + _kl(b[:, None], f), axis=1)
    gap = goal.claim.beta(a) - b
    return np.where(gap > 0, distance, gap)


def _kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return rel_entr(p, q) + rel_entr(1 - p, 1 - q)


OBJECTIVES: dict[Target, Callable[[np.ndarray, np.ndarray, Goal], np.ndarray]] = {
    "verdict": evidence_rate,
    "epsilon": _expected_epsilon,
    "delta": _expected_delta,
}
