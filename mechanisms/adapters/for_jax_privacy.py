"""JAX Privacy 2.x: its Poisson sampler, clipped_grad and gaussian_privatizer, put together as its examples do."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from guarantees.claim import Claim, require
from guarantees.profile import law_from_profile
from guarantees.trade_off import TradeOff
from mechanisms.adapters.batch import Draw
from mechanisms.contract import OutputKind
from mechanisms.neighbours import materialise

RATE_STEPS = 2**30
"""Records of the dataset in which a sampling rate is written for the accountant."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxPrivacyStep:
    """One step of DP-SGD through JAX Privacy; ``normalise_by`` is a number, or 'expected_batch' for N * rate."""

    rate: float
    clip: float
    noise_multiplier: float
    normalise_by: float | str = 1.0
    workers: int = 0
    timeout: float = 60.0

    def __post_init__(self):
        require("rate", 0 < self.rate <= 1, "in (0, 1]", self.rate)
        require("clip", self.clip > 0, "> 0", self.clip)
        require("noise_multiplier", self.noise_multiplier >= 0, ">= 0", self.noise_multiplier)
        good = self.normalise_by == "expected_batch" or (
            not isinstance(self.normalise_by, str) and self.normalise_by > 0
        )
        require("normalise_by", good, "> 0 or 'expected_batch'", self.normalise_by)
        require("workers", self.workers >= 0, ">= 0", self.workers)

    @property
    def name(self) -> str:
        """As suites spell it."""
        return "jax_privacy_step"

    @property
    def kind(self) -> OutputKind:
        """The whole update."""
        return "vector"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What the constructor was given."""
        return dataclasses.asdict(self)

    def prepare(self, dataset: Any) -> Draw:
        """The step compiled for any number of trials; its batches are drawn on the host, as the library draws them."""
        try:
            from jax_privacy import batch_selection, clipped_grad, noise_addition
        except ImportError as error:
            raise ImportError(f"{error}; this step needs pip install 'dpsgd-audit[jax-privacy]'.") from error
        rows = jnp.asarray(materialise(dataset), jnp.float32)
        records, dimension = rows.shape
        divisor = records * self.rate if isinstance(self.normalise_by, str) else self.normalise_by
        sampler = batch_selection.CyclicPoissonSampling(sampling_prob=self.rate, iterations=1)
        gradient = clipped_grad(
            jnp.dot, l2_clip_norm=self.clip, normalize_by=divisor, keep_batch_dim=False, batch_argnums=1
        )
        deviation = self.noise_multiplier * gradient.sensitivity()

        def release(seed: jax.Array, chosen: jax.Array) -> jax.Array:
            privatizer = noise_addition.gaussian_privatizer(stddev=deviation, prng_key=jax.random.wrap_key_data(seed))
            weights = jnp.zeros(dimension)
            update = gradient(weights, rows, is_padding_example=~chosen)
            return privatizer.update(update, privatizer.init(weights))[0]

        compiled = jax.jit(jax.vmap(release))

        def draw(seeds: np.ndarray) -> np.ndarray:
            size = 1 << (len(seeds) - 1).bit_length()
            chosen = np.zeros((size, records), bool)
            for trial, seed in enumerate(seeds):
                chosen[trial, next(sampler.batch_iterator(records, rng=int(seed)))] = True
            # sampling and noise read different generators; padded to a power of two, so that few shapes are compiled
            words = np.resize(seeds, size).astype("<u8").view("<u4").reshape(size, 2)
            return np.asarray(compiled(words, chosen))[: len(seeds)]

        return draw


def jax_privacy_step(
    *,
    rate: float,
    clip: float,
    noise_multiplier: float,
    normalise_by: float | str = 1.0,
    workers: int = 0,
    timeout: float = 60.0,
) -> JaxPrivacyStep:
    """One step of JAX Privacy: CyclicPoissonSampling, clipped_grad(normalize_by=...), gaussian_privatizer.

    ``normalise_by`` is the caller's in JAX Privacy: a number fixed beforehand is post-processing, 'expected_batch'
    computes N * rate from the dataset at hand and so tells N. Other samplers of the library are not covered.
    """
    return JaxPrivacyStep(
        rate=rate,
        clip=clip,
        noise_multiplier=noise_multiplier,
        normalise_by=normalise_by,
        workers=workers,
        timeout=timeout,
    )


def jax_privacy_claim(mechanism: JaxPrivacyStep, *, deltas: tuple[float, ...] = (1e-5,)) -> Claim:
    """What JAX Privacy's PLD accountant promises after one step: its epsilon at each of the deltas, together."""
    from jax_privacy import __version__, accounting

    require("deltas", deltas and all(0 < delta < 1 for delta in deltas), "numbers in (0, 1)", deltas)
    accountant = accounting.DpsgdTrainingAccountant(accounting.PldAccountantConfig())

    def epsilon(delta: float) -> float:
        # the accountant reads whole numbers and uses their ratio alone, the sampling rate
        settings = accounting.DpParams(
            noise_multipliers=mechanism.noise_multiplier,
            num_samples=RATE_STEPS,
            delta=delta,
            batch_size=max(1, math.ceil(mechanism.rate * RATE_STEPS)),
        )
        return max(0.0, float(accountant.compute_epsilon(1, settings)))

    profile = {epsilon(delta): delta for delta in sorted(deltas, reverse=True)}
    return Claim(
        curve=TradeOff(law_from_profile(list(profile), list(profile.values()), error=1e-12)),
        name="jax_privacy_claim",
        parameters={"rate": mechanism.rate, "noise_multiplier": mechanism.noise_multiplier, "deltas": deltas},
        relation="add_remove",
        observation="the update of one step",
        source=f"JAX Privacy {__version__}, DpsgdTrainingAccountant with PLD",
    )
