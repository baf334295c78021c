"""Best adaptive queries against a shuffled epoch of a few records: ``python -m attack.queries``, from ``tests``.

Searches that are independent of ``guarantees``. ``alike``: all other records get one query, anywhere in the plane (the
three means of a slot span no more; ``plane``) or at one of nine ``values`` of the line, by dynamic programming over the
running sum. ``apart``: three or four slots, the other records queried apart, by brute force over all later queries for
every output (``apart 6``: in six processes).
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import sys
import time

import numpy as np
from scipy import fft
from scipy.stats import norm

Z, W = "with_given_without", "without_given_with"
ENDS = ((-1.0, 0.0), (1.0, 0.0))
"""The queries of the line: against the differing record's, and like it."""
ROUND = tuple((math.cos(angle), math.sin(angle)) for angle in np.linspace(0, np.pi, 13)[1:-1])
"""Queries beside the line, of full length."""
INSIDE = ((0.0, 0.0), (0.5, 0.0), (-0.5, 0.0), (0.0, 0.5))
SETTINGS = ((1.0, 0.0), (1.0, 0.5), (1.0, 1.5), (1.5, 0.5), (2.0, 0.3), (3.0, 0.2), (5.0, 0.1))
"""Noise multiplier and epsilon; smaller noise needs a longer lattice."""


def contribution(sigma, epsilon, kind, place, points):
    """Values of ``c_v`` on a grid of outputs of another record's slot, with their probabilities."""
    z = np.linspace(-7.5, 7.5, points)
    weights = norm.pdf(z) / norm.pdf(z).sum()
    first, second = place[0] + sigma * z[:, None], place[1] + sigma * z[None, :]
    masses = np.outer(weights, weights)
    if place[1] == 0:
        # the second coordinate tells nothing
        second, masses = np.zeros((1, 1)), weights[:, None]
    own = (first - place[0]) ** 2 + (second - place[1]) ** 2
    with_record, without = (np.exp((own - (first - m) ** 2 - second**2) / (2 * sigma**2)) for m in (1.0, 0.0))
    top, bottom = (with_record, without) if kind == Z else (without, with_record)
    return (top - math.exp(epsilon) * bottom).ravel(), masses.ravel()


def alike(*, rounds, sigma, epsilon, kind, places=ENDS, states=2**17, points=601):
    """``V_0(0)/T`` of docs/adaptive-shuffling.md for queries from ``places``.

    Good to 1e-4, at noise 1 and epsilon 1.5 to 5e-4: there a lattice of 2^15 states shows gains that are not there.
    """
    growth = math.exp(epsilon)
    margin = growth * (6 * math.sqrt(math.expm1(1 / sigma**2) * rounds) + math.exp((4 * sigma + 0.5) / sigma**2))
    high = margin + rounds * (growth - 1)
    sums = np.linspace(-high, high, states)
    step = sums[1] - sums[0]
    laws, beyond = [], []
    for place in places:
        value, masses = contribution(sigma, epsilon, kind, place, points)
        at = np.clip(value / step, 1 - states, states - 1.000001)
        below = np.floor(at).astype(int)
        law = np.bincount(below + states - 1, masses * (1 - at + below), 2 * states)
        law += np.bincount(below + states, masses * (at - below), 2 * states)
        laws.append(np.conj(np.asarray(fft.rfft(law, 4 * states))))
        beyond.append(masses @ np.maximum(value - step * (states - 1), 0.0))
    worth = np.maximum(sums, 0.0)
    for _ in range(rounds):
        ahead = np.concatenate([np.full(states - 1, worth[0]), worth, worth[-1] + step * np.arange(1, states + 1)])
        spectrum = np.asarray(fft.rfft(ahead, 4 * states))
        found = [np.asarray(fft.irfft(spectrum * law, 4 * states))[:states] for law in laws]
        worth = np.max([one + more for one, more in zip(found, beyond, strict=True)], axis=0)
    return float(np.interp(0.0, sums, worth)) / rounds


def apart(*, sigma, epsilon, kind, rounds=3, values=(-1.0, 1.0), own=(1.0,), points=101, reach=6.5, same=False):
    """Delta of a few slots for the best first query and, for every output, the best later ones.

    The differing record is queried at a value of ``own``, the others at any of ``values`` (``same``: all at one).
    Values are numbers, or pairs: then outputs lie in a plane.
    """
    axis = np.linspace(-1 - reach * sigma, 1 + reach * sigma, points)
    flat = np.ndim(values[0]) == 0
    y = axis[:, None] if flat else np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

    def density(place):
        return norm.pdf(y, np.atleast_1d(place), sigma).prod(axis=1)

    zero, grow = density(np.zeros(y.shape[1])), math.exp(epsilon)
    tops = [density(u) - grow * zero if kind == Z else zero - grow * density(u) for u in own]
    known = [density(v) for v in values]
    choices = list(itertools.product(range(len(values)), repeat=rounds - 1))
    queries = [
        np.stack([top, *(known[i] for i in choice)])
        for top in tops
        for choice in choices
        if not same or len(set(choice)) == 1
    ]
    # in the first slot the others may change places
    firsts = [
        np.stack([top, *(known[i] for i in choice)])
        for top in tops
        for choice in choices
        if list(choice) == sorted(choice) and (not same or len(set(choice)) == 1)
    ]
    best = max(sum(float(_worth(first[:, [at]].T, 1, queries)[0]) for at in range(len(y))) for first in firsts)
    return best * (axis[1] - axis[0]) ** (rounds * y.shape[1]) / math.factorial(rounds)


def _worth(held, slots, queries):
    """The integral over all later outputs, queries at their best, for every row of densities of the first slots.

    A row has, for each set of records that may have been in them, the sum over its arrangements; record 0 is the
    differing one, with the sign of its density.
    """
    records = len(queries[0])
    before = list(itertools.combinations(range(records), slots))
    if slots == records - 1:
        left = [next(record for record in range(records) if record not in one) for one in before]
        return np.max([np.maximum(held @ query[left], 0.0).sum(axis=1) for query in queries], axis=0)
    following, found = list(itertools.combinations(range(records), slots + 1)), []
    for query in queries:
        after = [
            sum(np.outer(held[:, before.index(tuple(r for r in one if r != last))], query[last]) for last in one)
            for one in following
        ]
        later = _worth(np.stack(after, axis=-1).reshape(-1, len(following)), slots + 1, queries)
        found.append(later.reshape(len(held), -1).sum(axis=1))
    return np.max(found, axis=0)


def plane() -> None:
    """All others alike: what queries beside the line gain."""
    print("| T | sigma, eps | Z: line, plane, gain | W: line, plane, gain |\n|---|---|---|---|")
    for rounds, (sigma, epsilon) in itertools.product((2, 3, 6), SETTINGS):
        shown = []
        for kind in (Z, W):
            line, wide = (
                alike(rounds=rounds, sigma=sigma, epsilon=epsilon, kind=kind, places=places)
                for places in (ENDS, (*ENDS, *ROUND, *INSIDE))
            )
            shown.append(f"{line:.6g}, {wide:.6g}, {max(wide / line - 1, 0.0):.1e}")
        print(f"| {rounds} | {sigma:g}, {epsilon:g} | {' | '.join(shown)} |", flush=True)


def values() -> None:
    """All others alike, on the line: what nine values between -1 and 1 gain over its ends."""
    print("| T | sigma, eps | Z: ends, nine values, gain | W: ends, nine values, gain |\n|---|---|---|---|")
    nine = tuple((float(v), 0.0) for v in np.linspace(-1, 1, 9))
    for rounds, (sigma, epsilon) in itertools.product((2, 3, 10), ((0.7, 1.0), (1.0, 0.5), (3.0, 0.2))):
        shown = []
        for kind in (Z, W):
            given = {"rounds": rounds, "sigma": sigma, "epsilon": epsilon, "kind": kind}
            ends, more = alike(**given), alike(**given, places=nine)
            shown.append(f"{ends:.6g}, {more:.6g}, {more / ends - 1:.1e}")
        print(f"| {rounds} | {sigma:g}, {epsilon:g} | {' | '.join(shown)} |", flush=True)


AROUND = ((-1.0, 0.0), (1.0, 0.0), (0.0, 1.0))
SEARCHES = {
    3: (
        {"values": (-1.0, 1.0), "points": 101},
        {"values": (-1.0, 0.0, 1.0), "points": 61},
        {"values": (-1.0, 1.0), "own": (0.5, 1.0), "points": 61},
        {"values": AROUND, "own": ((1.0, 0.0),), "points": 13, "reach": 4.5},
    ),
    4: ({"values": (-1.0, 1.0), "points": 31, "reach": 5.0},),
}
"""For each number of slots what is searched; in a plane the grid is coarse."""


def compared(job):
    """What it gains to query the others apart, in one setting."""
    rounds, search, (sigma, epsilon), kind = job
    given = {"rounds": rounds, "sigma": sigma, "epsilon": epsilon, "kind": kind, **search}
    began = time.process_time()
    same, free = apart(**given, same=True), apart(**given)
    shown = f"{search['values']}, own {search.get('own', (1.0,))} | {same:.6g} | {free:.6g} | {free / same - 1:.1e}"
    return f"| {rounds} | {sigma:g}, {epsilon:g}, {kind} | {shown} | {time.process_time() - began:.0f} |"


def records(processes: int) -> None:
    """Three and four slots: what it gains to query the others apart."""
    print("| T | sigma, eps, direction | values | alike | apart | gain | seconds |\n|---|---|---|---|---|---|---|")
    jobs = [
        (rounds, search, setting, kind)
        for rounds, searches in sorted(SEARCHES.items(), reverse=True)
        for search, setting, kind in itertools.product(searches, SETTINGS, (Z, W))
    ]
    with multiprocessing.Pool(processes) as pool:
        for line in pool.imap(compared, jobs):
            print(line, flush=True)


if __name__ == "__main__":
    began = time.process_time()
    if sys.argv[1] in ("plane", "values"):
        {"plane": plane, "values": values}[sys.argv[1]]()
    else:
        records(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    print(f"{time.process_time() - began:.0f} s")
