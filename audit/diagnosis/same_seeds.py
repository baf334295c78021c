"""Run both datasets on the same seeds: whether the record takes part at all, and how far it moves the release."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from audit.diagnosis.allowed_movement import looks_normal
from audit.diagnosis.cause_sentences import OTHERS, answer
from audit.diagnosis.explained_means import is_explained
from audit.diagnosis.noise import Array, project_out
from audit.diagnosis.signal import dense
from audit.diagnosis.stated_noise import KnownStep
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import chi2
from guarantees.numerics.rounding import at_least, at_most

FEWEST = 20
"""Expected runs in which the record joins the batch, from which on its movement is known."""
EQUAL = 1e-4
"""Share of the longest movement up to which two differ by rounding."""
DISTINCT = 0.5
"""Share of different numbers below which a release is discrete."""
ONCE = 0.25
"""Largest share of movements that may occur only once."""
BENT = 1.1
"""Factor by which the noise of other trials may be larger than it looks where some movements occur once."""
ERRORS = 2.5
"""Standard errors within which outputs move as often as the record joins batches; if the record changes the batches
of others, they move more often."""
ERRORS_OF_SEVERAL = 1.0
"""Such a number of standard errors where the record has several movements."""
LONGER = 1.03
"""Ratio to its expected length from which on a movement is called longer."""
OF_HALF = 4
"""Outputs in one half for each coordinate of a mixture, at least."""
LEAST = 1e-4
"""Ridge of the covariance, as a share of the mean variance."""
SAME_BATCH = "the same seed gives the same noise and the same batch of other records on both datasets; normal noise"
ASIDE = 0.1
"""Share of a movement's length that rounding and a gradient in lower precision do not explain."""

OTHERS_CHANGE = ("moves_others", "moves_batches")
"""Causes where every record is taken, and where batches are sampled."""


def took_no_part(without: Array, with_record: Array, *, rate: float, risk: float) -> Diagnosis | None:
    """Answer that the record changes no output on the same seeds, though it joins batches at this rate; or None."""
    chance = (1 - rate) ** len(without)
    if chance >= risk or not np.array_equal(without, with_record):
        return None
    # releases of few values, rounded or cut, may be equal by chance
    varying = without[:, np.any(without != without[0], axis=0)]
    if len(np.unique(varying)) < DISTINCT * varying.size:
        return None
    return answer(
        "no_part",
        wrong=True,
        measured=f"the record changes nothing: on each of {len(without)} seeds the release is the same, bit for bit, "
        "with the record and without it. So these trials say nothing about the code: check that it reads the dataset "
        "that it is given, that the record has a gradient, and that the claim names the rate if batches are sampled",
        p_value=chance,
        risk=risk,
        assumes=f"the record joins a batch with probability {rate:g}",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Movements:
    """How far the record moves the release on the same seeds, where all other draws stay the same."""

    different: Array
    """Movements that occur repeatedly, a row each: they contain no noise, which never repeats."""
    once: bool
    """Whether some movements occur only once, as where something after the noise bends them."""

    @property
    def several(self) -> bool:
        """Whether the repeated movements differ by more than rounding."""
        lengths = np.linalg.norm(self.different, axis=1)
        apart = np.linalg.norm(self.different - self.different[int(np.argmax(lengths))], axis=1)
        return bool(apart.max() > ASIDE * lengths.max())

    @classmethod
    def of(cls, without: Array, with_record: Array, *, rate: float) -> Movements | None:
        """Compare outputs on the same seeds; None if the record joins too few batches, or few movements repeat."""
        moved = np.asarray(with_record, np.float64) - without
        taken = moved[np.any(moved != 0, axis=1)]
        expected, error = rate * len(moved), math.sqrt(rate * (1 - rate) * len(moved))
        if expected < FEWEST or abs(len(taken) - expected) > ERRORS * error:
            return None
        largest = float(np.abs(taken).max())
        _, places, counts = np.unique(
            np.round(taken / (EQUAL * largest)), axis=0, return_index=True, return_counts=True
        )
        once = int(np.count_nonzero(counts == 1))
        if once > ONCE * len(taken):
            return None
        # where the record exchanges others in the batch there are several movements as well, and more often
        if len(counts) > 1 and len(taken) - expected > ERRORS_OF_SEVERAL * error:
            return None
        return cls(different=taken[places[counts > 1]], once=once > 0)


def moves_too_far(
    movements: Movements, drawn: Array, *, allowed: float, rate: float, step: KnownStep | None = None, risk: float
) -> Diagnosis | None:
    """Answer that the record moves the release further than ``allowed``, in deviations along that direction; or None.

    What is done to a release after the noise cannot make movements repeat; where some occur once, it may shrink the
    noise of all, by less than ``BENT``. Along the longest movement, outputs without the record, ``drawn`` for
    themselves, vary by noise and batch, and so no less than by the noise: ``(n - 1) s^2 allowed^2 / d^2`` is at least
    chi-square. Outputs that do not look normal are not judged. A movement that is longer than the record's gradient, or
    not along it, is no fault of the noise unless the release is multiplied.
    """
    if not math.isfinite(allowed):
        return None
    allowed *= BENT if movements.once else 1.0
    lengths = np.linalg.norm(movements.different, axis=1)
    farthest = int(np.argmax(lengths))
    rows = np.asarray(drawn, np.float64).reshape(len(drawn), -1)
    along, length = rows @ (movements.different[farthest] / lengths[farthest]), float(lengths[farthest])
    p = len(lengths) * _chance_of_noise(along, length, allowed)
    if p >= risk / 2:
        moved, others = movements.different[0], np.empty((0, rows.shape[1]))
        if step is not None and rate < 1:
            # the batch varies along the others' gradients, where it would hide that there is little noise
            others = np.linalg.qr(dense(step.signal.pair, step.signal.pair.shared).T)[0].T
        one = len(lengths) == 1 and not movements.once
        mixture = (project_out(moved, others), project_out(rows, others))
        return along_a_mixture(*mixture, allowed=allowed, risk=risk / 2) if one else None
    deviation = float(along.std(ddof=1))
    batch = "" if rate == 1 else ", when it is in the batch,"
    movement_causes = _causes(movements, rate, step)
    times = 1.0 if step is None or step.stated is None else step.stated.divisor or 1.0
    longer = step is not None and step.stated is not None and times * length > LONGER * step.signal.length
    off_gradient = ""
    if step is not None and not step.signal.assumed and not movements.once:
        share = against(movements.different[farthest], step.signal.moves)
        if share > ASIDE:
            longer = True
            movement_causes = tuple(
                sorted(movement_causes, key=lambda cause: cause not in ("sum_clipped", "sum_scaled", *OTHERS_CHANGE))
            )
            off_gradient = (
                f". {share:.0%} of that length points against its gradient or lies where that is 0, which clipping "
                "alone does not explain"
            )
    # too little noise does not explain a movement that changes from batch to batch
    noise_causes = () if movements.several else ("less_noise",)
    return answer(
        "same_seeds",
        wrong=True,
        measured=f"with the same seeds the record{batch} moves the release by {length:.3g}, for which the claim needs "
        f"noise of deviation {at_least(length / allowed, '.3g')}; in that direction noise and batches together have "
        f"{at_most(deviation, '.3g')}{off_gradient}",
        causes=(*movement_causes, *noise_causes, OTHERS) if longer else (*noise_causes, *movement_causes, OTHERS),
        p_value=min(1.0, 2 * p),
        risk=risk,
        assumes=SAME_BATCH,
        estimate=length / deviation,
    )


def along_a_mixture(moved: Array, rows: Array, *, allowed: float, risk: float) -> Diagnosis | None:
    """Answer that the record moves a mixture of coordinates too far, which half of the outputs chooses; or None.

    A later linear step mixes the movement as it mixes the noise. Noise that coordinates share, or that some have less
    of, leaves mixtures with little noise beside what the record moves.
    """
    half = len(rows) // 2
    chosen = np.argsort(-np.abs(moved))[: half // OF_HALF]
    covariance = np.atleast_2d(np.cov(rows[:half, chosen].T))
    least = LEAST * float(np.trace(covariance)) / len(chosen)
    direction = np.linalg.solve(covariance + least * np.eye(len(chosen)), moved[chosen])
    direction /= np.linalg.norm(direction)
    along, length = rows[half:, chosen] @ direction, float(moved[chosen] @ direction)
    p = _chance_of_noise(along, length, allowed)
    if p >= risk:
        return None
    deviation = float(along.std(ddof=1))
    return answer(
        "same_seeds",
        wrong=True,
        measured=f"with the same seeds the record moves a mixture of the release's coordinates by {length:.3g}, for "
        f"which the claim needs noise of deviation {at_least(length / allowed, '.3g')}; noise and batches have "
        f"{at_most(deviation, '.3g')} together",
        causes=("key_again", "uneven", OTHERS),
        p_value=min(1.0, 2 * p),
        risk=2 * risk,
        assumes=SAME_BATCH,
        estimate=length / deviation,
    )


def _chance_of_noise(along: Array, length: float, allowed: float) -> float:
    """P-value of so little variation, if there is as much noise as needed; 1 if it does not look normal."""
    deviation, degrees = float(along.std(ddof=1)), len(along) - 1
    if not length > allowed * deviation > 0 or not looks_normal(along):
        return 1.0
    return float(chi2.cdf(degrees * (allowed * deviation / length) ** 2, degrees))


def _causes(movements: Movements, rate: float, step: KnownStep | None) -> tuple[str, ...]:
    """Why the record may move the release so far, the likeliest first.

    What is added record by record moves it by one constant. What changes with the batch is not such a sum, and if the
    gradients are known, all movements together show whether it was clipped or averaged first.
    """
    others = OTHERS_CHANGE[rate < 1]
    of_sums = ("sum_clipped", others, "sum_scaled")
    explained = ""
    if step is not None and step.stated is not None and not step.signal.assumed:
        explained = is_explained(movements.different, step.signal, step.stated)
    if movements.several:
        return tuple(dict.fromkeys((*((explained,) if explained else ()), *of_sums)))
    causes = ("larger_bound", "clipped_apart", others)
    return (*causes[:1], "sum_clipped", *causes[1:]) if rate == 1 and explained == "sum_clipped" else causes


def against(moved: Array, gradient: Array) -> float:
    """Share of a movement's length that is against the gradient, or where the gradient is zero.

    However a gradient or its parts are clipped or scaled, its numbers all keep their sign, or all change it.
    """
    lost = [float(np.sum(moved[moved * direction <= 0] ** 2)) for direction in (gradient, -gradient)]
    return math.sqrt(min(lost)) / float(np.linalg.norm(moved))
