"""PyTorch's threads: one does where nothing is lost by it."""

from __future__ import annotations

import time

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

from mechanisms.adapters.pytorch import threads as module  # noqa: E402
from mechanisms.adapters.pytorch.threads import Threads, threads  # noqa: E402
from mechanisms.adapters.pytorch.watch import Watch  # noqa: E402


def inside(trial) -> int:
    """The threads of what is drawn after this trial has decided."""
    with threads(2):
        with Threads().chosen(trial, trial):
            found = torch.get_num_threads()
        assert torch.get_num_threads() == 2
    return found


def same_bits():
    return {"update": np.array([1.0, np.nan])}


def other_bits():
    return {"update": np.array([float(torch.get_num_threads())])}


def slower_alone():
    time.sleep(0.05 if torch.get_num_threads() == 1 else 0.001)
    return same_bits()


@pytest.mark.parametrize(("trial", "expected"), [(other_bits, 2), (slower_alone, 2)])
def test_threads_are_kept_where_they_matter(trial, expected):
    assert inside(trial) == expected


def test_one_thread_does_where_it_gives_the_same_bits_as_fast(monkeypatch):
    # two calls of so short a function differ by more than a tenth
    monkeypatch.setattr(module, "SLOWER", 1e6)
    assert inside(same_bits) == 1
    assert inside(other_bits) == 2


def test_a_long_trial_is_not_drawn_again(monkeypatch):
    monkeypatch.setattr(module, "SHORT", -1.0)
    calls = []
    assert inside(lambda: calls.append(1) or same_bits()) == 2
    assert len(calls) == 1


def test_seeding_queues_nothing_for_devices_that_are_not_there(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    queued, drawn, original = len(torch.cuda._queued_calls), [], torch.manual_seed

    def train(dataset, seed):
        drawn.append((torch.manual_seed(7).initial_seed(), torch.rand(3)))

    Watch(seed=0, steps=1).run(train, None)
    assert len(torch.cuda._queued_calls) == queued
    assert torch.manual_seed is original
    seed, numbers = drawn[0]
    assert seed == 7
    assert torch.equal(numbers, torch.rand(3, generator=torch.Generator().manual_seed(7)))
