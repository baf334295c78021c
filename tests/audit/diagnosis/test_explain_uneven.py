"""One leaf with less noise than the others: named where leaves are clipped together, right where they are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import explain

ROWS = np.random.default_rng(0).normal(size=(5, 6)).astype("f4") * np.array([3, 3, 3, 3, 0.01, 0.01], "f4")
PAIR = mechanisms.pair(ROWS[:-1], ROWS)


def factor(norms, bound):
    return jnp.minimum(1.0, bound / jnp.maximum(norms, 1e-9))[:, None]


def clipped_together(rows):
    own = factor(jnp.linalg.norm(rows, axis=1), 1.0)
    return {"w": (own * rows[:, :4]).sum(0), "b": (own * rows[:, 4:]).sum(0)}


def clipped_leaf_by_leaf(rows):
    """The same factor, computed for each leaf."""
    norms = jnp.linalg.norm(rows, axis=1)
    parts = {"w": rows[:, :4], "b": rows[:, 4:]}
    return jax.tree.map(lambda part: (part / jnp.maximum(1.0, norms)[:, None]).sum(0), parts)


def bounds_of_their_own(rows):
    """Clipped to 1 and to 0.1: noise of 1 and of 0.1 would be a multiplier of 0.71, so both get more."""
    weight, bias = rows[:, :4], 300 * rows[:, 4:]
    own = [factor(jnp.linalg.norm(part, axis=1), bound) * part for part, bound in ((weight, 1.0), (bias, 0.1))]
    return {"w": own[0].sum(0), "b": own[1].sum(0)}


def noisy(key, sums, deviations):
    keys = jax.random.split(key)
    noise = {
        name: deviations[name] * jax.random.normal(k, sums[name].shape) for name, k in zip("wb", keys, strict=True)
    }
    return {"w": sums["w"] + noise["w"], "b": sums["b"] + noise["b"]}


STEPS = {
    "together": (lambda key, rows: noisy(key, clipped_together(rows), {"w": 1.0, "b": 0.1}), True),
    "leaf by leaf": (lambda key, rows: noisy(key, clipped_leaf_by_leaf(rows), {"w": 1.0, "b": 0.1}), True),
    "more on one": (lambda key, rows: noisy(key, clipped_together(rows), {"w": 2.0, "b": 1.0}), False),
    "even": (lambda key, rows: noisy(key, clipped_together(rows), {"w": 1.0, "b": 1.0}), False),
    "own bounds": (lambda key, rows: noisy(key, bounds_of_their_own(rows), {"w": 1.5, "b": 0.15}), False),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", STEPS)
def test_a_leaf_with_less_noise_is_named_where_leaves_are_clipped_together(name):
    step, wrong = STEPS[name]
    findings = explain(step, PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0).findings
    if not wrong:
        assert not findings
        return
    (finding,) = findings
    assert finding.kind == "too_little_noise"
    assert "has standard deviation 0.1, while other parts get 1" in finding.says
    assert "['b']" in finding.says
    assert "a noise multiplier of 0.1, but 1 is expected" in finding.says


def torch_step(deviations, *, own_bounds=False):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

    def cut(part, norms, bound):
        return (part * (bound / norms.clamp(min=1e-9)).clamp(max=1.0)[:, None]).sum(0)

    def step(seed, rows):
        torch.manual_seed(seed)
        rows = torch.as_tensor(rows)
        parts = {"w": rows[:, :4], "b": (300 if own_bounds else 1) * rows[:, 4:]}
        norms = {name: (part if own_bounds else rows).norm(dim=1) for name, part in parts.items()}
        sums = {
            name: cut(part, norms[name], 0.1 if own_bounds and name == "b" else 1.0) for name, part in parts.items()
        }
        return {name: total + deviations[name] * torch.randn(total.shape) for name, total in sums.items()}

    return mechanisms.callable_step(step)


UNEVEN = {
    "together": ({"w": 1.0, "b": 0.1}, False, True),
    "more on one": ({"w": 2.0, "b": 1.0}, False, False),
    "even": ({"w": 1.0, "b": 1.0}, False, False),
    "own bounds": ({"w": 1.5, "b": 0.15}, True, False),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", UNEVEN)
def test_a_tensor_with_less_noise_is_named_where_tensors_are_clipped_together(name):
    deviations, own_bounds, wrong = UNEVEN[name]
    told = explain(
        torch_step(deviations, own_bounds=own_bounds), PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0
    )
    if not wrong:
        assert not told.findings
        return
    (finding,) = told.findings
    assert "adds to b, drawn at" in finding.says
    assert "has standard deviation 0.1, while other parts get 1" in finding.says
    assert "a noise multiplier of 0.1, but 1 is expected" in finding.says


def blocks(bounds, *, together=False):
    """Two tensors in each of two blocks. Each block is clipped to its own bound, or all to what these come to."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

    def step(seed, rows):
        torch.manual_seed(seed)
        rows = 300 * torch.as_tensor(rows)
        if together:
            rows = rows * (np.hypot(*bounds) / rows.norm(dim=1).clamp(min=1e-9)).clamp(max=1.0)[:, None]
        noisy = {}
        for bound, block in zip(bounds, (rows[:, [0, 1, 4]], rows[:, [2, 3, 5]]), strict=True):
            if not together:
                block = block * (bound / block.norm(dim=1).clamp(min=1e-9)).clamp(max=1.0)[:, None]
            for number, part in enumerate(block.sum(0).split([1, 2])):
                noisy[f"{number} of {bound}"] = part + bound * 2**0.5 * torch.randn(part.shape)
        return noisy

    return mechanisms.callable_step(step)


@pytest.mark.few(1)
@pytest.mark.parametrize(("bounds", "clip"), [((0.6, 0.8), 1.0), ((0.3, 0.9), 1.0), ((0.5, 2.0), None)])
def test_blocks_with_bounds_and_noise_of_their_own_are_right(bounds, clip):
    told = explain(blocks(bounds), PAIR, key=jax.random.key(0), clip=clip, noise_multiplier=1.0)
    assert not told.findings
    assert told.rounds[0].multiplier == pytest.approx(1.0, rel=1e-3)


def test_blocks_with_noise_of_their_own_that_are_clipped_together_are_named():
    told = explain(blocks((0.6, 0.8), together=True), PAIR, key=jax.random.key(0), clip=1.0, noise_multiplier=1.0)
    assert {finding.kind for finding in told.findings} == {"too_little_noise"}
    assert all("has standard deviation 0.8485, while other parts get 1.131" in one.says for one in told.findings)


COUNTED = (1 - 0.5**2 / 5**2) ** -0.5
"""The deviation for two tensors clipped together to 1, beside a count that moves by a half and has noise of 5."""


def test_a_count_with_noise_of_its_own_is_not_clipped_together_with_the_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

    def step(seed, rows):
        torch.manual_seed(seed)
        rows = torch.as_tensor(rows)
        norms = rows.norm(dim=1)
        total = (rows / norms.clamp(min=1)[:, None]).sum(0)
        w, b = (part + COUNTED * torch.randn(part.shape) for part in total.split([4, 2]))
        count = ((norms < 1).float() - 0.5).sum()
        return {"w": w, "b": b, "count": count + 5 * torch.randn(())}

    assert not explain(mechanisms.callable_step(step), PAIR, key=jax.random.key(0), noise_multiplier=1.0).findings


def test_pytorchs_deviation_that_is_told_is_that_of_the_line_that_is_named():
    step = torch_step({"w": 1.5, "b": 0.03}, own_bounds=True)
    (finding,) = explain(step, PAIR, key=jax.random.key(0), noise_multiplier=1.0).findings
    assert "has standard deviation 0.03 there (0.03 to 1.5 over all parts, each in its own units)" in finding.says


def test_the_deviation_that_is_told_is_that_of_the_line_that_is_named():
    """Not the root mean square over leaves that other lines give their noise."""
    found = explain(
        lambda key, rows: noisy(key, bounds_of_their_own(rows), {"w": 1.5, "b": 0.03}),
        PAIR,
        key=jax.random.key(0),
        noise_multiplier=1.0,
    ).findings
    (finding,) = [one for one in found if one.kind == "too_little_noise"]
    assert "has standard deviation 0.03 there (0.03 to 1.5 over all parts, each in its own units)" in finding.says
