"""Several runs of both sides, and what they say together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from audit.diagnosis.explain.dispatch import Stated, implied_bound
from audit.diagnosis.explain.findings import (
    Covered,
    Explanation,
    Finding,
    Kind,
    Round,
    after_sum,
    broken_off,
    carried_unseen,
    due_on_the_pair,
    earlier_rounds,
    found,
    not_followed,
    own_error,
    ranked,
    too_far,
    too_little,
)
from audit.diagnosis.explain.jaxprs.clipped_parts import parts_apart
from audit.diagnosis.explain.jaxprs.group_clipping import GROWN, SCALES, clipped_together, looked_again
from audit.diagnosis.explain.jaxprs.interpreter import CannotFollowError
from audit.diagnosis.explain.jaxprs.record_shares import Company
from audit.diagnosis.explain.jaxprs.runs import Program, Run, is_short, listed, run_once, traced
from audit.diagnosis.explain.jaxprs.sampled_batches import always_there
from audit.diagnosis.explain.jaxprs.uneven_noise import short_leaves
from audit.diagnosis.explain.jaxprs.value import Release, Weight
from audit.diagnosis.explain.places import Frame, Place, among_records, spelled
from audit.trials.threefry import fold_in
from mechanisms.contract import Mechanism
from mechanisms.pairs.neighbours import Neighbours

KEYS = 3
"""Runs at least: a Poisson batch may leave the record out."""
MOST_KEYS = 16
"""Runs until one has the record in a batch."""
MOST_COMPARED = 2**20
"""Numbers in the outputs of code that is looked at among other records and on other batches, for want of time."""
SLACK = 0.02
"""By which a multiplier may fall short of the stated one: rounding, and the first digits of a stated number."""
GUESSED_SLACK = 0.06
UNTRACEABLE = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)
CORRELATED = "what a round costs depends on the others"


def follow(
    mechanism: Mechanism, neighbours: Neighbours, *, key: jax.Array, stated: Stated, brief: bool = False
) -> Explanation:
    """Replay a mechanism that JAX traces. [Tracer]

    A ``brief`` replay looks at short programs alone, and not again among other records and on other batches.
    """
    if mechanism.kind in ("collapsed", "collapsed_transcript"):
        why = (
            f"{mechanism.name} draws sufficient statistics, not records; explain the simulator of full vectors instead"
        )
        return Explanation(findings=(not_followed(why),), covered=Covered(opaque=(mechanism.name,)))
    try:
        program = traced(mechanism, neighbours, key)
    except CannotFollowError as error:
        return Explanation(findings=(not_followed(error.why, error.at),))
    except Exception as error:
        # what JAX cannot trace runs all the same; everything else fails in an audit, too
        told = broken_off if isinstance(error, UNTRACEABLE) else own_error
        return Explanation(findings=(told(error),))
    if brief and not is_short(program):
        return Explanation(findings=(not_followed("its program is too long for a brief replay"),))
    try:
        return _explained(program, key, stated, brief=brief)
    except CannotFollowError as error:
        return Explanation(findings=(not_followed(error.why, error.at),))
    except Exception as error:
        return Explanation(findings=(broken_off(error),))


def _explained(program: Program, key: jax.Array, stated: Stated, *, brief: bool) -> Explanation:
    runs: list[Run] = []
    compared = program.can_be_scaled and program.numbers <= MOST_COMPARED
    while not _enough(runs):
        runs.append(run_once(program, fold_in(key, len(runs)), company=Company(None) if compared else None))
    findings = [finding for run in runs for finding in run.lockstep.findings]
    findings += dict.fromkeys(finding for run in runs for finding in run.left)
    _pool([run.lockstep.meetings.releases for run in runs])
    best = max(range(len(runs)), key=lambda number: _largest(runs[number]))
    own, beside = fold_in(key, best), runs[best].lockstep.company
    shares = [Company(beside.shares) if beside is not None else None for _ in range(3)]
    grown, apart = [], []
    if program.can_be_scaled:
        grown = [run_once(program, own, scale=scale, company=shares.pop()) for scale in SCALES]
        # among records of one length a median, or a maximum, is the same with and without one of them
        apart = [run_once(program, own, others_apart=True, company=shares.pop())]
    findings += [one for run in apart for one in (*run.lockstep.findings, *run.left) if one.kind != Kind.NOT_FOLLOWED]
    unbounded = _unbounded(program, runs[best], grown, stated)
    findings += [one for run in grown for one in run.lockstep.findings if one.kind in SHOWN_WHEN_GROWN]
    findings += unbounded
    if compared and not TAKEN_TOGETHER & {one.kind for one in findings}:
        together = clipped_together(runs[best], apart[0], grown, stated.due)
        again = not (brief or together or _has_a_cause(findings))
        findings += looked_again(program, key, runs[best], stated.due) if again else together
    longest = grown[0] if grown else runs[best]
    # one leaf's noise says more than the mean over all of them
    short = short_leaves(_by_round(program, longest).values(), stated.due)
    findings += short or _too_little(program, runs, stated)
    if stated.rate is not None and OTHER_REASONS.isdisjoint(one.kind for one in findings):
        findings += always_there(program, key, runs, stated.rate)
    correlated = dict.fromkeys(one.draw for run in runs for one in run.lockstep.meetings.releases if one.correlated)
    findings += [not_followed(f"the noise of {spelled(at)} is correlated, and {CORRELATED}", at) for at in correlated]
    unfollowed = dict.fromkeys(place for run in runs for place in run.lockstep.meetings.unfollowed)
    findings += [not_followed(f"{why}: {spelled(at)}", at) for why, at in unfollowed]
    if (carried := _carried_alone(runs)) is not None:
        findings.append(not_followed(carried_unseen(carried, len(runs)), carried))
    if not _joined(runs) and not any(finding.kind != Kind.NOT_FOLLOWED for finding in findings):
        why = f"the record moved nothing that is released in {len(runs)} runs; it may have joined no batch"
        if (constant := runs[0].lockstep.constant_choice) is not None:
            why += f": a number for each record is drawn from the constant key of {spelled(constant)}"
        findings.append(not_followed(why))
    return Explanation(
        findings=ranked(_without_consequences(findings, bool(unfollowed))),
        rounds=_rounds(program, runs),
        covered=Covered(
            draws=len(set().union(*(run.lockstep.draws for run in runs))),
            releases=len({(one.at, one.draw) for run in runs for one in run.lockstep.meetings.releases}),
            opaque=tuple(dict.fromkeys(what for run in runs for what in run.lockstep.opaque)),
        ),
    )


SHOWN_WHEN_GROWN = frozenset({Kind.NOISE_SCALE_FROM_DATA})
"""What a larger record shows more clearly; the rest is judged on the record as it is."""


OTHER_REASONS = frozenset(Kind) - {Kind.KEY_USED_TWICE, Kind.TOO_LITTLE_NOISE, Kind.NOT_FOLLOWED}
"""Findings for which a record may move a release whose batch does not hold it."""
TAKEN_TOGETHER = frozenset({Kind.RECORDS_MIXED_BEFORE_SUM, Kind.CLIPPED_AFTER_SUM})


def _has_a_cause(findings: Sequence[Finding]) -> bool:
    return any(one.kind != Kind.NOT_FOLLOWED for one in findings)


def _largest(run: Run) -> float:
    return max((release.cost for release in run.lockstep.meetings.releases), default=0.0)


def _joined(runs: Sequence[Run]) -> bool:
    return any(_largest(run) > 0 or run.left for run in runs)


def _enough(runs: Sequence[Run]) -> bool:
    """Whether other keys would show no more: the record is in every release of a run, or there were many."""
    told = runs[-1].lockstep.meetings.releases if runs else []
    if len(runs) >= MOST_KEYS:
        return True
    if _carried_alone(runs) is not None:
        return False
    if told and all(release.exact and release.cost > 0 for release in told):
        return True
    return len(runs) >= KEYS and _joined(runs)


def _carried_alone(runs: Sequence[Run]) -> Place | None:
    """Where sums are carried into later rounds, if the record joined no later round of a run, too."""
    told = [one for run in runs for one in run.lockstep.meetings.releases if one.carried is not None]
    return None if not told or any(one.joined_again for one in told) else told[0].carried


def _pool(runs: Sequence[Sequence[Release]]) -> None:
    """Deviations that no equation tells are estimated from the draws of all runs together."""
    if len({len(releases) for releases in runs}) != 1:
        return
    for same in zip(*runs, strict=True):
        if not any(release.exact for release in same):
            variance = np.mean([np.mean(release.variance) for release in same])
            for release in same:
                release.variance, release.drawn = np.full(release.moved.shape, variance), release.drawn * len(same)


def _by_round(program: Program, run: Run) -> dict[tuple[Any, ...], list[Release]]:
    rounds: dict[tuple[Any, ...], list[Release]] = {}
    meetings = run.lockstep.meetings
    for release in meetings.together.charged(meetings.releases):
        rounds.setdefault(release.round, []).append(release)
    return _unrolled(program.rounds, rounds) if len(rounds) == 1 < program.rounds else rounds


def _unrolled(number: int, rounds: dict[tuple[Any, ...], list[Release]]) -> dict[tuple[Any, ...], list[Release]]:
    """The rounds of a loop in Python whose steps do not read one another; their releases come in the loop's order."""
    (name, releases), size = next(iter(rounds.items())), sum(map(len, rounds.values())) // number
    parts = [releases[start : start + size] for start in range(0, size * number, size)] if size else []
    shapes = {tuple(release.moved.shape for release in part) for part in parts}
    if size * number == len(releases) and len(shapes) == 1:
        return {(*name, step): part for step, part in enumerate(parts)}
    why = "the rounds of its transcript cannot be told apart"
    return {name: [dataclasses.replace(one, unknown=one.unknown or why) for one in releases]}


def _is_judged(releases: Sequence[Release]) -> bool:
    return not any(release.unknown for release in releases)


def _cost(releases: Sequence[Release]) -> float:
    return float(np.sqrt(sum(release.cost**2 for release in releases)))


def _sensitivity(releases: Sequence[Release]) -> float:
    return float(np.sqrt(sum(np.sum(np.square(one.moved)) for one in releases)))


def _deviation(releases: Sequence[Release]) -> float:
    return float(np.sqrt(np.mean(np.concatenate([one.variance.ravel() for one in releases]))))


def _rounds(program: Program, runs: Sequence[Run]) -> tuple[Round, ...]:
    """Of every round the run in which it cost most, among those in which all of it was followed if there are any."""
    worst: dict[tuple[Any, ...], list[Release]] = {}

    def rank(releases: Sequence[Release]) -> tuple[bool, float]:
        return _is_judged(releases), _cost(releases)

    for run in runs:
        for number, releases in _by_round(program, run).items():
            if number not in worst or rank(releases) > rank(worst[number]):
                worst[number] = releases
    told = []
    for number, releases in enumerate(worst.values(), start=1):
        top, cost = max(releases, key=lambda release: release.cost), _cost(releases)
        told.append(
            Round(
                number=number,
                sensitivity=_sensitivity(releases),
                noise_deviation=_deviation(releases),
                multiplier=1 / cost if cost else float("inf"),
                lines=(*top.at.own[:1], *top.at.library),
                exact=all(one.exact for one in releases),
                judged=_is_judged(releases),
            )
        )
    return tuple(told)


def _unbounded(program: Program, plain: Run, grown: Sequence[Run], stated: Stated) -> list[Finding]:
    """Releases that move further with every larger record, and sums that do but are bounded after the sum.

    A gradient may vanish at one size of a record and not at a larger one, so each is compared with the record as it is,
    too, and what stays within the promise is bounded.
    """
    if len(grown) < len(SCALES):
        return []
    known, less, more = (run.lockstep.meetings.releases for run in (plain, *grown))
    if not len(known) == len(less) == len(more):
        return []
    allowed = (1 + SLACK) / stated.due if stated.due else 0.0
    usual = max((release.cost for release in known), default=0.0)
    after: dict[Place, Place] = {}
    bounded: list[tuple[Release, Release]] = []
    unbounded: dict[tuple[Place, Place], list[tuple[Release, Release]]] = {}
    for base, small, large in zip(known, less, more, strict=True):
        if small.unknown or not small.cost or not np.isfinite(large.cost):
            continue
        origin = small.origin if isinstance(small.origin, Place) else small.at
        if large.cost > max(GROWN * small.cost, GROWN * usual, allowed):
            unbounded.setdefault((origin, small.at), []).append((small, large))
            continue
        bounded.append((small, large))
        if small.nonlinear is not None and large.summed_by > GROWN * max(small.summed_by, base.summed_by) > 0:
            after.setdefault(small.nonlinear, origin)
    readers = plain.lockstep.meetings.readers
    findings = [after_sum(at=at, origin=origin, readers=readers) for at, origin in after.items()]
    return findings + [_not_clipped(own, bounded, origin=origin, at=at) for (origin, at), own in unbounded.items()]


Grown = Sequence[tuple[Release, Release]]
"""Releases of a record that was made larger, and still larger."""


def _not_clipped(grown: Grown, bounded: Grown, *, origin: Place, at: Place) -> Finding:
    """Where the rest of the record is bounded, what bounds it has left these out: its line stands first.

    Where these are multiplied by a number that bounds nothing, the line that computes it does.
    """
    names = [one.output for one, _ in grown if one.output] if bounded else []
    leaves = f" for {listed(names)}" if names else ""
    times = max(large.cost / small.cost for small, large in grown)
    words = {"leaves": leaves, "scale": SCALES[1] / SCALES[0], "times": times}
    clips = {weight.at for weight in _weights(bounded, bounds=True)}
    clips -= {one.weighted.at for one, _ in grown if one.weighted}
    if len(clips) == 1:
        (clip,) = clips
        told = found(Kind.NOT_CLIPPED, clip=clip, origin=origin, at=at, **words)
        return dataclasses.replace(told, says=f"{told.says} The rest of the record is bounded at {spelled(clip)}.")
    failed = {(weight.factor, weight.at) for weight in _weights(grown, bounds=False)}
    if len(failed) == 1:
        factor, weighed = next(iter(failed))
        told = found(Kind.NOT_CLIPPED, factor=factor, weighed=weighed, origin=origin, at=at, **words)
        where = f"The number of {spelled(factor)}, by which the record is multiplied at {spelled(weighed)},"
        return dataclasses.replace(told, says=f"{told.says} {where} does not bound it.")
    return found(Kind.NOT_CLIPPED, origin=origin, at=at, **words)


def _weights(grown: Grown, *, bounds: bool) -> list[Weight]:
    """Where these were multiplied by a number of the record's own that bounds it, or that does not."""
    own = [(small.weighted, large.weighted) for small, large in grown]
    both = [(small, large) for small, large in own if small is not None and large is not None]
    long = [(small, large) for small, large in both if large.before > GROWN * small.before > 0]
    return [small for small, large in long if (large.after <= GROWN * small.after) == bounds]


def _too_little(program: Program, runs: Sequence[Run], stated: Stated) -> list[Finding]:
    multiplier, due = stated.noise_multiplier, stated.due
    if multiplier is None or due is None:
        return []
    worst: tuple[float, list[Release], set[Frame]] = (0.0, [], set())
    for run in runs:
        for releases in _by_round(program, run).values():
            if _is_judged(releases) and _cost(releases) > worst[0]:
                worst = _cost(releases), releases, run.lockstep.meetings.readers
    cost, releases, readers = worst
    if cost * due <= 1 + _slack(releases):
        return []
    top = max(releases, key=lambda release: release.cost)
    exceeds = _exceeds(releases, program, stated)
    least, most = (side(_deviation([release]) for release in releases) for side in (min, max))
    uneven = most > (1 + SLACK) * least
    apart, parts = parts_apart(releases, implied_bound(stated, None if uneven else most))
    weight, more, lead = top.weighted if exceeds or apart else None, "", among_records(top.at, readers)
    origin = top.origin if isinstance(top.origin, Place) else top.at
    if top.carried is not None and _kept_before(program, runs, due):
        lead, weight = among_records(top.carried, readers), None
        more = earlier_rounds(top.carried, lead)
    elif exceeds or apart:
        lead = parts or (origin if weight is None else weight.factor)
        where = "" if weight is None else f" ({spelled(weight.at)})"
        more = f"{too_far(stated.clip)}{where}{apart}" if exceeds else apart
    return [
        too_little(
            lead=lead,
            between=(least, most) if uneven else None,
            summed=top.summed or origin is top.at,
            beside=[one for one in (weight and weight.at, top.carried) if one is not None],
            more=more,
            at=top.at,
            draw=top.draw,
            origin=origin,
            sensitivity=_sensitivity(releases),
            deviation=_deviation([top] if uneven else releases),
            multiplier=1 / cost,
            stated=multiplier,
            due=due_on_the_pair(multiplier, due),
        )
    ]


def _kept_before(program: Program, runs: Sequence[Run], due: float) -> bool:
    """Whether rounds in which nothing of an earlier one is left keep the promise."""
    rounds = [releases for run in runs for releases in _by_round(program, run).values()]
    fresh = [own for own in rounds if _cost(own) > 0 and not any(release.carried for release in own)]
    return bool(fresh) and all(_cost(own) * due <= 1 + _slack(own) for own in fresh)


def _exceeds(releases: Sequence[Release], program: Program, stated: Stated) -> bool:
    return stated.clip is not None and _sensitivity(releases) > program.reach * stated.clip * (1 + SLACK)


def _slack(releases: Sequence[Release]) -> float:
    """How far a right multiplier may seem to fall short; four standard errors where draws tell the deviation."""
    if not releases or all(release.exact for release in releases):
        return SLACK
    return GUESSED_SLACK + max(4 / np.sqrt(2 * one.drawn) if one.drawn else 0.0 for one in releases)


def _without_consequences(findings: Sequence[Finding], uncoupled: bool) -> list[Finding]:
    if uncoupled:
        # a round that was followed has the noise that it has, whatever is not known of others
        kept = {Kind.KEY_USED_TWICE, Kind.NOT_FOLLOWED, Kind.RANDOMNESS_FROM_DATA, Kind.TOO_LITTLE_NOISE}
        return [finding for finding in findings if finding.kind in kept]
    # what one step releases without noise changes every record of the next one
    # its lines: where others get their noise, if they do, and where it was summed
    bare = {frame for finding in findings if finding.kind == Kind.RELEASED_WITHOUT_NOISE for frame in finding.lines[:2]}
    findings = [
        finding
        for finding in findings
        if finding.kind != Kind.RECORDS_MIXED_BEFORE_SUM or not bare.intersection(finding.lines[:1])
    ]
    kinds = {finding.kind for finding in findings}
    if kinds & TAKEN_TOGETHER:
        return [finding for finding in findings if finding.kind != Kind.NOT_CLIPPED]
    return list(findings)
