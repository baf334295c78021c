"""run_audit: the one function that wires mechanism, distinguisher, bounds and verdict together."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from audit.bounds.clopper_pearson import require_risk
from audit.diagnosis.after import explain
from audit.policies.policy import ALL_TARGETS, Policy, Target
from audit.policies.registry import default_policy
from audit.record.assemble import Subject, assemble
from audit.record.record import AuditRecord, Part, plain
from audit.trials.both_sides import Auditable
from audit.trials.executor import LOCAL, Executor
from audit.trials.keys import audit_keys
from audit.trials.learning import learn
from audit.trials.source import LAST_TRIAL, StaleCountsError, Tally, part_of, scores_in_time
from audit.verdict.goal import Goal
from audit.verdict.verdict import Verdict
from distinguishers.battery import default_battery
from distinguishers.contract import Distinguisher, Learner
from distinguishers.contract import distinguisher as as_distinguisher
from guarantees.checks import require
from guarantees.claim import Claim
from mechanisms.contract import mechanism as as_mechanism
from mechanisms.neighbours import Neighbours

ONE_ROUND = ("subsampled_gaussian", "normalised_round", "revealed_round", "round_upper_bound")
"""Claims that are about one round, whoever makes them."""


def run_audit(
    mechanism: Auditable | Callable[[jax.Array, Any], Any],
    neighbours: Neighbours,
    distinguisher: Distinguisher | Learner | Callable[..., jax.Array] | None = None,
    *,
    claim: Claim,
    trials: int,
    risk: float,
    key: jax.Array,
    delta: float = 1e-5,
    policy: Policy | None = None,
    target: Target | None = None,
    name: str | None = None,
    expect: Verdict = "no_violation_found",
    chunk: int | None = None,
    deadline: float | None = None,
    progress: Callable[[Tally], None] = lambda _: None,
    resume: Tally | None = None,
    diagnose: bool = True,
    executor: Executor = LOCAL,
) -> AuditRecord:
    """Audit one mechanism against one claim.

    ``trials`` outputs are drawn in total, half on each dataset; fit trials come on top and are recorded.
    ``distinguisher`` is one, a plain function of an output (or of a key and an output), or a learner, which is given
    fit trials of its own; without it, ``distinguishers.default_battery`` takes what is known and learns the rest.
    ``policy`` says how thresholds are fixed (default: from theory where the distinguisher knows its curve,
    otherwise on a split); ``target`` spends (nearly) the whole risk on one number instead of three.
    ``deadline`` (a time.monotonic() value) may end the audit with fewer trials; it never looks at the data.
    ``resume`` continues a count that ``progress`` reported earlier, with the same arguments.
    ``diagnose`` draws a few hundred more outputs after a violation and puts what looks wrong into the record.
    ``executor`` draws the trials elsewhere (``audit.dask_executor``); where does not change what they are.
    """
    step = as_mechanism(mechanism)
    _check(step, neighbours, claim=claim, trials=trials, risk=risk, key=key, delta=delta, target=target)
    given = default_battery(neighbours, mechanism=step) if distinguisher is None else as_distinguisher(distinguisher)
    _check_kind(step, given)
    began, started = time.monotonic(), datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    keys = audit_keys(key)
    both = executor.sides(step, neighbours)
    chosen, learnt_from = learn(given, both, trials=trials, key=keys.learn, deadline=deadline)
    rule = policy if policy is not None else default_policy(chosen.curve, trials)
    rule = rule if target is None else rule.aimed_at(target)
    goal = Goal(claim=claim, delta=delta, trials_per_side=trials // 2, risk=risk)
    without, with_record = both.scored(chosen, chunk=chunk, learnt=learnt_from > 0)

    def fit_scores(count: int) -> tuple[np.ndarray, np.ndarray]:
        sources = without.source(keys.fit_without), with_record.source(keys.fit_with)
        return scores_in_time(*sources, trials_per_side=count // 2, deadline=part_of(deadline))

    test = rule.fix(chosen.curve, fit_scores, goal)
    test = dataclasses.replace(test, fit_trials=test.fit_trials + learnt_from)
    sides = without.source(keys.without), with_record.source(keys.with_record)
    own = f"{test.digest} {trials}"
    if resume is not None and (resume.test not in ("", own) or resume.trials_per_side > goal.trials_per_side):
        raise StaleCountsError(
            "these counts belong to other edges or thresholds than this audit's, or to another number of planned "
            "trials, which is never changed afterwards; start anew."
        )

    def report(tally: Tally) -> None:
        progress(dataclasses.replace(tally, test=own))

    tally = rule.count(sides, test, goal, start=resume, deadline=deadline, report=report)
    finding = rule.judge(tally, test, goal)
    subject = Subject(
        name=name or step.name,
        expect=expect,
        mechanism=_part(step, step.kind),
        releases=step.releases,
        neighbours=_part(neighbours, neighbours.relation),
        distinguisher=_part(chosen),
        members=tuple(member.name for member in chosen.members),
        theory=chosen.curve,
        key=key,
        trials_planned=trials,
        device=executor.device,
        started=started,
    )
    record = assemble(subject, rule, goal, test, tally, finding, seconds=time.monotonic() - began)
    if not diagnose:
        return record
    return explain(record, step, neighbours, key=key, deadline=deadline, executor=executor)


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
) -> None:
    """Refuse what cannot be audited, before anything is simulated."""
    if not (hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(f"key must be made with jax.random.key(seed), got {key!r}.")
    require_risk(risk)
    require("delta", 0 <= delta < 1, "in [0, 1)", delta)
    require("trials", isinstance(trials, int) and trials >= 2, "an integer >= 2", trials)
    require("trials", trials % 2 == 0, "even (half are drawn on each dataset)", trials)
    require("trials", trials // 2 < LAST_TRIAL, f"below {2 * LAST_TRIAL}", trials)
    if not isinstance(neighbours, Neighbours):
        raise TypeError(
            f"neighbours must be a pair of datasets, got {type(neighbours).__name__}; build it with "
            "mechanisms.pair(without, with_record), add_record, replace_record or zero_out."
        )
    if not isinstance(claim, Claim):
        raise TypeError(
            f"claim must be one of guarantees, got {type(claim).__name__}; an accountant's numbers become one by "
            "guarantees.claim_from_table([(epsilon, delta)])."
        )
    require("target", target is None or target in ALL_TARGETS, f"one of {ALL_TARGETS}", target)
    if not claim.covers(neighbours.relation):
        raise ValueError(
            f"the claim is for {claim.relation} neighbours but the pair differs by {neighbours.relation}; "
            f"build the pair with relation={claim.relation!r} or restate the claim."
        )
    if claim.group < neighbours.group:
        raise ValueError(
            f"the claim is about {claim.group} differing record(s) but the pair differs in {neighbours.group}; "
            f"state the claim for group={neighbours.group}, or build the pair with group={claim.group}."
        )
    _check_unit(step, neighbours, claim)


def _check_kind(step: Auditable, distinguisher: Distinguisher | Learner) -> None:
    """Refuse outputs that the distinguisher does not read; a learner reads whatever comes."""
    if isinstance(distinguisher, Learner):
        return
    if step.kind not in distinguisher.accepts and "any" not in distinguisher.accepts:
        raise ValueError(
            f"the distinguisher {distinguisher.name!r} reads {' or '.join(distinguisher.accepts)} outputs but the "
            f"mechanism {step.name!r} gives {step.kind} ones; choose another distinguisher or simulator."
        )


def _check_unit(step: Auditable, neighbours: Neighbours, claim: Claim) -> None:
    """An update is judged against one step's claim, everything else against the whole training's.

    A training's claim allows a step too much and would hide its leak; a step's promises too much for a training.
    """
    own = claim.parameters.get("steps", claim.parameters.get("rounds"))
    several = claim.times > 1 or (claim.unit != "step" and own != 1)
    if step.releases == "update" and several:
        raise ValueError(
            f"the claim {claim.describe()} is about more than one step, and {step.name!r} releases one step's update; "
            "judge it against one step's claim, or release the whole training: releases='transcript' or 'final'."
        )
    rounds = getattr(step, "rounds", None)
    one = rounds is not None and neighbours.records_without is not None and rounds(neighbours.records_without) == 1
    if step.releases != "update" and not one and not several and claim.name in ONE_ROUND:
        raise ValueError(
            f"the claim {claim.describe()} is about one step, and {step.name!r} releases a training's {step.releases}; "
            "judge that against the claim's .compose(steps), or release one step: releases='update'."
        )


def _part(used: Auditable | Neighbours | Distinguisher, kind: str = "") -> Part:
    return Part(name=used.name, parameters=plain(used.parameters), kind=kind)
