"""A multiplier that code computes for Opacus is named where it is handed over, also where the right one is known."""

from __future__ import annotations

import dataclasses
import inspect
import types

import jax
import pytest

import guarantees
from audit.diagnosis.explain import explain
from mechanisms import add_record, torch_training

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

SIGMA, CLIP = 1.3, 0.6


def begun(dataset):
    model = nn.Linear(6, 3)
    parts = {"module": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    return parts | {"data_loader": DataLoader(dataset, batch_size=5, shuffle=True)}


def engine():
    return pytest.importorskip("opacus").PrivacyEngine(accountant="rdp")


def fitted(model, optimizer, loader):
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def half_of_a_global(dataset, seed):
    parts = engine().make_private(
        **begun(dataset),
        noise_multiplier=SIGMA / 2,  # HERE
        max_grad_norm=CLIP,
    )
    return fitted(*parts)


def times_the_bound(dataset, seed):
    parts = engine().make_private(
        **begun(dataset),
        noise_multiplier=SIGMA * CLIP,  # HERE
        max_grad_norm=CLIP,
    )
    return fitted(*parts)


def in_the_loop_itself(dataset, seed):
    model, optimizer, loader = engine().make_private(
        **begun(dataset),
        noise_multiplier=SIGMA * CLIP,  # HERE
        max_grad_norm=CLIP,
    )
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def by_a_variable(dataset, seed):
    sigma = SIGMA - CLIP
    model, optimizer, loader = engine().make_private(
        **begun(dataset),
        noise_multiplier=sigma,  # HERE
        max_grad_norm=CLIP,
    )
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def by_an_attribute(dataset, seed):
    settings = types.SimpleNamespace(sigma=SIGMA, clip=CLIP)
    settings.noise = settings.sigma / 2  # HERE
    model, optimizer, loader = engine().make_private(
        **begun(dataset),
        noise_multiplier=settings.noise,
        max_grad_norm=settings.clip,
    )
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def by_an_entry(dataset, seed):
    options = {
        "max_grad_norm": CLIP,
        "noise_multiplier": SIGMA / 2,  # HERE
    }
    model, optimizer, loader = engine().make_private(**begun(dataset), **options)
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


@dataclasses.dataclass
class Settings:
    clip: float = CLIP
    sigma: float = SIGMA


def by_a_field(dataset, seed):
    settings = Settings(sigma=SIGMA / 2)  # HERE
    model, optimizer, loader = engine().make_private(
        **begun(dataset), noise_multiplier=settings.sigma, max_grad_norm=settings.clip
    )
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def private(
    dataset,
    sigma=SIGMA / 2,  # HERE
):
    return engine().make_private(**begun(dataset), noise_multiplier=sigma, max_grad_norm=CLIP)


def by_a_default(dataset, seed):
    model, optimizer, loader = private(dataset)
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def chosen():
    return SIGMA / 2


def by_a_helper(dataset, seed):
    sigma = chosen()
    options = {"max_grad_norm": CLIP, "noise_multiplier": SIGMA}
    options["noise_multiplier"] = sigma  # HERE
    model, optimizer, loader = engine().make_private(**begun(dataset), **options)
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def begun_with(dataset, many=5, nm=1.0, bound=CLIP):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(dataset, batch_size=many)
    return engine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=nm, max_grad_norm=bound
    )


def by_an_innocent_helper(dataset, seed):
    sigma = SIGMA
    half = sigma / 2
    parts = begun_with(
        dataset,
        nm=half,  # HERE
    )
    return fitted(*parts)


def by_two_helpers(dataset, seed):
    def begin(strength):
        return begun_with(dataset, 5, strength)

    parts = begin(SIGMA / 2)  # HERE
    return fitted(*parts)


def by_a_helper_that_halves(dataset, seed):
    def begin(strength):
        strength = strength / 2
        return begun_with(dataset, 5, strength)  # HERE

    parts = begin(SIGMA)
    return fitted(*parts)


HELPERS = {by_a_default: private}
WRONG = [
    in_the_loop_itself,
    half_of_a_global,
    times_the_bound,
    by_a_variable,
    by_an_attribute,
    by_an_entry,
    by_a_field,
    by_a_default,
    by_a_helper,
    by_an_innocent_helper,
    by_two_helpers,
    by_a_helper_that_halves,
]


@pytest.mark.few(2)
@pytest.mark.parametrize("train", WRONG, ids=lambda train: train.__name__)
def test_the_line_that_hands_over_the_multiplier_stands_first(train):
    x, y = torch.linspace(0, 50, 84).sin().reshape(14, 6) * 3, torch.arange(14) % 3
    pair = add_record(TensorDataset(x[:13], y[:13]), (x[13], (y[13] + 1) % 3))
    training = torch_training(train, releases="transcript", clip=CLIP, noise_multiplier=SIGMA)
    claim = guarantees.poisson_training(rate=0.34, noise_multiplier=SIGMA, steps=3)
    first = explain(training, pair, key=jax.random.key(0), claim=claim).suspicions[0]
    source, start = inspect.getsourcelines(HELPERS.get(train, train))
    line = start + next(at for at, text in enumerate(source) if "# HERE" in text)
    assert (first.kind, first.lines[0]) == ("too_little_noise", (__file__, line)), first
