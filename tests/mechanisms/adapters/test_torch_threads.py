"""PyTorch's threads: one does where nothing is lost by it."""

from __future__ import annotations

import time

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


def busy(seconds: float) -> None:
    """Takes CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@pytest.fixture
def nothing_is_tiny(monkeypatch):
    monkeypatch.setattr(module, "TINY", -1.0)


@pytest.mark.usefixtures("nothing_is_tiny")
@pytest.mark.parametrize(("one", "several", "expected"), [(0.06, 0.001, 2), (0.001, 0.06, 1)])
def test_the_faster_of_one_thread_and_several_is_chosen(one, several, expected):
    assert inside(lambda: busy(one if torch.get_num_threads() == 1 else several)) == expected


def test_a_tiny_trial_has_one_thread_and_several_are_not_tried():
    seen = []
    assert inside(lambda: seen.append(torch.get_num_threads())) == 1
    assert set(seen) == {1}


@pytest.mark.parametrize(("limit", "trial"), [("SHORT", lambda: busy(0.06)), ("LONG", lambda: time.sleep(0.06))])
def test_a_long_trial_keeps_its_threads_and_is_not_drawn_again(monkeypatch, limit, trial):
    monkeypatch.setattr(module, limit, 0.05)
    calls = []
    assert inside(lambda: calls.append(1) or trial()) == 2
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
