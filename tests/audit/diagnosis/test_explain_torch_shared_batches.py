"""One Poisson batch for several rounds of PyTorch code, where the claim draws one for each."""

from __future__ import annotations

import inspect

import jax
import pytest

import guarantees
from audit.diagnosis.explain import explain
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

CLIP, NOISE, RATE, COLUMNS, ROUNDS = 1.0, 1.4, 0.3, 3, 4


def explained(train, steps=ROUNDS):
    x = torch.randn(12, COLUMNS, generator=torch.Generator().manual_seed(2))
    x[-1] *= 9
    pair = Neighbours(without=x[:-1], with_record=x, relation="add_remove")
    claim = guarantees.poisson_training(rate=RATE, noise_multiplier=NOISE, steps=steps)
    return explain(callable_step(train, releases="final"), pair, key=jax.random.key(4), claim=claim, clip=CLIP)


def moved(weights, rows):
    """One round."""
    grads = rows - weights
    grads = grads / grads.norm(dim=1, keepdim=True).clamp(min=CLIP)
    return weights + 0.1 * (grads.sum(0) + CLIP * NOISE * torch.randn(COLUMNS))


def batch(x):
    return x[torch.rand(len(x)) < RATE]


def once(seed, x):
    torch.manual_seed(seed)
    weights, rows = torch.zeros(COLUMNS), batch(x)  # wrong
    for _ in range(ROUNDS):
        weights = moved(weights, rows)
    return weights


def coin_by_coin(seed, x):
    torch.manual_seed(seed)
    weights = torch.zeros(COLUMNS)
    taken = [float(torch.rand(())) < RATE for _ in x]  # wrong
    for _ in range(ROUNDS):
        weights = moved(weights, x[torch.tensor(taken)])
    return weights


def two_epochs(seed, x):
    torch.manual_seed(seed)
    weights = torch.zeros(COLUMNS)
    batches = [torch.bernoulli(torch.full((len(x),), RATE)) > 0 for _ in range(ROUNDS // 2)]  # wrong
    for taken in 2 * batches:
        weights = moved(weights, x[taken])
    return weights


def drawn_anew(seed, x):
    torch.manual_seed(seed)
    weights = torch.zeros(COLUMNS)
    for _ in range(ROUNDS):
        weights = moved(weights, batch(x))
    return weights


def drawn_before(seed, x):
    torch.manual_seed(seed)
    weights = torch.zeros(COLUMNS)
    batches = [torch.bernoulli(torch.full((len(x),), RATE)) > 0 for _ in range(ROUNDS)]
    for taken in batches:
        weights = moved(weights, x[taken])
    return weights


def two_releases(seed, x):
    """A sum and a count of one batch."""
    torch.manual_seed(seed)
    weights = torch.zeros(COLUMNS)
    for _ in range(ROUNDS):
        rows = batch(x)
        count = torch.ones(len(rows)).sum() + 100 * torch.randn(())
        weights = moved(weights, rows) + 0 * count
    return weights


@pytest.mark.parametrize("train", [once, coin_by_coin, two_epochs], ids=lambda train: train.__name__)
def test_a_batch_of_several_rounds_is_no_batch_of_the_claim(train):
    (found,) = explained(train).suspicions
    source, start = inspect.getsourcelines(train)
    line = start + next(at for at, text in enumerate(source) if "# wrong" in text)
    assert (found.kind, found.lines[0]) == ("sampled_otherwise", (__file__, line)), found
    assert "chooses the batches of" in found.says


@pytest.mark.parametrize("train", [drawn_anew, drawn_before, two_releases], ids=lambda train: train.__name__)
def test_a_batch_of_its_own_for_each_round_is_left_alone(train):
    assert not explained(train).suspicions


def test_nothing_is_said_where_the_claim_counts_fewer_rounds():
    assert not explained(once, steps=1).suspicions


def one_kind_twice(seed, x):
    torch.manual_seed(seed)
    x = torch.cat([x, x[x[:, 0].sign() == x[-1, 0].sign()]])
    weights = torch.zeros(COLUMNS)
    for _ in range(ROUNDS):
        weights = moved(weights, batch(x))
    return weights


def test_records_that_stand_twice_in_a_dataset_are_not_said_to_change_one_another():
    told = explained(one_kind_twice).findings
    assert "too_little_noise" in {finding.kind for finding in told}
    assert "records_mixed_before_sum" not in {finding.kind for finding in told}
    assert any("a batch holds a record more than once" in finding.says for finding in told)
