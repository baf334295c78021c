import gzip

import numpy as np
import pytest

from mechanisms.catalogue import NEIGHBOURS
from mechanisms.pairs.images import image_pair, labelled_images, read_idx


def idx(array):
    header = bytes((0, 0, 8, array.ndim)) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def stored(tmp_path):
    """IDX files as the sets are published: one compressed, one not."""
    images = np.random.default_rng(0).integers(0, 256, (7, 28, 28))
    labels = np.arange(7)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(labels))
    return tmp_path, images, labels


@pytest.mark.parametrize(
    ("source", "labels"), [("mnist", [5, 0, 4, 1, 9, 2, 1, 3]), ("fashion_mnist", [9, 0, 0, 3, 0, 2, 7, 2])]
)
def test_the_shipped_images_are_the_first_of_the_training_set(source, labels):
    rows = labelled_images(source)
    assert rows.shape == (32, 785)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows[:8, 784], labels)
    assert (rows[:, :784].min(), rows[:, :784].max()) == (0.0, 1.0)
    # every image has ink, and no two are equal
    assert (rows[:, :784].sum(axis=1) > 10).all()
    assert len(np.unique(rows, axis=0)) == 32


def test_add_remove_adds_the_next_image():
    pair = image_pair(records=4)
    assert (pair.without.shape, pair.with_record.shape) == ((4, 785), (5, 785))
    np.testing.assert_array_equal(pair.with_record[:4], pair.without)
    np.testing.assert_array_equal(image_pair(records=3, first=2).without, pair.with_record[2:])


def test_substitution_changes_the_last_image_alone():
    pair = image_pair(source="fashion_mnist", records=4, relation="substitution")
    assert pair.without.shape == pair.with_record.shape == (4, 785)
    np.testing.assert_array_equal(pair.with_record[:3], pair.without[:3])
    assert not np.array_equal(pair.with_record[3], pair.without[3])


def test_any_record_of_idx_files_can_be_used(stored):
    folder, images, labels = stored
    pair = image_pair(source=str(folder / "train"), records=2, first=4)
    np.testing.assert_allclose(pair.with_record[:, :784] * 255, images[4:].reshape(3, 784), rtol=1e-6)
    np.testing.assert_array_equal(pair.with_record[:, 784], labels[4:])


def test_suites_know_image_pairs():
    assert NEIGHBOURS["image_pair"] is image_pair


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"source": "nowhere/train"}, "there is neither nowhere/train-images-idx3-ubyte nor"),
        ({"records": 32}, "33 are needed, 32 are there"),
        ({"records": 0}, "records must be an integer >= 1"),
        ({"first": -1}, "first must be an integer >= 0"),
        ({"relation": "zero_out"}, "relation must be one of"),
    ],
    ids=str,
)
def test_what_cannot_be_made_is_refused(words, message):
    with pytest.raises(ValueError, match=message):
        image_pair(**words)


def test_broken_idx_files_are_refused(stored, tmp_path):
    folder, _, labels = stored
    (tmp_path / "text").write_text("not images")
    with pytest.raises(ValueError, match="not an IDX file"):
        read_idx(tmp_path / "text")
    (tmp_path / "short").write_bytes(idx(labels)[:-1])
    with pytest.raises(ValueError, match="cut short: 6 entries"):
        read_idx(tmp_path / "short")
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(labels[:-1]))
    with pytest.raises(ValueError, match="a label for each"):
        image_pair(source=str(folder / "train"))
