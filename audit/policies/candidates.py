"""Tests to choose among: spread over an exact curve or over fit scores, weighed by what they are expected to show."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy.special import logit
from scipy.stats import binom

from audit.bounds.clopper_pearson import clopper_pearson_upper
from audit.policies.policy import Cut, FitScores, Target
from audit.verdict.goal import Goal
from audit.verdict.power import refutation_rate
from guarantees.trade_off import TradeOff

GRID_EDGES = 200
PILOT_TRIALS = 1000
"""Trials drawn and thrown away to lay out the grid of scores where no theory does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidates:
    """Tests to choose among, with the error rates that theory or the fit trials give them."""

    member: np.ndarray
    threshold: np.ndarray
    below: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray

    @property
    def members(self) -> int:
        """Number of scores among whose tests there is a choice."""
        return int(self.member.max()) + 1


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


def from_fit(without: np.ndarray, with_record: np.ndarray) -> Candidates:
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
        parts.append((where, t, np.ones(len(t), bool), 1 - alpha, 1 - beta))
    member, threshold, below, alpha, beta = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Candidates(member=member, threshold=threshold, below=below, alpha=alpha, beta=beta)


def known_or_piloted(curve: TradeOff | None, fit_scores: FitScores) -> tuple[Candidates, int]:
    """Tests spread over the exact curve or, where none is known, over pilot trials; and how many those were."""
    if curve is not None:
        return from_curve(curve), 0
    return from_fit(*fit_scores(PILOT_TRIALS)), PILOT_TRIALS


def grid(candidates: Candidates, cuts: tuple[Cut, ...] = ()) -> np.ndarray:
    """Float32 edges for every member: spread over the candidates, with every cut among them."""
    rows = []
    for member in range(candidates.members):
        spread = np.unique(candidates.threshold[candidates.member == member].astype(np.float32))
        keep = np.unique(np.linspace(0, len(spread) - 1, GRID_EDGES).astype(int))
        own = np.array([cut.threshold for cut in cuts if cut.member == member], np.float32)
        rows.append(np.unique(np.concatenate([spread[keep], own])))
    width = max(len(row) for row in rows)
    # rows of a grid have one length: the last edge is repeated, which adds empty cells only
    return np.stack([np.pad(row, (0, width - len(row)), mode="edge") for row in rows])


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
        return clopper_pearson_upper(binom.ppf(levels, n, rate), n, risk=goal.risk / 2)

    return upper(alpha)[:, None, :], upper(beta)[None, :, :]


def _expected_epsilon(alpha: np.ndarray, beta: np.ndarray, goal: Goal) -> np.ndarray:
    a, b = _expected_limits(alpha, beta, goal)
    forward = np.log(np.maximum(1 - goal.delta - b, 1e-300) / a)
    backward = np.log(np.maximum(1 - goal.delta - a, 1e-300) / b)
    return np.maximum(np.maximum(forward, backward), 0.0).mean(axis=(0, 1))


def _expected_delta(alpha: np.ndarray, beta: np.ndarray, goal: Goal) -> np.ndarray:
    a, b = _expected_limits(alpha, beta, goal)
    return (1 - a - b).mean(axis=(0, 1))


OBJECTIVES: dict[Target, Callable[[np.ndarray, np.ndarray, Goal], np.ndarray]] = {
    "verdict": refutation_rate,
    "epsilon": _expected_epsilon,
    "delta": _expected_delta,
}
