"""Pairs for code of others: local releases, batches clipped as a whole, long gradients, records (x, label)."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np

from guarantees.checks import AboveZero, Count, checked
from mechanisms.pairs.gradient_pairs import neighbours_from_gradients
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.pairs.record_pairs import add_record, replace_record, stands_for


@checked
def exchanged_pair(
    *, dimension: Count, records: Count = 1, length: AboveZero = 10.0, spread: bool = False, unit: str = "record"
) -> Neighbours:
    """One record exchanged: its gradient, or a client's update, turns round from ``-length e`` to ``+length e``.

    ``e`` is the first axis, or with ``spread`` the vector that is equally large in every coordinate, whose l1 norm is
    ``sqrt(dimension)``: there noise for an l1 bound is too small when the update is clipped in l2.

    Alone (``records=1``) it is the pair of a local release, whose promise is about any two inputs. Among others, which
    are 0, it turns the whole batch round: a batch that is clipped as one instead of record by record moves by twice the
    bound, however many records it has. A leak that other gradients cause is not seen on this pair.

    Args:
      dimension: numbers in a gradient, at least 1.
      records: records of each dataset, the exchanged one included.
      length: l2 norm of the exchanged gradient, above 0: larger than the bound, so that clipping is seen.
      spread: whether the gradient is equally large in every coordinate.
      unit: the unit of privacy, which reports name in place of 'record', such as ``"client"``.

    Returns:
      The pair, of relation ``"substitution"``.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> from mechanisms.pairs.foreign_pairs import exchanged_pair
      >>> pair = exchanged_pair(dimension=2, records=2)
      >>> pair.relation, pair.without.tolist(), pair.with_record.tolist()
      ('substitution', [[0.0, 0.0], [-10.0, 0.0]], [[0.0, 0.0], [10.0, -0.0]])
    """
    rows = np.zeros((records, dimension), np.float32)
    if spread:
        rows[-1] = -length / np.sqrt(dimension)
    else:
        rows[-1, 0] = -length
    made = replace_record(rows, records - 1, -rows[-1])
    words = {"dimension": dimension, "records": records, "length": length, "spread": spread, **stands_for(unit)}
    return _renamed(made, "exchanged_pair", **words)


@checked
def labelled_pair(
    *, norm: AboveZero = 100.0, relation: Literal["add_remove", "substitution"] = "add_remove"
) -> Neighbours:
    """Records (x, label), and one at (norm, 1), where the sum of x^2 is nearly all its own.

    For regressions whose noise is fitted to a bound on x. ``add_remove``: it joins (1, 0) and (1, 1). ``substitution``,
    which proofs of objective perturbation suppose: it takes the place of (0, 1) beside (0, 0) and (0, 1), so that it
    alone moves the objective. A leak that other records cause is not seen on this pair.

    Args:
      norm: x of the differing record, above 0.
      relation: ``"add_remove"`` or ``"substitution"``.

    Returns:
      The pair.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> from mechanisms.pairs.foreign_pairs import labelled_pair
      >>> labelled_pair().with_record.tolist()
      [[1.0, 0.0], [1.0, 1.0], [100.0, 1.0]]
    """
    far = np.array([norm, 1.0], np.float32)
    if relation == "substitution":
        made = replace_record(np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 1.0]], np.float32), 2, far)
    else:
        made = add_record(np.array([[1.0, 0.0], [1.0, 1.0]], np.float32), far)
    return _renamed(made, "labelled_pair", norm=norm, relation=relation)


@checked
def long_pair(*, dimension: Count, records: Count = 3, length: AboveZero = 10.0, unit: str = "record") -> Neighbours:
    """One gradient more, spread over every coordinate and against all others: ``+length e`` beside ``-length e``.

    ``e`` is equally large in every coordinate. All gradients are longer than the bound, so a wrong norm, a wrong bound
    and no clipping show, and so does a coordinate without noise. ``worst_case_pair`` moves one coordinate, and no
    further than the bound.

    Args:
      dimension: numbers in a gradient, at least 1.
      records: common records, without the differing one.
      length: l2 norm of every gradient, above 0: several times the bound.
      unit: the unit of privacy, which reports name in place of 'record', such as ``"client"``.

    Returns:
      The pair, of relation ``"add_remove"``.

    Raises:
      ValueError: an argument is out of range.

    Examples:
      >>> from mechanisms.pairs.foreign_pairs import long_pair
      >>> long_pair(dimension=4, records=2)
      <Neighbours 'long_pair': add_remove, 2 records without; gradient of length 10, others 10>
    """
    row = np.full(dimension, length / np.sqrt(dimension), np.float32)
    made = neighbours_from_gradients(np.tile(-row, (records, 1)), row)
    words = {"dimension": dimension, "records": records, "length": length, **stands_for(unit)}
    return _renamed(made, "long_pair", **words)


def _renamed(made: Neighbours, name: str, **parameters: Any) -> Neighbours:
    """Under its constructor's name and words, so that a record can build it again."""
    return dataclasses.replace(made, name=name, parameters=parameters)
