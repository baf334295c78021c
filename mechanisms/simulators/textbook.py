"""Mechanisms whose truth is known in closed form, and the pairs that show it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import numpy as np

from dpsgd_audit.later import jax, jnp
from guarantees.checks import NotNegative, Positive, checked
from mechanisms.contract import Described, StructuredRelease
from mechanisms.pairs.neighbours import Neighbours, Relation, materialise
from mechanisms.randomness import noise
from mechanisms.randomness.bits import Stream, Words, below, positions, words
from mechanisms.randomness.counts import integer_words, probability_to_integer
from mechanisms.structure import structured


def _records(dataset: Any) -> jax.Array:
    values = jnp.asarray(materialise(dataset), jnp.float32)
    if values.ndim != 2 or values.shape[0] < 1:
        raise ValueError(f"dataset must have shape (records, dimension), records >= 1, got {values.shape}.")
    return values


@structured(numbers=("records", "scale"), structure=("law",))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoisySum(StructuredRelease):
    """The sum of the records plus noise of one scale."""

    records: jax.Array
    scale: float
    law: Literal["normal", "laplace"]

    def __call__(self, key: jax.Array) -> jax.Array:
        """The sum of one key."""
        total = jnp.sum(self.records, axis=0)
        draw = noise.normal if self.law == "normal" else noise.laplace
        return total + self.scale * draw(key, total.shape)


@structured(numbers=("truth", "lies"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ToldBits(StructuredRelease):
    """Bits, each of them flipped where 64 random bits are below a threshold."""

    truth: jax.Array
    lies: Words

    def __call__(self, key: jax.Array) -> jax.Array:
        """The bits of one key."""
        lie = below(words(key, Stream.RESPONSE, positions(self.truth.shape)), self.lies)
        return jnp.where(lie, 1.0 - self.truth, self.truth)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianMechanism(Described):
    """The Gaussian mechanism on a sum, ``1 / noise_multiplier``-GDP for records of l2 norm ``sensitivity``.

    The sum of the records plus ``noise_multiplier * sensitivity * N(0, I)``. [dong2022, theorem 2.7] The records are
    not clipped: the pair must keep the sensitivity.

    Args:
      noise_multiplier: standard deviation of the noise over the sensitivity.
      sensitivity: largest l2 norm of a record.

    Raises:
      ValueError: an argument is not above 0.

    Examples:
      >>> import jax, mechanisms
      >>> mechanisms.gaussian_mechanism(noise_multiplier=1.0)(jax.random.key(0), jax.numpy.zeros((4, 3))).shape
      (3,)
    """

    noise_multiplier: Positive
    sensitivity: Positive = 1.0

    def release_on(self, dataset: Any) -> NoisySum:
        """The noisy sum of one dataset."""
        return NoisySum(records=_records(dataset), scale=self.noise_multiplier * self.sensitivity, law="normal")

    def __call__(self, key: jax.Array, dataset: Any) -> jax.Array:
        """The noisy sum of an array of shape (records, dimension)."""
        return self.release_on(dataset)(key)


gaussian_mechanism = GaussianMechanism
"""The constructor, by the name that suites and records use."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceMechanism(Described):
    """The Laplace mechanism on a sum, epsilon-DP for records of l1 norm ``sensitivity``. [dwork2006]

    The sum of the records plus ``sensitivity / epsilon`` times standard Laplace noise a coordinate. The records are
    not clipped: the pair must keep the sensitivity.

    Args:
      epsilon: above 0 and finite.
      sensitivity: largest l1 norm of a record, above 0 and finite.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import guarantees, mechanisms
      >>> from mechanisms.simulators import textbook
      >>> step, pair = textbook.laplace_mechanism(epsilon=0.5), mechanisms.scalar_pair()
      >>> claim = guarantees.laplace(epsilon=0.5)  # what it promises on this pair
      >>> step.name, pair.name, claim.name
      ('laplace_mechanism', 'scalar_pair', 'laplace')
    """

    epsilon: Positive
    sensitivity: Positive = 1.0

    def release_on(self, dataset: Any) -> NoisySum:
        """The noisy sum of one dataset."""
        return NoisySum(records=_records(dataset), scale=self.sensitivity / self.epsilon, law="laplace")

    def __call__(self, key: jax.Array, dataset: Any) -> jax.Array:
        """The noisy sum of an array of shape (records, dimension)."""
        return self.release_on(dataset)(key)


laplace_mechanism = LaplaceMechanism
"""The constructor, by the name that suites and records use."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomisedResponseMechanism(Described):
    """Randomised response on bits, epsilon-DP when one bit changes. [warner1965; kairouz2015]

    Every bit is told truly with probability ``e^epsilon / (1 + e^epsilon)``, else flipped. Datasets are arrays of zeros
    and ones; nothing else is refused.

    Args:
      epsilon: at least 0 and finite.

    Raises:
      ValueError: ``epsilon`` is out of range.

    Examples:
      >>> import guarantees
      >>> from mechanisms.simulators import textbook
      >>> step, pair = textbook.randomised_response_mechanism(epsilon=1.0), textbook.bit_pair()
      >>> claim = guarantees.randomised_response(epsilon=1.0)  # what it promises on this pair
      >>> step.name, pair.name, claim.name
      ('randomised_response_mechanism', 'bit_pair', 'randomised_response')
    """

    epsilon: NotNegative

    def release_on(self, dataset: Any) -> ToldBits:
        """The told bits of one dataset."""
        lies = integer_words(probability_to_integer(1 / (1 + math.exp(self.epsilon))))
        return ToldBits(truth=jnp.ravel(jnp.asarray(dataset, jnp.float32)), lies=lies)

    def __call__(self, key: jax.Array, dataset: Any) -> jax.Array:
        """The told bits of an array of zeros and ones."""
        return self.release_on(dataset)(key)


randomised_response_mechanism = RandomisedResponseMechanism
"""The constructor, by the name that suites and records use."""


@checked
def scalar_pair(*, sensitivity: Positive = 1.0, relation: Relation = "add_remove") -> Neighbours:
    """One coordinate, a common record 0 and the extra record ``sensitivity``: the sums differ by it.

    It shows what noise on a sum leaks. Clipping, batches and divisors are not exercised: ``worst_case_pair``.

    Args:
      sensitivity: the extra record's value.
      relation: without the record its place is empty (``"add_remove"``) or holds 0 (``"zero_out"``,
        ``"substitution"``).

    Returns:
      The pair.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import mechanisms
      >>> mechanisms.scalar_pair()
      <Neighbours 'scalar_pair': add_remove, 1 record without>
    """
    empty = np.zeros((1 if relation == "add_remove" else 2, 1), np.float32)
    return Neighbours(
        without=empty,
        with_record=np.array([[0.0], [sensitivity]], np.float32),
        relation=relation,
        name="scalar_pair",
        parameters={"sensitivity": sensitivity, "relation": relation},
    )


def bit_pair() -> Neighbours:
    """One record whose bit is 0 without and 1 with: what randomised response is asked.

    Returns:
      The pair, of relation ``"substitution"``.

    Examples:
      >>> from mechanisms.simulators import textbook
      >>> textbook.bit_pair()
      <Neighbours 'bit_pair': substitution, 1 record without>
    """
    return Neighbours(
        without=np.zeros((1,), np.float32),
        with_record=np.ones((1,), np.float32),
        relation="substitution",
        name="bit_pair",
        parameters={},
    )
