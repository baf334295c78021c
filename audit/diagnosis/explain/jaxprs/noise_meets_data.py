"""Where noise meets data: a release, noise that is scaled by data, or something that is not followed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from audit.diagnosis.explain.findings import Finding
from audit.diagnosis.explain.jaxprs.facts import Idle, Mixed, Open, Release, Resized, Scaled
from audit.diagnosis.explain.jaxprs.joint_releases import Together
from audit.diagnosis.explain.jaxprs.key_pairs import Pair
from audit.diagnosis.explain.jaxprs.labels import PRODUCTS
from audit.diagnosis.explain.jaxprs.noise import (
    MIXES_NOISE,
    MOVES,
    SUMS,
    effective,
    repeats,
    resized_by,
    rounds,
    sources_after,
    terms_after,
    variance_after,
)
from audit.diagnosis.explain.jaxprs.value import COUNT, DRAWN, Value, close, host
from audit.diagnosis.explain.missing_noise import EARLIER, without_noise
from audit.diagnosis.explain.places import NOWHERE, Place, Reader, among_records, goes_on, statement_around
from audit.diagnosis.explain.sentences import RELEASE, changed_after_release, noise_scale, too_few_numbers
from audit.diagnosis.explain.sentences import mixed as found_mixed
from mechanisms.adapters.noise_terms import bare, lacking

COINCIDENCES = 24
"""Numbers of an unknown law, such as rounded ones, in which two draws must agree before they are called the same."""
FEWEST = {np.dtype(np.float16): 3, np.dtype(jnp.bfloat16): 4}
"""The same of continuous numbers that are kept in few bits."""
FEWEST_ROUNDED = 4
"""The same of numbers that are rounded to a fine grid."""
FEWEST_ALIKE = 3
"""Coordinates in which two draws must be proportional before they are called the same."""
AGAIN = 1e-4
"""Share of the largest entry up to which what is added again is the same."""
LATEST = ("origin", "lost", "nonlinear", "weights", "longer", "cut", "bent", "bends", "gain")
PASSED_ON = (*LATEST, "kept", "filled", "doubled", "unclipped", "way", "summed", "summed_by", "carried", "joined_again")
"""What a release knows of the value that it covers; of what more records are added to, the latest tell the first."""
OTHER_ROWS = "rows cannot be compared, since batches are drawn or ordered otherwise with the record than without it"
OTHER_BATCH = "its batch is drawn or ordered differently on the two sides"


@dataclasses.dataclass(eq=False)
class Meetings:
    """All places of one run where noise met data."""

    find: Callable[[Finding], None]
    same_noise: Callable[[Pair, Release, Release], None]
    too_few: Callable[[Finding, str, frozenset[int]], None]
    readers: set[Reader] = dataclasses.field(default_factory=set)
    """Functions of the user's that were running while records were read."""
    releases: list[Release] = dataclasses.field(default_factory=list)
    together: Together = dataclasses.field(default_factory=Together)
    inside: Place | None = None
    """The branch that is run."""
    larger_alone: bool = False
    """Whether the side with more records runs alone."""
    held: frozenset[int] = frozenset()
    """Draws of noise that a loop holds and does not carry on, as in weights at which it takes gradients."""
    unfollowed: list[tuple[str, Place]] = dataclasses.field(default_factory=list)
    idle: dict[Idle, None] = dataclasses.field(default_factory=dict)
    by_count: dict[Finding, Place] = dataclasses.field(default_factory=dict)
    """That the number of records scales noise, which as many more numbers may make up for, and where it does."""
    _drawn: list[tuple[np.ndarray, Release]] = dataclasses.field(default_factory=list)
    _added: list[tuple[Sequence[np.ndarray], Release, Open]] = dataclasses.field(default_factory=list)
    """Noise and data with their signs, and what they became."""

    def meet(
        self,
        name: str,
        params: dict[str, Any],
        primitive: Any,
        out: Value,
        ins: Sequence[Value],
        which: int,
        path: tuple[Any, ...],
    ) -> Value:
        """The result of an equation that reads noise, or a release that more noise may reach."""
        out.open = self.together.carry(name, params, primitive, out, ins, which)
        if name in SUMS and out.differs and self._adds_earlier_batch(ins):
            out.carried = out.carried or out.at
            out.joined_again = out.joined_again or all(value.differs for value in ins)
        if name == "add" and (more := self._more_records(out, ins)) is not None:
            return more
        if name == "reduce_sum" and (rows := ins[0]).beside is not None and rows.tag is not None:
            beside = rows.beside if rows.tag.axis in params["axes"] and np.shape(out.a) == np.shape(out.b) else None
            return out if beside is None else self._among_rows(params, primitive, out, beside, path)
        if not out.noise:
            return out
        noisy = [value for value in ins if value.noise]
        data = [value for value in ins if not value.noise and value.data]
        rows = out.tag is not None and any(value.values or value.tag is not None for value in ins)
        rows = rows or (out.alone is not None and any(frozenset() < one.drawn <= self.held for one in noisy))
        if rows and data:
            out.noise, out.blurred = False, True
            along = name == "concatenate" and out.tag is not None and params["dimension"] == out.tag.axis
            out.beside = noisy[0] if along and len(noisy) == 1 else None
            return out
        if name in SUMS and data and len(noisy) == 1 and np.shape(out.a) == np.shape(out.b):
            return self._release(out, data[0], noisy[0], path, minus=ins[1] if name == "sub" else None)
        # data times a release that got more noise, as weights do, are data that later noise covers
        if data and not (name in PRODUCTS and name != "dot_general" and len(noisy) == 1 and noisy[0].open is None):
            out.noise, out.blurred = False, True
            return out
        differing = [value for value in data if value.differs]
        if differing and out.scaled is None:
            out.scaled = Scaled(out.at or NOWHERE, differing[0].since, _what(differing[0]))
        out.values = False
        terms = [value.terms if value.noise else None for value in ins]
        if noisy and all(value.terms is not None for value in noisy):
            out.terms = terms_after(name, params, primitive, ins, terms, which, np.shape(out.a))
        out.variance = (
            variance_after(name, params, primitive, ins, which, np.shape(out.a))
            if out.terms is None
            else out.terms.variance
        )
        if out.variance is not None and not np.any(out.variance):
            # times zero: a constant, which covers nothing
            zeros = [one.at for one in ins if not one.noise and one.at is not None and not np.any(host(one.a))]
            out.noise, out.muted = False, zeros[0] if zeros else out.at
            return out
        out.guessed = any(value.guessed for value in noisy)
        out.fewest = max(FEWEST_ROUNDED if rounds(name, params, ins) else 1, *map(_fewest, (out, *noisy)))
        out.resized = next((value.resized for value in noisy if value.resized is not None), None)
        if len(noisy) == 1 and (resized := resized_by(name, out, noisy[0], ins)) is not None:
            out.resized = resized
        before = noisy[0].variance if len(noisy) == 1 else None
        kept = before is None if name == "convert_element_type" else name in MOVES
        if out.variance is None and not kept:
            # what comes after a change of the law may make the deviation right again
            out.resized = (
                None if before is None else Resized(out.at or NOWHERE, float(np.sqrt(np.mean(before))), None, True)
            )
        if out.terms is None:
            out.sources = sources_after(name, params, primitive, ins, which, np.shape(out.a))
        out.correlated = self._may_depend(name, out, noisy)
        before = next((value.repeated for value in noisy if value.repeated is not None), None)
        # what is broadcast was drawn in too small a shape
        here = out.draw if name == "broadcast_in_dim" else out.at
        out.repeated = before or (here if repeats(name, ins, out) else None)
        fresh = [value for value in noisy if value.open is None]
        if name in SUMS and out.variance is not None and out.open is not None and fresh:
            # noise that is added to a release covers it, too, unless data come later and need it themselves
            (own,) = fresh
            sign = -1.0 if name == "sub" and own is ins[1] else 1.0
            terms = None if own.terms is None else own.terms.scaled(np.full(np.shape(out.a), sign))
            more = self.together.opened(np.shape(out.a), own.variance, of=terms, draws=own.drawn)
            out.open = self.together.joined(out.open, more)
        return out

    def _may_depend(self, name: str, out: Value, noisy: Sequence[Value]) -> bool:
        """Whether coordinates of noise may depend on one another in a way that is not followed."""
        if any(value.correlated for value in noisy):
            return True
        if out.terms is not None or (out.sources is not None and out.sources.plain):
            return False
        again = len(noisy) == 2 and bool(noisy[0].drawn & noisy[1].drawn)
        return again or name in MIXES_NOISE

    def _more_records(self, out: Value, ins: Sequence[Value]) -> Value | None:
        """More records are added where noise met the first ones: a sum that began as noise; None where it is none."""
        held, data = sorted(ins, key=lambda value: value.data)
        if not held.calm or held.open is None or not data.data or data.noise or data.released or data.blurred:
            return None
        if held.at != out.at or np.shape(held.a) != np.shape(out.a) or not self.together.unseen(held.open):
            return None
        (release,) = held.open.releases
        if None not in (data.origin, release.origin) and data.origin != release.origin:
            # something else that is added on the same line
            return None
        # what one side alone adds is no difference of its own
        moved = -host(data.b).astype(np.float64) if self.larger_alone else _difference(data)
        if np.any(moved):
            release.moved, release.taken = release.moved + moved, release.taken + host(data.b)
            for name in LATEST:
                setattr(release, name, getattr(data, name))
        if data.mixed is not None and data.differs:
            self._mixing(release, data.mixed)
        self.together.passed(held.open, changed_after_release(out.at or NOWHERE, data.origin or COUNT, self.readers))
        opened = self.together.opened(np.shape(out.a), release.variance, of=release)
        value = held.a if self.larger_alone else out.a
        return dataclasses.replace(held, a=value, b=value, open=opened)

    def _adds_earlier_batch(self, ins: Sequence[Value]) -> bool:
        """Whether a sum over a batch meets one of earlier batches that was released before, here without its noise."""
        if not all(value.values and value.drawn and not value.noise for value in ins):
            return False
        earlier, later = sorted((value.drawn for value in ins), key=max)
        return max(earlier) < max(later) and any(earlier <= release.choosing for release in self.releases)

    def _release(
        self, out: Value, data: Value, noise: Value, path: tuple[Any, ...], minus: Value | None = None
    ) -> Value:
        at, draw = out.at or NOWHERE, noise.draw or NOWHERE
        known = noise.variance is not None
        drawn = host(noise.a).astype(np.float64)
        variance = (
            np.asarray(noise.variance, np.float64)
            if known
            else np.full(drawn.shape, np.var(drawn, ddof=min(1, drawn.size - 1)))
        )
        shape = np.shape(out.a)
        moved = np.broadcast_to(_difference(data), shape)
        before = self.together.without_later_noise(out.open, noise.open)
        signed = [-part if one is minus else part for one, part in ((noise, drawn), (data, moved))]
        if (again := self._again(signed, data, noise, (*path, 1 + data.released))) is not None:
            opened = self.together.joined(before, again)
            return Value(a=out.a, b=out.a, at=at, random=True, released=1 + data.released, open=opened)
        terms = None if noise.terms is None else noise.terms.scaled(np.full(shape, -1.0 if noise is minus else 1.0))
        depends = terms is not None and (noise.repeated is not None or drawn.size < moved.size)
        blocks = terms.covariance() if terms is not None and depends else ()
        # a direction that neither this record nor the others take, as where all are centred, needs no noise
        taken = signed[1], (-1.0 if data is minus else 1.0) * np.broadcast_to(host(data.b).astype(np.float64), shape)
        without = max(lacking(bare(one, blocks or ())) for one in taken)
        correlated = noise.correlated or blocks is None or np.iscomplexobj(out.a)
        release = Release(
            at=at,
            draw=draw,
            round=(*path, 1 + data.released),
            first=data.released == 0,
            moved=taken[0],
            taken=taken[1],
            variance=np.broadcast_to(variance, shape),
            exact=known and not noise.guessed,
            blocks=() if without else blocks or (),
            terms=terms,
            resized=noise.resized,
            drawn=0.0 if known else max(1.0, effective(drawn) - 1),
            unknown=_unknown(data, correlated=correlated),
            correlated=correlated,
            inside=self.inside,
            sampled=data.random,
            covering=noise.drawn,
            choosing=data.drawn,
            **{name: getattr(data, name) for name in PASSED_ON},
        )
        self.releases.append(release)
        idle = (told for told in (data.idle, noise.idle) if told is not None and told.meets != RELEASE)
        self.idle.update(dict.fromkeys(idle))
        self._facts(release, data, noise, drawn)
        if without or (terms is None and drawn.size < moved.size):
            self._lacks(release, noise, without)
        own = self.together.opened(shape, release.variance, of=release)
        self._added.append((signed, release, own))
        opened = self.together.joined(before, own)
        return Value(a=out.a, b=out.a, at=at, random=True, released=1 + data.released, open=opened, opaque=None)

    def _again(self, signed: Sequence[np.ndarray], data: Value, noise: Value, number: tuple[Any, ...]) -> Open | None:
        """An earlier release, times a number, if this is the same noise on the same data again: it tells no more."""
        for earlier, other, opened in self._added:
            same = (other.covering, other.origin) == (noise.drawn, data.origin)
            same = other.round == number and (same or other.is_given_again(noise.terms, data.gain))
            if not same or any(np.shape(one) != np.shape(two) for one, two in zip(signed, earlier, strict=True)):
                continue
            times = np.vdot(earlier[0], signed[0]) / np.vdot(earlier[0], earlier[0])
            if all(close(times * one, two, AGAIN) for one, two in zip(earlier, signed, strict=True)):
                other.drawn_again(noise.drawn)
                return Open(opened.releases, opened.coordinates and opened.coordinates.scaled(times))
        return None

    def _among_rows(
        self, params: dict[str, Any], primitive: Any, out: Value, beside: Value, path: tuple[Any, ...]
    ) -> Value:
        """Records are summed together with noise that stands among them as one more row."""
        shape, summed = np.shape(out.a), np.sum(host(beside.a), axis=params["axes"])
        terms = None if beside.terms is None else beside.terms.summed(params["axes"])
        variance = variance_after("reduce_sum", params, primitive, [beside], 0, shape)
        noise = dataclasses.replace(beside, a=summed, b=summed, terms=terms, variance=variance)
        return self._release(out, dataclasses.replace(out, drawn=out.drawn - beside.drawn), noise, path)

    def _facts(self, release: Release, data: Value, noise: Value, drawn: np.ndarray) -> None:
        if (scaled := noise.scaled) is not None:
            origin = scaled.since or among_records(scaled.at, self.readers)
            told = noise_scale(origin, at=scaled.at, draw=release.draw, what=scaled.what)
            self.by_count.setdefault(told, scaled.at) if scaled.what == COUNT else self.find(told)
        if (apart := data.uncoupled or data.displaced) is not None:
            self.unfollowed.append((OTHER_ROWS, apart))
        elif data.differs and data.mixed is not None:
            self._mixing(release, data.mixed)
        fewest = COINCIDENCES if noise.terms is None else max(_fewest(noise), _fewest(data))
        for earlier, other in self._drawn:
            # what tells no more than another release is none
            beside = (other.origin, other.round) == (release.origin, release.round)
            if _alike(earlier, drawn, fewest) and (beside or not np.array_equal(other.moved, release.moved)):
                rounds = list(dict.fromkeys(one.round for one in self.releases))
                numbers = [1 + rounds.index(one.round) for one in (other, release)]
                how = "" if len(set(numbers)) == 1 else f"rounds {numbers[0]} and {numbers[1]}"
                added = release.at if other.covering & release.covering else None
                pair = Pair(first=other.draw, second=release.draw, how=how, copied=noise.copied, added=added)
                self.same_noise(pair, other, release)
        self._drawn.append((drawn, release))

    def out_of_line(self, at: Place) -> None:
        """Nothing is judged: where rows stand matters, and the record moves others."""
        self.unfollowed.append((OTHER_ROWS, at))
        for release in self.releases:
            release.unknown = release.unknown or OTHER_BATCH

    def _lacks(self, release: Release, noise: Value, without: int) -> None:
        """Numbers of noise that stand in so many coordinates that some directions are left without."""
        numbers = release.moved.size - without if without else np.size(noise.a)
        how = f"{'one number' if numbers == 1 else f'{numbers} numbers'} for {release.moved.size} coordinates"
        at = noise.repeated or release.draw
        finding = too_few_numbers(first=release.draw, second=release.at, how=how, shared=at)
        self.too_few(finding, how, release.covering)
        self.together.apart.add(release)

    def _mixing(self, release: Release, mixed: Mixed) -> None:
        noisy = next((one for one in self.releases if one.at == release.at and _covers(one, mixed.shape)), release)
        if (bare := _round_without_noise(noisy, mixed)) is not None:
            self.find(bare)
            release.unknown = release.unknown or "raw data reached an earlier release"
        elif mixed.leak is not None:
            leak = mixed.leak
            self.find(changed_after_release(leak.at, leak.origin, self.readers, read=leak.read))
            release.unknown = release.unknown or "raw data reached an earlier release"
        else:
            self.find(found_mixed(at=mixed.at, through=mixed.through))
            release.unknown = release.unknown or "records are mixed"


def _round_without_noise(release: Release, mixed: Mixed) -> Finding | None:
    """That an earlier round had no noise, if records are changed by the sum that they are summed into again."""
    origin, through = release.origin, mixed.through
    if not isinstance(through, Place):
        return None
    if mixed.muted is not None:
        return without_noise(EARLIER, through, muted=mixed.muted)
    if not mixed.clipped or not isinstance(origin, Place) or origin.own != through.own:
        return None
    inside = branch_of(release)
    unused = inside is NOWHERE and _covers(release, mixed.shape)
    left = goes_on(release.at, mixed.way, release.way) if unused else NOWHERE
    return without_noise(EARLIER, through, release.at, left, inside=inside)


def _covers(release: Release, shape: tuple[int, ...]) -> bool:
    """Whether noise is added to a sum of this shape, or to one vector of which it may be a part."""
    moved = release.moved
    return moved.shape == shape or (moved.ndim == 1 and moved.size > math.prod(shape))


def branch_of(release: Release) -> Place:
    """The condition that decides whether noise is added; NOWHERE where none does."""
    if release.inside is not None:
        return release.inside
    chosen = (statement_around(Place(own=(frame,)), loops=False) for frame in release.at.own)
    return next((place for place in chosen if place.own), NOWHERE)


def _difference(data: Value) -> np.ndarray:
    """By how much the record moves a value; a number that is none on one side has gone any way."""
    one, other = host(data.a).astype(np.float64), host(data.b).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.nan_to_num(one - other, nan=np.inf))


def _unknown(data: Value, *, correlated: bool) -> str | None:
    if data.uncoupled is not None or data.displaced is not None:
        return OTHER_BATCH
    return "its noise is correlated" if correlated else None


def _what(scale: Value) -> str:
    """What a number that scales noise depends on."""
    if isinstance(scale.origin, str):
        return scale.origin
    return "the records" if scale.values else DRAWN if scale.random else COUNT


def _fewest(value: Value) -> int:
    """Numbers in which two draws must agree, of those that passed through few bits on their way."""
    bits = value.a.dtype
    return max(value.fewest, COINCIDENCES if bits.itemsize == 1 else FEWEST.get(bits, 1))


def _alike(one: np.ndarray, other: np.ndarray, fewest: int) -> bool:
    """Whether two arrays of noise are the same draw, scaled or cut; of fewer numbers that may be chance."""
    size = min(one.size, other.size)
    left, right = one.ravel()[:size], other.ravel()[:size]
    if size < fewest:
        return False
    if np.array_equal(left, right):
        return bool(np.any(left))
    # noise times zero is no noise and no copy of another, and one number in every coordinate is like any other one
    if len(np.unique(left)) < FEWEST_ALIKE or not (np.all(left) and np.all(right)) or not np.all(np.isfinite(left)):
        return False
    ratio = right / left
    return bool(np.all(np.abs(ratio - ratio[0]) <= 1e-4 * abs(ratio[0])))
