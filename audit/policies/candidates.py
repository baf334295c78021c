"""Tests to choose among: spread over an exact curve or over fit scores, with what each is expected to show."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from scipy.special import logit

from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt, Mu, Question
from audit.bounds.chosen_threshold import ScoreModel, expected_bound
from audit.bounds.clopper_pearson import clopper_pearson_upper
from audit.goal import Goal
from audit.policies.policy import Cut, FitScores, Target
from audit.power.power import refutation_rate
from guarantees.laws.kept import kept
from guarantees.numerics.distributions import binom
from guarantees.trade_off import TradeOff

Objective = Callable[[np.ndarray, np.ndarray, Goal], np.ndarray]
Objectives = dict[Target, Objective]
ON_RARER = 0.85
"""Share of its risk that a rectangle for epsilon spends on the rarer error."""
GRID_EDGES = 200
PILOT_TRIALS = 1000
"""Trials drawn and discarded to lay out the grid of scores where no theory does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidates:
    """Tests to choose among, with the error rates that theory or the fit trials give them."""

    member: np.ndarray
    threshold: np.ndarray
    below: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    """Error rates under every estimate of them, shape (estimates, tests); the first is the expected one."""

    @property
    def members(self) -> int:
        """Number of scores that the tests use."""
        return int(self.member.max()) + 1


def from_curve(curve: TradeOff) -> Candidates:
    """Likelihood-ratio tests spread over a whole curve, into both tails; computed once per curve object."""
    return _from_identity(_ByIdentity(curve))


@dataclasses.dataclass(frozen=True, eq=False)
class _ByIdentity:
    """A curve that equals only itself: laws need not be hashable."""

    curve: TradeOff

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.curve is other.curve

    def __hash__(self) -> int:
        return id(self.curve)


@functools.lru_cache(maxsize=8)
def _from_identity(identity: _ByIdentity) -> Candidates:
    """The tests of a curve."""
    curve = identity.curve
    thresholds = spread(curve)
    alpha, beta = curve.errors(thresholds)
    return Candidates(
        member=np.zeros(len(thresholds), int),
        threshold=thresholds,
        below=np.zeros(len(thresholds), bool),
        alpha=alpha[None],
        beta=beta[None],
    )


def spread(curve: TradeOff) -> np.ndarray:
    """Float32 thresholds at which alpha, then beta, runs through levels from 1e-7 to 1 - 1e-7, and 0.

    Only the ends are searched for; between them the levels are interpolated, as nothing depends on hitting them.
    """
    tail = np.logspace(-7, np.log10(0.5), 100)
    levels = np.concatenate([tail, 1 - tail[-2::-1]])
    ends = kept(
        "the ends of a curve",
        (curve.law, tail[0]),
        lambda: _ends(curve, tail[0]),
        holds=lambda found: isinstance(found, np.ndarray) and found.shape == (4,) and not np.isnan(found).any(),
        package="audit",
    )
    coarse = np.unique(np.append(ends, 0.0))
    coarse = coarse[np.isfinite(coarse)]
    coarse = np.unique(np.concatenate([coarse, np.linspace(coarse[0], coarse[-1], 200)]))
    alpha, beta = curve.errors(coarse)
    found = [np.interp(logit(levels), logit(rate[order]), coarse[order]) for rate, order in _increasing(alpha, beta)]
    return np.unique(np.concatenate([coarse[[0, -1]], *found, [0.0]]).astype(np.float32)).astype(float)


def _ends(curve: TradeOff, level: float) -> np.ndarray:
    """Thresholds at which alpha, then beta, is the level, and so is what it lacks to 1."""
    both = np.array([level, 1 - level])
    return np.concatenate([curve.llr_threshold(both), -curve.reverse.llr_threshold(both)])


def _increasing(alpha: np.ndarray, beta: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Each rate, kept off 0 and 1, with the order in which it increases."""
    inside = [np.clip(rate, 1e-12, 1 - 1e-12) for rate in (alpha, beta)]
    return tuple((rate, np.argsort(rate, kind="stable")) for rate in inside)


def from_fit(without: np.ndarray, with_record: np.ndarray) -> Candidates:
    """Tests spread over fit scores (shape (trials, members)) and somewhat beyond, on both sides of each threshold.

    Rates are those of a smooth model where the scores do not contradict it, else the model's and theirs; an empty tail
    of the fit never looks like certainty.
    """
    parts = []
    for member in range(without.shape[1]):
        model = ScoreModel(without=np.sort(without[:, member]), with_record=np.sort(with_record[:, member]))
        t = np.unique(model.thresholds().astype(np.float32)).astype(float)
        alpha, beta = model.accounts(t)
        where = np.full(len(t), member)
        parts.append((where, t, np.zeros(len(t), bool), alpha, beta))
        parts.append((where, t, np.ones(len(t), bool), 1 - alpha, 1 - beta))
    member, threshold, below, alpha, beta = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
    return Candidates(member=member, threshold=threshold, below=below, alpha=alpha, beta=beta)


def known_or_piloted(curve: TradeOff | None, fit_scores: FitScores) -> tuple[Candidates, int]:
    """Tests spread over the exact curve or, where none is known, over pilot trials; and how many those were."""
    if curve is not None:
        return from_curve(curve), 0
    pilot = fit_scores(PILOT_TRIALS)
    return from_fit(*pilot), 2 * len(pilot[0])


def grid(candidates: Candidates, cuts: tuple[Cut, ...] = ()) -> np.ndarray:
    """Float32 edges for every member, spread over the candidates and including every cut."""
    rows = []
    for member in range(candidates.members):
        spread = np.unique(candidates.threshold[candidates.member == member].astype(np.float32))
        keep = np.unique(np.linspace(0, len(spread) - 1, GRID_EDGES).astype(int))
        cut_edges = np.array([cut.threshold for cut in cuts if cut.member == member], np.float32)
        rows.append(np.unique(np.concatenate([spread[keep], cut_edges])))
    width = max(len(row) for row in rows)
    # rows of a grid have one length: the last edge is repeated, which adds empty cells only
    return np.stack([np.pad(row, (0, width - len(row)), mode="edge") for row in rows])


def choose(candidates: Candidates, target: Target, goal: Goal, objectives: Objectives | None = None) -> Cut:
    """The candidate with the best expected outcome for one target, by default under joint inversion.

    If two estimates of the rates differ, their expected outcomes are averaged.
    """
    objective = (JOINT_OBJECTIVES if objectives is None else objectives)[target]
    (alpha, *other_alphas), (beta, *other_betas) = candidates.alpha, candidates.beta
    value = np.maximum(objective(alpha, beta, goal), 0.0)
    for a, b in zip(other_alphas, other_betas, strict=True):
        differ = (a != alpha) | (b != beta)
        value[differ] = (value[differ] + np.maximum(objective(a[differ], b[differ], goal), 0.0)) / 2
    # ties, as where nothing can be shown, go to the test with the largest advantage
    best = int(np.argmax(value + 1e-9 * (1 - alpha - beta)))
    return Cut(
        target=target,
        member=int(candidates.member[best]),
        threshold=float(candidates.threshold[best]),
        rejects="below" if candidates.below[best] else "above",
        risk=goal.risk,
        on_alpha=_on_alpha(target, alpha[best], beta[best]),
    )


def _on_alpha(target: Target, alpha: float, beta: float) -> float:
    """Share of the risk for the false-alarm rate: epsilon depends on the rarer error, the others on both."""
    if target != "epsilon":
        return 0.5
    return ON_RARER if alpha <= beta else 1 - ON_RARER


def _expected_limits(
    alpha: np.ndarray, beta: np.ndarray, goal: Goal, on_alpha: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """Clopper-Pearson limits at five quantiles of each count, shapes (5, 1, tests) and (1, 5, tests)."""
    levels = np.array([0.1, 0.3, 0.5, 0.7, 0.9])[:, None]
    n = goal.trials_per_side

    def upper(rate: np.ndarray, share: np.ndarray | float) -> np.ndarray:
        return clopper_pearson_upper(binom.ppf(levels, n, rate), n, risk=goal.risk * share)

    return upper(alpha, on_alpha)[:, None, :], upper(beta, 1 - np.asarray(on_alpha))[None, :, :]


def _rectangle(question: Callable[[Goal], Question]) -> Objective:
    """Expected bound on a number by rectangles."""

    def expected(alpha: np.ndarray, beta: np.ndarray, goal: Goal) -> np.ndarray:
        number = question(goal)
        rarer = np.where(alpha <= beta, ON_RARER, 1 - ON_RARER) if number.name == "epsilon" else 0.5
        return number.through(*_expected_limits(alpha, beta, goal, rarer)).mean(axis=(0, 1))

    return expected


def _joint(question: Callable[[Goal], Question]) -> Objective:
    """Expected bound on a number by joint inversion."""

    def expected(alpha: np.ndarray, beta: np.ndarray, goal: Goal) -> np.ndarray:
        trials = goal.trials_per_side, goal.trials_per_side
        return expected_bound(alpha, beta, question(goal), trials=trials, risk=goal.risk)

    return expected


NUMBERS: dict[Target, Callable[[Goal], Question]] = {
    "epsilon": lambda goal: EpsilonAt(delta=goal.delta),
    "delta": lambda _: DeltaAt(epsilon=0.0),
    "mu": lambda _: Mu(),
}
RECTANGLE_OBJECTIVES: Objectives = {
    "verdict": refutation_rate,
    **{name: _rectangle(question) for name, question in NUMBERS.items()},
}
JOINT_OBJECTIVES: Objectives = {
    "verdict": refutation_rate,
    **{name: _joint(question) for name, question in NUMBERS.items()},
}
