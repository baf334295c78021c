"""Best adaptive queries against a shuffled epoch of a few records: ``python -m attack.queries``, from ``tests``.

Two searches, each independent of ``guarantees``. ``alike``: all other records get one query, anywhere in the plane (the
three means of a slot span no more), by dynamic programming over the running sum. ``apart``: three slots on a line, the
two other records queried apart, by brute force over both later queries for every output.
"""

from __future__ import annotations

import itertools
import math
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


def apart(*, sigma, epsilon, kind, values=(-1.0, 1.0), own=(1.0,), points=101, same=False):
    """Delta of three slots for the best first query and, for every output, the best later ones.

    The differing record is queried at a value of ``own``, the others at two of ``values`` (``same``: at one).
    """
    y = np.linspace(-1 - 6.5 * sigma, 1 + 6.5 * sigma, points)
    density = {v: norm.pdf(y, v, sigma) for v in values}
    zero, grow = norm.pdf(y, 0.0, sigma), math.exp(epsilon)
    tops = [norm.pdf(y, u, sigma) - grow * zero if kind == Z else zero - grow * norm.pdf(y, u, sigma) for u in own]
    queries = [(top, density[a], density[b]) for top in tops for a in values for b in values if a == b or not same]
    best = 0.0
    # the two others may change places
    firsts = [
        (top, density[a], density[b]) for top in tops for a in values for b in values if a == b or (a < b and not same)
    ]
    for top, first, second in firsts:
        total = 0.0
        for at in range(points):
            held = top[at], first[at], second[at]
            total += max(float(_last(held, query, queries).sum()) for query in queries)
        best = max(best, total)
    return best * (y[1] - y[0]) ** 3 / 6


def _last(held, query, queries):
    """For every second output the integral over the third, at the best third query.

    ``held``: densities of the first output if it is the differing record's, the first other's, the second other's.
    """
    (x, a, b), (top, first, second) = held, query
    left = np.stack([a * second + b * first, x * second + b * top, x * first + a * top], axis=1)
    return np.max([np.maximum(left @ np.stack(last), 0.0).sum(axis=1) for last in queries], axis=0)


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


def records() -> None:
    """Three slots: what it gains to query the others apart."""
    print("| sigma, eps, direction | values | alike | apart | gain |\n|---|---|---|---|---|")
    for (sigma, epsilon), kind in itertools.product(SETTINGS, (Z, W)):
        for values, own, points in (
            ((-1.0, 1.0), (1.0,), 101),
            ((-1.0, 0.0, 1.0), (1.0,), 61),
            ((-1.0, 1.0), (0.5, 1.0), 61),
        ):
            given = {"sigma": sigma, "epsilon": epsilon, "kind": kind, "values": values, "own": own, "points": points}
            same, free = apart(**given, same=True), apart(**given)
            shown = f"{values}, own {own} | {same:.6g} | {free:.6g} | {free / same - 1:.1e}"
            print(f"| {sigma:g}, {epsilon:g}, {kind} | {shown} |", flush=True)


if __name__ == "__main__":
    began = time.process_time()
    {"plane": plane, "apart": records}[sys.argv[1]]()
    print(f"{time.process_time() - began:.0f} s")
