"""Pairs of neighbouring datasets, and the constructions that leak most."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpsgd_audit.later import is_array, jax, jnp
from dpsgd_audit.spelling import counted
from guarantees.checks import Count, checked, require
from guarantees.vocabulary import PairRelation as Relation
from mechanisms.contract import Mechanism
from mechanisms.pairs.datasets import is_torch_dataset, record_shapes, records_of
from mechanisms.pairs.gradient_lengths import GradientLengths, lengths_of
from mechanisms.release import PLAIN

DENSE_LIMIT = 2**28
"""Entries above which a dense array of gradients is refused (1 GiB of float32)."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GradientTable:
    """Per-example gradients, grouped: row g of ``rows`` occurs ``counts[g]`` times.

    ``rows`` holds coordinates in an orthonormal basis of their span, shape (groups, rank); the gradients
    themselves live in ``dimension`` dimensions. With 60,000 equal gradients of 1.5 million coordinates this is
    two numbers. ``basis`` (rank, dimension) is None for the first ``rank`` coordinate axes.
    """

    rows: np.ndarray
    counts: tuple[int, ...]
    dimension: int
    basis: np.ndarray | None = None

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(self.counts)

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return self.rows.shape[1]

    def __post_init__(self):
        require("counts", len(self.counts) == len(self.rows), "one count for every row", self.counts)
        require("dimension", self.dimension >= self.rank, f"at least the rank {self.rank}", self.dimension)

    def dense(self) -> jax.Array:
        """All gradients as one array of shape (records, dimension)."""
        if self.records * self.dimension > DENSE_LIMIT:
            raise ValueError(
                f"{self.records} gradients of {self.dimension} coordinates are too large for a dense array; "
                "audit this pair with the collapsed simulator: mechanisms.one_round(...).collapsed()."
            )
        # on the host: every JAX operation here would be compiled for this one use
        if self.basis is None:
            full = np.pad(self.rows, ((0, 0), (0, self.dimension - self.rank)))
        else:
            full = self.rows @ self.basis
        return jnp.asarray(np.repeat(full.astype(np.float32), self.counts, axis=0))


def materialise(dataset: Any) -> Any:
    """A GradientTable as a dense array, anything else as it is: what ordinary mechanisms read."""
    return dataset.dense() if isinstance(dataset, GradientTable) else dataset


def prepare(mechanism: Mechanism, dataset: Any) -> Any:
    """The dataset in the form that a mechanism reads, found once, outside its compiled program.

    A GradientTable stays one (a constant of the program) for a mechanism that says ``reads_tables``, unless its
    basis fills the full dimension and the output is a vector: then a dense array is as good, and an argument.
    """
    if not isinstance(dataset, GradientTable):
        if is_torch_dataset(dataset):
            raise TypeError(
                f"{mechanism.name!r} is traced by JAX and cannot read a PyTorch dataset; give it arrays, or make it a "
                "mechanisms.callable_step or torch_training."
            )
        # NumPy's own indexing fails where an index is traced: data["x"][index] in a user's step
        return jax.tree.map(_traceable, dataset)
    reads = mechanism.reads_tables
    return dataset if reads and (mechanism.kind == "collapsed" or dataset.basis is None) else dataset.dense()


def _traceable(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc" else leaf


def shape_of(dataset: Any) -> tuple[int, ...] | None:
    """(records, dimensions...) of a table or an array; None for anything else."""
    if isinstance(dataset, GradientTable):
        return (dataset.records, dataset.dimension)
    return tuple(dataset.shape) if is_array(dataset) else None


@checked
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Neighbours:
    """Two datasets that differ in one record, or in a group of records, and how they differ.

    A dataset is whatever the mechanism reads: a GradientTable (handed to ordinary mechanisms as a dense array), an
    array of gradients, images and labels, ... ``mechanisms.pair`` and its relatives build pairs from your own data.

    Sizes and shapes are checked where records can be counted. If you build a pair by hand, make sure yourself that the
    two datasets differ in those records alone.

    Args:
      without: the dataset without the record.
      with_record: the dataset with it.
      relation: ``"add_remove"`` (``with_record`` is longer by ``group``), ``"zero_out"`` or ``"substitution"`` (both
        have one length).
      name: what records call the pair.
      parameters: what records say about it.
      group: in how many records they differ: a promise about one says nothing about two.
      index: the place of the differing record, the last one by default.
      told_lengths: what somebody who knows the model found of the gradients' lengths.

    Raises:
      ValueError: the relation does not fit the sizes, the records' shapes differ, or a dataset is empty.

    Examples:
      >>> import mechanisms, numpy as np
      >>> mechanisms.Neighbours(without=np.zeros((3, 2)), with_record=np.ones((4, 2)), relation="add_remove")
      <Neighbours 'given': add_remove, 3 records without>
    """

    without: Any
    with_record: Any
    relation: Relation
    name: str = "given"
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    group: Count = 1
    index: int = -1
    told_lengths: GradientLengths | None = None

    @property
    def gradient_lengths(self) -> GradientLengths | None:
        """How long the record's gradient is beside the others; None where records are no gradients and nobody said."""
        if not isinstance(self.with_record, GradientTable):
            return self.told_lengths
        table = self.with_record
        ends = np.cumsum(table.counts)
        place = int(np.searchsorted(ends, self.index % int(ends[-1]), side="right"))
        found = lengths_of(table.rows, place, counts=table.counts, group=self.group)
        return dataclasses.replace(found, bound=self.parameters.get("clip"))

    @property
    def records_without(self) -> int | None:
        """Number of records without the differing one, where datasets are of a kind whose records can be counted."""
        return records_in(self.without)

    def __repr__(self) -> str:
        lengths = self.gradient_lengths
        told = "" if lengths is None else f"; {lengths.describe()}"
        fewer = self.records_without
        size = "" if fewer is None else f", {counted(fewer, 'record')} without"
        return f"<Neighbours {self.name!r}: {self.relation}{size}{told}>"

    def __post_init__(self):
        without, with_record = shape_of(self.without), shape_of(self.with_record)
        arrays = without is not None and with_record is not None
        if arrays and (not without or not with_record):
            raise ValueError(f"a dataset must have at least one record, got shapes {without} and {with_record}.")
        less, more = records_in(self.without), records_in(self.with_record)
        if less is None or more is None:
            return
        if less < 1 or more < 1:
            found = f"shapes {without} and {with_record}" if arrays else f"{less} and {counted(more, 'record')}"
            raise ValueError(f"a dataset must have at least one record, got {found}.")
        forms = _record_form(self.without), _record_form(self.with_record)
        if forms[0] != forms[1]:
            found = (
                f"shapes {without} and {with_record}" if arrays else f"records of the shapes {forms[0]} and {forms[1]}"
            )
            raise ValueError(f"the two datasets must have equal dimension, got {found}.")
        extra = self.group if self.relation == "add_remove" else 0
        if more - less != extra:
            columns = " (a list is a list of records; arrays side by side are a tuple or dict)"
            raise ValueError(
                f"{self.relation} neighbours must differ in size by {extra}, with_record the larger; got "
                f"{counted(less, 'record')} without and {more} with{columns if isinstance(self.without, list) else ''}."
            )


def records_in(dataset: Any) -> int | None:
    """Number of records; None where a dataset is of no kind that is known here."""
    return dataset.records if isinstance(dataset, GradientTable) else records_of(dataset)


def _record_form(dataset: Any) -> Any:
    return {PLAIN: (dataset.dimension,)} if isinstance(dataset, GradientTable) else record_shapes(dataset)
