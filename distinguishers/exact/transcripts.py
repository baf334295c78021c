"""Exact likelihood ratios of whole transcripts: where was the record, if it was there at all?"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import guarantees
from distinguishers.contract import OneScore, OwnScore
from distinguishers.exact.attendance import attendance_law, counts_groups, final_law
from distinguishers.exact.round_mixtures import TRANSCRIPTS, AlongOnly, AttendanceRatio, BinsRatio, along, means_of
from dpsgd_audit.later import jax, jnp
from guarantees.checks import checked, require
from guarantees.shuffling.max_coordinate import LargestCoordinateLaw
from guarantees.shuffling.spline_law import SplineLaw
from guarantees.trade_off import TradeOff
from mechanisms.contract import Mechanism, OutputKind
from mechanisms.pairs.neighbours import GradientTable, Neighbours
from mechanisms.sampling import BallsAndBins, Deterministic, FixedBatches, FixedSize, Poisson, Shuffle
from mechanisms.simulators.one_round import OneRound, one_round
from mechanisms.simulators.training import CollapsedRounds, ManyRounds, Repeated, aligned
from mechanisms.structure import structured

RoundRatio = Callable[[Mechanism, Neighbours], OwnScore]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """A transcript of aligned gradients, seen along their one direction in units of the noise.

    Without the differing record in a batch its round has mean ``base``; with it the mean is ``base`` plus a shift, one
    for each dataset of the pair.
    """

    base: float
    with_shift: float
    without_shift: float
    deviation: float
    rounds: int

    def read(self, output: Any) -> jax.Array:
        """One number a round: standard normal but for the record."""
        return (along(output) - self.base) / self.deviation


def read_line(mechanism: ManyRounds | CollapsedRounds, neighbours: Neighbours) -> Line:
    """The line of a pair under a model whose batches all have one size, or whose other records are taken off."""
    for dataset in (neighbours.without, neighbours.with_record):
        if not isinstance(dataset, GradientTable) or dataset.basis is not None:
            raise ValueError(
                "a likelihood ratio of transcripts needs aligned gradients along the first axis: worst_case_pair(..., "
                "relation='zero_out' or 'substitution')."
            )
    group = mechanism.group
    shared, record = aligned(neighbours.with_record, mechanism.clip, group)
    same, replaced = aligned(neighbours.without, mechanism.clip, group)
    if same != shared:
        raise ValueError("the two datasets must share the gradients of all records but one.")
    sampler = mechanism.sampler
    counted = group == 1 or counts_groups(sampler)
    require("group", counted, "1 but for Poisson, fixed-size and deterministic batches", group)
    size = sampler.batch_size if isinstance(sampler, FixedBatches) and mechanism.sees == "updates" else 0
    if mechanism.sees == "isolated":
        shared = 0.0
    deviation = mechanism.noise_multiplier * mechanism.clip
    return Line(
        base=shared * size,
        with_shift=group * (record - shared) / deviation,
        without_shift=group * (replaced - shared) / deviation,
        deviation=deviation,
        rounds=mechanism.rounds(neighbours.with_record.records),
    )


class Shift(NamedTuple):
    """What the record adds to the round that has it, in units of the noise, and half its square."""

    value: float
    half_square: float


def _shift(value: float) -> Shift | None:
    return None if value == 0 else Shift(value, value**2 / 2)


class Places(NamedTuple):
    """ln of the chance of every place of an epoch, and of none: None where the record is never dropped."""

    log_weights: np.ndarray
    log_dropped: float | None


def _places(weights: np.ndarray) -> Places:
    dropped = max(0.0, 1.0 - float(weights.sum()))
    with np.errstate(divide="ignore"):
        return Places(np.log(weights).astype(np.float32), math.log(dropped) if dropped > 1e-12 else None)


@structured(numbers=("base", "deviation", "with_shift", "without_shift", "places"), structure=("epochs", "same_order"))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PlaceRatio(AlongOnly):
    """``ln`` of a mixture over the record's place with it, over the same without it.

    An epoch of T rounds z and places of probability w:
    ``ln (w_0 + sum_t w_t exp(a z_t - a^2/2)) - ln (w_0 + sum_t w_t exp(b z_t - b^2/2))``, w_0 the chance that the
    record is dropped; epochs add, unless they keep one order, when the exponents of a place do. With a = 2/sigma,
    b = 1/sigma this is the ratio of [chua2024, theorem 4.2]; with b = 0 that of [ertan2026, proposition 4.3].
    """

    parameters: Mapping[str, Any]
    base: float
    deviation: float
    with_shift: Shift | None
    """None where the record adds nothing."""
    without_shift: Shift | None
    places: Places
    epochs: int
    same_order: bool
    curve: TradeOff | None
    name: str = "likelihood_ratio"
    accepts: tuple[OutputKind, ...] = TRANSCRIPTS

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The log-likelihood ratio of one transcript."""
        del key
        seen = ((along(output) - self.base) / self.deviation).reshape(self.epochs, -1)
        return self._evidence(seen, self.with_shift) - self._evidence(seen, self.without_shift)

    def _evidence(self, seen: jax.Array, shift: Shift | None) -> jax.Array:
        if shift is None:
            return jnp.float32(0.0)
        exponents = shift.value * seen - shift.half_square
        if self.same_order:
            exponents = jnp.sum(exponents, axis=0, keepdims=True)
        found = jax.nn.logsumexp(jnp.asarray(self.places.log_weights)[None] + exponents, axis=1)
        if self.places.log_dropped is not None:
            found = jnp.logaddexp(found, jnp.float32(self.places.log_dropped))
        return jnp.sum(found)


@structured(numbers=("ratio",))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SummedRatio(OneScore):
    """Independent rounds: the sum of the rounds' log-likelihood ratios."""

    ratio: OwnScore
    times: int
    parameters: Mapping[str, Any]
    name: str = "likelihood_ratio"
    accepts: tuple[OutputKind, ...] = TRANSCRIPTS

    @property
    def span(self) -> int | None:
        """What the round's ratio reads."""
        return self.ratio.span

    @property
    def round_length(self) -> int | None:
        """Of the vectors that it reads, one for every round."""
        return self.ratio.length

    @functools.cached_property
    def _exact_curve(self) -> TradeOff | None:
        return None if self.ratio.curve is None else self.ratio.curve.compose(self.times)

    @property
    def curve(self) -> TradeOff | None:
        """The composed curve of one round."""
        return self._exact_curve

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The log-likelihood ratio of one transcript."""
        scores = jax.vmap(lambda row: self.ratio(key, row))(output)
        return jnp.sum(scores)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LargestRound(AlongOnly):
    """The log-likelihood ratio of the largest round alone: the max-coordinate test. [ertan2026, equations 13-17]

    With z the maximum of T rounds and a shift s: density ``(T-1) phi(z) Phi(z-s) / Phi(z) + phi(z-s)``, up to
    ``Phi(z)^(T-1)``, which both sides share. Increasing in z, so its tests are 'maximum > cut', the event E_C of
    [chua2024, theorem 4.2] included.
    """

    parameters: Mapping[str, Any]
    line: Line
    curve: TradeOff | None
    name: str = "largest_round"
    accepts: tuple[OutputKind, ...] = TRANSCRIPTS

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The log-likelihood ratio of the largest round."""
        del key
        # a record that pulls down is looked for from below
        sign = math.copysign(1.0, self.line.with_shift - self.line.without_shift)
        largest = jnp.max(sign * self.line.read(output))
        return self._evidence(largest, sign * self.line.with_shift) - self._evidence(
            largest, sign * self.line.without_shift
        )

    def _evidence(self, largest: jax.Array, shift: float) -> jax.Array:
        own = -((largest - shift) ** 2) / 2
        if self.line.rounds == 1:
            return own
        # takes long to import, and nothing else here needs it
        from jax.scipy.special import log_ndtr

        others = math.log(self.line.rounds - 1) - largest**2 / 2 - log_ndtr(largest) + log_ndtr(largest - shift)
        return jnp.logaddexp(own, others)


def transcript_ratio(
    mechanism: ManyRounds | CollapsedRounds | Repeated, neighbours: Neighbours, one: RoundRatio
) -> OwnScore:
    """The exact log-likelihood ratio of a transcript between two neighbouring datasets; ``one`` makes that of a round.

    Independent rounds (Poisson batches, cut or not, fresh batches, any repeated step) add their ratios; batches
    that meet the record once an epoch mix over its place, and balls and bins over where all others are. All but
    Poisson batches and repeated steps need aligned gradients.
    """
    parameters = _parameters(mechanism, neighbours)
    if isinstance(mechanism, Repeated):
        return SummedRatio(ratio=one(mechanism.step, neighbours), times=mechanism.times, parameters=parameters)
    sampler, records = mechanism.sampler, neighbours.with_record.records
    if mechanism.releases == "final":
        return _final_ratio(mechanism, neighbours)
    if isinstance(sampler, Poisson) and mechanism.group == 1:
        return SummedRatio(
            ratio=one(*_poisson_round(mechanism, sampler, neighbours)),
            times=mechanism.rounds(records),
            parameters=parameters,
        )
    if attendance_law(sampler, records, mechanism.group) is not None:
        return _attendance_ratio(mechanism, neighbours)
    line = read_line(mechanism, neighbours)
    if isinstance(sampler, BallsAndBins) and mechanism.sees == "updates":
        return _bins_ratio(mechanism, sampler, neighbours)
    if isinstance(sampler, BallsAndBins):
        places = np.full(sampler.steps, 1 / sampler.steps)
    elif isinstance(sampler, FixedBatches):
        places = sampler.places(records)
    else:
        raise ValueError(
            f"no likelihood ratio of transcripts for the sampler {sampler.name!r}; take a battery, or give the "
            "distinguisher of a sampler that it resembles."
        )
    return PlaceRatio(
        parameters=parameters,
        base=line.base,
        deviation=line.deviation,
        with_shift=_shift(line.with_shift),
        without_shift=_shift(line.without_shift),
        places=_places(places),
        epochs=mechanism.epochs,
        same_order=isinstance(sampler, Shuffle) and sampler.same_order,
        curve=_place_curve(mechanism, line, places),
    )


def _shifts(mechanism: ManyRounds | CollapsedRounds, neighbours: Neighbours) -> tuple[float, float, float]:
    """The gradients of the others, of the record and of what stands in its place, in units of the noise."""
    line = read_line(mechanism, neighbours)
    shared = 0.0
    if mechanism.sees == "updates":
        shared = aligned(neighbours.with_record, mechanism.clip, mechanism.group)[0] / line.deviation
    own, replaced = (shift / mechanism.group + shared for shift in (line.with_shift, line.without_shift))
    return shared, own, replaced


def _attendance_ratio(mechanism: ManyRounds | CollapsedRounds, neighbours: Neighbours) -> AttendanceRatio:
    shared, own, replaced = _shifts(mechanism, neighbours)
    law = attendance_law(mechanism.sampler, neighbours.with_record.records, mechanism.group)
    assert law is not None
    centre = float(shared * (law.others @ law.probability))
    return AttendanceRatio(
        parameters=_parameters(mechanism, neighbours),
        deviation=mechanism.noise_multiplier * mechanism.clip,
        centre=centre,
        with_record=means_of(law, shared=shared, own=own, centre=centre),
        without=means_of(law, shared=shared, own=replaced, centre=centre),
        curve=_attendance_curve(mechanism, neighbours, own if shared == replaced == 0 else None),
    )


def _final_ratio(mechanism: ManyRounds | CollapsedRounds, neighbours: Neighbours) -> AttendanceRatio:
    """The sum of all rounds: one Gaussian of their joint noise for every number of times that records attend."""
    records = neighbours.with_record.records
    law = final_law(mechanism.sampler, records, mechanism.epochs, mechanism.group)
    if law is None:
        raise ValueError(
            f"no likelihood ratio of the final sum for the sampler {mechanism.sampler.name!r} and group="
            f"{mechanism.group}; take a projection or a battery."
        )
    scale = math.sqrt(mechanism.rounds(records))
    shared, own, replaced = (shift / scale for shift in _shifts(mechanism, neighbours))
    centre = float(shared * (law.others @ law.probability))
    gap = abs(own - replaced) * float(law.record[0])
    return AttendanceRatio(
        parameters=_parameters(mechanism, neighbours),
        deviation=mechanism.noise_multiplier * mechanism.clip * scale,
        centre=centre,
        with_record=means_of(law, shared=shared, own=own, centre=centre),
        without=means_of(law, shared=shared, own=replaced, centre=centre),
        curve=guarantees.gaussian(mu=gap).curve if len(law.record) == 1 and gap > 0 else None,
        accepts=("vector", "collapsed"),
    )


def _attendance_curve(
    mechanism: ManyRounds | CollapsedRounds, neighbours: Neighbours, shift: float | None
) -> TradeOff | None:
    """The subsampled Gaussian's, where nothing but the record moves the sum and its chance is the same every round."""
    sampler, records = mechanism.sampler, neighbours.with_record.records
    if not shift:
        return None
    if isinstance(sampler, Poisson):
        rate = sampler.rate
    elif isinstance(sampler, FixedSize) and mechanism.group == 1:
        rate = sampler.batch_size / records
    else:
        return None
    one = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=1 / abs(shift), group=mechanism.group)
    return one.curve.compose(mechanism.rounds(records))


def _bins_ratio(mechanism: ManyRounds | CollapsedRounds, sampler: BallsAndBins, neighbours: Neighbours) -> BinsRatio:
    shared, own, replaced = _shifts(mechanism, neighbours)
    return BinsRatio(
        parameters=_parameters(mechanism, neighbours),
        deviation=mechanism.noise_multiplier * mechanism.clip,
        others=neighbours.with_record.records - 1,
        bins=sampler.steps,
        shared=shared,
        with_shift=own,
        without_shift=replaced,
    )


def _poisson_round(
    mechanism: ManyRounds | CollapsedRounds, sampler: Poisson, neighbours: Neighbours
) -> tuple[OneRound, Neighbours]:
    """One round and the pair as a round of the transcript shows it."""
    step = one_round(
        normalise_by="none", rate=sampler.rate, clip=mechanism.clip, noise_multiplier=mechanism.noise_multiplier
    )
    if mechanism.kind == "transcript" and mechanism.sees == "updates":
        return step, neighbours
    # what a transcript of statistics shows is one coordinate, without the others if they are taken off
    along = mechanism.kind == "collapsed_transcript"
    sides = []
    for dataset in (neighbours.without, neighbours.with_record):
        shared, own = aligned(dataset, mechanism.clip)
        rows = np.array([[0.0 if mechanism.sees == "isolated" else shared], [own]])
        sides.append(dataclasses.replace(dataset, rows=rows, dimension=1 if along else dataset.dimension))
    return step, dataclasses.replace(neighbours, without=sides[0], with_record=sides[1])


@checked
def largest_round(mechanism: ManyRounds | CollapsedRounds, neighbours: Neighbours) -> LargestRound:
    """The max-coordinate test of one epoch: reads only the largest round, with its exact curve.

    Weaker than the likelihood ratio of the same transcript. The curve is known for one epoch of shuffled batches or of
    balls and bins, where the record moves its round upwards; otherwise ``curve`` is None and thresholds need a split.

    Args:
      mechanism: ``mechanisms.many_rounds(...)``, or its ``collapsed()``.
      neighbours: aligned gradients, equal but for one record.

    Returns:
      The score.

    Raises:
      ValueError: the mechanism is no model of a training, or the pair is not of that kind.

    Examples:
      >>> import distinguishers, mechanisms
      >>> batches = mechanisms.sampling.shuffle(batch_size=1)
      >>> training = mechanisms.many_rounds(sampler=batches, clip=1.0, noise_multiplier=1.0, sees="isolated")
      >>> pair = mechanisms.worst_case_pair(records=4, dimension=1, clip=1.0, relation="zero_out")
      >>> round(float(distinguishers.largest_round(training, pair).curve.beta(0.1)), 3)  # misses at 10% false alarms
      0.781
    """
    line = read_line(mechanism, neighbours)
    sampler = mechanism.sampler
    exact = isinstance(sampler, Shuffle | BallsAndBins) and mechanism.epochs == 1
    ordered = line.with_shift > max(line.without_shift, 0.0) and line.without_shift >= 0
    curve = None
    if exact and ordered:
        law = LargestCoordinateLaw(rounds=line.rounds, with_shift=line.with_shift, without_shift=line.without_shift)
        curve = TradeOff(law)
    return LargestRound(parameters=_parameters(mechanism, neighbours), line=line, curve=curve)


def _place_curve(mechanism: ManyRounds | CollapsedRounds, line: Line, places: np.ndarray) -> TradeOff | None:
    """The exact curve, where guarantees has it."""
    gap = abs(line.with_shift - line.without_shift)
    if isinstance(mechanism.sampler, Deterministic) or len(places) == 1:
        return guarantees.gaussian(mu=gap * math.sqrt(mechanism.epochs)).curve if gap > 0 else None
    uniform = np.allclose(places, 1 / len(places), rtol=1e-12)
    kept = isinstance(mechanism.sampler, Shuffle) and mechanism.sampler.same_order
    if not uniform or (kept and mechanism.epochs > 1):
        return None
    if line.without_shift == 0 and gap > 0:
        return guarantees.isolated_shuffle(rounds=len(places), noise_multiplier=1 / gap, epochs=mechanism.epochs).curve
    if mechanism.epochs == 1 and math.isclose(line.with_shift, 2 * line.without_shift, rel_tol=1e-12):
        exact = guarantees.fixed_batch_shuffle(rounds=len(places), noise_multiplier=1 / abs(line.without_shift))
        # each threshold of the exact curve is an integral of its own: some thirty serve the hundreds that are asked for
        return TradeOff(SplineLaw(exact.curve.law, spacing=0.5, farthest=5.5, probes=0))
    return None


def _parameters(mechanism: Mechanism, neighbours: Neighbours) -> Mapping[str, Any]:
    return {
        "mechanism": {"kind": mechanism.name, **mechanism.parameters},
        "neighbours": {"kind": neighbours.name, **neighbours.parameters},
    }
