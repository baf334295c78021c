"""Wherever a training adds its noise, the update is what is really applied."""

from __future__ import annotations

import types

import numpy as np
import pytest
from checks import FALSE_FAILURE
from scipy import stats

from mechanisms.adapters.pytorch.for_torch import torch_training

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

RATE = 0.1
SEEDS = np.arange(1, 41, dtype=np.uint64)


def add_noise(optimizer, deviation=1.0):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.zeros_like(p) + deviation * torch.randn_like(p)


class Subclass(torch.optim.SGD):
    def step(self, closure=None):
        add_noise(self)
        return super().step(closure)


class HalfNoise(torch.optim.SGD):
    def step(self, closure=None):
        add_noise(self, deviation=0.5)
        return super().step(closure)


class SubclassOfAdam(torch.optim.Adam):
    def step(self, closure=None):
        add_noise(self)
        return super().step(closure)


class Accumulating(Subclass):
    calls = 0

    def step(self, closure=None):
        self.calls += 1
        if self.calls % 2 == 0:
            super().step(closure)


class NoiseOnWeights(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(torch.randn_like(p), alpha=RATE)


class OwnBody(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad + torch.randn_like(p), alpha=-RATE)


class Own(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad + torch.randn_like(p), alpha=-group["lr"])


class Silent(Own):
    def step(self, closure=None):
        pass


class Around(torch.optim.Optimizer):
    """An optimizer that has another one inside."""

    def __init__(self, params, lr):
        params = list(params)
        super().__init__(params, {"lr": lr})
        self.inner = torch.optim.SGD(params, lr=lr)

    def step(self, closure=None):
        add_noise(self)
        self.inner.step()


class Wrapper:
    def __init__(self, params, lr):
        self.inner = torch.optim.SGD(params, lr=lr)

    def step(self):
        add_noise(self.inner)
        self.inner.step()


def attached(params, lr):
    optimizer = torch.optim.SGD(params, lr=lr)
    original = optimizer.step
    optimizer.step = types.MethodType(lambda self: (add_noise(self), original()), optimizer)
    return optimizer


def hooked_before(params, lr):
    optimizer = torch.optim.SGD(params, lr=lr)
    optimizer.register_step_pre_hook(lambda own, given, named: add_noise(own))
    return optimizer


def hooked_after(params, lr):
    optimizer = torch.optim.SGD(params, lr=lr)

    @torch.no_grad()
    def on_weights(own, given, named):
        for p in own.param_groups[0]["params"]:
            p.add_(torch.randn_like(p), alpha=RATE)

    optimizer.register_step_post_hook(on_weights)
    return optimizer


def with_closure(params, lr):
    optimizer = torch.optim.SGD(params, lr=lr)
    original = optimizer.step
    optimizer.step = types.MethodType(lambda self: original(lambda: add_noise(self)), optimizer)
    return optimizer


def drawn(build, *, calls=1, releases="update"):
    def train(dataset, seed):
        model = torch.nn.Linear(6, 3)
        optimizer = build(model.parameters(), RATE)
        for _ in range(calls):
            for p in model.parameters():
                p.grad = torch.zeros_like(p)
            optimizer.step()
        return model

    found = torch_training(train, releases=releases).prepare(np.zeros((4, 6), np.float32))(SEEDS)
    return np.concatenate(
        [part.reshape(len(SEEDS), part.shape[1] if calls > 1 else 1, -1) for part in found.values()], 2
    )


def assert_deviation(found, deviation):
    scaled = np.sum((found / deviation) ** 2)
    p = 2 * min(stats.chi2.cdf(scaled, found.size), stats.chi2.sf(scaled, found.size))
    assert p > FALSE_FAILURE, f"deviation {found.std()} where {deviation} was expected, p = {p:.1e}"


SHAPES = [
    *((shape, 1.0) for shape in (Wrapper, attached, hooked_before, with_closure, Subclass, SubclassOfAdam, Around)),
    (HalfNoise, 0.5),
    # noise that no gradient ever holds: the weights' own change
    *((shape, RATE) for shape in (Own, OwnBody, NoiseOnWeights, hooked_after)),
]


@pytest.mark.few(4)
@pytest.mark.parametrize(("shape", "deviation"), SHAPES, ids=lambda given: getattr(given, "__name__", ""))
def test_the_update_is_read_where_it_is_applied(shape, deviation):
    first = drawn(shape)
    assert_deviation(first, deviation)
    # a class's step has PyTorch's hooks around it once one was built: SGD inside a subclass, too
    torch.optim.SGD([torch.zeros(1)], lr=1.0)
    two = drawn(shape, calls=2, releases="transcript")
    assert two.shape == (len(SEEDS), 2, 21)
    assert np.array_equal(two[:, :1], first)
    assert_deviation(two, deviation)


def test_the_check_of_the_deviation_can_fail():
    with pytest.raises(AssertionError, match="was expected"):
        assert_deviation(drawn(HalfNoise), 1.0)


def test_a_step_that_only_accumulates_is_none_and_an_own_one_that_changes_nothing_is_zero():
    assert drawn(Accumulating, calls=4, releases="transcript").shape == (len(SEEDS), 2, 21)
    assert not drawn(Silent).any()


def test_optimizers_are_left_as_they_were():
    before = {name: vars(torch.optim.SGD)[name] for name in ("step", "_init_group")}
    drawn(Subclass)
    drawn(NoiseOnWeights)
    assert {name: vars(torch.optim.SGD)[name] for name in before} == before
