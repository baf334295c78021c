"""Neighbouring datasets of the user's own: two that are given, or one with a record added, replaced or zeroed out."""

from __future__ import annotations

import collections
import hashlib
from typing import Any

import numpy as np

from guarantees.checks import checked, require
from mechanisms.pairs.datasets import KINDS, appended, contents, not_finite, records_of, refusal, replaced
from mechanisms.pairs.neighbours import GradientTable, Neighbours, Relation, materialise


@checked
def pair(without: Any, with_record: Any, *, relation: Relation = "add_remove", unit: str = "record") -> Neighbours:
    """Two datasets that differ in one record, of whatever kind the mechanism reads.

    A dataset is an array, a tuple or dict of arrays with one first axis, a list of records, or a map-style dataset of
    PyTorch. Where records cannot be compared (a PyTorch dataset that returns something else each time), nothing checks
    that only one differs.

    Args:
      without: the dataset without the record.
      with_record: the dataset with it: under ``"add_remove"`` it has one record more, under ``"substitution"`` another
        one in one place, under ``"zero_out"`` the record where ``without`` has one whose gradient is zero at all
        weights.
      relation: how they differ.
      unit: the unit of privacy, which reports name in place of 'record', such as ``"client"``.

    Returns:
      The pair.

    Raises:
      ValueError: they differ in more than that: a claim says nothing about such datasets.

    Examples:
      >>> import mechanisms, numpy as np
      >>> mechanisms.pair(np.zeros((3, 2)), np.zeros((4, 2)))
      <Neighbours 'pair': add_remove, 3 records without>
    """
    for name, dataset in (("without", without), ("with_record", with_record)):
        if not isinstance(dataset, GradientTable) and records_of(dataset) is None:
            raise TypeError(f"{name} must be {KINDS}, got {refusal(dataset)}.")
    if isinstance(without, list) != isinstance(with_record, list):
        kinds = " and ".join(f"a {type(dataset).__name__}" for dataset in (without, with_record))
        raise ValueError(f"the two datasets must be of one kind, got {kinds}: {KINDS}.")
    made = Neighbours(without=without, with_record=with_record, relation=relation)
    return _named("pair", made, _differing(without, with_record, relation), stands_for(unit))


@checked
def add_record(dataset: Any, record: Any, *, unit: str = "record") -> Neighbours:
    """``dataset`` without ``record`` and with it as the last one: add_remove neighbours.

    An audit speaks about this record in this dataset; another record may leak more (docs/own-pair.md).

    Args:
      dataset: an array, a tuple or dict of arrays with one first axis, a list, or a PyTorch dataset.
      record: one more of the same form.
      unit: the unit of privacy, which reports name in place of 'record', such as ``"client"``.

    Returns:
      The pair.

    Raises:
      ValueError: the record has another form than those of the dataset.

    Examples:
      >>> import mechanisms, numpy as np
      >>> mechanisms.add_record(np.zeros((3, 2)), np.ones(2))
      <Neighbours 'add_record': add_remove, 3 records without>
    """
    dataset = _checked(dataset)
    made = Neighbours(without=dataset, with_record=appended(dataset, record), relation="add_remove")
    return _named("add_record", made, -1, {"record": record, **stands_for(unit)})


@checked
def replace_record(dataset: Any, index: int, record: Any, *, unit: str = "record") -> Neighbours:
    """``dataset``, and the same with ``record`` in place ``index``: substitution neighbours.

    An audit speaks about these two records in this dataset; others may leak more (docs/own-pair.md).

    Args:
      dataset: an array, a tuple or dict of arrays with one first axis, a list, or a PyTorch dataset.
      index: the place.
      record: what stands there in the second dataset.
      unit: the unit of privacy, which reports name in place of 'record', such as ``"client"``.

    Returns:
      The pair.

    Raises:
      ValueError: there is no such place, or the record has another form than those of the dataset.

    Examples:
      >>> import mechanisms, numpy as np
      >>> mechanisms.replace_record(np.zeros((3, 2)), 0, np.ones(2))
      <Neighbours 'replace_record': substitution, 3 records without>
    """
    dataset, index = _checked(dataset, index)
    made = Neighbours(without=dataset, with_record=replaced(dataset, index, record), relation="substitution")
    return _named("replace_record", made, index, {"index": index, "record": record, **stands_for(unit)})


@checked
def zero_out(dataset: Any, index: int, null: Any = None, *, unit: str = "record") -> Neighbours:
    """``dataset`` with its record ``index``, and with ``null`` in its place: zero_out neighbours.

    Zero-out replaces a record by one that contributes nothing: its gradient is zero whatever the weights are.
    [chua2024] A record of zeros is not enough: an image of zeros still moves the biases. The construction that works
    for every model is a weight among the parts of a record, which multiplies its loss: 1 for records, 0 for the null
    one. Only where the mechanism tells its per-example gradients does the audit check that the null record's gradient
    is zero.

    Args:
      dataset: an array, a tuple or dict of arrays with one first axis, a list, or a PyTorch dataset.
      index: the place of the record.
      null: the record that contributes nothing. It may be left out where rows are gradients (a GradientTable, an array
        of two axes): there a row of zeros is meant.
      unit: the unit of privacy, which reports name in place of 'record', such as ``"client"``.

    Returns:
      The pair.

    Raises:
      ValueError: there is no such place, or ``null`` is missing or has another form.

    Examples:
      >>> import mechanisms, numpy as np
      >>> mechanisms.zero_out(np.ones((3, 2)), 0)
      <Neighbours 'zero_out': zero_out, 3 records without>
    """
    dataset, index = _checked(dataset, index)
    if null is None:
        if getattr(dataset, "ndim", 0) != 2:
            raise ValueError(
                "a record whose gradient is zero at all weights must be given as null=: a record of zeros is one only "
                "if rows are gradients. Give every record a weight that multiplies its loss, and null= one of weight 0."
            )
        null = np.zeros(dataset.shape[1], np.float32)
    made = Neighbours(without=replaced(dataset, index, null), with_record=dataset, relation="zero_out")
    return _named("zero_out", made, index, {"index": index, "null": null, **stands_for(unit)})


def _checked(dataset: Any, index: int | None = None) -> Any:
    """A dataset of a known kind, and a place in it, counted from the front."""
    dataset = np.asarray(materialise(dataset)) if isinstance(dataset, GradientTable) else dataset
    size = records_of(dataset)
    if size is None:
        raise TypeError(f"a dataset is {KINDS}, got {refusal(dataset)}.")
    require("dataset", size >= 1, "of at least one record", size)
    if index is None:
        return dataset
    place = f"the place of one of the {size} records"
    if not isinstance(index, str | int | float | np.number):
        raise ValueError(f"index must be {place}, got a {type(index).__name__}.")
    require("index", isinstance(index, int | np.integer) and -size <= index < size, place, index)
    return dataset, index % size


def _differing(without: Any, with_record: Any, relation: str) -> int:
    """The place of the record that only the second has; -1 where records cannot be compared."""
    first, second = (contents(_rows(dataset)) for dataset in (without, with_record))
    if first is None or second is None:
        return -1
    counted = collections.Counter(first), collections.Counter(second)
    gone, new = counted[0] - counted[1], counted[1] - counted[0]
    if not gone and not new:
        order = "" if first == second else " in another order"
        raise ValueError(f"{relation} neighbours differ in one record; these hold the same records{order}.")
    if gone.total() != (relation != "add_remove") or new.total() != 1:
        raise ValueError(
            f"{relation} neighbours differ in one record; {gone.total()} of these are only in the first dataset and "
            f"{new.total()} only in the second."
        )
    if relation == "add_remove":
        return len(second) - 1 - second[::-1].index(next(iter(new)))
    places = [place for place, (one, other) in enumerate(zip(first, second, strict=True)) if one != other]
    if len(places) > 1:
        raise ValueError(
            f"{relation} neighbours hold their common records in the same order; these differ in the places "
            f"{places[:5]}: mechanisms.replace_record builds such a pair."
        )
    return places[0]


def _rows(dataset: Any) -> Any:
    return np.asarray(materialise(dataset)) if isinstance(dataset, GradientTable) else dataset


def stands_for(unit: str) -> dict[str, str]:
    """The unit of privacy as a record keeps it: only where it is not what a record is called anyway."""
    require("unit", bool(unit.strip()), "a word such as 'client'", unit)
    return {} if unit == "record" else {"unit": unit}


def _named(name: str, made: Neighbours, index: int, parameters: dict[str, Any]) -> Neighbours:
    """The pair under its constructor's name, its numbers finite; what it says is their number and a digest of them."""
    for side, dataset in (("without", made.without), ("with_record", made.with_record)):
        if (found := not_finite(dataset)) is not None:
            raise ValueError(f"{side} must be finite, got {found}.")
    content = contents(_rows(made.without))
    told = {} if content is None else {"content": hashlib.sha256(b"\n".join(content)).hexdigest()[:16]}
    size = made.records_without
    return Neighbours(
        without=made.without,
        with_record=made.with_record,
        relation=made.relation,
        name=name,
        parameters={"records": size, "relation": made.relation, **parameters, **told},
        index=index,
    )
