"""What a replay says: facts with the lines they come from, what each release cost, and what could not be seen.

Every tracer fills these records, whatever language or library it follows. They explain and never decide a verdict.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

from audit.diagnosis.explain.places import NOWHERE, Frame, Place, among_records, frames_of, function_around, spelled
from audit.trials.library_files import relative


class Kind(enum.StrEnum):
    """What can be found, with a stable code each; in the order in which causes stand before their consequences."""

    KEY_USED_TWICE = "key_used_twice"
    RANDOMNESS_FROM_DATA = "randomness_from_data"
    IN_EVERY_BATCH = "in_every_batch"
    RECORDS_MIXED_BEFORE_SUM = "records_mixed_before_sum"
    CLIPPED_AFTER_SUM = "clipped_after_sum"
    NOT_CLIPPED = "not_clipped"
    NOISE_SCALE_FROM_DATA = "noise_scale_from_data"
    RELEASED_WITHOUT_NOISE = "released_without_noise"
    CHANGED_AFTER_RELEASE = "changed_after_release"
    TOO_LITTLE_NOISE = "too_little_noise"
    NOT_FOLLOWED = "not_followed"


SENTENCES = {
    Kind.KEY_USED_TWICE: "The randomness of {first} is used again at {second}{how}: these random numbers are not "
    "independent.",
    Kind.RANDOMNESS_FROM_DATA: "The random numbers drawn at {draw} depend on the data{origin}.",
    Kind.IN_EVERY_BATCH: "The record moves what is released at {at} in each of {runs} runs, and the claim has batches "
    "that hold it with probability {rate:.4g}: {why}.",
    Kind.RECORDS_MIXED_BEFORE_SUM: "At {at} one record changes the values of other records{through} before they are "
    "summed: clipping each of them does not bound what one record changes.",
    Kind.CLIPPED_AFTER_SUM: "The sum over records of {origin} is bounded at {at}{called}, after the sum: no record "
    "is bounded by itself.",
    Kind.NOT_CLIPPED: "A record {scale:g} times larger moves the release at {at} {times:.3g} times further: nothing "
    "bounds what is {made} at {origin}{leaves}.",
    Kind.NOISE_SCALE_FROM_DATA: "The noise's deviation depends on {what}: the number that scales it comes from "
    "{origin}{then}.",
    Kind.RELEASED_WITHOUT_NOISE: "{leaf} is released without noise: it comes from {at}{others}.",
    Kind.CHANGED_AFTER_RELEASE: "A released value meets raw data at {at}{origin}: noise no longer covers it.",
    Kind.TOO_LITTLE_NOISE: "The record{larger} moves {what} {origin} by {sensitivity:.4g}{more}, and the noise that "
    "{at} adds{called}, drawn at {draw}, has deviation {deviation:.4g}{parts}: a multiplier of {multiplier:.4g}, where "
    "{stated:.4g} is stated{due}.",
    Kind.NOT_FOLLOWED: "Not judged: {why}.",
}
"""One sentence for every kind. A ``Place`` is spelled as file:line, and its frames become the finding's lines."""

NOT_SEEN = (
    "what happens inside callbacks and other code that the trace does not enter",
    "loops whose number of steps depends on the data",
    "programs that are not the same for N and N + 1 records",
    "whether batches are drawn by the sampler and at the rate that the claim assumes",
    "the noise's law: its tails, its grain, the quality of its generator",
)
"""What no replay judges; told with every explanation, so that silence is not read as privacy."""
NEVER_SEEN = "Not seen by a replay: callbacks, the law of the sampler and of the noise, and more (help(audit.explain))."

NOTHING_STATED = (
    "No noise multiplier was stated (noise_multiplier=, or a claim that has one): the multipliers below were compared "
    "with nothing."
)

LARGER_BOUND = (
    "The record moves a sum by {most:.4g}, and the stated clipping norm allows {bound:.4g}: the code uses another norm "
    "or other units. Only the noise over what the record moves was judged."
)

CLOSE = 0.02
"""Relative error below which a multiplier is as stated."""
CAUSES_OF_TOO_LITTLE_NOISE = frozenset(
    {
        Kind.RECORDS_MIXED_BEFORE_SUM,
        Kind.CLIPPED_AFTER_SUM,
        Kind.NOT_CLIPPED,
        Kind.NOISE_SCALE_FROM_DATA,
        Kind.CHANGED_AFTER_RELEASE,
    }
)
"""Where one of these is found, a small multiplier follows from it and is not a finding of its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One fact about the code that was replayed."""

    kind: Kind
    lines: tuple[Frame, ...]
    """(path, line): the user's own frames first, the nearest first among them, then those of libraries."""
    says: str
    """One or two sentences, with file:line in them."""

    @property
    def heading(self) -> str:
        """The kind, and the line to look at first."""
        return f"{self.kind} at {spelled(Place(own=self.lines[:1]))}" if self.lines else str(self.kind)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """What one release cost: how far the record moves it, over the deviation of the noise that covers it."""

    number: int
    """Of the round, from 1; tensors that are released in one round are taken together."""
    sensitivity: float
    """L2 distance between the two sides where noise meets it, in the units of ``noise_deviation``."""
    noise_deviation: float
    """Of one coordinate of the noise; root mean square where coordinates differ."""
    multiplier: float
    """1 / sqrt(sum of (difference / deviation)^2) over the coordinates; infinite where the record moves nothing."""
    lines: tuple[Frame, ...] = ()
    """Where noise meets data."""
    exact: bool = True
    """Whether the deviation is known from the program; else it is estimated from draws."""
    judged: bool = True
    """Whether the multiplier is what the round costs; else something of the round was not followed."""
    scale: float = 1.0
    """How many times larger the record was made, where it shows nothing as it is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Covered:
    """How much of the code was followed."""

    draws: int = 0
    """Places in the program where random numbers were drawn."""
    releases: int = 0
    """Places where noise met data."""
    opaque: tuple[str, ...] = ()
    """What was run and not followed: a callback with its line, a program in another language."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    """What replay found. Nothing found does not mean private: ``covered`` and NOT_SEEN say what was not judged."""

    findings: tuple[Finding, ...] = ()
    """Causes before consequences; NOT_FOLLOWED last."""
    rounds: tuple[Round, ...] = ()
    covered: Covered = dataclasses.field(default_factory=Covered)
    stated: float | None = None
    """The noise multiplier that the rounds were compared with; None where nobody stated one."""
    bound: float | None = None
    """How far the pair may move a sum by the clipping norm that was stated; None where nobody stated one."""

    @property
    def suspicions(self) -> tuple[Finding, ...]:
        """The findings that point at something wrong: all but those that say what was not judged."""
        return tuple(found for found in self.findings if found.kind != Kind.NOT_FOLLOWED)

    @property
    def not_judged(self) -> tuple[Finding, ...]:
        """The findings that say what was not judged, and why."""
        return tuple(found for found in self.findings if found.kind == Kind.NOT_FOLLOWED)

    @property
    def followed(self) -> bool:
        """Whether a replay saw anything of what noise does, or found nothing to say."""
        return bool(self.covered.draws or self.covered.releases or not self.findings)

    def is_as_stated(self, due: float | None) -> bool:
        """Whether nothing was found and every release has exactly the noise that is due to what the record moves."""
        if due is None or self.findings or not self.rounds:
            return False
        return all(one.exact and one.judged and abs(one.multiplier / due - 1) < CLOSE for one in self.rounds)

    def __str__(self) -> str:
        """As a terminal shows it."""
        return f"{self.of_this_code}\n{NEVER_SEEN}"

    @property
    def of_this_code(self) -> str:
        """The same without what no replay sees."""
        blocks = [f"{found.heading}\n  {found.says}{_at(found.lines)}" for found in self.suspicions]
        if not self.findings:
            blocks = ["Nothing found. This does not show that the code is private: only trials test that."]
        if self.rounds and self.stated is None:
            blocks.append(NOTHING_STATED)
        most = max((one.sensitivity for one in self.rounds), default=0.0)
        if self.bound is not None and most > self.bound * (1 + CLOSE) and not self.suspicions:
            blocks.append(LARGER_BOUND.format(most=most, bound=self.bound))
        blocks += [f"{found.says}{_at(found.lines)}" for found in self.not_judged]
        blocks += [_table(self.rounds)] if self.rounds else []
        if self.followed:
            draws, meetings = (_counted(number, "place") for number in (self.covered.draws, self.covered.releases))
            blocks.append(f"Followed: random numbers drawn at {draws} of the code, noise added to data at {meetings}.")
        if self.covered.opaque:
            blocks.append(f"Run and not followed: {', '.join(self.covered.opaque)}.")
        return "\n".join(blocks)


def found(kind: Kind, *, beside: Iterable[Place] = (), **words: object) -> Finding:
    """A finding of this kind: its sentence with the words in it, and the lines of the places among them, in order.

    ``beside`` are places whose lines belong to it, too, spelled inside of other words.
    """
    places = [*(word for word in words.values() if isinstance(word, Place)), *beside]
    said = {name: spelled(word) if isinstance(word, Place) else word for name, word in words.items()}
    return Finding(kind=kind, lines=frames_of(places), says=SENTENCES[kind].format(**said))


def led(told: Finding, lead: Place) -> Finding:
    """The same with the line to look at first in front."""
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


def too_little(
    *,
    lead: Place,
    at: Place,
    summed: bool = True,
    between: tuple[float, float] | None = None,
    bare: tuple[int, int] | None = None,
    scale: float = 1.0,
    cancels: bool = False,
    due: str = "",
    known: float | None = None,
    beside: Iterable[Place] = (),
    **words: object,
) -> Finding:
    """Noise of too small a deviation; ``lead`` is the line to look at first, such as the caller that hands it over.

    ``known`` is the right deviation, where the function of that line is still given it.

    ``summed`` says that records were summed for certain where what is released comes from. ``between`` are the least
    and the largest deviation of a release whose parts get different ones: the one told is that of ``at``. ``scale`` is
    how many times larger the record was made. ``cancels`` says that coordinates share numbers of noise. ``bare`` is how
    many coordinates have no noise, and how many there are.
    """
    own = lead.own[:1]
    called = _called(own, at)
    what = "the sum of" if summed else "what is made of the records at"
    parts = (
        ""
        if between is None
        else f" there ({between[0]:.4g} to {between[1]:.4g} over all parts, each in its own units)"
    )
    parts += "" if bare is None else f", and 0 in {bare[0]} of {bare[1]} coordinates"
    parts += " in every coordinate and less along the record, since they share random numbers" if cancels else ""
    words |= {"called": called, "what": what, "due": due, "parts": parts}
    words["larger"] = "" if scale == 1 else f", made {scale:,g} times larger,"
    told = found(Kind.TOO_LITTLE_NOISE, beside=beside, at=at, **words)
    if known is not None:
        right = f"The function of {spelled(lead)} is given the right deviation, {known:.4g}."
        told = dataclasses.replace(told, says=f"{told.says} {right}")
    return led(told, Place(own))


def due_on_the_pair(stated: float, due: float) -> str:
    """What a stated multiplier comes to where the pair may move a sum by more than one clipping norm."""
    if due == stated:
        return ""
    return f" ({due:.4g} on this pair, whose record may move it by {stated / due:g} clipping norms)"


def earlier_rounds(carried: Place, lead: Place = NOWHERE, begun: Place = NOWHERE) -> str:
    """That a sum holds those of earlier rounds, as momentum of sums without noise does: a clause.

    ``begun`` is where the sum was last begun, if it is one that nobody begins anew.
    """
    where = f"{spelled(carried)}{_called(lead.own[:1], carried)}"
    since = "" if begun is NOWHERE else f" (begun at {spelled(begun)}, and not anew in each round)"
    return f", to which {where} adds the sums of earlier rounds without their noise{since}"


def carried_unseen(carried: Place, runs: int) -> str:
    """That sums of earlier rounds are carried on, and no run shows what that costs: a clause."""
    return (
        f"{spelled(carried)} adds sums of earlier rounds without their noise to later ones, and the record was in no "
        f"two rounds of {runs} runs: how far it would move them is not known"
    )


def too_far(clip: float | None) -> str:
    """That the record moves a sum by more than the clipping norm that was stated: a clause."""
    return f", more than the stated bound of {clip:g}"


def held_again(at: Place) -> str:
    """That batches hold a record more than once: a clause."""
    return f" (a batch holds a record more than once: {spelled(at)})"


def clipped_apart(lengths: Iterable[float], most: float, many: int, *, bound: float | None, slack: float) -> str:
    """Where the record moves several parts of a release, or coordinates, by the whole bound each: that, as a clause.

    ``most`` is how far it moves one coordinate at most, ``many`` the number that it moves so far.
    """
    if bound is None:
        return ""
    whole = [length for length in lengths if abs(length - bound) <= slack * bound]
    if len(whole) > 1:
        return f", by {bound:.4g} in each of {len(whole)} parts, as where each is clipped by itself"
    if many > 1 and abs(most - bound) <= slack * bound:
        return f", by {bound:.4g} in each of {many} coordinates, as where each is clipped by itself"
    return ""


def mixed(*, at: Place, through: Place | str | None = None) -> Finding:
    """Records that change one another: first where a number is made of all of them, then where it meets each."""
    by = "" if through is None else f" through {_spoken(through)}"
    told = found(Kind.RECORDS_MIXED_BEFORE_SUM, at=at, through=by)
    return dataclasses.replace(told, lines=frames_of([through, at])) if isinstance(through, Place) else told


def in_every_batch(
    *,
    origin: Place,
    at: Place,
    runs: int,
    rate: float | None,
    constant: Place | None = None,
    taken: Place = NOWHERE,
) -> Finding:
    """A record that is in every batch, or that padding gives away.

    ``constant`` is where the batch's key is made, ``taken`` where the places of its records are, if that is known.
    """
    batch = f"the sum of {spelled(origin)}" if taken is NOWHERE else f"the batch that is chosen at {spelled(taken)}"
    why = (
        f"{batch} holds every record, or what no mask hides and no batch holds changes it, such "
        "as padding or the number of records"
    )
    if constant is not None:
        why = f"a number for each record is drawn from the constant key of {spelled(constant)}, the same in every run"
    told = found(Kind.IN_EVERY_BATCH, origin=origin, at=at, runs=runs, rate=rate, why=why)
    first = taken if constant is None else constant
    return dataclasses.replace(told, lines=frames_of([first, origin, at]))


def constant_batches(*, draw: Place, seeded: Place | None = None, rate: float | None) -> Finding:
    """Batches that are the same in every run: nothing random decides whether one holds the record."""
    why = "a fixed seed" if seeded is None else f"seeded at {spelled(seeded)}"
    says = (
        f"Batches are drawn at {spelled(draw)} from a generator that has the same state for every seed of a trial "
        f"({why}): they are the same in every run, and the claim has batches that hold a record with probability "
        f"{rate:.4g}."
    )
    return Finding(kind=Kind.IN_EVERY_BATCH, lines=frames_of([draw] if seeded is None else [seeded, draw]), says=says)


def changed_after_release(
    at: Place,
    origin: Place | str | None,
    readers: set[Frame],
    clause: str = "",
    number: Place = NOWHERE,
    read: Place = NOWHERE,
) -> Finding:
    """A released value met raw data: first the line of the function that has records in its hands, then a helper's.

    ``clause`` says in which form they came, where it is known. ``number`` is where Python read a number of theirs, and
    the line to look at first. ``read`` is where the function of ``at`` first reads them: where that is an earlier line
    of a helper's, the helper does more than to put together what it is given.
    """
    origin = origin if number is NOWHERE else number
    beside = [origin] if isinstance(origin, Place) else []
    lead = among_records(at, readers) if number is NOWHERE else number
    if lead.nearest != at.nearest and read.nearest not in (None, at.nearest):
        lead, clause = read, f", read at {spelled(read)}{clause}"
    told = f"{_called(lead.own[:1], at)}{'' if origin is None else f' (from {_spoken(origin)})'}{clause}"
    return led(found(Kind.CHANGED_AFTER_RELEASE, at=at, origin=told, beside=beside), lead)


def after_sum(*, at: Place, origin: Place, readers: set[Frame], measured: Place = NOWHERE) -> Finding:
    """A sum that is bounded: first the line of the function that has records in its hands, then a helper's.

    ``measured`` is where its length is taken, where that is known.
    """
    # who sums records has them
    lead = among_records(at, readers | set(map(function_around, origin.own[:1])))
    called = _called(lead.own[:1], at)
    return led(found(Kind.CLIPPED_AFTER_SUM, at=at, called=called, beside=[measured], origin=origin), lead)


def too_few_numbers(*, first: Place, second: Place, how: str, shared: Place) -> Finding:
    """Noise whose coordinates share random numbers, so that some directions have none; ``shared`` is where they do."""
    since = "" if shared in (first, second, NOWHERE) else f" since {spelled(shared)}"
    told = found(Kind.KEY_USED_TWICE, first=first, second=second, how=f" ({how}{since})", beside=[shared])
    return led(told, shared)


def _spoken(origin: Place | str) -> str:
    return spelled(origin) if isinstance(origin, Place) else origin


def _called(lead: tuple[Frame, ...], at: Place) -> str:
    elsewhere = lead and lead[0] != at.nearest and lead[0] in at.own[1:]
    return f" (called at {spelled(Place(lead))})" if elsewhere else ""


RECORDS, RELEASE, NOISE = "each record", "a release", "noise"
MEETINGS = {
    RECORDS: "gives each record a number that is made of all of them",
    RELEASE: "changes a release by raw data",
    NOISE: "scales noise by raw data",
}


def idle(at: Place, hidden: Place, *, meets: str) -> Finding:
    """Raw data that change nothing on this pair where they meet one of MEETINGS."""
    what = MEETINGS[meets]
    here = "here that" if at.nearest == hidden.nearest else f"here {spelled(hidden)}"
    same = "is the same with and without the record" if here == "here that" else "makes it the same on both sides"
    places = [at, hidden] if meets == RELEASE else [hidden, at]
    return not_followed(f"{spelled(at)} {what}; {here} {same}, but another record may change it", *places)


def not_followed(why: str, *places: Place) -> Finding:
    """What was not judged, and why: a clause without a full stop."""
    return Finding(kind=Kind.NOT_FOLLOWED, lines=frames_of(places), says=SENTENCES[Kind.NOT_FOLLOWED].format(why=why))


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each kind once for the same lines, causes before consequences, no consequence whose cause is named."""
    unique = list({(one.kind, one.lines): one for one in reversed(list(findings))}.values())[::-1]
    kinds = {one.kind for one in unique}
    if kinds & CAUSES_OF_TOO_LITTLE_NOISE:
        unique = [one for one in unique if one.kind != Kind.TOO_LITTLE_NOISE]
    order = list(Kind)
    return tuple(sorted(unique, key=lambda one: order.index(one.kind)))


def _at(lines: tuple[Frame, ...]) -> str:
    return "".join(f"\n    {relative(path)}:{line}" for path, line in lines)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _table(rounds: tuple[Round, ...]) -> str:
    rows = [
        f"  {one.number:>5}  {one.sensitivity:>11.4g}  {one.noise_deviation:>15.4g}  {one.multiplier:>10.4g}"
        f"{'' if one.exact else '  (deviation estimated)'}{'' if one.judged else '  (not judged)'}"
        f"{'' if one.scale == 1 else f'  (the record made {one.scale:,g} times larger)'}"
        for one in rounds
    ]
    return "\n".join(["  round  sensitivity  noise deviation  multiplier", *rows])
