"""Batches that are sorted, so that the records that were taken stand in front.

Where the record joins them, those that were left out move back by a place. Rows that move are not compared, unless they
are multiplied by a mask that is zero for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain.jaxprs import axes
from audit.diagnosis.explain.jaxprs.value import Tag, Value, host, settled
from audit.diagnosis.explain.places import Place

ENTRIES_KEPT = frozenset(
    {"and", "broadcast_in_dim", "convert_element_type", "copy", "copy_p", "div", "dynamic_slice", "expand_dims"}
    | {"gather", "mul", "not", "or", "pad", "reshape", "slice", "squeeze", "stop_gradient", "sub", "transpose"}
)
"""Equations after which a mask is a mask."""
ORDER_KEPT = ENTRIES_KEPT | {"add", "clamp", "concatenate", "ge", "lt", "max", "min", "rem", "select_n"}
"""Equations after which those that were taken still stand in front."""
PICKED_BY_NUMBER = frozenset({"gather", "dynamic_slice", "sort"})
"""Equations in which an order puts the records into it."""


def follow_packing(name: str, params: dict[str, Any], out: Value, ins: Sequence[Value], at: Place, group: int) -> None:
    """Say what a result has of a sorted batch: its order, its mask, or rows that moved."""
    same = np.shape(out.a) == np.shape(out.b)
    if name not in PICKED_BY_NUMBER and out_of_line(ins):
        out.uncoupled = out.uncoupled or at
    if not out.values:
        shuffled = name == "sort" and out.sized and _is_draw(ins[0]) and not _is_choice(ins[0])
        out.shuffled = out.differs and (shuffled or any(value.shuffled for value in ins if value.differs))
        in_order = name in ORDER_KEPT and any(value.packed for value in ins)
        out.packed = in_order or _sorts_a_choice(name, params, ins)
        if same and out.packed and any(value.sized for value in ins):
            # where the record stands at the end nothing moves
            out.packed = is_shifted(name, out, ins)
        differing = [value for value in ins if value.differs]
        kept = name in ENTRIES_KEPT and differing and all(value.masks for value in differing)
        out.masks = bool(kept) or (same and out.random and out.differs and _is_mask(out, group))
        return
    if not (out.differs and same):
        return
    out.displaced = next((value.displaced for value in ins if value.differs and value.displaced is not None), None)
    if out.displaced is None and (is_shifted(name, out, ins) or _picks_moved(name, out, ins, group)):
        out.displaced = at
    elif out.displaced is not None and any(_hides(name, params, out, ins, mask) for mask in ins):
        out.displaced = None


def out_of_line(ins: Sequence[Value]) -> bool:
    """Whether draws meet records of which they choose others with the record than without it.

    An order that is drawn puts the record anywhere: where its draws lie like the records all the same, that is luck.
    """
    # where records are mixed, all of them differ
    rows = [value.tag for value in ins if value.values and value.sized and value.tag and value.mixed is None]
    draws = [value for value in ins if _is_draw(value) and value.sized]
    return any(value.shuffled or _lies_elsewhere(value, tag) for tag in rows for value in draws)


def _lies_elsewhere(draws: Value, rows: Tag) -> bool:
    own = draws.tag
    if own is None or own.padding or rows.padding or own.slots == rows.slots:
        return False
    return settled(draws.a, draws.b, Tag(own.axis, rows.slots))[1]


def _is_draw(value: Value) -> bool:
    return value.random and not value.values


def is_shifted(name: str, out: Value, ins: Sequence[Value]) -> bool:
    """Whether a part was cut from rows among which the record stands in the middle: what follows it is not in line."""
    if not out.differs or out.tag is not None or name in axes.SUMMING:
        return False
    return any(
        value.tag is not None
        and not (out.values and value.tag.padding)
        and value.sized
        and min(value.tag.slots) < np.shape(value.a)[value.tag.axis]
        for value in ins
    )


def _sorts_a_choice(name: str, params: dict[str, Any], ins: Sequence[Value]) -> bool:
    """Whether a sort goes by one of two numbers that no record makes, such as whether a record is taken."""
    if name != "sort" or params["num_keys"] != 1:
        return False
    key = ins[0]
    return key.random and not key.noise and not key.values and _is_choice(key)


def _is_choice(value: Value) -> bool:
    return len(np.unique(np.concatenate([host(value.a).ravel(), host(value.b).ravel()]))) <= 2


def _is_mask(out: Value, group: int) -> bool:
    """Whether a choice for each place is another one in the record's place alone."""
    return np.ndim(out.a) == 1 and int(np.sum(_apart(out))) <= group and _is_choice(out)


def _picks_moved(name: str, out: Value, ins: Sequence[Value], group: int) -> bool:
    """Whether records were picked in that order, other than an empty one in the record's place.

    Or in one that what they hold decides, as sorted ones, and others stand elsewhere with the record.
    """
    if name != "gather":
        return False
    if ins[0].values and ins[1].values and ins[0].tag is not None and out.tag is not None:
        return len(out.tag.slots) > max(group, len(ins[0].tag.slots))
    if not ins[1].packed:
        return False
    if out.tag is None or len(out.tag.slots) > group:
        return True
    return bool(np.any(np.take(host(out.a), sorted(out.tag.slots), axis=out.tag.axis)))


def _hides(name: str, params: dict[str, Any], out: Value, ins: Sequence[Value], mask: Value) -> bool:
    """Whether all rows that moved become zero."""
    if mask.displaced is not None or not (mask.masks or (mask.values and mask.differs)):
        return False
    if name in ("mul", "select_n"):
        return not np.any(_apart(out) & _behind(_apart(mask)))
    if name == "dot_general":
        which = 0 if ins[0] is mask else 1
        own, rows = (_in_pairs(params, ins[place], place) for place in (which, 1 - which))
        moved = np.any(rows[0] != rows[1], axis=-1) & _behind(np.any(own[0] != own[1], axis=-1))
        return not np.any(own[0][moved]) and not np.any(own[1][moved])
    return False


def _behind(apart: np.ndarray) -> np.ndarray:
    """Places behind the first in which a mask differs, but for those in which it differs, too; all if it does not."""
    after = np.maximum.accumulate(apart.ravel()).reshape(apart.shape) if apart.any() else True
    return after & ~apart


def _in_pairs(params: dict[str, Any], value: Value, place: int) -> tuple[np.ndarray, np.ndarray]:
    """Both sides of an operand of a product, with the axes in front along which it meets the other operand."""
    contracting, batch = (dims[place] for dims in params["dimension_numbers"])
    shared = [*batch, *contracting]

    def own(side: Any) -> np.ndarray:
        front = np.moveaxis(host(side), shared, range(len(shared)))
        return front.reshape(*front.shape[: len(shared)], -1)

    return own(value.a), own(value.b)


def _apart(value: Value) -> np.ndarray:
    return host(value.a) != host(value.b)
