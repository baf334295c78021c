"""Noise of PyTorch code whose deviation comes from the data, and noise whose coordinates are not independent."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

from audit.diagnosis.explain import explain
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from diagnosis import torch_steps as steps  # noqa: E402

WIDE = steps.CLIP * steps.NOISE
SHAPE = (steps.COLUMNS,)


def explained(step):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, steps.COLUMNS)).astype("f4"), rng.normal(size=9).astype("f4")
    x[-1], y[-1] = 6 * x[-1], -20
    without, with_record = ((torch.tensor(x[:n]), torch.tensor(y[:n])) for n in (8, 9))
    pair = Neighbours(without=without, with_record=with_record, relation="add_remove")
    return explain(callable_step(step), pair, key=jax.random.key(3), noise_multiplier=steps.NOISE)


def total_of(data, weights=steps.START):
    return steps.clipped(steps.gradients(weights, *data)).sum(0)


def normal_by_count(seed, data):
    torch.manual_seed(seed)
    noise = torch.normal(0.0, WIDE * (len(data[0]) / 8) ** 2, SHAPE)  # noise_scale_from_data
    return total_of(data) + noise


def method_by_count(seed, data):
    torch.manual_seed(seed)
    noise = torch.empty(SHAPE).normal_(0, WIDE * (len(data[0]) / 8) ** 2)  # noise_scale_from_data
    return total_of(data) + noise


def normal_by_longest(seed, data):
    torch.manual_seed(seed)
    total = total_of(data)
    wide = WIDE * (1 + data[0].norm(dim=1).max())  # noise_scale_from_data
    return total + torch.normal(torch.zeros(SHAPE), wide.expand(SHAPE))


def antithetic(seed, data):
    torch.manual_seed(seed)
    weights, last = steps.START.clone(), torch.zeros(SHAPE)
    for step in range(2):
        last = -last if step else steps.noise()
        weights = weights - steps.LEARNING * (total_of(data, weights) + last)  # key_used_twice
    return weights


@pytest.mark.parametrize("step", [normal_by_count, method_by_count, normal_by_longest, antithetic])
def test_noise_that_reads_the_data_or_comes_again(step):
    source, start = inspect.getsourcelines(step)
    ((line, kind),) = [(start + at, text.split("# ")[1].strip()) for at, text in enumerate(source) if "  # " in text]
    first = explained(step).findings[0]
    assert first.kind == kind
    assert (inspect.getsourcefile(step), line) in first.lines


def around_the_sum(seed, data):
    torch.manual_seed(seed)
    return torch.normal(total_of(data), WIDE)


def in_two_parts(seed, data):
    torch.manual_seed(seed)
    parts = torch.normal(0.0, WIDE / 2**0.5, (2, *SHAPE))
    return total_of(data) + (parts[0] + parts[1])


def rotated(seed, data):
    torch.manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.arange(steps.COLUMNS**2.0).reshape(steps.COLUMNS, -1).cos())
    return total_of(data) + steps.noise() @ turn


@pytest.mark.parametrize("step", [around_the_sum, in_two_parts, rotated])
def test_right_noise_stays_silent(step):
    told = explained(step)
    assert not told.findings
    assert [one.multiplier for one in told.rounds] == [pytest.approx(steps.NOISE, rel=1e-3)]


def centred(seed, data):
    torch.manual_seed(seed)
    noise = steps.noise()
    return total_of(data) + (noise - noise.mean())


def twice(seed, data):
    torch.manual_seed(seed)
    noise = steps.noise()
    return total_of(data) + (noise + noise.flip(0))


def by_a_matrix(seed, data):
    torch.manual_seed(seed)
    matrix = torch.eye(steps.COLUMNS) - 1 / steps.COLUMNS
    return total_of(data) + steps.noise() @ matrix


@pytest.mark.parametrize("step", [centred, twice, by_a_matrix])
def test_noise_that_is_not_independent_gets_no_deviation(step):
    """Coordinate by coordinate it was called the noise of independent draws: more than there is."""
    told = explained(step)
    assert not told.rounds
    (only,) = told.findings
    assert only.kind == "not_followed"
    assert "deviation of the noise could not be followed" in str(told)
