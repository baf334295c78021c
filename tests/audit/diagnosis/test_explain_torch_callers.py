"""Which line stands first where a helper holds a wrong number, or nobody in the training hands it over."""

from __future__ import annotations

import functools
import inspect
import pathlib

import jax
import pytest
from diagnosis.test_explain_opacus_calls import begun, fitted

from audit.diagnosis.explain import explain
from mechanisms import add_record, torch_training

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

BOUND, MULTIPLIER = 0.8, 1.1
ROWS = torch.randn(13, 6, generator=torch.Generator().manual_seed(0))


def explained(training):
    stated = torch_training(training, releases="final", clip=BOUND, noise_multiplier=MULTIPLIER)
    return explain(stated, PAIR, key=jax.random.key(0))


PAIR = add_record(ROWS.numpy(), (20 * ROWS[0]).numpy())


def line_of(function, mark="# HERE"):
    source, start = inspect.getsourcelines(function)
    return __file__, start + next(number for number, line in enumerate(source) if mark in line)


def fit(dataset, seed, release):
    torch.manual_seed(seed)
    weights = torch.nn.Parameter(torch.zeros(6))
    optimizer = torch.optim.SGD([weights], lr=0.1)
    data = torch.as_tensor(dataset)
    for _ in range(2):
        rows = data[torch.rand(len(data)) < 0.5]
        total = (rows / rows.norm(dim=1, keepdim=True).clamp_min(BOUND) * BOUND).sum(0)
        weights.grad = release(total, rows)
        optimizer.step()
    return weights


def too_small(total, rows):
    deviation = 0.6 * 0.8  # HERE
    return total + deviation * torch.randn(total.shape)


SETTINGS = {"noise": 0.6, "clip": 0.8}


def too_small_by_settings(total, rows):
    deviation = SETTINGS["noise"] * SETTINGS["clip"]  # HERE
    return sum([total, deviation * torch.randn(total.shape)])


def divided(total, rows):
    noisy = total + BOUND * MULTIPLIER * torch.randn(total.shape)
    return by_drawn(noisy, rows)


def by_drawn(noisy, rows):
    return noisy / max(len(rows), 1)  # HERE


def noisy_by_drawn(total, rows):
    return total + 4.4 / max(len(rows), 1) * torch.randn(total.shape)  # HERE


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("release", "where"),
    [
        (too_small, too_small),
        (too_small_by_settings, too_small_by_settings),
        (divided, by_drawn),
        (noisy_by_drawn, noisy_by_drawn),
    ],
)
def test_a_helper_that_makes_the_wrong_number_comes_before_its_caller(release, where):
    def training(dataset, seed):
        return fit(dataset, seed, release)

    found, *_ = explained(training).findings
    assert found.lines[0] == line_of(where), str(found)


def with_deviation(total, deviation):
    return total + deviation * torch.randn(total.shape)


def too_small_handed(total, rows):
    return with_deviation(total, 0.48)  # HERE


def over(noisy, count):
    return noisy / count


def drawn_handed(total, rows):
    noisy = with_deviation(total, BOUND * MULTIPLIER)
    return over(noisy, max(len(rows), 1))  # HERE


@pytest.mark.parametrize("release", [too_small_handed, drawn_handed])
def test_a_caller_that_hands_the_wrong_number_over_comes_first(release):
    def training(dataset, seed):
        return fit(dataset, seed, release)

    found, *_ = explained(training).findings
    assert found.lines[0] == line_of(release), str(found)


def private(dataset, seed, sigma=1.0, **more):
    data = TensorDataset(torch.as_tensor(dataset), torch.zeros(len(dataset), dtype=torch.long))
    engine, model, optimizer, _ = begun(data)
    loader = DataLoader(data, batch_size=4)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        max_grad_norm=BOUND,
        noise_multiplier=sigma,  # HERE
        loss_reduction="sum",
    )
    return fitted(model, optimizer, loader, "sum")


def by_a_partial_inside(dataset, seed):
    inner = functools.partial(private, sigma=0.5)
    return inner(dataset, seed)


class Trainer:
    def _run(self, dataset, seed, sigma):
        return private(dataset, seed, sigma=sigma)  # METHOD

    run = functools.partialmethod(_run, sigma=0.5)


@functools.wraps(private)
def wrapped(*args, **kwargs):
    return private(*args, **kwargs, sigma=0.5)  # WRAPPED


def closed_over(sigma):
    def training(dataset, seed):
        return private(dataset, seed, sigma=sigma)  # CLOSED

    return training


in_a_lambda = lambda dataset, seed: private(dataset, seed, sigma=0.5)  # noqa: E731 # LAMBDA


@pytest.mark.parametrize(
    ("training", "mark"),
    [
        (functools.partial(private, sigma=0.5), "noise_multiplier=sigma"),
        (functools.partial(functools.partial(private, sigma=0.5)), "noise_multiplier=sigma"),
        (by_a_partial_inside, "noise_multiplier=sigma"),
        (Trainer().run, "# " + "METHOD"),
        (wrapped, "# " + "WRAPPED"),
        (closed_over(0.5), "# " + "CLOSED"),
        (in_a_lambda, "# " + "LAMBDA"),
    ],
)
def test_a_multiplier_is_set_where_the_training_hands_it_on(training, mark):
    (found,) = explained(training).findings
    lines = pathlib.Path(__file__).read_text(encoding="utf-8").splitlines()
    assert found.lines[0] == (__file__, 1 + next(n for n, line in enumerate(lines) if mark in line)), found.says
    assert line_of(explained, "return explain(") not in found.lines


class Images:
    """Each record is there twice, and a batch takes both copies."""

    def __init__(self, data):
        self.many = len(data)
        self.x = torch.cat([data, data])  # TWICE
        labels = (data[:, 0] > 0).long()
        self.y = torch.cat([labels, labels])

    def drawn(self):
        hit = torch.nonzero(torch.rand(self.many) < 0.5).flatten()
        return torch.cat([hit, hit + self.many])

    def gradients(self, weights, taken):
        def loss(own, x, y):
            return torch.nn.functional.cross_entropy(torch.nn.functional.linear(x[None], own), y[None])

        return torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(weights, self.x[taken], self.y[taken])


def doubled(dataset, seed):
    torch.manual_seed(seed)
    images = Images(torch.as_tensor(dataset))
    taken = images.drawn()
    own = images.gradients(torch.zeros(2, 6), taken).flatten(1)
    total = (own * (BOUND / own.norm(dim=1, keepdim=True)).clamp(max=1.0)).sum(0)
    return {"sum": total + BOUND * MULTIPLIER * torch.randn(12)}


def test_copies_of_records_are_named_where_they_are_made_not_where_a_loss_looks_labels_up():
    found, *_ = explained(doubled).findings
    assert found.lines[0] == line_of(Images, "# TWICE"), found.says
    assert "a batch holds a record more than once" in found.says
