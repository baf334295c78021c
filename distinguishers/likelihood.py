"""The exact log-likelihood ratio of a hypothesised mechanism on a pair of neighbours."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import guarantees
from distinguishers.batches import Batches, Pair, read_pair, shared_batches
from distinguishers.contract import Distinguisher, OneScore
from distinguishers.frame import Frame, Reading, make_frame
from distinguishers.textbook_ratio import textbook_ratio
from distinguishers.transcripts import transcript_ratio
from guarantees.normalised.variance_pair import variance_pair
from guarantees.trade_off import TradeOff
from mechanisms.contract import Mechanism, OutputKind
from mechanisms.neighbours import Neighbours
from mechanisms.one_round import CollapsedRound, OneRound
from mechanisms.training import CollapsedRounds, ManyRounds, Repeated


class Component(NamedTuple):
    """The laws N(mean_i, I / precision_i) of the outputs of batches i, in a frame's units."""

    means: np.ndarray
    """Shape (batches, rank)."""
    precision: np.ndarray
    """1 / variance; shape (batches,), or (1,) where the divisor does not depend on the batch."""
    constant: np.ndarray
    slope: np.ndarray
    """ln density outside the span = constant - slope * excess, up to a term common to all laws."""


class Ends(NamedTuple):
    """Which component holds when the differing record is out of the batch and in it, by side."""

    without_out: int
    without_in: int | None
    with_out: int
    with_in: int | None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OneRoundRatio(OneScore):
    """ln of the output's density with the record over that without it, both mixtures over all batches.

    With z the coordinates in the gradients' span (rank r), x the mean square of the n - r others minus one,
    both in units of the noise without the record, batch i at divisor d has mean m_i, precision a = (d/d_0)^2 and
      ln p_i = (n/2) ln a - ((n-r)/2)(a - 1) - ((n-r)/2)(a - 1) x - a |z - m_i|^2 / 2 + common,
    whose first two terms nearly cancel and are added in float64 on the host. [wang2026, section 3.2; the reduction
    to (z, x) is ours]. Batches are those of ``shared_batches``; the differing record is in with probability q, so
    a side's density is ``p_out (1 - q + q p_in / p_out)``, which keeps small ratios accurate in relative terms.

    Optimal only for the hypothesised mechanism; on any other it is still a valid score. Batches of total
    probability ``remainder`` (below 1e-15) are left out.
    """

    mechanism: OneRound | CollapsedRound
    neighbours: Neighbours
    pair: Pair
    frame: Frame
    log_weights: np.ndarray
    components: tuple[Component, ...]
    ends: Ends
    remainder: float
    name: str = "likelihood_ratio"
    accepts: tuple[OutputKind, ...] = ("vector", "collapsed")

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The hypothesised model and the pair."""
        return model_parameters(self.mechanism, self.neighbours)

    @functools.cached_property
    def _exact_curve(self) -> TradeOff | None:
        return _curve(self.mechanism, self.pair)

    @property
    def curve(self) -> TradeOff | None:
        """For aligned gradients under add_remove (zero_out too, unless the batch size divides) and for rate 1."""
        return self._exact_curve

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The log-likelihood ratio of one output, from one pass over it."""
        del key
        reading = self.frame.read(output)
        ends = log_densities(self.components, self.log_weights, reading)
        out0, in0, out1, in1 = (None if index is None else ends[index] for index in self.ends)
        assert out0 is not None
        assert out1 is not None
        rate = self.mechanism.rate
        gained = 0.0 if in1 is None else log_mixture(rate, in1 - out1)
        lost = 0.0 if in0 is None else log_mixture(rate, in0 - out0)
        return jnp.asarray((out1 - out0) + gained - lost, jnp.float32)


def log_densities(
    components: tuple[Component, ...], log_weights: np.ndarray, reading: Reading
) -> tuple[jax.Array, ...]:
    """ln of each component's mixture over the batches, up to one common term."""
    weights = jnp.asarray(log_weights, jnp.float32)
    levels = [_f32(c.constant) - _f32(c.slope) * reading.excess for c in components]
    # Levels reach 1e6 for a divisor far from the truth: taking off the best one first keeps the digits that count.
    best = functools.reduce(jnp.maximum, [jnp.max(level) for level in levels])
    found = []
    for level, component in zip(levels, components, strict=True):
        # Coordinate by coordinate: XLA's CPU code does not fuse a reduction over so short an axis.
        squares = [(reading.along[c] - _f32(means)) ** 2 for c, means in enumerate(component.means.T)]
        distance = functools.reduce(jnp.add, squares, jnp.float32(0.0))
        exponent = weights + (level - best) - 0.5 * _f32(component.precision) * distance
        top = jnp.max(exponent)
        found.append(top + jnp.log(jnp.sum(jnp.exp(exponent - top))))
    return tuple(found)


def log_mixture(rate: float, gap: jax.Array) -> jax.Array:
    """``ln(1 - q + q e^gap)``, accurate for small gaps, small rates and rates near 1."""
    if rate == 1.0:
        return gap
    near = jnp.log1p(rate * jnp.expm1(jnp.clip(gap, -1.0, 1.0)))
    far = jnp.logaddexp(jnp.float32(math.log1p(-rate)), jnp.float32(math.log(rate)) + gap)
    return jnp.where(jnp.abs(gap) < 1.0, near, far)


def _f32(values: np.ndarray) -> jax.Array:
    return jnp.asarray(values, jnp.float32)


def model_parameters(mechanism: Mechanism, neighbours: Neighbours) -> Mapping[str, Any]:
    """What a model-based distinguisher was given, by name and parameters."""
    return {
        "mechanism": {"kind": mechanism.name, **mechanism.parameters},
        "neighbours": {"kind": neighbours.name, **neighbours.parameters},
    }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RoundModel:
    """The laws of one round on both sides of a pair: what likelihood ratio and normality test share."""

    pair: Pair
    frame: Frame
    batches: Batches
    components: tuple[Component, ...]
    ends: Ends


def round_model(mechanism: OneRound | CollapsedRound, neighbours: Neighbours) -> RoundModel:
    """Tabulate the laws in float64 on the host."""
    pair = read_pair(neighbours).clipped(mechanism.clip)
    if pair.group > 1:
        raise ValueError(
            f"the likelihood ratio of one round knows pairs that differ in one record, got {pair.group}; take "
            f"many_rounds(sampler=sampling.poisson(rate=..., steps=1), group={pair.group}) as the model."
        )
    fixed = mechanism.divisor(pair.records_without)
    batches = shared_batches(pair, rate=mechanism.rate, sizes_matter=fixed is None)
    reference = fixed or max(1, round(pair.records_without * mechanism.rate))
    centre = mechanism.rate * (np.asarray(pair.counts, float) @ pair.shared) / reference
    frame = make_frame(
        rank=pair.rank,
        dimension=pair.dimension,
        basis=pair.basis,
        unit=mechanism.noise_multiplier * mechanism.clip / reference,
        centre=centre,
    )
    components: list[Component] = []
    known: dict[tuple[Any, ...], int] = {}

    def place(records: int, record: np.ndarray | None, taken: int) -> int:
        divisor = mechanism.divisor(records)
        label = (divisor, taken if divisor is None else 0, _label(record, taken))
        if label not in known:
            known[label] = len(components)
            components.append(_component(mechanism, frame, batches, divisor, record, taken))
        return known[label]

    ends = Ends(
        without_out=place(pair.records_without, None, 0),
        without_in=None if pair.removed is None else place(pair.records_without, pair.removed, 1),
        with_out=place(pair.records_with, None, 0),
        with_in=None if pair.added is None else place(pair.records_with, pair.added, 1),
    )
    return RoundModel(pair=pair, frame=frame, batches=batches, components=tuple(components), ends=ends)


def _label(record: np.ndarray | None, taken: int) -> bytes:
    """Equal for records that add nothing to the sum, so that equal laws are one component."""
    return b"" if record is None or not taken or not np.any(record) else record.tobytes()


def _component(
    mechanism: OneRound | CollapsedRound,
    frame: Frame,
    batches: Batches,
    divisor: float | None,
    record: np.ndarray | None,
    taken: int,
) -> Component:
    """The laws of all common batches, with or without the differing record."""
    sizes = np.maximum(batches.sizes + taken, 1.0) if divisor is None else np.full(1, divisor)
    sums = batches.sums if record is None else batches.sums + taken * record
    deviation = mechanism.noise_multiplier * mechanism.clip / sizes
    precision = (frame.unit / deviation) ** 2
    outside = frame.dimension - frame.rank
    # precision - 1 through its factors: for neighbouring divisors it is 1e-5 and must keep its digits
    surplus = (frame.unit - deviation) * (frame.unit + deviation) / deviation**2
    return Component(
        means=frame.relative(sums / sizes[:, None]),
        precision=precision,
        constant=0.5 * (frame.dimension * np.log1p(surplus) - outside * surplus),
        slope=0.5 * outside * surplus,
    )


def _curve(mechanism: OneRound | CollapsedRound, pair: Pair) -> TradeOff | None:
    """The exact curve of the model, where guarantees has it."""
    if mechanism.rate == 1.0:
        return _whole_batch_curve(mechanism, pair)
    aligned = pair.rank <= 1 and len(pair.counts) <= 1 and pair.added is not None
    removed_nothing = pair.removed is None or not np.any(pair.removed)
    same_size = pair.records_without == pair.records_with
    if not aligned or not removed_nothing or not pair.counts:
        return None
    if same_size and mechanism.normalise_by == "realised_batch":
        return None
    added = pair.added
    assert added is not None
    shared, extra = (float(np.clip(row.sum() / mechanism.clip, -1, 1)) for row in (pair.shared, added))
    return guarantees.normalised_round(
        # Equal sizes have equal divisors, and a zero gradient in the batch changes nothing but its size.
        normalise_by="none" if same_size else mechanism.normalise_by,
        records=sum(pair.counts),
        rate=mechanism.rate,
        noise_multiplier=mechanism.noise_multiplier,
        dimension=pair.dimension,
        shared=shared,
        extra=extra,
    ).curve


def _whole_batch_curve(mechanism: OneRound | CollapsedRound, pair: Pair) -> TradeOff | None:
    """Everyone is in the batch: two Gaussians."""

    def side(records: int, record: np.ndarray | None) -> tuple[np.ndarray, float]:
        divisor = mechanism.divisor(records) or float(records)
        total = np.asarray(pair.counts, float) @ pair.shared + (0.0 if record is None else record)
        return total / divisor, mechanism.noise_multiplier * mechanism.clip / divisor

    mean0, deviation0 = side(pair.records_without, pair.removed)
    mean1, deviation1 = side(pair.records_with, pair.added)
    shift, scale = float(np.linalg.norm(mean1 - mean0)) / deviation0, deviation1 / deviation0
    if scale == 1.0:
        return guarantees.gaussian(mu=shift).curve if shift > 0 else None
    return variance_pair(dimension=pair.dimension, scale=scale, shift=shift).curve


def likelihood_ratio(mechanism: Mechanism, neighbours: Neighbours) -> Distinguisher:
    """The exact log-likelihood ratio of a hypothesised mechanism between two neighbouring datasets.

    ``L = ln p_with(y) - ln p_without(y)``: no test of the same false-alarm rate misses less than ``L > t``, if the
    mechanism is what the model says; what is audited may differ. [neyman1933]

    One round of DP-SGD with any normaliser: N + 1 terms for aligned gradients, all batches (at most 2^14 distinct
    ones) for others. Transcripts of many rounds and of repeated steps. Also the Gaussian, Laplace and
    randomised-response mechanisms.
    """
    if isinstance(mechanism, ManyRounds | CollapsedRounds | Repeated):
        return transcript_ratio(mechanism, neighbours, likelihood_ratio)
    if not isinstance(mechanism, OneRound | CollapsedRound):
        return textbook_ratio(mechanism, neighbours)
    model = round_model(mechanism, neighbours)
    return OneRoundRatio(
        mechanism=mechanism,
        neighbours=neighbours,
        pair=model.pair,
        frame=model.frame,
        log_weights=model.batches.log_weights,
        components=model.components,
        ends=model.ends,
        remainder=model.batches.remainder,
    )
