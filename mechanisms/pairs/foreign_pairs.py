"""Pairs for code of others: local releases, batches that are clipped as a whole, records (x, label)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from guarantees.checks import AboveZero, Count, checked
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.pairs.record_pairs import add_record, replace_record


@checked
def exchanged_pair(*, dimension: Count, records: Count = 1, length: AboveZero = 10.0) -> Neighbours:
    """One record exchanged: its gradient, or a client's update, turns round from ``-length e`` to ``+length e``.

    Alone (``records=1``) it is the pair of a local release, whose promise is about any two inputs. Among others, which
    are 0, it turns the whole batch round: a batch that is clipped as one instead of record by record moves by twice the
    bound, however many records it has.
    """
    rows = np.zeros((records, dimension), np.float32)
    rows[-1, 0] = -length
    made = replace_record(rows, records - 1, -rows[-1])
    return _renamed(made, "exchanged_pair", dimension=dimension, records=records, length=length)


@checked
def labelled_pair(*, norm: AboveZero = 100.0) -> Neighbours:
    """Records (x, label): (1, 0) and (1, 1), and one more at (norm, 1), where the sum of x^2 is nearly all its own.

    For regressions whose noise is fitted to a bound on x.
    """
    rows = np.array([[1.0, 0.0], [1.0, 1.0]], np.float32)
    return _renamed(add_record(rows, np.array([norm, 1.0], np.float32)), "labelled_pair", norm=norm)


def _renamed(made: Neighbours, name: str, **parameters: Any) -> Neighbours:
    """Under its constructor's name and words, so that a record can build it again."""
    return dataclasses.replace(made, name=name, parameters=parameters)
