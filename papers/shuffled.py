"""001: closed-form trade-off bounds for shuffled DP-SGD [vandijk2026]."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

import guarantees
from guarantees import shuffling
from guarantees.numerics.root import root
from guarantees.shuffling.isolated import IsolatedShuffleLaw
from papers.item import Aside, Item

TABLE_1 = {
    0.5: ("1.57e9", "1.57e9", "7.87e9"),
    0.75: ("3.72e6", "3.72e6", "2.79e7"),
    1.0: ("1.14e6", "1.14e6", "1.14e7"),
    1.5: ("3.23e6", "3.23e6", "4.85e7"),
    2.0: ("1.49e7", "1.49e7", "2.98e8"),
}
"""Noise multiplier: rounds by the closed form, rounds by all six terms, smallest dataset."""
MOST_NOISE = 0.1


def rounds(delta: float, noise: float, exact: bool | str) -> float:
    """Rounds from which Theorem 4.1 (or the exact curve) gives at most ``delta``."""
    return float(guarantees.rounds_needed(delta=delta, noise_multiplier=noise, exact=exact))  # type: ignore[arg-type]


def largest_noise_multiplier(delta: float) -> float:
    """Largest sigma at which (3) implies (4): ``delta = (2/3)(1/2 - Phi(-(e^(1/s^2)-1)/2))``. [vandijk2026, 4.1]"""
    return root(lambda s: largest_delta(s) - delta, 0.2, 1e4, absolute=1e-13)


def largest_delta(noise: float) -> float:
    """Largest delta at which (3) implies (4) for this sigma. [vandijk2026, section 4.1]"""
    return float(2 / 3 * (0.5 - ndtr(-np.expm1(1 / noise**2) / 2)))


def coefficient_ratio(noise: float) -> float:
    """Symmetrised Poisson coefficient over shuffling's, which falls from sqrt(2) to 1: figure 2, right."""
    poisson = shuffling.poisson_mu(rounds=2, noise_multiplier=noise, symmetrised=True) * math.sqrt(2)
    return float(poisson / shuffling.shuffle_mu(rounds=2, noise_multiplier=noise))


def coefficient_ratio_midpoint() -> float:
    """Noise multiplier at which ``coefficient_ratio`` is halfway, ``(1 + sqrt 2)/2``."""
    middle = (1 + math.sqrt(2)) / 2
    return root(lambda noise: coefficient_ratio(noise) - middle, 0.5, 5.0, absolute=1e-13)


def items() -> Iterator[Item]:
    """Every table, printed number and figure of the paper."""
    for noise, (closed, full, records) in TABLE_1.items():
        where = f"Table 1, sigma {noise:g}"
        yield Item(
            where=where,
            section="6.1",
            what="rounds, closed form",
            printed=closed,
            ours=functools.partial(rounds, 0.01, noise, False),
            why="3.715e6, which rounds down; all terms give 3.716e6" if noise == 0.75 else "",
        )
        yield Item(
            where=where,
            section="6.1",
            what="rounds, all terms",
            printed=full,
            ours=functools.partial(rounds, 0.01, noise, True),
        )
        yield Item(
            where=where,
            section="6.1",
            what="smallest N with sigma M / N at most .1",
            printed=records,
            ours=lambda noise=noise: noise * rounds(0.01, noise, True) / MOST_NOISE,
        )
    yield Item(
        where="Caption of Table 1",
        section="6.1",
        what="closed form over all terms, less 1, the largest of the table",
        printed="<0.1%",
        ours=lambda: max(_gap(noise) for noise in TABLE_1),
    )
    yield Item(
        where="Text on Table 1, sigma 1",
        section="6.1",
        what="closed form over all terms, less 1",
        printed="<0.1%",
        ours=functools.partial(_gap, 1.0),
    )
    yield Item(
        where="Figures 1 and 3, their minimum",
        section="E",
        what="sigma that needs the fewest rounds, delta .01",
        printed="≈1",
        ours=_cheapest_noise,
    )
    yield from _epochs()
    yield from _remarks()
    for figure, section in (("1", "4.1"), ("3", "E")):
        yield Item(where=f"Figure {figure}", section=section, what="the curves", why="it prints no values")


def _epochs() -> Iterator[Item]:
    scaled = "square-root scaling, "
    for where, delta, printed, records in (
        ("100 epochs", 1e-4, "≈1.14e10", "≈1.14e11"),
        ("4 epochs", 1 / 400, "≈1.82e7", "≈1.82e8"),
        (f"{scaled}100 epochs", 1e-3, "≈1.14e8", "≈1.14e9"),
        (f"{scaled}10,000 epochs", 1e-4, "≈1e10", "≈1e11"),
    ):
        count = functools.partial(rounds, delta, 1.0, True)
        yield Item(where=where, section="6.2", what=f"rounds at delta {delta:g}, sigma 1", printed=printed, ours=count)
        yield Item(
            where=where, section="6.2", what="records", printed=records, ours=lambda count=count: count() / MOST_NOISE
        )
    yield Item(
        where="The rule of thumb",
        section="6.2",
        what="delta^2 M at sigma 1",
        printed="≈114",
        ours=lambda: 1e-8 * rounds(1e-4, 1.0, True),
    )


def _remarks() -> Iterator[Item]:
    yield Item(
        where="Interpretation, delta .01",
        section="4.1",
        what="largest sigma",
        printed="3.71",
        ours=lambda: largest_noise_multiplier(0.01),
    )
    yield Item(
        where="Interpretation, sigma 1",
        section="4.1",
        what="largest delta",
        printed="0.20",
        ours=lambda: largest_delta(1.0),
    )
    yield Item(
        where="Figure 2 right",
        section="5",
        what="sigma at which the ratio of the coefficients is midway",
        printed="≈1.668",
        ours=coefficient_ratio_midpoint,
    )
    yield Item(
        where="Figure 2 right",
        section="5",
        what="the ratio there",
        printed="≈1.207",
        ours=lambda: coefficient_ratio(coefficient_ratio_midpoint()),
    )
    for noise, limit in ((0.1, "√2"), (1000.0, "1")):
        yield Item(
            where=f"Figure 2 right, its {'low' if noise < 1 else 'high'}-noise limit",
            section="5",
            what=f"the ratio of the coefficients at sigma {noise:g}",
            printed=limit,
            tolerance=1e-3,
            ours=functools.partial(coefficient_ratio, noise),
        )
    yield Item(
        where="Shuffling a factor closer than Poisson, low noise",
        section="5",
        what="TV of Poisson over TV of shuffling, sigma .5, M 10,000, 10 epochs",
        printed="√2",
        tolerance=0.1,
        ours=_ratio_of_truths,
        why="it compares a one-sided coefficient with a symmetrised one; the samplers themselves leak the same",
        slow=True,
    )


def asides() -> Iterator[Aside]:
    """Numbers of our own: what the pair needs, and how near its limits are."""
    for noise in TABLE_1:
        yield Aside(
            where=f"Table 1, sigma {noise:g}",
            what="rounds after which the exact curve of the 0/1 pair has TV at most .01",
            ours=functools.partial(rounds, 0.01, noise, "truth"),
            slow=noise < 1,
        )
    yield Aside(
        where="Theorem 5.1, sigma 1.5, n 400",
        what="error of Phi(p_n(x)) over that of Phi(x), largest for |x| <= 2",
        ours=_refinement,
    )
    yield Aside(
        where="Theorem 5.2, its remainder, sigma 1, M 10,000",
        what="largest f(a) - G_mu(a) over s_M (delta_M and gamma_M, which come on top of s_M, are not explicit)",
        ours=_remainder,
    )
    yield Aside(
        where="Theorem 5.2",
        what="TV at sigma 1, M 10,000 over what the limit's mu gives",
        ours=_limit_over_truth,
    )
    yield Aside(
        where="Corollary 5.3",
        what="separation after 4 epochs over that after 1, sigma 1, M 10,000",
        ours=lambda: _separation(4) / _separation(1),
    )


def _gap(noise: float) -> float:
    return abs(rounds(0.01, noise, False) / rounds(0.01, noise, True) - 1)


def _separation(epochs: int) -> float:
    return guarantees.isolated_shuffle(rounds=10_000, noise_multiplier=1.0, epochs=epochs).separation


def _limit_over_truth() -> float:
    mu = shuffling.shuffle_mu(rounds=10_000, noise_multiplier=1.0)
    truth = guarantees.isolated_shuffle(rounds=10_000, noise_multiplier=1.0).total_variation
    return truth / guarantees.gaussian(mu=mu).total_variation


def _cheapest_noise() -> float:
    found: Any = minimize_scalar(lambda noise: rounds(0.01, noise, False), bounds=(0.5, 2.0), method="bounded")
    return float(found.x)


def _refinement() -> float:
    count, noise, x = 400, 1.5, np.linspace(-2, 2, 41)
    deviation = math.sqrt(math.expm1(1 / noise**2) / count)
    exact = IsolatedShuffleLaw(count, noise).window(1.0).below(1 + x * deviation)[0]
    refined = shuffling.edgeworth_cdf(x, rounds=count, noise_multiplier=noise)
    return float(np.abs(refined - exact).max() / np.abs(ndtr(x) - exact).max())


def _remainder() -> float:
    count, alpha = 10_000, np.linspace(0, 1, 201)
    truth = guarantees.isolated_shuffle(rounds=count, noise_multiplier=1.0)
    limit = guarantees.gaussian(mu=shuffling.shuffle_mu(rounds=count, noise_multiplier=1.0))
    bound = math.exp(2) / (math.sqrt(8 * math.pi * math.e) * (count - 1))
    return float(np.max(truth.beta(alpha) - limit.beta(alpha)) / bound)


def _ratio_of_truths() -> float:
    shuffled = guarantees.isolated_shuffle(rounds=10_000, noise_multiplier=0.5, epochs=10).total_variation
    poisson = guarantees.poisson_training(
        rate=1e-4, noise_multiplier=0.5, steps=100_000, accountant="certified"
    ).total_variation
    return poisson / shuffled
