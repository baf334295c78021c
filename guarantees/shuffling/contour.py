"""Probabilities of ``S = sum (r_j^2 - r_j) <= 0`` for lognormal r, by a contour integral through the saddle point.

The likelihood ratio of the pair of [chua2024] exceeds e^t exactly when S > 0, with ``r = exp(mu x)/tau``,
``tau = exp(1.5 mu^2 + t)``, ``mu = 1/noise_multiplier`` and x standard normal in every round.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from guarantees.numerics.array import Array

PER_SADDLE = 6
"""Trapezoid points per distance of the saddle from 0: the aliasing error is a factor exp(-12 pi)."""
MOST_NODES = 384
"""Most nodes; an integrand that has not decayed by then falls only like a logarithm: few rounds decide."""
SMALL = 200.0
"""Size of z up to which the transform is computed as its difference from 1, which saves its digits from T."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Below:
    """Result of the contour at one threshold; ``remainder`` is the last term kept, relative to the sum."""

    without: float
    with_record: float
    shortfall: float
    """``E S^-`` with standard normal rounds."""
    remainder: float
    defect: float
    """By how much the three integrals break ``E S^- = T e^(-mu^2 - t) (Q(S <= 0) - e^-t P(S <= 0))``, as a delta."""


@dataclasses.dataclass(frozen=True)
class _Transform:
    """``phi_w(z) = E w(r) exp(-z (r^2 - r))`` for w = 1, r, r^2 (each relative to its mean), by a trapezoid sum in x.

    The line of integration is shifted so that r turns against z, which keeps the sum short where z is large.
    """

    mu: float
    log_tau: float

    def _grid(self, smallest: float, largest: float) -> Array:
        # the integrand ends where |z| r^2 does, or where the normal weight (shifted by 2 mu under r^2) does
        end = (0.5 * np.log(60 / smallest + 4) + self.log_tau) / self.mu + 1.0
        stop = min(max(end, -8.0), 9.0 + 2 * self.mu) if largest > SMALL else 9.0 + 2 * self.mu
        step = min(0.1, 0.05 / self.mu) / max(1.0, np.sqrt(largest / 40))
        return np.arange(-9.5, stop + step, step)

    def __call__(self, z: Array) -> tuple[Array, Array, Array]:
        """``ln phi_1(z)``, and ``phi_r / phi_1``, ``phi_{r^2} / phi_1``, at each z."""
        size = np.abs(z)
        x = self._grid(float(size.min()), float(size.max()))
        # a shift of more than 2 deviations would cost digits, and with little weight far out is not needed
        angle = np.minimum(np.angle(z) / 4 * np.minimum(1.0, 60 / size), 2 * self.mu)
        shift, turn = angle / self.mu, np.exp(-1j * angle)
        real_ratio = np.exp(self.mu * x - self.log_tau)
        ratio = turn[:, None] * real_ratio
        normal = np.exp(-(x**2) / 2) * ((x[1] - x[0]) / np.sqrt(2 * np.pi))
        density = _turned(shift, x) * normal * np.exp(shift[:, None] ** 2 / 2)
        powers = np.stack([np.ones_like(x), real_ratio, real_ratio**2])
        scales = np.exp(np.array([0.0, self.log_tau - self.mu**2 / 2, 2 * self.log_tau - 2 * self.mu**2]))
        small = size.max() <= SMALL
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            if small:
                values = _expm1(-z[:, None] * ratio * (ratio - 1)) * density
            else:
                values = np.exp(-z[:, None] * (ratio - 0.5) ** 2) * density
            sums = _sums(values, powers) * scales * turn[:, None] ** np.arange(3)
            log_phi = np.log1p(sums[:, 0]) if small else np.log(sums[:, 0]) + z / 4
            means = sums + 1 if small else sums
            return log_phi, means[:, 1] / means[:, 0], means[:, 2] / means[:, 0]


def _turned(shift: Array, x: Array) -> Array:
    """``exp(i shift x)`` for each shift and each point of an even grid, as products of few roots."""
    stride = math.isqrt(len(x)) + 1
    begins, steps = x[::stride], x[:stride] - x[0]
    coarse, fine = np.exp(1j * shift[:, None] * begins), np.exp(1j * shift[:, None] * steps)
    return (coarse[:, :, None] * fine[:, None, :]).reshape(len(shift), -1)[:, : len(x)]


def _expm1(w: Array) -> Array:
    """``e^w - 1`` for complex w, from half the angle: faster than NumPy's by a third."""
    half = np.imag(w) / 2
    sine, cosine = np.sin(half), np.cos(half)
    more, turned = np.expm1(np.real(w)), 2 * sine**2
    found = np.empty_like(w)
    found.real, found.imag = more - (more + 1) * turned, (more + 1) * (2 * sine * cosine)
    return found


def _sums(values: Array, powers: Array) -> Array:
    """Sums of products of complex rows and real rows; a matrix product would start BLAS's threads."""
    parts = [[np.einsum("zx,x->z", part, power) for power in powers] for part in (np.real(values), np.imag(values))]
    return np.array(parts[0]).T + 1j * np.array(parts[1]).T


def _saddle(transform: _Transform, rounds: int) -> tuple[float, float]:
    """Where ``T ln phi(c) - 2 ln c`` is least along the real axis, and that least value."""

    def height(log_c: float) -> float:
        c = float(np.exp(log_c))
        value = rounds * float(transform(np.array([c + 0j]))[0][0].real) - 2 * log_c
        return value if np.isfinite(value) else 1e300

    grid = np.linspace(-40.0, 12.0, 27)
    best, least = 0, np.inf
    for i, place in enumerate(grid):
        here = height(place)
        if here > least and place > np.log(SMALL):
            # convex in c: it only rises from here on, and larger c take the finest sums
            break
        best, least = (i, here) if here < least else (best, least)
    span = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    # a fifth of a second, which laws that were kept do not need
    from scipy.optimize import minimize_scalar

    found: Any = minimize_scalar(height, bounds=span, method="bounded", options={"xatol": 1e-3})
    return float(np.exp(found.x)), float(found.fun)


def saddle_point(*, rounds: int, mu: float, threshold: float) -> float:
    """The tilt under which ``S <= 0`` is a typical event."""
    return _saddle(_Transform(mu, 1.5 * mu**2 + threshold), rounds)[0]


def below_threshold(*, rounds: int, mu: float, threshold: float) -> Below:
    """Probabilities under the pair of a loss at most ``threshold``, and ``E S^-``.

    ``E w(r_1) 1{S <= 0} = (1/2 pi i) int phi_1^(T-1) phi_w dz/z`` and ``E S^- = (1/2 pi i) int phi_1^T dz/z^2``
    on ``Re z = c``, c the saddle point. Errors are relative: about 1e-14 and ``remainder`` (estimated). The three
    integrals are computed apart and tied by an identity, ``E -S 1{S <= 0} = T E (r_1 - r_1^2) 1{S <= 0}``.
    """
    transform = _Transform(mu, 1.5 * mu**2 + threshold)
    c, height = _saddle(transform, rounds)
    if height < -680 or height >= 1e299:
        return Below(without=0.0, with_record=0.0, shortfall=0.0, remainder=0.0, defect=0.0)
    base = height + 2 * np.log(c)
    start, sums, remainder = 0, np.zeros(3), 1.0
    while start < MOST_NODES and remainder > 1e-14:
        z = c + 1j * (c / PER_SADDLE) * np.arange(start, start + 64)
        log_phi, first, second = transform(z)
        power = np.exp(rounds * np.where(np.isfinite(log_phi), log_phi, -1e3) - base)
        kept = np.where(np.isfinite(first) & np.isfinite(second), power, 0.0)
        first, second = np.where(kept == 0, 0.0, first), np.where(kept == 0, 0.0, second)
        terms = np.stack([kept * first / z, kept * second / z, kept / z**2]).real
        terms[:, 0] *= 0.5 if start == 0 else 1.0
        sums += terms.sum(axis=1)
        remainder = float(np.abs(power[-1]) / (np.abs(z[-1]) * max(np.abs(sums[:2]).min(), 1e-300)))
        start += 64
    scale = np.exp(base) * (c / PER_SADDLE) / np.pi
    without, with_record, shortfall = (float(part) for part in scale * sums)
    due = without - np.exp(-threshold) * with_record
    return Below(
        without=float(np.clip(without, 0.0, 1.0)),
        with_record=float(np.clip(with_record, 0.0, 1.0)),
        shortfall=shortfall,
        remainder=remainder,
        defect=float(abs(due - shortfall * np.exp(mu**2 + threshold) / rounds)),
    )
