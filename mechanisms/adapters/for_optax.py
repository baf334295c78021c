"""optax.contrib.differentially_private_aggregate and dpsgd under jit: an ordinary mechanism."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp

from guarantees import gaussian, subsampled_gaussian
from guarantees.answers import answers
from guarantees.checks import AboveZero, Rate, checked, require
from guarantees.claim import Claim
from mechanisms.contract import Described
from mechanisms.pairs.neighbours import materialise
from mechanisms.randomness.counts import poisson_batch

MOST_RECORDS = 64
"""Records up to which Poisson batches are traced: one branch for every size of the batch."""


@answers(libraries=("optax",))
@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class OptaxStep(Described):
    """The update that ``optax.contrib.differentially_private_aggregate`` makes of a batch of gradients.

    Optax divides an empty batch by zero; here, as in a training loop that skips it, the update is zero. How batches are
    drawn is this package's: Optax leaves that to its users.

    Args:
      clip: l2 norm to which gradients are clipped, above 0.
      noise_multiplier: standard deviation of the noise of the sum over ``clip``, at least 0.
      rate: 1 hands it the whole dataset, as its examples do with a batch; below 1 every record joins with that
        probability, for datasets of at most 64 records.
      transform: ``"aggregate"``, or ``"dpsgd"`` for ``optax.contrib.dpsgd`` at learning rate 1, its first step: minus
        the aggregate, with a seed of 32 bits, which is all that it takes.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import mechanisms
      >>> step = mechanisms.optax_step(clip=1.0, noise_multiplier=2.0)
      >>> mechanisms.optax_claim(step).describe()
      "gaussian(mu=0.5, relation='add_remove')"
    """

    clip: AboveZero
    noise_multiplier: float
    rate: Rate = 1.0
    transform: Literal["aggregate", "dpsgd"] = "aggregate"

    def __post_init__(self):
        require("noise_multiplier", self.noise_multiplier >= 0, ">= 0", self.noise_multiplier)

    @property
    def followed(self) -> OptaxStep:
        """The update of a batch that all records joined: a replay does not judge how batches are drawn."""
        return dataclasses.replace(self, rate=1.0)

    def __call__(self, key: jax.Array, dataset: Any) -> jax.Array:
        """The update on an array of per-example gradients, shape (records, dimension)."""
        gradients = jnp.asarray(materialise(dataset), jnp.float32)
        key_batch, key_noise = jax.random.split(key)
        if self.rate == 1.0:
            return self._aggregate(key_noise, gradients)
        records = len(gradients)
        if records > MOST_RECORDS:
            raise ValueError(f"optax_step with Poisson batches takes at most {MOST_RECORDS} records, got {records}.")
        batch = poisson_batch(key_batch, records=records, rate=self.rate)
        # Optax reads the size of the batch off a shape: the chosen rows come first, and a branch cuts them off
        chosen = gradients[jnp.argsort(-batch)]

        def branch(size: int):
            if size == 0:
                return lambda: jnp.zeros(gradients.shape[1:], jnp.float32)
            return lambda: self._aggregate(key_noise, chosen[:size])

        return jax.lax.switch(jnp.sum(batch).astype(jnp.int32), [branch(size) for size in range(records + 1)])

    def _aggregate(self, key: jax.Array, gradients: jax.Array) -> jax.Array:
        try:
            from optax.contrib import differentially_private_aggregate, dpsgd
        except ImportError as error:
            raise ImportError(f"{error}; optax_step needs Optax: pip install optax.") from error
        if self.transform == "dpsgd":
            # it takes no key: a seed of 32 bits, made into a key by the aggregate
            seed: Any = jax.random.bits(key, dtype=jnp.uint32)
            transform = dpsgd(1.0, self.clip, self.noise_multiplier, seed=seed)
        else:
            transform = differentially_private_aggregate(self.clip, self.noise_multiplier, key=key)
        return jnp.asarray(transform.update(gradients, transform.init(gradients[0]))[0])


optax_step = OptaxStep
"""The constructor, by the name that suites and records use."""


@checked
def optax_claim(mechanism: OptaxStep) -> Claim:
    """What Optax documents: 'the DPSGD algorithm' of Abadi et al. with this noise multiplier, that is SGM.

    Optax has no accountant; its example computes one step as a subsampled Gaussian mechanism. Its division by the
    realised batch is not covered, and is what an audit finds.

    Args:
      mechanism: ``mechanisms.optax_step(...)`` with noise.

    Returns:
      The claim, for one step and add_remove neighbours.

    Raises:
      ValueError: the step adds no noise.

    Examples:
      >>> import mechanisms
      >>> step = mechanisms.optax_step(clip=1.0, noise_multiplier=2.0, rate=0.1)
      >>> mechanisms.optax_claim(step).describe()
      'subsampled_gaussian(rate=0.1, noise_multiplier=2.0)'
    """
    require("noise_multiplier", mechanism.noise_multiplier > 0, "> 0 for a claim", mechanism.noise_multiplier)
    if mechanism.rate == 1.0:
        return gaussian(mu=1 / mechanism.noise_multiplier, relation="add_remove")
    return subsampled_gaussian(rate=mechanism.rate, noise_multiplier=mechanism.noise_multiplier)
