"""Releases of which no number carries noise alone: all that varies from trial to trial is taken for noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from audit.diagnosis.cause_sentences import OTHERS, answer, sentence
from audit.diagnosis.laplace import SHARES, l1_ratio, share_of_law
from audit.diagnosis.noise import Array, Noise
from audit.diagnosis.rank import ranked
from audit.diagnosis.scale import depends_on_record
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student

NO_BATCHES = "the release is what the data give plus noise, and no batches are drawn"
DISTINCT = 0.9
"""Share of different values below which a release is discrete, and its spread depends on its mean."""
LOOKS_LAPLACE = 0.01
"""Smallest p-value of Laplace noise at which it is taken for that."""
MOST_POOLED = 256
"""Numbers of a release whose moments are taken together."""
MOST_NUMBERS = 16
"""Numbers of a release whose law is asked about one by one."""
FITS = {"laplace": "a Laplace law fits the noise", "normal": "a normal law fits the noise"}
CAUSES = {"laplace": ("not_laplace", "cut", OTHERS), "normal": ("another_law", "cut", OTHERS)}


def diagnose_whole_release(
    first: Array, second: Array, *, law: str, epsilon: float | None, risk: float
) -> tuple[Diagnosis, ...]:
    """Whether the noise has one scale with and without the record, the claimed law and, if Laplace, the scale due.

    The questions share ``risk`` evenly. A release of more than one number is not asked about the last: signs of the
    movement are not known. Where the claim is a pure epsilon and names no law, noise that looks Laplace is asked about
    it. Nothing is asked of discrete releases.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    if any(len(np.unique(column)) < DISTINCT * len(column) for side in sides for column in side.T):
        return ()
    without, with_record = (
        Noise(outputs=side, along=side[:, 0], beside=side, rest=side, rotated=False) for side in sides
    )
    one_number = sides[0].shape[1] == 1 and law != "normal" and epsilon is not None
    share = risk / (1 + (law in SHARES) + one_number)
    answers = [depends_on_record(without, with_record, risk=share)]
    centred = np.concatenate([without.centred, with_record.centred])
    if law in SHARES:
        answers.append(_of_law(without, with_record, law, risk=share))
    if one_number and epsilon is not None and (law == "laplace" or share_of_law(centred, "laplace")[1] > LOOKS_LAPLACE):
        answers.append(l1_ratio(without, with_record, None, epsilon=epsilon, risk=share))
    return ranked([_with_others(found) for found in answers])


def _of_law(without: Noise, with_record: Noise, law: str, *, risk: float) -> Diagnosis:
    """Of a normal law two questions, half of the risk each, and the answer that is wrong; of another law one."""
    sides = (without.centred, with_record.centred)
    if law != "normal":
        return _another_law(np.concatenate(sides), law, risk=risk)
    one, two = _another_law(np.concatenate(sides), law, risk=risk / 2), _other_moments(sides, risk=risk / 2)
    told = two if two.wrong and not one.wrong else one
    return dataclasses.replace(told, p_value=min(1.0, 2 * told.p_value), risk=risk)


def _another_law(centred: Array, law: str, *, risk: float) -> Diagnosis:
    """The number whose noise fits the law worst, which pays for all that are looked at."""
    columns = centred.T[:MOST_NUMBERS]
    found = [share_of_law(column, law) for column in columns]
    at = min(range(len(found)), key=lambda place: found[place][1])
    share, p = math.sqrt(found[at][0]), min(1.0, len(found) * found[at][1])
    due = math.sqrt(SHARES[law][0])
    name = {"laplace": "Laplace", "normal": "normal"}[law]
    where = f" of coordinate {at}" if len(found) > 1 else ""
    measured = FITS[law]
    if p < risk:
        measured = (
            f"the noise{where} is not {name} (its mean absolute value is {share:.3g} of its root mean square, and "
            f"{due:.3g} is expected)"
        )
    return answer(
        law,
        wrong=p < risk,
        measured=measured,
        causes=CAUSES[law],
        p_value=p,
        risk=risk,
        assumes=f"independent trials, many of them; {NO_BATCHES}",
        estimate=share,
    )


def _other_moments(sides: Sequence[Array], *, risk: float) -> Diagnosis:
    """Whether skewness or kurtosis of all coordinates together are not those of normal noise, half of the risk each.

    With ``He3`` and ``He4`` the polynomials of Hermite, their means over a trial's coordinates, each over its own
    deviation, have mean zero over the trials, however the coordinates are correlated.
    """
    step = -(-sides[0].shape[1] // MOST_POOLED)
    rows = np.concatenate([own[:, ::step] / np.maximum(own[:, ::step].std(axis=0), 1e-300) for own in sides])
    count, width = rows.shape
    hermite = {
        "skewness": (rows**3 - 3 * rows, 0.0, 6.0),
        # deviations of n trials make the mean of fourth powers 3 (n - 1) / (n + 1)
        "excess kurtosis": (rows**4 - 6 * rows**2 + 3, -6 / (count / len(sides) + 1), 24.0),
    }
    means, p = [], 1.0
    for name, (values, due, variance) in hermite.items():
        each = values.mean(axis=1)
        mean = float(each.mean()) - due
        error = max(float(each.std(ddof=1)), math.sqrt(variance / width)) / math.sqrt(count)
        means.append(f"{name} {mean:.2g}")
        p = min(p, 4 * float(student.sf(abs(mean) / error, count - 1)))
    wrong, causes = p < risk, CAUSES["normal"]
    return answer(
        "normal",
        wrong=wrong,
        measured=f"the noise is not normal ({', '.join(means)}, and 0 is expected)" if wrong else FITS["normal"],
        causes=causes,
        p_value=p,
        risk=risk,
        assumes=f"independent trials, many of them; {NO_BATCHES}",
    )


def _with_others(found: Diagnosis) -> Diagnosis:
    """Of a release that nothing else is known of, no list of causes is complete."""
    assumes = found.assumes if NO_BATCHES in found.assumes else f"{found.assumes}; {NO_BATCHES}"
    if not found.causes or OTHERS in found.causes:
        return dataclasses.replace(found, assumes=assumes)
    causes = (*found.causes, OTHERS)
    measured = found.says.removesuffix(sentence("", found.causes))
    return dataclasses.replace(found, assumes=assumes, causes=causes, says=sentence(measured, causes))
