"""By how much a record moves a release: both datasets are run on the same random draws, and no noise is in the way.

The difference of two such runs is exact where the difference of two means has the noise of all trials in it. It says
where to look and proves nothing: two runs on the same draws are no trials.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechanisms.adapters.trial_seeds import trial_seeds
from mechanisms.contract import BatchMechanism, Mechanism, as_given, release_on
from mechanisms.pairs.neighbours import Neighbours, materialise, prepare
from mechanisms.release import flatten, flatten_rows, host_array
from mechanisms.structure import is_structured

MOST_RUNS = 32
"""Runs of both sides: a batch may leave the record out."""
FEWEST_RUNS = 4
AT_ONCE = 2**22
"""Numbers of outputs and datasets in all runs together."""
OF_STEP = " of step "
"""Between the name of a parameter and the step whose update is told."""
AGREEMENT = 4.0
"""Times by which runs must agree more than random differences of that number would."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Movement:
    """Where a record moves the release."""

    row: np.ndarray | None
    """The mean difference of runs that the record takes part in, as scores read outputs; None where none is known."""
    runs: int
    why: str = ""
    """What kept it from being found."""

    @property
    def told(self) -> str:
        """One clause for a record."""
        if self.row is None:
            return f"no direction: {self.why}"
        return f"{np.count_nonzero(self.row)} of {self.row.size} coordinates move, {self.runs} runs of each side"


def movement(mechanism: Mechanism | BatchMechanism, neighbours: Neighbours, *, key: jax.Array) -> Movement:
    """Run both sides on the same draws, if the code can be followed; it raises nothing."""
    try:
        if mechanism.tracer == "jax" and mechanism.kind in ("vector", "transcript"):
            found = _traced(mechanism, neighbours, key)
        elif mechanism.tracer == "torch":
            found = _torch(mechanism, neighbours, key)
        else:
            return Movement(row=None, runs=0, why=f"the draws of {mechanism.name} cannot be repeated on other data")
    except Exception as error:
        lines = str(error).strip().splitlines()
        return Movement(row=None, runs=0, why=f"{type(error).__name__}: {lines[0] if lines else 'no message'}")
    return _agreed(found)


def _agreed(found: np.ndarray) -> Movement:
    """The mean of the runs in which anything moves, unless each of them moves elsewhere."""
    taken = found[np.any(found != 0, axis=1)]
    if not len(taken) or not np.isfinite(taken).all():
        why = "a run is not finite" if len(taken) else "the record joined no batch"
        return Movement(row=None, runs=len(found), why=why)
    mean = taken.mean(axis=0)
    share = np.sum(mean**2) / np.mean(np.sum(taken**2, axis=1))
    if share < min(0.9, AGREEMENT / len(taken)) and len(taken) > 1:
        return Movement(row=None, runs=len(found), why="the record moves the release differently in every run")
    return Movement(row=mean, runs=len(found))


def _traced(mechanism: Any, neighbours: Neighbours, key: jax.Array) -> np.ndarray:
    """Code that JAX traces: draws for N + 1 records begin with those for N."""
    function, sides, _ = on_both_sides(mechanism, neighbours)

    def difference(own: jax.Array, first: Any, second: Any) -> jax.Array:
        one, other = (flatten(function(own, side), mechanism.kind) for side in (first, second))
        return jnp.ravel(other) - jnp.ravel(one)

    entries = jax.eval_shape(difference, key, *sides).size
    numbers = entries + sum(leaf.size for leaf in jax.tree.leaves(sides))
    runs = int(np.clip(AT_ONCE // numbers, FEWEST_RUNS, MOST_RUNS))
    program = jax.jit(jax.vmap(difference, in_axes=(0, None, None)))
    return np.asarray(program(jax.random.split(key, runs), *sides), np.float64)


class Replayed(NamedTuple):
    """What a replay runs, and on what."""

    function: Callable[[jax.Array, Any], Any]
    sides: tuple[Any, Any]
    rows: bool
    """Whether the arrays of the sides have records as their first axis."""


def on_both_sides(mechanism: Any, neighbours: Neighbours) -> Replayed:
    """The code and the two datasets; the differing record is last where their sizes differ."""
    sides = [prepare(mechanism, dataset) for dataset in (neighbours.without, neighbours.with_record)]
    code = mechanism.followed
    releases = [release_on(mechanism, side) for side in sides] if callable(mechanism) else [None, None]
    if all(is_structured(one) for one in releases):

        def released(own: jax.Array, release: Callable[[jax.Array], Any]) -> Any:
            return release(own)

        return Replayed(released, (releases[0], releases[1]), rows=False)
    columns = [jax.tree.map(jnp.asarray, side) for side in sides]
    if neighbours.relation == "add_remove" and neighbours.index >= 0:
        columns[1] = jax.tree.map(lambda column: _moved_last(column, neighbours.index, neighbours.group), columns[1])
    return Replayed(code, (columns[0], columns[1]), rows=True)


def _moved_last(column: jax.Array, index: int, group: int) -> jax.Array:
    own = np.arange(len(column))
    moved = (own >= index) & (own < index + group)
    order = np.concatenate([own[~moved], own[moved]])
    if jnp.issubdtype(column.dtype, jax.dtypes.prng_key):
        return column[order]
    # by NumPy: XLA would compile a program for every shape
    return jnp.asarray(np.asarray(column)[order])


def _torch(mechanism: Any, neighbours: Neighbours, key: jax.Array) -> np.ndarray:
    """PyTorch's draws are kept and handed out again, with new ones for the record."""
    replay = importlib.import_module("mechanisms.adapters.pytorch.replay.replay")
    code = as_given(mechanism).replayed
    seed = int(trial_seeds(np.asarray(jax.random.key_data(key)), 0, 1)[0])
    sides = materialise(neighbours.without), materialise(neighbours.with_record)
    outputs = replay.Replay(code, *sides, seed=seed, noise_multiplier=None).outputs()
    if outputs is None:
        raise ValueError("it draws nothing with PyTorch, and other random numbers cannot be repeated on other data")
    one, other = (flatten_rows(_in_rounds(side), 1, mechanism.kind)[0].astype(np.float64) for side in outputs)
    return (other - one).reshape(1, -1)


def _in_rounds(told: dict[str, Any]) -> dict[str, np.ndarray]:
    """Tensors by name, as a trial gives them: those of a training are told step by step."""
    parts: dict[str, list[np.ndarray]] = {}
    for name, tensor in told.items():
        parts.setdefault(name.partition(OF_STEP)[0], []).append(host_array(tensor))
    stepwise = any(OF_STEP in name for name in told)
    return {name: np.stack(own)[None] if stepwise else own[0][None] for name, own in parts.items()}
