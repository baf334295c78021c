"""What a replay says: facts with the lines they come from, what each release cost, and what could not be seen.

Every tracer fills these records, whatever language or library it follows. They explain and never decide a verdict.
"""

from __future__ import annotations

import dataclasses
import enum
import linecache
import math
from collections.abc import Iterable

from audit.diagnosis.explain.places import Frame, Place, spelled
from audit.trials.library_files import relative
from dpsgd_audit.spelling import counted


class Kind(enum.StrEnum):
    """What can be found, with a stable code each; in the order in which causes stand before their consequences."""

    KEY_USED_TWICE = "key_used_twice"
    RANDOMNESS_FROM_DATA = "randomness_from_data"
    IN_EVERY_BATCH = "in_every_batch"
    SAMPLED_OTHERWISE = "sampled_otherwise"
    RECORDS_MIXED_BEFORE_SUM = "records_mixed_before_sum"
    CLIPPED_AFTER_SUM = "clipped_after_sum"
    NOT_CLIPPED = "not_clipped"
    NOISE_SCALE_FROM_DATA = "noise_scale_from_data"
    RELEASED_WITHOUT_NOISE = "released_without_noise"
    CHANGED_AFTER_RELEASE = "changed_after_release"
    TOO_LITTLE_NOISE = "too_little_noise"
    NOT_FOLLOWED = "not_followed"


NOT_SEEN = (
    "what happens inside callbacks and other code that the trace does not enter",
    "loops whose number of steps depends on the data",
    "programs that are not the same for N and N + 1 records",
    "how batches are drawn, except for the faults that in_every_batch and sampled_otherwise name under a Poisson claim",
    "the noise's law: its tails, its grain, the quality of its generator",
)
"""What no replay judges; told with every explanation, so that silence is not read as privacy."""
NEVER_SEEN = "Not seen by a replay: callbacks, most laws of samplers, the noise's law, and more (help(audit.explain))."

NOTHING_STATED = (
    "No noise multiplier was stated (by noise_multiplier= or by a claim with a single one), so trials judge whether "
    "the noise below is enough: `dpsgd-audit run`."
)

SCALE_COMPARED = "The scale of the Laplace noise was compared with the claim's epsilon of {epsilon:.4g}."

NOT_JUDGED = "Trials judge what was not judged here: `dpsgd-audit run`."

LARGER_BOUND = (
    "The record moves a release by {most:.4g} where the stated clipping norm allows {bound:.4g} (another norm, other "
    "units, or a sum released in parts); {noise}."
)
IN_PROPORTION = "the noise is as large in proportion, and only that ratio was judged"
NO_PROPORTION = "no noise multiplier is stated, so whether the noise is as large in proportion was not judged"

WIDEST = 80
"""Characters of a line of source that is shown."""
LARGEST_ERROR = 0.1
"""Largest relative error of a deviation that is printed."""
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
    """Number of the round, from 1; tensors that are released in one round are taken together."""
    last: int = 0
    """Number of the last of several that are told as one, since their noise shares random numbers."""
    joint: bool = False
    """Whether numbers of its noise stand in several coordinates, as in sums of a tree."""
    sensitivity: float
    """L2 distance between the two sides where noise meets it, in the units of ``noise_deviation``."""
    noise_deviation: float
    """Of the noise along what the record moves, so that it is ``sensitivity * multiplier``; where the record moves
    nothing, of one coordinate (root mean square)."""
    multiplier: float
    """1 / sqrt(sum of (difference / deviation)^2) over the coordinates; infinite where the record moves nothing."""
    lines: tuple[Frame, ...] = ()
    """Where noise meets data."""
    exact: bool = True
    """Whether the deviation is known from the program; else it is estimated from draws."""
    error: float = 0.0
    """Relative standard error of a deviation that is estimated from few draws."""
    judged: bool = True
    """Whether the multiplier is what the round costs; else something of the round was not followed."""
    average: float | None = None
    """The noise's deviation over all coordinates, root mean square."""
    epsilon: float | None = None
    """What Laplace noise alone costs if all of it is told."""
    moved: float = 0.0
    """Of Laplace noise the L1 distance between the two sides."""
    scales: tuple[float, float] = (0.0, 0.0)
    """The smallest and the largest scale of Laplace noise among the coordinates that the record moves."""
    scale: float = 1.0
    """How many times larger the record was made, where it shows nothing as it is; negative with the opposite sign."""

    def is_told(self, *, compared: bool) -> bool:
        """Whether its deviation is; not where draws of an unknown law alone tell it, and no multiplier was stated."""
        return self.error <= LARGEST_ERROR and (self.exact or compared)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Covered:
    """How much of the code a replay followed."""

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
    epsilon: float | None = None
    """The claim's, if all noise is Laplace noise that was compared with it."""
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
        """The explanation as a terminal shows it."""
        return f"{self.of_this_code}\n{NEVER_SEEN}"

    @property
    def of_this_code(self) -> str:
        """The explanation without the list of what no replay sees."""
        blocks = [f"{found.heading}\n  {found.says}{_at(found.lines)}" for found in self.suspicions]
        if not self.findings:
            blocks = ["Nothing found. This does not show that the code is private: only trials test that."]
        # what shares noise was judged by its joint law, and the record may move all of it
        most = max((one.sensitivity for one in self.rounds if one.judged and not one.joint), default=0.0)
        seen = not (self.findings or self.covered.opaque)
        if seen and self.bound is not None and most > self.bound * (1 + CLOSE):
            noise = NO_PROPORTION if self.stated is None and self.epsilon is None else IN_PROPORTION
            blocks.append(LARGER_BOUND.format(most=most, bound=self.bound, noise=noise))
        blocks += [f"{found.says}{_at(found.lines)}" for found in self.not_judged]
        compared = self.stated is not None or any(one.epsilon is not None for one in self.rounds)
        if self.epsilon is not None:
            blocks.append(SCALE_COMPARED.format(epsilon=self.epsilon))
        elif self.rounds and not compared and all(one.kind != Kind.TOO_LITTLE_NOISE for one in self.findings):
            blocks.append(NOTHING_STATED)
        elif self.not_judged and self.followed:
            blocks.append(NOT_JUDGED)
        blocks += [_table(self.rounds, compared=self.stated is not None)] if self.rounds else []
        if self.followed:
            draws, meetings = (counted(number, "place") for number in (self.covered.draws, self.covered.releases))
            blocks.append(f"Followed: random numbers drawn at {draws} of the code, noise added to data at {meetings}.")
        if self.covered.opaque:
            blocks.append(f"Run and not followed: {', '.join(self.covered.opaque)}.")
        return "\n".join(blocks)


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each kind once for the same lines, causes before consequences, no consequence whose cause is named."""
    unique = list({(one.kind, one.lines): one for one in reversed(list(findings))}.values())[::-1]
    kinds = {one.kind for one in unique}
    if kinds & CAUSES_OF_TOO_LITTLE_NOISE:
        unique = [one for one in unique if one.kind != Kind.TOO_LITTLE_NOISE]
    # what was not judged at the lines of a suspicion follows from it
    told = [set(one.lines) for one in unique if one.kind != Kind.NOT_FOLLOWED]
    unique = [
        one
        for one in unique
        if one.kind != Kind.NOT_FOLLOWED or not one.lines or not any(lines.issuperset(one.lines) for lines in told)
    ]
    order = list(Kind)
    return tuple(sorted(_one_key(unique), key=lambda one: order.index(one.kind)))


def _one_key(findings: Iterable[Finding]) -> Iterable[Finding]:
    """What one line's key makes of several draws in one finding, where the same is said of each."""
    told: dict[object, Finding] = {}
    for one in findings:
        draw = spelled(Place(own=one.lines[1:2]))
        alike: object = one
        if one.kind == Kind.KEY_USED_TWICE and one.lines[1:] and draw in one.says:
            alike = one.lines[0], one.says.replace(draw, "")
        before = told.get(alike)
        if before is None:
            told[alike] = one
        elif draw not in before.says:
            lines = tuple(dict.fromkeys((*before.lines, *one.lines)))
            told[alike] = dataclasses.replace(before, lines=lines, says=f"{before.says} The same holds for {draw}.")
        else:
            told[one] = one
    return told.values()


def _at(lines: tuple[Frame, ...]) -> str:
    """Each on a line of its own, with its source."""
    sources = (linecache.getline(path, line).strip() for path, line in lines)
    shown = [source if len(source) <= WIDEST else f"{source[: WIDEST - 1]}…" for source in sources]
    told = zip(lines, shown, strict=True)
    return "".join(f"\n    {relative(path)}:{line}  {source}".rstrip() for (path, line), source in told)


def _table(rounds: tuple[Round, ...], *, compared: bool) -> str:
    rows = [
        f"  {_numbers(one):>5}  {_row(one, compared) if one.epsilon is None else _laplace_row(one, one.epsilon)}"
        f"{'' if one.judged else '  (not judged)'}{_along(one)}"
        f"{'' if one.sensitivity else '  (the same with and without the record)'}"
        f"{'' if one.scale == 1 else f'  (the record {resized(one.scale)})'}"
        for one in rounds
    ]
    of_laplace = any(one.epsilon is not None for one in rounds)
    heads = "L1 sensitivity  Laplace scale     epsilon" if of_laplace else "sensitivity  noise deviation  multiplier"
    return "\n".join([f"  round  {heads}", *rows])


def _row(one: Round, compared: bool) -> str:
    cells = f"{one.sensitivity:>11.4g}  {_known(one.noise_deviation, one, compared):>15}"
    return f"{cells}  {_known(one.multiplier, one, compared):>10}{_estimated(one, compared)}"


def _laplace_row(one: Round, epsilon: float) -> str:
    least, most = (f"{scale:.4g}" for scale in one.scales)
    return f"{one.moved:>14.4g}  {least if least == most else f'{least} to {most}':>13}  {epsilon:>10.4g}"


def _along(one: Round) -> str:
    if (
        one.epsilon is not None
        or one.average is None
        or not one.exact
        or abs(one.average - one.noise_deviation) <= CLOSE * one.noise_deviation
    ):
        return ""
    return f"  (in the direction of the record's change; {one.average:.4g} on average)"


def _numbers(one: Round) -> str:
    return f"{one.number}-{one.last}" if one.last > one.number else str(one.number)


def _known(number: float, one: Round, compared: bool) -> str:
    return f"{number:.4g}" if one.is_told(compared=compared) or not math.isfinite(number) else "?"


def _estimated(one: Round, compared: bool) -> str:
    if one.exact:
        return ""
    if not compared:
        return "  (the law of its noise is not known)"
    return "  (too few draws to estimate the deviation)" if one.error > LARGEST_ERROR else "  (deviation estimated)"


def resized(scale: float) -> str:
    """Words that say how the record was changed."""
    size = abs(scale)
    made = f"made {size:,g} times larger" if size >= 1 else f"made {1 / size:,g} times smaller"
    return f"{made} with the opposite sign" if scale < 0 else made
