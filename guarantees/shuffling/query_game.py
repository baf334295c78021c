"""The game against shuffling: all other records are alike, and each query of them is chosen from past outputs.

One record per slot, means -1 to 1. The differing record is queried at 1 ('with') or at 0 ('without'), every other one
at ``v`` in {-1, +1}. With ``F`` the law of the outputs when every slot holds another record, the strategy that leaks
most at an epsilon depends on the running sum of ``c_v(y) = (f_1 - e^eps f_0)/f_v`` alone (with given without).

A strategy found here is exact by construction, however coarse the lattice: its state is a function of the outputs, and
its law on each side follows from the probabilities of cells of outputs. Only floating point is left, and bounded.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
from scipy import fft
from scipy.special import ndtr

from guarantees.numerics.array import Array
from guarantees.numerics.search import halved
from guarantees.shuffling.stop_loss import Kind

OTHERS = (-1.0, 1.0)
"""Query values of the other records among which a strategy chooses."""
MOST_BLOCKS = 64
"""Most blocks of slots: with more slots than this, the query stays the same within a block."""
STATES = 4096
CELLS = 8192
REACH = 9.0
"""Standard deviations beyond the outermost means at which the cells of outputs end, but for the outer two."""
WITHOUT, WITH = 0.0, 1.0
ROUND_OFF = 1e-13
"""Rounding error of the cells' total mass, and of sums of masses; that of ``ndtr`` is assumed to be relative."""


def _spectrum(masses: Array, length: int) -> Array:
    return np.asarray(fft.rfft(masses, length))


def _inverse(spectrum: Array, length: int) -> Array:
    return np.asarray(fft.irfft(spectrum, length))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Jump:
    """Laws of how far a run of slots with one query moves the state, cut at both ends of the lattice."""

    slots: int
    home: Array
    """Law of the jump if none of these slots holds the differing record."""
    with_record: Array
    """Law of the jump if one of them, drawn uniformly, holds it."""
    without: Array
    """Law of the jump if one of them holds it, zeroed out."""
    error: float
    """Bound of the total mass that rounding moved in any of the three laws."""

    @property
    def laws(self) -> tuple[Array, Array, Array]:
        """The three laws."""
        return self.home, self.with_record, self.without

    @property
    def norm(self) -> float:
        """Largest 2-norm of the three laws."""
        return max(_norm(law) for law in self.laws)

    def then(self, other: Jump) -> Jump:
        """The jump of both runs, one after the other."""
        size, slots = len(self.home), self.slots + other.slots
        length = 4 * STATES
        own, others = ([_spectrum(law, length) for law in jump.laws] for jump in (self, other))

        def law(spectrum: Array) -> Array:
            return _cut(_inverse(spectrum, length)[: 2 * size - 1], size // 2, size)

        def either(side: int) -> Array:
            return law((self.slots * own[side] * others[0] + other.slots * own[0] * others[side]) / slots)

        return Jump(
            slots=slots,
            home=law(own[0] * others[0]),
            with_record=either(1),
            without=either(2),
            error=self.error + other.error + transform_error(length, 2 * (self.norm + other.norm)),
        )

    def repeated(self, times: int) -> Jump:
        """The jump of ``times`` such runs, by squaring."""
        if times == 1:
            return self
        half = self.repeated(times // 2)
        even = half.then(half)
        return even if times % 2 == 0 else even.then(self)


def transform_error(length: int, norms: float) -> float:
    """Bound of the total mass that rounding moves in convolutions whose factors' 2-norms sum to ``norms``.

    In the 2-norm a transform is wrong by at most about 7 units of rounding a level, relatively [higham2002, section
    24.1]; here 8 and two more levels. Total mass is at most the root of the length times the 2-norm.
    """
    return math.sqrt(length) * 8 * (math.log2(length) + 2) * 2.0**-53 * norms


def _norm(masses: Array) -> float:
    return float(np.linalg.norm(masses))


def _cut(masses: Array, first: int, size: int) -> Array:
    """``size`` entries from ``first`` on, the mass beyond either end moved to that end, negative rounding removed."""
    kept = np.maximum(masses[first : first + size], 0.0)
    kept[0] += max(masses[:first].sum(), 0.0)
    kept[-1] += max(masses[first + size :].sum(), 0.0)
    return kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryGame:
    """The game for one epoch, one direction and one epsilon."""

    rounds: int
    noise_multiplier: float
    epsilon: float
    kind: Kind

    @functools.cached_property
    def growth(self) -> float:
        """``e^eps - 1``: how far the sum falls per slot; the state is the sum without this fall."""
        return math.expm1(self.epsilon)

    @functools.cached_property
    def ends(self) -> tuple[float, float]:
        """Ends of the lattice: beyond them the sum practically keeps its sign."""
        s2 = self.noise_multiplier**2
        spread = math.sqrt(math.expm1(1 / s2))
        farthest = math.exp((4 * self.noise_multiplier - 0.5) / s2)
        margin = (1 + self.growth) * (6 * spread * math.sqrt(self.rounds) + farthest)
        return -margin, self.rounds * self.growth + margin

    @property
    def spacing(self) -> float:
        """Spacing of the lattice."""
        low, high = self.ends
        return (high - low) / (STATES - 1)

    @functools.cached_property
    def start(self) -> int:
        """Lattice index of state 0."""
        return round(-self.ends[0] / self.spacing)

    def contribution(self, output: Array, other: float) -> Array:
        """``c_v`` at an output, less its mean."""
        s2 = self.noise_multiplier**2

        def ratio(mean: float) -> Array:
            return np.exp(np.clip((mean - other) * (output - (mean + other) / 2) / s2, -600, 600))

        first, second = (WITH, WITHOUT) if self.kind == "with_given_without" else (WITHOUT, WITH)
        return ratio(first) - math.exp(self.epsilon) * ratio(second) + self.growth

    @functools.cached_property
    def _edges(self) -> Array:
        reach = 1 + REACH * self.noise_multiplier
        return np.linspace(-reach, reach, CELLS - 1)

    @property
    def _centres(self) -> Array:
        """One output in each cell."""
        edges = self._edges
        return np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])

    def _cells(self, mean: float) -> Array:
        """Probabilities of the cells of outputs."""
        z = (self._edges - mean) / self.noise_multiplier
        # each difference on the side where it keeps its digits
        inner = np.where(z[1:] < 0, np.diff(ndtr(z)), -np.diff(ndtr(-z)))
        return np.concatenate([ndtr(z[:1]), inner, ndtr(-z[-1:])])

    def slot(self, other: float) -> Jump:
        """The jump of one slot: each cell of outputs has one jump, near the contribution there."""
        laws = [self._cells(mean) for mean in (other, WITH, WITHOUT)]
        steps = np.clip(self.contribution(self._centres, other) / self.spacing, 1 - STATES, STATES - 1)
        jumps = _rounded(steps, laws[0]) + STATES - 1
        home, with_record, without = (np.bincount(jumps, law, 2 * STATES - 1) for law in laws)
        return Jump(slots=1, home=home, with_record=with_record, without=without, error=ROUND_OFF)

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Number of slots of each block."""
        blocks = min(self.rounds, MOST_BLOCKS)
        short, longer = divmod(self.rounds, blocks)
        return [short + 1] * longer + [short] * (blocks - longer)

    @functools.cached_property
    def jumps(self) -> dict[int, list[Jump]]:
        """For each block size, the jump of each query."""
        slots = [self.slot(other) for other in OTHERS]
        return {size: [slot.repeated(size) for slot in slots] for size in set(self.sizes)}

    @functools.cached_property
    def _spectra(self) -> dict[int, list[tuple[Array, ...]]]:
        return {
            size: [tuple(_spectrum(law, 4 * STATES) for law in jump.laws) for jump in jumps]
            for size, jumps in self.jumps.items()
        }

    def beyond(self, other: float) -> float:
        """Average by which one slot's contribution exceeds the longest jump."""
        masses, centres = self._cells(other), self._centres
        longest = (STATES - 1) * self.spacing
        return float(masses @ np.maximum(self.contribution(centres, other) - longest, 0.0))

    def strategy(self) -> list[Array]:
        """For each block and state the query that leads furthest, as an index into ``OTHERS``; computed backwards.

        Above the lattice the value grows as the sum does.
        """
        low, high = self.ends
        value = np.maximum(np.linspace(low, high, STATES) - self.rounds * self.growth, 0.0)
        above, beyond = self.spacing * np.arange(1, STATES), [self.beyond(other) for other in OTHERS]
        found: list[Array] = []
        for size in reversed(self.sizes):
            ahead = np.concatenate([np.full(STATES - 1, value[0]), value, value[-1] + above])
            spectrum = _spectrum(ahead, 4 * STATES)
            values = [
                _inverse(spectrum * np.conj(laws[0]), 4 * STATES)[:STATES] + size * more
                for laws, more in zip(self._spectra[size], beyond, strict=True)
            ]
            found.append((values[1] > values[0]).astype(np.int8))
            value = np.maximum(values[0], values[1])
        return found[::-1]

    def play(self, strategy: list[Array]) -> Outcome:
        """Law of the last state on both sides under any strategy."""
        home = np.zeros(STATES)
        home[self.start] = 1.0
        met, error = [np.zeros(STATES), np.zeros(STATES)], 0.0
        for size, choice in zip(self.sizes, strategy, strict=True):
            # of both parts of either law, and of what they are convolved with
            norms = 3 * (_norm(home) + max(map(_norm, met))) + 2 * max(jump.norm for jump in self.jumps[size])
            total = [np.zeros(2 * STATES + 1, complex) for _ in range(3)]
            for query, laws in enumerate(self._spectra[size]):
                here = choice == query
                at_home, *placed = (_spectrum(np.where(here, masses, 0.0), 4 * STATES) for masses in (home, *met))
                total[0] += at_home * laws[0]
                for side in (1, 2):
                    # the record is in one of the slots so far, or in one of this block
                    total[side] += placed[side - 1] * laws[0] + size / self.rounds * at_home * laws[side]
            home, *met = (_cut(_inverse(one, 4 * STATES)[: 3 * STATES - 2], STATES - 1, STATES) for one in total)
            error += transform_error(4 * STATES, norms) + max(jump.error for jump in self.jumps[size])
        # the masses at home pass their error on once more
        return Outcome(with_record=met[0], without=met[1], error=2 * error + ROUND_OFF)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """Law of a strategy's last state, a function of the transcript, on both sides, lowest state first."""

    with_record: Array
    without: Array
    error: float
    """Bound of the mass that rounding moved on either side."""


def _rounded(steps: Array, masses: Array) -> Array:
    """The steps as whole numbers, all rounded at the one fraction that best keeps their mean."""
    goal = masses @ steps
    shift, _ = halved(lambda shift: not masses @ np.floor(steps + shift) < goal, 0.0, 1.0, rounds=40)
    return np.clip(np.floor(steps + shift), 1 - STATES, STATES - 1).astype(int)
