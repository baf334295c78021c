"""A loop without an optimizer may draw its first batch before it calls its model: that is no part of the model."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from mechanisms.adapters.pytorch.watch import Watch  # noqa: E402

ROWS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


class Seen:
    def __init__(self, train, seed):
        self.weights, self.batch, self.noise = None, None, None
        self.watch = Watch(seed=seed, steps=0)
        self.watch.run(lambda data, seed: train(self, data, seed), ROWS)


def functional(seen, data, seed, draw=lambda n: torch.rand(n)):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    seen.weights = model[1].weight.detach().clone()
    seen.batch = draw(len(data))
    if (seen.batch < 0.9).any():
        model(data)
    seen.noise = torch.rand(len(data))


def written_over(seen, data, seed):
    """Weights of their own, as users write them, and a second model after the first draw."""
    loss = torch.nn.CrossEntropyLoss()
    seen.batch = torch.rand(len(data))
    model = torch.nn.Linear(4, 2)
    torch.nn.init.normal_(model.bias)
    model.weight.data.uniform_()
    seen.weights = torch.cat([model.weight.detach().flatten(), model.bias.detach()])
    seen.noise = torch.rand(len(data))
    loss(model(data), torch.zeros(len(data), dtype=torch.long))


@pytest.mark.parametrize("train", [functional, written_over])
def test_batches_follow_the_trials_seed_and_weights_do_not(train):
    runs = [Seen(train, seed) for seed in (1, 2, 1)]
    assert torch.equal(runs[0].weights, runs[1].weights)
    assert not torch.equal(runs[0].batch, runs[1].batch)
    assert torch.equal(runs[0].batch, runs[2].batch)
    assert torch.equal(runs[0].noise, runs[2].noise)
    assert not torch.equal(runs[0].batch, runs[0].noise)


def test_a_run_that_draws_empty_batches_alone_has_begun():
    run = Seen(lambda *given: functional(*given, draw=lambda n: torch.rand(n) + 1), 1)
    assert not run.watch.never_began


def test_a_user_who_seeds_is_left_alone():
    run = Seen(lambda *given: functional(*given, draw=lambda n: torch.rand(n, generator=None)), 1)
    own = Seen(lambda *given: functional(*given, draw=lambda n: (torch.manual_seed(5), torch.rand(n))[1]), 1)
    torch.manual_seed(5)
    assert torch.equal(own.batch, torch.rand(len(ROWS)))
    assert not torch.equal(own.batch, run.batch)


def drawn_by_numpy(n):
    return torch.as_tensor(np.random.rand(n))  # noqa: NPY002


def test_other_generators_before_the_model_is_called_are_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"np\.random\.default_rng\(seed\)"):
        Seen(lambda *given: functional(*given, draw=drawn_by_numpy), 1)

    def seeded(n):
        np.random.seed(n)  # noqa: NPY002
        return drawn_by_numpy(n)

    Seen(lambda *given: functional(*given, draw=seeded), 1)


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_nothing_is_left_of_the_watch_where_a_users_mode_stays():
    own = Mode()

    def train(seen, data, seed):
        torch.overrides._push_mode(own)
        functional(seen, data, seed)

    Seen(train, 1)
    assert torch.overrides._pop_mode() is own
    assert torch.overrides._get_current_function_mode_stack() == []
