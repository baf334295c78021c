"""Lines of PyTorch code that measure records wrongly: norms of ghost clipping, and those over the wrong axis."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

from audit.diagnosis.explain import explain
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

CLIP, NOISE, COLUMNS = 0.5, 1.5, 4


def explained(step, last=6.0):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9, COLUMNS)).astype("f4")
    x[-1] *= last
    y = np.arange(9) % 3
    without, with_record = ((torch.tensor(x[:n]), torch.tensor(y[:n])) for n in (8, 9))
    pair = Neighbours(without=without, with_record=with_record, relation="add_remove")
    return explain(callable_step(step), pair, key=jax.random.key(3), clip=CLIP, noise_multiplier=NOISE)


def layer(bias=True):
    net = torch.nn.Linear(COLUMNS, 3, bias=bias)
    with torch.no_grad():
        net.weight.copy_(torch.linspace(-1, 1, 3 * COLUMNS).view(3, COLUMNS))
        if bias:
            net.bias.copy_(torch.tensor([0.3, -0.2, 0.1]))
    return net


def losses_of(net, data):
    return torch.nn.functional.cross_entropy(net(data[0]), data[1], reduction="none")


def backprops(net, data):
    """What enters the layer, and the gradient that leaves it."""
    out = net(data[0])
    loss = torch.nn.functional.cross_entropy(out, data[1], reduction="sum")
    return data[0], torch.autograd.grad(loss, out)[0]


def noisy(net, losses, weights):
    torch.dot(weights, losses).backward()
    return [p.grad + CLIP * NOISE * torch.randn(p.shape) for p in net.parameters()]


def squares(act, back):
    return torch.einsum("ni,ni,nj,nj->n", act, act, back, back) + (back * back).sum(1)


def ghost(seed, data):
    torch.manual_seed(seed)
    net = layer()
    norms = squares(*backprops(net, data)).sqrt()
    return noisy(net, losses_of(net, data), (CLIP / norms).clamp(max=1.0))


def without_bias(seed, data):
    torch.manual_seed(seed)
    net = layer()
    act, back = backprops(net, data)
    norms = torch.einsum("ni,ni,nj,nj->n", act, act, back, back).sqrt()  # wrong
    return noisy(net, losses_of(net, data), (CLIP / norms).clamp(max=1.0))


def squares_as_lengths(seed, data):
    torch.manual_seed(seed)
    net = layer()
    norms = squares(*backprops(net, data))  # wrong
    return noisy(net, losses_of(net, data), (CLIP / norms).clamp(max=1.0))


def norms_of(act, back):
    return torch.einsum("ni,ni,nj,nj->n", act, act, back, back) + (back * back).sum(1)  # wrong


def squares_called_norms(seed, data):
    torch.manual_seed(seed)
    net = layer()
    norms = norms_of(*backprops(net, data))
    return noisy(net, losses_of(net, data), (CLIP / norms).clamp(max=1.0))


def of_the_mean(seed, data):
    torch.manual_seed(seed)
    net = layer()
    out = net(data[0])
    loss = torch.nn.functional.cross_entropy(out, data[1])
    (back,) = torch.autograd.grad(loss, out)  # wrong
    norms = squares(data[0], back).sqrt()
    return noisy(net, losses_of(net, data), (CLIP / norms).clamp(max=1.0))


def over_the_batch(seed, data):
    torch.manual_seed(seed)
    rows = data[0]
    norms = rows.square().sum(0).sqrt().repeat(3)[: len(rows)]  # wrong
    factors = (30 * CLIP / norms).clamp(max=1.0)
    return (factors[:, None] * rows).sum(0) + CLIP * NOISE * torch.randn(COLUMNS)


def along_the_last_axis(seed, data):
    """As many records as there are columns do not matter."""
    torch.manual_seed(seed)
    rows = torch.stack([data[0], data[0]], 1)
    norms = rows.norm(dim=(1, 2)) / 2  # wrong
    return (rows.movedim(0, -1) * (CLIP / norms).clamp(max=1.0)).sum(-1) + CLIP * NOISE * torch.randn(2, COLUMNS)


WRONG = {
    without_bias: (0.3, "measures its length as"),
    squares_as_lengths: (0.02, "the square of its length"),
    squares_called_norms: (0.02, "the square of its length"),
    of_the_mean: (6.0, "that number depends on other records since"),
    over_the_batch: (6.0, "it is multiplied by a number that comes from"),
    along_the_last_axis: (6.0, "measures its length as"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("step", WRONG)
def test_the_line_that_measures_wrongly_stands_first(step):
    last, says = WRONG[step]
    source, start = inspect.getsourcelines(norms_of if step is squares_called_norms else step)
    first = explained(step, last).findings[0]
    assert first.lines[0] == (__file__, start + next(at for at, text in enumerate(source) if "# wrong" in text))
    assert says in first.says


@pytest.mark.few(2)
@pytest.mark.parametrize("last", [0.02, 0.3, 6.0])
def test_right_ghost_norms_are_left_alone(last):
    assert not explained(ghost, last).findings


def lengths_of(parts):
    return torch.stack([part.norm(dim=1) for part in parts.values()]).norm(dim=0)


def with_biases(data):
    """Gradients whose biases are as long in a record of any size."""
    return {"weight": data[0], "bias": CLIP / 2 * torch.nn.functional.normalize(data[0])}


def noisy_parts(parts, lengths):
    factors = (CLIP / lengths).clamp(max=1.0)
    sums = {name: torch.einsum("n,n...->...", factors, part) for name, part in parts.items()}
    return {name: total + CLIP * NOISE * torch.randn(total.shape) for name, total in sums.items()}


def weights_alone(seed, data):
    torch.manual_seed(seed)
    parts = with_biases(data)
    lengths = lengths_of({name: part for name, part in parts.items() if "bias" not in name})  # wrong
    return noisy_parts(parts, lengths)


def weights_alone_by_name(seed, data):
    torch.manual_seed(seed)
    parts = with_biases(data)
    weights = {name: part for name, part in parts.items() if "bias" not in name}  # wrong
    return noisy_parts(parts, lengths_of(weights))


@pytest.mark.few(1)
@pytest.mark.parametrize("step", [weights_alone, weights_alone_by_name])
def test_a_record_that_moves_the_sum_a_little_too_far_is_tried_in_smaller_sizes(step):
    """The biases are a small part of the gradient of a large record, and who leaves them out calls a right helper."""
    source, start = inspect.getsourcelines(step)
    first = explained(step, 2.5).findings[0]
    assert first.kind == "too_little_noise"
    assert first.lines[0] == (__file__, start + next(at for at, text in enumerate(source) if "# wrong" in text))
    assert "times smaller, moves the sum" in first.says


def test_right_lengths_with_biases_are_left_alone():
    def step(seed, data):
        torch.manual_seed(seed)
        parts = with_biases(data)
        return noisy_parts(parts, lengths_of(parts))

    assert not explained(step, 2.5).findings


def a_little_less(seed, data):
    torch.manual_seed(seed)
    return CLIP * torch.nn.functional.normalize(data[0]).sum(0) + 0.99 * CLIP * NOISE * torch.randn(COLUMNS)


def test_a_multiplier_that_rounding_may_have_made_smaller_is_not_passed_over():
    told = explained(a_little_less)
    assert [finding.kind for finding in told.findings] == ["not_followed"]
    assert "the noise multiplier of round 1 is 1.485, and 1.5 is expected" in told.findings[0].says


class Noise:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self):
        return CLIP * NOISE * torch.randn(COLUMNS, generator=self.generator)


def made_in_each_round(seed, data):
    weights = torch.zeros(COLUMNS)
    for _ in range(2):
        noise = Noise(seed)  # wrong
        rows = CLIP * torch.nn.functional.normalize(data[0] + weights)
        weights = weights - rows.sum(0) - noise()
    return weights


def normalised(seed, data):
    torch.manual_seed(seed)
    bent = torch.nn.BatchNorm1d(COLUMNS)  # wrong
    rows = CLIP * torch.nn.functional.normalize(bent(data[0]))
    return rows.sum(0).detach() + CLIP * NOISE * torch.randn(COLUMNS)


@pytest.mark.parametrize("step", [made_in_each_round, normalised])
def test_the_line_that_makes_the_object_stands_first(step):
    source, start = inspect.getsourcelines(step)
    line = start + next(at for at, text in enumerate(source) if "# wrong" in text)
    first = explained(step).findings[0]
    assert first.lines[0] == (__file__, line)
    assert f"at test_explain_torch_measured.py:{line})" in first.says


def biases_left_out(seed, data):
    torch.manual_seed(seed)
    parts = {"weight": data[0][:, :2], "bias": data[0][:, 2:]}
    measured = torch.cat([part for name, part in parts.items() if name != "bias"], 1)  # wrong
    factors = (CLIP / measured.norm(dim=1)).clamp(max=1.0)
    return [torch.einsum("n,n...->...", factors, part) + CLIP * NOISE * torch.randn(2) for part in parts.values()]


def half_of_what_is_put_together(seed, data):
    torch.manual_seed(seed)
    rows = torch.cat([data[0][:, :3], data[0][:, 3:]], 1)
    factors = (CLIP / rows[:, :2].norm(dim=1)).clamp(max=1.0)  # wrong
    return torch.einsum("n,n...->...", factors, rows) + CLIP * NOISE * torch.randn(COLUMNS)


def largest_part(seed, data):
    """A loop over records, whose lengths Python reads."""
    torch.manual_seed(seed)
    total = torch.zeros(COLUMNS)
    for row in data[0]:
        grad = 2 * row
        length = max(float(part.norm()) for part in grad.split(2))  # wrong
        total.add_(grad, alpha=min(1.0, CLIP / length))
    return total + CLIP * NOISE * torch.randn(COLUMNS)


def each_part_alone(seed, data):
    torch.manual_seed(seed)
    totals = [torch.zeros(2), torch.zeros(2)]
    for row in data[0]:
        for total, own in zip(totals, row.split([2, 2]), strict=True):
            part = 2 * own
            factor = min(1.0, 0.9 * CLIP / float(part.norm()))  # wrong
            total.add_(part, alpha=factor)
    return [total + CLIP * NOISE * torch.randn(2) for total in totals]


def share(bound, parts):
    return bound / parts**0.25  # wrong


def shares_too_large(seed, data):
    torch.manual_seed(seed)
    bound = share(CLIP, 2)
    out = []
    for part in data[0].split(2, dim=1):
        lengths = part.norm(dim=1)  # measured
        factors = (bound / lengths.clamp(min=1e-9)).clamp(max=1.0)
        out.append(torch.einsum("n...,n->...", part, factors) + CLIP * NOISE * torch.randn(2))
    return out


def divided_by_everybody(seed, data):
    torch.manual_seed(seed)
    count = 0.5 * len(data[0])  # wrong
    rows = CLIP * torch.nn.functional.normalize(data[0])
    return (rows.sum(0) + CLIP * NOISE * torch.randn(COLUMNS)) / count


MEASURED = inspect.getsourcelines(shares_too_large)[1] + 5
SINCE = {
    biases_left_out: "(of what test_explain_torch_measured.py:",
    half_of_what_is_put_together: "measures its length as",
    largest_part: "measures its length as",
    each_part_alone: "(each part is clipped by its own length, measured at test_explain_torch_measured.py:",
    shares_too_large: f"{MEASURED}, to 0.4204, from test_explain_torch_measured.py:",
    divided_by_everybody: "that is not the same for both datasets (made at test_explain_torch_measured.py:",
}


@pytest.mark.parametrize("step", SINCE)
def test_the_line_that_makes_the_number_stands_first(step):
    source, start = inspect.getsourcelines(share if step is shares_too_large else step)
    first = explained(step).findings[0]
    assert first.lines[0] == (__file__, start + next(at for at, text in enumerate(source) if "# wrong" in text))
    assert SINCE[step] in first.says
