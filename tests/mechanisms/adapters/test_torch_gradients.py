"""Gradients of loops that users write themselves: seen in the loop, or taken by us where the loss is given."""

from __future__ import annotations

import numpy as np
import pytest

import distinguishers
import mechanisms
from mechanisms.adapters.pytorch.for_torch import torch_training
from mechanisms.networks.torch_gradients import loss_gradients
from mechanisms.pairs.gradient_pairs import GradientsError, told_pair

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from torch import nn  # noqa: E402
from torch.func import functional_call, grad, vmap  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

CLIP, RATE = 1.0, 0.5
IMAGES = torch.linspace(0, 9, 4 * 36).sin().reshape(4, 1, 6, 6)
DATA = TensorDataset(IMAGES, torch.arange(4) % 3)


class Cnn(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Dropout(dropout), nn.Linear(32, 3))

    def forward(self, x):
        return self.layers(x)


def drawn(data, seed):
    """A Poisson batch, which may be empty."""
    generator = torch.Generator().manual_seed(seed)
    taken = torch.rand(len(data), generator=generator) < RATE
    x, y = data[:]
    return x[taken], y[taken], generator


def noisy(parts, generator):
    return [part + torch.randn(part.shape, generator=generator) for part in parts]


def one_by_one(data, seed, model=Cnn):
    """backward for each record, clipping of .grad, an optimizer."""
    model = model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    x, y, generator = drawn(data, seed)
    total = [torch.zeros_like(p) for p in model.parameters()]
    for place in range(len(x)):
        optimizer.zero_grad()
        cross_entropy(model(x[place : place + 1]), y[place : place + 1]).backward()
        own = [p.grad for p in model.parameters()]
        length = torch.sqrt(sum((part**2).sum() for part in own))
        total = [t + part / max(1.0, float(length)) for t, part in zip(total, own, strict=True)]
    for p, part in zip(model.parameters(), noisy(total, generator), strict=True):
        p.grad = part
    optimizer.step()
    return model


def by_autograd_grad(data, seed):
    """torch.autograd.grad of a batch's mean, NaN where it is empty, and weights changed by hand."""
    model = Cnn()
    x, y, generator = drawn(data, seed)
    found = torch.autograd.grad(cross_entropy(model(x), y), list(model.parameters()))
    with torch.no_grad():
        for p, part in zip(model.parameters(), noisy(found, generator), strict=True):
            p -= part
    return model


def by_vmap(data, seed):
    """torch.func, as its own tutorial writes per-sample gradients."""
    model = Cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    x, y, generator = drawn(data, seed)

    def loss(at, image, label):
        return cross_entropy(functional_call(model, at, (image[None],)), label[None])

    if len(x):
        rows = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
        total = [part.sum(0) for part in rows.values()]
    else:
        total = [torch.zeros_like(p) for p in model.parameters()]
    for p, part in zip(model.parameters(), noisy(total, generator), strict=True):
        p.grad = part
    optimizer.step()
    return model


def by_hand(data, seed):
    """No gradient is ever asked of PyTorch."""
    model = Cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(data[:][0])
    for p in model.parameters():
        p.grad = torch.randn(p.shape)
    optimizer.step()
    return model


@pytest.fixture(scope="module")
def truth():
    """At the weights that every trial starts from."""
    kept = []

    def build(data, seed):
        kept.append(Cnn())
        torch.optim.SGD(kept[0].parameters(), lr=1.0)
        return kept[0]

    torch_training(build, releases="final")._watched(DATA, 0)
    return loss_gradients(kept[0], cross_entropy, DATA)


def same(found, truth):
    assert found.keys() == truth.keys()
    for name, rows in truth.items():
        np.testing.assert_allclose(found[name], rows, atol=1e-5)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("train", "releases"),
    [(one_by_one, "update"), (one_by_one, "final"), (by_vmap, "update"), (by_autograd_grad, "final")],
)
def test_gradients_are_seen_in_the_loop(truth, train, releases):
    same(torch_training(train, releases=releases).gradients(DATA), truth)


@pytest.mark.parametrize("train", [by_hand, by_vmap])
def test_a_given_loss_is_differentiated_by_us(truth, train):
    same(torch_training(train, loss=cross_entropy).gradients(DATA), truth)


def test_a_loop_that_computes_none_tells_none():
    with pytest.raises(ValueError, match="does not say what its per-example gradients are"):
        torch_training(by_hand).gradients(DATA)


def test_gradients_that_change_from_trial_to_trial_are_not_used():
    with pytest.raises(ValueError, match="change from trial to trial"):
        torch_training(lambda data, seed: one_by_one(data, seed, lambda: Cnn(0.5))).gradients(DATA)


def test_a_loss_that_does_not_fit_is_refused():
    pair = mechanisms.add_record(DATA, (IMAGES[0] * 2, torch.tensor(1)))
    with pytest.raises(GradientsError, match=r"loss= of 'by_hand'.*called as loss\(outputs, target\)"):
        told_pair(pair, torch_training(by_hand, loss=lambda outputs: outputs))


def test_scores_look_along_the_gradients_of_a_loop_that_told_nothing():
    pair = mechanisms.add_record(DATA, (IMAGES[0] * 2, torch.tensor(1)))
    known = distinguishers.default_battery(pair, mechanism=torch_training(by_vmap)).known
    assert "projection" in [member.name for member in known.members]
    assert distinguishers.default_battery(pair, mechanism=torch_training(by_hand)).known is None


def test_nothing_of_pytorch_stays_replaced():
    before = torch.autograd.backward, torch.autograd.grad
    torch_training(one_by_one).gradients(DATA)
    assert (torch.autograd.backward, torch.autograd.grad) == before


def mistyped(data, seed):
    return vmap(lambda x: x, in_axes=0)(data.tensors[0])


def test_code_that_fails_on_every_dataset_is_told_with_its_own_error():
    with pytest.raises(
        ValueError, match=r"every dataset: TypeError.*in_axes.* \(test_torch_gradients.py:\d+\)"
    ) as told:
        torch_training(mistyped).gradients(DATA)
    assert told.value.__cause__ is None
