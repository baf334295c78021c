"""Exact likelihood ratios of whole transcripts, over the places at which the record may have been."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import guarantees
from distinguishers.contract import OwnScore
from distinguishers.exact.attendance import attendance_law, counts_groups, final_law
from distinguishers.exact.round_mixtures import AttendanceRatio, BinsRatio, means_of
from distinguishers.exact.transcript_scores import (
    LargestRound,
    Line,
    PlaceRatio,
    SummedRatio,
    optional_shift,
    places_of,
)
from guarantees.checks import checked, require
from guarantees.shuffling.max_coordinate import LargestCoordinateLaw
from guarantees.shuffling.spline_law import SplineLaw
from guarantees.trade_off import TradeOff
from mechanisms.contract import Mechanism
from mechanisms.pairs.neighbours import GradientTable, Neighbours
from mechanisms.sampling import BallsAndBins, Deterministic, FixedBatches, FixedSize, Poisson, Shuffle
from mechanisms.simulators.one_round import OneRound, one_round
from mechanisms.simulators.training import CollapsedRounds, ManyRounds, Repeated, aligned

RoundRatio = Callable[[Mechanism, Neighbours], OwnScore]


def read_line(mechanism: ManyRounds | CollapsedRounds, neighbours: Neighbours) -> Line:
    """The line of a pair under a model whose batches have one size, or whose other records are subtracted."""
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
    require("group", counted, "1 except for Poisson, fixed-size and deterministic batches", group)
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
            f"no likelihood ratio of transcripts for the sampler {sampler.name!r}; use distinguishers.battery, or "
            "the likelihood ratio of a similar sampler."
        )
    return PlaceRatio(
        parameters=parameters,
        base=line.base,
        deviation=line.deviation,
        with_shift=optional_shift(line.with_shift),
        without_shift=optional_shift(line.without_shift),
        places=places_of(places),
        epochs=mechanism.epochs,
        same_order=isinstance(sampler, Shuffle) and sampler.same_order,
        curve=_place_curve(mechanism, line, places),
    )


def _shifts(mechanism: ManyRounds | CollapsedRounds, neighbours: Neighbours) -> tuple[float, float, float]:
    """Gradients of the others, of the record and of its replacement, in units of the noise."""
    line = read_line(mechanism, neighbours)
    shared = 0.0
    if mechanism.sees == "updates":
        shared = aligned(neighbours.with_record, mechanism.clip, mechanism.group)[0] / line.deviation
    own, replaced = (shift / mechanism.group + shared for shift in (line.with_shift, line.without_shift))
    return shared, own, replaced


def _attendance_ratio(mechanism: ManyRounds | CollapsedRounds, neighbours: Neighbours) -> AttendanceRatio:
    """The ratio by how many records attend each round."""
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
    """The ratio of the sum of all rounds: one Gaussian for every number of times that records attend."""
    records = neighbours.with_record.records
    law = final_law(mechanism.sampler, records, mechanism.epochs, mechanism.group)
    if law is None:
        raise ValueError(
            f"no likelihood ratio of the final sum for the sampler {mechanism.sampler.name!r} and group="
            f"{mechanism.group}; use distinguishers.projection or battery."
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
    """The subsampled Gaussian's curve, if only the record moves the sum and its probability is the same every round."""
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
    """The ratio for balls and bins."""
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
    """One round, and the pair as a round of the transcript shows it."""
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
      ValueError: the mechanism is not a model of a training, or the pair is not of that kind.

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
    """The exact curve, if ``guarantees`` has it."""
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
    """Parameters of a distinguisher with this model and pair."""
    return {
        "mechanism": {"kind": mechanism.name, **mechanism.parameters},
        "neighbours": {"kind": neighbours.name, **neighbours.parameters},
    }
