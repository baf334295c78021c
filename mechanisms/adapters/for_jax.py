"""A user's own training in JAX: their state, update and sampler, any Flax model and Optax chain, as they stand."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from guarantees.checks import require, require_takes, written_at
from mechanisms import sampling
from mechanisms.adapters.stated_by_user import StatedByUser, stated_functions, stated_numbers
from mechanisms.contract import RELEASES, Releases
from mechanisms.names import name_of, parameters_of, place_of
from mechanisms.networks import INITIAL_SEED
from mechanisms.pairs.gradient_pairs import gradient_rows
from mechanisms.release import is_key


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class JaxTraining(StatedByUser):
    """A training made of ``init``, ``update`` and ``sampler``, traced by JAX: what ``jax_training`` builds."""

    init: Callable[[jax.Array], Any]
    update: Callable[..., tuple[Any, Any]]
    sampler: Callable[[jax.Array, int], Any]
    steps: int
    releases: Releases = "transcript"  # pyright: ignore[reportIncompatibleMethodOverride]
    weights: Callable[[Any], Any] | None
    loss: Callable[[Any, Any], jax.Array] | None
    own_gradients: Callable[[Any], Any] | None
    clip: float | None = None
    noise_multiplier: float | None = None

    @property
    def name(self) -> str:
        """That of the function that takes a step."""
        return name_of(self.update)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The functions by their places, how many steps, and what is released."""
        return {
            "init": place_of(self.init),
            "update": place_of(self.update),
            "sampler": {"kind": name_of(self.sampler), **parameters_of(self.sampler)},
            "steps": self.steps,
            "releases": self.releases,
            **stated_numbers(clip=self.clip, noise_multiplier=self.noise_multiplier),
            **stated_functions(gradients=self.own_gradients, loss=self.loss, weights=self.weights),
        }

    def rounds(self, records: int) -> int:
        """Steps that are taken, whatever the number of records."""
        del records
        return 1 if self.releases == "update" else self.steps

    def steps_on(self, dataset: Any) -> int:
        """The same."""
        del dataset
        return self.rounds(0)

    @functools.cached_property
    def _start(self) -> Any:
        # callers may be under a trace, and the first state is a constant
        with jax.ensure_compile_time_eval():
            return jax.tree.map(jnp.asarray, self.init(jax.random.key(INITIAL_SEED)))

    def _weights(self, state: Any) -> Any:
        return state if self.weights is None else self.weights(state)

    def gradients(self, dataset: Any) -> np.ndarray:
        """Per-example gradients at the first weights, flat and not clipped: the user's own, or those of the loss."""
        data = as_columns(dataset)
        records = len(jax.tree.leaves(data)[0])
        if self.own_gradients is not None:
            found = self.own_gradients(data)
        elif self.loss is not None:
            found = self._gradients_of(self.loss, data)
        else:
            raise ValueError(f"{self.name} does not say what its per-example gradients are; pass loss= or gradients=.")
        return gradient_rows(found, records)

    def _gradients_of(self, loss: Callable[[Any, Any], jax.Array], data: Any) -> Any:
        try:
            return jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(self._weights(self._start), data)
        except Exception as error:
            read = "the state" if self.weights is None else "weights(state)"
            raise TypeError(
                f"loss= of {self.name} cannot be differentiated at {read} for one record (no batch axis): "
                f"{type(error).__name__}: {str(error).rstrip('.')}. Use weights= to say which part of a state it reads."
            ) from error

    def __call__(self, key: jax.Array, dataset: Any) -> Any:
        """What is released of one training."""
        data, start = as_columns(dataset), self._start
        records = len(jax.tree.leaves(data)[0])
        steps = self.rounds(records)
        index, mask = step_batches(self.sampler, key, records, steps)
        masked = _takes_mask(self.update)
        if mask is not None and not masked:
            raise ValueError(
                f"the sampler {name_of(self.sampler)!r} pads its batches, so {self.name!r} must take "
                "(key, state, batch, mask)."
            )
        mask = jnp.ones(index.shape, jnp.float32) if mask is None else mask

        def take(state: Any, step: tuple[jax.Array, ...]) -> tuple[Any, Any]:
            number, own, present = step
            batch = jax.tree.map(lambda column: column[own], data)
            given = self.update(jax.random.fold_in(key, number + 1), state, batch, *([present] if masked else []))
            if not isinstance(given, tuple) or len(given) != 2:
                raise TypeError(f"{self.name!r} must return a pair (state, release), got {type(given).__name__}.")
            if jax.tree.structure(given[0]) != jax.tree.structure(state):
                raise ValueError(
                    f"{self.name!r} must return a pair (state, release), with a state built like the one it was given."
                )
            return given[0], (None if self.releases == "final" else given[1])

        state, released = jax.lax.scan(take, start, (jnp.arange(steps), index, mask))
        if self.releases == "final":
            first, last = self._weights(start), self._weights(state)
            if any(map(is_key, jax.tree.leaves(first))):
                raise TypeError(
                    "releases='final' is the first weights minus the last, and keys of jax.random among them have no "
                    "difference: use weights= to say which part of a state the weights are."
                )
            return jax.tree.map(jnp.subtract, first, last)
        return released if self.releases == "transcript" else jax.tree.map(lambda leaf: leaf[0], released)


def jax_training(
    init: Callable[[jax.Array], Any],
    update: Callable[..., tuple[Any, Any]],
    sampler: Callable[[jax.Array, int], Any] | Mapping[str, Any],
    *,
    steps: int,
    releases: Releases = "transcript",
    weights: Callable[[Any], Any] | None = None,
    loss: Callable[[Any, Any], jax.Array] | None = None,
    gradients: Callable[[Any], Any] | None = None,
    clip: float | None = None,
    noise_multiplier: float | None = None,
) -> JaxTraining:
    """Audit your own training: any Flax model, Optax chain and sampler that JAX can trace.

    An update is judged against one step's claim, a transcript and final weights against the whole training's. Only
    the functions that you pass are audited, not a loop of yours that calls them in another way.

    Args:
      init: ``init(key) -> state``: weights, optimizer's state, whatever a step carries on. It is called once, with a
        fixed key: an adversary knows the first weights.
      update: ``update(key, state, batch) -> state, released``: one step, with its own key. ``released`` is what the
        claim speaks about, usually the noisy gradient; what Adam makes of it is post-processing.
      sampler: one of ``mechanisms.sampling``, or ``sampler(key, records)`` that gives the numbers of the records in the
        batch (or, with two axes, in the batches of an epoch), or a boolean for every record. Where batches vary in
        size, places are left empty, and ``update`` takes (key, state, batch, mask) and must leave out those of mask 0.
      steps: how many steps the training has.
      releases: the first ``"update"``, the ``"transcript"`` of all, or with ``"final"`` start minus end of the weights.
      weights: ``weights(state)``; by default the state itself.
      loss: ``loss(weights, record)``, for scores that need per-example gradients; nothing else reads it.
      gradients: ``gradients(dataset)``, the same if there is no loss.
      clip: the bound that ``update`` clips to; with ``noise_multiplier`` diagnoses can ask about its noise.
      noise_multiplier: deviation of its noise over ``clip``.

    Returns:
      The mechanism.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import jax, jax.numpy as jnp, mechanisms
      >>> def update(key, weights, batch, mask):
      ...     noisy = jnp.sum(mask[:, None] * batch, 0) + jax.random.normal(key, weights.shape)
      ...     return weights - 0.1 * noisy, noisy
      >>> sampler = mechanisms.sampling.poisson(rate=0.5, steps=3)
      >>> training = mechanisms.jax_training(lambda key: jnp.zeros(2), update, sampler, steps=3)
      >>> training.releases
      'transcript'
    """
    for name, value in (("init", init), ("update", update)):
        require(name, callable(value), "a function", value)
    require_takes("init", init, "key")
    require("steps", isinstance(steps, int) and steps >= 1, "an integer >= 1", steps)
    require("releases", releases in RELEASES, f"one of {RELEASES}", releases)
    for name, value in (("clip", clip), ("noise_multiplier", noise_multiplier)):
        require(name, value is None or value > 0, "> 0, or None where it is not known", value)
    own = sampling.sampler(sampler) if isinstance(sampler, Mapping) else sampler
    require("sampler", callable(own), "one of mechanisms.sampling, or a function of a key and a number", sampler)
    return JaxTraining(
        init=init,
        update=update,
        sampler=own,
        steps=steps,
        releases=releases,
        weights=weights,
        loss=loss,
        own_gradients=gradients,
        clip=clip,
        noise_multiplier=noise_multiplier,
    )


def as_columns(dataset: Any) -> Any:
    """A dataset as a pytree of arrays with the records first: a list of records is stacked."""
    if isinstance(dataset, list):
        dataset = jax.tree.map(lambda *rows: jnp.stack([jnp.asarray(row) for row in rows]), *dataset)
    return jax.tree.map(jnp.asarray, dataset)


def step_batches(
    sampler: Callable[[jax.Array, int], Any], key: jax.Array, records: int, steps: int
) -> tuple[jax.Array, jax.Array | None]:
    """Numbers of the records in every step's batch (steps, size), and which places are filled; None: all."""

    def draw(own: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        given = sampler(own, records)
        index, mask = given if isinstance(given, tuple) else (jnp.asarray(given), None)
        if isinstance(sampler, sampling.FixedBatches | sampling.FixedSize):
            return index, None
        if mask is None and index.dtype == jnp.bool_:
            require("sampler", index.shape[-1] == records, f"a boolean for each of the {records} records", index.shape)
            return jnp.broadcast_to(jnp.arange(records), index.shape), index.astype(jnp.float32)
        if not jnp.issubdtype(index.dtype, jnp.integer):
            raise TypeError(
                NO_MASK.format(sampler=f"{name_of(sampler)!r}{written_at(sampler)}", gives=f"{index.dtype} numbers")
            )
        if mask is None and index.shape[-1:] == (records,):
            _require_record_numbers(sampler, records)
        return index, mask

    shape = jax.eval_shape(draw, key)[0].shape
    require("sampler", len(shape) in (1, 2), "a function that gives one batch, or those of an epoch", shape)
    rounds = 1 if len(shape) == 1 else shape[0]
    keys = sampling.epoch_keys(key, sampler, -(-steps // rounds))
    index, mask = jax.vmap(draw)(keys)

    def in_order(part: jax.Array) -> jax.Array:
        return part.reshape(-1, part.shape[-1])[:steps]

    return in_order(index), None if mask is None else in_order(mask)


NO_MASK = (
    "sampler must give record numbers, or a boolean for each record: {sampler} gives {gives}. If they say which "
    "records are in the batch, make them boolean: mask.astype(bool)."
)
DRAWN, FEWEST = 16, 3
"""Batches of a sampler that are looked at, and records from which on a 1 for a later one tells a mask from numbers."""


def _require_record_numbers(sampler: Callable[[jax.Array, int], Any], records: int) -> None:
    """Refuse a mask of whole numbers: read as record numbers it is a batch of the first two records alone."""
    if records < FEWEST:
        return
    with jax.ensure_compile_time_eval():
        drawn = np.asarray(
            [sampler(jax.random.fold_in(jax.random.key(INITIAL_SEED), n), records) for n in range(DRAWN)]
        )
    if np.isin(drawn, (0, 1)).all() and drawn[..., FEWEST - 1 :].any():
        gives = f"{records} whole numbers, all of them 0 or 1, for {records} records"
        advice = " If they are record numbers, return them with a mask: (numbers, mask)."
        raise ValueError(NO_MASK.format(sampler=f"{name_of(sampler)!r}{written_at(sampler)}", gives=gives) + advice)


def _takes_mask(update: Callable[..., Any]) -> bool:
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(update).parameters.values()
    return len([own for own in parameters if own.kind in places and own.default is own.empty]) == 4
