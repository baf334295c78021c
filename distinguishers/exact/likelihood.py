"""The exact log-likelihood ratio of a hypothesised mechanism on a pair of neighbours."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import guarantees
from distinguishers.contract import OneScore, OwnScore
from distinguishers.exact.batches import Batches, Pair, read_pair, shared_batches
from distinguishers.exact.mixture import Component, Ends, Mixture, make_mixture
from distinguishers.exact.textbook_ratio import textbook_ratio
from distinguishers.exact.transcripts import transcript_ratio
from distinguishers.span_coordinates import Frame, make_frame
from dpsgd_audit.later import jax
from guarantees.checks import checked
from guarantees.normalised.variance_pair import variance_pair
from guarantees.trade_off import TradeOff
from mechanisms.contract import Mechanism, OutputKind
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.simulators.one_round import CollapsedRound, OneRound
from mechanisms.simulators.training import CollapsedRounds, ManyRounds, Repeated
from mechanisms.structure import structured


@structured(numbers=("frame", "mixture"))
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
    mixture: Mixture
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
    def length(self) -> int:
        """Length of the vectors that it reads."""
        return self.pair.dimension

    @property
    def span(self) -> int | None:
        """Number of first coordinates that it reads beside the mean square of the others; None if it reads all."""
        return self.frame.rank if self.frame.basis is None else None

    @property
    def curve(self) -> TradeOff | None:
        """For aligned gradients under add_remove (zero_out too, unless the batch size divides) and for rate 1."""
        return self._exact_curve

    def __call__(self, key: jax.Array, output: Any) -> jax.Array:
        """The log-likelihood ratio of one output, from one pass over it."""
        del key
        return self.mixture.log_ratio(self.frame.read(output))


def model_parameters(mechanism: Mechanism, neighbours: Neighbours) -> Mapping[str, Any]:
    """Parameters of a model-based distinguisher: its mechanism and pair, by name and parameters."""
    return {
        "mechanism": {"kind": mechanism.name, **mechanism.parameters},
        "neighbours": {"kind": neighbours.name, **neighbours.parameters},
    }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RoundModel:
    """The laws of one round on both sides of a pair, which likelihood ratio and normality test share."""

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
            f"the likelihood ratio of one round needs a pair that differs in one record, got {pair.group}; use "
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
    """A label that is equal for records that add nothing to the sum, so that equal laws are one component."""
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
    return _aligned_curve(
        # Equal sizes have equal divisors, and a zero gradient in the batch changes nothing but its size.
        normalise_by="none" if same_size else mechanism.normalise_by,
        records=sum(pair.counts),
        rate=mechanism.rate,
        noise_multiplier=mechanism.noise_multiplier,
        dimension=pair.dimension,
        shared=shared,
        extra=extra,
    )


@functools.lru_cache(maxsize=16)
def _aligned_curve(**parameters: Any) -> TradeOff:
    """Kept with the tables that it makes when first asked: audits of one model have one curve."""
    return guarantees.normalised_round(**parameters).curve


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


@checked
def likelihood_ratio(mechanism: Mechanism, neighbours: Neighbours) -> OwnScore:
    """The exact log-likelihood ratio of a hypothesised mechanism between two neighbouring datasets.

    ``L = ln p_with(y) - ln p_without(y)``: no test of the same false-alarm rate misses less than ``L > t``, if the
    mechanism is what the model says. [neyman1933] What is audited may differ from the model: bounds stay valid, but the
    test is then no longer the best.

    Args:
      mechanism: the model: one round of DP-SGD with any normaliser (N + 1 terms for aligned gradients, at most 2^14
        distinct batches for others), a transcript of many rounds or of repeated steps, or the Gaussian, Laplace and
        randomised-response mechanisms.
      neighbours: the pair.

    Returns:
      A distinguisher that knows its curve, where the curve has been computed.

    Raises:
      ValueError: no likelihood is known for this mechanism on this pair; the message says which are.

    Examples:
      >>> import distinguishers, mechanisms
      >>> step, pair = mechanisms.gaussian_mechanism(noise_multiplier=1.0), mechanisms.scalar_pair()
      >>> round(distinguishers.likelihood_ratio(step, pair).curve.mu_star(), 3)
      1.0
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
        mixture=make_mixture(
            log_weights=model.batches.log_weights,
            components=model.components,
            ends=model.ends,
            rate=mechanism.rate,
            free=model.frame.free,
        ),
        remainder=model.batches.remainder,
    )
