"""Several scores at once, for when nothing is known about what is wrong."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from distinguishers.contract import Distinguisher, OwnScore, Reads
from distinguishers.learned.fitting import Fit
from distinguishers.model_free.directions import pair_parameters, span_of
from distinguishers.model_free.max_coordinate import max_coordinate
from distinguishers.model_free.projection import contrast, norm, projection, ratio
from dpsgd_audit.spelling import counted
from guarantees.checks import checked, require
from guarantees.trade_off import TradeOff
from mechanisms.contract import OUTPUT_KINDS, BatchMechanism, Collapsed, Mechanism, OutputKind
from mechanisms.contract import mechanism as as_mechanism
from mechanisms.pairs.gradient_pairs import GradientsError, told_pair, zero_pair
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.release import Layout
from mechanisms.structure import structured

if TYPE_CHECKING:
    from mechanisms.adapters.same_draws import Movement

REPLAY = 0x7265706C
"""Folded into the learner's key for the draws of a replay."""


@structured(numbers=("parts",))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Battery(Reads):
    """A distinguisher that returns one score for each member, shape (members,)."""

    parts: tuple[OwnScore, ...]
    """Distinguishers of one or several scores each."""
    neighbours: Neighbours
    fit_trials: int = 0
    """Number of outputs that members were learned from."""
    replayed: str = ""
    """What a replay showed of the record's direction, if one was requested."""
    name: str = "battery"
    curve: TradeOff | None = None

    @property
    def members(self) -> tuple[Distinguisher, ...]:
        """Members of all parts, in order."""
        return tuple(member for part in self.parts for member in part.members)

    @property
    def accepts(self) -> tuple[OutputKind, ...]:
        """Kinds of output that every part can read."""
        return tuple(kind for kind in OUTPUT_KINDS if all({kind, "any"} & set(part.accepts) for part in self.parts))

    @property
    def length(self) -> int | None:
        """Length of the vectors that its parts read; None if any will do."""
        return next((part.length for part in self.parts if part.length is not None), None)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The pair, the names of the members, and how many outputs they were learned from."""
        learnt = {"learnt_from": self.fit_trials} if self.fit_trials else {}
        replay = {"replay": True, "replayed": self.replayed} if self.replayed else {}
        members = {"members": [member.name for member in self.members]}
        return {**pair_parameters(self.neighbours), **members, **learnt, **replay}

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """All scores of one output, which parts read in its flat view."""
        output = output if isinstance(output, Collapsed) else jnp.ravel(output)
        scores = [part(jax.random.fold_in(key, i), output) for i, part in enumerate(self.parts)]
        return jnp.concatenate([jnp.atleast_1d(score) for score in scores])


@checked
def battery(neighbours: Neighbours, *, mechanism: Mechanism | BatchMechanism | None = None) -> Battery:
    """Scores that together see what usually goes wrong, without a model of the mechanism.

    - ``projection``: a mean that moves too much (clipping that does not clip, too little noise);
    - ``norm``: a noise scale or divisor that depends on the record;
    - ``ratio``: a mean hidden behind a varying divisor;
    - ``contrast``: noise shared between coordinates;
    - ``max_coordinate``: a record that shows in an unforeseen coordinate.

    Members that make no sense for the pair or the kind of output are left out: collapsed outputs have no single
    coordinates. Where a network stands between the records and the output, its gradients are read; zero ones are
    supposed where they change from trial to trial.

    Which member to believe must be chosen on trials of its own, or paid for by splitting the risk: the auditor does
    that. Nothing here is learnt; ``default_battery``, which ``run_audit`` uses by default, adds what is.

    Args:
      neighbours: the pair, whose gradients say where to look.
      mechanism: asked only for the kind of its outputs and for its gradients.

    Returns:
      The battery.

    Raises:
      ValueError: ``neighbours`` is not a pair.

    Examples:
      >>> import distinguishers, mechanisms
      >>> scores = distinguishers.battery(mechanisms.worst_case_pair(records=4, dimension=30, clip=1.0))
      >>> [member.name for member in scores.members]
      ['projection', 'norm', 'ratio', 'contrast', 'max_coordinate']
    """
    step = None if mechanism is None else as_mechanism(mechanism)
    neighbours = _gradients(neighbours, step)
    frame, direction = span_of(neighbours)
    collapsed = step is not None and step.kind == "collapsed"
    moves, room = bool(np.any(direction)), frame.dimension > frame.rank
    members: list[OwnScore] = []
    if moves:
        members.append(projection(neighbours))
    members.append(norm(neighbours))
    if moves and room:
        members.append(ratio(neighbours))
    if moves and room and not collapsed:
        members.append(contrast(neighbours))
    if not collapsed:
        members.append(max_coordinate(neighbours))
    return Battery(parts=tuple(members), neighbours=neighbours)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LearnedBattery:
    """A learner whose battery has the members that the pair gives, if any, and those learned from fit trials."""

    known: Battery | None
    neighbours: Neighbours
    fit: Fit
    dimension: int
    """Dimension of the gradients that the known members read; 0 if there are none."""
    told_by: str = ""
    """Name of the mechanism whose user gave the gradients: they must fit what it releases."""
    replay: Callable[[jax.Array], Movement] | None = None
    """Runs both sides on the same draws and returns how the record moves the release."""
    name: str = "battery"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The pair."""
        return pair_parameters(self.neighbours)

    def fit_trials(self, trials: int) -> int:
        """Number of fit trials of ``fit``."""
        return self.fit.fit_trials(trials)

    def learn(self, key: jax.Array, without: Any, with_record: Any, layout: Layout) -> Battery:
        """Learn the members; known ones are kept if a release has the coordinates of the gradients."""
        if self.told_by and self.dimension not in (layout.size, layout.entries):
            rounds = "" if layout.rounds is None else f" in each of {counted(layout.rounds, 'round')}"
            raise GradientsError(
                f"gradients= of {self.told_by!r} gives rows of {counted(self.dimension, 'coordinate')}, and what "
                f"is released has {layout.size}{rounds}; give the gradient of every released coordinate, zeros where "
                "there is none, or leave gradients= out."
            )
        seen = None if self.replay is None else self.replay(jax.random.fold_in(key, REPLAY))
        fit = self.fit if seen is None else dataclasses.replace(self.fit, replayed=seen.row)
        learnt = fit.learn(key, without, with_record, layout)
        fits = self.known is not None and layout.rounds is None and layout.size == self.dimension
        known = self.known.parts if self.known is not None and fits else ()
        return Battery(
            parts=(*known, learnt),
            neighbours=self.neighbours,
            fit_trials=sum(learnt.trained_on),
            replayed="" if seen is None else seen.told,
        )


@checked
def default_battery(
    neighbours: Neighbours, *, mechanism: Mechanism | BatchMechanism | None = None, replay: bool = False
) -> Battery | LearnedBattery:
    """What an audit uses by default: ``battery`` where gradients are known, and what ``fit`` learns.

    Collapsed statistics are few numbers of a known law: there the battery alone. A leak that none of these scores sees
    is not found.

    Args:
      neighbours: the pair.
      mechanism: asked for the kind of its outputs and for its gradients.
      replay: run ``mechanism`` on both datasets with the same random draws first, and read outputs along the direction
        in which the record moves them. It helps where the record's gradient is not known. No trial is spent on it and
        the risk is the same. Code that cannot be followed is audited without; the record says so.

    Returns:
      The battery, or what learns it.

    Raises:
      ValueError: ``replay`` needs a mechanism, and there is none.

    Examples:
      >>> import distinguishers, mechanisms
      >>> pair = mechanisms.worst_case_pair(records=3, dimension=4, clip=1.0)
      >>> step = mechanisms.gaussian_mechanism(noise_multiplier=1.0)
      >>> distinguishers.default_battery(pair, mechanism=step, replay=True).name
      'battery'
    """
    step = None if mechanism is None else as_mechanism(mechanism)
    require("replay", step is not None or not replay, "False without a mechanism to run", replay)
    if step is not None and step.kind == "collapsed":
        return battery(neighbours, mechanism=step)
    again = functools.partial(_moved, step, neighbours) if replay else None
    try:
        known = battery(neighbours, mechanism=step)
        frame, direction = span_of(known.neighbours)
    except ValueError:
        return LearnedBattery(known=None, neighbours=neighbours, fit=Fit(), dimension=0, replay=again)
    record = np.asarray(frame.embedded(jnp.asarray(direction, jnp.float32)), np.float64)
    return LearnedBattery(
        known=known,
        neighbours=known.neighbours,
        fit=Fit(record=record if np.any(record) else None),
        dimension=frame.dimension,
        told_by=step.name if step is not None and step.gradients_told else "",
        replay=again,
    )


def _moved(step: Any, neighbours: Neighbours, key: jax.Array) -> Movement:
    """Movement of the release by the record, in a replay. Its adapters are imported only here."""
    from mechanisms.adapters.same_draws import movement

    return movement(step, neighbours, key=key)


def _gradients(neighbours: Neighbours, mechanism: Mechanism | BatchMechanism | None) -> Neighbours:
    """The gradients that the mechanism computes of the records or, if it does not say, the pair itself."""
    if mechanism is None:
        return neighbours
    try:
        return told_pair(neighbours, mechanism)
    except ValueError:
        records, dimension = neighbours.records_without, mechanism.coordinates
        if records is None or dimension is None:
            return neighbours
        return zero_pair(records=records, dimension=dimension, clip=1.0, relation=neighbours.relation)
