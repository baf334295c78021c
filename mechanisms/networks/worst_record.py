"""Choosing the record to add to a dataset: the one with the longest gradient."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from guarantees.checks import Positive, checked, require
from mechanisms.pairs.datasets import KINDS, is_torch_dataset, records_of, refusal
from mechanisms.pairs.gradient_lengths import lengths_of
from mechanisms.pairs.gradient_pairs import gradient_rows
from mechanisms.pairs.neighbours import Neighbours
from mechanisms.pairs.record_pairs import add_record


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WorstRecord:
    """The candidate with the longest gradient, and the pair that it makes."""

    index: int
    """Index of the record among the candidates."""
    record: Any
    lengths: tuple[float, ...]
    """Length of every candidate's gradient."""
    opposed: float
    """Cosine between its gradient and the sum of the others: -1 is opposite to all, the worst if sums are clipped."""
    pair: Neighbours
    """The data without the record and with it, which knows these lengths."""

    def __repr__(self) -> str:
        """What a session shows of it: the choice, not the record's data."""
        return (
            f"<WorstRecord: number {self.index} of {len(self.lengths)} candidates, gradient of length "
            f"{self.lengths[self.index]:.4g}, cosine to the sum of the others {self.opposed:.2g}>"
        )


@checked
def worst_record(
    model: Any, loss: Callable[..., Any] | None, data: Any, candidates: Any, *, clip: Positive | None = None
) -> WorstRecord:
    """Which of some records to add to a dataset, so that an audit can see a leak: the one with the longest gradient.

    A record whose gradient is shorter than the clipping bound moves a clipped sum by less than the claim allows, and
    hides what is wrong. Gradients are those at the given weights. ``torch_training`` audits at initial weights of its
    own, where another record may have the longest: give it the training, and None for the loss.
    The longest gradient need not leak most under every fault (docs/own-pair.md).

    Args:
      model: a PyTorch module, or the weights of a JAX model (any pytree); or a mechanism that knows its gradients, such
        as ``torch_training(...)``, to measure at the weights that are audited.
      loss: in PyTorch ``loss(outputs, target)`` where a record is (inputs, target), otherwise ``loss(model, batch)`` of
        a batch of one record; in JAX ``loss(weights, record)``. None with a mechanism.
      data: the dataset that the record is added to.
      candidates: records of the same form, as a dataset.
      clip: the clipping bound, if the result should compare lengths with it.

    Returns:
      The choice: ``record``, ``index``, ``lengths`` of all candidates, and ``pair`` with that record added.

    Raises:
      TypeError: ``data`` or ``candidates`` is not a dataset.
      ValueError: their records have different forms, or a loss is given with a mechanism, or none without one.

    Examples:
      >>> import mechanisms, numpy as np
      >>> data, candidates = np.ones((3, 2), np.float32), np.array([[1, 0], [3, 4]], np.float32)
      >>> found = mechanisms.worst_record(np.zeros(2), lambda weights, record: weights @ record, data, candidates)
      >>> found.index, found.lengths
      (1, (1.0, 5.0))
    """
    for name, dataset in (("data", data), ("candidates", candidates)):
        if not records_of(dataset):
            raise TypeError(f"{name} must be {KINDS}, with at least one record, got {refusal(dataset)}.")
    others, rows = (_rows(model, loss, dataset) for dataset in (data, candidates))
    lengths = np.linalg.norm(rows, axis=1)
    index = int(lengths.argmax())
    own, total = rows[index], others.sum(axis=0)
    scale = float(np.linalg.norm(own) * np.linalg.norm(total))
    record = _record(candidates, index)
    found = dataclasses.replace(lengths_of(np.vstack([others, own]), len(others)), bound=clip)
    return WorstRecord(
        index=index,
        record=record,
        lengths=tuple(float(length) for length in lengths),
        opposed=float(own @ total) / scale if scale > 0 else 0.0,
        pair=dataclasses.replace(add_record(data, record), told_lengths=found),
    )


def _rows(model: Any, loss: Callable[..., Any] | None, dataset: Any) -> np.ndarray:
    """Gradients as one flat row for every record."""
    if callable(own := getattr(model, "gradients", None)):
        require("loss", loss is None, "None with a mechanism, which computes its own gradients", loss)
        return np.asarray(gradient_rows(own(dataset), records_of(dataset) or 0), np.float64)
    if loss is None:
        raise ValueError("loss must be a function: only a mechanism computes gradients without one.")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        from mechanisms.networks.torch_gradients import loss_gradients

        found = loss_gradients(model, loss, dataset)
    else:
        records = jax.tree.map(np.asarray, dataset)
        found = jax.vmap(jax.grad(loss), in_axes=(None, 0))(model, records)
    return np.asarray(gradient_rows(found, records_of(dataset) or 0), np.float64)


def _record(dataset: Any, index: int) -> Any:
    if isinstance(dataset, list) or is_torch_dataset(dataset):
        return dataset[index]
    return jax.tree.map(lambda column: column[index], dataset)
