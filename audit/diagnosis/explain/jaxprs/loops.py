"""What one step of a loop sees, and leaves."""

from __future__ import annotations

import dataclasses

import numpy as np

from audit.diagnosis.explain.jaxprs import axes
from audit.diagnosis.explain.jaxprs.key_words import is_key
from audit.diagnosis.explain.jaxprs.value import Tag, Value, host, settled
from audit.diagnosis.explain.places import Place


def row_of(value: Value, step: int, length: int) -> Value:
    """One step's slice of what a scan runs over."""
    a = value.a[min(step, length - 1)]
    b = value.b[step] if value.differs else a
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
