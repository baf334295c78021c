"""Along which axis of a value the records lie, after each kind of equation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain.jaxprs.value import Tag, Value, has_rows, host, rounding

SUMMING = frozenset(
    {"reduce_sum", "dot_general", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax"}
    | {"argmin", "conv_general_dilated", "scatter-add", "scatter_add"}
)
"""Equations that take records together when the records' axis is gone after them."""
FILLING = frozenset({"pad", "concatenate"})
"""Equations that put empty places behind records."""
ALONG_AXIS = frozenset({"cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"})
LOSE = frozenset({"fft", "triangular_solve", "cholesky", "eigh", "svd", "qr", "lu", "scatter", "scatter-add"})
"""Equations after which, at equal sizes, the axis is not known."""


def by_size(a: Any, b: Any, group: int) -> Tag | None:
    """The axis on which the sides have N and N + 1 entries; the differing record is the last."""
    one, other = np.shape(a), np.shape(b)
    if len(one) != len(other):
        return None
    axes = [axis for axis, (left, right) in enumerate(zip(one, other, strict=True)) if left != right]
    if len(axes) != 1 or other[axes[0]] - one[axes[0]] != group:
        return None
    return Tag(axes[0], frozenset(range(one[axes[0]], other[axes[0]])))


def is_dealt_out(value: Value, a: Any, b: Any) -> bool:
    """Whether records are cut into as many groups with one more of them: then they stand in other groups."""
    sides = (np.shape(value.a), np.shape(value.b)), (np.shape(a), np.shape(b))
    (before, axis), (after, own) = ((one, _first_apart(one, other)) for one, other in sides)
    return axis is not None and own is not None and math.prod(before[:axis]) != math.prod(after[:own])


def is_torn(value: Value, tag: Tag | None, a: Any, b: Any) -> bool:
    """Whether an axis as long as the number of records holds pieces of them: ``rows.reshape(-1, len(rows))``."""
    before, after = np.shape(value.b), np.shape(b)
    axis = _first_apart(np.shape(value.a), before)
    if axis is None or tag is None or not is_dealt_out(value, a, b):
        return False
    owners = np.arange(before[axis]).reshape(-1, *[1] * (len(before) - axis - 1))
    cells = np.broadcast_to(owners, before).reshape(math.prod(after[: tag.axis + 1]), -1)
    spread = len(cells) > before[axis] * math.prod(before[:axis])
    return spread or bool((cells != cells[:, :1]).any())


def _first_apart(one: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    return next((axis for axis, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)


def inserted(tag: Tag, a: Any, b: Any, *, padded: bool) -> Tag:
    """The slot of the larger side without which both are equal: batches that are packed have it in the middle.

    Behind it both sides may be ``padded``, each with a row of its own. The tag as it is where there is no such slot.
    """
    one, other = (np.moveaxis(host(side), tag.axis, 0) for side in (a, b))
    if len(tag.slots) != 1 or not len(one) or np.array_equal(one, other[:-1]):
        return tag
    ahead = _equal_rows(one, other[:-1], rounding(a))
    if ahead.all():
        return tag
    place = int(np.argmin(ahead))
    if _equal_rows(one, other[1:], rounding(a))[place:].all():
        return Tag(tag.axis, frozenset({place}))
    rest, more = one[place:], other[place + 1 :]
    if padded and all(_equal_rows(own, own[:1], rounding(a)).all() for own in (rest, more)):
        return Tag(tag.axis, frozenset(range(place, len(other))), frozenset(range(place, len(one))))
    return tag


def lined_up(name: str, params: dict[str, Any], ins: Sequence[Value], a: Any, b: Any) -> Any:
    """Side a with the first of its empty places moved to where the record stands on side b, if that is not the last.

    N and N + 1 records were packed, and fill as many places now: because they got as many, or because what is too much
    is cut off, and that is an empty place. What follows each place by itself sees the same rows.
    """
    tag = ins[0].tag if name in FILLING or name == "slice" else None
    if tag is None or len(tag.slots) != 1 or tag.padding or np.shape(a) != np.shape(b):
        return a
    rows, slot = np.moveaxis(np.asarray(a), tag.axis, 0), min(tag.slots)
    if name == "slice":
        low, last = 0, len(rows) - 1
        if slot >= last or np.any(rows[last]):
            return a
    else:
        last, low = np.shape(ins[0].a)[tag.axis], params["padding_config"][tag.axis][0] if name == "pad" else 0
        if not _fills_up(name, params, 0, ins[0], tag) or slot == last:
            return a
    order = np.insert(np.delete(np.arange(len(rows)), low + last), low + slot, low + last)
    moved = np.moveaxis(rows[order], 0, tag.axis)
    return moved if name != "slice" or _in_line(name, params, ins[0], moved, b) else a


def _equal_rows(one: np.ndarray, other: np.ndarray, tolerance: float) -> np.ndarray:
    flat = (len(one), -1)
    if not tolerance:
        return (one == other).reshape(flat).all(axis=1)
    size = np.max(np.abs(one), initial=0.0, where=np.isfinite(one))
    with np.errstate(invalid="ignore"):
        near = (one == other) | (np.abs(one.astype(np.float64) - other) <= tolerance * size)
    return near.reshape(flat).all(axis=1)


def by_structure(name: str, params: dict[str, Any], ins: Sequence[Value], a: Any, b: Any) -> Tag | None:
    """The axis at equal sizes: where this kind of equation puts the axis of its first tagged input."""
    tagged = [(place, value) for place, value in enumerate(ins) if value.tag is not None]
    if not tagged or name in LOSE:
        return None
    if name == "gather":
        return _gathered(params, ins, a, b)
    place, value = tagged[0]
    tag = value.tag
    if tag and value.sized and tag.axis == params.get("dimension") and all(has_rows(value, x, tag.axis) for x in ins):
        return Tag(tag.axis, tag.slots.union(slot for (slot,) in _differing(a, b, tag.axis)))
    filled = not value.sized or (tag is not None and _fills_up(name, params, place, value, tag))
    if tag is None or tag.fold > 1 or not (filled or _in_line(name, params, value, a, b)):
        return None
    if tag.groups is not None or name == "reshape":
        found = _in_groups(name, params, ins, place, tag, np.shape(a))
        if found is not None or tag.groups is not None:
            return found
    axis = _axis(name, params, ins, place, tag.axis, np.shape(value.a), np.shape(a))
    if axis is None or axis >= np.ndim(a):
        return None
    slots = _slots(name, params, ins, place, tag, np.shape(a))
    for mask in _masks(ins, np.shape(a)):
        slots |= {slot for (slot,) in _differing(mask.a, mask.b, axis)}
    others = [(at, other.tag) for at, other in tagged[1:] if other.tag is not None and other.tag.axis == axis]
    return Tag(axis, slots.union(*(_slots(name, params, ins, at, other, np.shape(a)) for at, other in others)))


def by_fold(name: str, params: dict[str, Any], ins: Sequence[Value], a: Any, b: Any) -> Tag | None:
    """The axis on which each record has several slots, or again one, of the first tagged input that says so."""
    if name == "concatenate" and (rows := ins[0].tag) is not None and params["dimension"] == rows.axis:
        # the larger side alone has copies of its last record behind it
        copies, ends = _copies(name, ins), [np.shape(side)[rows.axis] for side in (ins[0].a, a, ins[0].b, b)]
        return Tag(rows.axis, rows.slots.union(range(*ends[2:]))) if copies and ends[0] == ends[1] else None
    for place, value in enumerate(ins):
        if value.tag is None or value.tag.groups is not None:
            continue
        sides = [(np.shape(value.a), np.shape(a)), (np.shape(value.b), np.shape(b))]
        found = {_fold(name, params, ins, place, value.tag, *side) for side in sides}
        if len(found) != 1 or (known := found.pop()) is None:
            continue
        # a square, as of one derivative a record, has no slots that one record has to itself
        if np.delete(np.shape(a), known[0]).tolist() == np.delete(np.shape(b), known[0]).tolist():
            return value.tag.folded(*known)
    return None


def _fold(
    name: str,
    params: dict[str, Any],
    ins: Sequence[Value],
    place: int,
    tag: Tag,
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> tuple[int, int] | None:
    """The axis on one side after an equation, and how many slots each record has there."""
    records = before[tag.axis] // tag.fold
    if name == "reshape":
        ahead = math.prod(before[: tag.axis])
        fits = [k for k in range(len(after)) if math.prod(after[:k]) == ahead and after[k] > 1]
        axis = fits[0] if fits else None
    elif name == "conv_general_dilated":
        axis = _of_convolution(params, place, tag.axis, records)
    else:
        axis = _axis(name, params, ins, place, tag.axis, before, after)
        axis = axis if axis is not None and axis < len(after) and after[axis] == before[tag.axis] else None
    if axis is None or not records or not after[axis] or after[axis] % records:
        return None
    return axis, after[axis] // records


def _of_convolution(params: dict[str, Any], place: int, axis: int, records: int) -> int | None:
    """Records are side by side in a batch, or channels that are summed in groups of their own."""
    dims, features, batches = (params[own] for own in ("dimension_numbers", "feature_group_count", "batch_group_count"))
    if place == 1:
        return dims.out_spec[1] if axis == dims.rhs_spec[0] else None
    if axis == dims.lhs_spec[0] and batches == 1:
        return dims.out_spec[0]
    apart = {dims.lhs_spec[0]: batches, dims.lhs_spec[1]: features}.get(axis, 1)
    return dims.out_spec[1] if apart > 1 and apart % max(1, records) == 0 else None


def _masks(ins: Sequence[Value], shape: tuple[int, ...]) -> list[Value]:
    """Masks that no record's values made: they may say which slots are filled."""
    untold = [value for value in ins if value.differs and value.tag is None and not value.values]
    return [value for value in untold if np.shape(value.a) == np.shape(value.b) == shape]


def _fills_up(name: str, params: dict[str, Any], place: int, value: Value, tag: Tag) -> bool:
    """Whether records, or numbers for each of them, get empty places behind them."""
    along = name == "pad" or (name == "concatenate" and params["dimension"] == tag.axis)
    return along and place == 0 and not tag.padding and value.sized


def _in_line(name: str, params: dict[str, Any], value: Value, a: Any, b: Any) -> bool:
    """Whether the first rows of both sides are alike but for the record's, where the smaller side has an empty one."""
    tag = value.tag
    if name != "slice" or tag is None or tag.padding or tag.groups is not None or not value.values:
        return False
    if params["start_indices"][tag.axis] or params["strides"] or max(tag.slots) >= np.shape(a)[tag.axis]:
        return False
    slots = sorted(tag.slots)
    one, other = (np.delete(host(side), slots, tag.axis) for side in (a, b))
    return np.array_equal(one, other) and not np.any(np.take(host(a), slots, tag.axis))


def _copies(name: str, ins: Sequence[Value]) -> bool:
    """Whether rows are followed by what one record makes, such as copies of it."""
    return name == "concatenate" and len(ins) > 1 and all(value.alone is not None for value in ins[1:])


def _in_groups(
    name: str, params: dict[str, Any], ins: Sequence[Value], place: int, tag: Tag, after: tuple[int, ...]
) -> Tag | None:
    """Records that are cut into groups, or lie in them."""
    before = np.shape(ins[place].a)
    if name == "reshape":
        return _cut(tag, before, after) if tag.groups is None else _joined(tag, before, after)
    assert tag.groups is not None
    axis, groups = (_axis(name, params, ins, place, own, before, after) for own in (tag.axis, tag.groups))
    if axis is None or name in ("gather", "concatenate", "pad", "rev"):
        return None
    if name == "squeeze" and groups is None:
        return Tag(axis, tag.in_group(0))
    if groups is None:
        return None
    others = [other.tag for other in ins if other.tag is not None and other.tag.groups == tag.groups]
    places = tag.places.union(*(other.places for other in others if other.axis == tag.axis))
    if (start := _starts(name, params, ins, after)) is not None:
        moved = ((_kept(params, start, tag.groups, own), _kept(params, start, tag.axis, slot)) for own, slot in places)
        places = frozenset(one for one in moved if 0 <= one[0] < after[groups] and 0 <= one[1] < after[axis])
    for mask in _masks(ins, after):
        places |= _differing(mask.a, mask.b, groups, axis)
    return grouped(axis, groups, places)


def grouped(axis: int, groups: int, places: frozenset[tuple[int, int]]) -> Tag:
    """Of records that lie in groups."""
    return Tag(axis, frozenset(slot for _, slot in places), groups=groups, places=places)


def _cut(tag: Tag, before: tuple[int, ...], after: tuple[int, ...]) -> Tag | None:
    ahead, size = math.prod(before[: tag.axis]), before[tag.axis]
    for k in range(len(after) - 1):
        if math.prod(after[:k]) == ahead and after[k] * after[k + 1] == size and 1 < after[k] < size:
            return grouped(k + 1, k, frozenset(divmod(slot, after[k + 1]) for slot in tag.slots))
    return None


def _joined(tag: Tag, before: tuple[int, ...], after: tuple[int, ...]) -> Tag | None:
    assert tag.groups is not None
    ahead, size = math.prod(before[: tag.groups]), before[tag.groups] * before[tag.axis]
    if tag.axis != tag.groups + 1:
        return None
    for k in range(len(after)):
        if math.prod(after[:k]) == ahead and after[k : k + 2] == before[tag.groups : tag.axis + 1]:
            return grouped(k + 1, k, tag.places)
        if math.prod(after[:k]) == ahead and after[k] == size:
            return Tag(k, frozenset(group * before[tag.axis] + slot for group, slot in tag.places))
    return None


def _axis(
    name: str,
    params: dict[str, Any],
    ins: Sequence[Value],
    place: int,
    axis: int,
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> int | None:
    if name == "broadcast_in_dim":
        return params["broadcast_dimensions"][axis]
    if name == "transpose":
        return params["permutation"].index(axis)
    if name == "squeeze":
        gone = [dim % len(before) for dim in params["dimensions"]]
        return None if axis in gone else axis - sum(dim < axis for dim in gone)
    if name.startswith(("reduce_", "argm")) and "axes" in params:
        return None if axis in params["axes"] else axis - sum(dim < axis for dim in params["axes"])
    if name == "reshape":
        ahead = math.prod(before[:axis])
        fits = [k for k in range(len(after)) if after[k] == before[axis] and math.prod(after[:k]) == ahead]
        return fits[0] if fits else None
    if name in ALONG_AXIS:
        return None if params["axis"] == axis else axis
    if name == "sort":
        return None if params["dimension"] == axis else axis
    if name == "dot_general":
        return _of_product(params, ins, place, axis)
    if name == "stack" and "axis" in params:
        return axis + (params["axis"] <= axis)
    if name in ("concatenate", "pad", "slice", "rev"):
        return axis
    same = len(before) == len(after) and before[axis] == after[axis]
    if "window_dimensions" in params:
        return axis if same and params["window_dimensions"][axis] == 1 else None
    if name == "dynamic_slice" and place == 0 and _starts(name, params, ins, after) is not None:
        return axis
    if name in ("dynamic_slice", "split", "dynamic_update_slice"):
        return axis if same and place == 0 else None
    # an axis of one entry may meet one of several
    fits = same and all(own in (1, size) for own, size in zip(before, after, strict=True))
    return axis if fits else None


def _of_product(params: dict[str, Any], ins: Sequence[Value], place: int, axis: int) -> int | None:
    contracting, batch = params["dimension_numbers"]
    if axis in contracting[place]:
        return None
    if axis in batch[place]:
        return tuple(batch[place]).index(axis)
    free = [dim for dim in range(np.ndim(ins[place].a)) if dim not in (*contracting[place], *batch[place])]
    first = np.ndim(ins[0].a) - len(contracting[0]) if place else len(batch[0])
    return first + free.index(axis)


def _starts(name: str, params: dict[str, Any], ins: Sequence[Value], after: tuple[int, ...]) -> tuple[int, ...] | None:
    """Where a part is cut out, if one is, by numbers that are the same on both sides."""
    if name == "slice":
        return params["start_indices"]
    if name != "dynamic_slice" or any(value.differs for value in ins[1:]):
        return None
    last = [size - own for size, own in zip(np.shape(ins[0].a), after, strict=True)]
    return tuple(min(max(int(host(value.a)), 0), most) for value, most in zip(ins[1:], last, strict=True))


def _kept(params: dict[str, Any], starts: Sequence[int], axis: int, slot: int) -> int:
    """Where an entry stands in a part that is cut out; -1 where a stride passes over it."""
    strides = params.get("strides") or (1,) * len(starts)
    return -1 if (slot - starts[axis]) % strides[axis] else (slot - starts[axis]) // strides[axis]


def picked(name: str, params: dict[str, Any], ins: Sequence[Value], tag: Tag) -> int | None:
    """The number of the one record that an equation picks, if it picks one."""
    if tag.groups is not None:
        return None
    if name == "gather" and np.size(ins[1].b) == 1 and params["dimension_numbers"].start_index_map == (tag.axis,):
        return int(host(ins[1].b).item()) if params["slice_sizes"][tag.axis] == 1 else None
    if name == "slice" and params["limit_indices"][tag.axis] - params["start_indices"][tag.axis] == 1:
        return params["start_indices"][tag.axis]
    if name == "dynamic_slice" and params["slice_sizes"][tag.axis] == 1:
        return int(host(ins[1 + tag.axis].b).item())
    return None


def _slots(
    name: str, params: dict[str, Any], ins: Sequence[Value], place: int, tag: Tag, after: tuple[int, ...]
) -> frozenset[int]:
    if name == "concatenate" and params["dimension"] == tag.axis:
        ahead = sum(np.shape(value.a)[tag.axis] for value in ins[:place])
        return frozenset(slot + ahead for slot in tag.slots)
    if name == "pad":
        return frozenset(slot + params["padding_config"][tag.axis][0] for slot in tag.slots)
    if (starts := _starts(name, params, ins, after)) is not None:
        moved = (_kept(params, starts, tag.axis, slot) for slot in tag.slots)
        return frozenset(slot for slot in moved if 0 <= slot < after[tag.axis])
    if name == "rev" and tag.axis in params["dimensions"]:
        return frozenset(after[tag.axis] - 1 - slot for slot in tag.slots)
    return tag.slots


def _gathered(params: dict[str, Any], ins: Sequence[Value], a: Any, b: Any) -> Tag | None:
    """Records picked by number: the numbers' own axis is now that of the records."""
    numbers, operand = params["dimension_numbers"], ins[0]
    if operand.tag is None:
        return None
    axis = operand.tag.axis
    if axis in getattr(numbers, "operand_batching_dims", ()):
        return None
    picked = [dim for dim in range(np.ndim(a)) if dim not in numbers.offset_dims]
    if axis in numbers.start_index_map and params["slice_sizes"][axis] == 1:
        if len(picked) != 1 or np.shape(a) != np.shape(b):
            return None
        return Tag(picked[0], frozenset(slot for (slot,) in _differing(a, b, picked[0])))
    if params["slice_sizes"][axis] != np.shape(operand.a)[axis] or np.shape(operand.a) != np.shape(operand.b):
        return None
    kept = [dim for dim in range(np.ndim(operand.a)) if dim not in numbers.collapsed_slice_dims]
    return Tag(numbers.offset_dims[kept.index(axis)], operand.tag.slots) if axis in kept else None


def _differing(a: Any, b: Any, *axes: int) -> frozenset[Any]:
    """Where both sides differ, by its place along some axes."""
    apart = host(a) != host(b)
    others = tuple(dim for dim in range(apart.ndim) if dim not in axes)
    found = np.argwhere(apart.any(axis=others))
    order = np.argsort(np.argsort(axes))
    return frozenset(tuple(place[order].tolist()) for place in found)
