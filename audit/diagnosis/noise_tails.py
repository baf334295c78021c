"""Count how far the noise reaches in streamed outputs; a statement under an assumption, never a verdict."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from audit.bounds.clopper_pearson import clopper_pearson_lower, clopper_pearson_upper, require_risk
from audit.trials.both_sides import Auditable, both_sides
from audit.trials.user_code_errors import contained
from distinguishers.model_free.directions import span_of
from guarantees.checks import AboveZero, Count, Rate, Share, checked, require
from guarantees.claim import Claim
from guarantees.laws.margins import delta_error
from guarantees.numerics.distributions import binom, norm
from guarantees.numerics.rounding import at_least
from mechanisms.pairs.neighbours import Neighbours

CHUNK_ENTRIES = 2**22
"""Output coordinates held at once."""
JAX_END, TORCH_END = 5.221, 5.769
"""Just above the largest float32 normals of jax.random.normal (its smallest is -5.41998) and of PyTorch's vectorised
Box-Muller draw (sqrt(48 ln 2)): known from the generators, see docs/float-tails.md."""

LARGEST_EXPONENT = 700.0

ASSUMES = (
    "the coordinates that carry noise alone are independent draws of one law, and the coordinate along the record, on "
    "either dataset, has that law around its mean"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TailPoint:
    """Counts beyond one threshold fixed beforehand, in standard deviations of the noise."""

    threshold: float
    beyond: int
    expected: float
    """Expected number of draws beyond it under a normal law."""
    moved: int
    """Number of draws that would be beyond it if the record moved them: beyond ``threshold - 1 / noise_multiplier``."""
    delta: float
    """Lower bound on delta at the claimed epsilon."""
    delta_if_it_ends: float
    """Lower bound on delta at every epsilon, if the noise never passes the threshold."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseTails:
    """Where the noise of a mechanism ends, and what that leaks under ``assumes``."""

    draws: int
    largest: float
    """Largest draw, in standard deviations of the noise."""
    typical_largest: float
    """Median of the largest draw under a normal law."""
    points: tuple[TailPoint, ...]
    p_value: float
    """P-value of 'the upper tail is that of a normal law, or heavier'."""
    ends: bool
    epsilon: float
    claimed_delta: float
    delta: float
    """Largest lower bound on delta at ``epsilon`` over all points."""
    risk: float
    """Half of it is spent on ``ends``, half on all deltas together."""
    assumes: str = ASSUMES

    @property
    def says(self) -> str:
        """The result in a sentence."""
        end = "the noise ends too early" if self.ends else "no early end of the noise found"
        return (
            f"{end}: the largest of {self.draws:.3g} draws is {self.largest:.5g} standard deviations, a normal law "
            f"reaches {self.typical_largest:.4g} (p {self.p_value:.2g}); delta >= {at_least(self.delta)} at "
            f"epsilon {self.epsilon:.4g}, where {self.claimed_delta:.3g} is claimed, if {self.assumes}."
        )


@contained()
@checked
def noise_tails(
    mechanism: Auditable,
    neighbours: Neighbours,
    *,
    claim: Claim,
    clip: AboveZero,
    noise_multiplier: AboveZero,
    draws: Count,
    key: jax.Array,
    risk: Share = 0.05,
    delta: float = 1e-5,
    rate: Rate = 1.0,
    divisor: AboveZero = 1.0,
    thresholds: tuple[float, ...] = (JAX_END, TORCH_END),
) -> NoiseTails:
    """Count the upper tail of noise-only coordinates of outputs without the record: where does the noise end?

    Under a normal law ``P(largest <= x) = Phi(x)^draws`` and the number beyond a threshold is binomial. If the
    coordinate along the record has the same noise X (in standard deviations), the event 'beyond t' gives

        delta >= q P(X > t - 1/sigma) - (e^epsilon - 1 + q) P(X > t),

    both rates replaced by Clopper-Pearson limits. [clopper1934] Memory does not grow with ``draws``. The bound rests on
    the assumption that it carries: it is not a verdict.

    Args:
      mechanism: what ``audit.run_audit`` takes; its outputs are vectors.
      neighbours: gradients along the first coordinates, with more coordinates than they span (``worst_case_pair``).
      claim: the promise, for its epsilon at ``delta``.
      clip: the clipping norm of the step, above 0.
      noise_multiplier: sigma, standard deviation of the noise over ``clip``, above 0.
      draws: noise-only coordinates to count, at least; millions at a time.
      key: made by ``jax.random.key``.
      risk: half of it is spent on whether the noise ends, half on all deltas together; in (0, 1).
      delta: where the claim's epsilon is asked.
      rate: q, probability with which each record joins the batch, in (0, 1].
      divisor: the public constant that the sum is divided by, above 0.
      thresholds: in standard deviations of the noise, each above 0. They must not come from these draws, and share the
        risk; by default where JAX's and PyTorch's float32 normals end.

    Returns:
      What was found: ``ends``, ``p_value``, ``largest``, ``delta``, ``points``, and ``says``, all of it in a sentence.

    Raises:
      ValueError: an argument is out of range, or an output is not finite or of another length than the pair's.

    Examples:
      >>> import audit, guarantees, jax, mechanisms
      >>> step = mechanisms.gaussian_mechanism(noise_multiplier=1.0)
      >>> pair = mechanisms.worst_case_pair(records=3, dimension=1000, clip=1.0)
      >>> given = dict(claim=guarantees.gaussian(mu=1.0), clip=1.0, noise_multiplier=1.0, draws=10**5)
      >>> audit.noise_tails(step, pair, key=jax.random.key(0), **given).ends
      False
    """
    require_risk(risk)
    require("thresholds", thresholds and all(t > 0 for t in thresholds), "numbers > 0", thresholds)
    unit = clip * noise_multiplier / divisor
    levels = np.array([*thresholds, *(t - 1 / noise_multiplier for t in thresholds)])
    counted = count_beyond(mechanism, neighbours, levels * unit, draws=draws, key=key)
    epsilon = float(claim.epsilon(delta))
    p_value = _p_value(counted, unit, np.asarray(thresholds))
    points = _points(counted, thresholds, epsilon=epsilon, rate=rate, risk=risk / 2)
    return NoiseTails(
        draws=counted.draws,
        largest=counted.largest / unit,
        typical_largest=float(norm.isf(-math.expm1(-math.log(2) / counted.draws))),
        points=points,
        p_value=p_value,
        ends=p_value < risk / 2,
        epsilon=epsilon,
        claimed_delta=float(claim.delta(epsilon) + delta_error(epsilon, claim.error)),
        delta=max(point.delta for point in points),
        risk=risk,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counted:
    """Number of draws, how many lie beyond each level, and the largest."""

    draws: int
    beyond: tuple[int, ...]
    largest: float


def count_beyond(
    mechanism: Auditable, neighbours: Neighbours, levels: np.ndarray, *, draws: int, key: jax.Array
) -> Counted:
    """Stream outputs without the record, a few million coordinates at a time, and count the noise beyond each level."""
    frame, _ = span_of(neighbours)
    coordinates = frame.dimension - frame.rank
    require("neighbours", frame.basis is None, "gradients along the first coordinates", neighbours.name)
    require("neighbours", coordinates >= 1, "a pair with more coordinates than its gradients span", frame.dimension)
    size = max(1, CHUNK_ENTRIES // frame.dimension)
    pieces = -(-draws // (coordinates * size))
    cuts = levels.astype(np.float32)
    beyond, largest = np.zeros(len(levels), np.int64), -math.inf

    def read(outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        _refuse_length(outputs.shape, frame.dimension)
        noise = outputs[:, frame.rank :]
        top = jnp.where(jnp.all(jnp.isfinite(noise)), jnp.max(noise), jnp.inf)
        return jnp.stack([jnp.sum(noise > cut) for cut in cuts]), top

    def add(found: tuple[jax.Array, jax.Array]) -> None:
        nonlocal largest
        beyond[:] += np.asarray(found[0], np.int64)
        largest = float(np.maximum(largest, found[1]))

    both_sides(mechanism, neighbours).read_without(key, size=size, pieces=pieces, read=read, use=add)
    if not math.isfinite(largest):
        raise ValueError("an output is not finite: check the gradients for NaN and the divisor for zero.")
    return Counted(draws=pieces * size * coordinates, beyond=tuple(int(k) for k in beyond), largest=largest)


def _refuse_length(shape: tuple[int, ...], dimension: int) -> None:
    if shape[1:] != (dimension,):
        raise ValueError(f"outputs must have as many coordinates as the pair, {dimension}, got {shape[1:]}.")


def _p_value(counted: Counted, unit: float, thresholds: np.ndarray) -> float:
    """P-value of the largest draw and all counts under a normal law: the smallest one times their number."""
    no_larger = math.exp(counted.draws * float(special.log_ndtr(counted.largest / unit)))
    rates = special.ndtr(-thresholds)
    too_few = binom.cdf(np.array(counted.beyond[: len(thresholds)]), counted.draws, rates)
    return min(1.0, (1 + len(thresholds)) * min(no_larger, float(too_few.min())))


def _points(
    counted: Counted, thresholds: tuple[float, ...], *, epsilon: float, rate: float, risk: float
) -> tuple[TailPoint, ...]:
    """Bounds on delta at every threshold, all together at ``risk``."""
    share, total = risk / (2 * len(thresholds)), counted.draws
    without, moved = counted.beyond[: len(thresholds)], counted.beyond[len(thresholds) :]
    upper = clopper_pearson_upper(np.array(without), total, risk=share)
    lower = clopper_pearson_lower(np.array(moved), total, risk=share).tolist()
    growth = float(np.expm1(min(epsilon, LARGEST_EXPONENT))) + rate
    return tuple(
        TailPoint(
            threshold=threshold,
            beyond=beyond,
            expected=total * float(special.ndtr(-threshold)),
            moved=moved_beyond,
            delta=max(0.0, rate * low - growth * float(high)),
            delta_if_it_ends=rate * low,
        )
        for threshold, beyond, moved_beyond, low, high in zip(thresholds, without, moved, lower, upper, strict=True)
    )
