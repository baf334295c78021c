"""Sources of scores, and how both sides are counted in step. No statistics here."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from audit.trials.user_code_errors import MechanismError
from mechanisms.release import OTHER_STEPS, Layout

if TYPE_CHECKING:
    import jax

LAST_TRIAL = 2**62
FEWEST = 20
"""Fewest fit trials per side, however long they take and however little time there is."""
TIME = 1 / 3
"""Share of the time until the deadline for each draw of fit trials."""
PIECE_ENTRIES = 2**20
"""Most output coordinates in a piece."""
LARGEST_PIECE = 128
"""Most outputs in a piece."""


NOT_FINITE = (
    "the mechanism or the distinguisher gave NaN or infinity. Check the gradients for NaN, the divisor for zero, "
    "logarithms and roots in a score of your own, and releases above 1e18 or all below 1e-18, whose squares overflow "
    "or vanish in float32: divide or multiply those by a constant."
)


NOT_FINITE_OUTPUT = (
    "check the gradients for NaN, the divisor for zero (the mean of an empty batch), and values beyond 3.4e38, the "
    "largest float32. Where one dataset alone gives such outputs, that is the leak: to audit it, release a finite row "
    "in their place."
)


class NonFiniteScoreError(ValueError):
    """A trial gave a score that is NaN or infinite.

    The message names the trial and the dataset. Such trials are never left out: that would bias the counts.

    Examples:
      >>> import audit, distinguishers, guarantees, jax, mechanisms
      >>> pair = mechanisms.scalar_pair()
      >>> given = dict(claim=guarantees.gaussian(mu=1.0), trials=100, risk=0.05, key=jax.random.key(0))
      >>> try:
      ...     audit.run_audit(lambda key, rows: rows[0] / 0.0, pair, distinguishers.projection(pair), **given)
      ... except audit.NonFiniteScoreError as error:
      ...     print(str(error).partition(":")[0])
      the score of trial 0 on the side 'without' is not finite
    """


def not_finite(trial: int, side: str, what: str = "score of trial") -> NonFiniteScoreError:
    """The error for a score, or an output, that is not finite."""
    why = NOT_FINITE_OUTPUT if what.startswith("output") else NOT_FINITE
    return NonFiniteScoreError(f"the {what} {trial} on the side '{side}' is not finite: {why}")


def require_finite(values: np.ndarray, first: int, side: str, what: str = "score of trial") -> None:
    """Refuse scores, or outputs, that are not finite; ``first`` is the number of their first trial."""
    good = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if not good.all():
        raise not_finite(first + int(np.argmin(good)), side, what)


class WrongCountsError(RuntimeError):
    """Counts contradict the trials that they stand for: a fault of this package or of the device, never of a user."""


class StaleCountsError(ValueError):
    """Counts belong to another grid or other thresholds, and cannot be continued."""


def common_layout(name: str, without: Layout, with_record: Layout) -> Layout:
    """The layout of both sides' outputs; an error if they differ, since the form alone then tells them apart."""
    if without == with_record:
        return without
    if (without.names, without.shapes) == (with_record.names, with_record.shapes):
        raise MechanismError(
            f"{name!r} takes {without.rounds} steps without the record and {with_record.rounds} with it, which already "
            f"tells them apart. {OTHER_STEPS}."
        )
    sides = [dict(zip(side.names, side.shapes, strict=True)) for side in (without, with_record)]
    part = next(part for part in (*without.names, *with_record.names) if sides[0].get(part) != sides[1].get(part))
    shapes = [f"{side[part]}" if part in side else "nothing" for side in sides]
    raise MechanismError(
        f"{name!r} gives outputs of different shapes on the two datasets, which already tells them apart: {part} has "
        f"{shapes[0]} without the record, {shapes[1]} with it. Release something whose shape does not depend on the "
        "records: a sum and no row per record, or counts of all values and not of those that occur."
    )


def piece_size(layout: Layout) -> int:
    """Number of outputs to draw at once if they are kept, or scored by another program."""
    return int(np.clip(PIECE_ENTRIES // layout.entries, 1, LARGEST_PIECE))


def joined(pieces: Sequence[Any], most: int) -> Any:
    """Join outputs drawn piece by piece into one tree of arrays, of at most ``most`` trials."""
    import jax

    if not pieces:
        return np.zeros((0, 1), np.float32)
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:most], *pieces)


def cells_of(scores: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Count how many scores (trials, members) fall in each cell between the edges; one on an edge counts below it."""
    pairs = zip(np.asarray(edges, np.float32), scores.T, strict=True)
    places = (np.searchsorted(member_edges, member_scores, side="left") for member_edges, member_scores in pairs)
    return np.stack([np.bincount(place, minlength=edges.shape[1] + 1) for place in places])


DrawListener = Callable[[int], None]
"""Called with the number of further trials drawn, of either side."""


def ignore_draws(drawn: int) -> None:
    """Default listener of draws that nobody follows."""


class Source(Protocol):
    """Scores of numbered trials of one side. Trial i depends on the key and on i alone."""

    pace: ClassVar[float] = 0.2
    """About how many seconds one count takes, between two reports of progress."""
    one_by_one: ClassVar[bool] = False
    """Whether a part of a chunk takes a part of its time; a compiled program takes as long for one trial."""

    @property
    def chunk(self) -> int:
        """Trials drawn at once."""
        ...

    def scores(self, start: int, stop: int, drew: DrawListener = ignore_draws) -> np.ndarray:
        """Scores of trials start..stop-1, shape (stop - start, members); ``drew`` is called for each part of them."""
        ...

    def cells(self, start: int, stop: int, edges: np.ndarray) -> np.ndarray:
        """How many of these scores fall in each cell between the edges, shape (members, edges + 1)."""
        ...

    def give_up(self) -> None:
        """Stop what is under way elsewhere, since nobody waits for it."""
        return


class Scored(Protocol):
    """One side with a score, to which only the key is missing."""

    def source(self, key: jax.Array, /) -> Source:
        """The scores that belong to one key."""
        ...


@dataclasses.dataclass(frozen=True)
class OneSide:
    """A side with a score whose sources a function makes."""

    source: Callable[[jax.Array], Source]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tally:
    """Counts of both sides over the same grid, and for how many trials per side they stand."""

    without: np.ndarray
    with_record: np.ndarray
    trials_per_side: int
    state: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What else the counting policy needs to continue, as plain data; empty if counts are enough."""
    test: str = ""
    """Digest of the edges and cuts that the counts belong to, if they are kept to be continued."""


def complete(counts: np.ndarray, trials: int) -> np.ndarray:
    """Return the counts (members, cells) if they sum to the number of trials for every member, otherwise raise."""
    totals = counts.sum(axis=1)
    if np.any(counts < 0) or np.any(totals != trials):
        raise WrongCountsError(
            f"{trials} trials were drawn but {totals.tolist()} were counted; please report it with the device's name."
        )
    return counts


def empty_tally(edges: np.ndarray) -> Tally:
    """A tally without trials."""
    zero = np.zeros((edges.shape[0], edges.shape[1] + 1), np.int64)
    return Tally(without=zero, with_record=zero, trials_per_side=0)


def tally(
    without: Source,
    with_record: Source,
    *,
    edges: np.ndarray,
    trials_per_side: int,
    start: Tally | None = None,
    deadline: float | None = None,
    report: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Count both sides in step until ``trials_per_side`` or the deadline (a time.monotonic() value).

    ``start`` continues an interrupted count; ``report`` is called after every block, at most a few times a second. The
    deadline depends on the clock only, never on the counts, so that what it cuts off stays a fair sample.
    """
    done = start or empty_tally(edges)
    blocks = Blocks(without, deadline)
    # one thread per side, so that both programs compile, and on a CPU run, at the same time
    with ThreadPoolExecutor(2) as pool:
        while done.trials_per_side < trials_per_side:
            if blocks.late and done.trials_per_side > 0:
                break
            began = time.monotonic()
            first = done.trials_per_side
            stop = min(first + blocks.size, trials_per_side)
            counting = [pool.submit(side.cells, first, stop, edges) for side in (without, with_record)]
            try:
                counted = [complete(future.result(), stop - first) for future in counting]
            except BaseException:
                # otherwise the pool would wait for both sides to finish
                without.give_up()
                with_record.give_up()
                raise
            done = Tally(
                without=done.without + counted[0],
                with_record=done.with_record + counted[1],
                trials_per_side=stop,
            )
            report(done)
            blocks.took(stop - first, time.monotonic() - began)
    return done


def scores_in_time(
    without: Source,
    with_record: Source,
    *,
    trials_per_side: int,
    deadline: float | None,
    drew: DrawListener = ignore_draws,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of both sides, fewer (but some) if the deadline passes: the clock decides, never the scores."""
    if deadline is None:
        return without.scores(0, trials_per_side, drew), with_record.scores(0, trials_per_side, drew)
    blocks, drawn, parts = Blocks(without, deadline), 0, []
    while drawn < trials_per_side and not (blocks.late and drawn >= FEWEST):
        began = time.monotonic()
        stop = min(drawn + blocks.size, trials_per_side)
        parts.append((without.scores(drawn, stop), with_record.scores(drawn, stop)))
        blocks.took(stop - drawn, time.monotonic() - began)
        drew(2 * (stop - drawn))
        drawn = stop
    first, second = (np.concatenate(side) for side in zip(*parts, strict=True))
    return first, second


def part_of(deadline: float | None) -> float | None:
    """Deadline of fit trials, which leaves most of the time to those that judge."""
    now = time.monotonic()
    return None if deadline is None else now + TIME * max(deadline - now, 0.0)


class Blocks:
    """Decides how many trials per side to draw next: as many as the source's pace suggests and time allows."""

    def __init__(self, source: Source, deadline: float | None):
        self._chunk, self._pace, self._deadline = max(1, source.chunk), source.pace, deadline
        self._least = 1 if source.one_by_one else self._chunk
        # with a deadline the first block is as short as can be, to see how long it takes
        self.size = self._chunk if deadline is None else self._least

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def took(self, trials: int, seconds: float) -> None:
        """Adapt the size of the next block to the duration of the last."""
        if seconds < self._pace / 2:
            self.size = max(2 * self.size, self._chunk)
        elif seconds > self._pace * 2:
            self.size = max(self._chunk, self.size // 2)
        if self._deadline is not None:
            left = max(0.0, self._deadline - time.monotonic())
            pieces = left / max(seconds, 1e-9) * -(-trials // self._least)
            self.size = max(self._least, min(self.size, self._least * int(pieces)))
