"""Gradients that PyTorch adds up in ``.grad`` because nothing sets them to zero between two records."""

from __future__ import annotations

import inspect

import jax
import pytest

from audit.diagnosis.explain import explain
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from torch import nn  # noqa: E402

CLIP, NOISE = 0.7, 1.2


def explained(step):
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(6))
    x[-1] *= 8
    pair = Neighbours(without=x[:-1], with_record=x, relation="add_remove")
    return explain(callable_step(step), pair, key=jax.random.key(2), clip=CLIP, noise_multiplier=NOISE)


def begun(seed):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    return net, [torch.zeros_like(weight) for weight in net.parameters()]


def loss(net, row):
    return nn.functional.cross_entropy(net(row[None]), torch.tensor([int(row.sum() > 0)]))


def noisy(totals):
    return [total + CLIP * NOISE * torch.randn(total.shape) for total in totals]


def add(net, totals):
    grads = [weight.grad for weight in net.parameters()]
    length = torch.stack([grad.norm() for grad in grads]).norm()
    for total, grad in zip(totals, grads, strict=True):
        total.add_(grad, alpha=min(1.0, CLIP / (float(length) + 1e-9)))


def zeroed(seed, data):
    net, totals = begun(seed)
    for row in data:
        net.zero_grad()
        loss(net, row).backward()
        add(net, totals)
    return noisy(totals)


def never_zeroed(seed, data):
    net, totals = begun(seed)
    for row in data:
        loss(net, row).backward()  # wrong
        add(net, totals)
    return noisy(totals)


def zeroed_before_the_loop(seed, data):
    net, totals = begun(seed)
    net.zero_grad()
    for row in data:
        loss(net, row).backward()  # wrong
        length = torch.stack([weight.grad.norm() for weight in net.parameters()]).norm()
        for total, weight in zip(totals, net.parameters(), strict=True):
            total += weight.grad * (CLIP / (length + 1e-9)).clamp(max=1.0)
    return noisy(totals)


def clipped_in_place(seed, data):
    net, totals = begun(seed)
    for row in data:
        loss(net, row).backward()  # wrong
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        for total, weight in zip(totals, net.parameters(), strict=True):
            total += weight.grad
    return noisy(totals)


@pytest.mark.parametrize("step", [never_zeroed, zeroed_before_the_loop, clipped_in_place], ids=lambda one: one.__name__)
def test_the_backward_pass_that_adds_up_stands_first(step):
    source, start = inspect.getsourcelines(step)
    line = start + next(at for at, text in enumerate(source) if "# wrong" in text)
    first = explained(step).findings[0]
    assert (first.kind, first.lines[0]) == ("clipped_after_sum", (__file__, line)), first
    assert "adds to .grad, which nothing sets to zero" in first.says


def test_gradients_that_are_set_to_zero_are_left_alone():
    assert not explained(zeroed).suspicions
