"""The log ratio of two mixtures over batches, as compiled programs compute it."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from distinguishers.exact.tabulated import Gaps, Law, tabulated
from distinguishers.exact.tabulated_sizes import SizeGaps, size_law, tabulated_sizes
from distinguishers.span_coordinates import Reading
from dpsgd_audit.later import jax, jnp
from mechanisms.structure import next_power, pad_rows, structured

AT_ONCE = 64
"""Terms that are summed in one piece: beyond, a loop over pieces serves every number of terms."""
FEWEST = 8
LONG_SIZES = (1024, 16)
"""Terms that the shortest table of pieces holds, and how much longer the next is."""


class Component(NamedTuple):
    """The laws N(mean_i, I / precision_i) of the outputs of batches i, in a frame's units; traced inside a program."""

    means: Any
    """Shape (batches, rank)."""
    precision: Any
    """1 / variance; shape (batches,), or (1,) where the divisor does not depend on the batch."""
    constant: Any
    slope: Any
    """ln density outside the span = constant - slope * excess, up to a term common to all laws."""


class Ends(NamedTuple):
    """Which component holds when the differing record is out of the batch and in it, by side."""

    without_out: int
    without_in: int | None
    with_out: int
    with_in: int | None

    @property
    def gaps(self) -> tuple[tuple[int, int] | None, ...]:
        """Whose log densities are compared: with over without, then the record in over out, by side; None for equals.

        A ratio is the first gap, plus the second and less the third as the coin mixes them.
        """
        pairs = (
            (self.with_out, self.without_out),
            (self.with_in, self.with_out),
            (self.without_in, self.without_out),
        )
        return tuple(None if above is None or above == below else (above, below) for above, below in pairs)


class Coin(NamedTuple):
    """How likely the differing record is in the batch."""

    rate: float
    log_out: float
    log_in: float

    def mix(self, gap: jax.Array) -> jax.Array:
        """``ln(1 - q + q e^gap)``, accurate for small gaps, small rates and rates near 1."""
        near = jnp.log1p(self.rate * jnp.expm1(jnp.clip(gap, -1.0, 1.0)))
        far = jnp.logaddexp(_f32(self.log_out), _f32(self.log_in) + gap)
        return jnp.where(jnp.abs(gap) < 1.0, near, far)


@structured(numbers=("log_weights", "components", "terms", "coin", "table"), structure=("ends",))
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """Both sides' densities as mixtures over batches; tables are padded with terms of no weight."""

    log_weights: np.ndarray
    components: tuple[Component, ...]
    terms: int
    """Batches before padding."""
    coin: Coin | None
    """None where the differing record is always in the batch."""
    ends: Ends
    table: Gaps | SizeGaps | None = None
    """All gaps of a mixture of very many terms along one line, which then has no components."""

    def log_ratio(self, reading: Reading) -> jax.Array:
        """ln of the density with the record over that without it."""
        if self.table is not None:
            return self._read(self.table.at(reading.along[0], reading.excess))
        found = self._log_densities(reading)
        out0, in0, out1, in1 = (None if index is None else found[index] for index in self.ends)
        assert out0 is not None
        assert out1 is not None
        gained = 0.0 if in1 is None else self._mixed(in1 - out1)
        lost = 0.0 if in0 is None else self._mixed(in0 - out0)
        return jnp.asarray((out1 - out0) + gained - lost, jnp.float32)

    def _read(self, gaps: jax.Array) -> jax.Array:
        places = iter(range(len(gaps)))
        between, gained, lost = (None if pair is None else gaps[next(places)] for pair in self.ends.gaps)
        parts = (
            0.0 if between is None else between,
            0.0 if gained is None else self._mixed(gained),
            0.0 if lost is None else self._mixed(lost),
        )
        return jnp.asarray(parts[0] + parts[1] - parts[2], jnp.float32)

    def _mixed(self, gap: jax.Array) -> jax.Array:
        return gap if self.coin is None else self.coin.mix(gap)

    def _log_densities(self, reading: Reading) -> tuple[jax.Array, ...]:
        """ln of each component's mixture over the batches, up to one common term."""
        if len(self.log_weights) <= FEWEST and jax.default_backend() != "cpu":
            return self._term_by_term(reading)
        if len(self.log_weights) <= AT_ONCE:
            best = _best(self.components, reading)
            found = []
            for component in self.components:
                exponent = _exponent(self.log_weights, component, reading, best)
                top = jnp.max(exponent)
                found.append(top + jnp.log(jnp.sum(jnp.exp(exponent - top))))
            return tuple(found)
        return self._piece_by_piece(reading)

    def _term_by_term(self, reading: Reading) -> tuple[jax.Array, ...]:
        """The same without a reduction: an accelerator would write the terms down and read them again for each."""
        terms = [
            [Component(*(part if len(part) == 1 else part[at : at + 1] for part in own)) for own in self.components]
            for at in range(len(self.log_weights))
        ]
        best = functools.reduce(jnp.maximum, [_best(tuple(own), reading) for own in terms])
        found = []
        for place in range(len(self.components)):
            exponents = [
                _exponent(self.log_weights[at : at + 1], own[place], reading, best)[0] for at, own in enumerate(terms)
            ]
            top = functools.reduce(jnp.maximum, exponents)
            found.append(top + jnp.log(functools.reduce(jnp.add, [jnp.exp(own - top) for own in exponents])))
        return tuple(found)

    def _piece_by_piece(self, reading: Reading) -> tuple[jax.Array, ...]:
        """The same in pieces, each sum kept with the largest exponent that it was scaled by."""
        pieces = -(-self.terms // AT_ONCE)

        def cut(index: jax.Array, values: Any) -> jax.Array:
            values = _f32(values)
            one = len(values) == 1
            return values if one else jax.lax.dynamic_slice_in_dim(values, index * AT_ONCE, AT_ONCE)

        def piece(index: jax.Array) -> tuple[Component, ...]:
            return tuple(Component(*(cut(index, values) for values in component)) for component in self.components)

        if all(len(component.constant) == 1 for component in self.components):
            best = _best(self.components, reading)
        else:
            best = jax.lax.fori_loop(
                0,
                pieces,
                lambda index, so_far: jnp.maximum(so_far, _best(piece(index), reading)),
                jnp.float32(-jnp.inf),
            )

        def add(index: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            tops, totals = sums
            weights = cut(index, self.log_weights)
            exponents = jnp.stack([_exponent(weights, own, reading, best) for own in piece(index)])
            above = jnp.maximum(tops, jnp.max(exponents, axis=1))
            return above, totals * jnp.exp(tops - above) + jnp.sum(jnp.exp(exponents - above[:, None]), axis=1)

        empty = jnp.full(len(self.components), -jnp.inf), jnp.zeros(len(self.components))
        tops, totals = jax.lax.fori_loop(0, pieces, add, empty)
        return tuple(tops + jnp.log(totals))


def _best(components: tuple[Component, ...], reading: Reading) -> jax.Array:
    """Levels reach 1e6 for a divisor far from the truth: taking off the best one first keeps the digits that count."""
    return functools.reduce(jnp.maximum, [jnp.max(_level(component, reading)) for component in components])


def _level(component: Component, reading: Reading) -> jax.Array:
    return _f32(component.constant) - _f32(component.slope) * reading.excess


def _exponent(log_weights: Any, component: Component, reading: Reading, best: jax.Array) -> jax.Array:
    # Coordinate by coordinate: XLA's CPU code does not fuse a reduction over so short an axis.
    means = _f32(component.means)
    squares = [(reading.along[c] - means[:, c]) ** 2 for c in range(means.shape[1])]
    distance = functools.reduce(jnp.add, squares, jnp.float32(0.0))
    return _f32(log_weights) + (_level(component, reading) - best) - 0.5 * _f32(component.precision) * distance


def make_mixture(
    *, log_weights: np.ndarray, components: tuple[Component, ...], ends: Ends, rate: float, free: int
) -> Mixture:
    """Tables padded to one of a few lengths, so that programs serve many numbers of batches.

    ``free`` coordinates are outside the span.
    """
    terms = len(log_weights)
    least, base = (FEWEST, 2) if terms <= AT_ONCE else LONG_SIZES
    length = next_power(terms, base=base, least=least)

    def pad(values: np.ndarray, value: float = 0.0) -> np.ndarray:
        return values if len(values) == 1 else pad_rows(values, length, value).astype(np.float32)

    def pad_component(given: Component) -> Component:
        means = pad_rows(given.means, length).astype(np.float32)
        return Component(means, pad(given.precision, 1.0), pad(given.constant, -math.inf), pad(given.slope))

    coin = None if rate == 1.0 else Coin(rate, math.log1p(-rate), math.log(rate))
    table = _table(log_weights, components, ends, free) if terms > AT_ONCE else None
    if table is not None:
        return Mixture(log_weights=np.zeros(0), components=(), terms=terms, coin=coin, ends=ends, table=table)
    return Mixture(
        log_weights=pad_rows(log_weights, length, -math.inf).astype(np.float32),
        components=tuple(pad_component(component) for component in components),
        terms=terms,
        coin=coin,
        ends=ends,
    )


def _table(log_weights: np.ndarray, components: tuple[Component, ...], ends: Ends, free: int) -> Gaps | SizeGaps | None:
    """Of gradients that lie on one line: gaps are functions of one number, or of two where the batch's size divides."""
    gaps = [pair for pair in ends.gaps if pair is not None]
    if not gaps or any(own.means.shape[1] != 1 for own in components):
        return None
    if all(len(own.constant) == 1 for own in components):
        laws = [
            Law(log_weights, own.means[:, 0], float(own.precision[0]), float(own.constant[0]), float(own.slope[0]))
            for own in components
        ]
        return tabulated([(laws[above], laws[below]) for above, below in gaps])
    origin = float(np.median(components[0].means[:, 0]))
    sized = [size_law(log_weights, own, origin=origin) for own in components]
    return tabulated_sizes([(sized[above], sized[below]) for above, below in gaps], free=free, origin=origin)


def _f32(values: Any) -> jax.Array:
    return jnp.asarray(values, jnp.float32)
