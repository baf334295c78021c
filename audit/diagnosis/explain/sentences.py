"""The sentence of every kind of finding, with the lines it comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence, Set

from audit.diagnosis.explain.findings import Finding, Kind, resized
from audit.diagnosis.explain.places import (
    NOWHERE,
    Frame,
    Place,
    Reader,
    among_records,
    frames_of,
    function_around,
    handed_out,
    spelled,
)

SENTENCES = {
    Kind.KEY_USED_TWICE: "The randomness of {first} is used again at {second}{how}, so these random numbers are not "
    "independent.",
    Kind.RANDOMNESS_FROM_DATA: "The random numbers drawn at {draw} depend on the data{origin}.",
    Kind.IN_EVERY_BATCH: "The record changes the release at {at} in all {runs} runs, but the claim assumes batches "
    "that include it with probability {rate:.4g}: {why}.",
    Kind.SAMPLED_OTHERWISE: "{batch}, but the claim assumes Poisson batches, which take each record independently with "
    "probability {rate:.4g}.",
    Kind.RECORDS_MIXED_BEFORE_SUM: "At {at} one record changes the values of other records{through} before they are "
    "summed, so clipping each record does not bound what one record changes.",
    Kind.CLIPPED_AFTER_SUM: "Records are summed at {origin} and {then} at {at}{called}: {since}.",
    Kind.NOT_CLIPPED: "A record {scale:g} times larger moves the release at {at} {times:.3g} times further: nothing "
    "bounds what is {made} at {origin}{leaves}.",
    Kind.NOISE_SCALE_FROM_DATA: "The standard deviation of the noise depends on {what}: the number that scales it "
    "comes from {origin}{then}.",
    Kind.RELEASED_WITHOUT_NOISE: "{leaf} is released without noise: it comes from {at}{others}.",
    Kind.CHANGED_AFTER_RELEASE: "Raw data change an already noisy value at {at}{origin}: the noise does not cover "
    "them.",
    Kind.TOO_LITTLE_NOISE: "The record{larger} moves {what} {origin} by {sensitivity:.4g}{more}. {noise} has standard "
    "deviation {deviation:.4g}{parts}: a noise multiplier of {multiplier:.4g}, but {stated:.4g} is stated{due}.",
    Kind.NOT_FOLLOWED: "Not judged: {why}.",
}
"""One sentence for every kind. A ``Place`` is spelled as file:line, and its frames become the finding's lines."""


def found(kind: Kind, *, beside: Iterable[Place] = (), **words: object) -> Finding:
    """A finding of this kind: its sentence with the words in it, and the lines of the places among them, in order.

    ``beside`` are places whose lines belong to it, too, spelled inside of other words.
    """
    places = [*(word for word in words.values() if isinstance(word, Place)), *beside]
    said = {name: spelled(word) if isinstance(word, Place) else word for name, word in words.items()}
    return Finding(kind=kind, lines=frames_of(places), says=SENTENCES[kind].format(**said))


def led(told: Finding, lead: Place) -> Finding:
    """The finding with the line to look at first in front."""
    return dataclasses.replace(told, lines=tuple(dict.fromkeys([*lead.own[:1], *told.lines])))


def noise_scale(origin: Place, *, at: Place, draw: Place, what: str) -> Finding:
    """Noise whose deviation depends on the data: where its scale comes from, then where it is scaled and drawn."""
    told = {place.nearest: word for place, word in ((origin, ""), (draw, "drawn"), (at, "scaled"))}
    if draw.nearest == at.nearest != origin.nearest:
        told[at.nearest] = "drawn and scaled"
    where = {place.nearest: spelled(place) for place in (at, draw)}
    steps = [f"{word} at {where[own]}" for own, word in told.items() if own != origin.nearest]
    then = f"; it is {' and '.join(steps)}" if steps else ""
    return found(Kind.NOISE_SCALE_FROM_DATA, origin=origin, beside=[at, draw], what=what, then=then)


def noise_of_each(draw: Place) -> Finding:
    """Finding: every record brings noise along."""
    says = (
        f"Noise is drawn at {spelled(draw)} for each record, so the standard deviation of their sum's noise depends on "
        "the number of records. Add noise once, to the sum."
    )
    return Finding(kind=Kind.NOISE_SCALE_FROM_DATA, lines=frames_of([draw]), says=says)


def too_little(
    *,
    lead: Place,
    at: Place,
    draw: Place,
    summed: bool = True,
    changed: bool = False,
    mean: bool = False,
    between: tuple[float, float] | None = None,
    bare: tuple[int, int] | None = None,
    scale: float = 1.0,
    cancels: bool = False,
    shared: bool = False,
    due: str = "",
    known: float | None = None,
    after: str = "",
    beside: Iterable[Place] = (),
    **words: object,
) -> Finding:
    """Noise of too small a deviation; ``lead`` is the line to look at first, such as the caller that hands it over.

    ``known`` is the right deviation, where the function of that line reads it or its factors; ``after`` one more
    sentence.

    ``summed`` says that records were summed for certain where what is released comes from, ``changed`` that the record
    moves what is made of that sum by another length, ``mean`` that it is divided. ``between`` are the least
    and the largest deviation of a release whose parts get different ones: the one told is that of ``at``. ``scale`` is
    how many times larger the record was made. ``cancels`` says that coordinates share numbers of noise, ``shared`` that
    releases do. ``bare`` is how many coordinates have no noise, and how many there are.
    """
    called = called_at(lead, at)
    what = "the sum at" if summed else "the value computed from the records at"
    what = "the mean at" if mean else "the value computed from the sum at" if summed and changed else what
    parts = (
        ""
        if between is None
        else f" there ({between[0]:.4g} to {between[1]:.4g} over all parts, each in its own units)"
    )
    parts += "" if bare is None else f", and 0 in {bare[0]} of {bare[1]} coordinates"
    parts += (
        " in every coordinate, but less in the record's direction, since they share random numbers" if cancels else ""
    )
    parts += " in that direction over all releases, since they share random numbers" if shared else ""
    noise = f"The noise added at {spelled(at)}{called} and drawn at {spelled(draw)}"
    if draw.nearest == at.nearest:
        noise = f"The noise drawn and added at {spelled(at)}{called}"
    words |= {"noise": noise, "what": what, "due": due, "parts": parts}
    words["larger"] = "" if scale == 1 else f", {resized(scale)},"
    told = found(Kind.TOO_LITTLE_NOISE, beside=beside, at=at, draw=draw, **words)
    if known is not None:
        right = f" From what the function at {spelled(lead)} reads, the deviation should be {known:.4g}."
        told = dataclasses.replace(told, says=f"{told.says}{right}")
    return led(dataclasses.replace(told, says=f"{told.says}{after}"), lead)


def due_on_the_pair(stated: float, due: float) -> str:
    """What a stated multiplier comes to where the pair may move a sum by more than one clipping norm."""
    if due == stated:
        return ""
    return f" ({due:.4g} on this pair, whose record may move it by {stated / due:g} clipping norms)"


def earlier_rounds(carried: Place, lead: Place = NOWHERE, begun: Place = NOWHERE) -> str:
    """Clause: a sum holds those of earlier rounds, as momentum of sums without noise does.

    ``begun`` is where the sum was last begun, if it is one that nobody begins anew.
    """
    where = f"{spelled(carried)}{called_at(lead, carried)}"
    since = "" if begun is NOWHERE else f" (begun at {spelled(begun)}, and not anew in each round)"
    return f", and {where} adds the sums of earlier rounds to it, but not their noise{since}"


def carried_unseen(carried: Place, runs: int) -> str:
    """Clause: sums of earlier rounds are carried on, and no run shows what that costs."""
    return (
        f"{spelled(carried)} adds the sums of earlier rounds to later ones, but not their noise. In {runs} runs the "
        "record was never in two rounds, so how far it moves such a sum is not known"
    )


def too_far(clip: float | None, *, own: bool = False) -> str:
    """Clause: the record moves a sum by more than the clipping norm.

    ``own``: nobody stated it; the code is given it, and its noise is right for it.
    """
    return f", more than the code's own bound of {clip:.4g}" if own else f", more than the stated bound of {clip:g}"


def others_bounded(at: Place) -> str:
    """Clause: other tensors are bounded, and this one is not."""
    return f" (others are bounded at {spelled(at)}, and this one is not)"


def held_again(at: Place) -> str:
    """Clause: batches hold a record more than once."""
    return f" (a batch holds a record more than once: {spelled(at)})"


def clipped_apart(lengths: Iterable[float], most: float, many: int, *, bound: float | None, slack: float) -> str:
    """Where the record moves several parts of a release, or coordinates, by the whole bound each: that, as a clause.

    ``most`` is how far it moves one coordinate at most, ``many`` the number that it moves so far.
    """
    if bound is None:
        return ""
    whole = [length for length in lengths if abs(length - bound) <= slack * bound]
    if len(whole) > 1:
        return f", by {bound:.4g} in each of {len(whole)} parts, as if each were clipped on its own"
    if many > 1 and abs(most - bound) <= slack * bound:
        return f", by {bound:.4g} in each of {many} coordinates, as if each were clipped on its own"
    return ""


def mixed(*, at: Place, through: Place | str | None = None) -> Finding:
    """Records that change one another: first where a number is made of all of them, then where it meets each."""
    by = "" if through is None or _is_at(through, at) else f" through {_spoken(through)}"
    if not isinstance(through, Place):
        return found(Kind.RECORDS_MIXED_BEFORE_SUM, at=at, through=by)
    # helpers that measure and multiply a tree are right for a record: the function that calls both took all of them
    lead = handed_out(at, through)
    helped = bool(lead.own) and _is_helped(at, lead) and _is_helped(through, lead)
    by += f" (called at {spelled(lead)})" if helped and by else ""
    told = found(Kind.RECORDS_MIXED_BEFORE_SUM, at=at, through=by)
    told = dataclasses.replace(told, lines=frames_of([through, at]))
    return led(told, lead) if helped else told


def counted_rate(*, draw: Place, rates: Sequence[float], counts: Sequence[int], lead: Place) -> Finding:
    """A sampling rate that tells the number of records; ``lead`` is the line that makes it so."""
    compared = " and ".join(f"{rate:.4g} for {count} records" for rate, count in zip(rates, counts, strict=True))
    made = "" if lead.nearest == draw.nearest else f" ({spelled(lead)})"
    says = (
        f"Who is sampled depends on the number of records: the random numbers drawn at {spelled(draw)} are compared "
        f"with {compared}{made}."
    )
    return Finding(kind=Kind.RANDOMNESS_FROM_DATA, lines=frames_of([lead, draw]), says=says)


def in_every_batch(
    *,
    origin: Place,
    at: Place,
    runs: int,
    rate: float | None,
    constant: Place | None = None,
    taken: Place = NOWHERE,
    everybody: bool = False,
    held: bool = False,
    kept: Place | None = None,
    padded: Place | None = None,
) -> Finding:
    """A record that is in every batch, or that padding gives away.

    ``constant`` is where the batch's key is made, ``taken`` where the places of its records are, if that is known, and
    ``everybody`` whether all records are seen to be taken there, ``held`` whether the record is. ``kept`` is where the
    number is made by which the record is multiplied, if nothing random decides it, and ``padded`` where padding is made
    that counts.
    """
    batch = f"the sum at {spelled(origin)}" if taken is NOWHERE else f"the batch chosen at {spelled(taken)}"
    why = (
        f"either {batch} includes nearly every record, or something that no mask hides changes it, such as padding or "
        "the number of records"
    )
    if everybody or held:
        why = f"{batch} includes {'every record' if everybody else 'it every time'}"
    if padded is not None:
        why = f"padding rows made at {spelled(padded)} are not masked and count in the sum, and the record replaces one"
    if kept is not None:
        why = f"nothing random decides the mask or weight of {spelled(kept)}, which takes the record in every run"
    if constant is not None:
        why = f"a number for each record is drawn from the constant key of {spelled(constant)}, the same in every run"
    told = found(Kind.IN_EVERY_BATCH, origin=origin, at=at, runs=runs, rate=rate, why=why)
    first = constant or kept or padded or taken
    return dataclasses.replace(told, lines=frames_of([first, origin, at]))


def constant_batches(*, draw: Place, seeded: Place | None = None, rate: float | None) -> Finding:
    """Batches that are the same in every run: nothing random decides whether one holds the record."""
    why = "a fixed seed" if seeded is None else f"seeded at {spelled(seeded)}"
    says = (
        f"Batches are drawn at {spelled(draw)} from a generator that starts in the same state in every trial ({why}), "
        f"so they are the same in every run, but the claim assumes batches that include a record with probability "
        f"{rate:.4g}."
    )
    return Finding(kind=Kind.IN_EVERY_BATCH, lines=frames_of([draw] if seeded is None else [seeded, draw]), says=says)


def changed_after_release(
    at: Place,
    origin: Place | str | None,
    readers: Set[Reader],
    clause: str = "",
    number: Place = NOWHERE,
    read: Place = NOWHERE,
    handed: Callable[[Frame], bool] | None = None,
) -> Finding:
    """A released value met raw data: first the line of the function that has records in its hands, then a helper's.

    ``clause`` says in which form they came, where it is known. ``number`` is where Python read a number of theirs, and
    the line to look at first. ``read`` is where the function of ``at`` first reads them: where that is an earlier line
    of a helper's, the helper does more than to put together what it is given. ``handed`` is as for ``among_records``.
    """
    origin = origin if number is NOWHERE else number
    beside = [origin] if isinstance(origin, Place) else []
    lead = among_records(at, readers, handed) if number is NOWHERE else number
    if number is NOWHERE and lead.nearest != at.nearest and read.nearest not in (None, at.nearest):
        lead, clause = read, f", read at {spelled(read)}{clause}"
    named = origin is None or _is_at(origin, at) or _is_at(origin, lead)
    source = "" if origin is None or named else f"from {_spoken(origin)}"
    words = "; ".join(filter(None, (called_at(lead, at).strip(" ()"), source)))
    told = f"{f' ({words})' if words else ''}{clause}"
    return led(found(Kind.CHANGED_AFTER_RELEASE, at=at, origin=told, beside=beside), lead)


def after_sum(
    *,
    at: Place,
    origin: Place,
    readers: Set[Reader],
    measured: Place = NOWHERE,
    grows: bool = True,
    bounds: tuple[float, float] | None = None,
    reached: tuple[float, float] | None = None,
    accumulated: bool = False,
) -> Finding:
    """A sum that is bounded: first the line of the function that has records in its hands, then a helper's.

    ``measured`` is where its length is taken, where that is known; ``grows`` says that a larger record moves the sum
    further before, ``bounds`` how far this one moves it before and how far it may, if that is too far, and
    ``reached`` the same of what the sum becomes. ``accumulated``: backward passes add up what nobody sets to zero.
    """
    # who sums records has them
    lead = among_records(at, readers | {*map(function_around, origin.own[:1])})
    called = called_at(lead, at)
    words = {"then": "only then bounded,", "since": "no record is bounded on its own"}
    if not grows:
        since = "how far one record moves the sum depends on the others"
        since += "" if reached is None else f", here as much as {reached[0]:.4g} where {reached[1]:.4g} is the bound"
        words = {"then": "then bounded or otherwise changed,", "since": since}
    if not grows and bounds is not None:
        since = f"the record moves that sum by {bounds[0]:.4g}, more than {bounds[1]:.4g}, before it is bounded"
        words = {"then": "only then bounded,", "since": since}
    told = found(Kind.CLIPPED_AFTER_SUM, at=at, called=called, beside=[measured], origin=origin, **words)
    if accumulated:
        says = f" The backward pass at {spelled(origin)} adds to .grad, which nothing sets to zero after each record."
        return led(dataclasses.replace(told, says=f"{told.says}{says}"), origin)
    return led(told, lead)


def clipped_sum_changed(*, at: Place, origin: Place) -> Finding:
    """A sum of clipped records that raw data change which nothing bounds."""
    says = (
        f"At {spelled(at)} raw data that are not clipped change the sum of clipped records, so clipping each record "
        "does not bound what one record changes."
    )
    return Finding(kind=Kind.RECORDS_MIXED_BEFORE_SUM, lines=frames_of([at, origin]), says=says)


def too_few_numbers(*, first: Place, second: Place, how: str, shared: Place) -> Finding:
    """Noise whose coordinates share random numbers, so that some directions have none; ``shared`` is where they do."""
    since = "" if shared in (first, second, NOWHERE) else f" since {spelled(shared)}"
    told = found(Kind.KEY_USED_TWICE, first=first, second=second, how=f" ({how}{since})", beside=[shared])
    return led(told, shared)


def used_twice(*, first: Place, second: Place, how: str, seeded: Place = NOWHERE) -> Finding:
    """Random numbers that are used again; ``seeded`` is where their generator got its state again, if it did.

    An object that is made again draws from its first state again: the line that makes it stands first.
    """
    lead = NOWHERE if seeded is NOWHERE else handed_out(second, seeded)
    since = "" if seeded is NOWHERE else f", seeded at {spelled(seeded)}{called_at(lead, seeded)}"
    beside = [] if seeded is NOWHERE else [seeded]
    return led(found(Kind.KEY_USED_TWICE, first=first, second=second, how=f"{how}{since}", beside=beside), lead)


def _is_helped(place: Place, lead: Place) -> bool:
    """Whether a place is inside of a helper that the function of another line calls."""
    return place.nearest != lead.nearest and function_around(place.own[0]) != function_around(lead.own[0])


def _is_at(origin: Place | str, at: Place) -> bool:
    return isinstance(origin, Place) and origin.nearest == at.nearest


def _spoken(origin: Place | str) -> str:
    return spelled(origin) if isinstance(origin, Place) else origin


def called_at(lead: Place, at: Place) -> str:
    """Clause: a place was called for by another line."""
    elsewhere = lead.nearest != at.nearest and lead.nearest in at.own[1:]
    return f" (called at {spelled(lead)})" if elsewhere else ""


RECORDS, RELEASE, NOISE, SHOWN = "each record", "a release", "noise", "the output"
MEETINGS = {
    RECORDS: "gives each record a number computed from all of them",
    RELEASE: "changes a release with raw data",
    NOISE: "scales noise by raw data",
    SHOWN: "releases what raw data make",
}


def idle(at: Place, hidden: Place, *, meets: str) -> Finding:
    """Raw data that change nothing on this pair where they meet one of MEETINGS."""
    what = MEETINGS[meets]
    here, same = "that", "is the same with and without the record"
    if at.nearest != hidden.nearest:
        here, same = spelled(hidden), "makes it the same with and without the record"
    places = [at, hidden] if meets == RELEASE else [hidden, at]
    return not_followed(
        f"{spelled(at)} {what}; on this pair {here} {same}, but another record could change it", *places
    )


def not_followed(why: str, *places: Place) -> Finding:
    """What was not judged, and why: a clause without a full stop."""
    return Finding(kind=Kind.NOT_FOLLOWED, lines=frames_of(places), says=SENTENCES[Kind.NOT_FOLLOWED].format(why=why))
