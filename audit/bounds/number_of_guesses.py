"""Choosing how many coins to guess from coins that are never guessed: revealed from the middle scores outwards."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betainc, expit, gammaln, ndtri

from audit.bounds.counted_guesses import Guesses
from audit.bounds.ranking import drawn_places
from guarantees.numerics.array import Array
from guarantees.numerics.ranks import ranks_of
from guarantees.numerics.search import halved

SAMPLE = 0.05
"""Share of all coins, drawn at random, that is revealed first: only these show what extreme scores are worth."""
FIRST = 0.45
"""Share of all other coins, on each side, that the first look at the middle leaves hidden."""
SHRINK = 0.7
"""Largest share of the hidden coins that one look leaves hidden: the fit gains data before it is trusted."""
WIDE = 1.4
"""A number of guesses is final once the hidden coins are at most this many times as many."""
FEWEST = 8
"""Number of hidden coins on a side at which no more are revealed."""
CANDIDATES = 24
KNOTS = (0.67, 1.28, 1.88, 2.5)
"""Normal quantiles of ranks, on either side, at which the fitted log odds may change their slope."""
LEVEL, SLOPE, BEND = 0.03, 1e3, 0.1
"""Prior variances: fair coins have level 0, the slope is finite where coins are told perfectly, bends must be shown."""
BOTH = 1.25
"""How many times more one-sided guesses must promise than two-sided: by chance one side often seems better."""
OPTIMISM = 0.5
"""Deviations by which the fitted slope is raised."""
BINS = 400
STEPS = 20
"""Most Newton steps of a fit."""
HALVINGS = 17


def sampled_canaries(canaries: int, *, seed: int) -> Array:
    """Mask of the canaries whose coins are revealed first.

    Drawn among canaries, not among places of their scores: places read the training's output, and a training that knows
    the seed could put what delta exposes at other places and have all coins guessed, not those that the bound counts.
    """
    return drawn_places(canaries, int(SAMPLE * canaries), seed=seed)


def guess_extremes(scores: Array, coins: Array, *, sampled: Array, delta: float, risk: float) -> Guesses:
    """Guess the coins of the most extreme scores, as many as the revealed coins recommend.

    Scores come from the highest to the lowest, with their coins and whether they are ``sampled_canaries``. The sampled
    coins are revealed, then the others from the middle outwards; log odds, bent lines in the normal quantiles of ranks,
    are fitted to them and foretell how often the hidden ones would be guessed rightly, and with that the bound of every
    number of guesses. Once the best is near all that is hidden it is taken. Choosing reads scores and revealed coins
    only. Where the fit is poor, fewer or more are guessed than would be best: that costs tightness, never validity.
    """
    places, rest = _normal_ranks(scores), ~sampled
    outer, later = places[rest], coins[rest]
    n = len(later)
    exposed, split = n * delta, risk_split(n * delta)
    hidden = max(1, math.ceil(FIRST * n))
    while True:
        shown = slice(hidden, n - hidden)
        fitted = _fit(np.concatenate([places[sampled], outer[shown]]), np.concatenate([coins[sampled], later[shown]]))
        odds = _bent(outer) @ fitted
        right_in, right_out = np.cumsum(expit(odds[:hidden])), np.cumsum(expit(-odds[::-1][:hidden]))
        k_in, k_out = best_guesses(right_in, right_out, exposed=exposed, risk=risk, split=split)
        most = max(k_in, k_out)
        if WIDE * most >= hidden or hidden <= FEWEST:
            break
        hidden = max(FEWEST, min(hidden - 1, max(math.ceil(WIDE * most), int(SHRINK * hidden))))
    k_out = min(k_out, n - k_in)
    return Guesses(
        guessed_in=k_in,
        guessed_out=k_out,
        right_in=int(later[:k_in].sum()),
        right_out=int((~later[n - k_out :]).sum()),
        revealed=int(sampled.sum()) + max(0, n - 2 * hidden),
        sampled=int(sampled.sum()),
        canaries=len(scores),
        at_delta=delta,
        risk=risk,
        split=split,
    )


def risk_split(exposed: float) -> float:
    """Share of the risk for chance: all of it if delta exposes nothing, less the more it exposes.

    For Gaussian scores (mu 1/4 to 4) of 10^4 to 10^6 canaries within 3% of the best split's bound up to 1 exposed coin,
    within 10% up to 100. Any split is valid that is fixed beforehand.
    """
    return 1 / (1 + 0.6 * exposed**0.7)


def _normal_ranks(scores: Array) -> Array:
    """Normal quantiles of ranks, tied scores sharing theirs: a scale that no monotone change of scores moves."""
    return ndtri((ranks_of(scores) - 0.5) / len(scores))


def _bent(places: Array) -> Array:
    """Columns of a line that may bend at the knots on either side."""
    bends = [np.maximum(side * places - knot, 0.0) * side for side in (1, -1) for knot in KNOTS]
    return np.stack([np.ones_like(places), places, *bends], axis=-1)


def _fit(places: Array, coins: Array) -> Array:
    """Coefficients of the bent log odds through revealed coins; the slope somewhat above its estimate.

    Too small a slope would settle for too many guesses at once; too large a one reveals more coins and is corrected.
    """
    if not len(places):
        return np.eye(2 + 2 * len(KNOTS))[1]
    # Coins in one bin are as good as one: a fit costs the same for any number of them.
    bins = np.clip(BINS / 2 + places * (BINS / 10), 0, BINS).astype(int)
    count, heads, middle = (np.bincount(bins, weight) for weight in (None, coins, places))
    kept = count > 0
    count, heads, middle = count[kept], heads[kept], middle[kept] / count[kept]
    columns = _bent(middle)
    ridge = 1 / np.array([LEVEL, SLOPE] + [BEND] * (2 * len(KNOTS)))
    found, hessian = np.zeros(len(ridge)), np.diag(ridge)
    for _ in range(STEPS):
        chance = expit(columns @ found)
        hessian = (columns.T * (count * chance * (1 - chance))) @ columns + np.diag(ridge)
        step = np.linalg.solve(hessian, columns.T @ (heads - count * chance) - ridge * found)
        found = found + step
        if np.abs(step).max() < 1e-6:
            break
    found[1] += OPTIMISM * math.sqrt(np.linalg.inv(hessian)[1, 1])
    return found


def best_guesses(right_in: Array, right_out: Array, *, exposed: float, risk: float, split: float) -> tuple[int, int]:
    """Numbers of guesses 'in' and 'out', two-sided or one-sided, with the largest predicted bound.

    The most guesses where none would prove anything.
    """
    ks = np.unique(np.geomspace(min(FEWEST, len(right_in)), len(right_in), CANDIDATES).astype(int))[::-1]
    top, bottom = right_in[ks - 1], right_out[ks - 1]
    right, guesses = np.concatenate([top + bottom, top, bottom]), np.concatenate([2.0 * ks, ks, ks])
    bounds = foretold(right, guesses, exposed=exposed, risk=risk, split=split).reshape(3, len(ks))
    bounds[0] *= BOTH
    kind, place = divmod(int(np.argmax(bounds)), len(ks))
    k = int(ks[place])
    return ((k, k), (k, 0), (0, k))[kind]


def foretold(right: Array, guesses: Array, *, exposed: float, risk: float, split: float) -> Array:
    """Predicted capped bounds for this many right guesses (any real numbers), close enough to compare them."""
    right = np.clip(right, 1e-3, guesses)
    choose = gammaln(guesses + 1) - gammaln(right + 1) - gammaln(guesses - right + 1)

    def kept(epsilon: Array) -> Array:
        chance, other = expit(epsilon), expit(-epsilon)
        with np.errstate(divide="ignore"):
            log_tail = np.log(betainc(right, guesses - right + 1, chance))
        log_mass = choose + right * np.log(chance) + (guesses - right) * np.log(other)
        falling = np.exp(epsilon) * (guesses - right) / (right + 1)
        # far in the tail the ratio of tail to mass is that of a geometric sum
        far = np.where(falling < 1, -np.log1p(-np.minimum(falling, 1 - 1e-12)), np.inf)
        log_ratio = np.where(log_tail > -600, log_tail - log_mass, far)
        refuted = log_tail <= math.log(split * risk)
        if exposed > 0:
            refuted &= log_ratio + np.log(exposed / right) <= math.log((1 - split) * risk)
        return ~refuted

    return halved(kept, np.zeros(len(right)), np.full(len(right), 40.0), rounds=HALVINGS)[0]
