"""Canaries for real models: records that leave a trace which is known beforehand, and examples no training set has.

A gradient canary is a record whose loss is linear in the weights: its gradient is one chosen direction at all weights.
It enters through the loss, so a user's own step clips, sums and adds noise to it as to any other record.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from guarantees.checks import Count, FromZero, Positive, checked, require
from mechanisms.pairs.neighbours import Neighbours, Relation

Directions = Literal["dirac", "random", "last"]
Others = Literal["own", "opposite", "zero"]
OTHERS: tuple[str, ...] = get_args(Others)
LARGEST_TABLE = 2**27
"""Entries of the dense directions of many canaries, half a GiB."""
Loss = Callable[[Any, Any], jax.Array]
"""``loss(weights, record)`` of one record."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GradientCanaries:
    """Orthonormal directions in the space of the weights, each the gradient of one canary.

    A marked record is ``{"record": the record, "canary": which canary or -1, "weight": w}``: its loss is w times the
    model's own where canary is -1, and ``w * length * <direction, weights>`` otherwise. Weight 0 is a record whose
    gradient is zero, -1 one that pulls the other way.
    """

    kind: Directions
    table: np.ndarray
    """Directions (count, size) of one stretch of coordinates; for Dirac their coordinates (count,)."""
    first: int
    """Where the stretch begins."""
    size: int
    """Coordinates of all weights."""
    length: float

    @property
    def count(self) -> int:
        """How many canaries there are."""
        return len(self.table)

    def direction(self, number: int = 0) -> np.ndarray:
        """The unit vector of one canary, flat, in the order of the weights' leaves."""
        require("number", 0 <= number < self.count, f"in [0, {self.count})", number)
        found = np.zeros(self.size, np.float32)
        if self.kind == "dirac":
            found[self.table[number]] = 1.0
        else:
            found[self.first : self.first + self.table.shape[1]] = self.table[number]
        return found

    def loss(self, own: Loss) -> Loss:
        """The loss of marked records, from that of the user's own ones."""

        def marked(weights: Any, record: Any) -> jax.Array:
            flat, _ = ravel_pytree(weights)
            number = jnp.maximum(record["canary"], 0)
            if self.kind == "dirac":
                pulled = flat[jnp.asarray(self.table)[number]]
            else:
                stretch = flat[self.first : self.first + self.table.shape[1]]
                pulled = jnp.dot(jnp.asarray(self.table)[number], stretch, precision=jax.lax.Precision.HIGHEST)
            found = jnp.where(record["canary"] < 0, own(weights, record["record"]), self.length * pulled)
            return record["weight"] * found

        return marked

    def mark(self, dataset: Any, *, canary: Any = -1, weight: Any = 1.0) -> Any:
        """A dataset (a pytree of arrays) with marks: ordinary records unless told."""
        records = len(jax.tree.leaves(dataset)[0])
        return {
            "record": dataset,
            "canary": np.broadcast_to(np.asarray(canary, np.int32), (records,)).copy(),
            "weight": np.broadcast_to(np.asarray(weight, np.float32), (records,)).copy(),
        }

    def pair(
        self, dataset: Any, *, relation: Relation = "zero_out", others: Others = "own", number: int = 0
    ) -> Neighbours:
        """The last record of ``dataset`` becomes a canary; without it there is none (add_remove) or a null record.

        ``others``: as they are, or crafted: all pull the ``opposite`` way, or have ``zero`` gradients. Neither shows
        every fault: the coins of opposite ones hide missing noise, and zero ones hide that the sum is clipped. Among
        opposite ones the canary's gradient is longer than all of theirs together. A step that clips each record does
        not see that; one that clips the sum of a batch is turned around by it, and would give the same with the canary
        as without it if all were of one length.
        """
        require("relation", relation in ("add_remove", "zero_out"), "add_remove or zero_out", relation)
        require("others", others in OTHERS, f"one of {OTHERS}", others)
        require("number", 0 <= number < self.count, f"in [0, {self.count})", number)
        records = len(jax.tree.leaves(dataset)[0])
        require("dataset", records >= 2, "of at least two records", records)
        rest = {"own": (-1, 1.0), "opposite": (number, -1.0), "zero": (-1, 0.0)}[others]
        last = np.arange(records) == records - 1
        own = float(records) if others == "opposite" else 1.0
        canary, weight = np.where(last, number, rest[0]), np.where(last, own, rest[1])
        with_record = self.mark(dataset, canary=canary, weight=weight)
        if relation == "zero_out":
            without = self.mark(dataset, canary=canary, weight=np.where(last, 0.0, weight))
        else:
            without = jax.tree.map(lambda column: column[:-1], with_record)
        return Neighbours(
            without=without,
            with_record=with_record,
            relation=relation,
            name="gradient_canary",
            parameters={
                "records": records - 1,
                "direction": self.kind,
                "number": number,
                "others": others,
                "relation": relation,
            },
        )


@checked
def gradient_canaries(
    weights: Any, *, kind: Directions = "dirac", count: Count = 1, length: Positive = 1.0, seed: FromZero = 0
) -> GradientCanaries:
    """Canaries for a model with these weights: records whose gradients are known, orthogonal directions.

    Drawn from ``seed``, before anything is trained. [nasr2023; andrew2024] They show what a step does with a long
    gradient in one direction, not what it leaks about natural records.

    Args:
      weights: the model's, a pytree.
      kind: ``"dirac"``: one coordinate each, spread over all. ``"random"``: random orthogonal directions. ``"last"``:
        random ones in the last tensor alone.
      count: how many.
      length: norm of each gradient; at least the clipping norm, or clipping is not tested.
      seed: draws the directions.

    Returns:
      The canaries: ``direction(i)``, ``loss``, and pairs that differ in one of them.

    Raises:
      ValueError: an argument is out of range, or there are more canaries than directions.

    Examples:
      >>> import mechanisms, numpy as np
      >>> mechanisms.gradient_canaries({"w": np.zeros((3, 4))}, count=2).count
      2
    """
    sizes = [int(np.size(leaf)) for leaf in jax.tree.leaves(weights)]
    total = sum(sizes)
    room = sizes[-1] if kind == "last" else total
    require("count", count <= room, f"at most the {room} coordinates", count)
    if kind == "dirac":
        table = (np.arange(count) * (total // count) + total // (2 * count)).astype(np.int32)
    else:
        require("count", count * room <= LARGEST_TABLE, f"at most {LARGEST_TABLE // room} (memory)", count)
        drawn = np.random.default_rng(seed).normal(size=(room, count))
        table = np.linalg.qr(drawn)[0].T.astype(np.float32)
    return GradientCanaries(kind=kind, table=table, first=total - room, size=total, length=float(length))


@checked
def mislabelled(dataset: Any, index: int, *, classes: Count) -> Any:
    """A record of the dataset under the next class's label: an example that only memory can fit."""
    image, label = _example(dataset, index)
    return _record(dataset, image, (int(label) + 1) % classes)


@checked
def blank(dataset: Any, *, label: int) -> Any:
    """An image of zeros: what the model learns of it goes to the biases."""
    image, _ = _example(dataset, 0)
    return _record(dataset, np.zeros_like(image), label)


@checked
def out_of_distribution(dataset: Any, *, label: int, seed: FromZero = 0) -> Any:
    """An image of independent uniform pixels between the least and the largest of the dataset's."""
    images, _ = _columns(dataset)
    image, _ = _example(dataset, 0)
    drawn = np.random.default_rng(seed).uniform(float(np.min(images)), float(np.max(images)), image.shape)
    return _record(dataset, drawn.astype(image.dtype), label)


def _columns(dataset: Any) -> tuple[Any, Any]:
    """Images and labels: a dict of both, a pair of arrays, or rows whose last entry is the label."""
    if isinstance(dataset, dict) and {"image", "label"} <= set(dataset):
        return dataset["image"], dataset["label"]
    if isinstance(dataset, tuple | list) and len(dataset) == 2:
        return dataset[0], dataset[1]
    if isinstance(dataset, np.ndarray | jax.Array) and dataset.ndim == 2:
        return dataset[:, :-1], dataset[:, -1]
    raise ValueError(
        "examples are read from a dict with 'image' and 'label', a pair (images, labels), or an array whose rows end "
        f"with the label, got {type(dataset).__name__}."
    )


def _example(dataset: Any, index: int) -> tuple[np.ndarray, Any]:
    images, labels = _columns(dataset)
    require("index", 0 <= index < len(images), f"in [0, {len(images)})", index)
    return np.asarray(images[index]), labels[index]


def _record(dataset: Any, image: np.ndarray, label: int) -> Any:
    """An example in the form of the dataset's records."""
    _, labels = _columns(dataset)
    own = np.asarray(label, np.asarray(labels).dtype)
    if isinstance(dataset, dict):
        row = {name: np.asarray(column[0]) for name, column in dataset.items()}
        return row | {"image": image, "label": own}
    if isinstance(dataset, tuple | list):
        return (image, own)
    return np.append(image, own).astype(image.dtype)
