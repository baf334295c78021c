"""Where a wrong number comes from: the line that hands it over, assigns it or has it as a default."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from audit.diagnosis.explain import explain
from audit.diagnosis.explain.handed_over import assigned_at, built_at, handed_over
from audit.diagnosis.explain.numbers_given import DEVIATIONS
from audit.diagnosis.explain.places import NOWHERE
from mechanisms import add_record, callable_step, torch_training

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")


def to_a_library():
    torch.nn.init.normal_(torch.empty(3), std=0.55)  # HERE


def through_a_function():
    noisy(sigma=0.55)  # HERE


def noisy(sigma):
    torch.nn.init.normal_(torch.empty(3), std=sigma)


def by_default(sigma=0.55):  # HERE
    noisy(sigma)


def of_another_name():
    torch.nn.init.trunc_normal_(torch.empty(3), a=0.55, b=1.0)


def line_of(function):
    source, start = inspect.getsourcelines(function)
    return __file__, start + next(at for at, text in enumerate(source) if "# HERE" in text)


@pytest.mark.parametrize("code", [to_a_library, through_a_function, by_default])
def test_the_line_that_first_hands_a_number_over_is_found(code):
    assert handed_over(code, NOWHERE, 0.55, DEVIATIONS).own[0] == line_of(code)


def test_a_number_of_another_name_or_size_is_not_taken_for_it():
    assert handed_over(of_another_name, NOWHERE, 0.55, DEVIATIONS) is NOWHERE
    assert handed_over(to_a_library, NOWHERE, 0.6, DEVIATIONS) is NOWHERE


def changed_later():
    box = SimpleNamespace(noise_multiplier=1.1)
    box.noise_multiplier = 0.55  # HERE


def made_smaller():
    box = SimpleNamespace(noise_multiplier=1.1)
    box.noise_multiplier *= 0.5  # HERE


def changed_twice():
    changed_later()
    made_smaller()


@pytest.mark.parametrize("code", [changed_later, made_smaller])
def test_the_line_that_assigns_an_attribute_is_found(code):
    assert assigned_at(code, 0.55, DEVIATIONS).own == (line_of(code),)


def test_of_two_assignments_none_is_named():
    assert assigned_at(changed_twice, 0.55, DEVIATIONS) is NOWHERE
    assert assigned_at(changed_later, 0.6, DEVIATIONS) is NOWHERE


def released(box, rows):
    box.noise_multiplier *= 0.5  # HERE
    return (rows / rows.norm(dim=1, keepdim=True)).sum(0) + box.noise_multiplier * torch.randn(4)


def fading(seed, data):
    torch.manual_seed(seed)
    return released(SimpleNamespace(noise_multiplier=2.0), data)


def test_noise_that_a_function_makes_smaller_is_named_where_it_does():
    neighbours = add_record(torch.eye(4), torch.full((4,), 3.0))
    stated = {"clip": 1.0, "noise_multiplier": 2.0}
    (found,) = explain(callable_step(fading), neighbours, key=jax.random.key(0), **stated).findings
    assert found.lines[0] == line_of(released)
    assert "a noise multiplier of 1, but 2 is stated" in found.says


def test_an_object_that_nobody_makes_is_made_nowhere():
    assert built_at(to_a_library, "torch/nn/modules/batchnorm.py") is NOWHERE


def half_the_noise(dataset, seed):
    engine = pytest.importorskip("opacus").PrivacyEngine(accountant="rdp")
    net = torch.nn.Linear(4, 2)
    loader = torch.utils.data.DataLoader(dataset, batch_size=4)
    kept = {"module": net, "optimizer": torch.optim.SGD(net.parameters(), lr=0.1), "data_loader": loader}
    net, optimizer, loader = engine.make_private(
        **kept,
        noise_multiplier=0.75,
        max_grad_norm=1.0,
        loss_reduction="sum",
    )
    for x, y in loader:
        torch.nn.functional.cross_entropy(net(x), y, reduction="sum").backward()
        optimizer.step()
    return net


@pytest.mark.long
def test_opacus_with_half_the_noise_is_named_where_it_is_told():
    rng = np.random.default_rng(0)
    x, y = torch.tensor(rng.normal(size=(10, 4)), dtype=torch.float32), torch.arange(10) % 2
    neighbours = add_record(torch.utils.data.TensorDataset(x[:9], y[:9]), (5 * x[9], y[9]))
    training = torch_training(half_the_noise)
    (found,) = explain(training, neighbours, key=jax.random.key(0), clip=1.0, noise_multiplier=1.5).findings
    source, start = inspect.getsourcelines(half_the_noise)
    line = start + next(at for at, text in enumerate(source) if "noise_multiplier" in text)
    assert found.lines[0] == (__file__, line)
    assert found.says.endswith(f"noise_multiplier=0.75 is set at test_explain_handed_over.py:{line}.")
