"""Wrong arguments of Opacus are named on the lines where they stand."""

from __future__ import annotations

import inspect

import jax
import pytest

import guarantees
from audit.diagnosis.explain import explain
from mechanisms import add_record, replace_record, torch_training

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


def begun(dataset):
    engine = pytest.importorskip("opacus").PrivacyEngine(accountant="rdp")
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    return engine, model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(dataset, batch_size=4, shuffle=True)


def fitted(model, optimizer, loader, reduction="mean"):
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y, reduction=reduction).backward()
        optimizer.step()
    return model


def right(dataset, seed):
    engine, model, optimizer, loader = begun(dataset)
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    return fitted(model, optimizer, loader)


def right_sum(dataset, seed):
    engine, model, optimizer, loader = begun(dataset)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        loss_reduction="sum",
    )
    return fitted(model, optimizer, loader, "sum")


def shuffled(dataset, seed):
    engine, model, optimizer, loader = begun(dataset)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,  # HERE
    )
    return fitted(model, optimizer, loader)


def another_loader(dataset, seed):
    engine, model, optimizer, loader = begun(dataset)
    model, optimizer, _ = engine.make_private(  # HERE
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    return fitted(model, optimizer, loader)


OPTIONS = {
    "max_grad_norm": 1.0,
    "noise_multiplier": 0.5,  # HERE too
}


def from_options(dataset, seed):
    engine, model, optimizer, loader = begun(dataset)
    model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data_loader=loader, **OPTIONS)
    return fitted(model, optimizer, loader)


def of_ghosts(dataset, seed):
    engine, model, optimizer, loader = begun(dataset)
    model, optimizer, criterion, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        criterion=nn.CrossEntropyLoss(),
        data_loader=loader,
        grad_sample_mode="ghost",
        noise_multiplier=0.5,  # HERE
        max_grad_norm=1.0,
    )
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    return model


def for_epsilon(dataset, seed):
    engine, model, optimizer, loader = begun(dataset)
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        target_delta=1e-5,
        target_epsilon=50.0,  # HERE
        epochs=1,
        max_grad_norm=1.0,
    )
    return fitted(model, optimizer, loader)


def scheduled(dataset, seed):
    from opacus.schedulers import ExponentialNoise

    engine, model, optimizer, loader = begun(dataset)
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    less = ExponentialNoise(optimizer, gamma=0.5)  # HERE
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        less.step()
    return model


def too_often(dataset, seed):
    engine, model, optimizer, _ = begun(dataset)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(dataset, batch_size=7),  # HERE
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        loss_reduction="sum",
    )
    for _ in range(2):
        fitted(model, optimizer, loader, "sum")
    return model


def mean_as_a_sum(dataset, seed):
    engine, model, optimizer, loader = begun(dataset)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        loss_reduction="sum",  # HERE
    )
    return fitted(model, optimizer, loader)


def adapted(dataset, seed):
    engine, model, optimizer, loader = begun(dataset)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        clipping="adaptive",  # HERE
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2,
        max_clipbound=10.0,
        min_clipbound=0.1,
        unclipped_num_std=2.0,
    )
    return fitted(model, optimizer, loader)


def two_batches_in_one_step(dataset, seed):
    engine, model, optimizer, loader = begun(dataset)
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    for number in range(8):
        x, y = next(iter(loader))
        cross_entropy(model(x), y).backward()
        optimizer.signal_skip_step(do_skip=number % 2 == 0)  # HERE
        optimizer.step()
        optimizer.zero_grad()
    return model


def line_of(train, mark="# HERE"):
    source, start = inspect.getsourcelines(train)
    return start + next(at for at, text in enumerate(source) if mark in text)


def explained(train, records=14, scale=3.0):
    x = torch.linspace(0, 60, records * 6).sin().reshape(records, 6) * scale
    y = torch.arange(records) % 3
    last = records - 1
    pair = add_record(TensorDataset(x[:last], y[:last]), (x[last], (y[last] + 1) % 3))
    training = torch_training(train, releases="transcript", clip=1.0, noise_multiplier=1.0)
    claim = guarantees.poisson_training(rate=0.25, noise_multiplier=1.0, steps=4, accountant="certified")
    return explain(training, pair, key=jax.random.key(0), claim=claim).suspicions


@pytest.mark.long
@pytest.mark.parametrize("train", [right, right_sum])
@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_right_arguments_are_not_accused(train, scale):
    assert explained(train, scale=scale) == ()


WRONG = [
    (shuffled, "sampled_otherwise", "poisson_sampling=False"),
    (another_loader, "sampled_otherwise", "the loader of Poisson batches that make_private returns"),
    (of_ghosts, "too_little_noise", "noise_multiplier=0.5 is set"),
    (for_epsilon, "too_little_noise", "make_private_with_epsilon chooses it for target_epsilon=50"),
    (too_often, "sampled_otherwise", "Opacus samples at 1/len(loader)"),
    (two_batches_in_one_step, "too_little_noise", "are summed in one step: steps are skipped at"),
    (scheduled, "too_little_noise", "The noise scheduler made"),
    (
        mean_as_a_sum,
        "records_mixed_before_sum",
        "The loss is a mean over the batch, but make_private is given loss_red",
    ),
    (adapted, "noise_scale_from_data", 'clipping="adaptive"'),
]


@pytest.mark.parametrize(
    ("train", "kind", "says"), [WRONG[0], *(pytest.param(*case, marks=pytest.mark.long) for case in WRONG[1:])]
)
def test_the_argument_is_named_on_its_own_line(train, kind, says):
    (found,) = explained(train)
    assert (found.kind, found.lines[0]) == (kind, (__file__, line_of(train)))
    assert says in found.says


def test_an_argument_in_a_dictionary_is_named_in_the_dictionary():
    (found,) = explained(from_options)
    with open(__file__) as text:
        line = next(at for at, own in enumerate(text, 1) if own.endswith("# HERE too\n"))
    assert found.lines[0] == (__file__, line)


@pytest.mark.long
def test_a_divisor_that_counts_records_says_what_to_state_instead():
    """From 15 to 16 records in batches of 4 Opacus divides by 3 and by 4."""
    (found,) = explained(right, records=16)
    assert found.kind == "changed_after_release"
    assert found.lines[0] == (__file__, line_of(right, "engine.make_private("))
    assert 'With loss_reduction="mean" Opacus divides the noisy sum by int(N / len(loader))' in found.says


@pytest.mark.long
def test_adaptive_clipping_is_not_accused_of_sampling_where_a_record_is_replaced():
    """What is compared with 1 to count clipped records was taken for coins that choose them."""
    x, y = torch.linspace(0, 60, 96).sin().reshape(16, 6), torch.arange(16) % 3
    pair = replace_record(TensorDataset(x, y), 5, (20 * x[3], y[4]))
    training = torch_training(adapted, releases="transcript", clip=1.0, noise_multiplier=1.0)
    told = explain(training, pair, key=jax.random.key(0))
    assert told.suspicions == ()
    assert told.not_judged[0].lines == ((__file__, line_of(adapted)),)
