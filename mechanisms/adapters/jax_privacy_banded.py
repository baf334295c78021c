"""JAX Privacy 2.x with correlated noise: banded matrix factorisation over many rounds; its balls-in-bins batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from guarantees.checks import AboveZero, Rate, checked, require
from guarantees.claim import Claim
from guarantees.laws.profile import law_from_profile
from guarantees.shuffling.balls_and_bins import balls_and_bins
from guarantees.trade_off import TradeOff
from mechanisms.adapters.worker_time import WORKER_SECONDS, require_workers
from mechanisms.contract import Described, Draw, OutputKind, Releases
from mechanisms.pairs.neighbours import materialise

Batching = Literal["cyclic_poisson", "balls_in_bins"]
BATCHINGS: tuple[str, ...] = get_args(Batching)
Fault = Literal["none", "white_noise", "same_noise", "short_cycle"]
FAULTS: tuple[str, ...] = get_args(Fault)
EPSILONS = np.concatenate([np.linspace(0.0, 10.0, 101), np.linspace(10.5, 40.0, 60)])
"""Where the accountant is asked for delta."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class BandedTraining(Described):
    """``iterations`` noisy sums with noise ``C^-1 Z``: C banded Toeplitz with the coefficients ``strategy``.

    The library's own parts, put together as its BandMFExecutionPlanConfig does: clipped_grad, CyclicPoissonSampling
    (``cycle`` groups take turns, each record of one with probability ``rate``) or BallsInBinsSampling (``cycle`` bins
    take turns, every record in one of them), and matrix_factorization_privatizer with deviation
    ``noise_multiplier * clip * |strategy|``. With at least as many groups as C has bands, None for as many, two
    participations show in different coordinates of C times the transcript. [choquette2023]

    ``fault``: ``same_noise``, a caller who does not carry on the state of the noise and adds the same one every round;
    ``short_cycle``, batches from one group where the noise and the accountant count on as many as there are bands;
    ``white_noise``, noise of the same deviation that is not correlated, which hides the record better, not worse.
    """

    strategy: tuple[float, ...]
    iterations: int
    rate: Rate
    clip: AboveZero
    noise_multiplier: AboveZero
    cycle: int | None = None
    batches: Batching = "cyclic_poisson"
    fault: Fault = "none"
    workers: int = 0
    timeout: AboveZero = WORKER_SECONDS

    def __post_init__(self):
        require_workers(self.timeout, workers=self.workers)
        object.__setattr__(self, "strategy", tuple(float(value) for value in self.strategy))
        good = bool(self.strategy) and self.strategy[0] > 0 and bool(np.isfinite(self.strategy).all())
        require("strategy", good, "finite numbers, the first > 0", self.strategy)
        whole = isinstance(self.iterations, int) and self.iterations >= len(self.strategy)
        require("iterations", whole, f"an integer >= the {len(self.strategy)} bands", self.iterations)
        require("batches", self.batches in BATCHINGS, f"one of {BATCHINGS}", self.batches)
        require("rate", self.batches == "cyclic_poisson" or self.rate == 1, "1 for balls in bins", self.rate)
        require("fault", self.fault in FAULTS, f"one of {FAULTS}", self.fault)
        bins = self.batches == "balls_in_bins"
        rule = f"an integer >= the {self.bands} bands" if bins else "None: as many as bands, as the library does"
        require("cycle", self.cycle is None or (bins and self.cycle >= self.bands), rule, self.cycle)

    @property
    def kind(self) -> OutputKind:
        """All noisy sums."""
        return "transcript"

    @property
    def releases(self) -> Releases:
        """All noisy sums."""
        return "transcript"

    @property
    def libraries(self) -> tuple[str, ...]:
        """What it imports when it runs."""
        return ("jax_privacy",)

    @property
    def bands(self) -> int:
        """Bands of the strategy."""
        return len(self.strategy)

    @property
    def groups(self) -> int:
        """Groups or bins that take turns, as the accountant counts them."""
        return self.cycle or self.bands

    def rounds(self, records: int) -> int:
        """Rounds of the training."""
        del records
        return self.iterations

    def steps_on(self, dataset: Any) -> int:
        """The same."""
        del dataset
        return self.iterations

    def plan(self) -> Any:
        """The library's configuration of the training without faults."""
        from jax_privacy.experimental import execution_plan

        return execution_plan.BandMFExecutionPlanConfig(
            iterations=self.iterations,
            strategy=np.asarray(self.strategy),
            epsilon=None,
            delta=None,
            noise_multiplier=self.noise_multiplier,
            l2_clip_norm=self.clip,
            rescale_to_unit_norm=False,
            sampling_prob=self.rate,
        )

    @property
    def tracer(self) -> str:
        """JAX traces all of it but the sampler."""
        return "jax"

    @property
    def followed(self) -> Callable[[jax.Array, Any], Any]:
        """The rounds on batches that JAX draws, groups in turn: a replay does not judge how batches are drawn."""

        def rounds(key: jax.Array, dataset: Any) -> jax.Array:
            rows = jnp.asarray(dataset, jnp.float32)
            key_batches, key_noise = jax.random.split(key)
            chosen = jax.random.bernoulli(key_batches, self.rate, (len(rows), self.iterations)).T
            turns = jnp.arange(self.iterations)[:, None] % self.groups == jnp.arange(len(rows)) % self.groups
            return self._release(rows)(key_noise, chosen & turns)

        return rounds

    def prepare(self, dataset: Any) -> Draw:
        """The rounds compiled for any number of trials; batches are drawn on the host, as the library draws them."""
        rows = jnp.asarray(materialise(dataset), jnp.float32)
        records, release, sampler = len(rows), self._release(rows), self._sampler()
        compiled = jax.jit(jax.vmap(lambda seed, chosen: release(jax.random.wrap_key_data(seed), chosen)))

        def draw(seeds: np.ndarray) -> np.ndarray:
            size = 1 << (len(seeds) - 1).bit_length()
            chosen = np.zeros((size, self.iterations, records), bool)
            for trial, seed in enumerate(seeds):
                for number, batch in enumerate(sampler.batch_iterator(records, rng=int(seed))):
                    chosen[trial, number, batch] = True
            words = np.resize(seeds, size).astype("<u8").view("<u4").reshape(size, 2)
            return np.asarray(compiled(words, chosen))[: len(seeds)]

        return draw

    def _release(self, rows: jax.Array) -> Callable[[jax.Array, jax.Array], jax.Array]:
        """All rounds of a key and of the records that are chosen in each."""
        try:
            from jax_privacy import noise_addition
            from jax_privacy.matrix_factorization import streaming_matrix, toeplitz
        except ImportError as error:
            raise ImportError(f"{error}; this training needs pip install 'dpsgd-audit[jax-privacy]'.") from error
        gradient = self.plan().plan.clipped_grad(jnp.dot, keep_batch_dim=False, batch_argnums=1)
        deviation = self.noise_multiplier * self.clip * float(np.linalg.norm(self.strategy))
        correlated = toeplitz.inverse_as_streaming_matrix(jnp.asarray(self.strategy))
        matrix = streaming_matrix.identity() if self.fault == "white_noise" else correlated

        def release(key: jax.Array, chosen: jax.Array) -> jax.Array:
            privatizer = noise_addition.matrix_factorization_privatizer(matrix, stddev=deviation, prng_key=key)
            weights = jnp.zeros(rows.shape[1])

            def take(state: Any, present: jax.Array) -> tuple[Any, Any]:
                total = gradient(weights, rows, is_padding_example=~present)
                noisy, after = privatizer.update(total, state)
                return (state if self.fault == "same_noise" else after), noisy

            return jax.lax.scan(take, privatizer.init(weights), chosen)[1]

        return release

    def _sampler(self) -> Any:
        from jax_privacy import batch_selection

        cycle = 1 if self.fault == "short_cycle" else self.groups
        if self.batches == "balls_in_bins":
            return batch_selection.BallsInBinsSampling(iterations=self.iterations, cycle_length=cycle)
        if self.fault == "short_cycle":
            return batch_selection.CyclicPoissonSampling(
                sampling_prob=self.rate, iterations=self.iterations, cycle_length=cycle
            )
        return self.plan().plan.batch_selection_strategy


banded_training = BandedTraining
"""The constructor, by the name that records use."""


@checked
def banded_claim(training: BandedTraining) -> Claim:
    """What JAX Privacy promises of the training without faults, for zero_out neighbours.

    Cyclic Poisson batches: the event of its execution plan (as many sampled Gaussian rounds as a record may meet), by
    dp-accounting's PLD. Balls in bins: the library has only Monte Carlo; without correlation the promise is that of
    [chua2025] with the noise of all of a bin's rounds together, since the bin is the same in every cycle.
    """
    parameters = {
        "strategy": training.strategy,
        "iterations": training.iterations,
        "rate": training.rate,
        "noise_multiplier": training.noise_multiplier,
        "cycle": training.groups,
        "batches": training.batches,
    }
    if training.batches == "balls_in_bins":
        require("strategy", training.bands == 1, "one number for balls in bins: nothing else is promised", training)
        whole = training.iterations % training.groups == 0
        require("iterations", whole, f"a multiple of the {training.groups} bins", training.iterations)
        meetings = training.iterations // training.groups
        made = balls_and_bins(
            rounds=training.groups, noise_multiplier=training.noise_multiplier / float(np.sqrt(meetings))
        )
        own = {"name": "banded_claim", "parameters": parameters, "steps": training.iterations}
        return dataclasses.replace(made, unit="training", **own)
    from jax_privacy import __version__

    config = training.plan()
    accountant = config.accountant.compose(config.plan.dp_event)
    deltas = [min(1.0, max(0.0, float(accountant.get_delta(epsilon)))) for epsilon in EPSILONS]
    return Claim(
        curve=TradeOff(law_from_profile(EPSILONS, deltas, smallest_delta=1e-10)),
        name="banded_claim",
        parameters=parameters,
        relation="zero_out",
        unit="training",
        steps=training.iterations,
        observation="the noisy sums of all rounds, noise correlated",
        source=f"JAX Privacy {__version__}, BandMFExecutionPlanConfig with dp-accounting's PLD",
    )
