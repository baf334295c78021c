"""JAX Privacy 2.x: its samplers, clipped_grad and gaussian_privatizer, put together as its examples do."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from guarantees.answers import answers
from guarantees.checks import AboveZero, Count, FromZero, Rate, checked, require
from guarantees.claim import Claim
from guarantees.laws.profile import law_from_promises
from guarantees.trade_off import TradeOff
from guarantees.vocabulary import ASKED_DELTAS
from mechanisms.adapters.worker_time import WORKER_SECONDS, require_workers
from mechanisms.contract import Described, Draw
from mechanisms.pairs.neighbours import materialise

Sampler = Literal["poisson", "fixed_batch", "balls_in_bins", "b_min_sep"]
RATE_STEPS = 2**30
"""Records of the dataset in which a sampling rate is written for the accountant."""


@answers(libraries=("jax_privacy",), tracer="jax")
@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxPrivacyStep(Described):
    """One step of JAX Privacy: a sampler's first batch, clipped_grad(normalize_by=...), gaussian_privatizer.

    In one step balls-in-bins and b-min-sep sample as Poisson does: what sets them apart, over many steps, is not
    audited. For that, and for a model of your own: ``jax_privacy_training``.

    Args:
      rate: probability that a record is in the batch, in (0, 1]: 1 over the bins for ``"balls_in_bins"``, at most
        ``1 / min_sep`` for ``"b_min_sep"``; for ``"fixed_batch"`` N * rate must be whole.
      clip: l2 norm to which gradients are clipped, above 0.
      noise_multiplier: standard deviation of the noise over the sensitivity that the library computes, at least 0.
      normalise_by: the caller's in JAX Privacy. A number above 0, fixed beforehand, is post-processing;
        ``"expected_batch"`` computes N * rate from the dataset at hand, which reveals N.
      sampler: ``"poisson"``, ``"fixed_batch"`` (for datasets of one size: zero_out, substitution),
        ``"balls_in_bins"`` or ``"b_min_sep"``, from a warm start.
      min_sep: of ``"b_min_sep"``: steps between two batches of one record, at least 1.
      workers: spawned processes that draw; 0 draws here.
      timeout: seconds after which a worker counts as stuck (60 by default), and 180 more to start, import and
        prepare a side. Without workers nothing could end it, and a timeout is refused.

    Raises:
      ValueError: an argument is out of range, or a timeout is given without workers.

    Examples:
      >>> import mechanisms
      >>> step = mechanisms.jax_privacy_step(rate=0.5, clip=1.0, noise_multiplier=2.0)
      >>> step.libraries  # imported when it draws: pip install 'dpsgd-audit[jax-privacy]'
      ('jax_privacy',)
    """

    rate: Rate
    clip: AboveZero
    noise_multiplier: float
    normalise_by: float | str = 1.0
    sampler: Sampler = "poisson"
    min_sep: Count = 2
    workers: FromZero = 0
    timeout: AboveZero = WORKER_SECONDS

    def __post_init__(self):
        require("noise_multiplier", self.noise_multiplier >= 0, ">= 0", self.noise_multiplier)
        good = self.normalise_by == "expected_batch" or (
            not isinstance(self.normalise_by, str) and self.normalise_by > 0
        )
        require("normalise_by", good, "> 0 or 'expected_batch'", self.normalise_by)
        require_workers(self.timeout, workers=self.workers)
        bins = 1 / self.rate
        if self.sampler == "balls_in_bins":
            require("rate", abs(bins - round(bins)) < 1e-9 * bins, "1 over the number of bins", self.rate)
        if self.sampler == "b_min_sep":
            require("rate", self.rate * self.min_sep <= 1, f"at most 1 / min_sep, {1 / self.min_sep:g}", self.rate)

    @property
    def followed(self) -> Callable[[jax.Array, Any], Any]:
        """The step on a Poisson batch that JAX draws: a replay does not judge how batches are drawn."""

        def step(key: jax.Array, dataset: Any) -> Any:
            rows = jnp.asarray(dataset, jnp.float32)
            key_batch, key_noise = jax.random.split(key)
            chosen = jax.random.bernoulli(key_batch, self.rate, (len(rows),))
            return self._release(rows)(key_noise, chosen)

        return step

    def prepare(self, dataset: Any) -> Draw:
        """The step compiled for any number of trials; its batches are drawn on the host, as the library draws them."""
        rows = jnp.asarray(materialise(dataset), jnp.float32)
        release = self._release(rows)
        records = len(rows)
        from jax_privacy import batch_selection

        sampler = self._batches(batch_selection, records)
        compiled = jax.jit(jax.vmap(lambda seed, chosen: release(jax.random.wrap_key_data(seed), chosen)))

        def draw(seeds: np.ndarray) -> np.ndarray:
            size = 1 << (len(seeds) - 1).bit_length()
            chosen = np.zeros((size, records), bool)
            for trial, seed in enumerate(seeds):
                chosen[trial, next(sampler.batch_iterator(records, rng=int(seed)))] = True
            # sampling and noise read different generators; padded to a power of two, so that few shapes are compiled
            words = np.resize(seeds, size).astype("<u8").view("<u4").reshape(size, 2)
            return np.asarray(compiled(words, chosen))[: len(seeds)]

        return draw

    def _release(self, rows: jax.Array) -> Callable[[jax.Array, jax.Array], Any]:
        """The update of a key and of the records that are chosen."""
        try:
            from jax_privacy import clipped_grad, noise_addition
        except ImportError as error:
            raise ImportError(f"{error}; this step needs pip install 'dpsgd-audit[jax-privacy]'.") from error
        records, dimension = rows.shape
        divisor = records * self.rate if isinstance(self.normalise_by, str) else self.normalise_by
        gradient = clipped_grad(
            jnp.dot, l2_clip_norm=self.clip, normalize_by=divisor, keep_batch_dim=False, batch_argnums=1
        )
        deviation = self.noise_multiplier * gradient.sensitivity()

        def release(key: jax.Array, chosen: jax.Array) -> Any:
            privatizer = noise_addition.gaussian_privatizer(stddev=deviation, prng_key=key)
            weights = jnp.zeros(dimension)
            update = gradient(weights, rows, is_padding_example=~chosen)
            return privatizer.update(update, privatizer.init(weights))[0]

        return release

    def _batches(self, library: Any, records: int) -> Any:
        """The library's sampler, for one batch to which every record belongs with probability ``rate``."""
        if self.sampler == "poisson":
            return library.CyclicPoissonSampling(sampling_prob=self.rate, iterations=1)
        if self.sampler == "balls_in_bins":
            return library.BallsInBinsSampling(iterations=1, cycle_length=round(1 / self.rate))
        if self.sampler == "b_min_sep":
            # the library's own: the expected batch is N / (min_sep - 1 + 1 / sampling_prob) from a warm start
            chance = self.rate / (1 - (self.min_sep - 1) * self.rate)
            return library.BMinSepSampling(sampling_prob=min(1.0, chance), iterations=1, min_sep=self.min_sep)
        size = records * self.rate
        rule = f"a whole number over the number of records, {records}, for batches of a fixed size"
        require("rate", abs(size - round(size)) < 1e-6, rule, self.rate)
        return library.FixedBatchSampling(batch_size=round(size), iterations=1)


jax_privacy_step = JaxPrivacyStep
"""The constructor, by the name that suites and records use."""


@checked
def jax_privacy_claim(mechanism: JaxPrivacyStep, *, deltas: tuple[float, ...] = ASKED_DELTAS) -> Claim:
    """What JAX Privacy's PLD accountant promises after one step: its epsilon at each of the deltas, together.

    Batches of a fixed size are accounted as such (Poisson batches of twice the sensitivity, any neighbours), the others
    as Poisson batches. The accountant's numbers are taken as they are: nothing checks that they are right.

    Args:
      mechanism: ``mechanisms.jax_privacy_step(...)`` with noise.
      deltas: where the accountant is asked, each in (0, 1), at about a second each. One alone is a weaker claim, which
        takes many more trials to judge.

    Returns:
      The claim, for one step: add_remove neighbours, or any for batches of a fixed size.

    Raises:
      ValueError: the step adds no noise, or a delta is out of range.
      ImportError: JAX Privacy is not installed.

    Examples:
      With ``pip install 'dpsgd-audit[jax-privacy]'``:

      >>> import mechanisms
      >>> step = mechanisms.jax_privacy_step(rate=0.5, clip=1.0, noise_multiplier=2.0)
      >>> claim = mechanisms.jax_privacy_claim(step, deltas=(1e-5,))
      >>> claim.relation, claim.unit
      ('add_remove', 'step')
    """
    from jax_privacy import __version__, accounting

    require("deltas", deltas and all(0 < delta < 1 for delta in deltas), "numbers in (0, 1)", deltas)
    require("noise_multiplier", mechanism.noise_multiplier > 0, "> 0 for a claim", mechanism.noise_multiplier)
    accountant = accounting.DpsgdTrainingAccountant(accounting.PldAccountantConfig())
    fixed = mechanism.sampler == "fixed_batch"
    method = accounting.SamplingMethod.FIXED_BATCH_SIZE if fixed else accounting.SamplingMethod.POISSON

    def epsilon(delta: float) -> float:
        # the accountant reads whole numbers and uses their ratio alone, the sampling rate
        settings = accounting.DpParams(
            noise_multipliers=mechanism.noise_multiplier,
            num_samples=RATE_STEPS,
            delta=delta,
            batch_size=max(1, math.ceil(mechanism.rate * RATE_STEPS)),
            sampling_method=method,
        )
        return float(accountant.compute_epsilon(1, settings))

    return Claim(
        curve=TradeOff(law_from_promises((epsilon(delta), delta) for delta in deltas)),
        name="jax_privacy_claim",
        parameters={
            "rate": mechanism.rate,
            "noise_multiplier": mechanism.noise_multiplier,
            "deltas": deltas,
            **({"sampler": mechanism.sampler} if mechanism.sampler != "poisson" else {}),
        },
        relation="any" if fixed else "add_remove",
        observation="the update of one step",
        source=f"JAX Privacy {__version__}, DpsgdTrainingAccountant with PLD",
    )
