"""A loop of DP-SGD as people write it by hand: what is found does not depend on the key."""

from __future__ import annotations

import inspect

import jax
import pytest

from audit.diagnosis.explain import explain
from mechanisms import Neighbours, torch_training

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from torch.func import functional_call, grad, vmap  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

pytestmark = pytest.mark.long

RATE, COLUMNS = 0.4, 3
KEYS = [jax.random.key(number) for number in range(4)]


def loop(dataset, bug=None):
    """Two noisy steps; records are taken by chance."""
    model = torch.nn.Sequential(torch.nn.Linear(COLUMNS, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
    velocity, batches = {}, torch.Generator().manual_seed(torch.initial_seed() % 2**32 + 1)

    def loss(parameters, x, y):
        return (functional_call(model, parameters, (x[None],))[0, 0] - y) ** 2

    for _ in range(2):
        if bug == "batches":
            batches.manual_seed(5 + torch.initial_seed() % 2**32)  # SEED
        taken = torch.rand(len(dataset), generator=batches) < RATE
        x, y = (column[taken] for column in dataset.tensors)
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        rows = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
        if bug == "groups":
            rows = {n: torch.stack([g[i : i + 2].sum(0) for i in range(0, len(g), 2)]) for n, g in rows.items()}  # SUM
        norms = torch.sqrt(sum(g.flatten(1).pow(2).sum(1) for g in rows.values()))
        factor = (1 / norms.clamp(min=1e-12)).clamp(max=1.0)
        for name, p in model.named_parameters():
            total = torch.einsum("b,b...->...", factor, rows[name])  # TOTAL
            if bug == "momentum":
                total = velocity[name] = total + 0.9 * velocity.get(name, 0.0)  # CARRIED
            bare = bug == "bias" and name.endswith("bias")
            p.grad = (total if bare else total + torch.randn(total.shape)) / 8  # NOISE
        optimizer.step()
    return model


def line(mark):
    source, start = inspect.getsourcelines(loop)
    return start + next(number for number, text in enumerate(source) if text.rstrip().endswith(f"# {mark}"))


def told_of(key, bug, records=9, **stated):
    rows = torch.Generator().manual_seed(1)
    x, y = torch.randn(records, COLUMNS, generator=rows), torch.randn(records, generator=rows)
    x[-1], y[-1] = 3 * x[-1], -5.0
    sides = [TensorDataset(x[:n], y[:n]) for n in (records - 1, records)]
    neighbours = Neighbours(without=sides[0], with_record=sides[1], relation="add_remove")
    training = torch_training(lambda dataset, seed: loop(dataset, bug), releases="transcript")
    return explain(training, neighbours, key=key, **stated)


@pytest.mark.few(1)
@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
@pytest.mark.parametrize("records", [2, 9, 40])
def test_biases_without_noise_are_all_that_is_named(key, records):
    """Later steps start from other weights for that reason alone, and no record has changed another."""
    (found,) = told_of(key, "bias", records, noise_multiplier=1.0).findings
    assert found.kind == "released_without_noise"
    assert found.lines[:2] == ((__file__, line("NOISE")), (__file__, line("TOTAL")))
    both = [f"{one}.bias of step 1 (also {other}.bias) is released without noise" for one, other in ((0, 2), (2, 0))]
    assert found.says.startswith(tuple(both))


@pytest.mark.few(1)
@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_groups_that_are_summed_before_they_are_clipped_are_named_by_their_own_sum(key):
    (found,) = told_of(key, "groups", noise_multiplier=1.0).findings
    assert found.kind == "clipped_after_sum"
    assert found.lines[:2] == ((__file__, line("TOTAL")), (__file__, line("SUM")))


@pytest.mark.few(1)
@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
@pytest.mark.parametrize("told", [{}, {"clip": 1.0}], ids=len)
def test_momentum_of_sums_without_noise_is_named_at_its_line(key, told):
    (found,) = told_of(key, "momentum", noise_multiplier=1.0, **told).findings
    assert (found.kind, found.lines[0]) == ("too_little_noise", (__file__, line("CARRIED")))


@pytest.mark.few(1)
@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_batches_of_one_seed_are_named_at_the_line_that_seeds_them(key):
    (found,) = told_of(key, "batches", noise_multiplier=1.0).findings
    assert (found.kind, found.lines[0]) == ("key_used_twice", (__file__, line("SEED")))
    assert "(for the batches of rounds 1 and 2)" in found.says


@pytest.mark.few(1)
@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_the_right_loop_is_left_alone(key):
    right = told_of(key, None, noise_multiplier=1.0)
    assert not right.findings
    assert right.stated == 1.0
    assert [one.number for one in right.rounds] == [1, 2]
