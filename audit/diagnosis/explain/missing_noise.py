"""Findings about leaves that have no noise, the same noise in every run, or less of it than others."""

from __future__ import annotations

import dataclasses

from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.places import NOWHERE, Place, frames_of, handed_out, spelled
from audit.diagnosis.explain.sentences import called_at, found, led
from dpsgd_audit.spelling import counted

EARLIER = "A value that later rounds read"
"""Words used in place of a leaf's name for a value that later rounds read."""
EMPTY = "A round whose batch is empty"
"""Words used in place of a leaf's name where nobody is in the batch."""

NONE_LEFT = "whoever subtracts it knows exactly what the record adds"


def short_of_noise(
    leaf: str,
    *,
    at: Place,
    draw: Place,
    deviation: float,
    others: float,
    length: float,
    due: float,
    made: Place | None = None,
) -> Finding:
    """A leaf with less noise than others that are clipped together with it, whatever the record at hand shows.

    ``made`` is where its noise was made smaller, where that is not where it is drawn.
    """
    smaller = "" if made is None or made in (at, draw) else f" and changed at {spelled(made)}"
    says = (
        f"The noise that {spelled(at)} adds to {leaf}, drawn at {spelled(draw)}{smaller}, has standard deviation "
        f"{deviation:.4g}, while other parts get {others:.4g}, and all of them are clipped together, to {length:.4g}: "
        f"a record whose gradient lies there has a noise multiplier of {deviation / length:.4g}, but {due:.4g} is "
        "expected."
    )
    places = [at, draw] if made is None else [made, at, draw]
    return Finding(kind=Kind.TOO_LITTLE_NOISE, lines=frames_of(places), says=says)


def without_noise(
    leaf: str,
    at: Place,
    noisy: Place | None = None,
    left: Place = NOWHERE,
    fixed: tuple[Place, Place] | None = None,
    noised: Place | None = None,
    bounded: Place | None = None,
    muted: Place | None = None,
    unused: bool = False,
    inside: Place = NOWHERE,
) -> Finding:
    """A leaf of the output without noise; ``noisy`` is where others, summed on the same line, get theirs.

    Where ``unused`` it is where the leaf's own sum gets noise, and ``left`` where the code goes on without that.

    ``left`` is where it was left out, or its noise written over. ``fixed`` is where numbers of a constant key are added
    instead, and where the key is made. ``noised`` and ``bounded`` are where noise is added to single records, and where
    they are clipped after that. ``muted`` is where its noise was left out or multiplied by zero, ``inside``
    the condition or the loop that ``noisy`` stands in.
    """
    leaf = _large(leaf)
    if fixed is not None:
        added, key = fixed
        told = (
            f"; what is added at {spelled(added)} is drawn from the constant key of {spelled(key)}, so it is the same "
            "in every run and hides nothing"
        )
        lines = frames_of([key, at, added])
        return dataclasses.replace(found(Kind.RELEASED_WITHOUT_NOISE, leaf=leaf, at=at, others=told), lines=lines)
    same = noisy is not None and inside.nearest == noisy.nearest
    under = "" if inside is NOWHERE or same else f", inside of {spelled(inside)}"
    told = "" if noisy is None else f"; noise is added to others at {spelled(noisy)}{under}"
    if noisy is not None and leaf == EARLIER:
        # it may be that sum which gets it: what is shown has noise, what goes on has none
        told = f"; noise is added at {spelled(noisy)}{under}, but not to this value"
        told += "" if left is NOWHERE else f" ({spelled(left)} goes on without it)"
    if noised is not None and bounded is not None:
        # a helper that adds noise is right for sums: whoever calls for both took single records
        lead = handed_out(bounded, noised)
        noised = lead if lead.own else noised
        told = f"; what {spelled(noised)} adds to single records comes before {spelled(bounded)}, which clips or bends "
        told += "it with them"
    if unused and noisy is not None:
        told = f"; {spelled(noisy)} adds noise to that sum, but the release uses the sum without it"
        told += "" if left is NOWHERE else f" ({spelled(left)})"
    elif left not in (NOWHERE, noisy) and leaf != EARLIER:
        told += f"; {spelled(left)} leaves it without"
    if muted is not None:
        own = "its own" if told else "its noise"
        told += f"; {own} is left out or multiplied by zero ({spelled(muted)})"
    # the line that left it out stands first
    lines = frames_of([place for place in (muted, left, inside, noised, noisy, bounded, at) if place is not None])
    bare = dataclasses.replace(found(Kind.RELEASED_WITHOUT_NOISE, leaf=leaf, at=at, others=told), lines=lines)
    if leaf != EMPTY:
        return bare
    says = f"If the batch is empty, the round is released without noise ({spelled(at)}){told}."
    return dataclasses.replace(bare, says=says)


def stepped_without(
    leaf: str, *, at: Place, stepped: Place, private: Place, made: Place, steps: int, early: bool
) -> Finding:
    """Weights that a step changes by sums without noise; ``made`` is where its optimizer is made.

    ``private`` is where one with noise is taken: a helper that takes both steps is called from two lines.
    """
    own = [number for number, frame in enumerate(stepped.own) if frame not in private.own]
    lead = Place(own=stepped.own[own[0] :]) if own else stepped
    often = f"in {counted(steps, 'step')}{' before any noise is added' if early else ''}"
    who = "" if made is NOWHERE else f" (its optimizer is made at {spelled(made)})"
    step = "which" if at.nearest == stepped.nearest else f"and {spelled(stepped)}{called_at(lead, stepped)}"
    told = f", {step} changes the weights {often}{who}"
    finding = found(Kind.RELEASED_WITHOUT_NOISE, leaf=_large(leaf), at=at, others=told, beside=[stepped, made])
    return led(dataclasses.replace(finding, lines=frames_of([lead, stepped, made, at])), lead)


def same_noise(leaf: str, *, at: Place, added: Place, draw: Place, seeded: Place | None = None) -> Finding:
    """A leaf whose noise comes from a generator that is in the same state in every run, and where it was seeded."""
    why = "a fixed seed" if seeded is None else f"seeded at {spelled(seeded)}"
    told = (
        f"; what is added at {spelled(added)} is drawn at {spelled(draw)} from a generator that starts in the same "
        f"state for every trial ({why}), so it is the same in every run and hides nothing"
    )
    lines = frames_of([draw, added, at] if seeded is None else [seeded, draw, added, at])
    return dataclasses.replace(found(Kind.RELEASED_WITHOUT_NOISE, leaf=_large(leaf), at=at, others=told), lines=lines)


def shown_too(*, name: str, shown: Place, at: Place, draw: Place, left: float = 0.0, due: float = 0.0) -> Finding:
    """The output also shows the noise of a sum; ``left`` is the multiplier of what else covers it, or 0."""
    leaf = f"the leaf {name} of the output" if name else "the output"
    kind = Kind.TOO_LITTLE_NOISE if left else Kind.RELEASED_WITHOUT_NOISE
    told = f"without it a noise multiplier of {left:.4g} is left, but {due:.4g} is expected" if left else NONE_LEFT
    noise = f"The noise drawn at {spelled(draw)}{'' if draw.nearest == at.nearest else f' and added at {spelled(at)}'}"
    says = f"{noise} also reaches {leaf} by itself ({spelled(shown)}): {told}."
    return Finding(kind=kind, lines=frames_of([shown, at, draw]), says=says)


def no_number(leaf: str, *, origin: Place, made: Place = NOWHERE) -> Finding:
    """A leaf that is no number with the record: where it became none, unless the record itself holds none."""
    says = f"With the record {leaf} is NaN or infinite from {spelled(made)} on: no noise hides that."
    if made is NOWHERE:
        says = f"The record's NaN or infinity reaches {leaf} at {spelled(origin)}: no noise hides that."
    return Finding(kind=Kind.TOO_LITTLE_NOISE, lines=frames_of([made, origin]), says=says)


def _large(leaf: str) -> str:
    return f"{leaf[0].upper()}{leaf[1:]}" if leaf.startswith(("the ", "a ")) else leaf
