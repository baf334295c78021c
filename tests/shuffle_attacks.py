"""Adaptive attacks on a shuffled epoch of a few records, with exact likelihoods on both sides."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Attack:
    """Records by kind, and queries that may depend on all earlier outputs.

    ``query(t, history)`` gives for each trial the vectors of x with the record, of x without it, and of each kind of
    other record: an array (trials, 2 + kinds, dimension) of vectors in the unit ball.
    """

    counts: tuple[int, ...]
    dimension: int
    query: Callable

    @property
    def rounds(self) -> int:
        return sum(self.counts) + 1


def ratios(attack: Attack, rng: np.random.Generator, sigma: float, trials: int, side: int) -> np.ndarray:
    """``ln(other side / own side)`` of outputs drawn on a side (0: x as given, 1: its other version)."""
    rounds, kinds = attack.rounds, len(attack.counts)
    held = np.repeat(np.arange(kinds + 1), (1, *attack.counts))
    order = rng.permuted(np.tile(held, (trials, 1)), axis=1)
    history = np.zeros((trials, rounds, attack.dimension))
    sums = {(0,) * kinds + (0,): np.ones((trials, 2))}
    for t in range(rounds):
        vectors = attack.query(t, history[:, :t])
        assert np.all(np.linalg.norm(vectors, axis=2) <= 1 + 1e-12)
        # index 0: x on this side; 2 + k: kind k
        index = np.where(order[:, t] == 0, side, order[:, t] + 1)
        mean = vectors[np.arange(trials), index]
        y = mean + sigma * rng.standard_normal(mean.shape)
        history[:, t] = y
        density = np.exp(-np.sum((y[:, None] - vectors) ** 2 - (y**2)[:, None], axis=2) / (2 * sigma**2))
        sums = _step(sums, density, attack.counts)
        top = np.max([value.max(axis=1) for value in sums.values()], axis=0)
        sums = {state: value / top[:, None] for state, value in sums.items()}
    (final,) = sums.values()
    return np.log(final[:, 1 - side]) - np.log(final[:, side])


def _step(sums, density, counts):
    """Sums over all arrangements of the records of the slots so far: one slot more."""
    following: dict = {}
    for state, value in sums.items():
        for kind, count in enumerate(counts):
            if state[kind] < count:
                after = (*state[:kind], state[kind] + 1, *state[kind + 1 :])
                # each record of a kind is a different one: the number left is the number of ways
                ways = (count - state[kind]) * density[:, 2 + kind, None]
                following[after] = following.get(after, 0) + value * ways
        if not state[-1]:
            after = (*state[:-1], 1)
            following[after] = following.get(after, 0) + value * density[:, :2]
    return following


def divergence(loss: np.ndarray, epsilon: float) -> tuple[float, float]:
    """Estimate of ``E (1 - e^eps other/own)^+``, and what its error exceeds once in 1e9 (empirical Bernstein)."""
    value = np.maximum(-np.expm1(np.minimum(epsilon + loss, 0.0)), 0.0)
    n, log = len(value), np.log(2e9)
    return float(value.mean()), float(np.sqrt(2 * value.var(ddof=1) * log / n) + 7 * log / (3 * (n - 1)))


def unit(v):
    return v / np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), 1e-300)


def structured(rounds: int, zero_out: bool) -> list[Attack]:
    """Equal, opposite, cloned and grouped records, with fixed and with turning queries."""
    found = []
    half = (rounds - 1) // 2

    def add(counts, places, turning):
        def query(t, history):
            base = np.array([1.0, 0.0 if zero_out else -1.0, *places])
            vectors = np.broadcast_to(base[None, :, None], (len(history), len(base), 1))
            if turning and t:
                # everything changes its sign, or is asked in part only, by what was seen last and in all
                sign = np.where(history[:, -1, 0] * turning > 0, 1.0, -1.0)
                less = np.where(history.sum(axis=1)[:, 0] > turning, 1.0, 0.7)
                vectors = vectors * (sign * less)[:, None, None]
            return vectors

        found.append(Attack(tuple(counts), 1, query))

    for turning in (0.0, 0.5, -1.0):
        for place in (-1.0, 0.0, 1.0):
            add([rounds - 1], [place], turning)
        if rounds > 2:
            add([half, rounds - 1 - half], [-1.0, 1.0], turning)
            add([rounds - 2, 1], [-1.0, 1.0], turning)
            add([1, rounds - 2], [-1.0, 1.0], turning)
    return found


def random_attack(rng: np.random.Generator, rounds: int, zero_out: bool, *, distinct: bool) -> Attack:
    """Random features of the history steer every record's vector; most vectors have norm 1."""
    dimension = int(rng.integers(1, 4))
    if distinct:
        counts = (1,) * (rounds - 1)
    else:
        first = int(rng.integers(1, rounds))
        counts = tuple(c for c in (first, rounds - 1 - first) if c)
    vectors = 2 + len(counts)
    static = rng.standard_normal((vectors, dimension))
    steer = rng.standard_normal((3, vectors, dimension, dimension)) * rng.choice([0.0, 1.0, 4.0])
    # the others tend to oppose x, and to agree in kind
    static[2:] -= rng.choice([0.0, 2.0]) * static[0]
    full = rng.random(vectors) < 0.8

    def query(t, history):
        trials = len(history)
        moved = np.broadcast_to(static, (trials, vectors, dimension))
        if t:
            features = (history[:, -1], history.sum(axis=1) / np.sqrt(t), np.abs(history).mean(axis=1))
            moved = moved + sum(np.einsum("vde,te->tvd", steer[i], np.tanh(f)) for i, f in enumerate(features))
        moved = np.where(full[:, None], unit(moved), moved / (1 + np.linalg.norm(moved, axis=2, keepdims=True)))
        if zero_out:
            moved = moved.copy()
            moved[:, 1] = 0.0
        return moved

    return Attack(counts, dimension, query)


def grouping_attack(rounds: int, zero_out: bool, sigma: float) -> Attack:
    """Distinct others at -1 until the end; the last queries ask whether those whose slots looked like x moved."""

    def query(t, history):
        trials = len(history)
        vectors = np.full((trials, 2 + rounds - 1, 1), -1.0)
        vectors[:, 0] = 1.0
        vectors[:, 1] = 0.0 if zero_out else -1.0
        if t >= rounds // 2:
            # slot by slot evidence for x: record j is asked at +1 when the j-th output was large
            seen = history[:, :, 0]
            for j in range(min(rounds - 1, seen.shape[1])):
                vectors[:, 2 + j, 0] = np.where(seen[:, j] > 0.3 * sigma, 1.0, -1.0)
        return vectors

    return Attack((1,) * (rounds - 1), 1, query)
