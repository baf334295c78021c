"""What drawing a part of the trials again would find: the chance that a change of the recorded counts is noticed."""

from __future__ import annotations

import dataclasses

import numpy as np

from audit.record.record import AuditRecord, ProvenPoint
from guarantees.numerics.distributions import hypergeom
from guarantees.numerics.search import first

FALSE_ALARM = 1e-6
"""Probability that the comparison calls right counts wrong, all tests and both sides together."""
LIKELY = 0.95
"""A change is called found where it would be with this probability."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Detection:
    """What drawing ``trials`` of ``of`` trials per side again finds."""

    trials: int
    of: int
    one_moved: float
    """Probability that one trial moved from its cell to another is found, a trial chosen at random."""
    errors_moved: int | None
    """Fewest errors of one judged test by which its count can be wrong and is found with probability 0.95."""

    def told(self) -> str:
        """In a sentence."""
        if self.trials >= self.of:
            return "all trials were drawn again: any change of the counts is found"
        said = (
            f"{self.trials:,} of {self.of:,} trials per side were drawn again: one trial moved to another cell is "
            f"found with probability {self.one_moved:.2g}"
        )
        if self.errors_moved is None:
            return f"{said}, and no change of a test's errors with probability {LIKELY:g}"
        return f"{said}, {self.errors_moved:,} or more errors of a test too many or too few with at least {LIKELY:g}"


def detection(record: AuditRecord, trials: int) -> Detection:
    """What drawing the first ``trials`` of each side again finds of changed counts.

    Trials are independent and alike, so those drawn again are a random part of the recorded ones: the number of them in
    a cell is hypergeometric. A trial that was moved out of a cell of k is missed there unless all k were drawn again.
    """
    total = record.trials_per_side
    if trials >= total:
        return Detection(trials=trials, of=total, one_moved=1.0, errors_moved=1)
    cells = np.concatenate([np.asarray(side) for grid in record.grids for side in (grid.without, grid.with_record)])
    held = cells[cells > 0].astype(float)
    all_drawn = hypergeom.pmf(held, total, held, trials)
    level = level_of(record)
    errors = [count for point in record.points for count in (point.counts.false_alarms, point.counts.misses)]
    found = [_fewest(count, total, trials, level) for count in set(errors)]
    return Detection(
        trials=trials,
        of=total,
        one_moved=float(np.sum(held * all_drawn) / held.sum()),
        errors_moved=None if None in found else max(each for each in found if each is not None),
    )


def level_of(record: AuditRecord) -> float:
    """The risk of each comparison of a judged test's errors."""
    return FALSE_ALARM / (2 * len(record.points))


class Drawn:
    """The law of the errors among ``trials`` drawn again, of ``total`` trials with so many errors: hypergeometric.

    Twelve deviations and forty counts around its mean hold all but less than 1e-20 of it.
    """

    def __init__(self, errors: int, *, total: int, trials: int):
        mean = trials * (errors / total)
        deviation = np.sqrt(mean * (1 - errors / total) * (1 - trials / total))
        first, last = max(0, errors + trials - total), min(errors, trials)
        room = 12 * deviation + 40
        self.values = np.arange(max(first, int(mean - room)), min(last, int(mean + room)) + 1)
        self.chance = hypergeom.pmf(self.values, total, errors, trials)

    def p_values(self, drawn: np.ndarray) -> np.ndarray:
        """Twice the smaller tail from each number of errors on."""
        sums = np.concatenate([[0.0], np.cumsum(self.chance)])
        below = sums[np.searchsorted(self.values, drawn, side="right")]
        above = sums[-1] - sums[np.searchsorted(self.values, drawn, side="left")]
        return 2 * np.minimum(below, above)


def unlikely_errors(record: AuditRecord, without: np.ndarray, with_record: np.ndarray, trials: int) -> list[str]:
    """Judged tests whose errors among the trials drawn again do not fit their recorded errors."""
    members = [grid.member for grid in record.grids]
    level, wrong = level_of(record), []
    for point in record.points:
        row = np.asarray(record.grids[members.index(point.member)].edges, np.float32)
        at = int(np.searchsorted(row, np.float32(point.threshold)))
        above = [int(side[members.index(point.member), at + 1 :].sum()) for side in (without, with_record)]
        for name, drawn, recorded in _errors(point, above, trials):
            law = Drawn(recorded, total=record.trials_per_side, trials=trials)
            if law.p_values(np.array([drawn]))[0] <= level:
                wrong.append(
                    f"{point.target}: {drawn:,} {name} in {trials:,} trials drawn again, {recorded:,} recorded"
                )
    return wrong


def _errors(point: ProvenPoint, above: list[int], trials: int) -> tuple[tuple[str, int, int], ...]:
    alarms, caught = above if point.rejects == "above" else [trials - count for count in above]
    counts = point.counts
    return ("false alarms", alarms, counts.false_alarms), ("misses", trials - caught, counts.misses)


def _fewest(errors: int, total: int, trials: int, level: float) -> int | None:
    """Fewest errors by which a count can be changed, up or down, so that every larger change is likely found too."""
    true = Drawn(errors, total=total, trials=trials)

    def found(stated: int) -> bool:
        p = Drawn(stated, total=total, trials=trials).p_values(true.values)
        return bool(true.chance[p <= level].sum() >= LIKELY)

    sizes, hidden = [], [0]
    for sign, room in ((1, total - errors), (-1, errors)):
        if room and found(errors + sign * room):
            sizes.append(first(lambda size, sign=sign: found(errors + sign * size), 0, room))
        else:
            hidden.append(room)
    fewest = max(sizes, default=None)
    return None if fewest is None or fewest <= max(hidden) else fewest
