"""run_audit: the one function that wires mechanism, distinguisher, bounds and verdict together."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import jax
import numpy as np

from audit.bounds.clopper_pearson import require_risk
from audit.claim_fits_pair import require_matching, require_steps
from audit.diagnosis.after_verdict import explain
from audit.goal import Goal
from audit.policies.catalogue import default_policy
from audit.policies.foreseen import too_few
from audit.policies.policy import ALL_TARGETS, Policy, Target
from audit.record.derive import Audited, Subject, derive
from audit.record.environment import describe_environment, describe_key, seen_of_both
from audit.record.record import AuditRecord, Part, plain
from audit.trials.agreement import require_agreement
from audit.trials.both_sides import Auditable, is_foreign, steps_taken
from audit.trials.disk_cache import kept_in_sessions
from audit.trials.execution import USUAL, Execution
from audit.trials.fit_trials import draw_counter, learn
from audit.trials.keys import audit_keys, require_key
from audit.trials.repeats import Repeats
from audit.trials.session_progress import shown_in_sessions
from audit.trials.source import LAST_TRIAL, StaleCountsError, Tally, part_of, scores_in_time
from audit.trials.user_code_errors import contained, without_our_frames
from audit.verdict.verdict import VERDICTS, Verdict
from distinguishers.battery import default_battery
from distinguishers.contract import Distinguisher, Learner, pair_read
from distinguishers.contract import distinguisher as as_distinguisher
from guarantees.checks import IN_BODY, Delta, Share, checked, require
from guarantees.claim import Claim
from mechanisms.contract import mechanism as as_mechanism
from mechanisms.pairs.gradient_pairs import known_lengths
from mechanisms.pairs.neighbours import Neighbours


@without_our_frames
@shown_in_sessions
@kept_in_sessions()
@contained()
@checked
def run_audit(
    mechanism: Auditable | Callable[[jax.Array, Any], Any],
    neighbours: Annotated[Neighbours, IN_BODY],
    distinguisher: Distinguisher | Learner | Callable[..., jax.Array] | None = None,
    *,
    claim: Annotated[Claim, IN_BODY],
    trials: int,
    risk: Share,
    key: jax.Array,
    delta: Delta = 1e-5,
    policy: Policy | None = None,
    target: Target | None = None,
    name: str | None = None,
    expect: Verdict = "no_violation_found",
    diagnose: bool = True,
    execution: Execution = USUAL,
) -> AuditRecord:
    """Audit one mechanism against one claim: draw trials, count errors, bound the leakage, reach a verdict.

    The verdict is about this pair, these scores and this many trials. "No violation found" never means "private".
    The result depends on ``key`` and the statistical arguments alone, not on how the audit is executed.

    Args:
      mechanism: the code under audit: a JAX function ``(key, dataset) -> output``, or anything that ``mechanisms``
        builds.
      neighbours: the two datasets. Their relation must be one that the claim covers.
      distinguisher: scores each output: an object of ``distinguishers``, a function of an output (or of a key and an
        output), or a learner, which gets fit trials of its own. By default ``distinguishers.default_battery``.
      claim: the promised trade-off curve.
      trials: outputs drawn in total, half on each dataset; even. Fit trials come on top and are recorded.
      risk: probability that any statement of the record is wrong.
      key: made by ``jax.random.key``; every trial's randomness follows from it and the trial's number.
      delta: where epsilon is bounded and reported.
      policy: how thresholds are fixed. By default from theory where the distinguisher knows its curve, else on a split.
      target: spend (nearly) the whole risk on one number instead of sharing it among the verdict, epsilon and delta.
      name: what the record calls the audit; by default the mechanism's name.
      expect: the verdict that counts as a success in reports and exit codes.
      diagnose: after a violation, look at a few hundred outputs and record what looks wrong; otherwise replay the code
        and record lines that look wrong, or hints from the outputs of other code, which change no verdict.
      execution: where and how the trials are drawn: an ``audit.Execution`` with an executor, a deadline, a chunk size,
        a listener, or counts to continue from.

    Returns:
      The record: ``verdict``, ``epsilon(delta)``, ``delta(epsilon)``, ``mu``, ``diagnoses`` and all that repeats the
        audit.

    Raises:
      ValueError: an argument is out of range, or claim and pair do not fit; the message names it and the remedy.
      MechanismError: the mechanism itself failed; the message says on which dataset.
      NonFiniteScoreError: an output or a score is NaN or infinite; the message names the trial.

    Examples:
      >>> import audit, distinguishers, guarantees, jax, mechanisms
      >>> step, pair = mechanisms.gaussian_mechanism(noise_multiplier=1.0), mechanisms.scalar_pair()
      >>> score = distinguishers.likelihood_ratio(step, pair)
      >>> claim, key = guarantees.gaussian(mu=0.5), jax.random.key(0)  # the step is only 1-GDP
      >>> record = audit.run_audit(step, pair, score, claim=claim, trials=2000, risk=0.05, key=key, diagnose=False)
      >>> record.verdict
      'violation'
      >>> 0.5 < record.mu <= 1.0
      True
    """
    step = as_mechanism(mechanism)
    _check(
        step,
        neighbours,
        claim=claim,
        trials=trials,
        risk=risk,
        key=key,
        delta=delta,
        target=target,
        expect=expect,
        name=name,
    )
    given = default_battery(neighbours, mechanism=step) if distinguisher is None else as_distinguisher(distinguisher)
    _check_kind(step, given)
    goal, costly = Goal(claim=claim, delta=delta, trials_per_side=trials // 2, risk=risk), is_foreign(step)
    # trials of our own cost less than to know that they are too few
    if costly and expect == "no_violation_found":
        planned = policy or default_policy(None, trials)
        if few := too_few(planned if target is None else planned.aimed_at(target), goal):
            execution.foreseen(f"{name or step.name}: {few} `dpsgd-audit plan` says what a number of trials can show.")
    began, started = time.monotonic(), datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    keys = audit_keys(key)
    deadline, resume = execution.deadline, execution.resume
    both = execution.executor.sides(step, neighbours)
    taken = steps_taken(step, neighbours, both)
    require_steps(step, claim, taken)
    chosen, learnt_from = learn(
        given, both, trials=trials, key=keys.learn, costly=costly, deadline=deadline, fitting=execution.fitting
    )
    rule = policy if policy is not None else default_policy(chosen.curve, trials, costly=costly)
    rule = rule if target is None else rule.aimed_at(target)
    without, with_record = both.scored(chosen, chunk=execution.chunk, learnt=learnt_from > 0)

    fit_sides = without.source(keys.fit_without), with_record.source(keys.fit_with)
    fitted: list[np.ndarray] = []

    def fit_scores(count: int) -> tuple[np.ndarray, np.ndarray]:
        drew = draw_counter(execution.fitting, 2 * (count // 2))
        drawn = scores_in_time(*fit_sides, trials_per_side=count // 2, deadline=part_of(deadline), drew=drew)
        fitted[:] = drawn
        return drawn

    test = rule.fix(chosen.curve, fit_scores, goal)
    test = dataclasses.replace(test, fit_trials=test.fit_trials + learnt_from)
    sides = without.source(keys.without), with_record.source(keys.with_record)
    own = f"{test.digest} {trials}"
    if resume is not None and (resume.test not in ("", own) or resume.trials_per_side > goal.trials_per_side):
        raise StaleCountsError(
            "these counts were made with other edges, thresholds or planned trials than this audit has, and none of "
            "them may change afterwards; start a new audit."
        )

    def report(tally: Tally) -> None:
        execution.progress(dataclasses.replace(tally, test=own))

    repeats = Repeats(sides, test.edges, foreign=costly)
    same_again = repeats.again(deadline)
    if same_again and not costly:
        for side, scores, called in zip(fit_sides, fitted, ("without", "with"), strict=False):
            require_agreement(side, scores, test.edges, name=called)
    tally = rule.count(sides, test, goal, start=resume, deadline=deadline, report=report)
    if same_again and costly:
        # the trials came through: what fails now costs nothing
        with contextlib.suppress(Exception):
            same_again = repeats.again(deadline) is not False
    subject = Subject(
        name=name or step.name,
        expect=expect,
        mechanism=_part(step, step.kind),
        releases=step.releases,
        steps=taken,
        neighbours=_part(neighbours, neighbours.relation),
        distinguisher=_part(chosen),
        members=_distinct([member.name for member in chosen.members]),
        key=describe_key(key),
        trials_planned=trials,
        environment={
            **describe_environment(execution.executor.device, audited=step),
            **seen_of_both(step, neighbours),
        },
        started=started,
        seconds=0.0,
        diagnose=diagnose,
        repeatable=same_again,
        gradient_lengths=known_lengths(step, neighbours, pair_read(given)),
    )
    record = derive(Audited(subject=subject, policy=rule, goal=goal, test=test, tally=tally, theory=chosen.curve))
    record = dataclasses.replace(record, seconds=time.monotonic() - began)
    if not diagnose:
        return record
    read_as = pair_read(given)
    return explain(record, step, neighbours, key=key, deadline=deadline, sides=both, read_as=read_as, claim=claim)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Names by which a record finds its members again: the second of one name is numbered, and so on."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name} {number}" for number in itertools.count(2))
        found.append(name if name not in found else next(each for each in numbered if each not in found))
    return tuple(found)


def _check(
    step: Auditable,
    neighbours: Neighbours,
    *,
    claim: Claim,
    trials: int,
    risk: float,
    key: Any,
    delta: float,
    target: str | None,
    expect: str,
    name: str | None,
) -> None:
    """Refuse what cannot be audited, before anything is simulated."""
    require_key(key)
    require_risk(risk)
    require("delta", 0 <= delta < 1, "in [0, 1)", delta)
    require("trials", isinstance(trials, int) and trials >= 2, "an integer >= 2", trials)
    require("trials", trials % 2 == 0, "even (half are drawn on each dataset)", trials)
    require("trials", trials // 2 < LAST_TRIAL, f"below {2 * LAST_TRIAL}", trials)
    require("target", target is None or target in ALL_TARGETS, f"one of {ALL_TARGETS}", target)
    require("expect", expect in VERDICTS, f"one of {VERDICTS}", expect)
    require("name", name is None or isinstance(name, str), "a string", name)
    require_matching(step, neighbours, claim)


def _check_kind(step: Auditable, distinguisher: Distinguisher | Learner) -> None:
    """Refuse outputs that the distinguisher does not read; a learner reads whatever comes."""
    if isinstance(distinguisher, Learner):
        return
    if step.kind not in distinguisher.accepts and "any" not in distinguisher.accepts:
        raise ValueError(
            f"the distinguisher {distinguisher.name!r} reads {' or '.join(distinguisher.accepts)} outputs but the "
            f"mechanism {step.name!r} gives {step.kind} ones; choose another distinguisher or simulator."
        )


def _part(used: Auditable | Neighbours | Distinguisher, kind: str = "") -> Part:
    return Part(name=used.name, parameters=plain(used.parameters), kind=kind)
