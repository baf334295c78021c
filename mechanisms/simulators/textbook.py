"""The Gaussian mechanism, whose truth is known in closed form, and the pair that shows it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dpsgd_audit.later import jax, jnp
from guarantees.checks import Positive, checked
from mechanisms.contract import Described, StructuredRelease
from mechanisms.pairs.neighbours import Neighbours, Relation, materialise
from mechanisms.randomness import noise
from mechanisms.structure import structured


def _records(dataset: Any) -> jax.Array:
    """A dataset as an array."""
    values = jnp.asarray(materialise(dataset), jnp.float32)
    if values.ndim != 2 or values.shape[0] < 1:
        raise ValueError(f"dataset must have shape (records, dimension), records >= 1, got {values.shape}.")
    return values


@structured(numbers=("records", "scale"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoisySum(StructuredRelease):
    """The sum of the records plus normal noise of one scale."""

    records: jax.Array
    scale: float

    def __call__(self, key: jax.Array) -> jax.Array:
        """The noisy sum for one key."""
        total = jnp.sum(self.records, axis=0)
        return total + self.scale * noise.normal(key, total.shape)


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
        return NoisySum(records=_records(dataset), scale=self.noise_multiplier * self.sensitivity)

    def __call__(self, key: jax.Array, dataset: Any) -> jax.Array:
        """The noisy sum of an array of shape (records, dimension)."""
        return self.release_on(dataset)(key)


gaussian_mechanism = GaussianMechanism
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
