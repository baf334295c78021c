"""Releases of which no number carries noise alone: all variation between trials is taken for noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from audit.diagnosis.cause_sentences import OTHERS, answer, sentence
from audit.diagnosis.coordinate_names import one_place
from audit.diagnosis.laplace import SHARES, cost_in_all, l1_ratio, share_of_law
from audit.diagnosis.noise import Array, Noise
from audit.diagnosis.rank import ranked
from audit.diagnosis.scale import depends_on_record
from audit.record.diagnosis_answer import Diagnosis
from guarantees.numerics.distributions import student
from mechanisms.release import Layout

NO_BATCHES = "the release is what the data give plus noise, and no batches are drawn"
DISTINCT = 0.9
"""Share of different values below which a release is discrete, and its spread depends on its mean."""
LOOKS_LAPLACE = 0.01
"""Smallest p-value of Laplace noise at which the noise is assumed to be Laplace."""
MOST_POOLED = 256
"""Most numbers of a release whose moments are pooled."""
MOST_NUMBERS = 16
"""Most numbers of a release whose law is tested one by one."""
FITS = {"laplace": "a Laplace law fits the noise", "normal": "a normal law fits the noise"}
CAUSES = {"laplace": ("not_laplace", "cut", OTHERS), "normal": ("another_law", "cut", OTHERS)}


def diagnose_whole_release(
    first: Array,
    second: Array,
    *,
    law: str,
    epsilon: float | None,
    layout: Layout | None = None,
    broken: bool = False,
    risk: float,
) -> tuple[Diagnosis, ...]:
    """Whether the noise has one scale on both sides, the claimed law and, if Laplace, the required scale.

    The questions share ``risk`` evenly. The last is asked of releases of several numbers only where they have
    ``broken`` a Laplace claim: what right code releases may repeat a number. If the claim is a pure epsilon and names
    no law, it is asked of one number whose noise looks Laplace. Nothing is asked of discrete releases.
    """
    sides = [np.asarray(side, np.float64).reshape(len(side), -1) for side in (first, second)]
    if any(len(np.unique(column)) < DISTINCT * len(column) for side in sides for column in side.T):
        return ()
    without, with_record = (
        Noise(outputs=side, along=side[:, 0], beside=side, rest=side, rotated=False) for side in sides
    )
    one_number = sides[0].shape[1] == 1 and law != "normal" and epsilon is not None
    several = broken and law == "laplace" and epsilon is not None and 1 < sides[0].shape[1] <= MOST_NUMBERS
    share = risk / (1 + (law in SHARES) + (one_number or several))
    answers = [depends_on_record(without, with_record, risk=share)]
    centred = np.concatenate([without.centred, with_record.centred])
    if law in SHARES:
        answers.append(_follows_law(without, with_record, law, layout=layout, risk=share))
    if one_number and epsilon is not None and (law == "laplace" or share_of_law(centred, "laplace")[1] > LOOKS_LAPLACE):
        answers.append(l1_ratio(without, with_record, None, epsilon=epsilon, risk=share))
    if several and epsilon is not None:
        in_all = cost_in_all(without, with_record, epsilon=epsilon, risk=share)
        answers += [] if in_all is None else [in_all]
    return ranked([_with_others(found) for found in answers])


def _follows_law(without: Noise, with_record: Noise, law: str, *, layout: Layout | None, risk: float) -> Diagnosis:
    """Whether the noise follows the law; for a normal law by two questions, half of the risk each."""
    sides = (without.centred, with_record.centred)
    if law != "normal":
        return _share_of_another_law(np.concatenate(sides), law, layout=layout, risk=risk)
    by_share, by_moments = (
        _share_of_another_law(np.concatenate(sides), law, layout=layout, risk=risk / 2),
        _other_moments(sides, risk=risk / 2),
    )
    given = by_moments if by_moments.wrong and not by_share.wrong else by_share
    return dataclasses.replace(given, p_value=min(1.0, 2 * (given.p_value or 0.0)), risk=risk)


def _share_of_another_law(centred: Array, law: str, *, layout: Layout | None, risk: float) -> Diagnosis:
    """Whether the number whose noise fits the law worst has another law; it pays for all that are tested."""
    columns = centred.T[:MOST_NUMBERS]
    found = [share_of_law(column, law) for column in columns]
    worst = min(range(len(found)), key=lambda place: found[place][1])
    share, p = math.sqrt(found[worst][0]), min(1.0, len(found) * found[worst][1])
    expected = math.sqrt(SHARES[law][0])
    name = {"laplace": "Laplace", "normal": "normal"}[law]
    name_it = len(found) > 1 or (layout is not None and layout.entries > 1)
    where = f" of {one_place(worst, layout)}" if name_it else ""
    measured = FITS[law]
    if p < risk:
        measured = (
            f"the noise{where} is not {name} (its mean absolute value is {share:.3g} of its root mean square, and "
            f"{expected:.3g} is expected)"
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
    """Whether pooled skewness or kurtosis are not those of normal noise, half of the risk each.

    With ``He3`` and ``He4`` the Hermite polynomials, their means over a trial's coordinates, each over its own
    deviation, have mean zero over the trials, however the coordinates are correlated.
    """
    step = -(-sides[0].shape[1] // MOST_POOLED)
    rows = np.concatenate([side[:, ::step] / np.maximum(side[:, ::step].std(axis=0), 1e-300) for side in sides])
    count, width = rows.shape
    hermite = {
        "skewness": (rows**3 - 3 * rows, 0.0, 6.0),
        # deviations of n trials make the mean of fourth powers 3 (n - 1) / (n + 1)
        "excess kurtosis": (rows**4 - 6 * rows**2 + 3, -6 / (count / len(sides) + 1), 24.0),
    }
    means, p = [], 1.0
    for name, (values, expected, variance) in hermite.items():
        by_trial = values.mean(axis=1)
        mean = float(by_trial.mean()) - expected
        error = max(float(by_trial.std(ddof=1)), math.sqrt(variance / width)) / math.sqrt(count)
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
    """Add "others" to the causes: little is known of such a release, so that no list of causes is complete."""
    assumes = found.assumes if NO_BATCHES in found.assumes else f"{found.assumes}; {NO_BATCHES}"
    if not found.causes or OTHERS in found.causes:
        return dataclasses.replace(found, assumes=assumes)
    causes = (*found.causes, OTHERS)
    measured = found.says.removesuffix(sentence("", found.causes))
    return dataclasses.replace(found, assumes=assumes, causes=causes, says=sentence(measured, causes))
