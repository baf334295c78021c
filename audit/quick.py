"""A quick look first: scores that need no learning judge on a small part of the risk, and may save the training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from audit.procedure import run_audit
from audit.record.record import AuditRecord
from audit.trials.both_sides import Auditable, both_sides, is_foreign
from audit.trials.source import FEWEST
from audit.trials.threefry import fold_in
from distinguishers.battery import Battery, LearnedBattery, default_battery
from mechanisms.contract import mechanism as as_mechanism
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout

SHARE = 0.05
"""Of the risk, for the first look: what finds a gross leak there costs the second look a hundredth of power at most."""
FIRST_LOOK = 0x6C6F6F6B
"""Folded into the key of the first look; the second one has the audit's own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstLook:
    """A learner that learns nothing: its scores are compiled apart from the draws, which the second look uses again."""

    known: Battery
    name: str = "first look"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Of the battery."""
        return self.known.parameters

    def fit_trials(self, trials: int) -> int:
        """None are needed; the least that is ever drawn."""
        del trials
        return 2 * FEWEST

    def learn(self, key: jax.Array, without: Any, with_record: Any, layout: Layout) -> Battery:
        """The battery itself."""
        del key, without, with_record, layout
        return self.known


def quick_audit(mechanism: Any, neighbours: Neighbours, *, risk: float, key: jax.Array, **stated: Any) -> AuditRecord:
    """The record of the first look where it finds a violation, otherwise that of an audit with ``default_battery``.

    The first look judges the members of ``battery`` at ``SHARE`` of the risk, the audit what is left; the record states
    its own part. A wrong statement needs one of the two to be wrong, so it has at most the whole risk.
    [docs/validity.md, section 18] Where nothing can be judged without learning, or every trial costs a training of the
    user's own, there is no first look, and the audit has the whole risk.
    """
    step = as_mechanism(mechanism)
    learner = default_battery(neighbours, mechanism=step)
    first = _known(learner, step, neighbours)
    if first is None:
        return run_audit(step, neighbours, learner, risk=risk, key=key, **stated)
    looked = run_audit(step, neighbours, first, risk=SHARE * risk, key=fold_in(key, FIRST_LOOK), **stated)
    if looked.verdict == "violation":
        return looked
    return run_audit(step, neighbours, learner, risk=(1 - SHARE) * risk, key=key, **stated)


def _known(learner: Battery | LearnedBattery, step: Auditable, neighbours: Neighbours) -> FirstLook | None:
    """Members that learn nothing and can read what is released."""
    if not isinstance(learner, LearnedBattery) or learner.known is None or is_foreign(step):
        return None
    layout = both_sides(step, neighbours).layout()
    fits = layout.rounds is None and layout.size == learner.dimension
    return FirstLook(known=learner.known) if fits else None
