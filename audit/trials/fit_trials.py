"""Draw the outputs that a learner learns from, under keys of their own; they judge nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from audit.trials.both_sides import BothSides
from audit.trials.keys import both_keys
from audit.trials.source import FEWEST, DrawListener, ignore_draws, part_of, piece_size, require_finite
from audit.trials.threefry import split
from distinguishers.contract import Distinguisher, Learner
from distinguishers.contract import distinguisher as as_distinguisher

MOST_ENTRIES = 2**25
"""Most coordinates of fit outputs that are kept of one side, 128 MiB."""


FitListener = Callable[[int, int], None]
"""Called with the numbers of fit trials drawn and planned, of both sides together."""


def ignore_fitting(drawn: int, planned: int) -> None:
    """Default listener of fit trials that nobody follows."""


def draw_counter(listener: FitListener, planned: int) -> DrawListener:
    """A listener, for any thread, that adds up draws and passes their sum on."""
    if listener is ignore_fitting:
        return ignore_draws
    lock, drawn = threading.Lock(), 0

    def drew(more: int) -> None:
        nonlocal drawn
        with lock:
            drawn += more
            listener(drawn, planned)

    return drew


class Learnt(NamedTuple):
    """A learned distinguisher, and how many outputs it was learned from."""

    distinguisher: Distinguisher
    fit_trials: int


def fit_trials(learner: Learner, trials: int, *, costly: bool) -> int:
    """Number of outputs to learn from, of both sides: if each may be a training, no more than are judged."""
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
    fitting: FitListener = ignore_fitting,
) -> Learnt:
    """Learn a distinguisher; one that needs no learning is returned as it is. Trials of foreign code are ``costly``.

    The same key gives the same distinguisher, unless the deadline or the memory leave fewer outputs. A count that was
    begun with another one is never continued, since its grid of scores differs.
    """
    if not isinstance(chosen, Learner):
        return Learnt(chosen, 0)
    layout = sides.layout()
    wanted = min(fit_trials(chosen, trials, costly=costly) // 2, max(MOST_ENTRIES // layout.entries, FEWEST))
    key_draw, key_learn = split(key)
    drew = draw_counter(fitting, 2 * wanted)
    keys = both_keys(key_draw)
    drawn = sides.outputs(keys, wanted, size=piece_size(layout), deadline=part_of(deadline), drew=drew)
    if _count(drawn) < FEWEST:
        # some are drawn however little time there is, as with judged trials
        drawn = sides.outputs(keys, FEWEST, size=min(piece_size(layout), FEWEST))
    count = _count(drawn)
    without, with_record = (jax.tree.map(lambda leaf: leaf[:count], side) for side in drawn)
    for name, side in (("without", without), ("with", with_record)):
        for leaf in jax.tree.leaves(side):
            require_finite(leaf, 0, name, "output of fit trial")
    return Learnt(as_distinguisher(chosen.learn(key_learn, without, with_record, layout)), 2 * count)


def _count(drawn: tuple[Any, Any]) -> int:
    """Number of trials that both sides have."""
    return min(len(jax.tree.leaves(side)[0]) for side in drawn)
