"""One round of DP-SGD on a Flax network: an ordinary mechanism over images."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from guarantees.checks import checked, require
from mechanisms.contract import Described
from mechanisms.networks import PARAMETERS
from mechanisms.networks.for_flax import FlatNetwork, flat_network
from mechanisms.pairs.images import PIXELS
from mechanisms.pairs.neighbours import materialise
from mechanisms.randomness.counts import poisson_batch
from mechanisms.simulators.one_round import Normaliser, OneRound, check_parameters


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class FlaxStep(Described):
    """The update of one round of DP-SGD on a Flax network and a dataset of images (image_pair).

    Per-example gradients by ``vmap(grad)``, then ``one_round``. An empty batch gives noise divided by the divisor (1
    for the realised batch). DPSUR is ``normalise_by="realised_batch", skip_empty=True``; its test of the new model,
    which comes after and may take the update back, is accounted by itself and is not part of this output.
    [fu2024; wang2026, section 5.1]

    The networks are this package's. For a model of your own: ``jax_training``.

    Args:
      network: ``"classifier"`` (26,010 parameters) or ``"denoiser"`` (1,485,217).
      normalise_by: ``"none"``, ``"expected_batch"``, ``"realised_batch"`` or ``"floored_expected_batch"``.
      rate: probability with which each record joins the batch, in (0, 1].
      clip: l2 norm to which gradients are clipped, above 0 and finite.
      noise_multiplier: standard deviation of the noise over ``clip``, above 0 and finite.
      skip_empty: whether an empty batch leaves the parameters as they are, as DPSUR's sampler does.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import mechanisms
      >>> step = mechanisms.flax_step(normalise_by="none", rate=0.5, clip=1.0, noise_multiplier=1.0)
      >>> step.coordinates
      26010
    """

    network: str = "classifier"
    normalise_by: Normaliser
    rate: float
    clip: float
    noise_multiplier: float
    skip_empty: bool = False

    def __post_init__(self):
        check_parameters(self.normalise_by, self.rate, self.clip, self.noise_multiplier)
        _ = self._flat

    @property
    def coordinates(self) -> int:
        """Length of an output."""
        return PARAMETERS[self.network]

    @functools.cached_property
    def _flat(self) -> FlatNetwork:
        return flat_network(self.network)

    @functools.cached_property
    def _round(self) -> OneRound:
        return OneRound(
            normalise_by=self.normalise_by, rate=self.rate, clip=self.clip, noise_multiplier=self.noise_multiplier
        )

    def gradients(self, dataset: Any) -> jax.Array:
        """Per-example gradients at the initial weights, shape (records, parameters); not clipped."""
        rows = jnp.asarray(materialise(dataset), jnp.float32)
        shape = f"(records, {PIXELS + 1}): {PIXELS} pixels and a label (image_pair)"
        require("dataset", rows.ndim == 2 and rows.shape[1] == PIXELS + 1, f"of shape {shape}", rows.shape)
        return _per_example(self._flat.loss, self._flat.initial, rows)

    def __call__(self, key: jax.Array, dataset: Any) -> jax.Array:
        """The update on rows of pixels and a label, with the sign of the gradient and learning rate 1."""
        # no key in them: under vmap over keys the gradients are found once for all trials
        update = self._round(key, self.gradients(dataset))
        if not self.skip_empty:
            return update
        batch = poisson_batch(key, records=len(dataset), rate=self.rate)
        return jnp.where(jnp.any(batch > 0), update, 0.0)


flax_step = FlaxStep
"""The constructor, by the name that suites and records use."""


@functools.partial(jax.jit, static_argnums=0)
def _per_example(loss: Callable[..., jax.Array], parameters: jax.Array, rows: jax.Array) -> jax.Array:
    return jax.vmap(jax.grad(loss), in_axes=(None, 0))(parameters, rows)
