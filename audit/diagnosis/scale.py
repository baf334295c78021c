"""How large the noise is, what it was divided by, and whether that reads the dataset or the batch."""

from __future__ import annotations

import math

import numpy as np
from scipy import special, stats

from audit.diagnosis.noise import Array, Noise
from audit.record.answer import Diagnosis


def noise_scale(noise: Noise, deviation: float, *, side: str, risk: float) -> Diagnosis:
    """Standard deviation of the noise, and the divisor that would explain it.

    ``sum y^2 / deviation^2`` is chi-square with one degree for each coordinate.
    """
    count, total = noise.rest.size, float(np.sum(noise.rest**2))
    low, high = (math.sqrt(total / stats.chi2.isf(q, count)) for q in (risk / 2, 1 - risk / 2))
    found, x = math.sqrt(total / count), total / deviation**2 if deviation > 0 else math.inf
    p = min(1.0, 2 * min(float(stats.chi2.cdf(x, count)), float(stats.chi2.sf(x, count))))
    divisor = "no noise at all" if found == 0 else f"as if divided by {deviation / found:.4g}"
    if found > 0:
        divisor += f" ({deviation / high:.4g} to {deviation / low:.4g})"
    return Diagnosis(
        question=f"noise scale, side '{side}'",
        wrong=p < risk,
        says=f"side '{side}': noise of deviation {found:.4g} ({low:.4g} to {high:.4g}) where {deviation:.4g} is due: "
        f"{divisor}.",
        p_value=p,
        risk=risk,
        assumes="independent normal noise of one scale; an output is one noisy sum, not rescaled by intent",
        estimate=found,
        interval=(low, high),
    )


def depends_on_record(without: Noise, with_record: Noise, *, risk: float) -> Diagnosis:
    """Whether the noise has another scale with the record: trials' sizes compared by their ranks. [mann1947]

    The unit is the trial, whose scale may vary with its batch on either side.
    """
    first, second = without.sizes, with_record.sizes
    p = float(stats.mannwhitneyu(first, second).pvalue) if np.ptp(np.append(first, second)) > 0 else 1.0
    ratio, (low, high) = _size_ratio(first, second, risk)
    wrong = p < risk
    return Diagnosis(
        question="does the noise depend on the record?",
        wrong=wrong,
        says=f"with the record the noise is {ratio:.4g} times ({low:.4g} to {high:.4g}) as large"
        + (": a divisor or bound that reads the dataset." if wrong else "."),
        p_value=p,
        risk=risk,
        assumes="independent trials; the interval also that means of their logarithmic sizes are normal",
        estimate=ratio,
        interval=(low, high),
    )


def _size_ratio(first: Array, second: Array, risk: float) -> tuple[float, tuple[float, float]]:
    """Geometric mean size of trials with the record over that without, and Welch's interval; silent trials apart."""
    logs = [np.log(sizes[sizes > 0]) for sizes in (first, second)]
    if min(map(len, logs)) < 2:
        ratio = 1.0 if not len(logs[0]) and not len(logs[1]) else math.inf if len(logs[1]) else 0.0
        return ratio, (0.0, math.inf)
    found = stats.ttest_ind(logs[1], logs[0], equal_var=False).confidence_interval(1 - risk)
    return math.exp(float(logs[1].mean() - logs[0].mean())), (math.exp(float(found.low)), math.exp(float(found.high)))


def depends_on_batch(noise: Noise, *, risk: float) -> Diagnosis:
    """Whether the noise changes scale from trial to trial: Bartlett's test of equal variances. [bartlett1937]"""
    trials, width = noise.rest.shape
    squares = noise.sizes**2
    if (squares == 0).any():
        p = 0.0 if (squares > 0).any() else 1.0
    else:
        statistic = trials * width * math.log(squares.mean()) - width * float(np.sum(np.log(squares)))
        correction = 1 + (trials / width - 1 / (trials * width)) / (3 * (trials - 1))
        p = float(stats.chi2.sf(statistic / correction, trials - 1))
    wrong = p < risk
    return Diagnosis(
        question="does the noise change from trial to trial?",
        wrong=wrong,
        says="the noise's scale varies between trials: a divisor that reads the batch."
        if wrong
        else "one scale fits every trial.",
        p_value=p,
        risk=risk,
        assumes="independent normal noise within a trial; the law of the statistic is approximate below 5 coordinates",
    )


def divisors_found(without: Noise, with_record: Noise, deviation: float, *, risk: float) -> Diagnosis:
    """Which divisors explain the noise of single trials: an interval for each, all of them together at ``risk``.

    ``width size^2 / (deviation / divisor)^2`` is chi-square; wrong where two intervals have nothing in common. The
    whole number in an interval is named where it is the only one.
    """
    sizes, width = np.concatenate([without.sizes, with_record.sizes]), without.rest.shape[1]
    sizes = sizes[sizes > 0]
    question, assumes = "do trials have different divisors?", "independent normal noise within a trial"
    if len(sizes) < 2:
        says = "no noise in any trial, so no divisor."
        return Diagnosis(question=question, wrong=False, says=says, p_value=1.0, risk=risk, assumes=assumes)
    low, high = _reach(width, risk / (2 * len(sizes)))
    found = deviation / sizes
    wrong = bool(found.max() * low > found.min() * high)
    span = (float(found.min() * low), float(found.max() * high))
    says = f"divisors between {span[0]:.4g} and {span[1]:.4g} explain every trial's noise"
    if wrong:
        says = f"divisors differ between trials ({found.min():.4g} to {found.max():.4g})" + _whole(found, low, high)
    return Diagnosis(
        question=question,
        wrong=wrong,
        says=says + ".",
        p_value=_spread_p_value(float(found.max() / found.min()), width, len(sizes)),
        risk=risk,
        assumes=assumes,
        estimate=float(np.median(found)),
        interval=span,
    )


def _reach(width: int, tail: float) -> tuple[float, float]:
    """Factors between which a trial's divisor lies, beside the one found."""
    return math.sqrt(stats.chi2.ppf(tail, width) / width), math.sqrt(stats.chi2.isf(tail, width) / width)


def _whole(found: Array, low: float, high: float) -> str:
    """Whole divisors that single trials leave no choice about."""
    first, last = np.ceil(found * low), np.floor(found * high)
    alone = first[(first == last) & (first >= 1)].astype(int)
    if not len(alone):
        return ""
    numbers, counts = np.unique(alone, return_counts=True)
    listed = ", ".join(f"{number} ({count} trials)" for number, count in zip(numbers[:8], counts[:8], strict=True))
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return f"; if they are whole numbers: {listed}{more}, {len(found) - len(alone)} of {len(found)} trials undecided"


def _spread_p_value(ratio: float, width: int, trials: int) -> float:
    """Smallest risk at which the largest and the smallest interval part, by bisection on its logarithm."""
    small, large = -300.0, 0.0

    def part(power: float) -> bool:
        low, high = _reach(width, 10**power / (2 * trials))
        return ratio * low > high

    if not part(large):
        return 1.0
    for _ in range(50):
        middle = (small + large) / 2
        small, large = (small, middle) if part(middle) else (middle, large)
    return 10**large


def record_moves(
    without: Noise, with_record: Noise, *, deviation: float, rate: float, most: float, risk: float
) -> Diagnosis:
    """The clipping bound found: how far the record moves the sum, in units that undo the divisor.

    A trial's output is scaled by (noise due / noise found in it), over the mean of that factor for normal noise,
    ``sqrt(width / 2) Gamma((width - 1) / 2) / Gamma(width / 2)``; the difference of the means over ``rate`` is compared
    with ``most`` by Welch's t test with the smaller degrees of freedom, both ways.
    """
    width = without.rest.shape[1]
    bias = math.sqrt(width / 2) * math.exp(special.gammaln((width - 1) / 2) - special.gammaln(width / 2))

    def scaled(noise: Noise) -> Array:
        return noise.along * np.where(noise.sizes > 0, deviation / np.maximum(noise.sizes, 1e-300) / bias, 1.0) / rate

    first, second = scaled(without), scaled(with_record)
    shift = float(second.mean() - first.mean())
    error = max(math.sqrt(float(first.var(ddof=1)) / len(first) + float(second.var(ddof=1)) / len(second)), 1e-300)
    degrees = min(len(first), len(second)) - 1
    reach = float(stats.t.isf(risk / 2, degrees)) * error
    p = float(stats.t.sf((abs(shift) - most) / error, degrees) + stats.t.sf((abs(shift) + most) / error, degrees))
    wrong = p < risk
    return Diagnosis(
        question="does the record move the sum by more than the clipping norm?",
        wrong=wrong,
        says=f"clipping bound found: the record moves the sum by {shift:.4g} ({shift - reach:.4g} to "
        f"{shift + reach:.4g}) where {most:.4g} is the most" + (": clipping does not bound it." if wrong else "."),
        p_value=p,
        risk=risk,
        assumes=f"records are sampled at rate {rate:g}; the noise is right up to a divisor; means are normal",
        estimate=shift,
        interval=(shift - reach, shift + reach),
    )
