"""A zoo of real bugs: what went wrong, where, how much it leaks, and a right twin on the same data.

Every fault is audited on its own worst-case pair against the claim that its users believed. ``truth`` is the exact
curve of the faulty release on that pair where it is known.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from zoo import steps
from zoo.steps import BATCH, CLIP, NOISE, RATE, WIDE_CLIP

from guarantees import gaussian, normalised_round, subsampled_gaussian
from guarantees.claim import Claim
from mechanisms.contract import Mechanism, mechanism
from mechanisms.pairs.gradient_pairs import neighbours_from_gradients, worst_case_pair
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.simulators.one_round import Normaliser, one_round

DIMENSION = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One bug."""

    name: str
    reference: str
    says: str
    step: Mechanism
    right: Mechanism
    neighbours: Neighbours
    claim: Claim
    seen_by: str
    """The member of the battery that should see it, or why none can."""
    truth: Claim | None = None
    """Exact curve of the faulty release on this pair; None where it was not derived or the sides never overlap."""


def _step(function: Any) -> Mechanism:
    return mechanism(function)


def _along(records: int, extra: float, dimension: int = DIMENSION, shared: float = -1.0) -> Neighbours:
    """Common gradients ``shared e``, the extra one ``extra e``, in units of the clipping norm."""
    common = np.zeros((records, dimension))
    common[:, 0] = shared * CLIP
    own = np.zeros(dimension)
    own[0] = extra * CLIP
    return neighbours_from_gradients(common, own)


def _single(coordinates: dict[int, float], *, records: int = 4, dimension: int = DIMENSION) -> Neighbours:
    """Common gradients of length one on the first coordinate, the extra one given by its coordinates."""
    common = np.zeros((records, dimension))
    common[:, 0] = -CLIP
    own = np.zeros(dimension)
    own[list(coordinates)] = list(coordinates.values())
    return neighbours_from_gradients(common, own)


def _promise(mu: float = 1 / NOISE) -> Claim:
    return gaussian(mu=mu, relation="add_remove")


def _fault(
    function: Any,
    neighbours: Neighbours,
    *,
    reference: str,
    seen_by: str,
    right: Any = steps.whole_dataset,
    claim: Claim | None = None,
    truth: Claim | None = None,
) -> Fault:
    """A fault whose name and story are those of its function."""
    return Fault(
        name=function.__name__,
        reference=reference,
        says=(function.__doc__ or "").strip(),
        step=_step(function),
        right=_step(right),
        neighbours=neighbours,
        claim=claim or _promise(),
        seen_by=seen_by,
        truth=truth,
    )


def _normaliser(name: str, normalise_by: Normaliser, *, records: int, rate: float, reference: str, says: str) -> Fault:
    """A divisor that depends on the data."""
    noise_multiplier, dimension = 10.0, 100

    def build(divisor: Normaliser) -> Mechanism:
        return one_round(normalise_by=divisor, rate=rate, clip=CLIP, noise_multiplier=noise_multiplier)

    return Fault(
        name=name,
        reference=reference,
        says=says,
        step=build(normalise_by),
        right=build("none"),
        neighbours=worst_case_pair(records=records, dimension=dimension, clip=CLIP),
        claim=subsampled_gaussian(rate=rate, noise_multiplier=noise_multiplier),
        seen_by="norm",
        truth=normalised_round(
            normalise_by=normalise_by,
            records=records,
            rate=rate,
            noise_multiplier=noise_multiplier,
            dimension=dimension,
        ),
    )


def normaliser_faults() -> tuple[Fault, ...]:
    """Divisors that tell the dataset's or the batch's size."""
    return (
        _normaliser(
            "divided_by_expected_batch",
            "expected_batch",
            records=4,
            rate=0.5,
            reference="Opacus 0.14, 0.15; lebeda2025; wang2026, definition 2.8",
            says="The noisy sum is divided by N q.",
        ),
        _normaliser(
            "divided_by_floor_of_expected_batch",
            "floored_expected_batch",
            records=3,
            rate=0.5,
            reference="Opacus 1.0 to 1.6, issues 571 and 819; wang2026, definition A.1",
            says="The noisy sum is divided by floor(N q).",
        ),
        _normaliser(
            "divided_by_realised_batch",
            "realised_batch",
            records=4,
            rate=0.9,
            reference="Opacus 0.12, 0.13; Optax; wang2026, definition 2.9",
            says="The noisy sum is divided by the size of the batch.",
        ),
    )


def sampling_faults() -> tuple[Fault, ...]:
    """Batches that are not what the accountant assumes."""
    sampled = subsampled_gaussian(rate=RATE, noise_multiplier=NOISE)
    return (
        _fault(
            steps.fixed_size_batch,
            _along(4, 1.0),
            reference="Opacus issue 80; private-transformers issue 7",
            seen_by="projection",
            right=steps.poisson,
            claim=sampled,
            truth=subsampled_gaussian(rate=2 / 5, noise_multiplier=NOISE / 2),
        ),
        _fault(
            steps.first_batch,
            _along(4, 1.0),
            reference="Opacus issue 80; TF-Privacy issue 483",
            seen_by="projection",
            right=steps.poisson,
            claim=sampled,
            truth=_promise(2 / NOISE),
        ),
        _fault(
            steps.rate_of_the_loader,
            _along(1, 1.0, shared=0.0),
            reference="Opacus 1.x: 1/len(loader) for B/N",
            seen_by="projection",
            right=steps.poisson_less_noise,
            claim=subsampled_gaussian(rate=RATE, noise_multiplier=NOISE / 2),
            truth=subsampled_gaussian(rate=0.7, noise_multiplier=NOISE / 2),
        ),
    )


def clipping_faults() -> tuple[Fault, ...]:
    """Records that move the sum by more than the clipping norm."""
    layers = {i * DIMENSION // steps.LAYERS: 10 * CLIP for i in range(steps.LAYERS)}
    return (
        _fault(
            steps.clipping_ignored,
            _along(4, 10.0),
            reference="Opacus pull request 664",
            seen_by="projection",
            truth=_promise(10 / NOISE),
        ),
        _fault(
            steps.bias_left_out,
            _single({DIMENSION - 1: 10 * CLIP}),
            reference="Opacus issue 751",
            seen_by="projection",
            truth=_promise(10 / NOISE),
        ),
        _fault(
            steps.clipped_per_layer,
            _single(layers),
            reference="Fed-BioMed issue 1443",
            seen_by="projection",
            truth=_promise(steps.LAYERS**0.5 / NOISE),
        ),
        _fault(
            steps.batch_clipped,
            _along(4, 20.0),
            reference="loss averaged before backward: many tutorials",
            seen_by="projection",
            truth=_promise(2 / NOISE),
        ),
        _fault(
            steps.microbatches_clipped,
            _along(3, 10.0),
            reference="TF-Privacy issue 620",
            seen_by="projection",
            truth=_promise(2 / NOISE),
        ),
        _fault(
            steps.mean_loss_gradients,
            _along(4, BATCH * 10.0),
            reference="sensitivity off by the batch size: claimed .21, measured above 2.79",
            seen_by="projection",
            truth=_promise(BATCH / NOISE),
        ),
        _fault(
            steps.bound_of_the_batch,
            _along(4, 1.0, shared=0.1),
            reference="Opacus issues 779 and 807",
            seen_by="norm",
        ),
        _fault(
            steps.scaled_by_the_data,
            _along(4, 100.0, shared=1.0),
            reference="domain inferred from data",
            seen_by="projection",
            truth=_promise(2.96 / NOISE),
        ),
        _fault(
            steps.non_finite_skipped,
            _single({0: 0.0}),
            reference="a NaN record that survives clipping",
            seen_by="norm",
        ),
    )


def noise_faults() -> tuple[Fault, ...]:
    """Too little noise, or noise that can be removed."""
    return (
        _fault(
            steps.noise_of_the_mean,
            _along(4, 1.0),
            reference="noise scaled for the mean but added to the sum",
            seen_by="projection",
            truth=_promise(BATCH / NOISE),
        ),
        _fault(
            steps.noise_without_clip,
            _along(4, WIDE_CLIP),
            reference="noise multiplier taken for the standard deviation",
            seen_by="projection",
            right=steps.wide_clip,
            truth=_promise(WIDE_CLIP / NOISE),
        ),
        _fault(
            steps.noise_shared_by_virtual_steps,
            _along(4, 1.0),
            reference="Opacus BatchMemoryManager; gradient accumulation",
            seen_by="projection",
            truth=_promise(2 / NOISE),
        ),
        _fault(steps.no_noise, _along(4, 1.0), reference="TF-Privacy issue 72; Opacus issue 313", seen_by="projection"),
        _fault(
            steps.noise_below_target,
            _along(4, 1.0),
            reference="Opacus issue 346",
            seen_by="projection",
            truth=_promise(1 / (0.8 * NOISE)),
        ),
        _fault(
            steps.key_reused_across_parameters,
            _along(4, 1.0),
            reference="JAX pull request 3646",
            seen_by="contrast",
        ),
        _fault(
            steps.grained_noise,
            _along(4, 1.0),
            reference="Opacus issue 616; mironov2012",
            seen_by="projection",
        ),
        _fault(
            steps.cut_tails,
            _along(4, 1.0),
            reference="jax.random.normal in float32",
            seen_by="none in this budget: delta is 1.2e-5",
        ),
    )


def step_faults() -> tuple[Fault, ...]:
    """Faults that show over several updates; a row of the data holds a record's gradients at all steps."""
    twice = _promise(2**0.5 / NOISE)
    return (
        _fault(
            steps.key_reused_across_steps,
            _single({0: CLIP}, dimension=2),
            reference="JAX pull request 3646",
            seen_by="contrast",
            right=steps.every_step,
            claim=twice,
        ),
        _fault(
            steps.noise_on_the_last_virtual_step,
            _single({0: CLIP}, dimension=10),
            reference="Opacus BatchMemoryManager",
            seen_by="projection",
            right=steps.every_step,
            claim=twice,
        ),
        _fault(
            steps.steps_from_the_dataset_size,
            _single({0: CLIP}, records=BATCH, dimension=10),
            reference="dataset size treated as public",
            seen_by="norm",
            right=steps.every_step,
            claim=twice,
        ),
        _fault(
            steps.four_steps_for_one,
            _single({0: CLIP, 5: CLIP, 10: CLIP, 15: CLIP}),
            reference="JAX Privacy issue 288",
            seen_by="projection",
            right=steps.four_steps_accounted,
            truth=_promise(2 / NOISE),
        ),
    )


@functools.cache
def zoo() -> tuple[Fault, ...]:
    """Every fault."""
    return (*normaliser_faults(), *sampling_faults(), *clipping_faults(), *noise_faults(), *step_faults())
