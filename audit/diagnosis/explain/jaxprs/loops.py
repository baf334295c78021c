"""What one step of a loop sees, and leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from audit.diagnosis.explain.jaxprs import axes
from audit.diagnosis.explain.jaxprs.equations import CannotFollowError
from audit.diagnosis.explain.jaxprs.evaluate import stacked
from audit.diagnosis.explain.jaxprs.key_words import is_key
from audit.diagnosis.explain.jaxprs.labels import combined, labelled
from audit.diagnosis.explain.jaxprs.value import Tag, Value, host, lost_at, settled
from audit.diagnosis.explain.places import Place


def row_of(value: Value, step: int, length: int) -> Value:
    """One step's slice of what a scan runs over."""
    a = value.a[min(step, length - 1)]
    b = value.b[step] if value.differs else a
    a = b if step >= length and value.any_serves else a
    b, _ = settled(a, b, None) if a is not b else (b, False)
    tag = value.tag
    slots = frozenset() if tag is None else tag.slots if tag.groups is None else tag.in_group(step)
    inner = None if tag is None or tag.axis == 0 or tag.groups not in (None, 0) else Tag(tag.axis - 1, slots)
    variance = None if value.variance is None else np.asarray(value.variance)[step]
    terms = None if value.terms is None else value.terms.row(step)
    opened = value.open
    if opened is not None and opened.coordinates is not None:
        opened = dataclasses.replace(opened, coordinates=opened.coordinates.row(step))
    one = step if tag is not None and tag.axis == 0 and tag.groups is None else None
    row = dataclasses.replace(
        value,
        alone=one,
        a=a,
        b=b,
        tag=inner,
        variance=variance,
        terms=terms,
        open=opened,
        summed=value.summed and tag is None,
    )
    if value.by_row:
        row.drawn, row.by_row = value.drawn.difference(value.by_row) | {value.by_row[step]}, ()
    if inner is not None and value.random and np.shape(a) != np.shape(b):
        # each step's batch is packed by itself
        row.tag = axes.inserted(inner, a, b, padded=not value.values)
        row.b, others = settled(a, b, row.tag)
        row.uncoupled = row.uncoupled if others or value.values or value.shuffled else None
    return row


def beside_padding(rows: list[Value], group: int) -> list[Value]:
    """What a step sees that the larger side alone takes, with the record known where it stands among padding.

    The other side has nothing there; what it is given is all padding.
    """
    parts = [row for row in rows if row.differs and not is_key(row.a) and np.ndim(row.b)]
    if len({len(row.b) for row in parts}) != 1:
        return rows
    filled = np.any([host(row.b).reshape(len(row.b), -1).any(axis=1) for row in parts], axis=0)
    if filled.sum() != group or filled.all():
        return rows
    slots = frozenset(np.flatnonzero(filled).tolist())
    tag = Tag(0, slots)
    known = {id(row): dataclasses.replace(row, a=_padded(host(row.b), filled), tag=tag, alone=None) for row in parts}
    return [known.get(id(row), row) for row in rows]


def _padded(rows: np.ndarray, filled: np.ndarray) -> np.ndarray:
    return np.where(filled.reshape(-1, *(1,) * (rows.ndim - 1)), rows[~filled][0], rows)


def unmoved(old: Value, new: Value, place: Place) -> Value:
    """What a loop carries over a step that the larger side alone takes."""
    b, _ = settled(old.a, new.b, None)
    if b is old.a:
        return dataclasses.replace(new, a=old.a, b=old.a)
    return dataclasses.replace(new, a=old.a, b=b, origin=new.origin or new.at or place)


def stacked_steps(
    column: Sequence[Value],
    lengths: tuple[int, int],
    place: Place,
    *,
    records: bool,
    counts: tuple[int, int],
    group: int,
) -> Value:
    """What the steps of a loop leave, as one array; ``records`` says that each step took one record."""
    a = stacked([value.a for value in column[: lengths[0]]])
    differ = lengths[0] != lengths[1] or any(value.differs for value in column)
    b = stacked([value.b for value in column[: lengths[1]]]) if differ else a
    out = labelled("stack", {}, place, a, b, column, which=0, counts=counts, group=group)
    out.bent = next((value.bent for value in column if value.bent is not None), None)
    out.lost = lost_at(out, column, place)
    tags = [value.tag for value in column if value.tag is not None]
    if out.tag is None and tags:
        places = [(step, slot) for step, value in enumerate(column) if value.tag for slot in value.tag.slots]
        out.tag = axes.grouped(tags[0].axis + 1, 0, frozenset(places))
    elif out.tag is None and records and out.values:
        out.tag = Tag(0, frozenset(step for step, value in enumerate(column) if value.differs))
    if out.noise and not out.data and all(value.variance is not None for value in column):
        out.variance = np.stack([np.asarray(value.variance) for value in column])
        out.guessed = any(value.guessed for value in column)
        out.fewest = max(value.fewest for value in column)
    elif out.noise and any(value.data for value in column):
        out.noise, out.blurred = False, True
    return out


def while_parts(params: dict[str, Any], ins: list[Value]) -> tuple[list[Value], list[Value], list[Value]]:
    """What the test of a loop holds, what its body holds, and what it carries."""
    tests, held = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    return ins[:tests], ins[tests:held], ins[held:]


def together(one: Sequence[Value], other: Sequence[Value], place: Place) -> list[Value]:
    """What both sides carry."""
    if len(one) != len(other):
        raise CannotFollowError("a loop carries different values when a record is added", place)
    return [combined(left, right, place) for left, right in zip(one, other, strict=True)]
