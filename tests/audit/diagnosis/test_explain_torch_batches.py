"""Batches of PyTorch code that depend on who else is in them: no sum is clipped there."""

from __future__ import annotations

import copy
import functools
import inspect
import types

import jax
import numpy as np
import pytest

import guarantees
from audit.diagnosis.explain import Kind, explain
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from diagnosis import torch_steps as steps  # noqa: E402


def explained(step, **stated):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(21, steps.COLUMNS)).astype("f4"), rng.normal(size=21).astype("f4")
    x[-1], y[-1] = 6 * x[-1], -20
    without, with_record = ((torch.tensor(x[:n]), torch.tensor(y[:n])) for n in (20, 21))
    pair = Neighbours(without=without, with_record=with_record, relation="add_remove")
    return explain(callable_step(step), pair, key=jax.random.key(3), noise_multiplier=steps.NOISE, **stated)


def poisson(data):
    return torch.rand(len(data[0])) < 0.5


def released(rows, mask=1.0):
    return (torch.as_tensor(mask) * steps.clipped(rows).T).sum(1) + steps.noise()


def packed_in_front(seed, data):
    """A right one."""
    torch.manual_seed(seed)
    taken = poisson(data)
    order = torch.argsort((~taken).int(), stable=True)
    return released(data[0][order], torch.arange(len(taken)) < taken.sum())


def test_no_cause_is_told_of_a_record_that_was_not_seen_to_do_nothing():
    (found,) = explained(packed_in_front).findings
    assert found.kind == Kind.NOT_FOLLOWED
    assert "choose otherwise at a few places of other records" in found.says


def changed_by_raw_data(seed, data):
    torch.manual_seed(seed)
    weights = torch.zeros(steps.COLUMNS)
    for _ in range(2):
        total = steps.clipped(data[0] + weights).sum(0)
        weights = weights + (total + steps.noise()) / (1 + total.pow(2))
    return weights


def test_what_the_record_moves_after_a_changed_release_follows_from_that():
    told = explained(changed_by_raw_data)
    assert [one.kind for one in told.findings] == [Kind.CHANGED_AFTER_RELEASE]
    assert [one.judged for one in told.rounds] == [True, False]


def best_of_two(seed, data):
    torch.manual_seed(seed)
    kept = []
    for _ in range(2):
        kept.append(copy.deepcopy({"sum": steps.clipped(data[0]).sum(0) + steps.noise()}))
    longest = data[0].norm(dim=1).max().item()  # chosen
    return kept[longest > 6]["sum"]


def test_a_checkpoint_that_raw_data_choose_is_no_release_without_noise():
    (found,) = explained(best_of_two).findings
    source, start = inspect.getsourcelines(best_of_two)
    line = start + next(number for number, text in enumerate(source) if "# chosen" in text)
    assert (found.kind, found.lines[0]) == (Kind.CHANGED_AFTER_RELEASE, (__file__, line))


def hardest(seed, data):
    torch.manual_seed(seed)
    taken = poisson(data)
    x, y = data[0][taken], data[1][taken]
    x = x[y.abs().topk(min(5, len(y))).indices]  # wrong
    return released(x)


def filled_up(seed, data):
    torch.manual_seed(seed)
    x = data[0][poisson(data)]
    x = torch.cat([x, x[-1:].expand(max(0, 24 - len(x)), -1)])  # wrong
    return released(x)


def by_the_longest_so_far(seed, data):
    """Python reads the length of the longest record, and those of later parts are shrunk by it, too."""
    torch.manual_seed(seed)
    longest, total = 0.0, torch.zeros(steps.COLUMNS)
    for part in data[0][poisson(data)].split(2):
        longest = max(longest, float(part.norm(dim=1).max()))  # wrong
        total += (part * torch.full((len(part), 1), min(1.0, steps.CLIP / longest))).sum(0)
    return total + steps.noise()


def column_by_column(seed, data):
    """A norm over the batch, of a record that adds nearly nothing."""
    torch.manual_seed(seed)
    x = torch.relu(data[0] * -data[1][:, None].sign()) * torch.where(data[1] < -19, 1e-3, 1.0)[:, None]
    lengths = x.norm(dim=0)  # wrong
    return (x * (steps.CLIP / lengths)).sum(0) + steps.noise()


@pytest.mark.few(2)
@pytest.mark.parametrize("step", [hardest, filled_up, by_the_longest_so_far, column_by_column])
def test_the_line_that_takes_records_by_the_others_stands_first(step):
    source, start = inspect.getsourcelines(step)
    (line,) = [start + at for at, text in enumerate(source) if "# wrong" in text]
    first = explained(step).findings[0]
    assert first.kind == "records_mixed_before_sum"
    assert first.lines[0] == (inspect.getsourcefile(step), line)


def packed(seed, data):
    torch.manual_seed(seed)
    taken = poisson(data)
    order = torch.argsort((~taken).int(), stable=True)[:18]
    return released(data[0][order], taken[order].float())


def test_packed_batches_are_not_judged_and_the_reason_is_true():
    (only,) = explained(packed).findings
    assert only.kind == "not_followed"
    assert "the batches of the two datasets differ" in only.says


def read_twice(seed, data):
    torch.manual_seed(seed)
    places = torch.nonzero(poisson(data)).flatten()
    places = places.repeat(2)  # wrong
    return sum(steps.clipped(data[0][part]).sum(0) for part in places.chunk(2)) + steps.noise()


def turned_over_beside(seed, data):
    torch.manual_seed(seed)
    x = data[0][poisson(data)]
    x = torch.cat([x, x.flip(1)])  # wrong
    return released(x)


def half_of_each(seed, data):
    """Right: the two rows of a record are bounded together."""
    torch.manual_seed(seed)
    x = data[0][poisson(data)]
    return steps.clipped(torch.cat([x, x.flip(1)])).sum(0) / 2 + steps.noise()


def measured_too(seed, data):
    torch.manual_seed(seed)
    places = torch.nonzero(poisson(data)).flatten()
    assert len(data[0][places]) == len(places)
    rows = data[0][places]
    return (2 * steps.clipped(rows)).sum(0) + steps.noise()


@pytest.mark.parametrize("step", [read_twice, turned_over_beside])
def test_a_batch_that_holds_everybody_twice_is_named_where_it_is_made(step):
    (found,) = explained(step, clip=steps.CLIP).findings
    source, start = inspect.getsourcelines(step)
    assert found.lines[0] == (__file__, start + 3), source[3]
    assert "a batch holds a record more than once" in found.says


def test_two_rows_of_a_record_that_are_bounded_together_are_no_fault():
    assert not explained(half_of_each, clip=steps.CLIP).findings


def test_a_record_that_is_read_twice_and_summed_once_is_not_called_held_twice():
    (found,) = explained(measured_too, clip=steps.CLIP).findings
    assert "more than once" not in found.says


def filled_where_it_is_missing(seed, data):
    torch.manual_seed(seed)
    places = torch.nonzero(torch.rand(len(data[0])) >= 0).flatten()
    places = torch.cat([places, places[:1].expand(-len(places) % 7)])
    return released(data[0][places])


def test_a_copy_that_fills_the_place_of_the_record_is_named_where_it_is_made():
    (found,) = explained(filled_where_it_is_missing, clip=steps.CLIP).findings
    assert found.lines[0] == (__file__, inspect.getsourcelines(filled_where_it_is_missing)[1] + 3)
    assert "a batch holds a record more than once" in found.says


def by_channels(seed, data):
    """A backward pass under vmap has a row for each channel of each record."""
    torch.manual_seed(seed)
    kernel = torch.linspace(-1, 1, 9).reshape(3, 1, 3)

    def loss(kernel, row):
        return torch.nn.functional.conv1d(row[None, None], kernel).square().sum()

    own = torch.func.vmap(torch.func.grad(loss), (None, 0))(kernel, data[0])
    factors = (2 * steps.CLIP / own.flatten(1).norm(dim=1)).clamp(max=1.0)
    return torch.einsum("i,i...->...", factors, own) + steps.CLIP * steps.NOISE * torch.randn(3, 1, 3)


def test_channels_of_a_record_are_no_copies_of_it():
    (found, *_) = explained(by_channels, clip=steps.CLIP).findings
    assert found.lines[0] == (__file__, inspect.getsourcelines(by_channels)[1] + 9)
    assert "more than once" not in found.says


def pairs_of_a_loop(seed, data):
    """A coin for each record; those that are taken are clipped two by two."""
    torch.manual_seed(seed)
    taken = [place for place in range(len(data[0])) if torch.rand(()) < 0.5]
    total = torch.zeros(steps.COLUMNS)
    for first in range(0, len(taken), 2):
        both = data[0][taken[first : first + 2]].sum(0)
        total += steps.clipped(both[None])[0]  # wrong
    return total + steps.noise()


def test_records_that_share_a_bound_are_found_whoever_is_taken_by_chance():
    (found,) = explained(pairs_of_a_loop).findings
    source, start = inspect.getsourcelines(pairs_of_a_loop)
    assert found.kind == "clipped_after_sum"
    assert found.lines[0] == (__file__, start + next(at for at, text in enumerate(source) if "# wrong" in text))


def spread_over_rows(seed, data):
    torch.manual_seed(seed)
    row = torch.randn(1).expand(steps.COLUMNS)  # wrong
    return steps.clipped(data[0]).sum(0) + steps.CLIP * steps.NOISE * row


def test_few_numbers_are_named_where_they_are_spread():
    (found,) = explained(spread_over_rows).findings
    source, start = inspect.getsourcelines(spread_over_rows)
    assert found.kind == "key_used_twice"
    assert found.lines[0] == (__file__, start + 2), source[2]
    assert "(one number for " in found.says


def nothing_for_nobody(x):
    if len(x) == 0:  # wrong
        return torch.zeros(steps.COLUMNS)
    return released(x)


def returned_at_once(seed, data):
    torch.manual_seed(seed)
    return nothing_for_nobody(data[0][poisson(data)])


def divided_by_a_field(seed, data):
    """The number of records that are drawn, which an object keeps."""
    torch.manual_seed(seed)
    x, own = data[0][poisson(data)], types.SimpleNamespace(size=1000)
    own.size = max(len(x), 1)  # wrong
    return released(x) / own.size


def test_a_number_that_only_these_draws_make_is_named_where_it_is_made():
    (found,) = explained(divided_by_a_field).findings
    source, start = inspect.getsourcelines(divided_by_a_field)
    assert found.kind == "changed_after_release"
    assert found.lines[0] == (__file__, start + 4), source[4]


def gone_on(seed, data):
    torch.manual_seed(seed)
    weights = steps.START.clone()
    for _ in range(2):
        x = data[0][poisson(data)]
        if not len(x):  # wrong
            continue
        weights = weights - released(x)
    return weights


def only_for_some(seed, data):
    """A coin for each record, and a sum that is released where it has been begun."""
    torch.manual_seed(seed)
    rows = [row for row in steps.clipped(data[0]) if torch.rand(()) < 0.5]
    total = torch.zeros(steps.COLUMNS)
    if rows:  # wrong
        total += torch.stack(rows).sum(0)
        total += steps.noise()
    return total


@pytest.mark.parametrize("step", [returned_at_once, gone_on, only_for_some])
def test_a_round_with_an_empty_batch_and_no_noise_is_found_at_its_line(step):
    (found,) = explained(step).findings
    source, start = inspect.getsourcelines(nothing_for_nobody if step is returned_at_once else step)
    assert found.kind == "released_without_noise"
    assert found.lines[0] == (__file__, start + next(at for at, text in enumerate(source) if "# wrong" in text))
    assert found.says.startswith("If the batch is empty, the round is released without noise (test_")


def drawn_until_somebody_is_there(seed, data):
    torch.manual_seed(seed)
    weights = steps.START.clone()
    for _ in range(2):
        x = data[0][:0]
        while not len(x):
            x = data[0][poisson(data)]
        weights = weights - released(x)
    return weights


def noise_of_its_own(seed, data):
    torch.manual_seed(seed)
    x = data[0][poisson(data)]
    return released(x) if len(x) else steps.noise()


def noisy_inputs_of_some(seed, data):
    torch.manual_seed(seed)
    x = data[0][poisson(data)]
    total = steps.clipped(x + 0.1 * torch.randn(x.shape)).sum(0) if len(x) else torch.zeros(steps.COLUMNS)
    return total + steps.noise()


def drawn_in_one_line(seed, data):
    torch.manual_seed(seed)
    rows, weights, size = steps.clipped(data[0]), steps.START.clone(), steps.CLIP * steps.NOISE
    for _ in range(2):
        weights = weights - ((torch.rand(len(rows)) < 0.5).float() @ rows + size * torch.randn(steps.COLUMNS))
    return weights


@pytest.mark.parametrize(
    "step", [drawn_until_somebody_is_there, noise_of_its_own, noisy_inputs_of_some, drawn_in_one_line]
)
def test_noise_for_an_empty_batch_is_found_wherever_it_is_drawn(step):
    assert not explained(step).suspicions


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_stated_bound_that_the_code_exceeds_is_told_beside_noise_that_is_enough(share):
    told = explained(noise_of_its_own, clip=share * steps.CLIP)
    sentence = "The record moves a release by 2 where the stated clipping norm allows 1 (another norm"
    assert not told.findings
    assert (sentence in str(told)) == (share < 1)


def coins_of_numpy(seed, data, more):
    """Right: with one record more all later coins are other ones."""
    torch.manual_seed(seed)
    coins, weights = np.random.default_rng(seed), steps.START.clone()
    for _ in range(3):
        taken = coins.random(len(data[0])) < 0.5
        weights = weights - released(data[0], taken) - more * torch.randn(steps.COLUMNS)
    return weights


@pytest.mark.parametrize("more", [0.0, 50.0])
def test_what_coins_that_are_not_followed_move_is_not_compared_with_the_stated_bound(more):
    told = explained(functools.partial(coins_of_numpy, more=more), clip=steps.CLIP)
    (why,) = told.findings
    assert "no PyTorch generator" in why.says
    assert "clipping norm" not in str(told)
    assert told.rounds
    assert not any(one.judged for one in told.rounds)


def last_left_out(seed, data):
    torch.manual_seed(seed)
    places = torch.nonzero(poisson(data)).flatten()
    return released(data[0][places[:4]])


def cut_from_an_order(seed, data):
    torch.manual_seed(seed)
    return released(data[0][torch.randperm(len(data[0]))[:2]])


def with_replacement(seed, data):
    """As many as a binomial number says, and each may be any of them."""
    torch.manual_seed(seed)
    size = int(torch.binomial(torch.tensor(float(len(data[0]))), torch.tensor(0.5)))
    return released(data[0][torch.randint(0, len(data[0]), (size,))])


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (last_left_out, "records that do not fill the last one"),
        (cut_from_an_order, "a permutation"),
        (with_replacement, "with replacement maybe"),
    ],
)
def test_why_no_batch_held_the_record_is_told_by_what_was_drawn(step, why):
    (found,) = explained(step).findings
    assert found.kind == "not_followed"
    assert why in found.says


def shares_of_noise(seed, data):
    """Right: all shares together are one noise, of as many records as there happen to be."""
    torch.manual_seed(seed)
    rows = steps.clipped(data[0][poisson(data)])
    return (rows + steps.CLIP * steps.NOISE / len(rows) ** 0.5 * torch.randn(rows.shape)).sum(0)


def enough_for_each(seed, data):
    """Right: every record is private by itself."""
    torch.manual_seed(seed)
    rows = steps.clipped(data[0][poisson(data)])
    return (rows + steps.CLIP * steps.NOISE * torch.randn(rows.shape)).sum(0)


def test_noise_that_records_bring_along_is_not_accused_if_it_is_a_share_or_enough_for_one():
    assert not explained(shares_of_noise).suspicions
    assert not explained(enough_for_each).suspicions


def turned_in_parts(seed, data, views=1, centred=False):
    """A batch in parts of four at most: one record more makes one part more, and all of them smaller."""
    torch.manual_seed(seed)
    total = torch.zeros(steps.COLUMNS)
    x = data[0][torch.rand(len(data[0])) < 0.4]
    for part in x.tensor_split(-(-len(x) // 4)):
        for _ in range(views):
            rows = torch.where(torch.rand(len(part), 1) < 0.5, part.flip(1), part)
            rows = rows - rows.mean(0) if centred else rows  # wrong
            total += steps.clipped(rows).sum(0) / views
    return total + steps.noise()


@pytest.mark.parametrize("views", [1, 2])
def test_coins_of_records_in_parts_of_a_batch_are_no_fault(views):
    assert not explained(functools.partial(turned_in_parts, views=views)).findings


def test_records_that_are_mixed_in_parts_of_a_batch_are_found():
    source, start = inspect.getsourcelines(turned_in_parts)
    (line,) = [start + at for at, text in enumerate(source) if "# wrong" in text]
    first = explained(functools.partial(turned_in_parts, centred=True)).findings[0]
    assert (first.kind, first.lines[0]) == ("records_mixed_before_sum", (__file__, line)), first


def test_two_batches_that_are_summed_are_named_where_they_are_drawn():
    def step(seed, data):
        torch.manual_seed(seed)
        total = torch.zeros(steps.COLUMNS)
        for _ in range(2):
            total += steps.clipped(data[0][poisson(data)]).sum(0)  # wrong
        return total + steps.noise()

    (found,) = explained(step, clip=steps.CLIP).findings
    assert "(2 batches, drawn at " in found.says
    assert found.lines[0] == (__file__, poisson.__code__.co_firstlineno + 1)


def test_a_batch_that_is_drawn_and_thrown_away_is_not_counted():
    def step(seed, data):
        torch.manual_seed(seed)
        total = torch.zeros(steps.COLUMNS)
        for number in range(3):
            total += steps.clipped(data[0][poisson(data)]).sum(0)
            if number == 0:
                total = torch.zeros(steps.COLUMNS)
            if number == 2:  # wrong
                released = total + steps.noise()
        return released

    (found,) = explained(step, clip=steps.CLIP).findings
    source, start = inspect.getsourcelines(step)
    assert "(2 batches, drawn at " in found.says
    assert found.lines[0] == (__file__, start + next(at for at, text in enumerate(source) if "# wrong" in text))


def sorted_rows(seed, data):
    torch.manual_seed(seed)
    rows = torch.as_tensor(data)
    rows = rows[torch.argsort(rows[:, 0])]
    coins = torch.rand(len(rows)) < 0.5
    clipped = rows / rows.norm(dim=1, keepdim=True).clamp(min=1.0)
    return clipped[coins].sum(0) + torch.randn(rows.shape[1])


@pytest.mark.parametrize("relation", ["zero_out", "add_remove"])
def test_rows_that_are_sorted_by_what_they_hold_stand_elsewhere_and_are_not_judged(relation):
    """Of arrays, of which the code makes tensors, the rows that are read are known, too."""
    rows = np.random.default_rng(0).normal(size=(8, 6)).astype("f4")
    kept = np.where(np.arange(8)[:, None] == 3, 0, rows) if relation == "zero_out" else np.delete(rows, 3, 0)
    pair = Neighbours(without=kept, with_record=rows, relation=relation)
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0, relation=relation)
    (one,) = explain(callable_step(sorted_rows), pair, key=jax.random.key(0), claim=claim).findings
    assert one.kind == Kind.NOT_FOLLOWED
    assert "sorted by what they hold" in one.says
