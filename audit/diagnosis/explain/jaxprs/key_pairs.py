"""Two uses of one key, and which line to look at first: who copied the key, or handed it out a second time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from audit.diagnosis.explain.findings import Finding, Kind
from audit.diagnosis.explain.jaxprs.key_hands import Hands, is_for_other, stuck_counter
from audit.diagnosis.explain.places import NOWHERE, Frame, Place, function_around, handed_out, spelled
from audit.diagnosis.explain.sentences import found, led


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """Two draws that are not independent, or a draw and the derivation of keys from its key."""

    first: Place
    second: Place
    how: str = ""
    added: Place | None = None
    """Where numbers that were drawn only once are added again."""
    copied: Place | None = None
    """Where one key became several that are alike."""
    taken: Place | None = None
    """Where the key of the second was last moved or made."""
    begun: Frame | None = None
    """The loop that begins with the key of both twice, or with one that it was derived from."""
    derived: tuple[Place, ...] = ()
    """Where the key of both was derived, if it was: in several places, or in one that came by it again."""
    chooses: tuple[bool, bool] = (False, False)
    """Whether the first and the second choose records."""


def used_twice(pair: Pair, hands: Callable[[], Hands]) -> Finding:
    """Two draws of one key: first the line that copies the key, or that hands it out a second time."""
    first, second = pair.first, pair.second
    lead, told = _handed(pair, hands())
    used = second if pair.added is None else pair.added
    once = "" if pair.added is None else "drawn once"
    clause = "; ".join(filter(None, (once, pair.how, told)))
    again = "the same line" if spelled(first) == spelled(used) else spelled(used)
    how = f" ({clause})" if clause else ""
    beside = [second, used, *pair.derived]
    return led(found(Kind.KEY_USED_TWICE, first=first, second=again, beside=beside, how=how), lead)


def _handed(pair: Pair, hands: Hands) -> tuple[Place, str]:
    """The line to look at first, and what it does, as a clause."""
    known = {pair.first.nearest, pair.second.nearest, None}
    if pair.added is not None and pair.first == pair.second:
        return pair.added, ""
    alike = hands.derived_alike(*pair.derived[:2]) if pair.derived[1:] else None
    if alike is not None and stuck_counter(alike) is None:
        return alike, f"{spelled(alike)} derives the same key each time"
    out = hands.handed(pair.first, pair.second, of_state=pair.copied is None)
    uses = (pair.first, pair.second)
    if out is None and pair.derived:
        out, uses = hands.handed(*pair.derived[:2], of_state=False), pair.derived[:2]
    if out is not None and out.copies:
        return out.at, f"{spelled(out.at)} copies the key"
    each = pair.copied if out is None else out.at if out.at.nearest == out.first.nearest else None
    same = [*pair.derived[:1], *([] if each is None else [each])] if len({one.own for one in pair.derived}) < 2 else []
    for at, stuck in ((at, stuck_counter(at)) for at in same):
        if stuck is not None:
            return stuck[1], f"{spelled(at)} folds in {stuck[0]}, which is the same each time: {spelled(stuck[1])}"
    if out is not None:
        crossed = _crossed(pair, uses, (out.first, out.at))
        lead = out.at if crossed is None else crossed
        if lead.nearest in known:
            return lead, ""
        if each is not None:
            return lead, f"{spelled(lead)} hands over the same key each time"
        return lead, f"{spelled(out.first)} and {spelled(out.at)} hand over the same key"
    if pair.copied is None and pair.derived and (carried := hands.carried_twice(pair.begun)) is not None:
        return carried, f"{spelled(carried)} copies the key, which the loop begins with twice"
    if pair.copied is not None:
        does = "derives the same key each time" if pair.derived else "copies the key"
        return pair.copied, f"{spelled(pair.copied)} {does}"
    if pair.derived:
        lead = _crossed(pair, pair.derived[:2], pair.derived[:2]) or handed_out(*pair.derived[:2])
        lead = pair.derived[1] if lead is NOWHERE else lead
        return lead, f"{spelled(pair.derived[0])} and {spelled(pair.derived[1])} derive the same key"
    lead = handed_out(pair.first, pair.second)
    if lead.nearest in known and pair.taken is not None and pair.taken.nearest in pair.second.own:
        # one line of a caller's takes the same key out of several again
        lead = pair.taken
    return lead, "" if lead.nearest in known else f"called at {spelled(lead)}"


def _crossed(pair: Pair, uses: Sequence[Place], lines: Sequence[Place]) -> Place | None:
    """The one of two lines that takes a key for what its name says that it is not for, if only one does.

    ``uses`` are the draws of the pair, or where their keys were derived, and ``lines`` where each got the key.
    """
    if pair.chooses[0] == pair.chooses[1]:
        return None
    chooses = pair.chooses
    if uses[0] != pair.first:
        straight, turned = (
            _shared_frames(uses, draws) for draws in ((pair.first, pair.second), (pair.second, pair.first))
        )
        if straight == turned:
            return None
        chooses = chooses if straight > turned else chooses[::-1]
    wrong = [line for line, own in zip(lines, chooses, strict=True) if is_for_other(line.nearest, chooses=own)]
    return wrong[0] if len(wrong) == 1 else None


def _shared_frames(uses: Sequence[Place], draws: Sequence[Place]) -> int:
    """How many lines and functions places have in common with draws, one with one."""
    pairs = list(zip(uses, draws, strict=True))
    lines = sum(len(set(one.own) & set(other.own)) for one, other in pairs)
    return lines + sum(
        len({*map(function_around, one.own)} & {*map(function_around, other.own)}) for one, other in pairs
    )
