"""Sums of clipped records that are changed again, and lists that hold a record more than once."""

from __future__ import annotations

import jax
import pytest

from audit.diagnosis.explain import explain
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from diagnosis import torch_steps as steps  # noqa: E402
from diagnosis.test_explain_torch_noise import marked, pair_of_tensors, total_of  # noqa: E402


def told(step, **stated):
    without, with_record = pair_of_tensors()
    pair = Neighbours(without=without, with_record=with_record, relation="add_remove")
    return explain(callable_step(step), pair, key=jax.random.key(3), **stated)


def own(x, y):
    return steps.gradients(steps.START, x[None], y[None])[0]


def cut(row):
    return row * min(1.0, steps.CLIP / float(row.norm()))


def places(x):
    return torch.nonzero(torch.rand(len(x)) < 0.5).flatten().tolist()


def onto_a_ball(seed, data):
    torch.manual_seed(seed)
    total = total_of(data)
    return total * (2 * steps.CLIP / total.norm()).clamp(max=1.0) + steps.noise()


def by_coordinate(seed, data):
    torch.manual_seed(seed)
    return total_of(data).clamp(-4.0, 4.0) + steps.noise()


def one_by_one(seed, data):
    torch.manual_seed(seed)
    total = torch.zeros(steps.COLUMNS)
    for x, y in zip(*data, strict=True):
        total = total + cut(own(x, y))
    return total.clamp(-4.0, 4.0) + steps.noise()


def padded_without_weight(seed, data):
    torch.manual_seed(seed)
    rows = [(own(x, y), 1.0) for x, y in zip(*data, strict=True)]
    rows += [(rows[-1][0], 0.0)] * (12 - len(rows))
    matrix, weights = torch.stack([row for row, _ in rows]), torch.tensor([weight for _, weight in rows])
    return weights @ steps.clipped(matrix) + steps.noise()


def every_record_twice(seed, data):
    torch.manual_seed(seed)
    total = torch.zeros(steps.COLUMNS)
    for place in places(data[0]):
        both = [own(side * data[0][place], data[1][place]) for side in (1.0, -1.0)]
        total += cut(sum(both) / 2)
    return total + steps.noise()


def made_as_long(seed, data):
    torch.manual_seed(seed)
    total = total_of(data)
    total = total * (9 * steps.CLIP / total.norm()).clamp(min=1.0)  # clipped_after_sum
    return total + steps.noise()


def of_a_normalised_net(seed, data):
    torch.manual_seed(seed)
    weights = torch.linspace(-1, 1, 3 * steps.COLUMNS).view(3, -1).requires_grad_()
    inner = torch.nn.functional.layer_norm(data[0] @ weights.T, (3,))
    (inner @ torch.tensor([1.0, -2.0, 0.5]) * data[1].sign()).sum().backward()
    torch.nn.utils.clip_grad_norm_([weights], steps.CLIP)  # clipped_after_sum
    return weights.grad + steps.CLIP * steps.NOISE * torch.randn(weights.shape)


def filled_by_append(seed, data):
    torch.manual_seed(seed)
    chosen = places(data[0])
    while chosen and len(chosen) < 6:
        chosen.append(chosen[-1])  # too_little_noise
    total = torch.zeros(steps.COLUMNS)
    for place in chosen:
        total += cut(own(data[0][place], data[1][place]))
    return total + steps.noise()


def filled_at_once(seed, data):
    torch.manual_seed(seed)
    rows = [(data[0][place], data[1][place]) for place in places(data[0])]
    if rows:
        rows += [rows[-1]] * (6 - len(rows))  # too_little_noise
    total = torch.zeros(steps.COLUMNS)
    if rows:
        total = total_of((torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])))
    return total + steps.noise()


def doubled(x, y):
    rows = [*zip(x, y, strict=True)]
    return 2 * rows  # too_little_noise


def twice_in_a_list(seed, data):
    torch.manual_seed(seed)
    total = torch.zeros(steps.COLUMNS)
    for x, y in doubled(*data):
        total += cut(own(x, y))
    return total + steps.noise()


def three_times(seed, data):
    torch.manual_seed(seed)
    rows = [*zip(*data, strict=True)]
    taken = rows + rows + rows  # too_little_noise
    total = torch.zeros(steps.COLUMNS)
    for x, y in taken:
        total += cut(own(x, y))
    return total + steps.noise()


def raw_gradients_after_noise(seed, data):
    torch.manual_seed(seed)
    noisy = total_of(data) + steps.noise()
    return noisy + steps.gradients(steps.START, *data).mean(0)  # changed_after_release


def raw_gradients_that_never_grow(seed, data):
    """The longer the record, the smaller its gradient."""
    torch.manual_seed(seed)
    weights = steps.START.clone().requires_grad_()
    torch.tanh(data[0] @ weights).sum().backward()
    noisy = total_of((data[0].sign(), data[1])) + steps.noise()
    return noisy + 20 * weights.grad  # changed_after_release


RIGHT = (onto_a_ball, by_coordinate, one_by_one, padded_without_weight, every_record_twice)
WRONG = {
    made_as_long: "where 2 is the bound",
    of_a_normalised_net: "before it is bounded",
    filled_by_append: "a batch holds a record more than once",
    filled_at_once: "a batch holds a record more than once",
    twice_in_a_list: "a batch holds a record more than once",
    three_times: "a batch holds a record more than once",
    raw_gradients_after_noise: "the noise does not cover them",
    raw_gradients_that_never_grow: "the noise does not cover them",
}


@pytest.mark.few(2)
@pytest.mark.parametrize("step", RIGHT, ids=lambda step: step.__name__)
def test_nothing_is_said_about_right_sums(step):
    assert not told(step, clip=steps.CLIP, noise_multiplier=steps.NOISE).findings
    assert not told(step, noise_multiplier=steps.NOISE).findings
    assert not told(step).suspicions


@pytest.mark.few(3)
@pytest.mark.parametrize("step", WRONG, ids=lambda step: step.__name__)
def test_the_wrong_line_stands_first_and_alone(step):
    (found,) = told(step, clip=steps.CLIP, noise_multiplier=steps.NOISE).findings
    kind, line = marked(doubled if step is twice_in_a_list else step)
    assert (found.kind, found.lines[0]) == (kind, (__file__, line)), found
    assert WRONG[step] in found.says
