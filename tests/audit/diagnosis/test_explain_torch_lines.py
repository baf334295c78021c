"""The line where a fault of PyTorch code is made stands first, whichever line shows it."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

from audit.diagnosis.explain import explain
from audit.diagnosis.explain.places import Place
from audit.diagnosis.explain.wrong_lengths import Number, mismeasured
from mechanisms import Neighbours, callable_step, torch_training

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from diagnosis import torch_steps as steps  # noqa: E402
from torch.func import grad, vmap  # noqa: E402

KEY = jax.random.key(3)


def pair(last=None):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, steps.COLUMNS)).astype("f4"), rng.normal(size=9).astype("f4")
    x[-1] = 6 * x[-1] if last is None else last
    y[-1] = -20
    without, with_record = ((torch.tensor(x[:n]), torch.tensor(y[:n])) for n in (8, 9))
    return Neighbours(without=without, with_record=with_record, relation="add_remove")


def explained(step, neighbours=None, **stated):
    stated = {"noise_multiplier": steps.NOISE, **stated}
    return explain(callable_step(step), neighbours or pair(), key=KEY, **stated)


def total_of(data):
    return steps.clipped(steps.gradients(steps.START, *data)).sum(0)


def added_to_a_part(seed, data):
    torch.manual_seed(seed)
    total, noise = total_of(data), steps.noise()
    total[:-1] += noise[:-1]  # released_without_noise
    return total / 4


def put_back(seed, data):
    torch.manual_seed(seed)
    total, noise = total_of(data), steps.noise()
    noisy = total + noise
    noisy[-1:] = total[-1:]  # released_without_noise
    return noisy / 4


def masked(seed, data):
    torch.manual_seed(seed)
    noise = steps.noise()
    noise = noise * (torch.arange(steps.COLUMNS) > 0)  # released_without_noise
    return total_of(data) + noise


def made_smaller(seed, data):
    torch.manual_seed(seed)
    noise = steps.noise()
    noise.mul_(0.5)  # too_little_noise
    return total_of(data) + noise


def smaller_in_one_coordinate(seed, data):
    torch.manual_seed(seed)
    noise = steps.noise()
    noise[:1] *= 0.5  # too_little_noise
    return total_of(data) + noise


def drawn_too_small(seed, data):
    torch.manual_seed(seed)
    noise = torch.normal(0.0, 0.5 * steps.CLIP * steps.NOISE, (steps.COLUMNS,))  # too_little_noise
    return total_of(data) + noise


def mean_of_the_norms(seed, data):
    torch.manual_seed(seed)
    rows = steps.gradients(steps.START, *data)
    norms = rows.norm(dim=1, keepdim=True).mean()  # records_mixed_before_sum
    rows = rows / torch.clamp(norms / steps.CLIP, min=1.0)
    return rows.sum(0) + steps.noise()


def sum_clipped(seed, data):
    torch.manual_seed(seed)
    total = steps.gradients(steps.START, *data).sum(0)
    norm = total.norm()
    scale = (steps.CLIP / norm).clamp(max=1.0)
    bounded = total * scale  # clipped_after_sum
    return bounded + steps.noise()


def noise_before_clipping(seed, data):
    torch.manual_seed(seed)
    rows = steps.gradients(steps.START, *data)
    rows = rows + steps.CLIP * steps.NOISE * torch.randn(rows.shape)  # released_without_noise
    return steps.clipped(rows).sum(0)


def counts_of(data):
    return torch.bincount((data[1] > 0).long(), minlength=2)  # released_without_noise


def counted(seed, data):
    torch.manual_seed(seed)
    return total_of(data) + steps.noise(), counts_of(data).float()


def test_counts_are_sums_of_records():
    (found,) = explained(counted).findings
    assert (found.kind, found.lines[0]) == (
        "released_without_noise",
        (__file__, inspect.getsourcelines(counts_of)[1] + 1),
    )


def test_counts_with_noise_are_left_alone():
    def step(seed, data):
        torch.manual_seed(seed)
        return counts_of(data).float() + torch.randn(2)

    assert not explained(step, clip=1.0, noise_multiplier=1.0).findings


def noisy(values):
    return values + steps.CLIP * steps.NOISE * torch.randn(values.shape)


def noise_on_records_by_a_helper(seed, data):
    """Records that a larger one leaves as they are, and that are too long for their noise."""
    torch.manual_seed(seed)
    rows = 20 * torch.tanh(steps.gradients(steps.START, *data))
    rows = noisy(rows)  # released_without_noise
    return steps.clipped(rows).sum(0)


def bound_as_a_number(seed, data):
    torch.manual_seed(seed)
    rows = steps.gradients(steps.START, *data)
    bound = float(rows.norm(dim=1).mean())  # records_mixed_before_sum
    rows = rows * (bound / rows.norm(dim=1, keepdim=True)).clamp(max=1.0)
    return rows.sum(0) / bound + steps.noise()


def momentum_of_clean_sums(seed, data):
    torch.manual_seed(seed)
    weights, momentum = steps.START.clone(), torch.zeros(steps.COLUMNS)
    for _ in range(2):
        total = steps.clipped(steps.gradients(weights, *data)).sum(0)
        momentum = 0.9 * momentum + total  # too_little_noise
        weights = weights - steps.LEARNING * (momentum + steps.noise())
    return weights


def half_noise_first(seed, data):
    torch.manual_seed(seed)
    released = 0.5 * steps.noise()  # too_little_noise
    for row in steps.clipped(steps.gradients(steps.START, *data)):
        released += row
    return released


def noise_drawn_once(seed, data):
    torch.manual_seed(seed)
    weights, total = steps.START.clone(), steps.noise()
    for _ in range(2):
        for x, y in zip(*data, strict=True):
            if torch.rand(()) < 0.9:
                total += steps.clipped(steps.gradients(weights, x[None], y[None]))[0]  # changed_after_release
        weights = weights - steps.LEARNING * total
    return weights


def uniform_noise(seed, data):
    torch.manual_seed(seed)
    parts = total_of([column[torch.rand(len(column)) < 0.5] for column in data]).split(2)
    return [part + steps.CLIP * steps.NOISE * (2 * torch.rand(part.shape) - 1) for part in parts]  # too_little_noise


def norm_of_a_part(seed, data):
    torch.manual_seed(seed)
    rows = steps.gradients(steps.START, *data)
    scale = (steps.CLIP / rows[:, :3].norm(dim=1, keepdim=True)).clamp(max=1.0)  # too_little_noise
    return (rows * scale).sum(0) + steps.noise()


def hard_examples(seed, data):
    torch.manual_seed(seed)
    rows = steps.gradients(steps.START, *data)
    norms = rows.norm(dim=1)
    hard = norms >= norms.mean()  # records_mixed_before_sum
    return (steps.clipped(rows) * hard.float()[:, None]).sum(0) + steps.noise()


def noise_where_the_sum_is(seed, data):
    torch.manual_seed(seed)
    there = torch.ones(len(data[0]), steps.COLUMNS)
    there[:8, -1] = 0
    total = (steps.clipped(steps.gradients(steps.START, *data)) * there).sum(0)
    noise = steps.noise() * (total != 0)  # noise_scale_from_data
    return total + noise


def noise_for_matrices(seed, data):
    torch.manual_seed(seed)
    out = []
    for part in (total_of(data)[:3, None], total_of(data)[3:]):
        noise = 3 * torch.randn(part.shape) if part.dim() > 1 else 0.0  # released_without_noise
        out.append(part + noise)
    return out


def bent_by_the_model(seed, data):
    """The gradient of a loss that grows slowly, and nothing clips it."""
    torch.manual_seed(seed)
    rows = vmap(grad(lambda w, x, y: torch.log1p((x @ w - y) ** 2).sqrt() * 90), (None, 0, 0))(steps.START, *data)
    total = rows.sum(0)  # too_little_noise
    return total + steps.noise()


def stepped(weights, update):
    return weights - steps.LEARNING * update


def last_step_without_noise(seed, data):
    torch.manual_seed(seed)
    weights = steps.START.clone()
    for step in range(2):
        total = steps.clipped(steps.gradients(weights, *data)).sum(0)
        total = total if step else total + steps.noise()  # released_without_noise
        weights = stepped(weights, total)
    return weights


def noised_by_a_third(total):
    return total + steps.CLIP * steps.NOISE / 3 * torch.randn(total.shape)  # too_little_noise


def too_little_by_a_helper(seed, data):
    torch.manual_seed(seed)
    return noised_by_a_third(total_of(data))


def step_by_a_raw_number(seed, data):
    torch.manual_seed(seed)
    total = total_of(data)
    rate = 1.0 / (1.0 + total.norm().item())  # changed_after_release
    noisy = total + steps.noise()
    return stepped(steps.START, rate * noisy)


def sums_never_begun_anew(seed, data):
    torch.manual_seed(seed)
    weights, total = steps.START.clone(), torch.zeros(steps.COLUMNS)  # too_little_noise
    for _ in range(2):
        total += steps.clipped(steps.gradients(weights, *data)).sum(0)
        weights = stepped(weights, total + steps.noise())
    return weights


def one_number_for_all(seed, data):
    torch.manual_seed(seed)
    rows = steps.gradients(steps.START, *data)
    norms = rows.norm(dim=1).mean().expand(len(rows))  # records_mixed_before_sum
    factors = (steps.CLIP / (norms + 1e-6)).clamp(max=1.0)
    return (rows * factors[:, None]).sum(0) + steps.noise()


def mean_of_the_squares(seed, data):
    torch.manual_seed(seed)
    rows = steps.gradients(steps.START, *data)
    squares = rows.square().mean(1)  # too_little_noise
    factors = (steps.CLIP / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    clipped = rows * factors[:, None]
    return clipped.sum(0) + steps.noise()


def largest_tensor(seed, data):
    torch.manual_seed(seed)
    parts = steps.gradients(steps.START, *data).split(3, dim=1)
    lengths = torch.stack([part.norm(dim=1) for part in parts])
    norms = lengths.amax(0)  # too_little_noise
    factors = steps.CLIP / norms.clamp(min=steps.CLIP)
    return [(part * factors[:, None]).sum(0) + steps.noise()[: part.shape[1]] for part in parts]


def bound_too_large(seed, data):
    torch.manual_seed(seed)
    total = torch.zeros(steps.COLUMNS)
    for row in steps.gradients(steps.START, *data):
        norm = row.norm()
        factor = torch.clamp(1.5 * steps.CLIP / norm, max=1.0)  # too_little_noise
        total += factor * row
    return total + steps.noise()


def noise_in_one_round(seed, data):
    torch.manual_seed(seed)
    weights = steps.START.clone()
    for step in range(2):
        total = steps.clipped(steps.gradients(weights, *data)).sum(0)
        if step == 0:  # released_without_noise
            total += steps.noise()
        weights = stepped(weights, total)
    return weights


def one_tensor_left_out(seed, data):
    torch.manual_seed(seed)
    sums = [row.clone() for row in total_of(data).split(2)]
    for total in sums[1:]:  # released_without_noise
        total += steps.CLIP * steps.NOISE * torch.randn(total.shape)
    return sums


def less_for_one_tensor(seed, data):
    torch.manual_seed(seed)
    out = []
    for total in total_of(data).split((1, steps.COLUMNS - 1)):
        noise = torch.randn(total.shape)
        noise = 0.3 * noise if len(total) == 1 else noise  # too_little_noise
        out.append(total + steps.CLIP * steps.NOISE * noise)
    return out


def lengths_of_columns(seed, data):
    torch.manual_seed(seed)
    rows = steps.gradients(steps.START, *data).repeat(1, 3)
    norms = rows.norm(dim=0)[: len(rows)]  # records_mixed_before_sum
    scale = (steps.CLIP / norms.clamp_min(1e-8)).clamp(max=1.0)
    return (rows * scale[:, None]).sum(0) + 9 * torch.randn(rows.shape[1])


WRONG = [
    noise_in_one_round,
    one_tensor_left_out,
    less_for_one_tensor,
    lengths_of_columns,
    mean_of_the_squares,
    largest_tensor,
    bound_too_large,
    too_little_by_a_helper,
    step_by_a_raw_number,
    sums_never_begun_anew,
    one_number_for_all,
    uniform_noise,
    norm_of_a_part,
    hard_examples,
    noise_where_the_sum_is,
    noise_for_matrices,
    bent_by_the_model,
    half_noise_first,
    noise_drawn_once,
    last_step_without_noise,
    noise_before_clipping,
    noise_on_records_by_a_helper,
    bound_as_a_number,
    momentum_of_clean_sums,
    added_to_a_part,
    put_back,
    masked,
    made_smaller,
    smaller_in_one_coordinate,
    drawn_too_small,
    mean_of_the_norms,
    sum_clipped,
]


@pytest.mark.few(3)
@pytest.mark.parametrize("step", WRONG, ids=lambda step: step.__name__)
def test_the_line_of_the_fault_stands_first(step):
    helper = noised_by_a_third if step is too_little_by_a_helper else step
    source, start = inspect.getsourcelines(helper)
    ((line, kind),) = [(start + at, text.split("# ")[1].strip()) for at, text in enumerate(source) if "  # " in text]
    found, *others = explained(step, clip=steps.CLIP).findings
    assert (found.kind, found.lines[0]) == (kind, (__file__, line)), found
    assert not others


@pytest.mark.parametrize("clip", [1.0, 0.7])
def test_the_number_that_is_no_length_is_named_for_every_bound(clip):
    """With a bound of one, the inverse of the factor is the length that it was made of."""
    square, wrong = 5.62, 5.62**0.25
    values = [("a.py", 46, square), ("a.py", 47, wrong), ("a.py", 48, clip / wrong), ("a.py", 48, clip / wrong)]
    numbers = [Number(Place(own=((path, line),)), value, first=line == 46) for path, line, value in values]
    found = mismeasured(numbers, clip / wrong, square**0.5, clip)
    assert found is not None
    assert (found.at.own, found.part) == ((("a.py", 47),), False)
    assert "measures its length as 1.54 when it is 2.371" in found.says


def right_slice_by_slice(seed, data):
    torch.manual_seed(seed)
    total, noise = total_of(data), steps.noise()
    for at in range(steps.COLUMNS):
        total[at : at + 1] += noise[at : at + 1]
    return total / 4


def right_put_in_pieces(seed, data):
    torch.manual_seed(seed)
    total, noise = total_of(data), steps.noise()
    noisy = torch.empty_like(total)
    noisy[:2] = (total + noise)[:2]
    noisy[2:] = (total + noise)[2:]
    return noisy


def right_bounds_of_their_own(seed, data):
    """Less noise for one coordinate, which has a smaller bound."""
    torch.manual_seed(seed)
    rows, noise = steps.gradients(steps.START, *data), steps.noise()
    noise[-1:] *= 0.1
    noise *= 2**0.5
    total = torch.cat([steps.clipped(rows[:, :-1]), 0.1 * steps.clipped(rows[:, -1:])], dim=1).sum(0)
    return total + noise


def right_noisy_inputs(seed, data):
    """Noise on single records before they are clipped, as data augmentation, and on their sum."""
    torch.manual_seed(seed)
    x, y = data
    return total_of((x + 0.1 * torch.randn(steps.COLUMNS), y)) + steps.noise()


def right_noise_first(seed, data):
    """Records are added to noise one by one, and weights of the first step read by each."""
    torch.manual_seed(seed)
    weights = steps.START.clone()
    for _ in range(2):
        released = steps.noise()
        for x, y in zip(*data, strict=True):
            released += steps.clipped(steps.gradients(weights, x[None], y[None]))[0]
        weights = weights - steps.LEARNING * released
    return weights


def right_noise_before_a_draw_for_each(seed, data):
    """The same with a draw for every record, and a noisy sum for each of two tensors."""
    torch.manual_seed(seed)
    weights = steps.START.clone()
    for _ in range(2):
        sums = [noise.clone() for noise in steps.noise().split(2)]
        for x, y in zip(*data, strict=True):
            if torch.rand(()) < 0.9:
                row = steps.clipped(steps.gradients(weights, x[None], y[None]))[0]
                for total, part in zip(sums, row.split(2), strict=True):
                    total += part
        weights = weights - steps.LEARNING * torch.cat(sums)
    return weights


def right_noise_of_microbatches(seed, data):
    torch.manual_seed(seed)
    weights, (x, y) = steps.START.clone(), data
    for _ in range(2):
        parts = [steps.clipped(steps.gradients(weights, x[at::2], y[at::2])).sum(0) for at in range(2)]
        one, other = (part + steps.noise() / 2**0.5 for part in parts)
        weights = weights - steps.LEARNING * (one + other)
    return weights


def right_microbatch_by_microbatch(seed, data):
    torch.manual_seed(seed)
    weights, (x, y) = steps.START.clone(), data
    for _ in range(2):
        noisy = []
        for at in range(2):
            part = steps.clipped(steps.gradients(weights, x[at::2], y[at::2])).sum(0)
            noisy.append(part + steps.noise() / 2**0.5)
        weights = weights - steps.LEARNING * (noisy[0] + noisy[1])
    return weights


def right_drawn_seed(seed, data):
    drawn = torch.randint(2**31, (1,), generator=torch.Generator().manual_seed(seed))
    torch.manual_seed(int(drawn))
    return total_of(data) + steps.noise()


RIGHT = [
    right_slice_by_slice,
    right_put_in_pieces,
    right_bounds_of_their_own,
    right_noisy_inputs,
    right_noise_first,
    right_noise_before_a_draw_for_each,
    right_noise_of_microbatches,
    right_microbatch_by_microbatch,
    right_drawn_seed,
]


@pytest.mark.few(2)
@pytest.mark.parametrize("step", RIGHT, ids=lambda step: step.__name__)
def test_noise_in_pieces_is_no_fault(step):
    told = explained(step)
    assert not told.findings, told.findings[0].says


@pytest.mark.few(2)
@pytest.mark.parametrize("metric", [torch.sum, torch.mean, lambda noisy: noisy.square().sum()])
def test_a_metric_of_the_noisy_sum_leaves_its_release_as_it_is(metric):
    def measured(seed, data):
        torch.manual_seed(seed)
        noisy = total_of(data) + steps.noise() / 2
        return noisy / (1 + 0 * float(metric(noisy)))

    told = explained(measured)
    assert [found.kind for found in told.findings] == ["too_little_noise"]
    assert [(one.sensitivity, one.noise_deviation) for one in told.rounds] == [pytest.approx((2.0, 1.5))]


def test_a_norm_of_all_noisy_sums_leaves_their_releases_as_they_are():
    def measured(seed, data):
        torch.manual_seed(seed)
        noisy = [part + 1.5 * torch.randn(part.shape) for part in total_of(data).split(2)]
        squares = [part.square().sum() for part in noisy]
        return torch.cat(noisy) / (1 + 0 * float(squares[0] + squares[1]))

    told = explained(measured)
    assert [found.kind for found in told.findings] == ["too_little_noise"]
    assert [(one.sensitivity, one.noise_deviation) for one in told.rounds] == [pytest.approx((2.0, 1.5))]


@pytest.mark.parametrize("share", [0.5, 5**-0.5])
def test_equal_coordinates_are_not_called_clipped_one_by_one(share):
    """Five coordinates of a record clipped to 1 are 1 / sqrt(5) each: as far as so little noise would allow."""

    def short(seed, data):
        torch.manual_seed(seed)
        return total_of(data) + share * steps.noise()

    (found,) = explained(short, pair(last=np.full(steps.COLUMNS, 6.0, "f4"))).findings
    assert found.kind == "too_little_noise"
    assert "as where each" not in found.says


def signs_of_noisy_records(seed, data):
    """Records of local privacy: clipped, then noised one by one; what is made of them is nobody's."""
    torch.manual_seed(seed)
    rows = steps.clipped(steps.gradients(steps.START, *data))
    return torch.sign(rows + steps.CLIP * steps.NOISE * torch.randn(rows.shape)).sum(0)


def added_to_parts_of_noise(seed, data):
    torch.manual_seed(seed)
    released = steps.noise()
    for row in steps.gradients(steps.START, *data):
        row = row * min(1.0, steps.CLIP / row.norm().item())
        released[:2] += row[:2]
        released[2:] += row[2:]
    return released


@pytest.mark.parametrize("step", [signs_of_noisy_records, added_to_parts_of_noise], ids=lambda step: step.__name__)
def test_noise_on_records_that_are_clipped_before_is_not_accused(step):
    told = explained(step)
    assert not told.suspicions
    assert told.not_judged


@pytest.mark.parametrize("fill", [lambda rows: rows[:1], lambda rows: rows[-1:]])
def test_batches_that_are_padded_with_copies_are_not_called_clipped_after_the_sum(fill):
    def padded(seed, data):
        torch.manual_seed(seed)
        rows = torch.nonzero(torch.rand(len(data[0])) < 0.5).flatten()
        rows = torch.cat([rows, fill(rows).expand(12 - len(rows))])
        return total_of([column[rows] for column in data]) + steps.noise()

    told = explained(padded, clip=steps.CLIP)
    _, start = inspect.getsourcelines(padded)
    assert {found.kind for found in told.suspicions} <= {"too_little_noise"}
    assert {found.lines[0] for found in told.findings} == {(__file__, start + 3)}
    assert all("a batch holds a record more than once" in found.says for found in told.findings)


@pytest.mark.parametrize("step", [uniform_noise, norm_of_a_part], ids=lambda step: step.__name__)
def test_sentence_and_table_have_the_same_numbers(step):
    told = explained(step)
    (one,) = told.rounds
    numbers = (one.sensitivity, one.noise_deviation, one.multiplier)
    assert all(f"{number:.4g}" in told.findings[0].says for number in numbers), str(told)


def test_what_only_a_larger_record_shows_is_told_of_that_one():
    told = explained(norm_of_a_part, pair(last=np.full(steps.COLUMNS, 1e-3, "f4")))
    (one,) = told.rounds
    assert f"The record, made {one.scale:,g} times larger, moves" in told.findings[0].says
    assert f"by {one.sensitivity:.4g}" in told.findings[0].says
    assert f"(the record made {one.scale:,g} times larger)" in str(told)


def test_the_largest_of_all_records_is_not_called_a_sum():
    def by_the_longest(seed, data):
        torch.manual_seed(seed)
        rows = steps.gradients(steps.START, *data) * (torch.rand(len(data[0])) < 0.5)[:, None]
        scale = steps.CLIP / rows.norm(dim=1).max().clamp(min=steps.CLIP)
        return (rows * scale).sum(0) + steps.noise()

    (found,) = explained(by_the_longest).suspicions
    assert found.kind == "records_mixed_before_sum"


@pytest.mark.parametrize("draw", [lambda: torch.rand(()) < 0.01, lambda: torch.bernoulli(torch.tensor(0.01))])
def test_a_loop_that_draws_for_each_record_is_seen_with_the_record(draw):
    def loop(seed, data):
        torch.manual_seed(seed)
        total = torch.zeros(steps.COLUMNS)
        for row in steps.clipped(steps.gradients(steps.START, *data)):
            if draw():
                total = total + row
        return total + 0.5 * steps.noise()

    (found,) = explained(loop).findings
    assert found.kind == "too_little_noise"


def noised_after_the_step(dataset, seed):
    torch.manual_seed(seed)
    layer = torch.nn.Linear(steps.COLUMNS, 1, bias=False)
    torch.nn.init.zeros_(layer.weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer.weight.grad = total_of(dataset)[None]
    optimizer.step()
    layer.weight.data += 0.1 * steps.noise()


@pytest.mark.parametrize("releases", ["update", "final"])
def test_what_comes_after_the_step_is_said(releases):
    told = explain(torch_training(noised_after_the_step, releases=releases), pair(), key=KEY)
    said = [one.says for one in told.not_judged if "changes the weights after optimizer.step()" in one.says]
    assert len(said) == (releases == "update")
    assert bool(told.suspicions) == (releases == "update")


def test_a_part_without_noise_leaves_no_round_judged():
    assert [one.judged for one in explained(masked).rounds] == [False]
    assert "(not judged)" in str(explained(masked))


def one_tensor_without_noise(seed, data):
    torch.manual_seed(seed)
    weights = {"weight": torch.ones(steps.COLUMNS, 2), "bias": torch.zeros(2)}

    def loss(own, x, y):
        return (((x[:, None] * own["weight"]).mean(0) + own["bias"]).sum() - y) ** 2

    for _ in range(2):
        total = {name: torch.zeros_like(part) for name, part in weights.items()}
        for x, y in zip(data[0].split(4), data[1].split(4), strict=True):
            rows = vmap(grad(loss), (None, 0, 0))(weights, x, y)
            norms = torch.stack([part.flatten(1).norm(dim=1) for part in rows.values()]).norm(dim=0)
            for name, part in rows.items():
                factors = (steps.CLIP / norms).clamp(max=1.0)
                total[name] += (part * factors.view(-1, *[1] * (part.dim() - 1))).sum(0)
        total["bias"] = total["bias"] + steps.CLIP * steps.NOISE * torch.randn(2)
        weights = {name: part - steps.LEARNING * total[name] for name, part in weights.items()}
    return list(weights.values())


def test_what_follows_from_a_tensor_without_noise_is_not_told_beside_it():
    (found,) = explained(one_tensor_without_noise).findings
    assert found.kind == "released_without_noise", found
