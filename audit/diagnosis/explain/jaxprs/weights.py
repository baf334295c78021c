"""By what each record is multiplied, as clipping does, where that is undone again, and by what their sum is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain.jaxprs.facts import Gain, Weight
from audit.diagnosis.explain.jaxprs.noise import SUMS
from audit.diagnosis.explain.jaxprs.value import Value, first, host
from audit.diagnosis.explain.places import Place
from audit.diagnosis.explain.wrong_lengths import SLACK, Number

WEIGHING = frozenset({"mul", "div", "dot_general"})
SAME_NUMBERS = frozenset(
    {"broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type", "copy", "copy_p", "expand_dims"}
    | {"stop_gradient", "reduce_precision", "device_put", "optimization_barrier"}
)
"""Equations whose results are the numbers that they are given."""
MOST_NUMBERS = 256
"""Of a record's own that one is said to be made of."""
LENGTHENING = SUMS | WEIGHING | {"reduce_sum", "cumsum", "psum"}
CUTTING = frozenset({"clamp", "min", "max"})
KEEPS = SUMS | frozenset(
    {"broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p", "device_put", "expand_dims", "neg"}
    | {"optimization_barrier", "reduce_precision", "reshape", "slice", "squeeze", "stack", "stop_gradient", "transpose"}
)
"""Equations that multiply nothing."""
ALIKE = 1e-4
"""Relative difference of lengths that are one, but for rounding."""
MOST_HELD = 2**12
"""Numbers of a constant that is compared with another."""


def weigh(name: str, params: dict[str, Any], out: Value, ins: Sequence[Value], at: Place, derived: bool) -> None:
    """Where each record is multiplied by a number of its own: where it is clipped, if it is."""
    if _is_own(out):
        groups = 1 if out.tag is None or out.tag.groups is None else np.shape(out.a)[out.tag.groups]
        records = 1 if out.tag is None else np.shape(out.a)[out.tag.axis] * groups // out.tag.fold
        out.single = np.size(out.a) == records or (name == "broadcast_in_dim" and ins[0].single)
    if out.single:
        out.made = _made(name, out, ins, at, derived)
        out.numbers = _numbers(out, ins, at, derived)
    if (_is_own(out) or out.differs) and np.ndim(out.b) and not (out.values or out.random or derived):
        out.steady = first(value.steady for value in ins) or at
    out.kept = first(value.kept for value in ins) or (None if derived else _kept(name, params, ins, at))
    out.filled = _filled(name, out, ins, at)
    out.doubled = first(value.doubled for value in ins if value.differs and _counts_again(value, out, ins))
    if out.doubled is None and name in ("gather", "concatenate") and out.values and out.tag:
        before = first(value.tag for value in ins)
        out.doubled = at if before is not None and len(out.tag.slots) > len(before.slots) else None
    out.unclipped = first(value.unclipped for value in ins if value.differs)
    if out.unclipped is None and name in SUMS and len(ins) == 2:
        both = all(value.differs and value.values for value in ins)
        out.unclipped = at if both and bool(ins[0].weights) != bool(ins[1].weights) else None
    if out.unclipped is None and name in ("concatenate", "stack") and not _is_own(out):
        sums = [value for value in ins if value.differs and value.values]
        bare = [value for value in sums if not value.weights]
        if 0 < len(bare) < len(sums):
            out.unclipped = bare[0].origin if isinstance(bare[0].origin, Place) else at
    cuts = name in CUTTING and _is_own(out) and not out.single and out.values
    out.cut = at if cuts else first(value.cut for value in ins if value.differs)
    tagged = [value for value in ins if _is_own(value) and value.values]
    weighs = name in WEIGHING and not derived and len(tagged) == 2 and _weighs(tagged[0]) != _weighs(tagged[1])
    if weighs:
        out.weights = (_weight(name, tagged, at),)
    elif name in ("concatenate", "stack"):
        told = [value for value in ins if value.differs] or ins
        out.weights = tuple(dict.fromkeys(weight for value in told for weight in value.weights))
    else:
        # of several groups the record's own
        told = sorted(ins, key=lambda value: not value.differs)
        out.weights = next((value.weights for value in told if value.weights), ())
    if not weighs:
        joins = not _is_own(out) and any(value.alone is not None for value in ins)
        longer = name in LENGTHENING and bool(out.weights) and out.differs and not joins and _is_longer(out, ins)
        longer = longer or (name == "reduce_sum" and _adds_up_alike(params["axes"], out, ins[0]))
        out.longer = at if longer else first(value.longer for value in ins if value.differs)


def _made(name: str, out: Value, ins: Sequence[Value], at: Place, derived: bool) -> Place | None:
    """Where a number of the record's was computed; a mask that takes the record, or a clamp, hands it on as it is."""
    if name in SAME_NUMBERS:
        return first(value.made for value in ins)
    if derived:
        return None
    numbers = [value for value in ins if value.single and value.values and value.made is not None and _is_own(value)]
    own = _length(out) if numbers else 0.0
    same = [value.made for value in numbers if _length(value) == own]
    return same[0] if len(same) == 1 else at


def _numbers(out: Value, ins: Sequence[Value], at: Place, derived: bool) -> tuple[Number, ...]:
    """The numbers of the record's that a number is made of, and itself; what only hands one on is none of them."""
    before = tuple(dict.fromkeys(number for value in ins if value.single for number in value.numbers))
    if derived or not out.values:
        return before
    own = _length(out)
    if any(number.value == own for number in before):
        return before
    return (*before, Number(at, own, first=not before))[-MOST_NUMBERS:]


def even_along(
    name: str, params: dict[str, Any], made: Any, ins: Sequence[Value], at: Place
) -> tuple[Place, int] | None:
    """Where one number was repeated along one axis, and that axis; of ``jnp.ones`` and of what only hands it on."""
    before = ins[0].even if ins else None
    if name == "broadcast_in_dim" and before is not None:
        return before[0], params["broadcast_dimensions"][before[1]]
    if name == "broadcast_in_dim":
        return (at, 0) if np.ndim(ins[0].a) == 0 and np.ndim(made) == 1 else None
    return before if name in SAME_NUMBERS and np.shape(ins[0].a) == np.shape(made) else None


def _takes_all(name: str, params: dict[str, Any], mask: Value, record: Value, *, left: bool) -> bool:
    """Whether a mask of one number takes all records alike."""
    if mask.even is None or record.tag is None or not np.any(host(mask.a)):
        return False
    if name != "dot_general":
        return np.ndim(mask.a) == np.ndim(record.b) and mask.even[1] == record.tag.axis
    (summed, _) = params["dimension_numbers"]
    return (mask.even[1], record.tag.axis) in zip(*(summed if left else summed[::-1]), strict=True)


def _kept(name: str, params: dict[str, Any], ins: Sequence[Value], at: Place) -> Place | None:
    """Where a mask or weight was made that takes the record, if neither draws nor records decide it."""
    records = [value for value in ins if _is_own(value) and value.values]
    for mask in ins if name in ("mul", "dot_general") else ():
        if any(_takes_all(name, params, mask, record, left=mask is ins[0]) for record in records):
            return None if mask.even is None else mask.even[0]
    masks = ins[:1] if name == "select_n" else ins if name in WEIGHING else ()
    for mask in masks:
        # a constant over a number of the record's, on one line, is no mask
        divided = name == "div" and (mask is not ins[0] or mask.steady is None or mask.steady.nearest == at.nearest)
        if mask.steady is not None and not divided and any(_takes(mask, record) for record in records):
            return mask.steady
    return None


def _takes(mask: Value, record: Value) -> bool:
    """Whether a mask is not zero where the record is."""
    if _is_own(mask):
        return _length(mask) > 0
    alike = np.shape(mask.b) == np.shape(record.b)
    return alike and _length(dataclasses.replace(mask, tag=record.tag, single=False)) > 0


def _filled(name: str, out: Value, ins: Sequence[Value], at: Place) -> Place | None:
    """Where records got padding beside them; of a sum over records, if the padding in the record's place counts."""
    # a loop that takes one record after the other may multiply padding by zero
    before = first(value.filled for value in ins if value.differs and (value.alone is None or np.any(host(value.a))))
    if out.tag is not None:
        grown = not out.sized and out.values and any(value.sized and value.values for value in ins)
        picked = name == "gather" and out.values and bool(out.tag.padding)
        return before or (at if grown or picked else None)
    for value in ins:
        tag = value.tag
        if value.filled is not None and tag is not None and tag.groups is None:
            if value.sized and not tag.padding:
                return None
            held = np.take(host(value.a), sorted(tag.padding or tag.slots), axis=tag.axis)
            # a product with a mask may leave it out
            masked = name == "dot_general" and not all(np.all(host(own.a)) for own in ins if own is not value)
            return value.filled if np.any(held) and not masked else None
    return before


def _counts_again(value: Value, out: Value, ins: Sequence[Value]) -> bool:
    """Whether more than one copy of the record is left where records are summed: a mask may be zero for the others."""
    if value.alone is not None and not _is_own(out):
        return any(other.differs for other in ins if other is not value)
    if value.tag is None or out.tag is not None or value.tag.groups is not None:
        return True
    slots, counts = sorted(value.tag.slots), np.ones(len(value.tag.slots), bool)
    for own in ins:
        if own.tag is not None and own.tag.slots == value.tag.slots:
            rows = np.moveaxis(host(own.b), own.tag.axis, 0)[slots]
            counts &= rows.any(axis=tuple(range(1, rows.ndim)))
    return int(counts.sum()) > value.tag.fold


def _is_longer(out: Value, ins: Sequence[Value]) -> bool:
    """Whether the record moves a value further than all that it is made of.

    Where the record is multiplied by a mask or by a constant, that is what it was before.
    """
    differing = [value for value in ins if value.differs]
    before = [_moved(value) for value in [value for value in differing if value.values] or differing]
    return _moved(out) > (1 + SLACK) * float(np.linalg.norm(before)) > 0


def _adds_up_alike(axes: Sequence[int], out: Value, value: Value) -> bool:
    """Whether parts of the record that are as long as one another are added up, such as views that were clipped."""
    tag, shape = value.tag, np.shape(value.b)
    if tag is None or tag.groups is not None or tag.axis in axes or not (out.tag and out.values):
        return False
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    if len(kept) < 2:
        return False
    rows = np.take(host(value.b), sorted(tag.slots), axis=tag.axis).astype(np.float64)
    lengths = np.sqrt(np.sum(np.square(rows), axis=kept))
    longest = float(np.max(lengths, initial=0.0))
    return lengths.size > 1 and np.ptp(lengths) <= ALIKE * longest and _length(out) > (1 + SLACK) * longest


def _moved(value: Value) -> float:
    apart = 0.0 if value.sized else distance(value)
    # under substitution, or where its place is not empty without it, the record moves a value further than it is long
    return max(_length(value), apart) if _is_own(value) else apart


def _is_own(value: Value) -> bool:
    """Whether it is known which part of a value is the record's."""
    return value.tag is not None or value.alone is not None


def _weighs(value: Value) -> tuple[bool, bool]:
    """How much a value looks like a factor: a gradient may be one number, too, and differentiation alone made it."""
    return value.single, value.single and value.made is not None


def _weight(name: str, tagged: Sequence[Value], at: Place) -> Weight:
    factor, record = sorted(tagged, key=_weighs)[::-1]
    with np.errstate(all="ignore"):
        lengths, numbers = _lengths(record), _lengths(factor)
        longest = int(np.argmax(lengths))
        before, by = lengths[longest], numbers[longest] if len(numbers) == len(lengths) else max(numbers)
        divided = name == "div" and tagged[-1] is factor
        times = float(np.divide(1.0, by)) if divided else by
    instead = 0.0
    if not (record.sized or factor.sized or (record.tag is not None and record.tag.padding)):
        left, by = (_length(dataclasses.replace(value, b=value.a)) for value in (record, factor))
        instead = left * ((1 / by if by else 0.0) if divided else by)
    return Weight(at, factor.made or at, before, before * times, times, factor.numbers, instead)


def _lengths(value: Value) -> list[float]:
    """The length of each record, where a batch holds several that differ, or one of them more than once."""
    if value.tag is None or value.tag.groups is not None or not value.tag.slots:
        return [_length(value)]
    rows = np.take(host(value.b), sorted(value.tag.slots), axis=value.tag.axis).astype(np.float64)
    rows = np.moveaxis(rows, value.tag.axis, 0).reshape(len(value.tag.slots) // value.tag.fold, -1)
    return (np.max(np.abs(rows), axis=1, initial=0.0) if value.single else np.linalg.norm(rows, axis=1)).tolist()


def _length(value: Value) -> float:
    """Of the differing record on the side that has it; of one entry where all of them are one number."""
    tag, array = value.tag, host(value.b)
    if tag is None:
        own = array.astype(np.float64)
    elif tag.groups is None:
        own = np.take(array, sorted(tag.slots), axis=tag.axis).astype(np.float64)
    else:
        rows = np.moveaxis(array, (tag.groups, tag.axis), (0, 1))
        own = np.array([rows[place] for place in sorted(tag.places)], np.float64)
    return float(np.max(np.abs(own), initial=0.0)) if value.single else float(np.linalg.norm(own))


def distance(value: Value) -> float:
    """Between the two sides of a value of one shape."""
    one, other = host(value.a), host(value.b)
    if not np.issubdtype(one.dtype, np.floating):
        return 0.0
    found = float(np.linalg.norm((one.astype(np.float64) - other.astype(np.float64)).ravel()))
    return found if np.isfinite(found) else 0.0


def gain_after(name: str, params: dict[str, Any], out: Value, ins: Sequence[Value], which: int) -> Gain:
    """The gain of a result; one begins anew at an equation that does more than to multiply by a number."""
    differing = [value for value in ins if value.differs]
    gains, known = {value.gain for value in differing}, None
    if out.tag is None and name in KEEPS and len(gains) == 1:
        return gains.pop()
    if out.tag is None and name == "select_n" and len({gain.since for gain in gains}) == 1:
        # one of the cases may be bounded, the other is the sum as it is
        known = next((value.gain for value in differing if value.bent is None), None)
    elif out.tag is None and (name in ("mul", "div") or (name == "dot_general" and _adds_nothing(params, ins))):
        known = _product(name, ins, differing)
    return known or Gain(object(), made=_equation(name, params, ins, which))


def _equation(name: str, params: dict[str, Any], ins: Sequence[Value], which: int) -> object:
    """What is the same of two results of one equation on the same values."""
    held = [host(value.a).tobytes() if value.public and np.size(value.a) <= MOST_HELD else value.gain for value in ins]
    told = [(hash(one.made), repr(one.times)) if isinstance(one, Gain) else one for one in held]
    try:
        return hash((name, which, *sorted(params.items()), *told))
    except TypeError:
        return object()


def _product(name: str, ins: Sequence[Value], differing: Sequence[Value]) -> Gain | None:
    factors = [value for value in ins if _is_number(value)]
    if len(factors) != 1 or (name == "div" and factors[0] is ins[0]):
        return None
    (factor,) = factors
    sums = [value for value in differing if value is not factor]
    if not sums:
        return None
    if factor.differs:
        # a number that bounds the sum, and makes it no longer
        return sums[0].gain
    by = float(host(factor.a).ravel()[0])
    if not np.isfinite(by) or not by:
        return None
    gain = sums[0].gain
    return dataclasses.replace(gain, times=gain.times * (1 / by if name == "div" else by))


def _adds_nothing(params: dict[str, Any], ins: Sequence[Value]) -> bool:
    """Whether a product sums over axes of one entry alone."""
    (contracting, _), _ = params["dimension_numbers"]
    return all(np.shape(ins[0].a)[dim] == 1 for dim in contracting)


def _is_number(value: Value) -> bool:
    """Whether all entries are one number."""
    return all(np.size(side) and np.all(host(side) == host(side).ravel()[0]) for side in (value.a, value.b))
