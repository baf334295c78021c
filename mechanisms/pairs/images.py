"""Neighbouring datasets of real images: MNIST and Fashion-MNIST records, a few of them shipped with the package."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from guarantees.checks import Count, FromZero, checked, require
from mechanisms.pairs.neighbours import Neighbours, Relation

SHIPPED = ("mnist", "fashion_mnist")
"""The first 32 records of each training set lie beside this file; data/README.md says where they come from."""
DATA = Path(__file__).parent / "data"
SIDE = 28
PIXELS = SIDE * SIDE
RELATIONS_OF_IMAGES = ("add_remove", "substitution")
UNSIGNED_BYTE = 8


@checked
def image_pair(
    *, source: str = "mnist", records: Count = 4, first: FromZero = 0, relation: Relation = "add_remove"
) -> Neighbours:
    """Consecutive images of a set, without and with one more (add_remove) or with another last one (substitution).

    A dataset is float32 of shape (records, 785): 784 pixels in [0, 1], row by row, and the label. [lecun1998; xiao2017]

    An image is not a gradient: only mechanisms that hold a network read these pairs, and no zero_out exists for them.

    Args:
      source: ``"mnist"`` or ``"fashion_mnist"`` (the first 32 training records), or the common beginning of the paths
        of two IDX files: ``/data/train`` reads ``/data/train-images-idx3-ubyte`` and
        ``/data/train-labels-idx1-ubyte``, or those with ``.gz``.
      records: images without the differing one, at least 1.
      first: which image comes first, counted from 0.
      relation: ``"add_remove"`` or ``"substitution"``.

    Returns:
      The pair.

    Raises:
      ValueError: an argument is out of range, the files are not there or not of that kind, or hold too few images.

    Examples:
      >>> import mechanisms
      >>> mechanisms.image_pair(records=3).with_record.shape
      (4, 785)
    """
    require("relation", relation in RELATIONS_OF_IMAGES, f"one of {RELATIONS_OF_IMAGES}", relation)
    rows = labelled_images(source)[first : first + records + 1]
    if len(rows) <= records:
        raise ValueError(
            f"{source} has too few images for records={records} from first={first}: {records + 1} are needed, "
            f"{len(rows)} are there; give the path of the whole set's IDX files as source."
        )
    without, with_record = (rows[:-1], rows) if relation == "add_remove" else (rows[:-1], np.delete(rows, -2, axis=0))
    return Neighbours(
        without=without,
        with_record=with_record,
        relation=relation,
        name="image_pair",
        parameters={"source": source, "records": records, "first": first, "relation": relation},
    )


def labelled_images(source: str) -> np.ndarray:
    """All images of a source as rows of 784 pixels in [0, 1] and the label, float32."""
    if source in SHIPPED:
        with np.load(DATA / f"{source}.npz") as stored:
            images, labels = stored["images"], stored["labels"]
    else:
        images = read_idx(_idx_file(f"{source}-images-idx3-ubyte"))
        labels = read_idx(_idx_file(f"{source}-labels-idx1-ubyte"))
    if images.shape[1:] != (SIDE, SIDE) or labels.shape != images.shape[:1]:
        raise ValueError(
            f"{source} must hold 28 x 28 images and a label for each, got shapes {images.shape}, {labels.shape}."
        )
    pixels = images.reshape(len(images), PIXELS).astype(np.float32) / np.float32(255)
    return np.concatenate([pixels, labels[:, None].astype(np.float32)], axis=1)


def _idx_file(name: str) -> Path:
    """The file as it is or compressed; neither is an error that names both."""
    for path in (Path(name), Path(f"{name}.gz")):
        if path.is_file():
            return path
    raise ValueError(
        f"source must be one of {SHIPPED} or the beginning of the paths of IDX files; there is neither {name} "
        f"nor {name}.gz."
    )


def read_idx(path: str | Path) -> np.ndarray:
    """The array of unsigned bytes in an IDX file, compressed with gzip or not. [lecun1998]

    Two zero bytes, the type (8), the number of dimensions, each dimension as a big-endian uint32, the entries.
    """
    raw = Path(path).read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    if len(raw) < 4 or raw[:3] != bytes((0, 0, UNSIGNED_BYTE)):
        raise ValueError(f"{path} is not an IDX file of unsigned bytes: it begins with {raw[:4]!r}.")
    start = 4 + 4 * raw[3]
    shape = tuple(int(size) for size in np.frombuffer(raw[4:start], ">u4"))
    if len(shape) != raw[3] or len(raw) - start != int(np.prod(shape)):
        raise ValueError(f"{path} is cut short: {len(raw) - start} entries where its header says {shape}.")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)
