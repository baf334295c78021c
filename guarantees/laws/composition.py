"""Composition of any laws through lattice losses, with a certified law on each side that is known to be one."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from guarantees.checks import require
from guarantees.laws.combined import MixtureLaw, sides
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.laws.hockey_stick import hockey_stick
from guarantees.laws.jumps import JumpLaw, body_of, lowered, rounded
from guarantees.laws.large_losses import FAR
from guarantees.laws.lattice import LatticePair, Reach, discretise, reach
from guarantees.laws.lattice_sums import MASS_LEFT_OUT, LatticePart, Plan, lattice_parts, planned_windows, summed_parts
from guarantees.laws.law import Certificate, LossLaw, estimate, reverse
from guarantees.numerics.array import Array
from guarantees.numerics.rounding import at_most

SOURCES = "dong2022, lemma C.1; doroshenko2022; koskela2020"
"""Where the certified composition of laws comes from."""
MOST_OUTCOMES = 2000
"""Discrete losses with at most this many different sums are composed exactly, outcome by outcome."""

MOST_WORK = 2**26
"""Most evaluations of closed forms for one loss on a lattice; expensive laws get a coarser lattice, and say so."""
FEWEST_POINTS = 2**12
"""Minimum number of lattice points, however expensive the law is to evaluate."""

MOST_UNITS = 1000
"""Discrete losses with more values than this need no lattice through all of them: each has little mass."""

FOLLOWED = 1000.0
"""Losses up to this size are followed to the tolerance, larger ones to as much more as they are larger: a lattice that
follows a loss of 10,000 to 1e-6 has millions of points."""

NO_ERROR = 1e-14
"""Largest total error of losses of which nothing but the mass at infinity is kept."""

NOTHING_TOLD = DiscreteLaw(np.zeros(1), np.ones(1), np.ones(1))
ALL_TOLD = DiscreteLaw(np.array([-np.inf, np.inf]), np.array([1.0, 0.0]), np.array([0.0, 1.0]))

COARSE = 100.0
"""If the lattice stays this many times coarser than the tolerance, large losses are composed apart from small ones."""


def composed_law(parts: Sequence[tuple[LossLaw, int]], *, tolerance: float = 1e-6, most_points: int = 2**20) -> LossLaw:
    """The law of all losses together: each law and how many independent losses have it.

    Closed forms where the laws have them. Otherwise every loss is put on a lattice twice (leaking provably
    more, and less), its law raised to its power by FFT under several exponential tilts (so that small tails
    keep relative accuracy), and the lattice refined until the two profiles agree within ``tolerance``,
    ``most_points`` is reached or a finer one would be too much work. The law returned is the one that leaks
    more. [koskela2020; doroshenko2022] Where that stays coarse, rare large losses are composed apart from the rest.

    Proved: discretisation and truncation, and of the parts only what their own certificates prove: a one-sided
    bound stays one-sided, and an estimate proves nothing. Estimated: the FFT's rounding errors.
    """
    for _, times in parts:
        require("times", times == int(times) and times >= 1, "an integer >= 1", times)
    require("tolerance", tolerance > 0, "> 0", tolerance)
    return _composed(_merged([(law, int(times)) for law, times in parts]), tolerance, most_points)


def _composed(laws: Sequence[tuple[LossLaw, int]], tolerance: float, most_points: int) -> LossLaw:
    """Law of the sum of all losses, for laws that are merged already."""
    if len(laws) == 1 and laws[0][1] == 1:
        return laws[0][0]
    exact = _all_outcomes(laws)
    if exact is not None:
        return exact
    total = sum(times for _, times in laws)
    spans = [reach(law, MASS_LEFT_OUT / total) for law, _ in laws]
    # What tells the two sides apart never, or all at once, needs no lattice.
    widths = [max(span.lower, span.upper) for span in spans]
    if min(widths) == 0:
        silent = [
            w == 0 and (n * law.error <= NO_ERROR or max(widths) == 0) for (law, n), w in zip(laws, widths, strict=True)
        ]
        if any(silent):
            return _beside(laws, silent, tolerance, most_points)
    times = [n for _, n in laws]
    largest = max(widths)
    tolerance *= max(1.0, largest / FOLLOWED)
    first = spacing = _fitting(largest / 2**11, laws)
    finest = _fitting(_finest(laws, spans), laws)
    plan = None
    while True:
        pairs = [discretise(law, span, spacing) for (law, _), span in zip(laws, spans, strict=True)]
        parts_safe = lattice_parts([pair.safe for pair in pairs], times, spacing)
        if any(np.isneginf(part.log_masses).all() for part in parts_safe):
            return _everything(laws)
        if plan is None:
            plan = planned_windows(parts_safe)
            widest = sum(stretch.high - stretch.low for stretch in plan) / most_points
            if widest > 2 * spacing:
                # Far more points than single losses need: perhaps a coarser lattice does.
                spacing = _fitting(widest, laws)
                continue
        safe = summed_parts(parts_safe, plan)
        leaked = _leaked([law for law, _ in laws], spans, times, spacing, plan, pairs)
        gap, points = _gap(safe, leaked), len(safe.losses)
        if gap <= tolerance or (2 * points > most_points and spacing <= first) or spacing <= finest:
            break
        if spacing > first:
            spacing = max(first, finest)
            continue
        # The gap falls with the square of the spacing.
        finer = np.clip(1.25 * np.sqrt(gap / tolerance), 1.5, min(16.0, most_points / points))
        spacing = max(_fitting(spacing / finer, laws), finest)
    known = [sides(law)[1] for law, _ in laws]
    apart = _jumps_apart(laws, tolerance, most_points) if gap > COARSE * tolerance else None
    if apart is not None and apart.error < gap:
        return apart
    if any(one is not law for one, (law, _) in zip(known, laws, strict=True)):
        found = [law for law in known if law is not None]
        leaked = _leaked(found, spans, times, spacing, plan) if len(found) == len(known) else None
    return _certified(safe, leaked, gap, laws)


def _beside(laws: Sequence[tuple[LossLaw, int]], silent: Sequence[bool], tolerance: float, most_points: int) -> LossLaw:
    """Composition of all other laws, mixed with what the ``silent`` losses reveal: everything, or nothing."""
    revealing = list(itertools.compress(laws, silent))
    rest = [part for part, one in zip(laws, silent, strict=True) if not one]
    error = sum(times * law.error for law, times in revealing)
    if rest:
        composed = _composed(rest, tolerance, most_points)
    else:
        closed = all(law.certificate is None for law, _ in revealing)
        certificate = None if closed else estimate("the composed laws", error)
        composed = dataclasses.replace(NOTHING_TOLD, error=error, certificate=certificate)
    with np.errstate(divide="ignore"):
        revealed = float(-np.expm1(sum(times * np.log1p(-_at_infinity(law)) for law, times in revealing)))
    return MixtureLaw((composed, ALL_TOLD), (1 - revealed, revealed)) if revealed else composed


def _at_infinity(law: LossLaw) -> float:
    """Probability that the output reveals everything, in the direction in which it is larger."""
    return max(float(hockey_stick(one, np.array([FAR]))[0]) for one in (law, reverse(law)))


def _everything(laws: Sequence[tuple[LossLaw, int]]) -> DiscreteLaw:
    """The law of a composition that may reveal everything: one part has no loss within the lattice's range."""
    return _certified(ALL_TOLD, None, 1.0, laws)


def _jumps_apart(laws: Sequence[tuple[LossLaw, int]], tolerance: float, most_points: int) -> LossLaw | None:
    """Law of the sum with small and large losses composed on separate lattices; None if no law can be cut in two."""
    bodies = [body_of(law, times) for law, times in laws]
    small = [(body, times) for body, (_, times) in zip(bodies, laws, strict=True) if body is not None]
    if not small:
        return None
    large = [(law if body is None else JumpLaw(body), times) for body, (law, times) in zip(bodies, laws, strict=True)]
    inner = composed_law(small, tolerance=tolerance, most_points=4 * most_points)
    # A sum of losses is smooth, and few points do: the gap that is left is that of the small losses.
    return composed_law([(inner, 1), *large], tolerance=tolerance / 100, most_points=most_points // 4)


def _finest(laws: Sequence[tuple[LossLaw, int]], spans: Sequence[Reach]) -> float:
    """Smallest spacing at which putting each loss on the lattice is still affordable."""
    room = [max(FEWEST_POINTS, MOST_WORK // law.work) for law, _ in laws]
    return max((span.lower + span.upper) / points for span, points in zip(spans, room, strict=True))


def _leaked(
    laws: Sequence[LossLaw],
    spans: Sequence[Reach],
    times: Sequence[int],
    spacing: float,
    plan: Plan,
    pairs: Sequence[LatticePair] | None = None,
) -> DiscreteLaw:
    """Composition that provably leaks no more than the laws do: each is put on the lattice so that it leaks less."""
    parts, moved = [], 0.0
    for i, (law, span, n) in enumerate(zip(laws, spans, times, strict=True)):
        if isinstance(law, JumpLaw):
            jumps = rounded(law, span, spacing)
            moved += n * jumps.moved
            found = LatticePart(
                first=jumps.first,
                log_masses=jumps.log_masses,
                times=n,
                spacing=spacing,
                lost=(0.0, 0.0),
                offset=jumps.offset,
            )
            parts.append(found)
        else:
            pair = discretise(law, span, spacing) if pairs is None else pairs[i]
            parts += lattice_parts([pair.leaked], [n], spacing)
    found = summed_parts(parts, plan)
    return lowered(found, moved) if moved else found


def _merged(laws: list[tuple[LossLaw, int]]) -> list[tuple[LossLaw, int]]:
    """The different laws with their counts, after applying the closed forms of composition."""
    shifts: list[float] = []
    merged: dict[int, tuple[LossLaw, int]] = {}
    for law, times in laws:
        if isinstance(law, GaussianLaw) and law.rate == 1:
            shifts.append(law.mu * math.sqrt(times))
            continue
        before = merged.get(id(law), (law, 0))[1]
        merged[id(law)] = (law, before + times)
    # squares would underflow or overflow
    result: list[tuple[LossLaw, int]] = [(GaussianLaw(mu=math.hypot(*shifts)), 1)] if any(shifts) else []
    for law, times in merged.values():
        closed = law.compose(times) if times > 1 else None
        result.append((law, times) if closed is None else (closed, 1))
    return result


def _all_outcomes(laws: Sequence[tuple[LossLaw, int]]) -> DiscreteLaw | None:
    """The exact law of the sum if every loss is discrete and the sums take few different values, else None."""
    result = None
    for law, times in laws:
        if not isinstance(law, DiscreteLaw) or law.certificate is not None or law.smallest_delta:
            return None
        for _ in range(times if len(law.losses) > 1 else 1):
            result = law if result is None else _both(result, law)
            if len(result.losses) > MOST_OUTCOMES:
                return None
    return result


def _both(first: DiscreteLaw, second: DiscreteLaw) -> DiscreteLaw:
    """Two independent discrete losses as one; sums that agree to twelve digits are joined."""
    with np.errstate(invalid="ignore"):
        sums = np.add.outer(first.losses, second.losses).ravel()
    # -inf + inf has no mass on either side.
    sums = np.where(np.isnan(sums), 0.0, sums)
    order = np.argsort(sums)
    sums = sums[order]
    finite = np.isfinite(sums)
    close = np.diff(np.where(finite, sums, 0.0)) <= 1e-12 * (1 + np.abs(np.where(finite, sums, 0.0)[:-1]))
    same = (sums[1:] == sums[:-1]) | (finite[1:] & finite[:-1] & close)
    new = np.append(True, ~same)
    starts = np.flatnonzero(new)
    masses = [
        np.add.reduceat(np.multiply.outer(a, b).ravel()[order], starts)
        for a, b in ((first.without, second.without), (first.with_record, second.with_record))
    ]
    held = (masses[0] > 0) | (masses[1] > 0)
    return DiscreteLaw(sums[starts][held], masses[0][held], masses[1][held], first.error + second.error + 1e-15)


def _fitting(spacing: float, laws: Sequence[tuple[LossLaw, int]]) -> float:
    """A lattice that passes through all of a few losses, else through the largest: then their atoms are not smeared.

    Losses below the spacing are not met: a lattice as fine as the smallest one would have any number of points.
    """
    supports = [law.support for law, _ in laws]
    ends = [abs(end) for support in supports if support is not None for end in support]
    units = [unit for unit in (_unit(law) for law, _ in laws) if unit is not None]
    met = next((loss for loss in (*units, *ends) if spacing <= loss < np.inf), None)
    return spacing if met is None else met / np.ceil(met / spacing)


def _unit(law: LossLaw) -> float | None:
    """The number of which all of a few losses are whole multiples; None if there is none."""
    if not isinstance(law, DiscreteLaw) or len(law.losses) > MOST_UNITS:
        return None
    sizes = np.sort(np.abs(law.losses[np.isfinite(law.losses)]))
    steps = np.diff(sizes, prepend=0.0)
    unit = float(np.min(steps, where=steps > 1e-9 * sizes, initial=np.inf))
    whole = np.rint(sizes / unit)
    return unit if unit < np.inf and np.all(np.abs(sizes / unit - whole) <= 1e-9 * whole) else None


def _gap(safe: DiscreteLaw, leaked: DiscreteLaw) -> float:
    """Largest difference of the two profiles at the lattice points, in either direction."""
    eps = safe.losses[1:-1]

    def profiles(law: DiscreteLaw) -> Array:
        forward, backward = hockey_stick(law, eps[eps >= 0]), hockey_stick(reverse(law), -eps[eps < 0])
        return np.concatenate([backward, forward])

    return float(np.max(profiles(safe) - profiles(leaked), initial=0.0))


def _certified(
    safe: DiscreteLaw, leaked: DiscreteLaw | None, gap: float, laws: Sequence[tuple[LossLaw, int]]
) -> DiscreteLaw:
    """The law that leaks more, with its error and certificate."""
    found = [law for law in (safe, leaked) if law is not None]
    drift = max(abs(1 - float(np.sum(side))) for law in found for side in (law.without, law.with_record))
    total = sum(times for _, times in laws)
    rounded = max(drift, 2e-16 * total + 1e-15)
    round_off = rounded + sum(times * _unproved(law) for law, times in laws)
    error = gap + rounded + sum(times * law.error for law, times in laws)
    floor = sum(times * law.smallest_delta for law, times in laws)
    certificate = _certificate(safe, leaked, gap, laws, round_off)
    return dataclasses.replace(safe, error=error, certificate=certificate, smallest_delta=floor)


def _unproved(law: LossLaw) -> float:
    """The part of a law's error that may lie on either side; for a law proved to leak more, only its rounding."""
    certificate = law.certificate
    return law.error if certificate is None or certificate.safe is None else certificate.round_off


def _certificate(
    safe: DiscreteLaw,
    leaked: DiscreteLaw | None,
    gap: float,
    laws: Sequence[tuple[LossLaw, int]],
    round_off: float,
) -> Certificate:
    """Certificate of a composition: a side is proved if every part proves it."""
    given = [law.certificate for law, _ in laws if law.certificate is not None]
    guessed = dict.fromkeys(certificate.estimated for certificate in given)
    rounding = f"rounding errors of the transforms and of the composed laws, about {round_off:.1e}"
    estimated = "; ".join([rounding, *guessed])
    below = all(sides(law)[0] is not None for law, _ in laws)
    if not below and leaked is None:
        return estimate(f"the composed laws; {estimated}", gap + round_off)
    lattice = f"discretisation and truncation: delta is known within {at_most(gap, '.2g')} at every epsilon"
    if given:
        lattice = f"discretisation and truncation, which move delta by at most {at_most(gap, '.2g')}"
    return Certificate(
        proved="; ".join(dict.fromkeys([lattice, *(certificate.proved for certificate in given)])),
        estimated=estimated,
        round_off=round_off,
        safe=safe if below else None,
        leaked=leaked,
    )
