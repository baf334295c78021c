"""Per-example gradients of a user's PyTorch training, of every weight at its initial value."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
from typing import Any

import jax
import numpy as np

from guarantees.checks import require
from mechanisms.adapters.pytorch.replay.stacks import told
from mechanisms.adapters.pytorch.watch import Watch
from mechanisms.networks.torch_gradients import loss_gradients
from mechanisms.pairs.datasets import is_torch_dataset, records_of
from mechanisms.pairs.gradient_pairs import GradientsError

MOST_EMPTY = 100
"""Runs after which a record that no batch held is given up."""
MOST_RECORDS = 256
"""Records above which their gradients are not worked out, one run each."""

Run = Callable[[Watch, Any], None]
"""Trains once on a dataset while somebody watches."""


class AloneError(ValueError):
    """Code that fails on a dataset of one record."""


def gradients_by_loss(run: Run, loss: Callable[..., Any], dataset: Any, *, name: str) -> dict[str, np.ndarray]:
    """By torch.func, of the model that the training calls, at its initial weights."""
    watch = Watch(seed=0, steps=math.inf, until_called=True)
    run(watch, dataset)
    model = getattr(watch.model, "_module", watch.model)
    if model is None:
        raise GradientsError(f"loss= of {name!r} needs a module that the training calls; it calls none.")
    try:
        found = loss_gradients(_without_opacus(copy.deepcopy(model)), loss, dataset)
    except Exception as error:
        raise GradientsError(
            f"loss= of {name!r}: {str(error).rstrip('.')}. It is called as loss(outputs, target) where records are "
            "pairs (inputs, target), else as loss(model, batch), with a batch of one record."
        ) from error
    names, parameters = watch.trained
    own = {id(p): weight for weight, p in model.named_parameters()}
    records = len(next(iter(found.values())))
    return {
        weight: found[own[id(p)]] if id(p) in own else np.zeros((records, *p.shape), np.float32)
        for weight, p in zip(names, parameters, strict=True)
    }


def _without_opacus(model: Any) -> Any:
    """Opacus's hooks count the calls of every parameter, and torch.func's stand-ins for parameters have no counter."""
    for module in model.modules():
        for hooks in (module._forward_hooks, module._backward_hooks):
            for place, hook in list(hooks.items()):
                owner = getattr(getattr(hook, "func", hook), "__self__", None)
                if type(owner).__module__.partition(".")[0] == "opacus":
                    del hooks[place]
    return model


def gradients_by_runs(run: Run, dataset: Any, *, name: str) -> dict[str, np.ndarray]:
    """Each from a run on a dataset of that one record."""
    records = records_of(dataset)
    good = records is not None and records <= MOST_RECORDS
    require("dataset", good, f"of a known number of records, at most {MOST_RECORDS}, for their gradients", records)
    try:
        rows = [_sample(run, one_record(dataset, index), name=name) for index in range(records or 0)]
        again = _sample(run, one_record(dataset, 0), name=name, first_seed=MOST_EMPTY)
    except AloneError as error:
        _refuse_broken(run, dataset, name=name)
        raise ValueError(str(error)) from error.__cause__
    if not all(np.allclose(rows[0][weight], again[weight], rtol=1e-3, atol=1e-6) for weight in again):
        raise ValueError(f"the gradients of {name} change from trial to trial (dropout, augmentation).")
    return {weight: np.stack([row[weight] for row in rows]) for weight in rows[0]}


def _sample(run: Run, dataset: Any, *, name: str, first_seed: int = 0) -> dict[str, np.ndarray]:
    """The gradient of the one record, from the first run whose batch holds it."""
    zero: dict[str, np.ndarray] | None = None
    for seed in range(first_seed, first_seed + MOST_EMPTY):
        watch = Watch(seed=seed, steps=1, samples=True)
        try:
            run(watch, dataset)
        except Exception as error:
            raise AloneError(f"{name} does not run on one record alone: {error}") from error
        if watch.first_gradient is not None:
            row = dict(zip(watch.trained[0], watch.first_gradient, strict=True))
            # an empty batch has a loss, too: 0, or NaN where it is a mean
            if all(np.isfinite(part).all() for part in row.values()):
                if any(part.any() for part in row.values()):
                    return row
                zero = row
        elif watch.samples is not None:
            if all(len(sample) for sample in watch.samples):
                return {weight: own[0] for weight, own in zip(watch.names, watch.samples, strict=True)}
        elif watch.model is not None:
            break
    if zero is not None:
        return zero
    raise ValueError(f"{name} does not say what its per-example gradients are.")


def _refuse_broken(run: Run, dataset: Any, *, name: str) -> None:
    """Say so where the code fails on the whole dataset, too: its own error, with its last line."""
    try:
        run(Watch(seed=0, steps=1, samples=True), dataset)
    except Exception as error:
        frames = [frame for frame in extract_tb(error.__traceback__) if told(frame.filename)]
        # where the code itself is installed there is no other line
        own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
        where = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in own[-1:])
        raise ValueError(f"{name} raises an error on every dataset: {type(error).__name__}: {error}{where}") from None


def one_record(dataset: Any, index: int) -> Any:
    """The dataset that holds one record of another and has its type, where that can be built."""
    from torch.utils.data import Subset, TensorDataset

    if isinstance(dataset, TensorDataset):
        return TensorDataset(*(tensor[index : index + 1] for tensor in dataset.tensors))
    if is_torch_dataset(dataset):
        return Subset(dataset, [index])
    if isinstance(dataset, list):
        return dataset[index : index + 1]
    return jax.tree.map(lambda column: column[index : index + 1], dataset)
