"""Noise that single records bring along: all of it counts where their sum is told, or none of it is judged."""

from __future__ import annotations

import inspect
import math

import jax
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import explain

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

pytestmark = pytest.mark.long

WIDTH, RECORDS = 6, 10


def clipped(row):
    return row * min(1.0, 1 / (row.norm().item() + 1e-9))


def share(records, sigma=1.0):
    return sigma * torch.randn(WIDTH) / math.sqrt(len(records))


def one_by_one(records, sigma):
    total = torch.zeros(WIDTH)
    for row in records:
        total = total + clipped(row) + share(records, sigma)
    return total


def in_brackets(records, sigma):
    total = torch.zeros(WIDTH)
    for row in records:
        total += clipped(row) + share(records, sigma)
    return total


def noise_first(records, sigma):
    total = sigma * torch.randn(WIDTH)
    for row in records:
        total = total + clipped(row)
    return total


def stacked(records, sigma):
    return torch.stack([clipped(row) + share(records, sigma) for row in records]).sum(0)


def in_rows(records, sigma):
    rows = records * torch.clamp(1 / records.norm(dim=1, keepdim=True), max=1)
    return (rows + sigma * torch.randn(records.shape) / math.sqrt(len(records))).sum(0)


def averaged(records, sigma):
    return in_rows(records, sigma) / 4


def in_a_buffer(records, sigma):
    buffer = torch.zeros(records.shape)
    for place, row in enumerate(records):
        buffer[place] = clipped(row) + share(records, sigma)
    return buffer.mean(0)


WAYS = [one_by_one, in_brackets, noise_first, stacked, in_rows, averaged, in_a_buffer]


def explained(way, sigma, relation="zero_out", noise_multiplier=1.0):
    x = np.random.default_rng(0).normal(size=(RECORDS, WIDTH)).astype(np.float32) * 3
    pair = {
        "zero_out": lambda: mechanisms.zero_out(x, 2, null=np.zeros(WIDTH, np.float32)),
        "substitution": lambda: mechanisms.replace_record(x, 2, -x[2]),
        "add_remove": lambda: mechanisms.add_record(x[:-1], x[-1]),
    }[relation]()

    def step(seed, dataset):
        torch.manual_seed(seed % 2**31)
        return way(torch.as_tensor(dataset), sigma)

    moved = 2.0 if relation == "substitution" else 1.0
    claim = guarantees.gaussian(mu=moved / noise_multiplier, relation=relation)
    code = mechanisms.callable_step(step, clip=1.0, noise_multiplier=noise_multiplier)
    return explain(code, pair, key=jax.random.key(11), claim=claim)


@pytest.mark.parametrize("relation", ["zero_out", "substitution"])
@pytest.mark.parametrize("way", WAYS)
def test_the_noise_of_all_records_counts(way, relation):
    found = explained(way, 1.0, relation)
    assert not found.findings
    assert found.is_as_stated(found.stated)


@pytest.mark.parametrize("way", WAYS)
def test_shares_that_are_too_small_together_are_found(way):
    (found,) = explained(way, 0.5).findings
    assert found.kind == "too_little_noise"
    assert "noise multiplier of 0.5" in found.says
    lines, start = inspect.getsourcelines(in_rows if way is averaged else way)
    drawn = inspect.getsourcelines(share)[1] + 1
    own = range(start, start + len(lines))
    assert found.lines[0][1] in {*own, drawn}


def test_shares_whose_number_depends_on_the_records_are_not_judged():
    found = explained(one_by_one, 1.0, "add_remove")
    assert not found.suspicions
    assert found.not_judged


def bounded(rows):
    return (rows * torch.clamp(1 / rows.norm(dim=1, keepdim=True), max=1)).sum(0)


def with_each(parts, deviation):
    total = torch.zeros(WIDTH)
    for part in parts:
        total = total + bounded(part) + torch.normal(0.0, deviation, (WIDTH,))
    return total


def with_all(parts, deviation):
    total = sum(map(bounded, parts), torch.zeros(WIDTH))
    return total + sum((deviation * torch.randn(WIDTH) for _ in parts), torch.zeros(WIDTH))


def in_a_tensor(parts, deviation):
    return sum(map(bounded, parts), torch.zeros(WIDTH)) + deviation * torch.randn(len(parts), WIDTH).sum(0)


def of_microbatches(way, size, power):
    """Two steps on Poisson batches, which one record more cuts into one microbatch more; each has its noise."""

    def step(records, sigma):
        weights = torch.zeros(WIDTH)
        for _ in range(2):
            parts = records[torch.rand(len(records)) < 0.5].split(size)
            weights = weights - 0.1 * way(parts, sigma / len(parts) ** power)
        return weights

    return step


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("way", [with_each, with_all, in_a_tensor])
def test_shares_of_a_number_that_depends_on_the_batch_add_up(way, size):
    assert not explained(of_microbatches(way, size, 0.5), 1.0, "add_remove").suspicions


@pytest.mark.parametrize("way", [with_each, with_all, in_a_tensor])
def test_shares_that_add_up_to_less_in_a_larger_batch_are_named(way):
    (found,) = explained(of_microbatches(way, 1, 1.0), 1.0, "add_remove").suspicions
    assert found.kind == "noise_scale_from_data"


@pytest.mark.parametrize("deviation", [0.5, 0.4])
def test_the_noise_of_parts_that_hold_nobody_counts(deviation):
    def of_workers(records, sigma):
        taken, worker = torch.rand(len(records)) < 0.5, torch.arange(len(records)) % 4
        total = torch.zeros(WIDTH)
        for number in range(4):
            own, local = records[taken & (worker == number)], torch.zeros(WIDTH)
            for row in own:
                local = local + clipped(row)
            total = total + (local + sigma * torch.randn(WIDTH))
        return total

    found = explained(of_workers, deviation, "add_remove")
    assert [one.kind for one in found.suspicions] == ([] if deviation == 0.5 else ["too_little_noise"])
    assert deviation == 0.5 or "noise multiplier of 0.8" in found.suspicions[0].says
