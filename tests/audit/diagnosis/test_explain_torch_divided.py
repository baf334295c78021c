"""Sums that are divided by the size of the batch, and noise that depends on it."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

from audit.diagnosis.explain import explain
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

CLIP, NOISE, EXPECTED, COLUMNS = 0.5, 1.0, 8, 6


def explained(step):
    x = torch.tensor(np.random.default_rng(0).normal(size=(9, COLUMNS)), dtype=torch.float32)
    pair = Neighbours(without=x[:8], with_record=x, relation="add_remove")
    return explain(callable_step(step), pair, key=jax.random.key(3), noise_multiplier=NOISE, clip=CLIP)


def noise():
    return CLIP * NOISE * torch.randn(COLUMNS) / EXPECTED


def clipped(rows):
    return rows * (CLIP / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)


def batch(seed, data):
    torch.manual_seed(seed)
    return data[torch.rand(len(data)) < 0.5]


def by_length(seed, data):
    rows = batch(seed, data)
    total = clipped(rows).sum(0)
    mean = total / max(1, len(rows))  # wrong
    return mean + noise()


def by_one_over_it(seed, data):
    rows = batch(seed, data)
    share = 1 / max(1, len(rows))
    mean = clipped(rows).sum(0) * share  # wrong
    return mean + noise()


def by_a_tensor(seed, data):
    torch.manual_seed(seed)
    taken = (torch.rand(len(data)) < 0.5).float()
    total = (clipped(data) * taken[:, None]).sum(0)
    mean = total / taken.sum().clamp(min=1)  # wrong
    return mean + noise()


@pytest.mark.parametrize("step", [by_length, by_one_over_it, by_a_tensor])
def test_the_line_that_divides_stands_first(step):
    source, start = inspect.getsourcelines(step)
    line = start + next(at for at, text in enumerate(source) if "# wrong" in text)
    first = explained(step).findings[0]
    assert first.lines[0] == (__file__, line)
    if step is by_a_tensor:
        assert "through their number" in first.says
        return
    assert f"moves the mean at test_explain_torch_divided.py:{line}" in first.says
    assert "is divided by the number of records (" in first.says


def by_the_expected_size(seed, data):
    return clipped(batch(seed, data)).sum(0) / EXPECTED + noise()


def test_a_fixed_divisor_is_right():
    assert not explained(by_the_expected_size).findings


def deviation_by_length(seed, data):
    rows = batch(seed, data)
    deviation = CLIP * NOISE * (max(1, len(rows)) / EXPECTED) ** 0.5  # wrong
    total = clipped(rows).sum(0)
    return total + deviation * torch.randn(COLUMNS)


def noise_of_each(seed, data):
    rows = batch(seed, data)
    each = torch.randn(len(rows), COLUMNS) * CLIP * NOISE / EXPECTED**0.5  # wrong
    return clipped(rows).sum(0) + each.sum(0)


def variance_for_deviation(seed, data):
    rows = batch(seed, data)
    variance = (CLIP * NOISE) ** 2  # wrong
    total = clipped(rows).sum(0)
    return total + variance * torch.randn(COLUMNS)


def test_the_line_that_computes_a_wrong_deviation_stands_first():
    source, start = inspect.getsourcelines(variance_for_deviation)
    first = explained(variance_for_deviation).findings[0]
    assert first.kind == "too_little_noise"
    assert first.lines[0] == (__file__, start + 2)
    assert "# wrong" in source[2]


def too_little_for_a_mean(seed, data):
    mean = clipped(batch(seed, data)).sum(0) / EXPECTED
    return mean + CLIP * NOISE / EXPECTED / 4 * torch.randn(COLUMNS)


def test_the_right_deviation_is_told_where_it_is_known():
    """Of a mean the clipping norm times the multiplier is not the right one."""
    assert "reads, the deviation should be 0.5." in explained(variance_for_deviation).findings[0].says
    first = explained(too_little_for_a_mean).findings[0]
    assert first.kind == "too_little_noise"
    assert "should be" not in first.says


def in_parts(rows, size=1):
    return torch.stack([part.sum(0) for part in rows.split(size)])


def parts_of_two(seed, data):
    parts = in_parts(batch(seed, data), size=2)  # wrong
    return clipped(parts).sum(0) + CLIP * NOISE * torch.randn(COLUMNS)


def parts_of_one(seed, data):
    parts = in_parts(batch(seed, data), size=1)
    return clipped(parts).sum(0) + CLIP * NOISE * torch.randn(COLUMNS)


def test_the_line_that_asks_for_parts_of_several_records_stands_first():
    first = explained(parts_of_two).findings[0]
    assert first.kind == "clipped_after_sum"
    assert first.lines[0] == (__file__, parts_of_two.__code__.co_firstlineno + 1)
    assert "size=2 is set at" in first.says
    assert not explained(parts_of_one).findings


@pytest.mark.parametrize("step", [deviation_by_length, noise_of_each])
def test_the_line_that_makes_noise_depend_on_the_batch_stands_first(step):
    source, start = inspect.getsourcelines(step)
    first = explained(step).findings[0]
    assert first.kind == "noise_scale_from_data"
    assert first.lines[0] == (__file__, start + next(at for at, text in enumerate(source) if "# wrong" in text))
