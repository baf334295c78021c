"""Thirteen bugs in code of one's own, a softmax regression in NumPy and a CNN in PyTorch: found? diagnosed rightly?

python benchmarks/own_code.py [--models softmax cnn] [--trials 1000] [--only half_noise ...] [--told yes no]

Each bug is audited twice: told clip, noise multiplier and per-example gradients, and told nothing (of the CNN's loop
the gradients are then seen anyway). Diagnosis: right where all that is said is true, wrong where something is not.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import audit
import guarantees
import mechanisms
from audit.record.record import AuditRecord

RATE, CLIP, NOISE, EXPECTED = 0.5, 2.0, 1.0, 3
FEATURES, CLASSES = 20, 3
TRUTHS = {
    "": (),
    "no_clipping": ("bounded", "ratio", "moves_more_than_allowed", "scale_by_record"),
    "batch_clipped": ("bounded", "ratio", "direction", "batches", "moves_more_than_allowed", "scale_by_record"),
    "microbatches_clipped": ("bounded", "ratio", "direction", "batches", "moves_more_than_allowed"),
    "clipped_per_tensor": ("ratio", "direction", "moves_more_than_allowed"),
    "clipped_per_coordinate": ("ratio", "direction", "moves_more_than_allowed"),
    "half_noise": ("ratio", "moves_more_than_allowed"),
    "deviation_as_variance": ("ratio", "moves_more_than_allowed"),
    "noise_without_clip": ("ratio", "moves_more_than_allowed"),
    "bias_without_noise": ("bare", "silent", "moves_more_than_allowed"),
    "noise_reused_across_tensors": ("shared", "moves_more_than_allowed"),
    "constant_noise": ("repeated", "silent", "bare", "moves_more_than_allowed"),
    "divided_by_realised_batch": ("scale_by_trial", "scale_by_record", "moves_more_than_allowed"),
    "fixed_size_batch": ("batches", "rate", "moves_more_than_allowed"),
}
"""Bugs, and the questions whose answer may truly be 'wrong'."""


def sampled(rng: np.random.Generator, records: int, bug: str) -> np.ndarray:
    """Places of the records in the batch."""
    if bug == "fixed_size_batch":
        return rng.choice(records, min(EXPECTED, records), replace=False)
    return np.flatnonzero(rng.random(records) < RATE)


def released(rows: list[np.ndarray], rng: np.random.Generator, bug: str) -> list[np.ndarray]:
    """A noisy mean of clipped per-example gradients, tensor by tensor."""
    sizes = [math.prod(part.shape[1:]) for part in rows]
    flat = np.concatenate([part.reshape(len(part), size) for part, size in zip(rows, sizes, strict=True)], axis=1)
    total = clipped_sum(flat, sizes, bug)
    noise = noise_for(sizes, rng, bug)
    divisor = max(len(flat), 1) if bug == "divided_by_realised_batch" else EXPECTED
    parts = np.split((total + noise) / divisor, np.cumsum(sizes)[:-1])
    return [part.reshape(own.shape[1:]).astype(np.float32) for part, own in zip(parts, rows, strict=True)]


def clipped(rows: np.ndarray) -> np.ndarray:
    """Rows no longer than the bound."""
    return rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True) / CLIP)


def clipped_sum(rows: np.ndarray, sizes: list[int], bug: str) -> np.ndarray:
    """The sum over the batch, or what a bug makes of it."""
    if not len(rows):
        return np.zeros(rows.shape[1])
    if bug == "no_clipping":
        return rows.sum(0)
    if bug == "batch_clipped":
        return EXPECTED * clipped(rows.mean(0, keepdims=True))[0]
    if bug == "microbatches_clipped":
        pairs = [rows[first : first + 2].sum(0) for first in range(0, len(rows), 2)]
        return 2 * clipped(np.stack(pairs) / 2).sum(0)
    if bug == "clipped_per_tensor":
        return np.concatenate([clipped(part).sum(0) for part in np.split(rows, np.cumsum(sizes)[:-1], axis=1)])
    if bug == "clipped_per_coordinate":
        return np.clip(rows, -CLIP, CLIP).sum(0)
    return clipped(rows).sum(0)


def noise_for(sizes: list[int], rng: np.random.Generator, bug: str) -> np.ndarray:
    """Normal noise, or what a bug makes of it."""
    deviation = NOISE * CLIP
    deviation = {
        "half_noise": deviation / 2,
        "deviation_as_variance": deviation**0.5,
        "noise_without_clip": NOISE,
    }.get(bug, deviation)
    if bug == "constant_noise":
        rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(size) for size in sizes]
    if bug == "noise_reused_across_tensors":
        drawn = [np.resize(max(drawn, key=len), size) for size in sizes]
    if bug == "bias_without_noise":
        drawn[-1] = np.zeros(sizes[-1])
    return deviation * np.concatenate(drawn)


def softmax_rows(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Per-example gradients of a softmax regression at weights zero."""
    off = np.full((len(data["y"]), CLASSES), 1 / CLASSES) - np.eye(CLASSES)[data["y"]]
    return {"weights": off[:, :, None] * data["x"][:, None, :], "bias": off}


def softmax_step(seed: int, data: dict[str, np.ndarray], *, bug: str) -> dict[str, np.ndarray]:
    """One step in NumPy."""
    rng = np.random.default_rng(seed)
    rows = softmax_rows(data)
    taken = sampled(rng, len(data["y"]), bug)
    return dict(zip(rows, released([part[taken] for part in rows.values()], rng, bug), strict=True))


def softmax(bug: str, *, told: bool) -> tuple[Any, Any]:
    """The step and its pair."""
    rng = np.random.default_rng(7)
    data = {"x": rng.normal(size=(5, FEATURES)).astype(np.float32), "y": np.arange(5) % CLASSES}
    pair = mechanisms.add_record(data, {"x": 6 * rng.normal(size=FEATURES).astype(np.float32), "y": np.int64(1)})
    more = {"clip": CLIP, "noise_multiplier": NOISE, "gradients": softmax_rows} if told else {}
    return mechanisms.callable_step(functools.partial(softmax_step, bug=bug), **more), pair


def cnn(bug: str, *, told: bool) -> tuple[Any, Any]:
    """The training and its pair."""
    import torch
    from torch import nn
    from torch.func import functional_call, grad, vmap
    from torch.nn.functional import cross_entropy

    def build() -> Any:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(32, CLASSES))

    def train(data: Any, seed: int) -> Any:
        rng = np.random.default_rng(seed)
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        weights = {name: p.detach() for name, p in model.named_parameters()}
        taken = sampled(rng, len(data), bug)
        images, labels = (tensor[taken] for tensor in data.tensors)

        def loss(at: dict[str, Any], image: Any, label: Any) -> Any:
            return cross_entropy(functional_call(model, at, (image[None],)), label[None])

        rows = [np.zeros((0, *p.shape), np.float32) for p in model.parameters()]
        if len(images):
            rows = [part.numpy() for part in vmap(grad(loss), in_dims=(None, 0, 0))(weights, images, labels).values()]
        for p, part in zip(model.parameters(), released(rows, rng, bug), strict=True):
            p.grad = torch.from_numpy(part)
        optimizer.step()
        return model

    generator = torch.Generator().manual_seed(7)
    images = torch.randn(5, 1, 6, 6, generator=generator)
    data = torch.utils.data.TensorDataset(3 * images, torch.arange(5) % CLASSES)
    odd = torch.utils.data.TensorDataset(30 * torch.randn(30, 1, 6, 6, generator=generator), torch.arange(30) % CLASSES)
    pair = mechanisms.worst_record(build(), cross_entropy, data, odd, clip=CLIP).pair
    more: dict[str, Any] = {"clip": CLIP, "noise_multiplier": NOISE, "loss": cross_entropy} if told else {}
    return mechanisms.torch_training(train, **more), pair


MODELS: dict[str, Callable[..., tuple[Any, Any]]] = {"softmax": softmax, "cnn": cnn}


def diagnosis(record: AuditRecord, bug: str) -> str:
    """Whether what looks wrong is wrong."""
    said = {answer.code for answer in record.diagnoses if answer.wrong and not answer.follows and not answer.lines}
    return "nothing" if not said else "right" if said <= set(TRUTHS[bug]) else f"wrong: {', '.join(sorted(said))}"


def main() -> None:
    """Print one row a bug, model and state of knowledge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=[*MODELS], choices=[*MODELS])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--only", nargs="+", default=[*TRUTHS])
    parser.add_argument("--told", nargs="+", default=["yes", "no"], choices=["yes", "no"])
    arguments = parser.parse_args()
    claim = guarantees.subsampled_gaussian(rate=RATE, noise_multiplier=NOISE)
    print("| model | bug | told | found | p-value | diagnosis | trials | seconds |\n|---|---|---|---|---|---|---|---|")
    for model in arguments.models:
        for bug in arguments.only:
            for told in (word == "yes" for word in arguments.told):
                began = time.monotonic()
                step, pair = MODELS[model](bug, told=told)
                record = audit.run_audit(
                    step, pair, claim=claim, trials=arguments.trials, risk=0.05, key=jax.random.key(1)
                )
                found = "yes" if record.verdict == "violation" else "no"
                says = diagnosis(record, bug) if found == "yes" else "-"
                cells = [model, bug or "(none)", "yes" if told else "no", found, f"{record.p_value:.1g}", says]
                spent = [f"{record.trials + record.fit_trials:,}", f"{time.monotonic() - began:.0f}"]
                print(f"| {' | '.join([*cells, *spent])} |", flush=True)


if __name__ == "__main__":
    main()
