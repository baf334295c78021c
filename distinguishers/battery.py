"""Several scores at once, for when nothing is known about what is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from distinguishers.contract import Distinguisher
from distinguishers.directions import pair_parameters, span_of
from distinguishers.max_coordinate import max_coordinate
from distinguishers.projection import contrast, norm, projection, ratio
from guarantees.trade_off import TradeOff
from mechanisms.constructions import gradient_pair, zero_pair
from mechanisms.contract import BatchMechanism, Collapsed, Mechanism, OutputKind
from mechanisms.contract import mechanism as as_mechanism
from mechanisms.neighbours import Neighbours, shape_of


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Battery:
    """A distinguisher that returns one score for each member, shape (members,)."""

    members: tuple[Distinguisher, ...]
    neighbours: Neighbours
    name: str = "battery"
    curve: TradeOff | None = None

    @property
    def accepts(self) -> tuple[OutputKind, ...]:
        """The kinds that every member reads."""
        kinds: tuple[OutputKind, ...] = ("vector", "collapsed", "any")
        return tuple(kind for kind in kinds if all(kind in member.accepts for member in self.members))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The pair and the members' names."""
        return {**pair_parameters(self.neighbours), "members": [member.name for member in self.members]}

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """All scores of one output, of which members see the flat view."""
        output = output if isinstance(output, Collapsed) else jnp.ravel(output)
        return jnp.stack([member(jax.random.fold_in(key, i), output) for i, member in enumerate(self.members)])


def battery(neighbours: Neighbours, *, mechanism: Mechanism | BatchMechanism | None = None) -> Battery:
    """Scores that together see what usually goes wrong, without a model of the mechanism.

    - ``projection``: a mean that moves too much (clipping that does not clip, too little noise);
    - ``norm``: a noise scale or divisor that depends on the record;
    - ``ratio``: a mean hidden behind a varying divisor;
    - ``contrast``: noise shared between coordinates;
    - ``max_coordinate``: a record that shows in an unforeseen coordinate.
    The mechanism is asked only for the kind of its outputs: collapsed ones have no single coordinates, and the
    last two are left out. Members that the pair gives no meaning to (equal sums, no coordinates outside the span)
    are left out too.

    Where a network stands between the records and the output, its gradients are read; zero ones are supposed where
    they change from trial to trial.

    Which member to believe must be chosen on trials of its own, or paid for by splitting the risk: the auditor does.
    """
    step = None if mechanism is None else as_mechanism(mechanism)
    neighbours = _gradients(neighbours, step)
    frame, direction = span_of(neighbours)
    collapsed = step is not None and step.kind == "collapsed"
    moves, room = bool(np.any(direction)), frame.dimension > frame.rank
    members: list[Distinguisher] = []
    if moves:
        members.append(projection(neighbours))
    members.append(norm(neighbours))
    if moves and room:
        members.append(ratio(neighbours))
    if moves and room and not collapsed:
        members.append(contrast(neighbours))
    if not collapsed:
        members.append(max_coordinate(neighbours))
    return Battery(members=tuple(members), neighbours=neighbours)


def _gradients(neighbours: Neighbours, mechanism: Mechanism | BatchMechanism | None) -> Neighbours:
    """The pair itself, or what a network makes of it."""
    shape = shape_of(neighbours.without)
    if mechanism is None or mechanism.coordinates is None or shape is None:
        return neighbours
    try:
        return gradient_pair(neighbours, mechanism.gradients)
    except ValueError:
        return zero_pair(records=shape[0], dimension=mechanism.coordinates, clip=1.0, relation=neighbours.relation)
