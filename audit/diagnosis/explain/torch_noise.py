"""Too little noise in PyTorch code: what went wrong on the way, with the record or with the noise, and its line."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

from audit.diagnosis.explain import handed_over, opacus_calls, sentences
from audit.diagnosis.explain.dispatch import Stated, implied_bound
from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.numbers_given import DEVIATIONS, bounds_given, own_bound, went_wrong
from audit.diagnosis.explain.places import (
    NOWHERE,
    Frame,
    Place,
    among_records,
    function_around,
    named_at,
    names_read,
    place,
    spelled,
    statement_around,
    taken_apart,
)
from audit.diagnosis.explain.python_factors import factor_went_wrong
from audit.diagnosis.explain.watched_code import changed_at, made_at, repeated_at
from audit.diagnosis.explain.wrong_lengths import SLACK, each_alone


def too_little(
    words: dict[str, Any],
    places: dict[str, Place],
    readers: set[Frame],
    stated: Stated,
    once_more: Callable[..., None],
    again: Callable[[int], None],
) -> Finding:
    """Also that the record moves the release too far, where that is known, and whether its parts were clipped apart."""
    due, cost, more, after, known = words["due"], words["cost"], "", "", None
    least, most = cost.between
    uneven = most > (1 + SLACK) * least
    own, multiplied = None, False
    if not (uneven or cost.shared or "carried" in places):
        own = own_bound(once_more, stated, deviation=cost.deviation, sensitivity=cost.sensitivity)
    stated = stated if own is None else dataclasses.replace(stated, clip=own)
    exceeds = stated.clip is not None and cost.sensitivity > stated.reach * stated.clip * (1 + SLACK)
    bound, (largest, many) = implied_bound(stated, None if uneven else most), cost.largest
    clauses = {
        sentences.clipped_apart(lengths, largest, many if cost.top.each else 1, bound=bound, slack=SLACK)
        for lengths in words["lengths"]
    }
    # a record whose parts are as long as the bound by chance is not so in another size
    apart = clauses.pop() if len(clauses) == 1 else ""
    promise = stated.noise_multiplier or due
    sized, bounded = [place(stack) for stack in (cost.shared, *cost.top.sized) if stack], places["bounded"]
    noisy = sized[0] if sized else places["draw"]
    lead = among_records(noisy, readers)
    if "carried" in places:
        begun = places.get("begun", NOWHERE)
        lead = places["carried"] if begun is NOWHERE else begun
        more = sentences.earlier_rounds(places["carried"], lead, begun)
    elif exceeds or apart:
        lead = places["origin"] if bounded is NOWHERE else bounded
        more = f"{sentences.too_far(stated.clip, own=own is not None) if exceeds else ''}{apart}"
        times = cost.sensitivity / (stated.reach * stated.clip) if stated.clip else 0.0
        given, since = _bound_given(cost, stated, once_more), ""
        made = [place(one.numbers[-1].where) for one in cost.weights]
        if apart and len(made) > 1:
            lead = taken_apart(made)
            more += f" ({spelled(lead)})"
        elif given is not None and not (apart or "repeated" in places):
            lead, since = given[1], f" ({given[0]} is given at {spelled(given[1])})"
        elif exceeds and (wrong := factor_went_wrong(cost, stated.clip, functools.partial(again, 1))) is not None:
            lead, since = wrong
        elif exceeds and not apart and (alone := each_alone(cost.weights, once_more)) is not None:
            lead, since = alone
        elif exceeds and not apart and (grown := _multiplied(cost, cost.sensitivity / times)) is not None:
            (lead, by), multiplied = grown, True
            since = f" (it is multiplied by {by:.4g} at {spelled(lead)})"
        elif exceeds and not apart and _added(cost, stated.clip):
            lead = place(cost.top.added)
            since = f" (the record is in {len(cost.parts)} parts, each clipped by itself, which {spelled(lead)} adds)"
        elif exceeds and not apart and cost.measured and not cost.top.copied and "repeated" not in places:
            lead = place(cost.measured)
            since = f" (it is multiplied by a number that comes from {spelled(lead)})"
        elif exceeds and not apart and bounded is NOWHERE and cost.some_bounded:
            lead = place(cost.some_bounded)
            since = sentences.others_bounded(lead)
        more += since
        # as many clipping norms as there are parts of the batch that hold it
        rightly = not cost.weights and abs(times - words["times"]) <= SLACK * times
        copied = place(cost.top.copied) if cost.top.copied else NOWHERE
        repeated = places.get("repeated", places["again"] if rightly else copied)
        # or a list holds every record twice
        doubled = not cost.weights and round(times) > 1 and abs(times - round(times)) <= SLACK * times
        if exceeds and not apart and "batches" in places and times <= words["batches"] * (1 + SLACK):
            told = opacus_calls.told_to_opacus(once_more)
            skipped = NOWHERE if told is None else told.skipped
            lead = _left_out(places["at"], places["batches"]) if skipped is NOWHERE else skipped
            skips = "" if skipped is NOWHERE else f": steps are skipped at {spelled(skipped)}"
            many = _summed(times, words["batches"])
            more += f" ({many}, drawn at {spelled(places['batches'])}, are summed in one step{skips})"
            places["several"] = places["batches"]
            places.pop("repeated", None)
        elif given is None and (repeated is not NOWHERE or doubled) and not apart:
            listed = repeated_at(functools.partial(again, 1), words["index"])
            repeated = repeated if listed is NOWHERE else listed
            lead = lead if repeated is NOWHERE else repeated
            more += "" if repeated is NOWHERE else sentences.held_again(lead)
    elif cost.top.divided:
        lead = places["mean"] = place(cost.top.divided.where)
        more = _divided(places["origin"], cost.top.divided.numbers)
    elif not cost.shared:
        for bound in _bounds(stated, cost, once_more):
            inner = went_wrong(once_more, [*sized[:1], places["draw"], places["at"]], promise * bound, least)
            if inner is not None:
                assigned = handed_over.assigned_at(once_more, least / bound, DEVIATIONS)
                within = assigned.own and function_around(assigned.own[0]) == function_around(inner.own[0])
                lead = assigned if within else inner
                # another sum, such as a mean, needs other noise
                known = promise * bound if abs(cost.sensitivity / stated.reach - bound) <= SLACK * bound else None
                if (
                    not within
                    and places["draw"].library
                    and (given := opacus_calls.multiplier_set(least, [bound], once_more))
                ):
                    # the function also goes on to train: the line in it is the one that hands the number over
                    (lead, after), known = given, None
                break
        else:
            bounds = _bounds(stated, cost, once_more)
            wrong = [least, *(least / bound for bound in bounds), *(least / (promise * bound) for bound in bounds)]
            lead = among_records(noisy, readers, handed_over.handed_one_of(once_more, wrong))
            if lead.library:
                given = opacus_calls.multiplier_set(least, bounds, once_more)
                lead, after = given or (lead, "")
        if lead.own and not (lead.library or after):
            code = functools.partial(again, 1)
            held = made_at([(code, least)])
            # the number by which the line makes the noise, and no other that is equal
            read = {named_at(lead.own[0], name) for name in names_read(lead.own[0])}
            lead = held if read & {*held.own} and _before(held, lead) else lead
            larger = [before for before in words["before"][-1:] if before > (1 + SLACK) * least]
            for before, unit in itertools.product(larger, (1.0, *_bounds(stated, cost, once_more))):
                if (changed := changed_at(code, before / unit, least / unit)) is not NOWHERE:
                    lead, known = changed, None
                    after = f" It was {before:.4g} in the round before, until {spelled(lead)}."
    beside = [places[name] for name in ("carried", "begun", "repeated", "several") if name in places]
    return sentences.too_little(
        known=known,
        after=after,
        lead=lead,
        more=more,
        stated=promise,
        due=sentences.due_on_the_pair(promise, due),
        at=places["at"],
        mean="mean" in places,
        changed=multiplied,
        origin=places.get("mean", places["origin"]),
        draw=places["draw"],
        beside=[*sized, bounded, places["origin"], *beside],
        between=cost.between if uneven else None,
        cancels=bool(cost.shared),
        scale=cost.scale,
        sensitivity=cost.sensitivity,
        deviation=cost.own_deviation if uneven else cost.deviation,
        multiplier=cost.multiplier,
    )


def _bound_given(cost: Any, stated: Stated, once_more: Callable[..., None]) -> tuple[str, Place] | None:
    """The argument that says by how far the record moves a sum that it moves too far, and where it is given."""
    if stated.clip is None or cost.sensitivity <= stated.reach * stated.clip * (1 + SLACK):
        return None
    return handed_over.handed_as(once_more, cost.sensitivity / stated.reach, handed_over.CLIPS)


def _added(cost: Any, clip: float | None) -> bool:
    """Whether the record is in several parts, each within the clipping norm, that explain how far it moves the sum."""
    within = clip is not None and max(cost.parts, default=math.inf) <= clip * (1 + SLACK)
    return within and cost.sensitivity <= sum(cost.parts) * (1 + SLACK)


def _multiplied(cost: Any, bound: float) -> tuple[Place, float] | None:
    """The number by which a bounded record is multiplied, if it moves the sum no further than it may without that."""
    where, by = max(cost.factors, key=lambda factor: factor[1], default=((), 0.0))
    return (place(where), by) if by > 1 + SLACK and cost.before <= bound * (1 + SLACK) else None


def _summed(times: float, drawn: int) -> str:
    """How many batches are in a sum that moves by so many clipping norms: some that are drawn may be thrown away."""
    least = max(2, math.ceil(times * (1 - SLACK)))
    known = least == drawn or abs(times - least) <= SLACK * times
    return f"{least} batches" if known else f"{least} or more of {drawn} batches"


def _left_out(at: Place, drawn: Place) -> Place:
    """The condition because of which not every batch gets a step; where batches are drawn if none stands there."""
    condition = statement_around(at, loops=False)
    return condition if _before(drawn, condition) else drawn


def _before(one: Place, other: Place) -> bool:
    """Whether the function of a line calls for another place on an earlier line, or has it there."""
    functions = {*map(function_around, other.own[:1])}
    return any(function_around(frame) in functions and frame < other.own[0] for frame in one.own)


def _bounds(stated: Stated, cost: Any, once_more: Callable[..., None]) -> list[float]:
    """Clipping norms that the noise may be meant for: the stated one, or else those that the code is given."""
    if stated.clip is not None:
        return [stated.clip]
    moved = cost.sensitivity / stated.reach
    return [moved, *sorted(one for one in bounds_given(once_more) if one > moved)]


def _divided(origin: Place, numbers: tuple[int, int]) -> str:
    """That a sum is divided by the number of records in it, and the noise is not: a clause."""
    counted = f"{numbers[1]}, and {numbers[0]} without the record"
    return f": the sum of {spelled(origin)} is divided by the number of records ({counted}) before it gets its noise"
