"""Several runs of both sides, and what they say together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax

from audit.diagnosis.explain import sentences
from audit.diagnosis.explain.broken_off import broken_off, ended, own_error
from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.findings import Covered, Explanation, Finding, Kind, ranked
from audit.diagnosis.explain.jaxprs.all_rounds import dear_together
from audit.diagnosis.explain.jaxprs.bare_answers import on_one_side
from audit.diagnosis.explain.jaxprs.clipping import SCALES, unbounded_releases
from audit.diagnosis.explain.jaxprs.drawn_once import ONCE
from audit.diagnosis.explain.jaxprs.equations import CannotFollowError
from audit.diagnosis.explain.jaxprs.facts import Idle
from audit.diagnosis.explain.jaxprs.few_answers import CHOSEN, COVERED_BY_CHOICE, same_answers
from audit.diagnosis.explain.jaxprs.further_looks import (
    EITHER_WAY,
    alone_in_its_batch,
    clipped_together,
    cut_too_late,
    looked_again,
)
from audit.diagnosis.explain.jaxprs.joint_law import not_drawn_one_by_one
from audit.diagnosis.explain.jaxprs.joint_releases import BARE, LATER, UNCOUNTED
from audit.diagnosis.explain.jaxprs.laplace_scale import cost_in_all, not_compared, too_small_scale
from audit.diagnosis.explain.jaxprs.left_out import left_out
from audit.diagnosis.explain.jaxprs.other_statistics import left_to_trials
from audit.diagnosis.explain.jaxprs.pairing import ONE_SIDE
from audit.diagnosis.explain.jaxprs.record_shares import Company
from audit.diagnosis.explain.jaxprs.rounds import (
    ROUNDS_TOGETHER,
    SHARED,
    by_round,
    pool,
    rounds_told,
    unsure,
)
from audit.diagnosis.explain.jaxprs.runs import Program, Run, is_short, run_once, traced
from audit.diagnosis.explain.jaxprs.sampled_batches import always_there, drawn_for_all, of_fixed_size, taken_too_often
from audit.diagnosis.explain.jaxprs.shown_noise import noise_beside
from audit.diagnosis.explain.jaxprs.too_little import short_leaves, too_little_noise
from audit.diagnosis.explain.places import NOWHERE, Place, spelled
from audit.diagnosis.explain.wrong_lengths import SLACK
from audit.trials.threefry import fold_in
from mechanisms.contract import Mechanism
from mechanisms.pairs.neighbours import Neighbours

KEYS = 3
"""Runs at least: a Poisson batch may leave the record out."""
MOST_KEYS = 16
"""Runs until one has the record in a batch."""
MOST_COMPARED = 2**20
"""Numbers in the outputs of code that is looked at among other records and on other batches, for want of time."""
UNTRACEABLE = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)


def follow(
    mechanism: Mechanism, neighbours: Neighbours, *, key: jax.Array, stated: Stated, brief: bool = False
) -> Explanation:
    """Replay a mechanism that JAX traces. [Tracer]

    A ``brief`` replay looks at short programs alone, and not again among other records and on other batches.
    """
    try:
        told = _followed(mechanism, neighbours, key, stated, brief)
        left = [one for one in told.findings if one.kind not in COVERED_BY_CHOICE]
        if len(left) == len(told.findings) or not same_answers(mechanism, neighbours, key, stated):
            return told
        return dataclasses.replace(told, findings=(*left, sentences.not_followed(CHOSEN)))
    except CannotFollowError as error:
        told = sentences.not_followed(error.why, error.at)
    except Exception as error:
        told = ended(error)
    return Explanation(findings=(told,))


def _followed(mechanism: Mechanism, neighbours: Neighbours, key: jax.Array, stated: Stated, brief: bool) -> Explanation:
    if mechanism.kind in ("collapsed", "collapsed_transcript"):
        why = f"{mechanism.name} draws sufficient statistics, not records"
        raise CannotFollowError(f"{why}; explain the simulator of full vectors instead", NOWHERE)
    try:
        program = traced(mechanism, neighbours, key, stated)
    except CannotFollowError:
        raise
    except Exception as error:
        # what JAX cannot trace runs all the same; everything else fails in an audit, too
        told = broken_off if isinstance(error, UNTRACEABLE) else own_error
        return Explanation(findings=(told(error),))
    if brief and not is_short(program):
        raise CannotFollowError(
            "without a violation so long a program is not replayed; `dpsgd-audit explain` replays it", NOWHERE
        )
    return _explained(program, key, stated, brief=brief)


def _explained(program: Program, key: jax.Array, stated: Stated, *, brief: bool) -> Explanation:
    runs: list[Run] = []
    compared = program.can_be_scaled and program.numbers <= MOST_COMPARED
    while not _enough(runs, KEYS if not brief and _drawn(runs) else 1):
        runs.append(run_once(program, fold_in(key, len(runs)), company=Company(None) if compared else None))
    while len(runs) < MOST_KEYS and unsure([run.lockstep.meetings.releases for run in runs], stated.due):
        runs.append(run_once(program, fold_in(key, len(runs)), company=Company(None) if compared else None))
    findings = [finding for run in runs for finding in run.lockstep.findings]
    # what one run cannot follow is judged by another that has the record and is followed to its end
    ends = [run for run in runs if all(one.kind != Kind.NOT_FOLLOWED for one in run.left)]
    followed = any(_largest(run) > 0 for run in ends)
    left = [one for run in runs for one in run.left if not (followed and one.kind == Kind.NOT_FOLLOWED)]
    findings += dict.fromkeys(left)
    pool([run.lockstep.meetings.releases for run in runs])
    best = _tells_most(runs)
    own, beside = fold_in(key, best), runs[best].lockstep.company
    shares = [Company(beside.shares) if beside is not None else None for _ in range(3)]
    grown, apart = [], []
    if program.can_be_scaled:
        grown = [run_once(program, own, scale=scale, company=shares.pop()) for scale in SCALES]
        # among records of one length a median, or a maximum, is the same with and without one of them
        apart = [run_once(program, own, others_apart=True, company=shares.pop())]
    findings += [one for run in apart for one in (*run.lockstep.findings, *run.left) if one.kind != Kind.NOT_FOLLOWED]
    unbounded = unbounded_releases(program, runs[best], grown, stated)
    findings += [one for run in grown for one in run.lockstep.findings if one.kind in SHOWN_WHEN_GROWN]
    findings += unbounded
    if compared and not TAKEN_TOGETHER & {one.kind for one in findings}:
        together = clipped_together(runs[best], apart[0], grown, stated.due)
        again = not (brief or together or _has_a_cause(findings))
        findings += looked_again(program, key, runs[best], stated.due) if again else together
    longest = grown[0] if grown else runs[best]
    # one leaf's noise says more than the mean over all of them
    short = short_leaves(by_round(program, longest).values(), stated.due)
    findings += short or too_little_noise(program, runs, stated) or dear_together(program, runs, stated.mu_of_all)
    findings += noise_beside(program, runs[best], stated)
    findings += too_small_scale(program, runs, stated.epsilon)
    beyond = not_compared(runs, stated.epsilon)
    of_laplace = stated.epsilon is not None and cost_in_all(runs) is not None
    if not _has_a_cause(findings):
        rounds = [releases for run in runs for releases in by_round(program, run).values()]
        findings += next((found for own in rounds if (found := left_out(own, stated.clip))), [])
    if program.can_be_scaled and not (brief or _has_a_cause(findings)):
        findings += cut_too_late(program, key, runs, stated)
    if not (brief or _has_a_cause(findings)):
        findings += alone_in_its_batch(program, own, runs, stated)
    if OTHER_REASONS.isdisjoint(one.kind for one in findings):
        often = taken_too_often(program, own, stated) or always_there(program, key, runs, stated)
        findings += often or drawn_for_all(program, key, runs, stated)
    releases = [one for run in runs for one in run.lockstep.meetings.releases]
    correlated = dict.fromkeys(one.draw for one in releases if one.correlated)
    why = "is made of random numbers in a way that is not followed: its coordinates may depend on one another"
    findings += [sentences.not_followed(f"the noise of {spelled(at)} {why}", at) for at in correlated]
    rounds = [releases for run in runs for releases in by_round(program, run).values()]
    whys = (ROUNDS_TOGETHER, SHARED, BARE, LATER, UNCOUNTED, ONE_SIDE)
    told = [(one.unknown, one.at) for own in rounds for one in own if one.unknown in whys]
    findings += [sentences.not_followed(f"{why}: {spelled(at)}", at) for why, at in dict.fromkeys(told)]
    unfollowed: dict[str, dict[Place, None]] = {}
    for why, at in (place for run in runs for place in run.lockstep.meetings.unfollowed):
        unfollowed.setdefault(why, {}).setdefault(at)
    findings += [sentences.not_followed(f"{why}: {', '.join(map(spelled, at))}", *at) for why, at in unfollowed.items()]
    findings += of_fixed_size(program, key, stated) if unfollowed else []
    if not (brief or _has_a_cause(findings) or any(run.lockstep.keyed_by_records for run in runs)):
        findings += not_drawn_one_by_one(program, own, runs, stated)
    if not _has_a_cause(findings):
        findings += beyond
        told = dict.fromkeys(one for run in runs for one in run.lockstep.meetings.idle)
        findings += _hidden_by_a_bound(program, own, list(told))
    if (carried := _carried_alone(runs)) is not None:
        findings.append(sentences.not_followed(sentences.carried_unseen(carried, len(runs)), carried))
    if not (brief or _has_a_cause(findings)):
        findings += on_one_side(program, key, runs[best], stated)
    coins = [run.lockstep.left_to_a_coin for run in runs if run.lockstep.left_to_a_coin is not None]
    if coins and not _has_a_cause(findings):
        findings.append(
            sentences.not_followed(f"a coin may choose data without noise at {spelled(coins[0])}", coins[0])
        )
    nothing = all(finding.kind == Kind.NOT_FOLLOWED for finding in findings)
    if nothing and runs[0].no_number:
        why = f"{runs[0].no_number} is no number (NaN), with and without the record: there is nothing to compare"
        findings.append(sentences.not_followed(why))
    elif nothing and not _joined(runs):
        # these claims have no batches
        in_full = stated.of_the_pair or stated.epsilon is not None
        seldom = "; it may have joined no batch" if _drawn(runs) and not in_full else ""
        why = f"the record moved nothing that is released in {len(runs)} runs{seldom}"
        if (constant := runs[0].lockstep.constant_choice) is not None:
            why += f": a number for each record is drawn from the constant key of {spelled(constant)}"
        if (rounded := runs[0].lockstep.rounded) is not None:
            why = f"what the record adds to the sum at {spelled(rounded)} cannot be told from that sum's rounding"
        if program.function.drew:
            why += f". {ONCE.rstrip('.')}"
        findings.append(sentences.not_followed(why))
    by_key = any(run.lockstep.draws for run in runs)
    findings = left_to_trials([program.function.told(one, by_key=by_key) for one in findings], runs, stated)
    return Explanation(
        findings=ranked(without_consequences(findings, bool(unfollowed))),
        rounds=rounds_told(program, runs, of_laplace=of_laplace),
        epsilon=None if beyond or not of_laplace else stated.epsilon,
        covered=Covered(
            draws=len(set().union(*(run.lockstep.draws for run in runs))),
            releases=len({(one.at, one.draw) for run in runs for one in run.lockstep.meetings.releases}),
            opaque=tuple(dict.fromkeys(what for run in runs for what in run.lockstep.opaque)),
        ),
    )


SHOWN_WHEN_GROWN = frozenset({Kind.NOISE_SCALE_FROM_DATA})
"""What a larger record shows more clearly; the rest is judged on the record as it is."""


SHORTER = 0.01
"""How much smaller all records are made where a bound hides what reads them."""
SHOWN_WHEN_SHORT = {Kind.NOISE_SCALE_FROM_DATA: sentences.NOISE, Kind.RECORDS_MIXED_BEFORE_SUM: sentences.RECORDS}
"""What is true of the code whatever its records are, and what raw data meet there."""


NO_NOISE = frozenset({Kind.NOISE_SCALE_FROM_DATA, Kind.RELEASED_WITHOUT_NOISE})
"""What an empty batch may show."""


OTHER_REASONS = frozenset(Kind) - {Kind.KEY_USED_TWICE, Kind.TOO_LITTLE_NOISE, Kind.NOT_FOLLOWED}
"""Findings for which a record may move a release whose batch does not hold it."""
FOLLOWING = {Kind.RECORDS_MIXED_BEFORE_SUM: 1, Kind.CHANGED_AFTER_RELEASE: 2}
"""What follows where a round has no noise, and the first lines that tell: where raw data come from."""
TAKEN_TOGETHER = frozenset({Kind.RECORDS_MIXED_BEFORE_SUM, Kind.CLIPPED_AFTER_SUM})


def _hidden_by_a_bound(program: Program, key: jax.Array, told: Sequence[Idle]) -> list[Finding]:
    """What reads raw data that are the same on both sides: shown by shorter records, or else not judged."""
    short = run_once(program, key, whole=SHORTER).lockstep.findings if told and program.can_be_scaled else {}
    findings: list[Finding] = []
    for one in told:
        more = f"{spelled(one.hidden)} hides it on this pair; records {1 / SHORTER:.0f} times smaller show it."
        shown = [found for found in short if SHOWN_WHEN_SHORT.get(found.kind) == one.meets]
        shown = [sentences.led(dataclasses.replace(found, says=f"{found.says} {more}"), one.hidden) for found in shown]
        shown = shown or (_beside_nobody(program, key, one) if one.meets == sentences.NOISE else [])
        findings += shown or [sentences.idle(one.at, one.hidden, meets=one.meets)]
    return list(dict.fromkeys(findings))


def _beside_nobody(program: Program, key: jax.Array, idle: Idle) -> list[Finding]:
    """That noise is scaled or left out where a batch holds nobody or the record alone: numbers keep the others out."""
    more = f"{spelled(idle.hidden)} hides it while others are in the batch; one without anybody else shows it."
    for own, others in EITHER_WAY:
        run = run_once(program, key, share=own, rest=others)
        found = [one for one in (*run.lockstep.findings, *run.left) if one.kind in NO_NOISE]
        if found and run.lockstep.forced is not None and run.lockstep.forced.draws:
            return [sentences.led(dataclasses.replace(found[0], says=f"{found[0].says} {more}"), idle.hidden)]
    return []


def _has_a_cause(findings: Sequence[Finding]) -> bool:
    return any(one.kind != Kind.NOT_FOLLOWED for one in findings)


def _largest(run: Run) -> float:
    return max((release.cost for release in run.lockstep.meetings.releases), default=0.0)


def _tells_most(runs: Sequence[Run]) -> int:
    """The run that the record moves furthest and, of those that it moves alike, at the most places."""
    least = (1 - SLACK) * max(map(_largest, runs))
    moved = [sum(release.cost > 0 for release in run.lockstep.meetings.releases) for run in runs]
    return max((number for number, run in enumerate(runs) if _largest(run) >= least), key=moved.__getitem__)


def _joined(runs: Sequence[Run]) -> bool:
    return any(_largest(run) > 0 or run.left for run in runs)


def _enough(runs: Sequence[Run], joined: int) -> bool:
    """Whether other keys would show no more: the record is in every release of so many runs, or there were many.

    What the record does to others shows where they are in its batch, so one run is not enough of drawn batches.
    """
    told = runs[-1].lockstep.meetings.releases if runs else []
    if len(runs) >= MOST_KEYS:
        return True
    untaken = [one for run in runs for one in run.lockstep.untaken.items()]
    unseen = (set.intersection(*(own for at, own in untaken if at == place)) for place, _ in untaken)
    if _carried_alone(runs) is not None or any(unseen):
        return False
    often = sum(_joined([run]) for run in runs) >= joined
    if often and told and all(release.exact and release.cost > 0 for release in told):
        return True
    return often and len(runs) >= KEYS


def _drawn(runs: Sequence[Run]) -> bool:
    """Whether batches are drawn."""
    return any(release.sampled for run in runs for release in run.lockstep.meetings.releases)


def _carried_alone(runs: Sequence[Run]) -> Place | None:
    """Where sums are carried into later rounds, if the record joined no later round of a run, too."""
    told = [one for run in runs for one in run.lockstep.meetings.releases if one.carried is not None]
    return None if not told or any(one.joined_again for one in told) else told[0].carried


def without_consequences(findings: Sequence[Finding], uncoupled: bool) -> list[Finding]:
    """Findings that are true of the code itself; ``uncoupled`` says that the two sides drew different batches."""
    if uncoupled:
        kept = {Kind.KEY_USED_TWICE, Kind.NOT_FOLLOWED, Kind.RANDOMNESS_FROM_DATA, Kind.SAMPLED_OTHERWISE}
        if all(finding.kind != Kind.RANDOMNESS_FROM_DATA for finding in findings):
            # a round that was followed has the noise that it has, whatever is not known of others
            kept |= {Kind.TOO_LITTLE_NOISE}
        return [finding for finding in findings if finding.kind in kept]
    # what later rounds read without noise is told of its leaf, whose finding has more lines
    without = [one for one in findings if one.kind == Kind.RELEASED_WITHOUT_NOISE]
    twice = [one for one in without if any(set(one.lines) < set(more.lines) for more in without)]
    findings = [one for one in findings if one not in twice]
    # what one step releases without noise changes every record of the next one
    # its lines: where its noise was taken from it, where others get theirs, and where it was summed
    bare = {frame for finding in findings if finding.kind == Kind.RELEASED_WITHOUT_NOISE for frame in finding.lines[:3]}
    findings = [
        finding
        for finding in findings
        if finding.kind not in FOLLOWING or not bare.intersection(finding.lines[: FOLLOWING[finding.kind]])
    ]
    kinds = {finding.kind for finding in findings}
    if kinds & TAKEN_TOGETHER:
        return [finding for finding in findings if finding.kind != Kind.NOT_CLIPPED]
    return list(findings)
