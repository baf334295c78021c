import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mechanisms.contract import Collapsed
from mechanisms.release import Layout, flatten, flatten_rows, layout_of, stack

TREE = {"dense": {"kernel": np.arange(6.0).reshape(2, 3), "bias": np.array([7, 8])}, "loss": 9.0}


def test_a_layout_says_where_every_tensor_stands():
    layout = layout_of(TREE)
    assert layout == Layout(names=("dense/bias", "dense/kernel", "loss"), shapes=((2,), (2, 3), ()))
    assert (layout.sizes, layout.size, layout.entries) == ((2, 6, 1), 9, 9)
    assert layout.slices == (slice(0, 2), slice(2, 8), slice(8, 9))


def test_a_pytree_is_flattened_in_the_order_of_its_layout():
    flat = flatten(TREE)
    assert flat.dtype == jnp.float32
    np.testing.assert_array_equal(flat, [7, 8, 0, 1, 2, 3, 4, 5, 9])


def test_a_transcript_keeps_its_rounds():
    tree = {"a": np.arange(6.0).reshape(3, 2), "b": np.arange(3.0)}
    layout = layout_of(tree, "transcript")
    assert layout == Layout(names=("a", "b"), shapes=((2,), ()), rounds=3)
    assert layout.entries == 9
    np.testing.assert_array_equal(flatten(tree, "transcript"), [[0, 1, 0], [2, 3, 1], [4, 5, 2]])


def test_plain_arrays_and_collapsed_statistics_keep_their_form():
    matrix, collapsed = jnp.ones((2, 3)), Collapsed(jnp.zeros(1), jnp.ones(()))
    assert flatten(matrix) is matrix
    assert flatten(collapsed) is collapsed
    assert layout_of(collapsed).names == ("along", "rest")


def test_shapes_alone_give_a_layout():
    assert layout_of(jax.eval_shape(lambda: TREE)) == layout_of(TREE)


@pytest.mark.parametrize("kind", ["vector", "transcript"])
def test_outputs_of_many_trials_are_flattened_as_one_is(kind):
    trees = [{"a": np.full((3, 2), i), "b": np.full(3, -i)} for i in range(4)]
    rows, layout = flatten_rows(stack(trees), 4, kind)
    assert layout == layout_of(trees[0], kind)
    for row, tree in zip(rows, trees, strict=True):
        np.testing.assert_array_equal(row, flatten(tree, kind))


def test_lists_of_numbers_are_vectors_and_tensors_are_read():
    rows, layout = flatten_rows(stack([[1.0, 2], [3.0, 4]]), 2)
    assert layout == Layout(names=("output",), shapes=((2,),))
    np.testing.assert_array_equal(rows, [[1, 2], [3, 4]])
    torch = pytest.importorskip("torch")
    weights = torch.ones(2, requires_grad=True)
    rows, layout = flatten_rows(stack([{"w": weights, "b": torch.zeros(1, dtype=torch.bfloat16)}]), 1)
    assert layout.names == ("b", "w")
    np.testing.assert_array_equal(rows, [[0, 1, 1]])


@pytest.mark.parametrize(
    ("output", "kind", "message"),
    [
        ({}, "vector", "a release must be at least one number"),
        ({"z": np.zeros(2, complex)}, "vector", "'z' must be of real numbers"),
        ({"k": jax.random.key(0)}, "vector", "'k' must be of real numbers"),
        ({"a": np.zeros((2, 1)), "b": np.zeros(3)}, "transcript", "one first axis of rounds"),
        ({"a": np.zeros((2, 1)), "b": 1.0}, "transcript", "one first axis of rounds"),
    ],
)
def test_what_is_no_release_is_refused(output, kind, message):
    with pytest.raises(ValueError, match=message):
        flatten(output, kind)


def test_trials_of_several_forms_are_refused():
    with pytest.raises(ValueError, match="the same structure in every trial"):
        stack([np.zeros(2), np.zeros(3)])
    with pytest.raises(ValueError, match=r"shape \(3, coordinates\), one row for every seed, got \(2, 1\) of 'a'"):
        flatten_rows({"a": np.zeros((2, 1))}, 3)


def test_a_finite_number_beyond_float32_is_refused_by_its_value():
    with pytest.raises(ValueError, match=r"a release of 1e\+300 is beyond 3.4e38, the largest float32"):
        flatten_rows(np.array([[0.0, 1e300]]), 1)
    rows, _ = flatten_rows(np.array([[np.inf, 3e38]]), 1)
    assert np.isposinf(rows[0, 0])


def test_changes_that_float32_cannot_hold_are_refused_by_their_size():
    noise = np.random.default_rng(0).laplace(0.0, 5.0, (64, 1))
    with pytest.raises(ValueError, match=r"releases of 2e\+09 vary by .* has steps of 1.3e\+02 there: release float32"):
        flatten_rows(2e9 + noise, 64)
    with pytest.raises(ValueError, match="in 'sum' vary"):
        flatten_rows({"sum": 2_000_000_000 + np.round(noise).astype(np.int64), "count": noise}, 64)


@pytest.mark.parametrize(
    "rows",
    [
        np.full((64, 1), 2e9) * (1 + 1e-16 * np.arange(64)[:, None]),
        2e6 + np.random.default_rng(0).laplace(0.0, 5.0, (64, 1)),
        np.random.default_rng(0).integers(0, 2, (64, 3)).astype(float),
        np.arange(64.0)[:, None] / 3 + 1e5,
        (2e9 + np.random.default_rng(0).laplace(0.0, 5.0, (64, 1)))[:8],
        np.full((64, 1), np.inf),
    ],
    ids=["rounding", "enough digits", "bits", "thirds", "few trials", "infinite"],
)
def test_what_float32_holds_passes(rows):
    np.testing.assert_array_equal(flatten_rows(rows, len(rows))[0], rows.astype(np.float32))


@pytest.mark.parametrize("tree", [jax.random.key(0), {"noisy": np.ones(2), "key": jax.random.key(0)}])
def test_keys_are_no_numbers_to_release(tree):
    with pytest.raises(ValueError, match=r"holds keys of jax.random: leave them out"):
        layout_of(tree)
