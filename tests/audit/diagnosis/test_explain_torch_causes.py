"""The line that makes a wrong number stands first, and not the one that uses it; each step marks its own."""

from __future__ import annotations

import functools
import inspect

import jax
import numpy as np
import pytest

from audit.diagnosis.explain import explain
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

CLIP, CLASSES, COLUMNS = 1.0, 3, 4
FIRST = torch.Generator().manual_seed(7)
START = {"matrix": torch.randn(CLASSES, COLUMNS, generator=FIRST), "bias": torch.zeros(CLASSES)}


def explained(step):
    x = torch.randn(10, COLUMNS, generator=torch.Generator().manual_seed(5))
    x[-1] *= 30
    y = torch.arange(10) % CLASSES
    # far from right, so that its gradient is long
    y[-1] = (x[-1] @ START["matrix"].T).argmin()
    sides = [(x[:n], y[:n]) for n in (9, 10)]
    pair = Neighbours(without=sides[0], with_record=sides[1], relation="add_remove")
    return explain(callable_step(step), pair, key=jax.random.key(3), noise_multiplier=1.0, clip=CLIP)


def loss(weights, x, y):
    return torch.nn.functional.cross_entropy(x[None] @ weights["matrix"].T + weights["bias"], y[None])


def gradients(weights, data):
    return torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(weights, *data)


def factors(rows):
    lengths = torch.sqrt(sum(own.flatten(1).square().sum(1) for own in rows.values()))
    return (CLIP / lengths).clamp(max=1.0)


def total(weights, data):
    rows = gradients(weights, data)
    taken = factors(rows)
    return {name: torch.einsum("i,i...->...", taken, own) for name, own in rows.items()}


def stepped(weights, change):
    return {name: own - 0.1 * change[name] for name, own in weights.items()}


def rounds(seed, data, deviation, after):
    torch.manual_seed(seed)
    weights, sent = START, []
    for _ in range(3):
        change = {name: own + deviation() * torch.randn_like(own) for name, own in total(weights, data).items()}
        sent += change.values()
        weights = stepped(weights, change)
        after()
    return sent


def less_in_each_round(seed, data):
    torch.manual_seed(seed)
    weights, sent, sigma = START, [], CLIP
    for _ in range(3):
        change = {name: own + sigma * torch.randn_like(own) for name, own in total(weights, data).items()}
        sent += change.values()
        weights = stepped(weights, change)
        sigma *= 0.8  # too_little_noise
    return sent


def less_by_a_scheduler(seed, data):
    held = {"sigma": CLIP}

    def step():
        held["sigma"] /= 2  # too_little_noise

    return rounds(seed, data, lambda: held["sigma"], step)


def divided_by_all(seed, data):
    torch.manual_seed(seed)
    expected = 0.3 * len(data[0])  # noise_scale_from_data
    return [own / expected + CLIP / expected * torch.randn_like(own) for own in total(START, data).values()]


def divided_by_the_batch(seed, data):
    """A list whose last place is as large as the number of records has nothing to do with it."""
    torch.manual_seed(seed)
    places = [place + 1 for place in [*range(len(data[0]) - 2), len(data[0]) - 1]]
    change = total(START, data)
    noisy = [own + CLIP * torch.randn_like(own) for own in change.values()]
    return [own / len(places) for own in noisy]  # changed_after_release


def biases_not_clipped(seed, data):
    torch.manual_seed(seed)
    rows, sent = gradients(START, data), []
    taken = (torch.rand(len(data[0])) < 1).float()
    for name, own in rows.items():
        weight = taken * factors(rows) if name == "matrix" else taken  # too_little_noise
        sent.append(torch.einsum("i,i...->...", weight, own) + CLIP * torch.randn_like(own[0]))
    return sent


def ghost_without_the_bias(seed, data):
    torch.manual_seed(seed)
    x, y = data
    back = torch.softmax(x @ START["matrix"].T, 1) - torch.nn.functional.one_hot(y, CLASSES)
    lengths = back.norm(dim=1) * x.norm(dim=1)  # too_little_noise
    back = back * (CLIP / lengths).clamp(max=1.0)[:, None]
    sums = back.T @ x, back.sum(0)
    return [own + CLIP * torch.randn_like(own) for own in sums]


def bounded(rows, max_norm):
    length = torch.sqrt(sum(own.square().sum() for own in rows))
    return [own * min(1, max_norm / float(length)) for own in rows]


def each_bounded(data, max_norm):
    sums = [torch.zeros_like(own) for own in START.values()]
    for x, y in zip(*data, strict=True):
        rows = torch.func.grad(loss)(START, x, y).values()
        for own, row in zip(sums, bounded(rows, max_norm), strict=True):
            own += row
    return sums


def bound_of_three(seed, data):
    torch.manual_seed(seed)
    sums = each_bounded(data, 3)  # too_little_noise
    return [own + CLIP * torch.randn_like(own) for own in sums]


def two_views(seed, data):
    torch.manual_seed(seed)
    sums = torch.zeros(COLUMNS)
    for view in (data[0], data[0].relu()):
        sums = sums + bounded_rows(view).sum(0)  # too_little_noise
    return sums + CLIP * torch.randn(COLUMNS)


def two_halves_of_the_bound(seed, data):
    torch.manual_seed(seed)
    sums = torch.zeros(COLUMNS)
    for view in (data[0], data[0].relu()):
        sums = sums + 0.5 * bounded_rows(view).sum(0)
    return sums + CLIP * torch.randn(COLUMNS)


def momentum_on_one_line(seed, data, *, covered=False):
    torch.manual_seed(seed)
    kept, sent = torch.zeros(COLUMNS), []
    for _ in range(3):
        taken = data[0][torch.rand(len(data[0])) < 0.5]
        if covered:
            kept = 0.9 * kept + bounded_rows(taken).sum(0) + CLIP * torch.randn(COLUMNS)
            sent.append(kept)
            continue
        kept = 0.9 * kept + bounded_rows(taken).sum(0)  # too_little_noise
        sent.append(kept + CLIP * torch.randn(COLUMNS))
    return sent


def bounded_rows(rows):
    """Right, and called by what is wrong."""
    return rows * (CLIP / rows.norm(dim=1, keepdim=True)).clamp(max=1.0)


def normalised(seed, data, public):
    """Running statistics of the public records, or of all; then rounds of a model that only reads them."""
    torch.manual_seed(seed)
    layer = torch.nn.BatchNorm1d(COLUMNS)
    for _ in range(2):
        layer.train()
        layer(data[0][:public])  # released_without_noise
        layer.eval()
        taken = data[0][torch.rand(len(data[0])) < 0.5]
        with torch.no_grad():
            layer.bias += bounded_rows(layer(taken)).sum(0) + CLIP * torch.randn(COLUMNS)
    return [layer.bias, layer.running_mean, layer.running_var]


def test_running_statistics_without_noise_are_named_with_the_pass_that_makes_them():
    told = explained(functools.partial(normalised, public=None)).suspicions
    source, start = inspect.getsourcelines(normalised)
    line = next(start + at for at, text in enumerate(source) if "# released" in text)
    assert {one.kind: (__file__, line) in one.lines for one in told} == {
        "records_mixed_before_sum": True,
        "released_without_noise": True,
    }, told


def numpy_batches(seed, data):
    """Right, and its batches are not PyTorch's."""
    torch.manual_seed(seed)
    coins, sent = np.random.default_rng(seed), []
    for _ in range(2):
        taken = torch.from_numpy(coins.random(len(data[0])) < 0.5)
        sent.append(bounded_rows(data[0][taken]).sum(0) + CLIP * torch.randn(COLUMNS))  # read
    return sent


def test_batches_that_numpy_draws_are_not_judged_with_the_line_that_reads_them():
    (told,) = explained(numpy_batches).findings
    source, start = inspect.getsourcelines(numpy_batches)
    line = next(start + at for at, text in enumerate(source) if "# read" in text)
    assert told.kind == "not_followed"
    assert told.lines == ((__file__, line),)
    assert "NumPy or Python draws which records" in told.says


def copied_places(noise, total, places):
    kept = torch.zeros(len(total))
    kept[places.tolist()] = noise[places.tolist()]  # read
    return total + kept


def added_places(noise, total, places):
    return total.index_add_(0, places, noise[: len(places)])  # read


@pytest.mark.parametrize("noisy", [copied_places, added_places])
def test_noise_at_places_that_the_records_touch_is_not_judged_with_the_line(noisy):
    """As of the rows of an embedding."""

    def step(seed, data):
        torch.manual_seed(seed)
        taken = data[0][torch.rand(len(data[0])) < 0.5]
        places = taken.abs().argmax(1).unique()
        return noisy(CLIP * torch.randn(COLUMNS), bounded_rows(taken).sum(0), places)

    (told,) = explained(step).findings
    source, start = inspect.getsourcelines(noisy)
    line = next(start + at for at, text in enumerate(source) if "# read" in text)
    assert told.kind == "not_followed"
    assert told.lines[0] == (__file__, line)
    assert "decide which of its places get noise" in told.says


RIGHT = [
    functools.partial(normalised, public=4),
    two_halves_of_the_bound,
    functools.partial(momentum_on_one_line, covered=True),
]


@pytest.mark.parametrize("step", RIGHT, ids=["statistics", "halves", "momentum"])
def test_parts_and_momentum_that_noise_covers_are_not_accused(step):
    assert not explained(step).suspicions


def test_parts_that_are_added_up_are_counted():
    (found,) = explained(two_views).suspicions
    assert "(the record is in 2 parts, each clipped by itself, which " in found.says, found


def a_share_for_each_row(seed, data):
    """The shares make up the same noise, however many there are."""
    torch.manual_seed(seed)
    own = data[0] * (CLIP / data[0].norm(dim=1, keepdim=True)).clamp(max=1.0)
    return (own + CLIP / len(own) ** 0.5 * torch.randn_like(own)).sum(0)


def test_shares_of_one_noise_are_not_accused():
    assert not explained(a_share_for_each_row).suspicions


STEPS = [less_in_each_round, less_by_a_scheduler, divided_by_all, divided_by_the_batch]
STEPS += [biases_not_clipped, ghost_without_the_bias, bound_of_three, two_views, momentum_on_one_line]


@pytest.mark.few(3)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_the_line_that_makes_the_wrong_number_stands_first(step):
    source, start = inspect.getsourcelines(step)
    ((line, kind),) = [(start + at, text.split("# ")[1].strip()) for at, text in enumerate(source) if "  # " in text]
    found = explained(step).suspicions[0]
    assert (found.kind, found.lines[0]) == (kind, (__file__, line)), found


def test_noise_that_fades_is_compared_with_the_round_before():
    (found,) = explained(less_in_each_round).findings
    assert found.says.endswith(f"It was 0.8 in the round before, until {found.says.rsplit('until ', 1)[1]}")
    assert "should be" not in found.says


def chunks_of_two(seed, data):
    torch.manual_seed(seed)
    weights = [own.clone().requires_grad_() for own in START.values()]
    sums = [torch.zeros_like(own) for own in weights]
    for x, y in zip(data[0].split(2), data[1].split(2), strict=True):
        for own in weights:
            own.grad = None
        torch.nn.functional.cross_entropy(x @ weights[0].T + weights[1], y).backward()  # mean
        torch.nn.utils.clip_grad_norm_(weights, CLIP)  # bounded
        for own, weight in zip(sums, weights, strict=True):
            own += weight.grad
    return [own + CLIP * torch.randn_like(own) for own in sums]


def test_a_gradient_of_several_records_is_told_with_the_line_that_bounds_it():
    (found,) = explained(chunks_of_two).suspicions
    source, start = inspect.getsourcelines(chunks_of_two)
    lines = [(__file__, start + at) for at, text in enumerate(source) if "# mean" in text or "# bounded" in text]
    assert (found.kind, list(found.lines[:2])) == ("records_mixed_before_sum", lines), found
