"""Neighbouring datasets of per-example gradients: the geometries that leak most, and any that is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from guarantees.checks import Count, Positive, checked, require
from mechanisms.contract import BatchMechanism, Mechanism
from mechanisms.pairs.gradient_lengths import GradientLengths, lengths_of
from mechanisms.pairs.neighbours import GradientTable, Neighbours, Relation, materialise, records_in
from mechanisms.release import PLAIN, flatten_rows, host_array, leaves

ORTHOGONAL_LIMIT = 4096
"""Most mutually orthogonal records: their coordinates are a square table."""
ROUNDING = 1e-6
"""Of the longest gradient: one that is shorter is zero."""
SPAN_WORK = 2e10
"""Multiplications above which the span of given gradients is not computed."""


class RelationError(RuntimeError):
    """A pair that is not what its relation says."""


class GradientsError(RuntimeError):
    """What a user gave as the per-example gradients of a step are none."""


def _tables(
    shared: np.ndarray,
    counts: tuple[int, ...],
    extra: np.ndarray,
    replacement: np.ndarray,
    *,
    relation: Relation,
    dimension: int,
    basis: np.ndarray | None = None,
    group: int = 1,
) -> tuple[GradientTable, GradientTable]:
    """Both datasets in one basis; what stands in the record's place without it depends on the relation."""

    def table(last: np.ndarray | None) -> GradientTable:
        rows = shared if last is None else np.vstack([shared, last])
        return GradientTable(
            rows=rows, counts=counts if last is None else (*counts, group), dimension=dimension, basis=basis
        )

    place = {"add_remove": None, "zero_out": np.zeros_like(extra), "substitution": replacement}[relation]
    return table(place), table(extra)


@checked
def worst_case_pair(
    *,
    records: Count,
    dimension: Count,
    clip: Positive,
    shared: float = -1.0,
    extra: float = 1.0,
    relation: Relation = "add_remove",
    group: Count = 1,
) -> Neighbours:
    """Aligned gradients: ``g_i = shared * clip * e`` for the common records, ``extra * clip * e`` for the one.

    Without the record its place is empty (add_remove), holds a zero gradient (zero_out) or the opposite gradient
    ``-extra * clip * e`` (substitution). The default, opposite to all others, is the worst case of
    [wang2026, section 3] when every record is in the batch; for rates below 1 other geometries can leak more.

    Args:
      records: common records, without the differing one.
      dimension: coordinates of a gradient.
      clip: the clipping norm of the step.
      shared: the common records' gradient, in units of ``clip`` along e.
      extra: the differing record's.
      relation: ``"add_remove"``, ``"zero_out"`` or ``"substitution"``.
      group: how many records differ, all alike; judging them needs a claim about as many.

    Returns:
      The pair.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import mechanisms
      >>> mechanisms.worst_case_pair(records=4, dimension=100, clip=0.1)
      <Neighbours 'worst_case_pair': add_remove, 4 records without; gradient of length 0.1, others 0.1, bound 0.1>
    """
    require("shared", -1 <= shared <= 1, "in [-1, 1]", shared)
    require("extra", -1 <= extra <= 1, "in [-1, 1]", extra)
    own = np.array([extra * clip])
    without, with_record = _tables(
        np.array([[shared * clip]]),
        (int(records),),
        own,
        -own,
        relation=relation,
        dimension=int(dimension),
        group=int(group),
    )
    return Neighbours(
        without=without,
        with_record=with_record,
        relation=relation,
        name="worst_case_pair",
        parameters={
            "records": records,
            "dimension": dimension,
            "clip": clip,
            "shared": shared,
            "extra": extra,
            "relation": relation,
        }
        | ({"group": group} if group > 1 else {}),
        group=int(group),
    )


@checked
def zero_pair(*, records: Count, dimension: Count, clip: Positive, relation: Relation = "add_remove") -> Neighbours:
    """Every gradient zero, the extra one too: only the normaliser can tell the two datasets apart.

    It leaks more than opposite gradients at 3 records, dimension 6, noise multiplier 1, rate .1 (total
    variation .3713 against .3666). Under zero_out and substitution the two datasets are equal.

    Args:
      records: common records, without the differing one, at least 1.
      dimension: coordinates of a gradient, at least 1.
      clip: the clipping norm of the step, above 0 and finite.
      relation: ``"add_remove"``, ``"zero_out"`` or ``"substitution"``.

    Returns:
      The pair.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> import mechanisms
      >>> mechanisms.zero_pair(records=4, dimension=100, clip=0.1)
      <Neighbours 'zero_pair': add_remove, 4 records without; gradient of length 0, others 0, bound 0.1>
    """
    pair = worst_case_pair(records=records, dimension=dimension, clip=clip, shared=0.0, extra=0.0, relation=relation)
    given = {key: value for key, value in pair.parameters.items() if key not in ("shared", "extra")}
    return dataclasses.replace(pair, name="zero_pair", parameters=given)


@checked
def orthogonal_pair(
    *, records: Count, dimension: Count, clip: Positive, relation: Relation = "add_remove"
) -> Neighbours:
    """All gradients of length ``clip`` and mutually orthogonal, the extra one too: ``g_i = clip * e_i``.

    It leaks more than opposite gradients at 3 records, dimension 6, noise multiplier .5, rate .5 (total
    variation .464 against .458).

    Args:
      records: common records, without the differing one, from 1 to 4096.
      dimension: coordinates of a gradient, more than ``records``.
      clip: the clipping norm of the step, above 0 and finite.
      relation: ``"add_remove"``, ``"zero_out"`` or ``"substitution"``.

    Returns:
      The pair.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> from mechanisms.pairs import gradient_pairs
      >>> gradient_pairs.orthogonal_pair(records=4, dimension=100, clip=0.1)
      <Neighbours 'orthogonal_pair': add_remove, 4 records without; gradient of length 0.1, others 0.1, bound 0.1>
    """
    require("records", records <= ORTHOGONAL_LIMIT, f"at most {ORTHOGONAL_LIMIT} when orthogonal", records)
    require("dimension", dimension > records, f"more than the {records} records", dimension)
    rows = clip * np.eye(records + 1)
    without, with_record = _tables(
        rows[:-1], (1,) * records, rows[-1], -rows[-1], relation=relation, dimension=int(dimension)
    )
    return Neighbours(
        without=without,
        with_record=with_record,
        relation=relation,
        name="orthogonal_pair",
        parameters={"records": records, "dimension": dimension, "clip": clip, "relation": relation},
    )


def _matrix(gradients: ArrayLike, name: str, *, none: bool = False) -> np.ndarray:
    """Finite real numbers in two dimensions, or an error that names the row; ``none`` allows no rows."""
    array = np.asarray(gradients)
    if array.ndim != 2 or 0 in (array.shape[1:] if none else array.shape):
        raise ValueError(f"{name} must have shape (records, dimension), neither zero, got {array.shape}.")
    if array.dtype != np.float32:
        array = array.astype(np.float64)
    bad = ~np.isfinite(array)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(f"{name} must be finite, got {array[row, column]} in row {row}, coordinate {column}.")
    return array


def _span(rows: np.ndarray) -> np.ndarray:
    """Orthonormal basis (rank, dimension) of the rows' span, up to the resolution of their dtype."""
    _, sizes, directions = np.linalg.svd(rows.astype(np.float64), full_matrices=False)
    smallest = sizes[0] * 4 * np.sqrt(len(rows)) * np.finfo(rows.dtype).eps
    rank = max(1, int(np.sum(sizes > smallest)))
    return directions[:rank]


@checked
def neighbours_from_gradients(
    gradients: ArrayLike,
    extra: ArrayLike,
    *,
    relation: Relation = "add_remove",
    replacement: ArrayLike | None = None,
) -> Neighbours:
    """The pair made of given per-example gradients (records, dimension) and the extra record's gradient.

    The gradients are stored by their coordinates in their common span, so that low rank can be collapsed; where finding
    the span would take more than 2e10 multiplications they stay dense arrays, which only the full simulator reads.

    They are the gradients of one moment: a mechanism that reads them says nothing about later steps of a training.

    Args:
      gradients: of the common records, not clipped, shape (records, dimension); finite. There may be none of them
        where the record is not added (one record, as in local privacy).
      extra: the differing record's gradient.
      relation: ``"add_remove"``, ``"zero_out"`` or ``"substitution"``.
      replacement: the gradient in the extra record's place, under substitution and only there.

    Returns:
      The pair.

    Raises:
      ValueError: shapes do not fit, a number is not finite, or ``replacement`` is missing or out of place.

    Examples:
      >>> import mechanisms
      >>> mechanisms.neighbours_from_gradients([[1.0, 0.0], [0.0, 1.0]], [3.0, 4.0])
      <Neighbours 'neighbours_from_gradients': add_remove, 2 records without; gradient of length 5, others 1>
    """
    # a record that is alone is exchanged, or zeroed; added to nobody it has no neighbours
    common = _matrix(gradients, "gradients", none=relation != "add_remove")
    others = [np.atleast_2d(np.asarray(extra))]
    if relation == "substitution":
        if replacement is None:
            raise ValueError("substitution needs replacement=, the gradient that takes the extra record's place.")
        others.append(np.atleast_2d(np.asarray(replacement)))
    elif replacement is not None:
        raise ValueError(
            f"replacement applies only to substitution, not to {relation}; drop it, or pass relation='substitution'."
        )
    last = _matrix(np.vstack(others), "extra and replacement")
    if last.shape[1] != common.shape[1]:
        raise ValueError(f"extra must have the {common.shape[1]} coordinates of the gradients, got {last.shape[1]}.")
    without, with_record = _given_tables(common, last, relation)
    return Neighbours(
        without=without,
        with_record=with_record,
        relation=relation,
        name="neighbours_from_gradients",
        parameters={"records": len(common), "dimension": common.shape[1], "relation": relation},
        told_lengths=lengths_of(np.vstack([common, last[:1]]), len(common)),
    )


def gradient_pair(neighbours: Neighbours, gradients: Callable[[Any], ArrayLike]) -> Neighbours:
    """The pair of gradients that a network makes of a pair of records, the differing one last.

    ``gradients`` gives one row for every record of a dataset, the same in every trial. A zero_out pair whose null
    record has a gradient is none, and no claim about zero_out speaks about it: a RelationError.
    """
    place, relation = neighbours.index, neighbours.relation
    with_record = _rows_of(gradients(materialise(neighbours.with_record)), neighbours.with_record)
    # a record that is added has nothing in its place, and the common ones are worked out once
    without = with_record[:0]
    if relation != "add_remove":
        without = _rows_of(gradients(materialise(neighbours.without)), neighbours.without)
    if relation == "zero_out":
        length, most = np.linalg.norm(without[place]), np.linalg.norm(with_record, axis=1).max()
        if not length <= ROUNDING * most:
            raise RelationError(
                "under zero_out the record's place must hold one whose gradient is zero, and this one's has length "
                f"{length:.3g}. Give records a weight that multiplies their loss, and the null record weight 0: see "
                "mechanisms.zero_out."
            )
    return neighbours_from_gradients(
        np.delete(with_record, place, axis=0),
        with_record[place],
        relation=relation,
        replacement=without[place] if relation == "substitution" else None,
    )


def _rows_of(found: Any, dataset: Any) -> np.ndarray:
    records = records_in(dataset)
    return gradient_rows(found, len(found) if records is None else records)


def told_pair(neighbours: Neighbours, mechanism: Mechanism | BatchMechanism) -> Neighbours:
    """``gradient_pair`` of what a mechanism tells; a ValueError says that it tells nothing.

    Where a user's own function tells it, whatever is wrong with that is a GradientsError.
    """
    try:
        return gradient_pair(neighbours, mechanism.gradients)
    except RelationError:
        raise
    except Exception as error:
        if not mechanism.gradients_told:
            raise
        raise GradientsError(f"gradients= of {mechanism.name!r}: {error}") from error


def made_of_gradients(pair: Neighbours) -> bool:
    """Whether ``neighbours_from_gradients`` made it, and with it ``told_pair``."""
    return pair.name == neighbours_from_gradients.__name__


def known_lengths(
    mechanism: Mechanism | BatchMechanism, neighbours: Neighbours, read_as: Neighbours | None = None
) -> GradientLengths | None:
    """How long the record's gradient is beside the others and the mechanism's bound; None where nobody says.

    ``read_as`` is the pair of gradients that scores made of this one: they are not worked out twice.
    """
    made = read_as is not None and made_of_gradients(read_as)
    try:
        if mechanism.gradients_told and not made:
            read_as, made = told_pair(neighbours, mechanism), True
    except (ValueError, RelationError, GradientsError):
        return None
    found = read_as.gradient_lengths if made and read_as is not None else neighbours.gradient_lengths
    bound = mechanism.parameters.get("clip")
    if found is None or not isinstance(bound, int | float) or bound <= 0:
        return found
    return dataclasses.replace(found, bound=float(bound))


def gradient_rows(found: Any, records: int) -> np.ndarray:
    """Gradients, or pytrees of them, as one flat row for every record."""
    for name, leaf in leaves(found):
        shape = np.shape(host_array(leaf))
        if shape[:1] != (records,):
            part = "" if name == PLAIN else f" of {name!r}"
            raise ValueError(f"must give a row for each of the {records} records, got shape {shape}{part}.")
    return flatten_rows(found, records)[0]


def _given_tables(common: np.ndarray, last: np.ndarray, relation: Relation):
    """Tables in the span, equal gradients counted together; dense arrays where the span is too expensive to find."""
    everything = np.vstack([common, last])
    if everything.size * len(everything) > SPAN_WORK:
        place = {"add_remove": [], "zero_out": [np.zeros_like(last[:1])], "substitution": [last[1:]]}[relation]
        return np.vstack([common, *place]), np.vstack([common, last[:1]])
    basis = _span(everything)
    distinct, counts = np.unique(common, axis=0, return_counts=True)
    return _tables(
        distinct @ basis.T,
        tuple(int(c) for c in counts),
        last[0] @ basis.T,
        last[-1] @ basis.T,
        relation=relation,
        dimension=common.shape[1],
        basis=basis,
    )
