"""Noise of PyTorch code whose deviation comes from the data, and noise whose coordinates are not independent."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

from audit.diagnosis.explain import explain
from audit.diagnosis.explain.findings import Kind
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from diagnosis import torch_steps as steps  # noqa: E402
from diagnosis import torch_unseen  # noqa: E402

WIDE = steps.CLIP * steps.NOISE
SHAPE = (steps.COLUMNS,)


def pair_of_tensors():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, steps.COLUMNS)).astype("f4"), rng.normal(size=9).astype("f4")
    x[-1], y[-1] = 6 * x[-1], -20
    return tuple((torch.tensor(x[:n]), torch.tensor(y[:n])) for n in (8, 9))


def marked(step):
    """What should be found, and on which line."""
    source, start = inspect.getsourcelines(step)
    ((line, kind),) = [(start + at, text.split("# ")[1].strip()) for at, text in enumerate(source) if "  # " in text]
    return kind, line


def explained(step):
    without, with_record = pair_of_tensors()
    pair = Neighbours(without=without, with_record=with_record, relation="add_remove")
    return explain(callable_step(step), pair, key=jax.random.key(3), noise_multiplier=steps.NOISE)


def total_of(data, weights=steps.START):
    return steps.clipped(steps.gradients(weights, *data)).sum(0)


def normal_by_count(seed, data):
    torch.manual_seed(seed)
    noise = torch.normal(0.0, WIDE * (len(data[0]) / 8) ** 2, SHAPE)  # noise_scale_from_data
    return total_of(data) + noise


def method_by_count(seed, data):
    torch.manual_seed(seed)
    noise = torch.empty(SHAPE).normal_(0, WIDE * (len(data[0]) / 8) ** 2)  # noise_scale_from_data
    return total_of(data) + noise


def normal_by_longest(seed, data):
    torch.manual_seed(seed)
    total = total_of(data)
    wide = WIDE * (1 + data[0].norm(dim=1).max())  # noise_scale_from_data
    return total + torch.normal(torch.zeros(SHAPE), wide.expand(SHAPE))


def antithetic(seed, data):
    torch.manual_seed(seed)
    weights, last = steps.START.clone(), torch.zeros(SHAPE)
    for step in range(2):
        last = -last if step else steps.noise()
        weights = weights - steps.LEARNING * (total_of(data, weights) + last)  # key_used_twice
    return weights


def uniform_by_count(seed, data):
    torch.manual_seed(seed)
    wide = 3**0.5 * WIDE * len(data[0]) / 8
    noise = torch.empty(SHAPE).uniform_(-wide, wide)  # noise_scale_from_data
    return total_of(data) + noise


def rate_by_count(seed, data):
    torch.manual_seed(seed)
    taken = torch.rand(len(data[0])) < 4 / len(data[0])  # randomness_from_data
    return total_of((data[0][taken], data[1][taken])) + steps.noise()


def rates_by_count(seed, data):
    torch.manual_seed(seed)
    taken = torch.bernoulli(torch.full(data[1].shape, 4.0 / len(data[0]))).bool()  # randomness_from_data
    return total_of((data[0][taken], data[1][taken])) + steps.noise()


def rates_by_sign(seed, data):
    torch.manual_seed(seed)
    alike = (data[1] > 0) == (data[1][:, None] > 0)
    taken = torch.rand(len(data[0])) < 2 / alike.float().sum(1)  # randomness_from_data
    return total_of((data[0][taken], data[1][taken])) + steps.noise()


FAULTS = [normal_by_count, method_by_count, normal_by_longest, antithetic, uniform_by_count]


@pytest.mark.few(2)
@pytest.mark.parametrize("step", [*FAULTS, rate_by_count, rates_by_count, rates_by_sign])
def test_noise_that_reads_the_data_or_comes_again(step):
    (kind, line), first = marked(step), explained(step).findings[0]
    assert first.kind == kind
    assert (inspect.getsourcefile(step), line) in first.lines


def around_the_sum(seed, data):
    torch.manual_seed(seed)
    return torch.normal(total_of(data), WIDE)


def in_two_parts(seed, data):
    torch.manual_seed(seed)
    parts = torch.normal(0.0, WIDE / 2**0.5, (2, *SHAPE))
    return total_of(data) + (parts[0] + parts[1])


def rotated(seed, data):
    torch.manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.arange(steps.COLUMNS**2.0).reshape(steps.COLUMNS, -1).cos())
    return total_of(data) + steps.noise() @ turn


def rates_of_their_own(seed, data):
    torch.manual_seed(seed)
    taken = torch.rand(len(data[0])) < 0.5 + 0.4 * (data[1] > 0)
    return total_of((data[0][taken], data[1][taken])) + steps.noise()


@pytest.mark.parametrize("step", [around_the_sum, in_two_parts, rotated, rates_of_their_own])
def test_right_noise_stays_silent(step):
    told = explained(step)
    assert not told.findings
    assert [one.multiplier for one in told.rounds] == [pytest.approx(steps.NOISE, rel=1e-3)]


def centred(seed, data):
    torch.manual_seed(seed)
    noise = steps.noise()
    noise = noise - noise.mean()  # key_used_twice
    return total_of(data) + noise


def twice(seed, data):
    torch.manual_seed(seed)
    noise = steps.noise()
    noise = noise + noise.flip(0)  # key_used_twice
    return total_of(data) + noise


def by_a_matrix(seed, data):
    torch.manual_seed(seed)
    matrix = torch.eye(steps.COLUMNS) - 1 / steps.COLUMNS
    noise = steps.noise() @ matrix  # key_used_twice
    return total_of(data) + noise


def mirrored(seed, data):
    torch.manual_seed(seed)
    half = torch.normal(0.0, WIDE, ((steps.COLUMNS + 1) // 2,))
    noise = torch.cat([half, -half[1:]])  # key_used_twice
    return total_of(data) + noise


@pytest.mark.parametrize("step", [centred, twice, by_a_matrix, mirrored])
def test_noise_that_leaves_directions_without_any(step):
    """Coordinate by coordinate it was called the noise of independent draws: more than there is."""
    (kind, line), (only,) = marked(step), explained(step).findings
    assert only.kind == kind
    assert only.lines[0] == (inspect.getsourcefile(step), line)


def centred_with_its_sum(seed, data):
    torch.manual_seed(seed)
    total, noise = total_of(data), steps.noise()
    return (total - total.mean()) + (noise - noise.mean())


def test_noise_where_the_record_moves_nothing_without_it_stays_silent():
    told = explained(centred_with_its_sum)
    assert not told.findings
    assert [one.multiplier > steps.NOISE for one in told.rounds] == [True]


SHARED = 0.6


def correlated(seed, data):
    torch.manual_seed(seed)
    noise = steps.noise()
    return total_of(data) + (noise + SHARED * noise.roll(1))


def test_what_correlated_noise_covers_is_told_along_the_record():
    told = explained(correlated)
    columns = steps.COLUMNS
    turn = np.eye(columns) + SHARED * np.roll(np.eye(columns), 1, axis=0)
    _, with_record = pair_of_tensors()
    moved = steps.clipped(steps.gradients(steps.START, *with_record))[-1].double().numpy()
    (only,) = told.rounds
    assert only.multiplier == pytest.approx(WIDE / np.linalg.norm(np.linalg.solve(turn, moved)), rel=1e-3)


def test_rounds_that_share_numbers_in_part_are_not_judged():
    told = explained(torch_unseen.right_correlated_noise)
    assert [one.judged for one in told.rounds] == [False] * 3
    assert not told.is_as_stated(steps.NOISE)


SHARES = 4


def in_shares(deviation):
    def step(seed, data):
        torch.manual_seed(seed)
        total = torch.zeros(steps.COLUMNS)
        for first in range(SHARES):
            part = tuple(leaf[first::SHARES] for leaf in data)
            total = total + total_of(part) + deviation / SHARES**0.5 * torch.randn(steps.COLUMNS)
        return total

    return step


def test_shares_of_the_noise_on_a_running_sum_are_one_release():
    told = explained(in_shares(WIDE))
    assert not told.findings
    assert [one.multiplier for one in told.rounds] == [pytest.approx(steps.NOISE, rel=1e-3)]


def test_shares_that_are_half_of_the_noise_are_too_little():
    (only,) = explained(in_shares(WIDE / 2)).findings
    assert only.kind is Kind.TOO_LITTLE_NOISE


def two_shares(data):
    return [total_of(tuple(leaf[at::2] for leaf in data)) + WIDE / 2**0.5 * torch.randn(steps.COLUMNS) for at in (0, 1)]


OUT = {
    "a metric is read": (lambda one, other, total: total + 0 * float(one.square().sum() + other.square().sum()), 1),
    "the sum and what follows from it": (lambda one, other, total: (total, total.square().sum(), total.mean()), 1),
    "one share": (lambda one, other, total: (total, one), 0),
    "the mean of one share": (lambda one, other, total: (total, one.mean()), 0),
}


@pytest.mark.parametrize("what", OUT)
def test_only_the_releases_that_reach_an_output_count(what):
    out, judged = OUT[what]

    def step(seed, data):
        torch.manual_seed(seed)
        one, other = two_shares(data)
        return out(one, other, one + other)

    told = explained(step)
    assert len(told.rounds) == judged
    assert all(one.noise_deviation == pytest.approx(WIDE) for one in told.rounds)
    assert len(told.not_judged) == 1 - judged
    assert not told.suspicions


def whole_numbers(given):
    return (8 * given).to(torch.int32)


WHOLE = {
    "noise": lambda total: total + whole_numbers(steps.noise()).float() / 8,
    "both": lambda total: whole_numbers(total) + whole_numbers(steps.noise()),
}


@pytest.mark.parametrize("what", WHOLE)
def test_noise_that_is_cut_to_whole_numbers_is_not_judged(what):
    def step(seed, data):
        torch.manual_seed(seed)
        return WHOLE[what](total_of(data))

    told = explained(step)
    assert told.not_judged
    assert not told.suspicions


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_draws_that_are_cut_to_whole_numbers_may_choose_records(share):
    def step(seed, data):
        torch.manual_seed(seed)
        kept = (2 * torch.rand(len(data[0]))).long() == 0
        return whole_numbers(total_of([column[kept] for column in data]) + share * steps.noise())

    assert [found.kind for found in explained(step).findings] == ["too_little_noise"] * (share < 1)


def used_again(seed, data):
    torch.manual_seed(seed)
    total, noise = total_of(data), steps.noise()
    return total + noise, 2 * total + noise


def test_kinds_are_members_of_their_enumeration():
    assert [one.kind.value for one in explained(used_again).suspicions][:1] == ["key_used_twice"]


def zeros_for_some(seed, data):
    torch.manual_seed(seed)
    total, found = total_of(data), []
    for part in (total[:2], total[2:]):
        noise = torch.normal(0.0, WIDE, part.shape)
        if len(part) == 2:
            noise = torch.zeros_like(part)  # released_without_noise
        found.append(part + noise)
    return tuple(found)


def sign_by_data(seed, data):
    torch.manual_seed(seed)
    total, noise = total_of(data), steps.noise()
    if torch.dot(noise, total) < torch.dot(noise, total_of((data[0][:8], data[1][:8]))):  # randomness_from_data
        noise = -noise
    return total + noise


def kept_by_loss(seed, data):
    torch.manual_seed(seed)
    weights, best = steps.START, (1e9, steps.START)
    for _ in range(3):
        weights = weights - steps.LEARNING / 10 * (total_of(data, weights) + steps.noise())
        now = float(((data[0] @ weights - data[1]) ** 2).mean())  # not_followed
        if now < best[0]:
            best = (now, weights)
    return best[1]


def halved_far_out(seed, data):
    """The loss is far from where the branch turns, and a larger record turns it."""
    torch.manual_seed(seed)
    x, y = data
    loss = float(((x @ steps.START - y) ** 2).mean())  # not_followed
    return steps.clipped(steps.gradients(steps.START, x, y) * (0.01 if loss > 1000 else 1.0)).sum(0) + steps.noise()


@pytest.mark.parametrize("step", [zeros_for_some, sign_by_data, kept_by_loss, halved_far_out])
def test_what_a_branch_decides_is_told_at_its_line(step):
    (kind, line), told = marked(step), explained(step).findings
    assert [one.kind for one in told] == [kind]
    assert told[0].lines[0] == (inspect.getsourcefile(step), line)


def told_by_loss(seed, data):
    torch.manual_seed(seed)
    float(((data[0] @ steps.START - data[1]) ** 2).mean())
    return total_of(data) + steps.noise()


def test_a_loss_that_is_only_printed_stays_silent():
    assert not explained(told_by_loss).findings


def counted(seed, data):
    """``one_hot`` reads the largest label, and refuses one that is too large."""
    torch.manual_seed(seed)
    rows = torch.nn.functional.one_hot(2 * (data[1] > -10).long(), 3).float()
    return steps.clipped(rows).sum(0) + steps.CLIP * steps.NOISE * torch.randn(3)


def test_a_check_of_what_a_function_is_given_decides_nothing():
    assert not explained(counted).findings


def clipped_in_python(seed, data):
    torch.manual_seed(seed)
    total = steps.noise()
    for x, y in zip(*data, strict=True):
        row = steps.gradients(steps.START, x[None], y[None])[0]
        total = total + row * min(1.0, steps.CLIP / float(row.norm()))
    return total


@pytest.mark.few(1)
@pytest.mark.parametrize("in_front", [False, True])
def test_lengths_that_python_reads_record_by_record_stay_silent(in_front):
    sides = [tuple(leaf.flip(0) if in_front else leaf for leaf in side) for side in pair_of_tensors()]
    pair = Neighbours(without=sides[0], with_record=sides[1], relation="add_remove")
    told = explain(callable_step(clipped_in_python), pair, key=jax.random.key(3), noise_multiplier=steps.NOISE)
    assert not told.findings


def cut_to_whole_numbers(seed, data):
    torch.manual_seed(seed)
    whole = (total_of(data) / 4).round()  # too_little_noise
    return 4 * whole + steps.noise()


def test_rounding_a_sum_of_clipped_records_is_not_called_clipping_it():
    found, *_ = explained(cut_to_whole_numbers).suspicions
    assert "no record is bounded on its own" not in found.says
    assert found.lines[0] == (__file__, marked(cut_to_whole_numbers)[1])
