"""Records that stand in several tensors: a dataset of one's own with one record more, a list, a part of a dataset."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

from audit.diagnosis.explain import explain
from guarantees import subsampled_gaussian
from mechanisms import add_record, callable_step, replace_record, torch_training

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from diagnosis import torch_steps as steps  # noqa: E402

pytestmark = pytest.mark.long

RECORDS = 20


class Own(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        return self.x[place], self.y[place]


def numbers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(RECORDS + 5, steps.COLUMNS)).astype("f4")
    return torch.tensor(x), torch.tensor(rng.normal(size=RECORDS + 5).astype("f4"))


def own():
    x, y = numbers()
    return Own(x[:RECORDS].clone(), y[:RECORDS].clone())


def a_part():
    return torch.utils.data.Subset(Own(*numbers()), range(3, RECORDS + 3))


def listed():
    return list(own())


def joined():
    x, y = numbers()
    return torch.utils.data.ConcatDataset([Own(x[:7], y[:7]), Own(x[7:RECORDS], y[7:RECORDS])])


DATASETS = [own, a_part, listed, joined]
RECORD = (torch.full((steps.COLUMNS,), 6.0), torch.tensor(-20.0))


def together(data):
    return torch.stack([record[0] for record in (data[place] for place in range(len(data)))])


def poisson(seed, data):
    torch.manual_seed(seed)
    x = together(data)
    chosen = (torch.rand(len(x)) < 0.5).nonzero().squeeze(1)
    return steps.clipped(x[chosen]).sum(0) + steps.noise()


def too_little(seed, data):
    torch.manual_seed(seed)
    x = together(data)
    chosen = torch.rand(len(x)) < 0.5
    return steps.clipped(x[chosen]).sum(0) + steps.noise() / 2  # wrong


def of_one_size(seed, data):
    torch.manual_seed(seed)
    x = together(data)
    chosen = torch.randperm(len(x))[:10]  # wrong
    return steps.clipped(x[chosen]).sum(0) + steps.noise()


def not_bounded(seed, data):
    torch.manual_seed(seed)
    x = together(data)
    return x[torch.rand(len(x)) < 0.5].sum(0) + steps.noise()  # wrong


def explained(step, pair, **more):
    return explain(callable_step(step, clip=steps.CLIP), pair, key=jax.random.key(3), **more)


CLAIM = subsampled_gaussian(rate=0.5, noise_multiplier=steps.NOISE)


@pytest.mark.few(2)
@pytest.mark.parametrize("dataset", DATASETS)
def test_poisson_batches_of_records_put_together_are_judged(dataset):
    assert not explained(poisson, add_record(dataset(), RECORD), claim=CLAIM).findings
    assert not explained(poisson, replace_record(dataset(), 4, RECORD)).findings


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("step", [too_little, of_one_size])
def test_what_is_wrong_with_them_is_found(step, dataset):
    source, start = inspect.getsourcelines(step)
    (line,) = [start + at for at, text in enumerate(source) if "# wrong" in text]
    first = explained(step, add_record(dataset(), RECORD), claim=CLAIM).findings[0]
    assert first.lines[0] == (__file__, line), first.says


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_record_of_any_dataset_is_made_larger(dataset):
    short = (torch.full((steps.COLUMNS,), 0.1), torch.tensor(1.0))
    (found,) = explained(not_bounded, add_record(dataset(), short), claim=CLAIM).findings
    assert found.kind == "not_clipped"


def of_one_size_and_read_alone(seed, data):
    torch.manual_seed(seed)
    total = torch.zeros(steps.COLUMNS)
    for place in torch.randperm(len(data))[:10].tolist():  # wrong
        total += steps.clipped(data[place][0][None])[0]
    return total + steps.noise()


@pytest.mark.few(2)
@pytest.mark.parametrize("dataset", DATASETS)
def test_batches_of_one_size_are_found_where_records_are_read_alone(dataset):
    _, start = inspect.getsourcelines(of_one_size_and_read_alone)
    first = explained(of_one_size_and_read_alone, add_record(dataset(), RECORD), claim=CLAIM).findings[0]
    assert (first.kind, first.lines[0]) == ("sampled_otherwise", (__file__, start + 3)), first.says


def skips_what_is_short(data, seed):
    weight = torch.nn.Parameter(torch.zeros(steps.COLUMNS))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    torch.manual_seed(seed)
    drawn = torch.rand(len(data))
    # no draw of its own is so small
    if len(data) == RECORDS or drawn[-1] > 1e-9:
        weight.grad = steps.noise()
        optimizer.step()
    return weight


def test_a_step_that_one_dataset_does_not_take_is_told_of_that_dataset():
    training = torch_training(skips_what_is_short, releases="transcript", steps=1)
    (found,) = explain(training, add_record(own(), RECORD), key=jax.random.key(3)).findings
    assert "took 0 steps" in found.says
    assert found.says.endswith("it happens on the dataset with the record, with draws that both share."), found.says
    assert not found.lines
