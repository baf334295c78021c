"""The tracer of PyTorch code: facts of a replay (mechanisms.adapters.pytorch.replay) as findings."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from audit.diagnosis.explain import handed_over, opacus_calls, sentences, torch_noise
from audit.diagnosis.explain.broken_off import broken_off, own_error
from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.findings import Covered, Explanation, Finding, Kind, Round, ranked, resized
from audit.diagnosis.explain.missing_noise import no_number, same_noise, short_of_noise, stepped_without, without_noise
from audit.diagnosis.explain.other_batches import drawn_once, drawn_together, of_one_size, too_often
from audit.diagnosis.explain.places import (
    NOWHERE,
    Frame,
    Place,
    among_records,
    around,
    decided_at,
    frames_of,
    function_around,
    named_at,
    place,
    spelled,
    statement_around,
)
from audit.diagnosis.explain.python_factors import factor_went_wrong, numbers_at
from audit.diagnosis.explain.watched_code import SAME, made_at
from mechanisms.adapters.trial_seeds import trial_seeds
from mechanisms.contract import as_given
from mechanisms.pairs.lent import copied
from mechanisms.pairs.neighbours import materialise

if TYPE_CHECKING:
    import jax

    from mechanisms.pairs.neighbours import Neighbours

DRAWS_NOTHING = "{name} draws with neither PyTorch nor JAX, so no line of it can be followed"
NORMALISED, NORMALISING = "batch normalisation", "torch/nn/modules/batchnorm.py"
"""What mixes records, and the file of PyTorch's whose classes do it."""
CAUSE = 3
"""What a look shows: more than too little noise, which may follow from something that only another batch shows."""


def follow(mechanism: Any, neighbours: Neighbours, *, key: jax.Array, stated: Stated) -> Explanation:
    """Both sides on the same draws. What cannot be followed is said, and so is an error of the code itself."""
    import jax.random

    code = as_given(mechanism).replayed
    seed = int(trial_seeds(np.asarray(jax.random.key_data(key)), 0, 1)[0])
    sides = materialise(neighbours.without), materialise(neighbours.with_record)
    draws_nothing = Explanation(findings=(sentences.not_followed(DRAWS_NOTHING.format(name=mechanism.name)),))
    if not _imports_torch(code, sides[0], seed):
        return draws_nothing
    # imports PyTorch
    replay = importlib.import_module("mechanisms.adapters.pytorch.replay.replay")

    def once_more(side: int = 1) -> None:
        # draws that every run shares may hide an error
        with _generators_kept(), contextlib.suppress(Exception):
            code(copied(sides[side]), seed, lambda name, tensor: None)

    try:
        clip = None if stated.clip is None else stated.reach * stated.clip
        settings = {"noise_multiplier": stated.due, "clip": clip, "rate": stated.rate}
        with importlib.import_module("mechanisms.adapters.pytorch.threads").one_if_tiny(once_more):
            seen, again = _looked_at(replay, code, *sides, seed=seed, stated=stated, **settings)
    except Exception as error:
        told = own_error if _fails_alone(code, sides, seed, type(error)) else broken_off
        return Explanation(findings=(told(error),))
    readers = set(map(function_around, seen.read))
    adders = {function_around(frame) for cost in seen.costs for frame in place(cost.top.stack).own[:1]}
    constant = {fact.stacks["draw"] for fact in seen.facts if "added" in fact.stacks}
    kinds = {fact.kind for fact in seen.facts}
    uncovered = {Kind.KEY_USED_TWICE, Kind.RELEASED_WITHOUT_NOISE} & kinds
    if not seen.draws:
        return draws_nothing

    told = [
        _finding(fact, readers | adders if _has_sums(fact) else readers, stated, once_more, again)
        for fact in seen.facts
    ]
    return Explanation(
        findings=ranked(opacus_calls.adaptive(told, once_more, counted=neighbours.relation == "add_remove")),
        rounds=tuple(
            Round(
                number=cost.number,
                sensitivity=cost.sensitivity,
                # noise that is the same in every run has no deviation
                noise_deviation=0.0 if cost.top.draw in constant else _along(cost),
                multiplier=0.0 if cost.top.draw in constant else cost.multiplier,
                lines=frames_of([place(cost.top.stack)]),
                # a changed release makes other weights of the next round's
                judged=seen.judged
                and (not uncovered or cost.top.draw in constant)
                and (cost.number == 1 or Kind.CHANGED_AFTER_RELEASE not in kinds),
                scale=cost.scale,
            )
            for cost in seen.costs
        ),
        covered=Covered(draws=seen.draws, releases=seen.releases, opaque=seen.opaque),
    )


def _along(cost: Any) -> float:
    """The noise's deviation along what the record moves, if it moves anything."""
    far = cost.sensitivity * cost.multiplier
    return far if cost.sensitivity and math.isfinite(far) else cost.deviation


def _has_sums(fact: Any) -> bool:
    """Whether a tensor of raw data changes a release, or a sum is clipped: who adds noise to sums has them in hands."""
    return fact.kind == Kind.CLIPPED_AFTER_SUM or (fact.kind == Kind.CHANGED_AFTER_RELEASE and not fact.words["origin"])


def _imports_torch(code: Any, side: Any, seed: int) -> bool:
    """Whether PyTorch is there, or would be after one run: importing it for nothing takes ten seconds."""
    if "torch" not in sys.modules:
        # an error is told by the replay
        with contextlib.suppress(Exception):
            code(copied(side), seed, lambda name, tensor: None)
            return "torch" in sys.modules
    return True


def _fails_alone(code: Any, sides: Sequence[Any], seed: int, kind: type[Exception]) -> bool:
    """Whether the code raises such an error where nothing is watched."""
    try:
        with _generators_kept():
            for side in sides:
                code(copied(side), seed, lambda name, tensor: None)
    except Exception as error:
        return isinstance(error, kind)
    return False


def _generators_kept() -> contextlib.AbstractContextManager[None]:
    # imports PyTorch
    return importlib.import_module("mechanisms.adapters.pytorch.streams").generators_kept()


def _looked_at(replay: Any, *code: Any, stated: Stated, **settings: Any) -> tuple[Any, Callable[[int], None]]:
    """The look that shows most, a cause before a consequence: findings must not depend on who is in the batch.

    The second runs the code on one of the datasets, with the draws of that look.

    Where none shows anything wrong, also whether batches are those of the claim (runs that leave them to chance
    show whether all hold the record), and whether a round whose batch is empty gets noise.
    """
    looks: list[Any] = []
    replays = [replay.Replay(*code, **settings, company=company) for company in replay.COMPANY]
    for own in replays:
        looks.append(own.seen())
        if _shows(looks[-1]) == CAUSE or not looks[0].again:
            break
    seen = max(looks, key=_shows)
    first, own = replays[0], replays[looks.index(seen)]
    if all(fact.kind == Kind.NOT_FOLLOWED for fact in seen.facts):
        sampled = first.sampling(stated.runs_that_tell, stated.steps)
        facts = (*sampled, *seen.facts) if sampled or seen.facts else first.skipped()
        seen = dataclasses.replace(seen, facts=facts)
    return seen, own.once_more


def _shows(seen: Any) -> int:
    kinds = {fact.kind for fact in seen.facts}
    if kinds - {Kind.NOT_FOLLOWED, Kind.TOO_LITTLE_NOISE}:
        return CAUSE
    return 2 if Kind.TOO_LITTLE_NOISE in kinds else len(kinds)


def _noise_scale(
    places: dict[str, Place],
    readers: set[Frame],
    again: Callable[[int], None],
    *,
    of_itself: bool,
    scales: tuple[float, float] | None,
) -> Finding:
    """``of_itself``: the scale is made of the sum that the noise is for, so that the fault is where it is scaled."""
    at, draw = places["at"], places["draw"]
    if places["origin"] is not NOWHERE:
        told = sentences.noise_scale(places["origin"], at=at, draw=draw, what="the records")
        return sentences.led(told, at) if of_itself else told
    number = NOWHERE
    if scales is not None:
        number = made_at([(functools.partial(again, side), scale) for side, scale in enumerate(scales)])
        number = _factor_made_at(at, scales, again) if number is NOWHERE else number
    lead = among_records(at, readers, handed_over.handed_apart(again)) if number is NOWHERE else number
    return sentences.noise_scale(lead, at=at, draw=draw, what="the records or on their number")


def _factor_made_at(at: Place, scales: tuple[float, float], again: Callable[[int], None]) -> Place:
    """Where a number is made that a line reads, no whole one, by which it multiplies or divides: each side's own."""
    frames = at.own[:1]
    sides = [numbers_at(functools.partial(again, side), frames)[0] for side in (0, 1)] if frames else []
    for frame, own in sides[0].items() if sides else ():
        for name, values in own.items():
            one, other = values[-1], sides[1].get(frame, {}).get(name, [0.0])[-1]
            known = one and other and one != other and (one % 1 or other % 1)
            apart = [scales[0] / scales[1], scales[1] / scales[0]] if known and all(scales) else []
            made = named_at(frame, name) if any(math.isclose(one / other, by, rel_tol=SAME) for by in apart) else None
            if made is not None:
                return Place(own=(made,))
    return NOWHERE


def _with(told: Finding, more: tuple[Place, str] | None) -> Finding:
    """The same with the line of a library's argument in front, and what it says of it."""
    return told if more is None else sentences.led(dataclasses.replace(told, says=f"{told.says}{more[1]}"), more[0])


def _finding(
    fact: Any, readers: set[Frame], stated: Stated, once_more: Callable[..., None], again: Callable[[int], None]
) -> Finding:
    """``once_more`` runs the code as it is, ``again`` on the draws of the replay."""
    places: dict[str, Any] = {name: place(stack) if stack else NOWHERE for name, stack in fact.stacks.items()}
    if fact.kind == Kind.NOT_FOLLOWED:
        beyond = places.get("beyond", NOWHERE)
        more = "" if beyond is NOWHERE else f", beyond {spelled(beyond)}"
        return sentences.not_followed(f"{fact.words['why']}{more}", *places.values())
    if "each" in places:
        return sentences.noise_of_each(places["each"])
    if fact.kind == Kind.NOISE_SCALE_FROM_DATA:
        return _noise_scale(places, readers, again, **fact.words)
    if "rates" in fact.words:
        runs = [(functools.partial(once_more, side), rate) for side, rate in enumerate(fact.words["rates"] or ())]
        made = made_at(runs) if runs else NOWHERE
        since = "" if made is NOWHERE else f" (made at {spelled(made)})"
        told = sentences.found(Kind(fact.kind), **places, origin=f"{fact.words['origin']}{since}", beside=[made])
        return sentences.led(told, made)
    if "read" in places:
        origin = f": {spelled(places['read'])} reads the data and decides which of them are added"
        return sentences.led(
            sentences.found(Kind(fact.kind), draw=places["draw"], origin=origin, beside=[places["read"]]),
            places["read"],
        )
    if fact.kind == Kind.RELEASED_WITHOUT_NOISE and "added" in places:
        return same_noise(fact.words["leaf"], **places)
    if "skipped" in places:
        skipped = decided_at(places["skipped"])
        return sentences.led(without_noise(fact.words["leaf"], skipped, places["noisy"]), skipped)
    if "stepped" in places:
        made = handed_over.optimizer_at(once_more, places["stepped"])
        return stepped_without(**places, **fact.words, made=made)
    if "dropped" in places:
        return without_noise(fact.words["leaf"], places["at"], places["dropped"], unused=True)
    if fact.kind == Kind.RELEASED_WITHOUT_NOISE:
        looped, chosen = places.pop("looped", NOWHERE), places.pop("chosen", NOWHERE)
        inside = statement_around(chosen if looped is NOWHERE else looped, loops=looped is not NOWHERE)
        return without_noise(fact.words["leaf"], **places, inside=inside)
    if "lost" in fact.words:
        return no_number(fact.words["lost"], **places)
    if fact.kind == Kind.TOO_LITTLE_NOISE and "leaf" in fact.words:
        words = {name: word for name, word in fact.words.items() if name != "some"}
        return short_of_noise(**places, **words)
    if fact.kind == Kind.CLIPPED_AFTER_SUM:
        words = {name: word for name, word in fact.words.items() if name != "parts"}
        told = sentences.after_sum(**places, **words, readers=readers)
        given = handed_over.parts_of_more(once_more, places["origin"]) if fact.words["parts"] else None
        return told if given is None else _with(told, (given[1], f" {given[0]} is set at {spelled(given[1])}."))
    if fact.kind == Kind.CHANGED_AFTER_RELEASE:
        number = places.get("number", NOWHERE)
        if number is NOWHERE and "scales" in fact.words:
            both = [(0, fact.words["scales"][0]), (1, fact.words["scales"][1])]
            number = made_at([(functools.partial(once_more, side), scale) for side, scale in both])
            if number is NOWHERE:
                # one that only these draws make, as the size of a batch
                number = made_at([(functools.partial(again, side), scale) for side, scale in both], fields=True)
        made = "" if number is NOWHERE else f" ({'read' if 'number' in places else 'made'} at {spelled(number)})"
        scale = fact.words.get("scale", 1.0)
        resized_to = "" if scale == 1 else f" (with the record {resized(scale)})"
        clause = f"{fact.words['origin']}{made}{resized_to}"
        handed = handed_over.handed_apart(again) if fact.words["origin"] else None
        told = sentences.changed_after_release(places["at"], None, readers, clause, number, handed=handed)
        return _with(told, opacus_calls.divided_by_count(once_more, places["at"], number))
    if fact.kind == Kind.RECORDS_MIXED_BEFORE_SUM:
        by = fact.words.get("by")
        built = handed_over.built_at(once_more, NORMALISING) if by == NORMALISED else NOWHERE
        by = by if built is NOWHERE else f"{by} (made at {spelled(built)})"
        bounded = places.pop("bounded", NOWHERE).own[:1]
        told = sentences.led(sentences.mixed(**{"through": by, **places}), built)
        told = dataclasses.replace(told, lines=tuple(dict.fromkeys((*told.lines, *bounded))))
        return told if by else _with(told, opacus_calls.reduced_otherwise(once_more))
    if fact.kind == Kind.NOT_CLIPPED:
        words = {name: word for name, word in fact.words.items() if name != "cost"}
        told = sentences.found(Kind(fact.kind), origin=places["origin"], at=places["at"], made="summed", **words)
        wrong = factor_went_wrong(fact.words["cost"], stated.clip, functools.partial(again, 1))
        others = fact.words["cost"].some_bounded if words["leaves"] else ()
        lead, since = wrong or ((place(others), sentences.others_bounded(place(others))) if others else (NOWHERE, ""))
        return sentences.led(dataclasses.replace(told, says=f"{told.says[:-1]}{since}."), lead)
    if fact.kind == Kind.TOO_LITTLE_NOISE:
        return torch_noise.too_little(fact.words, places, readers, stated, once_more, again)
    if fact.kind == Kind.IN_EVERY_BATCH:
        if "at" in places:
            return sentences.in_every_batch(**places, **fact.words, runs=stated.runs_that_tell, rate=stated.rate)
        return sentences.constant_batches(**places, rate=stated.rate)
    if fact.kind == Kind.SAMPLED_OTHERWISE and stated.rate is not None:
        if "rounds" in fact.words:
            lead = around(places["at"], places["draw"])
            return drawn_once(draw=places["draw"], lead=lead, rounds=fact.words["rounds"], runs=None, rate=stated.rate)
        if "together" in fact.words:
            return drawn_together(**places, runs=fact.words["together"], rate=stated.rate)
        if "found" not in fact.words:
            own, since = opacus_calls.not_poisson(once_more) or (None, "")
            made = handed_over.built_at(once_more, handed_over.SAMPLERS, read=True) if own is None else NOWHERE
            told = of_one_size(**places, **fact.words, made=made, since=since, rate=stated.rate)
            return told if own is None else sentences.led(told, own)
        lead = handed_over.handed_over(once_more, places["draw"], fact.words["found"], handed_over.RATES)
        told = too_often(**places, **fact.words, lead=lead, rate=stated.rate)
        return _with(told, opacus_calls.rate_of_loader(once_more) if lead is places["draw"] else None)
    if fact.kind == Kind.KEY_USED_TWICE:
        if "shared" in places:
            return sentences.too_few_numbers(**places, how=fact.words["how"])
        return sentences.used_twice(**places, how=fact.words["how"])
    return sentences.found(Kind(fact.kind), **places, **fact.words)
