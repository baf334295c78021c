"""Epsilons whose exponential overflows, laws with atoms and noise of .01 to .05, held against sums in logarithms.

Every delta is ``E_with (1 - e^(eps - L))^+``: terms between 0 and 1, whatever the loss. None of the code under attack
is used for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp

import guarantees
from attack.draws import even, one_of, sampling, spread, whole
from attack.numbers import Number
from attack.properties import faults

Given = dict[str, Any]
Truth = Callable[[float, str], float]
BELOW = np.array([1e-6, 0.01, 0.1, 1.0, 5.0, 30.0, 200.0])
"""Distances below the largest loss at which a law with atoms is judged."""
DEVIATIONS = np.array([-4.0, -1.0, 0.0, 2.0, 4.0])
"""Where a smooth loss is judged, in its own standard deviations."""
GRID = 200_001
FORWARD, BACKWARD = "with_given_without", "without_given_with"
LARGE = spread(300.0, 1e5)
LITTLE = spread(0.01, 0.05)


def _judged(claim: Any, epsilons: np.ndarray, truth: Truth, ways: tuple[str, ...] = (FORWARD, BACKWARD)) -> list[str]:
    """What a claim says that is not true, its epsilon at the middle delta included."""
    wrong = faults(claim)
    for way in ways:
        right = np.array([truth(float(epsilon), way) for epsilon in epsilons])
        said = np.asarray(claim.delta(epsilons, way))
        # a loss is itself rounded, and so are sums of it
        room = 1e-6 * right + 1e-11 + 1e-14 * epsilons + claim.error
        wrong += [
            f"delta({e:.9g}, {way}) is {a:.6g}, summed {b:.6g}"
            for e, a, b, r in zip(epsilons, said, right, room, strict=True)
            if not abs(a - b) <= r
        ]
    at = float(claim.epsilon(1e-3))
    most, least = (max(truth(min(at, 1e12) * near, way) for way in ways) for near in (1 - 1e-6, 1 + 1e-6))
    room = claim.error + 1e-9
    if np.isinf(at) and most < 1e-3 - room:
        wrong.append(f"epsilon(1e-3) is infinite, and delta falls to {most:.6g}")
    if 0 < at < np.inf and not least * (1 - 1e-4) - room <= 1e-3 <= most * (1 + 1e-4) + room:
        wrong.append(f"epsilon(1e-3) is {at:.9g}, where delta is {least:.6g} to {most:.6g}")
    return wrong


def _answers(given: Given, rng: np.random.Generator) -> tuple[int, list[str]]:
    """Randomised response with a leak, composed: the number of right answers is binomial."""
    epsilon, leak, times = given["epsilon"], given["delta"], given["times"]
    claim = guarantees.epsilon_delta(epsilon=epsilon, delta=leak).compose(times)
    right = np.arange(times + 1)
    losses = (2 * right - times) * epsilon
    chance = gammaln(times + 1) - gammaln(right + 1) - gammaln(times - right + 1)
    logs = chance - right * np.log1p(np.exp(-epsilon)) - (times - right) * (epsilon + np.log1p(np.exp(-epsilon)))

    def truth(e: float, way: str) -> float:
        kept = losses > e
        seen = math.exp(logsumexp(logs[kept] + np.log(-np.expm1(e - losses[kept])))) if kept.any() else 0.0
        all_kept = times * math.log1p(-leak)
        return math.exp(all_kept) * seen - math.expm1(all_kept)

    at = times * epsilon - BELOW[times * epsilon > BELOW]
    return 2 * len(at), _judged(claim, at, truth)


def _laplaces(given: Given, rng: np.random.Generator) -> tuple[int, list[str]]:
    """Each loss falls short of epsilon by nothing, or (half of the time) by an exponential of mean 2."""
    # the lattice of a longer sum takes a minute
    epsilon, times = given["epsilon"], given["times"] if given["epsilon"] < 2000 else 1
    claim = guarantees.laplace(epsilon=epsilon).compose(times)

    def truth(e: float, way: str) -> float:
        below = times * epsilon - e
        if below <= 0:
            return 0.0
        total = -math.expm1(-below) * 0.5**times
        for short in range(1, times + 1):
            share = math.comb(times, short) * 0.5**times

            def term(s: float, short: int = short) -> float:
                log_density = (short - 1) * math.log(s) - s / 2 - math.lgamma(short) - short * math.log(2)
                return -math.expm1(s - below) * math.exp(log_density)

            end = min(below, 400.0)
            total += share * quad(term, 0.0, end, limit=400, points=[max(0.0, end - 1), min(1.0, end)])[0]
        return total

    at = times * epsilon - BELOW[min(epsilon, 100.0) > BELOW]
    return 2 * len(at), _judged(claim, at, truth)


def _tables(given: Given, rng: np.random.Generator) -> tuple[int, list[str]]:
    """The lower convex hull of all rows in both directions, by every chord."""
    rows = given["rows"]
    epsilons = np.sort(given["epsilon"] + np.append(0.0, rng.exponential(given["width"], rows - 1)).cumsum())
    epsilons = np.ceil(epsilons * 1e6) / 1e6
    deltas = 10 ** (-rng.uniform(0.0, 6.0, rows))
    claim = guarantees.claim_from_table(list(zip(epsilons.tolist(), deltas.tolist(), strict=True)))
    left = -epsilons, 1 - np.exp(-epsilons) * (1 - deltas)
    x, y = np.concatenate([left[0], epsilons]), np.concatenate([left[1], deltas])

    def truth(e: float, way: str) -> float:
        before, after = x <= e, x > e
        lowest = float(y[before].min())
        a, b = x[before][:, None], x[after][None, :]
        if b.size == 0:
            return lowest
        share = np.expm1(a - e) / np.expm1(a - b) * np.exp(e - b)
        chords = y[before][:, None] * (1 - share) + y[after][None, :] * share
        return min(lowest, float(chords.min()))

    inside = rng.uniform(epsilons[0], epsilons[-1] + 3, 6)
    at = np.unique(np.concatenate([epsilons, inside, epsilons[:1] - 0.5]))
    return 2 * len(at), _judged(claim, at, truth)


def _expected(log_mass: np.ndarray, loss: np.ndarray) -> Callable[[float], float]:
    """``E (1 - e^(eps - L))^+`` over a grid of losses with the logarithms of their masses."""
    masses = np.exp(log_mass - logsumexp(log_mass))

    def delta(epsilon: float) -> float:
        return float(masses @ -np.expm1(np.minimum(epsilon - loss, 0.0)))

    return delta


def _normals(x: np.ndarray, means: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return logsumexp(-((x[:, None] - means) ** 2) / 2, axis=1, b=weights)


def _line(given: Given, rng: np.random.Generator) -> tuple[int, list[str]]:
    """A Gaussian step with little noise, sampled or not, of one record or several, under any relation."""
    group = given["group"] if given["relation"] == "add_remove" else 1
    mu, rate = 1 / given["noise_multiplier"], given["rate"]
    claim = guarantees.subsampled_gaussian(
        rate=rate, noise_multiplier=given["noise_multiplier"], relation=given["relation"], group=group
    )
    j = np.arange(group + 1)
    weights = np.array([math.comb(group, int(k)) * rate**k * (1 - rate) ** (group - k) for k in j])
    sides = (np.zeros(1), np.ones(1)), (j * mu, weights)
    if given["relation"] == "substitution":
        sides = (-j * mu, weights), (j * mu, weights)

    def deltas(first: Any, second: Any) -> tuple[Callable[[float], float], np.ndarray]:
        top = first[0][-1]
        x = np.linspace(top - 14, top + 14, GRID)
        mass = _normals(x, *first)
        loss = mass - _normals(x, *second)
        # the rest of the mass, where the record is not in the batch, has losses near 0
        log_total = np.log(x[1] - x[0]) - 0.5 * np.log(2 * np.pi)
        masses = np.exp(mass + log_total)
        return (lambda e: float(masses @ -np.expm1(np.minimum(e - loss, 0.0)))), loss

    forward, loss = deltas(sides[1], sides[0])
    spread_of = group * mu
    centre = float(np.interp(0.0, np.linspace(-14, 14, GRID), loss))
    at = centre + DEVIATIONS * spread_of
    at = at[(at > 30.0) & (at - 60 > group**2 * mu**2 / 2 - 14 * spread_of)]
    if group > 1:
        # fewer records lie outside the grid: only beyond what they reach
        reached = (group - 1) * mu * (group * mu) - (group * mu) ** 2 / 2
        at = at[at > reached + 9 * spread_of]
    if not len(at):
        return 0, faults(claim)
    wrong = faults(claim)
    ways = (FORWARD, BACKWARD) if given["relation"] == "substitution" or rate == 1 else (FORWARD,)
    for way in ways:
        for e in at.tolist():
            said, right = float(claim.delta(e, way)), forward(e)
            if not abs(said - right) <= 1e-6 * right + 1e-11:
                wrong.append(f"delta({e:.9g}, {way}) is {said:.6g}, summed {right:.6g}")
    if len(ways) == 1 and np.any(claim.delta(np.maximum(at, 700.0), BACKWARD) != 0):
        wrong.append("a loss far below zero where the record is not always there")
    return len(at) * len(ways), wrong


def _shuffled(given: Given, rng: np.random.Generator) -> tuple[int, list[str]]:
    """With so little noise the proven bound is the fixed order's, at an epsilon rounded down to six digits."""
    mu = 1 / given["noise_multiplier"]
    claim = guarantees.fixed_batch_upper(**given)
    x = np.linspace(mu - 14, mu + 14, GRID)
    delta = _expected(-((x - mu) ** 2) / 2, mu * x - mu**2 / 2)
    wrong = faults(claim)
    at = mu**2 / 2 + DEVIATIONS * mu
    at = at[at > 30.0]
    for e in at.tolist():
        low, high = delta(e) * (1 - 1e-6) - 1e-11, delta(e * (1 - 1.1e-5)) * (1 + 1e-6) + 1e-11
        for way in (FORWARD, BACKWARD):
            said = float(claim.delta(e, way))
            if not low <= said <= high:
                wrong.append(f"delta({e:.9g}, {way}) is {said:.6g}, summed {low:.6g} to {high:.6g}")
    at_delta = float(claim.epsilon(1e-5))
    if not delta(at_delta * (1 + 2e-5)) * (1 - 1e-6) <= 1e-5 <= delta(at_delta * (1 - 2e-5)) * (1 + 1e-6):
        wrong.append(f"epsilon(1e-5) is {at_delta:.9g}, where delta is {delta(at_delta):.6g}")
    return 2 * len(at) + 1, wrong


def _scales(given: Given, rng: np.random.Generator) -> tuple[int, list[str]]:
    """Noise of two sizes in many dimensions: the squared length is a gamma variable on either side."""
    n, s = given["dimension"], given["scale"]
    claim = guarantees.variance_pair(dimension=n, scale=s)
    half = n / 2
    # with the record x = |x|^2 / (2 s^2) is gamma of shape n/2; without it s^2 times that is
    x = half * np.exp(np.linspace(-1, 1, GRID) * min(14 / math.sqrt(half), 3.0))
    log_mass = half * np.log(x) - x
    away = {FORWARD: (x, x * s**2), BACKWARD: (x, x / s**2)}
    wrong, judged = faults(claim), 0
    for way, (own, other) in away.items():
        sign = 1 if way == FORWARD else -1
        loss = -sign * n * math.log(s) + other - own
        delta = _expected(log_mass, loss)
        mean = float(np.interp(half, x, loss))
        deviation = abs(s ** (2 * sign) - 1) * math.sqrt(half)
        for e in (mean + DEVIATIONS * deviation).tolist():
            if e < 600:
                continue
            judged += 1
            said, right = float(claim.delta(e, way)), delta(e)
            # losses on the grid lie some thousandths of a deviation apart
            if not abs(said - right) <= 1e-4 * (1 + 28 * deviation / GRID) * right + 1e-10:
                wrong.append(f"delta({e:.9g}, {way}) is {said:.6g}, summed {right:.6g}")
    return judged, wrong


LARGE_LOSSES = [
    Number(
        name="epsilon_delta",
        parameters={"epsilon": LARGE, "delta": one_of(0.0, 1e-6, 1e-4, 0.1), "times": whole(1, 40)},
        check=_answers,
    ),
    Number(name="laplace", parameters={"epsilon": LARGE, "times": one_of(1, 1, 1, 2, 3)}, check=_laplaces),
    Number(
        name="claim_from_table",
        parameters={"epsilon": LARGE, "rows": whole(1, 12), "width": spread(0.1, 100.0)},
        check=_tables,
    ),
    Number(
        name="subsampled_gaussian",
        parameters={
            "rate": sampling,
            "noise_multiplier": LITTLE,
            "relation": one_of("add_remove", "substitution"),
            "group": one_of(1, 1, 2, 3),
        },
        check=_line,
    ),
    Number(
        name="fixed_batch_upper", parameters={"rounds": whole(1, 10_000), "noise_multiplier": LITTLE}, check=_shuffled
    ),
    Number(
        name="variance_pair",
        parameters={"dimension": whole(1000, 1_000_000), "scale": lambda u: float(10 ** even(-1.0, 1.0)(u))},
        check=_scales,
    ),
]
