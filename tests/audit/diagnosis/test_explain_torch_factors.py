"""Factors that Python computes of lengths which it read: the wrong line is named, and a right length is not accused."""

from __future__ import annotations

import inspect
import math

import jax
import pytest

from audit.diagnosis.explain import explain
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

CLIP, NOISE, PARTS = 0.8, 1.1, (3, 2, 1)


def explained(step):
    x = torch.randn(6, sum(PARTS), generator=torch.Generator().manual_seed(5))
    # one part alone is shorter than the bound
    x[-1] = torch.tensor([3.0, -2.0, 1.0, 0.5, -0.4, 0.3])
    pair = Neighbours(without=x[:-1], with_record=x, relation="add_remove")
    return explain(callable_step(step), pair, key=jax.random.key(1), clip=CLIP, noise_multiplier=NOISE)


def noisy(seed, data, add):
    torch.manual_seed(seed)
    totals = [torch.zeros(size) for size in PARTS]
    for row in data:
        add(totals, (1.0 * row).split(PARTS))
    return [total + CLIP * NOISE * torch.randn(total.shape) for total in totals]


def squares(parts):
    return [float((part**2).sum()) for part in parts]


def right(totals, parts):
    length = math.sqrt(sum(squares(parts)))
    for total, part in zip(totals, parts, strict=True):
        total.add_(part, alpha=min(1.0, CLIP / (length + 1e-9)))


def largest(totals, parts):
    length = math.sqrt(sum(squares(parts)))
    scale = max(1.0, CLIP / length)  # wrong
    for total, part in zip(totals, parts, strict=True):
        total.add_(part, alpha=scale)


def largest_where_it_is_used(totals, parts):
    length = math.sqrt(sum(squares(parts)))
    for total, part in zip(totals, parts, strict=True):
        total += part * max(1.0, CLIP / length)  # wrong


def largest_handed_over(totals, parts):
    length = math.sqrt(sum(squares(parts)))
    for total, part in zip(totals, parts, strict=True):
        scaled(total, part, max(1.0, CLIP / length))  # wrong


def scaled(total, part, factor):
    total.add_(part, alpha=factor)


def too_large(length):
    return min(1.0, 1.3 * CLIP / length)  # wrong


def from_a_helper(totals, parts):
    factor = too_large(math.sqrt(sum(squares(parts))))
    for total, part in zip(totals, parts, strict=True):
        total.add_(part, alpha=factor)


def of_the_mean_square(totals, parts):
    own = squares(parts)
    length = math.sqrt(sum(own) / len(own))  # wrong
    for total, part in zip(totals, parts, strict=True):
        total.add_(part, alpha=min(1.0, CLIP / length))


def without_the_first(totals, parts):
    length = math.sqrt(sum(float((part**2).sum()) for part in parts[1:]))  # wrong
    for total, part in zip(totals, parts, strict=True):
        total.add_(part, alpha=min(1.0, CLIP / length))


WRONG = {
    largest: "since it is multiplied by 1, the factor of",
    largest_where_it_is_used: "since it is multiplied by 1, the factor of",
    largest_handed_over: "since it is multiplied by 1, the factor of",
    from_a_helper: "the factor of",
    of_the_mean_square: "makes its length 2.",
    without_the_first: "measures its length as 0.7071 when it is",
}


@pytest.mark.few(3)
@pytest.mark.parametrize("add", WRONG, ids=lambda add: add.__name__)
def test_the_line_that_makes_the_factor_wrong_stands_first(add):
    source, start = inspect.getsourcelines(too_large if add is from_a_helper else add)
    line = start + next(at for at, text in enumerate(source) if "# wrong" in text)
    first = explained(lambda seed, data: noisy(seed, data, add)).findings[0]
    assert first.lines[0] == (__file__, line), first
    assert WRONG[add] in first.says


def test_a_right_factor_is_left_alone():
    assert not explained(lambda seed, data: noisy(seed, data, right)).suspicions


def test_a_seed_that_is_too_large_is_told_what_to_write():
    def doubled(seed, data):
        torch.manual_seed(2**64 + seed)
        return data.sum(0)

    (found,) = explained(doubled).not_judged
    assert found.says.endswith("use seed % 2**32, which no two trials of a dataset share."), found.says


def noise_for_each(seed, data):
    torch.manual_seed(seed)
    total = torch.zeros(sum(PARTS))
    for row in data:
        factor = min(1.0, CLIP / float(row.norm()))
        total.add_(row, alpha=factor).add_(CLIP * NOISE * torch.randn(total.shape))  # wrong
    return total


def until_it_is_small(seed, data):
    torch.manual_seed(seed)
    rows = data / data.norm(dim=1, keepdim=True) * CLIP
    total = torch.zeros(sum(PARTS))
    for _ in range(int(data.abs().sum() / 4)):  # wrong
        total = total + rows.sum(0) + CLIP * NOISE * torch.randn(total.shape)
    return total


@pytest.mark.parametrize(
    ("step", "kind", "says"),
    [
        (noise_for_each, "noise_scale_from_data", "for each record, so the standard deviation"),
        (until_it_is_small, "changed_after_release", ", and decide how often it is released: "),
    ],
)
def test_noise_that_is_added_more_often_on_one_dataset(step, kind, says):
    source, start = inspect.getsourcelines(step)
    line = start + next(at for at, text in enumerate(source) if "# wrong" in text)
    found = explained(step).findings[0]
    assert (found.kind, found.lines[0]) == (kind, (__file__, line)), found
    assert says in found.says


def short_parts_left_alone(parts):
    length = sum(part.pow(2).sum(1) for part in parts).sqrt()
    return [part * (CLIP / length).clamp(max=1.0)[:, None] if part.shape[1] > 1 else part for part in parts]  # wrong


def test_a_part_that_is_not_clipped_is_named_where_the_others_are():
    def step(seed, data):
        torch.manual_seed(seed)
        parts = short_parts_left_alone(data.split(PARTS, dim=1))
        return [part.sum(0) + CLIP * NOISE * torch.randn(part.shape[1]) for part in parts]

    source, start = inspect.getsourcelines(short_parts_left_alone)
    (found,) = explained(step).findings
    assert found.lines[0] == (__file__, start + len(source) - 1)
    assert "and this one is not" in found.says


RATE = 0.5


def bounded(rows):
    return rows * (CLIP / rows.norm(dim=1, keepdim=True)).clamp(max=1.0)


def each_over_the_rate(rows):
    return (bounded(rows) / RATE).sum(0)  # wrong


def sum_over_the_rate(rows):
    total = bounded(rows).sum(0)
    return total * (1 / RATE)  # wrong


def one_by_one(rows):
    total = torch.zeros(sum(PARTS))
    for row in bounded(rows):
        total.add_(row, alpha=1 / RATE)  # wrong
    return total


def weighed_by_the_rate(rows):
    weight = torch.tensor(1 / RATE)
    return torch.stack([weight * row for row in bounded(rows)]).sum(0)  # wrong


@pytest.mark.parametrize("total_of", [each_over_the_rate, sum_over_the_rate, one_by_one, weighed_by_the_rate])
def test_a_number_by_which_bounded_records_are_multiplied_is_named(total_of):
    def step(seed, data):
        torch.manual_seed(seed)
        return total_of(data) + CLIP * NOISE * torch.randn(sum(PARTS))

    source, start = inspect.getsourcelines(total_of)
    (found,) = explained(step).findings
    assert found.lines[0] == (__file__, start + next(at for at, text in enumerate(source) if "# wrong" in text)), found
    assert "it is multiplied by 2 at" in found.says


def test_noise_for_records_that_are_multiplied_is_left_alone():
    def step(seed, data):
        torch.manual_seed(seed)
        return sum_over_the_rate(data) + CLIP * NOISE / RATE * torch.randn(sum(PARTS))

    assert not explained(step).suspicions


def test_the_line_that_multiplies_one_tensor_of_several_is_named():
    def step(seed, data):
        torch.manual_seed(seed)
        sums = dict(zip("abc", bounded(data).sum(0).split(PARTS), strict=True))
        sums = {name: (5.0 if name == "b" else 1.0) * total for name, total in sums.items()}  # wrong
        return {name: total + CLIP * NOISE * torch.randn(total.shape) for name, total in sums.items()}

    source, start = inspect.getsourcelines(step)
    (found,) = explained(step).findings
    assert found.lines[0] == (__file__, start + next(at for at, text in enumerate(source) if "# wrong" in text)), found
    assert "moves the value computed from the sum at" in found.says
    assert "it is multiplied by 5 at" in found.says
