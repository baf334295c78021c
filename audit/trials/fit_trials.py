"""Outputs that a learner learns from: drawn under keys of their own, and judged by nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from audit.trials.both_sides import BothSides
from audit.trials.keys import both_keys
from audit.trials.source import FEWEST, Drew, part_of, piece_size, require_finite, unheard
from audit.trials.threefry import split
from distinguishers.contract import Distinguisher, Learner
from distinguishers.contract import distinguisher as as_distinguisher

MOST_ENTRIES = 2**25
"""Coordinates of fit outputs that are kept of one side, 128 MiB."""


Fitting = Callable[[int, int], None]
"""Is told how many fit trials are drawn, and how many are planned, of both sides together."""


def unfollowed(drawn: int, planned: int) -> None:
    """For fit trials that nobody follows."""


def counted(fitting: Fitting, planned: int) -> Drew:
    """What adds up draws, from any thread, and tells where they stand."""
    if fitting is unfollowed:
        return unheard
    lock, drawn = threading.Lock(), 0

    def drew(more: int) -> None:
        nonlocal drawn
        with lock:
            drawn += more
            fitting(drawn, planned)

    return drew


class Learnt(NamedTuple):
    """What judges from now on, and the outputs that it took in all."""

    distinguisher: Distinguisher
    fit_trials: int


def fit_trials(learner: Learner, trials: int, *, costly: bool) -> int:
    """Outputs that it learns from, of both sides together: where each may be a training, no more than are judged."""
    wanted = learner.fit_trials(trials)
    return min(wanted, 2 * max(trials // 2, FEWEST)) if costly else wanted


def learn(
    chosen: Distinguisher | Learner,
    sides: BothSides,
    *,
    trials: int,
    key: jax.Array,
    costly: bool,
    deadline: float | None = None,
    fitting: Fitting = unfollowed,
) -> Learnt:
    """A learner's distinguisher; any other is what it is. Trials of foreign code are ``costly``.

    The same key gives the same distinguisher, unless the deadline or the memory leave fewer outputs: a count that was
    begun with another one is never continued, since its grid of scores differs.
    """
    if not isinstance(chosen, Learner):
        return Learnt(chosen, 0)
    layout = sides.layout()
    wanted = min(fit_trials(chosen, trials, costly=costly) // 2, max(MOST_ENTRIES // layout.entries, FEWEST))
    key_draw, key_learn = split(key)
    drew = counted(fitting, 2 * wanted)
    keys = both_keys(key_draw)
    drawn = sides.outputs(keys, wanted, size=piece_size(layout), deadline=part_of(deadline), drew=drew)
    if _count(drawn) < FEWEST:
        # as with judged trials: however little time there is, some are drawn
        drawn = sides.outputs(keys, FEWEST, size=min(piece_size(layout), FEWEST))
    count = _count(drawn)
    without, with_record = (jax.tree.map(lambda leaf: leaf[:count], side) for side in drawn)
    for name, side in (("without", without), ("with", with_record)):
        for leaf in jax.tree.leaves(side):
            require_finite(leaf, 0, name, "output of fit trial")
    return Learnt(as_distinguisher(chosen.learn(key_learn, without, with_record, layout)), 2 * count)


def _count(drawn: tuple[Any, Any]) -> int:
    return min(len(jax.tree.leaves(side)[0]) for side in drawn)
