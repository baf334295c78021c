"""Optimizers' steps with gradients that have no noise, beside others with noise: they stand first."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

import mechanisms
from audit.diagnosis.explain import explain

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")
from torch.func import functional_call, grad, vmap  # noqa: E402

CLIP, NOISE, LEARNING = 0.5, 1.0, 0.1


def loss(params, model, x, y):
    return (functional_call(model, params, (x[None],))[0, 0] - y) ** 2


def set_gradients(model, data, *, noisy=("0.weight", "0.bias", "2.weight", "2.bias")):
    x, y = data
    taken = torch.rand(len(x)) < 0.5
    params = {name: part.detach() for name, part in model.named_parameters()}
    rows = vmap(grad(loss), (None, None, 0, 0))(params, model, x[taken], y[taken])
    lengths = torch.stack([row.flatten(1).norm(dim=1) for row in rows.values()]).norm(dim=0)
    by = (CLIP / lengths.clamp(min=1e-9)).clamp(max=1.0)
    for name, part in model.named_parameters():
        part.grad = torch.einsum("n,n...->...", by, rows[name])
        if name in noisy:
            part.grad = part.grad + CLIP * NOISE * torch.randn_like(part)


def network():
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))


def plain_beside(data, seed):
    torch.manual_seed(seed)
    model = network()
    private = torch.optim.SGD(model[0].parameters(), lr=LEARNING)
    plain = torch.optim.SGD(model[2].parameters(), lr=LEARNING)  # made
    for _ in range(2):
        set_gradients(model, data, noisy=("0.weight", "0.bias"))
        private.step()
        plain.step()  # wrong
    return model


def take_steps(optimizer, compute, many):
    for number in range(many):
        optimizer.zero_grad()
        compute(number)
        optimizer.step()


def warm_up(data, seed):
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING)  # made

    def plain(number):
        x, y = (column.split(4)[number] for column in data)
        ((model(x)[:, 0] - y) ** 2).mean().backward()

    take_steps(optimizer, plain, 3)  # wrong
    take_steps(optimizer, lambda number: set_gradients(model, data), 2)
    return model


def right(data, seed):
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING)
    for _ in range(2):
        set_gradients(model, data)
        optimizer.step()
    return model


def left_out(data, seed):
    """One step takes both: where noise is added tells more."""
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING)
    for _ in range(2):
        set_gradients(model, data, noisy=("0.weight", "2.weight"))
        optimizer.step()
    return model


def every_other_step(data, seed):
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING)
    for number in range(3):
        set_gradients(model, data, noisy=())
        if number % 2 == 0:  # wrong
            for part in model.parameters():
                part.grad += CLIP * NOISE * torch.randn_like(part)
        optimizer.step()
    return model


def never_kept(data, seed):
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING)
    for _ in range(2):
        set_gradients(model, data, noisy=())
        for part in model.parameters():
            part.grad.add(CLIP * NOISE * torch.randn_like(part))  # wrong
        optimizer.step()
    return model


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("training", "releases", "says"),
    [
        (every_other_step, "transcript", "inside of test_explain_torch_plain_steps.py"),
        (never_kept, "transcript", "adds noise to that sum, but the release uses the sum without it"),
        (never_kept, "final", "adds noise to that sum, but the release uses the sum without it"),
    ],
)
def test_noise_that_is_skipped_or_never_kept_stands_before_the_step(training, releases, says):
    source, start = inspect.getsourcelines(training)
    (found,) = explained(training, releases).findings
    assert found.kind == "released_without_noise"
    assert found.lines[0] == (__file__, start + next(at for at, text in enumerate(source) if "# wrong" in text)), found
    assert says in found.says


def explained(training, releases):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 3)).astype("f4"), rng.normal(size=10).astype("f4")
    without, with_record = ((torch.tensor(x[:n]), torch.tensor(y[:n])) for n in (9, 10))
    pair = mechanisms.Neighbours(without=without, with_record=with_record, relation="add_remove")
    mechanism = mechanisms.torch_training(training, releases=releases)
    return explain(mechanism, pair, key=jax.random.key(3), noise_multiplier=NOISE, clip=CLIP)


@pytest.mark.parametrize(
    ("training", "releases", "often"),
    [
        (plain_beside, "final", "in 2 steps"),
        (warm_up, "final", "in 3 steps before any noise"),
        (warm_up, "transcript", "in 3 steps before any noise"),
    ],
)
def test_the_step_without_noise_stands_first_and_then_where_its_optimizer_is_made(training, releases, often):
    source, start = inspect.getsourcelines(training)
    wrong, made = (next(at for at, text in enumerate(source) if word in text) for word in ("# wrong", "# made"))
    (first,) = explained(training, releases).findings
    assert first.kind == "released_without_noise"
    assert first.lines[0] == (__file__, start + wrong)
    assert (__file__, start + made) in first.lines
    assert often in first.says


def test_what_is_left_out_of_a_step_is_told_where_others_get_noise():
    first = explained(left_out, "final").findings[0]
    assert "noise is added to others" in first.says


def test_right_steps_are_left_alone():
    assert not explained(right, "final").findings


def chosen_by_the_clean_sum(data, seed):
    torch.manual_seed(seed)
    weights = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([weights], lr=LEARNING)
    for _ in range(2):
        rows = data[0][torch.rand(len(data[0])) < 0.5]
        total = (rows / (rows.norm(dim=1, keepdim=True) / CLIP).clamp(min=1)).sum(0)
        noisy = total + CLIP * NOISE * torch.randn(3)
        weights.grad = torch.where(total.abs() > 0.3, noisy, torch.zeros(()))  # wrong
        optimizer.step()
    return [weights]


@pytest.mark.parametrize("releases", ["transcript", "final"])
def test_a_released_value_that_raw_data_choose_is_no_step_without_noise(releases):
    source, start = inspect.getsourcelines(chosen_by_the_clean_sum)
    wrong = next(at for at, text in enumerate(source) if "# wrong" in text)
    first = explained(chosen_by_the_clean_sum, releases).findings[0]
    assert (first.kind, first.lines[0]) == ("changed_after_release", (__file__, start + wrong))
