"""Both datasets run on the same seeds: whether the record takes part at all, and how far it moves the release."""

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
"""Runs in which the record joins the batch, on average, for its movement to be known."""
EQUAL = 1e-4
"""Share of the longest movement by which two may differ and be one: outputs are rounded."""
DISTINCT = 0.5
"""Share of different numbers below which a release is discrete."""
ONCE = 0.25
"""Share of movements that may come once."""
BENT = 1.1
"""Factor by which noise of other trials may be larger than it looks where some movements come once."""
ERRORS = 2.5
"""Standard errors within which outputs move as often as the record joins batches; batches of others move them more."""
ERRORS_OF_SEVERAL = 1.0
"""The same where the record does not always move them alike."""
LONGER = 1.03
"""Times its due length from which on a movement is called longer."""
OF_HALF = 4
"""Outputs of one half for each coordinate of a mixture, at least."""
LEAST = 1e-4
"""Of the mean variance: mixtures of coordinates are taken to have no less."""
SAME_BATCH = "the same seed gives the same noise and the same batch of other records on both datasets; normal noise"
ASIDE = 0.1
"""Share of a movement's length that rounding and a gradient in lower precision do not explain."""

OTHERS_CHANGE = ("moves_others", "moves_batches")
"""Causes, where every record is taken and where batches are sampled."""


def took_no_part(without: Array, with_record: Array, *, rate: float, risk: float) -> Diagnosis | None:
    """Whether outputs of the same seeds are equal bit for bit, though the record joins each batch at this rate."""
    chance = (1 - rate) ** len(without)
    if chance >= risk or not np.array_equal(without, with_record):
        return None
    # an answer of few values, or what is rounded or cut, may well be the same
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
    """By how much the record moves the release on the same seeds, where other draws stay the same."""

    different: Array
    """Movements that come again, once each: noise never gives one twice, so that they have none."""
    once: bool
    """Whether some come once, as where something after the noise bends them."""

    @property
    def several(self) -> bool:
        """Whether they differ by more than rounding."""
        lengths = np.linalg.norm(self.different, axis=1)
        apart = np.linalg.norm(self.different - self.different[int(np.argmax(lengths))], axis=1)
        return bool(apart.max() > ASIDE * lengths.max())

    @classmethod
    def of(cls, without: Array, with_record: Array, *, rate: float) -> Movements | None:
        """None where the record does not join batches at the stated rate, or too many movements come once."""
        moved = np.asarray(with_record, np.float64) - without
        taken = moved[np.any(moved != 0, axis=1)]
        due, error = rate * len(moved), math.sqrt(rate * (1 - rate) * len(moved))
        if due < FEWEST or abs(len(taken) - due) > ERRORS * error:
            return None
        largest = float(np.abs(taken).max())
        _, places, counts = np.unique(
            np.round(taken / (EQUAL * largest)), axis=0, return_index=True, return_counts=True
        )
        once = int(np.count_nonzero(counts == 1))
        if once > ONCE * len(taken):
            return None
        # several movements may also be those of batches in which others are exchanged, and these move more often
        if len(counts) > 1 and len(taken) - due > ERRORS_OF_SEVERAL * error:
            return None
        return cls(different=taken[places[counts > 1]], once=once > 0)


def moves_too_far(
    found: Movements, drawn: Array, *, allowed: float, rate: float, step: KnownStep | None = None, risk: float
) -> Diagnosis | None:
    """Whether the record moves the release further than ``allowed``, in deviations of what varies in that direction.

    Nothing that is done after the noise bends movements that come again. Where some come once, what bends those may
    shrink the noise of all, by less than ``BENT``. Along the longest, outputs without the record, ``drawn`` for
    themselves, vary by the noise and the batch: no less than by the noise, so that ``(n - 1) s^2 allowed^2 / d^2`` is
    at least chi-square. Nothing is said where outputs do not look normal. A movement that is longer than its
    gradient as it is ``told``, or not along it, is no fault of the noise, unless the release is multiplied.
    """
    if not math.isfinite(allowed):
        return None
    allowed *= BENT if found.once else 1.0
    lengths = np.linalg.norm(found.different, axis=1)
    farthest = int(np.argmax(lengths))
    rows = np.asarray(drawn, np.float64).reshape(len(drawn), -1)
    along, length = rows @ (found.different[farthest] / lengths[farthest]), float(lengths[farthest])
    p = len(lengths) * _chance(along, length, allowed)
    if p >= risk / 2:
        moved, others = found.different[0], np.empty((0, rows.shape[1]))
        if step is not None and rate < 1:
            # what varies with the batch, hides the noise, and looks like none
            others = np.linalg.qr(dense(step.signal.pair, step.signal.pair.shared).T)[0].T
        one = len(lengths) == 1 and not found.once
        mixture = [project_out(own, others) for own in (moved, rows)]
        return along_a_mixture(*mixture, allowed=allowed, risk=risk / 2) if one else None
    deviation = float(along.std(ddof=1))
    batch = "" if rate == 1 else ", when it is in the batch,"
    too_far = _causes(found, rate, step)
    times = 1.0 if step is None or step.stated is None else step.stated.divisor or 1.0
    longer = step is not None and step.stated is not None and times * length > LONGER * step.signal.length
    turned = ""
    if step is not None and not step.signal.assumed and not found.once:
        share = against(found.different[farthest], step.signal.moves)
        if share > ASIDE:
            longer = True
            too_far = tuple(
                sorted(too_far, key=lambda cause: cause not in ("sum_clipped", "sum_scaled", *OTHERS_CHANGE))
            )
            turned = (
                f". {share:.0%} of that length is against its gradient or where that is 0, which no clipping of it "
                "alone explains"
            )
    # noise that is too little is no reason for a movement that changes from batch to batch
    less = () if found.several else ("less_noise",)
    return answer(
        "same_seeds",
        wrong=True,
        measured=f"with the same seeds the record{batch} moves the release by {length:.3g}, for which the claim needs "
        f"noise of deviation {at_least(length / allowed, '.3g')}; in that direction noise and batches together have "
        f"{at_most(deviation, '.3g')}{turned}",
        causes=(*too_far, *less, OTHERS) if longer else (*less, *too_far, OTHERS),
        p_value=min(1.0, 2 * p),
        risk=risk,
        assumes=SAME_BATCH,
        estimate=length / deviation,
    )


def along_a_mixture(moved: Array, rows: Array, *, allowed: float, risk: float) -> Diagnosis | None:
    """The same along the mixture of coordinates that one half of the outputs says has least noise, of the other half.

    What is done to a noisy sum moves the record as it mixes the noise. Noise that coordinates share, or that some have
    less of, leaves mixtures with little beside what the record moves.
    """
    half = len(rows) // 2
    chosen = np.argsort(-np.abs(moved))[: half // OF_HALF]
    covariance = np.atleast_2d(np.cov(rows[:half, chosen].T))
    least = LEAST * float(np.trace(covariance)) / len(chosen)
    way = np.linalg.solve(covariance + least * np.eye(len(chosen)), moved[chosen])
    way /= np.linalg.norm(way)
    along, length = rows[half:, chosen] @ way, float(moved[chosen] @ way)
    p = _chance(along, length, allowed)
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


def _chance(along: Array, length: float, allowed: float) -> float:
    """Of so little variation of what looks normal, if there is as much noise as a movement of this length needs."""
    deviation, degrees = float(along.std(ddof=1)), len(along) - 1
    if not length > allowed * deviation > 0 or not looks_normal(along):
        return 1.0
    return float(chi2.cdf(degrees * (allowed * deviation / length) ** 2, degrees))


def _causes(found: Movements, rate: float, step: KnownStep | None) -> tuple[str, ...]:
    """Why the record may move the release so far, the likeliest first.

    What is added record by record moves it by one constant. What changes with the batch is no such sum, and where the
    gradients are told, all movements together show whether it was clipped or averaged first.
    """
    others = OTHERS_CHANGE[rate < 1]
    of_sums = ("sum_clipped", others, "sum_scaled")
    explained = ""
    if step is not None and step.stated is not None and not step.signal.assumed:
        explained = is_explained(found.different, step.signal, step.stated)
    if found.several:
        return tuple(dict.fromkeys((*((explained,) if explained else ()), *of_sums)))
    causes = ("larger_bound", "clipped_apart", others)
    return (*causes[:1], "sum_clipped", *causes[1:]) if rate == 1 and explained == "sum_clipped" else causes


def against(moved: Array, gradient: Array) -> float:
    """Which share of a movement's length is against the gradient, or where that is zero.

    However a gradient or its parts are clipped or scaled, each number of it keeps its sign, or all change it.
    """
    lost = [float(np.sum(moved[moved * way <= 0] ** 2)) for way in (gradient, -gradient)]
    return math.sqrt(min(lost)) / float(np.linalg.norm(moved))
