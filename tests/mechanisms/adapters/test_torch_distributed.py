"""DistributedDPOptimizer in two processes: is the noise added once, or by every rank?"""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
from checks import FALSE_FAILURE
from scipy import stats

import audit
import guarantees
from mechanisms.adapters.trial_seeds import trial_seeds

pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")
pytest.importorskip("opacus", reason="Opacus is not installed: pip install dpsgd-audit[opacus]")

CLIP, NOISE, COLUMNS, RANKS = 1.0, 2.0, 50, 2
WITHOUT, WITH = 20, 21
"""In batches of 8 both have three batches an epoch, and so one rate."""
TRIALS = 200


def build(rows, target):
    import torch
    from torch.utils.data import TensorDataset

    return TensorDataset(torch.tensor(rows), torch.full((len(rows),), target))


def train(dataset, seed):
    """A user's distributed training, one step, as Opacus documents it."""
    import torch
    from opacus import PrivacyEngine
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
    from torch.utils.data import DataLoader

    model = DifferentiallyPrivateDistributedDataParallel(torch.nn.Linear(COLUMNS, 1, bias=False))
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(dataset, batch_size=8),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        loss_reduction="sum",
    )
    for x, y in loader:
        optimizer.zero_grad()
        (model(x)[:, 0] * y).sum().backward()
        optimizer.step()


def rank_of(rank, store, rows, seeds, pipe):
    import torch
    import torch.distributed as distributed

    from mechanisms.adapters.pytorch.for_torch import torch_training

    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    training = torch_training(train)
    dataset = build(rows, 1.0)
    # every rank samples its own share of the records
    updates = training.prepare(dataset)(seeds ^ np.uint64(rank))
    history = training.history(dataset)
    if rank == 0:
        pipe.send((updates["weight"].reshape(len(seeds), -1), history))
    distributed.destroy_process_group()


def two_ranks(folder, rows, trials, number):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    seeds = trial_seeds(np.array([7, number], np.uint32), 0, trials)
    ranks = [
        context.Process(target=rank_of, args=(rank, folder / f"store{number}", rows, seeds, theirs))
        for rank in range(RANKS)
    ]
    for process in ranks:
        process.start()
    try:
        assert ours.poll(300), "two ranks did not answer"
        return ours.recv()
    finally:
        for process in ranks:
            process.join(20)
            process.kill()


@pytest.mark.long
def test_noise_is_added_once_and_the_claim_is_kept(tmp_path):
    zero = np.zeros((WITHOUT, COLUMNS), np.float32)
    record = np.zeros((WITH, COLUMNS), np.float32)
    record[-1, 0] = 5.0
    without, history = two_ranks(tmp_path, zero, TRIALS, 0)
    with_record, _ = two_ranks(tmp_path, record, TRIALS, 1)
    noise = without.ravel() / (NOISE * CLIP)
    p = 2 * min(stats.chi2.cdf(np.sum(noise**2), noise.size), stats.chi2.sf(np.sum(noise**2), noise.size))
    assert p > FALSE_FAILURE, f"deviation {noise.std():.3f} of what is due; sqrt(2) would be noise of both ranks"
    ((multiplier, rate, steps),) = history
    assert (multiplier, steps) == (NOISE, 1)
    found = audit.from_scores(
        without[:, 0],
        with_record[:, 0],
        claim=guarantees.subsampled_gaussian(rate=rate, noise_multiplier=NOISE),
        risk=1e-3,
    )
    assert found.verdict != "violation"
