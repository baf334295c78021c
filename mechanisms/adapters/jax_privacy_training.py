"""A user's own JAX Privacy plan as a training: its batches, clipped gradients, noise and DpEvent, as they stand."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from guarantees.answers import answers
from guarantees.checks import Count, checked, require
from guarantees.claim import Claim
from guarantees.families.accountants import claim_from_event
from mechanisms.adapters.for_jax import as_columns
from mechanisms.contract import BatchMechanism, Draw, Releases
from mechanisms.names import name_of
from mechanisms.pairs.neighbours import Relation
from mechanisms.release import flatten_rows

FEW = 64
"""Places of a batch that are always computed, filled or not; longer batches get a power of two of them."""
FOLLOWED_STEPS = 4
FOLLOWED_RATE = 0.5
"""Steps that a replay follows, and at what rate records join their batches there."""
MOST_TRIALS = 64
MOST_ENTRIES = 2**24
"""Trials, and coordinates of per-example gradients, that are computed at once."""
RELATIONS: Mapping[str, Relation] = {
    "ADD_OR_REMOVE_ONE": "add_remove",
    "REPLACE_SPECIAL": "zero_out",
    "REPLACE_ONE": "substitution",
}
"""Our names of dp-accounting's relations."""
PER_EXAMPLE = ("has_aux", "return_values", "return_grad_norms")


@answers(libraries=("jax_privacy",), tracer="jax")
@checked
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class JaxPrivacyTraining(BatchMechanism):
    """The training that a DPExecutionPlan describes, in the loop that JAX Privacy documents for it.

    Every trial draws its batches from ``batch_iterator(records, rng=seed)`` and its noise from a key of its own, in
    place of the plan's: a fixed ``noise_seed`` is not seen, and you must keep it secret yourself. Batches are
    padded as the library pads them. It does not audit a loop of your own around the plan: ``jax_training``.

    Args:
      plan: a DPExecutionPlan, a configuration whose ``plan`` is one, or a function that makes one from a key, for
        noise whose key cannot be set from outside (a dense noising matrix closes over it).
      loss: ``loss(weights, batch)``, as ``plan.clipped_grad`` calls it: by default on batches of one record.
      weights: the first ones, the same in every trial.
      optimizer: any of Optax.
      releases: the first noisy ``"update"``, the ``"transcript"`` of all, or with ``"final"`` how far the weights have
        come, start minus end.
      steps: ends the training before the plan's batches do.
      arguments: the other arguments that the loop gives ``plan.clipped_grad``: ``{"keep_batch_dim": False}``,
        ``batch_argnums`` (the parts of a dataset that is a tuple, one argument each), ``microbatch_size``.

    Raises:
      ValueError: an argument is not of that kind, or ``arguments`` has a ``prng_argnum``: losses draw nothing.

    Examples:
      With ``pip install 'dpsgd-audit[jax-privacy,accountants]'``:

      >>> import mechanisms, numpy as np, optax
      >>> from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig
      >>> given = dict(sampling_prob=0.5, noise_multiplier=1.0, epsilon=None, delta=None)
      >>> config = BandMFExecutionPlanConfig(iterations=6, strategy=np.array([1.0, 0.5]), **given)
      >>> def loss(weights, batch):
      ...     return ((batch @ weights) ** 2).mean()
      >>> training = mechanisms.jax_privacy_training(config, loss, np.zeros(3, np.float32), optax.adam(0.1))
      >>> training.releases, training.claim().unit
      ('transcript', 'training')
    """

    plan: Any = dataclasses.field(kw_only=False)
    loss: Callable[..., Any] = dataclasses.field(kw_only=False)
    weights: Any = dataclasses.field(kw_only=False)
    optimizer: Any = dataclasses.field(kw_only=False)
    releases: Releases = "transcript"  # pyright: ignore[reportIncompatibleMethodOverride]
    steps: Count | None = None
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        good = any(hasattr(self.plan, part) for part in ("plan", "dp_event")) or callable(self.plan)
        require("plan", good, "a DPExecutionPlan, its configuration, or a function of a key that makes one", self.plan)
        require("loss", callable(self.loss), "a function of weights and a batch", self.loss)
        require("optimizer", hasattr(self.optimizer, "update"), "an optimizer of Optax", self.optimizer)
        require(
            "arguments",
            "prng_argnum" not in self.arguments,
            "without prng_argnum: a loss must not draw random numbers",
            "one",
        )

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The plan's event and batches, the loss by name, where it is ended, and the library's version."""
        plan = self._planned()
        batches = plan.batch_selection_strategy
        told = str(batches) if dataclasses.is_dataclass(batches) else type(batches).__name__
        own = {} if self.steps is None else {"steps": self.steps}
        version = metadata.version("jax_privacy")
        return {"event": str(plan.dp_event), "batches": told, "loss": name_of(self.loss), **own, "jax_privacy": version}

    @property
    def followed(self) -> Callable[[jax.Array, Any], Any]:
        """The first steps on batches that JAX draws: a replay does not judge how batches are drawn."""

        # made here and not inside a trace, whose values it would keep; the last record is the one that differs, so
        # an empty place reads the first
        release = self._release(lambda column, chosen: column[jnp.maximum(chosen, 0)])

        def steps(key: jax.Array, dataset: Any) -> Any:
            records = len(jax.tree.leaves(dataset)[0])
            together = self.arguments.get("microbatch_size") or 1
            taken = min(FOLLOWED_STEPS, self.steps_on(dataset))
            key_batches, key_noise = jax.random.split(key)
            chosen = jax.random.bernoulli(key_batches, FOLLOWED_RATE, (records, taken)).T
            index = jnp.where(chosen, jnp.arange(records), -1)
            index = jnp.pad(index, ((0, 0), (0, -records % together)), constant_values=-1)
            return release(jax.random.key_data(key_noise), index, dataset)

        return steps

    def claim(self, *, relation: Relation | None = None, accountant: Literal["pld", "rdp"] = "pld") -> Claim:
        """What the plan's own DpEvent promises: for an ``update`` one of the steps that it composes, else all.

        A configuration knows for which neighbours; a plan does not, and ``relation`` says it.
        """
        books = getattr(self.plan, "accountant", None)
        known = None if books is None else RELATIONS[books.neighboring_relation.name]
        good = relation == known if known and relation else bool(known or relation)
        require(
            "relation",
            good,
            f"that of the plan, {known}" if known else "given, because a bare plan does not state it",
            relation,
        )
        event = self._planned().dp_event
        if self.releases == "update":
            if not hasattr(event, "count"):
                raise ValueError(
                    f"the plan's event is not a composition of equal steps ({event}); judge one update against "
                    "guarantees.claim_from_event of its own event, unit='step'."
                )
            event = event.event
        made = claim_from_event(
            event,
            relation=relation or known or "zero_out",
            accountant=accountant,
            unit="step" if self.releases == "update" else "training",
        )
        return dataclasses.replace(made, source=f"the plan's event, by {made.source}")

    def gradients(self, dataset: Any) -> np.ndarray:
        """Per-example gradients at the first weights, flat and not clipped."""
        from jax_privacy import clipping

        data = as_columns(dataset)
        own = {name: value for name, value in self.arguments.items() if name != "microbatch_size"}
        gradient = clipping.clipped_grad(self.loss, l2_clip_norm=math.inf, **own)

        def one(record: Any) -> Any:
            batch = jax.tree.map(lambda part: part[None], record)
            return self._summed(gradient, self._start(), batch, jnp.zeros(1, bool))

        return flatten_rows(jax.jit(jax.vmap(one))(data), len(jax.tree.leaves(data)[0]))[0]

    def steps_on(self, dataset: Any) -> int:
        """Batches of the plan, or the fewer that are asked for."""
        return len(self._batches(self._planned(), len(jax.tree.leaves(as_columns(dataset))[0]), 0))

    def prepare(self, dataset: Any) -> Draw:
        """The steps compiled for any number of trials; batches are drawn on the host, as the library draws them."""
        data = as_columns(dataset)
        records = len(jax.tree.leaves(data)[0])
        plan, program = self._planned(), self._program

        def draw(seeds: np.ndarray) -> Any:
            rounds = [self._batches(plan, records, int(seed)) for seed in seeds]
            widths = np.array([self._width(records, max(map(len, own))) for own in rounds])
            # a trial's width is its own, so that its sums are the same in whatever company it is drawn
            groups = [np.flatnonzero(widths == width) for width in np.unique(widths)]
            drawn = []
            for own in groups:
                blocks = self._blocks(seeds[own], [rounds[trial] for trial in own], int(widths[own[0]]))
                pieces = [program(words, index, data) for words, index in blocks]
                drawn.append(jax.tree.map(lambda *parts, own=own: np.concatenate(parts)[: len(own)], *pieces))
            back = np.argsort(np.concatenate(groups))
            return jax.tree.map(lambda *parts: np.concatenate(parts)[back], *drawn)

        return draw

    def _planned(self, key: jax.Array | None = None) -> Any:
        if hasattr(self.plan, "plan"):
            return self.plan.plan
        if hasattr(self.plan, "dp_event"):
            return self.plan
        return self.plan(jax.random.key(0) if key is None else key)

    def _start(self) -> Any:
        return jax.tree.map(jnp.asarray, self.weights)

    @functools.cached_property
    def _program(self) -> Callable[..., Any]:
        """Trainings, compiled, one for every seed."""
        return jax.jit(jax.vmap(self._release(lambda column, chosen: column[chosen]), in_axes=(0, 0, None)))

    def _release(self, read: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[..., Any]:
        """A training, from the words of a seed and the records of every batch, -1 where a place is empty."""
        import optax

        plan, start, optimizer = self._planned(), self._start(), self.optimizer
        gradient = plan.clipped_grad(self.loss, **self.arguments)
        seeded = self._seeded(plan, start)

        def release(words: jax.Array, index: jax.Array, data: Any) -> Any:
            noise, first = seeded(words)

            def take(carried: Any, chosen: jax.Array) -> tuple[Any, Any]:
                weights, moments, state = carried
                batch = jax.tree.map(lambda column: read(column, chosen), data)
                noisy, state = noise.update(self._summed(gradient, weights, batch, chosen < 0), state)
                change, moments = optimizer.update(noisy, moments, weights)
                after = optax.apply_updates(weights, change)
                return (after, moments, state), (None if self.releases == "final" else noisy)

            (end, _, _), released = jax.lax.scan(take, (start, optimizer.init(start), first), index)
            if self.releases == "final":
                return jax.tree.map(jnp.subtract, start, end)
            return released if self.releases == "transcript" else jax.tree.map(lambda leaf: leaf[0], released)

        return release

    def _seeded(self, plan: Any, start: Any) -> Callable[[jax.Array], tuple[Any, Any]]:
        """The noise and its first state, from the words of a seed."""
        if plan is self.plan or hasattr(self.plan, "plan"):
            noise = plan.noise_addition_transform
            first = noise.init(start)
            place = _key_place(first)
            return lambda words: (noise, _with_key(first, place, words))

        def made(words: jax.Array) -> tuple[Any, Any]:
            noise = self._planned(jax.random.wrap_key_data(words)).noise_addition_transform
            return noise, noise.init(start)

        return made

    def _summed(self, gradient: Any, weights: Any, batch: Any, padding: jax.Array) -> Any:
        spread = not isinstance(self.arguments.get("batch_argnums", 1), int)
        found = gradient(weights, *(batch if spread else (batch,)), is_padding_example=padding)
        return found[0] if any(self.arguments.get(name) for name in PER_EXAMPLE) else found

    def _batches(self, plan: Any, records: int, seed: int) -> list[np.ndarray]:
        steps = 1 if self.releases == "update" else self.steps
        found = list(itertools.islice(plan.batch_selection_strategy.batch_iterator(records, rng=seed), steps))
        require("plan", len(found) >= (steps or 1), f"one with at least {steps or 1} batches", len(found))
        return found

    def _width(self, records: int, longest: int) -> int:
        least = min(records, FEW)
        width = least if longest <= least else 1 << (longest - 1).bit_length()
        together = self.arguments.get("microbatch_size") or 1
        return -(-width // together) * together

    def _blocks(self, seeds: np.ndarray, rounds: list[list[np.ndarray]], width: int) -> Iterable[Any]:
        """Trials of one width, in blocks of one size: another one would round sums differently."""
        coordinates = sum(leaf.size for leaf in jax.tree.leaves(self._start()))
        block = min(MOST_TRIALS, 1 << max(1, MOST_ENTRIES // (width * coordinates)).bit_length() - 1)
        size = -(-len(seeds) // block) * block
        index = np.full((size, len(rounds[0]), width), -1, np.int32)
        for trial, batches in enumerate(rounds):
            require(
                "plan",
                len(batches) == len(rounds[0]),
                "one with the same number of batches in every trial",
                len(batches),
            )
            for number, batch in enumerate(batches):
                index[trial, number, : len(batch)] = batch
        # sampling and noise read different generators
        words = np.resize(seeds, size).astype("<u8").view("<u4").reshape(size, 2)
        return zip(words.reshape(-1, block, 2), index.reshape(-1, block, *index.shape[1:]), strict=True)


jax_privacy_training = JaxPrivacyTraining
"""The constructor, by the name that records use."""


def _is_key(leaf: Any) -> bool:
    """Whether it is a key of JAX, new style or old."""
    old = jax.eval_shape(lambda: jax.random.PRNGKey(0))
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) or (leaf.dtype, leaf.shape) == (old.dtype, old.shape)


def _key_place(state: Any) -> int:
    """Where among its leaves the state of the noise has its one key."""
    places = [place for place, leaf in enumerate(jax.tree.leaves(state)) if _is_key(leaf)]
    if len(places) != 1:
        raise ValueError(
            f"each trial sets the one key in the state of the plan's noise, and this state holds {len(places)} keys; "
            "pass a function of a key that makes the plan: plan=lambda key: dataclasses.replace(plan, "
            "noise_addition_transform=matrix_factorization_privatizer(..., prng_key=key))."
        )
    return places[0]


def _with_key(state: Any, place: int, words: jax.Array) -> Any:
    leaves, form = jax.tree.flatten(state)
    old = leaves[place]
    if jnp.issubdtype(old.dtype, jax.dtypes.prng_key):
        data = jnp.resize(words, jax.random.key_data(old).shape)
        leaves[place] = jax.random.wrap_key_data(data, impl=jax.random.key_impl(old))
    else:
        leaves[place] = jnp.resize(words, old.shape)
    return jax.tree.unflatten(form, leaves)
