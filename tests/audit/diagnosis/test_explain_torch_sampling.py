"""How PyTorch code chooses its batches, beside a claim about Poisson batches."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

import guarantees
from audit.diagnosis.explain import explain
from audit.diagnosis.explain.handed_over import RATES, handed_over
from audit.diagnosis.explain.places import NOWHERE
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from diagnosis import torch_steps as steps  # noqa: E402
from torch.utils.data import DataLoader, Sampler, TensorDataset  # noqa: E402

RATE = 0.5


def explained(step, rate=RATE, records=13):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(13, steps.COLUMNS)).astype("f4"), rng.normal(size=13).astype("f4")
    x[-1], y[-1] = 6 * x[-1], -20
    x, y = x[-records:], y[-records:]
    without, with_record = ((torch.tensor(x[:n]), torch.tensor(y[:n])) for n in (records - 1, records))
    pair = Neighbours(without=without, with_record=with_record, relation="add_remove")
    claim = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=steps.NOISE)
    return explain(callable_step(step), pair, key=jax.random.key(3), claim=claim)


def released(x, mask=1.0):
    return (torch.as_tensor(mask) * steps.clipped(x).T).sum(1) + steps.noise()


def compared_with(rate):
    def step(seed, data):
        torch.manual_seed(seed)
        return released(data[0], (torch.rand(len(data[0])) < rate).float())

    return step


def from_above(seed, data):
    torch.manual_seed(seed)
    return released(data[0][torch.rand(len(data[0])) >= 1 - RATE])


def from_above_too_often(seed, data):
    torch.manual_seed(seed)
    u = torch.rand(len(data[0]))
    return released(data[0][u >= 0.2])  # 0.8


def coins(seed, data):
    torch.manual_seed(seed)
    rate = torch.full((len(data[0]),), 1.2 * RATE)
    return released(data[0][torch.bernoulli(rate).bool()])  # 0.6


def heads_of_a_column(seed, data):
    torch.manual_seed(seed)
    taken = torch.empty(len(data[0]), 1).bernoulli_(p=0.75)  # 0.75
    return released(data[0], taken.T)


def numbers_made_smaller(seed, data):
    torch.manual_seed(seed)
    u = torch.rand(len(data[0]))
    u = u / 1.5  # 0.75
    return released(data[0][u < RATE])


def one_by_one(seed, data):
    torch.manual_seed(seed)
    total = torch.zeros(steps.COLUMNS)
    for row in steps.clipped(data[0]):
        if torch.rand(()) < 0.7:  # 0.7
            total = total + row
    return total + steps.noise()


def one_of_two_coins(seed, data):
    torch.manual_seed(seed)
    taken = (torch.rand(len(data[0])) < 0.4) | (torch.rand(len(data[0])) < 0.4)  # 0.64
    return released(data[0], taken.float())


def both_of_two_coins(seed, data):
    torch.manual_seed(seed)
    total = torch.zeros(steps.COLUMNS)
    for row in steps.clipped(data[0]):
        u, v = torch.rand(()), torch.rand(())
        if u < 0.8 and v < 0.9:  # 0.72
            total = total + row
    return total + steps.noise()


def summed_where(joins, data):
    return sum((row for row in steps.clipped(data[0]) if joins()), torch.zeros(steps.COLUMNS)) + steps.noise()


def a_second_chance(seed, data):
    torch.manual_seed(seed)
    return summed_where(lambda: torch.rand(()) < 0.4 or torch.rand(()) < 0.4, data)  # 0.64


def another_coin_if_left_out(seed, data):
    torch.manual_seed(seed)

    def joins():
        if torch.rand(()) < 0.4:
            return True
        return torch.bernoulli(torch.tensor(0.5)).item() == 1  # 0.7

    return summed_where(joins, data)


class Coins(Sampler):
    def __init__(self, records, q):
        self.records, self.q = records, q

    def __iter__(self):
        yield (torch.rand(self.records) < self.q).nonzero().flatten().tolist()  # cut


def given_to_a_sampler(seed, data):
    torch.manual_seed(seed)
    sampler = Coins(len(data[0]), 1.6 * RATE)  # 0.8
    return released(next(iter(DataLoader(TensorDataset(*data), batch_sampler=sampler)))[0])


def taken_at(data, rate=0.9):  # 0.9
    return data[0][torch.rand(len(data[0])) < rate]


def of_a_default(seed, data):
    torch.manual_seed(seed)
    return released(taken_at(data))


def line_of(step, mark):
    source, start = inspect.getsourcelines(step)
    return start + next(at for at, text in enumerate(source) if f"# {mark}" in text)


OFTEN = [from_above_too_often, coins, heads_of_a_column, numbers_made_smaller, one_by_one]
OFTEN += [
    one_of_two_coins,
    both_of_two_coins,
    a_second_chance,
    another_coin_if_left_out,
    given_to_a_sampler,
    of_a_default,
]


@pytest.mark.few(2)
@pytest.mark.parametrize("step", OFTEN)
def test_a_rate_above_the_claims_is_told_with_its_line(step):
    found = explained(step).findings[0]
    where = taken_at if step is of_a_default else step
    number = inspect.getsource(where).rsplit("# ", 1)[1].split()[0]
    assert found.kind == "sampled_otherwise"
    assert f"takes the record with probability {number}, but" in found.says
    assert found.lines[0] == (__file__, line_of(where, number))


def two_stages(seed, data):
    torch.manual_seed(seed)
    first = torch.rand(len(data[0])) < 0.8
    return released(data[0], (first & (torch.rand(len(data[0])) < RATE / 0.8)).float())


def two_small_chances(seed, data):
    torch.manual_seed(seed)
    return summed_where(lambda: torch.rand(()) < 0.3 or torch.rand(()) < 0.2, data)


def two_numbers_of_a_line(seed, data):
    torch.manual_seed(seed)
    return summed_where(lambda: torch.rand(1) < 0.8 and torch.rand(1) < RATE / 0.8, data)


def of_drawn_size(seed, data):
    torch.manual_seed(seed)
    size = int(torch.binomial(torch.tensor(float(len(data[0]))), torch.tensor(RATE)))
    return released(data[0][torch.randperm(len(data[0]))[:size]])


def mixed_up(seed, data):
    torch.manual_seed(seed)
    places = torch.nonzero(torch.rand(len(data[0])) < RATE).flatten()
    return released(data[0][places[torch.randperm(len(places))]])


def two_views(seed, data):
    """The second coin changes the record that the first one takes."""
    torch.manual_seed(seed)
    taken = torch.rand(len(data[0])) < RATE
    turned = 1 - 2 * (torch.rand(len(data[0])) < 0.8).float()
    return released(data[0] * turned[:, None], taken.float())


def two_records_a_number(seed, data):
    """Whether one record joins says nothing of whether the other one does."""
    torch.manual_seed(seed)
    numbers = torch.rand((len(data[0]) + 1) // 2)
    taken = torch.stack([numbers < RATE, (2 * numbers) % 1 < RATE], 1).flatten()[: len(data[0])]
    return released(data[0], taken.float())


def groups_of_less(seed, data):
    """A group joins, and then each of its records."""
    torch.manual_seed(seed)
    groups = (torch.rand((len(data[0]) + 1) // 2) < RATE).repeat_interleave(2)[: len(data[0])]
    return released(data[0], (groups & (torch.rand(len(data[0])) < RATE)).float())


def packed(seed, data):
    torch.manual_seed(seed)
    taken = torch.rand(len(data[0])) < RATE
    order = torch.argsort((~taken).int(), stable=True)[:11]
    return released(data[0][order], taken[order].float())


RIGHT = [*map(compared_with, (RATE, 0.3, 1.01 * RATE)), from_above, two_stages, of_drawn_size, mixed_up, packed]
RIGHT += [two_numbers_of_a_line, two_small_chances, two_views, two_records_a_number, groups_of_less]


@pytest.mark.few(4)
@pytest.mark.parametrize("step", RIGHT)
def test_nothing_is_said_of_batches_as_claimed_or_of_smaller_ones(step):
    told = explained(step, records=12)
    assert not told.suspicions
    assert "it could not be followed" not in str(told)


def pairs(seed, data):
    torch.manual_seed(seed)
    numbers = torch.rand((len(data[0]) + 1) // 2) < RATE  # drawn
    return released(data[0], numbers.repeat_interleave(2)[: len(data[0])].float())


def every_fourth(seed, data):
    torch.manual_seed(seed)
    taken = torch.bernoulli(torch.full((4,), RATE))  # drawn
    return released(data[0], taken.repeat(4)[: len(data[0])])


@pytest.mark.parametrize("step", [pairs, every_fourth])
def test_a_number_that_takes_several_records_is_told_with_its_line(step):
    records = 12 if step is pairs else 13
    (found,) = explained(step, records=records).findings
    assert (found.kind, found.lines[0]) == ("sampled_otherwise", (__file__, line_of(step, "drawn")))
    assert "takes the record together with others, or none of them" in found.says


def shuffled(seed, data):
    torch.manual_seed(seed)
    return released(next(iter(DataLoader(TensorDataset(*data), batch_size=4, shuffle=True)))[0])  # drawn


def cut_from_an_order(seed, data):
    torch.manual_seed(seed)
    places = torch.randperm(len(data[0]))  # drawn
    return released(data[0][places[:6]])


def drawn_with_replacement(seed, data):
    """Batches hold as many draws, and not as many records."""
    torch.manual_seed(seed)
    places = torch.randint(len(data[0]), (6,))  # drawn
    return released(data[0][places])


def drawn_by_weights(seed, data):
    torch.manual_seed(seed)
    places = torch.multinomial(torch.ones(len(data[0])), 6, replacement=True)  # drawn
    return released(data[0].index_select(0, places))


def in_order(seed, data):
    torch.manual_seed(seed)
    return released(next(iter(DataLoader(TensorDataset(*data), batch_size=4)))[0])  # drawn


def first_batch(loader):
    return next(iter(loader))[0]


def of_another_loader(seed, data):
    torch.manual_seed(seed)
    whole = TensorDataset(*data)
    loaders = DataLoader(whole, batch_size=2), DataLoader(whole, batch_size=4, shuffle=True)  # drawn
    return released(first_batch(loaders[1]))


def cut_from_all_of_them(seed, data):
    """The record was taken for a member of the batch, and its gradient for zero."""
    torch.manual_seed(seed)
    everybody = data[0][:] / 1.5
    order = torch.randperm(len(everybody))  # drawn
    return released(everybody[order[:6].tolist()])


ONE_SIZE = [shuffled, of_another_loader, cut_from_an_order, cut_from_all_of_them, in_order]


@pytest.mark.few(3)
@pytest.mark.parametrize("step", [*ONE_SIZE, drawn_with_replacement, drawn_by_weights])
def test_batches_of_one_size_are_no_poisson_batches(step):
    found = explained(step).findings[0]
    assert found.kind == "sampled_otherwise"
    assert found.lines[0] == (__file__, line_of(step, "drawn"))
    held = "the same 4" if step is in_order else "4" if step in (shuffled, of_another_loader) else "6"
    assert found.says.startswith(f"The first batch holds {held} of 13 records in all 7 runs (")
    assert not any(one.says.endswith("released, as where its gradient is zero.") for one in explained(step).findings)


def convolved(kernel, row):
    return torch.nn.functional.conv1d(row[None, None], kernel[None, None]).square().sum()


def filled_up_with_the_last(seed, data):
    torch.manual_seed(seed)
    everybody = data[0][:]
    taken = torch.nonzero(torch.rand(len(everybody)) < RATE).flatten().tolist()
    taken += [len(everybody) - 1] * max(0, 10 - len(taken))
    gradients = torch.func.vmap(torch.func.grad(convolved), in_dims=(None, 0))(torch.ones(2), everybody[taken])
    return steps.clipped(gradients).sum(0) + steps.CLIP * steps.NOISE * torch.randn(2)


def filled_up_by_a_list(seed, data):
    torch.manual_seed(seed)
    batch = [row for row in data[0] if torch.rand(()) < RATE]
    batch += batch[-1:] * max(0, 10 - len(batch))
    kernel, total = torch.ones(2, requires_grad=True), torch.zeros(2)
    for row in batch:
        (own,) = torch.autograd.grad(convolved(kernel, row), kernel)
        total += own * min(1.0, steps.CLIP / own.norm().item())
    return total + steps.CLIP * steps.NOISE * torch.randn(2)


@pytest.mark.parametrize("step", [filled_up_with_the_last, filled_up_by_a_list])
def test_a_batch_filled_up_with_copies_is_not_called_a_clipped_sum(step):
    """All records seemed to be read, so that nothing told batches of other records apart."""
    kinds = [one.kind for one in explained(step).findings]
    assert kinds
    assert "clipped_after_sum" not in kinds


@pytest.mark.parametrize("reads", [lambda xs: xs[0], lambda xs: xs[2:4]])
def test_a_record_that_is_read_for_its_shape_does_not_count_for_the_batch(reads):
    def step(seed, data):
        torch.manual_seed(seed)
        columns = reads(data[0]).shape[-1]
        return released(data[0][torch.randperm(len(data[0]))[:6]])[:columns]

    (found,) = explained(step).suspicions
    assert found.kind == "sampled_otherwise"
    assert "holds 6 of 13 records" in found.says


def everybody(seed, data):
    torch.manual_seed(seed)
    sampler = Coins(len(data[0]), 1.5)
    return released(next(iter(DataLoader(TensorDataset(*data), batch_sampler=sampler)))[0])


def test_a_sampler_that_takes_everybody_is_named_where_it_does():
    (found,) = explained(everybody).findings
    assert found.kind == "in_every_batch"
    assert found.lines[0] == (__file__, line_of(Coins, "cut"))
    assert found.says.endswith("includes every record.")


def test_a_number_that_nobody_hands_over_stays_where_it_is_used():
    assert handed_over(lambda: None, NOWHERE, 0.5, RATES) is NOWHERE


def rate_of_the_data(seed, data):
    torch.manual_seed(seed)
    rate = 6 / len(data[0])  # wrong
    return released(data[0][torch.rand(len(data[0])) < rate])


def test_the_line_that_makes_a_rate_of_the_data_stands_before_the_draw():
    first, wrong = explained(rate_of_the_data).findings[0], line_of(rate_of_the_data, "wrong")
    assert first.kind == "randomness_from_data"
    assert first.lines == ((__file__, wrong), (__file__, wrong + 1))
    assert f"(made at test_explain_torch_sampling.py:{wrong})" in first.says
