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
from audit.policies import anytime
from audit.policies import policy as thresholds
from audit.policies.policy import Anytime, Candidates, Cut, Fixed, FromTheory, Goal, Policy, Simultaneous, Split, Target
from audit.record.assemble import Subject, write_record
from audit.record.record import AuditRecord, Part, plain
from audit.trials import source, traced
from audit.trials.foreign import batch_programs
from audit.verdict.verdict import Outcome
from distinguishers.contract import Distinguisher
from guarantees.checks import require
from guarantees.claim import Claim
from guarantees.trade_off import TradeOff
from mechanisms.contract import BatchMechanism, Mechanism
from mechanisms.contract import mechanism as as_mechanism
from mechanisms.neighbours import Neighbours

GRID_EDGES = 200
PILOT_TRIALS = 1000
"""Trials drawn and thrown away to lay out the grid of scores where no theory does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Test:
    """What will be judged, all of it fixed before the trials that judge it."""

    cuts: tuple[Cut, ...]
    edges: np.ndarray
    fit_trials: int


def run_audit(
    mechanism: Mechanism | BatchMechanism | Callable[[jax.Array, Any], Any],
    neighbours: Neighbours,
    distinguisher: Distinguisher | None = None,
    *,
    claim: Claim,
    trials: int,
    risk: float,
    key: jax.Array,
    delta: float = 1e-5,
    policy: Policy | None = None,
    target: Target | None = None,
    name: str | None = None,
    expect: Outcome = "no_violation_found",
    chunk: int | None = None,
    deadline: float | None = None,
    progress: Callable[[source.Tally], None] = lambda _: None,
    resume: source.Tally | None = None,
    diagnose: bool = True,
) -> AuditRecord:
    """Audit one mechanism against one claim.

    ``trials`` outputs are drawn in total, half on each dataset; fit trials come on top and are recorded.
    ``policy`` says how thresholds are fixed (default: from theory where the distinguisher knows its curve,
    otherwise on a split); ``target`` spends the whole risk on one number instead of three.
    ``deadline`` (a time.monotonic() value) may end the audit with fewer trials; it never looks at the data.
    ``resume`` continues a count that ``progress`` reported earlier, with the same arguments.
    ``diagnose`` draws a few hundred more outputs after a violation and puts what looks wrong into the record.
    """
    step = mechanism if isinstance(mechanism, Mechanism | BatchMechanism) else as_mechanism(mechanism)
    chosen = distinguisher if distinguisher is not None else _battery(neighbours, step)
    _check(step, neighbours, chosen, claim=claim, trials=trials, risk=risk, key=key, delta=delta)
    rule = _with_target(policy or _default_policy(chosen, trials), target)
    began = time.monotonic()
    key_fit_without, key_fit_with, key_without, key_with = jax.random.split(key, 4)
    goal = Goal(claim=claim, delta=delta, trials_per_side=trials // 2, risk=risk)

    def program(side: str, dataset: Any) -> traced.Program:
        assert isinstance(step, Mechanism)
        return traced.compile_program(step, dataset, chosen, side=side, chunk=chunk)

    if isinstance(step, BatchMechanism):
        without, with_record = batch_programs(step, neighbours, chosen, chunk=chunk)
    else:
        without, with_record = program("without", neighbours.without), program("with", neighbours.with_record)

    def fit_scores(count: int) -> tuple[np.ndarray, np.ndarray]:
        half = count // 2
        return without.source(key_fit_without).scores(0, half), with_record.source(key_fit_with).scores(0, half)

    subject = Subject(
        name=name or step.name,
        expect=expect,
        mechanism=_part(step, step.kind),
        neighbours=_part(neighbours, neighbours.relation),
        distinguisher=_part(chosen),
        members=member_names(chosen),
        theory=chosen.curve,
        key=key,
        trials_planned=trials,
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    test = fix_test(rule, chosen.curve, fit_scores, goal)
    sides = without.source(key_without), with_record.source(key_with)
    if isinstance(rule, Anytime):
        tally = anytime.tally_anytime(
            *sides, edges=test.edges, cuts=test.cuts, goal=goal, start=resume, deadline=deadline, report=progress
        )
    else:
        tally = source.tally(
            *sides,
            edges=test.edges,
            trials_per_side=goal.trials_per_side,
            start=resume,
            deadline=deadline,
            report=progress,
        )
    record = write_record(
        subject,
        tally,
        edges=test.edges,
        cuts=test.cuts,
        fit_trials=test.fit_trials,
        policy=rule,
        goal=goal,
        seconds=time.monotonic() - began,
    )
    return explain(record, step, neighbours, key=key, deadline=deadline) if diagnose else record


def fix_test(
    rule: Policy,
    curve: TradeOff | None,
    fit_scores: Callable[[int], tuple[np.ndarray, np.ndarray]],
    goal: Goal,
) -> Test:
    """Decide thresholds and the grid of scores, from theory or from trials that are then thrown away."""
    use_theory = curve is not None and not isinstance(rule, Split)
    fit_trials = 0 if use_theory else _fit_trials(rule)
    if isinstance(rule, FromTheory) and curve is None:
        raise ValueError(
            "a threshold from theory needs a distinguisher whose exact curve is known (likelihood_ratio on aligned "
            "gradients); use Split() or Fixed(thresholds=...) instead."
        )
    if use_theory:
        assert curve is not None
        pilot, candidates, members = None, thresholds.from_curve(curve), 1
    else:
        pilot = fit_scores(fit_trials)
        candidates, members = thresholds.from_fit(*pilot), pilot[0].shape[1]
    if isinstance(rule, Anytime):
        cuts = anytime.fix_cuts(rule, curve, pilot, goal)
    else:
        cuts = _cuts(rule, candidates, members, goal)
    edges = _grid(candidates, members, cuts)
    if isinstance(rule, Simultaneous):
        # one cut per edge, judged all together: the risk of each is that of its member's whole band
        share = goal.risk / members
        cuts = tuple(
            Cut(target="band", member=m, threshold=float(t), rejects="above", risk=share)
            for m in range(members)
            for t in edges[m]
        )
    return Test(cuts=cuts, edges=edges, fit_trials=fit_trials)


def _fit_trials(rule: Policy) -> int:
    if isinstance(rule, Anytime):
        return rule.pilot_trials
    return rule.fit_trials if isinstance(rule, Split) else PILOT_TRIALS


def _cuts(
    rule: Fixed | FromTheory | Split | Simultaneous, candidates: Candidates, members: int, goal: Goal
) -> tuple[Cut, ...]:
    if isinstance(rule, Fixed):
        share = goal.risk / (members * len(rule.thresholds))
        return tuple(
            Cut(target="fixed", member=m, threshold=float(np.float32(t)), rejects="above", risk=share)
            for m in range(members)
            for t in rule.thresholds
        )
    if isinstance(rule, Simultaneous):
        return ()
    shared = dataclasses.replace(goal, risk=goal.risk / len(rule.targets))
    return tuple(thresholds.choose(candidates, target, shared) for target in rule.targets)


def _grid(candidates: Candidates, members: int, cuts: tuple[Cut, ...]) -> np.ndarray:
    """Float32 edges for every member: spread over the candidates, with every cut among them."""
    rows = []
    for member in range(members):
        spread = np.unique(candidates.threshold[candidates.member == member].astype(np.float32))
        keep = np.unique(np.linspace(0, len(spread) - 1, GRID_EDGES).astype(int))
        own = np.array([cut.threshold for cut in cuts if cut.member == member], np.float32)
        rows.append(np.unique(np.concatenate([spread[keep], own])))
    width = max(len(row) for row in rows)
    # rows of a grid have one length: the last edge is repeated, which adds empty cells only
    return np.stack([np.pad(row, (0, width - len(row)), mode="edge") for row in rows])


def _default_policy(distinguisher: Distinguisher, trials: int) -> Policy:
    if distinguisher.curve is not None:
        return FromTheory()
    return Split(fit_trials=max(1000, 2 * (trials // 20)) if trials < 10**6 else 100_000)


def _with_target(rule: Policy, target: Target | None) -> Policy:
    if target is None:
        return rule
    require("target", target in thresholds.TARGETS, f"one of {thresholds.TARGETS}", target)
    if not isinstance(rule, FromTheory | Split):
        raise ValueError(f"target= chooses a threshold, and the policy {rule.kind!r} has fixed its own; drop one.")
    return dataclasses.replace(rule, targets=(target,))


def _battery(neighbours: Neighbours, step: Mechanism | BatchMechanism) -> Distinguisher:
    from distinguishers import battery

    return battery(neighbours, mechanism=step)


def _check(
    step: Mechanism | BatchMechanism,
    neighbours: Neighbours,
    distinguisher: Distinguisher,
    *,
    claim: Claim,
    trials: int,
    risk: float,
    key: Any,
    delta: float,
) -> None:
    """Refuse what cannot be audited, before anything is simulated."""
    if not (hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(f"key must be made with jax.random.key(seed), got {key!r}.")
    require_risk(risk)
    require("delta", 0 <= delta < 1, "in [0, 1)", delta)
    require("trials", isinstance(trials, int) and trials >= 2, "an integer >= 2", trials)
    require("trials", trials % 2 == 0, "even (half are drawn on each dataset)", trials)
    require("trials", trials // 2 < source.LAST_TRIAL, f"below {2 * source.LAST_TRIAL}", trials)
    if not claim.covers(neighbours.relation):
        raise ValueError(
            f"the claim is for {claim.relation} neighbours but the pair differs by {neighbours.relation}; "
            f"build the pair with relation={claim.relation!r} or restate the claim."
        )
    if step.kind not in distinguisher.accepts and "any" not in distinguisher.accepts:
        raise ValueError(
            f"the distinguisher {distinguisher.name!r} reads {' or '.join(distinguisher.accepts)} outputs but the "
            f"mechanism {step.name!r} gives {step.kind} ones; choose another distinguisher or simulator."
        )


def member_names(distinguisher: Distinguisher) -> tuple[str, ...]:
    """Names of the scores that a distinguisher gives: its own, or its members'."""
    members = getattr(distinguisher, "members", None)
    return tuple(member.name for member in members) if members else (distinguisher.name,)


def _part(used: Mechanism | BatchMechanism | Neighbours | Distinguisher, kind: str = "") -> Part:
    return Part(name=used.name, parameters=plain(used.parameters), kind=kind)
