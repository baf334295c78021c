"""One value of a program on both sides, and what it is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from audit.diagnosis.explain.jaxprs import facts
from audit.diagnosis.explain.jaxprs.key_words import is_key, words_of
from audit.diagnosis.explain.places import NOWHERE, Place
from audit.diagnosis.explain.wrong_lengths import Number
from mechanisms.adapters.noise_terms import Terms

COUNT = "the number of records"
DRAWN = "the number of records in the batch"
"""Where a difference comes from that no record's values make."""
ROUNDING = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 2e-5, np.dtype(np.float16): 4e-3}
ROUNDING[np.dtype(jnp.bfloat16)] = 3e-2
"""Share of an array's largest entry up to which a difference is rounding: the two sides sum in different orders."""


@dataclasses.dataclass(frozen=True)
class Tag:
    """The axis along which records lie, and the slots in which the two sides may differ."""

    axis: int
    slots: frozenset[int]
    padding: frozenset[int] = frozenset()
    """Slots of the smaller side that hold padding which the larger side fills otherwise."""
    groups: int | None = None
    """The axis of groups into which records were cut; records lie inside of them."""
    places: frozenset[tuple[int, int]] = frozenset()
    """Groups, and the slots in each of them, in which the two sides may differ."""
    fold: int = 1
    """Slots that each record has, one after the other: ``vmap`` puts records among the channels of a convolution."""

    def folded(self, axis: int, fold: int) -> Tag:
        """The same records along another axis, with so many slots each."""
        slots, padding = (
            frozenset(slot // self.fold * fold + own for slot in part for own in range(fold))
            for part in (self.slots, self.padding)
        )
        return Tag(axis, slots, padding, fold=fold)

    def in_group(self, number: int) -> frozenset[int]:
        """The slots of one group."""
        return frozenset(slot for group, slot in self.places if group == number)


@dataclasses.dataclass(eq=False, kw_only=True, slots=True)
class Value:
    """A value on both sides; ``b`` is ``a`` itself where they do not differ."""

    a: Any
    b: Any
    public: bool = False
    """Computed of the program's own numbers alone, and no key."""
    values: bool = False
    """Depends on what records hold."""
    random: bool = False
    """Depends on the key."""
    noise: bool = False
    """Continuous randomness that no record touches: what it is added to is covered."""
    variance: np.ndarray | None = None
    guessed: bool = False
    """Whether the variance was estimated from draws."""
    fewest: int = 1
    """Numbers of this noise in which two draws must agree before they are called the same."""
    correlated: bool = False
    terms: Terms | None = None
    """Noise as a linear map of independent numbers, where that is known."""
    sources: Terms | None = None
    """Which independent numbers each coordinate of noise is made of, in whatever way, where that is known."""
    repeated: Place | None = None
    """Where one number of noise was put into several coordinates."""
    beside: Value | None = None
    """Noise that stands among rows of records as one more of them."""
    draw: Place | None = None
    resized: facts.Resized | None = None
    scaled: facts.Scaled | None = None
    tag: Tag | None = None
    alone: int | None = None
    """The number of the record that it belongs to, where a loop takes one after the other."""
    summed: bool = False
    """A sum over records, for certain."""
    summed_by: float = 0.0
    drawn: frozenset[int] = frozenset()
    """Draws that it is made of, by their numbers; a release begins anew."""
    by_row: tuple[int, ...] = ()
    """Which of them each row is made of, where keys that are alike drew a row each."""
    carried: Place | None = None
    """Where a sum that was released before, but here without its noise, was added to a later one."""
    joined_again: bool = False
    """Whether the record is in both of them."""
    origin: facts.Origin | None = None
    way: tuple[Place, ...] = ()
    """Where a sum over records went since its origin."""
    read: Place | None = None
    """Where the function that computed a number of the records' first read one."""
    since: Place | None = None
    """Where a number that is none of a record's began to differ; None for constants of the program."""
    lost: Place | None = None
    """Where it became no number with the record; NOWHERE where the record itself holds none."""
    mixed: facts.Mixed | None = None
    nonlinear: Place | None = None
    single: bool = False
    """One number a record, in however many coordinates it stands."""
    made: Place | None = None
    """Where such a number was last computed, other than by differentiation."""
    numbers: tuple[Number, ...] = ()
    """Such numbers that it is made of, from those on that were made of entries of the record, and where."""
    weights: tuple[facts.Weight, ...] = ()
    """Where each part of a record was last multiplied by a number of its own, other than by differentiation."""
    longer: Place | None = None
    """Where the record was last made longer after that."""
    even: tuple[Place, int] | None = None
    """Where one number was repeated along one axis, as in a mask of ones, and that axis."""
    steady: Place | None = None
    """Where a number for each record was made that neither draws nor what records hold decide, such as a mask."""
    kept: Place | None = None
    """The same of one by which the record was multiplied, and which takes it."""
    filled: Place | None = None
    """Where the smaller side got padding in the record's place; of a sum, if that padding counts in it."""
    doubled: Place | None = None
    """Where the record came to stand in more places than before."""
    unclipped: Place | None = None
    """Where something of the record that is not multiplied so was added to what is."""
    cut: Place | None = None
    """Where entries of the record were last bounded one by one."""
    released: int = 0
    """Releases that stand behind it, one after the other."""
    leak: facts.Leak | None = None
    blurred: bool = False
    """Noise reached it in a way that is not followed."""
    uncoupled: Place | None = None
    packed: bool = False
    """Sorted by a choice of two, such as whether a record is taken."""
    shuffled: bool = False
    """Made of an order that is drawn, in which the record may stand anywhere."""
    masks: bool = False
    """A choice for each place of a batch that differs in the record's place alone."""
    displaced: Place | None = None
    """Where rows were picked or cut of which those behind the record stand at other places."""
    opaque: Place | None = None
    fixed: Place | None = None
    """Drawn from a key that is the same in every run: where that key was made."""
    copied: Place | None = None
    """Where one key became several that are alike: keys and draws behind it come from those."""
    muted: Place | None = None
    """Where noise that was added to it, or is to be, was multiplied by zero."""
    hidden: Place | None = None
    """Where a bound or a comparison made both sides equal."""
    idle: facts.Idle | None = None
    choice: Place | None = None
    """Where what records make together became a choice, as by a comparison."""
    spread: Value | None = None
    """What each record, or one of them, was given alike."""
    fixed_noise: tuple[Place, Place] | None = None
    """Where numbers drawn from such a key were added to what records make, and where the key was made."""
    open: facts.Open | None = None
    """Releases of which this is a linear map."""
    bent: facts.Bent | str | None = None
    """Where the record's share began to depend on the other records; COUNT where that is their number's doing."""
    bends: frozenset[facts.Slot] = frozenset()
    """All that was read where it began to."""
    gain: facts.Gain = dataclasses.field(default_factory=lambda: facts.Gain(object()))
    slot: facts.Slot | None = None
    at: Place | None = None

    def draws_from(self, numbers: Sequence[int]) -> None:
        """Take note of draws that it is made of."""
        self.drawn |= frozenset(numbers)
        self.by_row = tuple(numbers) if 1 < len(numbers) == (np.shape(self.a) or (0,))[0] else self.by_row

    @property
    def differs(self) -> bool:
        """Whether the two sides differ."""
        return self.a is not self.b

    @property
    def sized(self) -> bool:
        """Whether the two sides have different shapes."""
        return np.shape(self.a) != np.shape(self.b)

    @property
    def data(self) -> bool:
        """Whether records stand behind it, by their values or by their number."""
        return self.values or self.differs

    @property
    def picked(self) -> bool:
        """Whether a release says which of raw data it is, as in quantiles by the exponential mechanism."""
        return self.leak is not None and self.leak.picked

    @property
    def any_serves(self) -> bool:
        """Whether keys or whole numbers are such that a side without one may be given the other's."""
        whole = is_key(self.b) or jnp.issubdtype(self.b.dtype, jnp.integer)
        return whole and not self.values and self.uncoupled is None and not self.shuffled

    @property
    def calm(self) -> bool:
        """Whether it is released: equal on both sides from noise on."""
        return self.released > 0 and not self.data


def first(found: Iterable[Any]) -> Any:
    """The first that is not None."""
    return next((one for one in found if one is not None), None)


def known(values: Iterable[Value], label: str) -> Any:
    """The first that is not None of what some values have under one label."""
    for value in values:
        found = getattr(value, label)
        if found is not None:
            return found
    return None


def host(array: Any) -> np.ndarray:
    """As NumPy reads it; keys by their words, narrow floats widened."""
    if is_key(array):
        return words_of(array)
    found = np.asarray(array)
    return found.astype(np.float32) if found.dtype.itemsize < 4 and found.dtype in ROUNDING else found


def rounding(array: Any) -> float:
    """The share of an array's largest entry that is rounding; 0 for integers."""
    return ROUNDING.get(array.dtype, 0.0)


def close(one: np.ndarray, other: np.ndarray, tolerance: float, *, each: bool = False) -> bool:
    """Whether two arrays of one shape are equal but for rounding: of the largest entry, or of each by itself."""
    if not tolerance or not one.size:
        return bool(np.array_equal(one, other))
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(one - other))
    if np.isfinite(largest):
        # then so are both arrays; gradients of a network are too many for copies in float64
        near = bool(largest <= tolerance * max(one.max(), -one.min(), other.max(), -other.min()))
        if not near or not each or not largest:
            return near
        return bool(np.all(np.abs(one - other) <= tolerance * np.maximum(np.abs(one), np.abs(other))))
    one, other = one.astype(np.float64), other.astype(np.float64)
    size = max(
        np.max(np.abs(one), initial=0.0, where=np.isfinite(one)),
        np.max(np.abs(other), initial=0.0, where=np.isfinite(other)),
    )
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= tolerance * size
    return bool(np.all(near | (one == other) | (np.isnan(one) & np.isnan(other))))


def outside(a: np.ndarray, b: np.ndarray, tag: Tag) -> tuple[np.ndarray, np.ndarray]:
    """Both sides without the slots of the differing record, which the smaller side does not have, and padding."""
    slots = sorted(tag.slots)
    size = b.shape[tag.axis]
    if tag.padding:
        return np.delete(a, sorted(tag.padding), tag.axis), np.delete(b, slots, tag.axis)
    if slots == list(range(size - len(slots), size)):
        # the last ones are left out by a view, and not by a copy
        kept = (slice(None),) * tag.axis + (slice(0, size - len(slots)),)
        return (a if a.shape != b.shape else a[kept]), b[kept]
    return (a if a.shape != b.shape else np.delete(a, slots, tag.axis)), np.delete(b, slots, tag.axis)


def has_rows(value: Value, part: Value, axis: int) -> bool:
    """Whether all rows of a part are rows of a value, on each side."""
    for own, rows in ((part.a, value.a), (part.b, value.b)):
        held = {row.tobytes() for row in np.moveaxis(host(rows), axis, 0)}
        if not held.issuperset(row.tobytes() for row in np.moveaxis(host(own), axis, 0)):
            return False
    return True


def settled(a: Any, b: Any, tag: Tag | None, *, each: bool = False) -> tuple[Any, bool]:
    """Side b with rounding removed, and whether records other than the differing one differ.

    Without a tag all of ``a`` is compared. Rounding must not grow from equation to equation, so what agrees is made
    equal. Only sums round by their largest terms: where entries do not meet (``each``), the clipping factor of an empty
    slot, 1e9, must not make those of records look equal.
    """
    if a is b:
        return a, False
    one, other, tolerance = host(a), host(b), rounding(a)
    if one.shape == other.shape and close(one, other, tolerance, each=each):
        return a, False
    if tag is None:
        return b, False
    kept_a, kept_b = outside(one, other, tag)
    if kept_a.shape != kept_b.shape or not close(kept_a, kept_b, tolerance):
        return b, True
    if not tolerance or np.array_equal(kept_a, kept_b):
        return b, False
    fixed = np.array(np.asarray(b))
    rows = [slot for slot in range(fixed.shape[tag.axis]) if slot not in tag.slots]
    smaller = [slot for slot in range(one.shape[tag.axis]) if slot not in tag.padding]
    kept = rows if one.shape == other.shape else smaller
    np.moveaxis(fixed, tag.axis, 0)[rows] = np.moveaxis(np.asarray(a), tag.axis, 0)[kept]
    return fixed, False


def others_differ(value: Value) -> bool:
    """Whether more than the record's own place differs."""
    if not value.differs or value.tag is None:
        return value.differs
    return settled(value.a, value.b, value.tag)[1]


def scaled_by_count(a: Any, b: Any, tag: Tag, counts: tuple[int, int]) -> bool:
    """Whether the other records differ by the ratio of the numbers of records alone: a mean for a sum."""
    one, other = outside(host(a), host(b), tag)
    if one.shape != other.shape or not rounding(a):
        return False
    less, more = counts
    return any(close(one * factor, other, rounding(a)) for factor in (less / more, more / less))


def lost_at(out: Value, ins: Sequence[Value], place: Place) -> Place | None:
    """The first place on the way to a value that is no number; NOWHERE where the record itself holds none."""
    if not _is_lost(out):
        return None
    known = next((value.lost for value in ins if value.lost is not None), None)
    return known or (NOWHERE if any(map(_is_lost, ins)) else place)


def _is_lost(value: Value) -> bool:
    return value.differs and is_no_number(value.b)


def is_no_number(array: Any) -> bool:
    """Whether one of its entries is none."""
    return rounding(array) > 0 and bool(np.isnan(host(array)).any())
