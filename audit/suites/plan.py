"""Plan every audit of a suite before it is run."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import NamedTuple

import jax
import numpy as np

from audit.bounds.betting import pilot_thresholds
from audit.bounds.clopper_pearson import ErrorCounts
from audit.claim_fits_pair import require_steps
from audit.goal import Goal
from audit.planning import plan as planning
from audit.planning.plan import Plan, refutable
from audit.policies.catalogue import default_policy
from audit.policies.foreseen import too_few
from audit.policies.policy import Policy
from audit.power.less_noise import in_its_place, in_so_many_runs, sampled
from audit.suites.build import Built
from audit.trials.both_sides import both_sides, is_foreign, steps_taken
from audit.trials.fit_trials import fit_trials, learn
from audit.trials.foreign import BATCH_TRIALS
from audit.trials.keys import both_keys
from audit.trials.threefry import fold_in, split
from audit.trials.user_code_errors import contained
from distinguishers.battery import default_battery
from distinguishers.contract import Distinguisher, Learner, known_curve, pair_read
from guarantees.claim import Claim
from mechanisms.pairs.gradient_lengths import GradientLengths
from mechanisms.pairs.gradient_pairs import known_lengths

PILOT_TRIALS = 400
"""Outputs drawn and discarded if no exact curve is known, half on each dataset."""
PILOT_THRESHOLDS = 20
TIMED = (8, BATCH_TRIALS)
"""Sizes of batches that are timed after single trials, until one takes long enough."""
LONG_ENOUGH = 1.0
"""Seconds after which no larger batch is timed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditPlan:
    """What to expect of one audit, and how that is known."""

    name: str
    claim: str
    source: str
    """'exact curve' or 'pilot of n trials'."""
    plan: Plan
    trials_between: tuple[int, int | None] | None = None
    """Trials to prove a violation, at two standard errors of the pilot (None: no number); None without a pilot."""
    note: str = ""
    """What to know before any trial is drawn."""
    inconclusive: str = ""
    """How many trials are needed, if without a violation the planned ones can only end inconclusive."""
    finds: str = ""
    """For a Gaussian claim, or one about sampled batches: the noise that the trials would tell from the claimed one."""
    gradient_lengths: GradientLengths | None = None
    """Length of the differing record's gradient; None if unknown."""


class Timed(NamedTuple):
    """How long so many trials took on both datasets together."""

    trials: int
    seconds: float

    @property
    def pace(self) -> float:
        """Seconds per trial."""
        return self.seconds / self.trials


def timed_trials(audit: Built, *, key: jax.Array) -> Timed:
    """Time a batch of trials on each dataset, as large as in a run unless that takes a second or more.

    Two trials before it may still have to start or compile something. The fixed cost of a batch must not be counted for
    every trial: of a quick program it is most of what a single trial takes.
    """
    sides = both_sides(audit.mechanism, audit.neighbours)

    def timed(size: int) -> Timed:
        began = time.monotonic()
        sides.outputs(both_keys(fold_in(key, size)), size, size=size)
        return Timed(2 * size, time.monotonic() - began)

    sides.outputs(both_keys(fold_in(key, 0)), 1, size=1)
    result = timed(1)
    for size in TIMED:
        if result.seconds < LONG_ENOUGH:
            result = timed(size)
    return result


def note_on(audit: Built, *, risk: float, lengths: GradientLengths | None = None) -> str:
    """Say that counting cannot refute the claim at all, or that another record would show more; otherwise ""."""
    if refutable(audit.claim, trials_per_side=audit.spec.trials // 2, risk=risk):
        return f"{lengths.describe()}. {lengths.advice()}" if lengths is not None and lengths.is_short else ""
    return (
        f"{audit.spec.trials:,} trials cannot refute {audit.claim.describe()}: even an attack that never errs would "
        "not. More trials, a smaller claim (one step instead of a training, say), or conformance tests, which look at "
        "the noise itself."
    )


@contained()
def plan_audit(audit: Built, *, risk: float, key: jax.Array, power: float = 0.8) -> AuditPlan:
    """Plan one audit at its share of the suite's risk, by its distinguisher's exact curve or otherwise by a pilot.

    The pilot also times a trial. Its trials are discarded: the audit draws others, with another key.
    """
    step, pair = audit.mechanism, audit.neighbours
    require_steps(step, audit.claim, steps_taken(step, pair, both_sides(step, pair)))
    distinguisher = audit.distinguisher or default_battery(audit.neighbours, mechanism=audit.mechanism)
    scores, pace, learning_seconds = _run_pilot(audit, distinguisher, key)
    curve = known_curve(audit.distinguisher)
    curve_or_points = curve if curve is not None else planning.pilot_points(_counts(*scores))
    plan = planning.plan(
        audit.claim,
        curve_or_points,
        trials=audit.spec.trials,
        risk=risk,
        delta=audit.spec.delta,
        power=power,
        seconds_per_trial=pace,
        seconds_before=learning_seconds + pace * _fit_trials(audit),
    )
    refutation = plan.refutation
    trials_between = None
    if curve is None and refutation is not None and refutation.joint_trials and refutation.joint_point is not None:
        trials_between = planning.within_pilot_error(
            audit.claim, refutation.joint_point, trials=refutation.joint_trials, pilot_per_side=PILOT_TRIALS // 2
        )
    source = "exact curve" if curve is not None else f"pilot of {PILOT_TRIALS} trials"
    lengths = known_lengths(audit.mechanism, audit.neighbours, pair_read(distinguisher))
    return AuditPlan(
        name=audit.spec.name,
        claim=audit.claim.describe(),
        source=source,
        plan=plan,
        trials_between=trials_between,
        note=note_on(audit, risk=risk, lengths=lengths),
        inconclusive=_inconclusive(audit, risk),
        finds=_finds(audit.claim, plan),
        gradient_lengths=lengths,
    )


def _inconclusive(audit: Built, risk: float) -> str:
    """Say how many trials are needed if the planned ones can only end inconclusive; "" if they are enough."""
    spec = audit.spec
    if spec.expect != "no_violation_found":
        return ""
    rule = _policy(audit) if spec.target is None else _policy(audit).aimed_at(spec.target)  # type: ignore[arg-type]
    goal = Goal(claim=audit.claim, delta=spec.delta, trials_per_side=spec.trials // 2, risk=risk)
    return too_few(rule, goal) or ""


def _finds(claim: Claim, plan: Plan) -> str:
    """Say which noise the trials would find in place of the claimed one."""
    promised, noise, mu = sampled(claim), plan.smallest_leak.noise_multiplier, plan.smallest_leak.mu
    frequency = in_so_many_runs(plan.power)
    if claim.name == "gaussian" and claim.times == 1 and mu is not None:
        share = math.floor(100 * claim.parameters["mu"] / mu) / 100
        found = f"{share:g} of the promised noise, or less, with the best score and threshold"
        return f"{frequency} these trials find {found}."
    if promised is None:
        return ""
    found = "not even releases without any noise" if noise is None else in_its_place(noise, promised)
    return f"{frequency} these trials find {found}."


def trials_drawn(audit: Built) -> int:
    """All outputs of an audit: those that are judged, and those that choose scores and thresholds."""
    return audit.spec.trials + _learning_trials(audit) + _fit_trials(audit)


def trials_of_plan(audit: Built) -> int:
    """Outputs that planning draws: for learning, and for the pilot."""
    return _learning_trials(audit) + PILOT_TRIALS


def _learning_trials(audit: Built) -> int:
    """Number of outputs that scores are learned from."""
    distinguisher = audit.distinguisher or default_battery(audit.neighbours, mechanism=audit.mechanism)
    costly = is_foreign(audit.mechanism)
    return fit_trials(distinguisher, audit.spec.trials, costly=costly) if isinstance(distinguisher, Learner) else 0


def _fit_trials(audit: Built) -> int:
    """Number of outputs that thresholds are chosen on."""
    return _policy(audit).fit_trials


def _policy(audit: Built) -> Policy:
    """The policy of an audit, by default the one that suits its curve and cost."""
    curve = known_curve(audit.distinguisher)
    return audit.policy or default_policy(curve, audit.spec.trials, costly=is_foreign(audit.mechanism))


class _Pilot(NamedTuple):
    """Results of a pilot."""

    scores: tuple[np.ndarray, np.ndarray]
    pace: float
    """Seconds per trial, once everything is compiled."""
    before: float
    """Seconds to learn and compile the distinguisher, including the trials that it learns from."""


def _run_pilot(audit: Built, given: Distinguisher | Learner, key: jax.Array) -> _Pilot:
    """Draw, score and time a few trials."""
    both = both_sides(audit.mechanism, audit.neighbours)
    *side_keys, key_learn = split(key, 3)
    began = time.monotonic()
    costly = is_foreign(audit.mechanism)
    chosen, learnt_from = learn(given, both, trials=audit.spec.trials, key=key_learn, costly=costly)
    learning = time.monotonic() - began
    sides = both.scored(chosen, learnt=learnt_from > 0)
    sources = [side.source(side_key) for side, side_key in zip(sides, side_keys, strict=True)]
    half = PILOT_TRIALS // 2
    began = time.monotonic()
    if costly:
        # foreign code draws only what is asked for: the first batch compiles the score, the others are timed
        batch = min(sources[0].chunk, half // 2)
        beginning = sources[0].scores(0, batch)
        first, began = time.monotonic() - began, time.monotonic()
        without = np.concatenate([beginning, sources[0].scores(batch, half)])
        with_record = sources[1].scores(0, half)
        pace = (time.monotonic() - began) / (PILOT_TRIALS - batch)
        return _Pilot((without, with_record), pace, learning + max(0.0, first - batch * pace))
    scores = [source.scores(0, half) for source in sources]
    first = time.monotonic() - began
    # a few trials cost as much as a whole chunk, so a whole one is timed
    timed = max(half, sources[0].chunk)
    began = time.monotonic()
    sources[0].scores(half, half + timed)
    again = time.monotonic() - began
    # the first time includes compilation
    compiling = max(0.0, first - 2 * again)
    return _Pilot((scores[0], scores[1]), again / timed, learning + compiling)


def _counts(without: np.ndarray, with_record: np.ndarray) -> list[ErrorCounts]:
    """Errors at thresholds spread over the pilot scores of every member, in both directions."""
    found = []
    for without_scores, with_scores in zip(without.T, with_record.T, strict=True):
        for threshold in pilot_thresholds(without_scores, with_scores, PILOT_THRESHOLDS):
            above_without, above_with = int(np.sum(without_scores > threshold)), int(np.sum(with_scores > threshold))
            for alarms, misses in (
                (above_without, len(with_scores) - above_with),
                (len(without_scores) - above_without, above_with),
            ):
                found.append(
                    ErrorCounts(
                        false_alarms=alarms,
                        trials_without=len(without_scores),
                        misses=misses,
                        trials_with=len(with_scores),
                    )
                )
    return found
