"""Gradients that are zero but for rounding: what a record adds to them mixes no records."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from audit.diagnosis.explain import explain
from mechanisms import Neighbours, callable_step

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")
from torch.func import grad, vmap  # noqa: E402

CLIP, NOISE, CHANNELS, PIXELS = 0.5, 1.0, 4, 36


def explained(step, *, weight=1.0, records=8):
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(records + 1, CHANNELS, PIXELS)), dtype=torch.float32)
    weights = torch.tensor([1.0] * records + [weight])
    sides = ((x[:n], weights[:n]) for n in (records, records + 1))
    pair = Neighbours(**dict(zip(("without", "with_record"), sides, strict=True)), relation="add_remove")
    return explain(callable_step(step), pair, key=jax.random.key(3), noise_multiplier=NOISE, clip=CLIP)


def loss(params, x, weight):
    shifted = x * params["scale"][:, None] + params["bias"][:, None]
    normal = torch.nn.functional.group_norm(shifted[None], CHANNELS)
    return weight * torch.logsumexp((torch.relu(normal) * params["last"]).mean((0, 2)), 0)


def gradients(x, weight):
    """Those of the bias cancel in the normalisation of each channel."""
    start = {"scale": (CHANNELS,), "bias": (CHANNELS,), "last": (CHANNELS, PIXELS)}
    params = {name: torch.linspace(-1, 2, int(np.prod(shape))).reshape(shape) for name, shape in start.items()}
    return vmap(grad(loss), (None, 0, 0))(params, x, weight)


def released(rows):
    lengths = torch.stack([row.flatten(1).norm(dim=1) for row in rows.values()]).norm(dim=0)
    by = (CLIP / lengths.clamp(min=1e-12)).clamp(max=1.0)
    sums = {name: torch.einsum("n,n...->...", by, row) for name, row in rows.items()}
    return {name: own + CLIP * NOISE * torch.randn_like(own) for name, own in sums.items()}


def batch(seed, data):
    torch.manual_seed(seed)
    taken = torch.rand(len(data[0])) < 0.5
    return data[0][taken], data[1][taken]


def bias_before_normalisation(seed, data):
    return released(gradients(*batch(seed, data)))


def rounded_by_the_batch(seed, data):
    """As convolutions round, whose order of sums depends on the batch."""
    x, weight = batch(seed, data)
    rows = gradients(x, weight)
    rows["bias"] = 1e-7 * weight[:, None] * torch.cos(x.sum() * torch.arange(CHANNELS))
    return released(rows)


@pytest.mark.few(1)
@pytest.mark.parametrize("weight", [1.0, 1e-3])
def test_rounding_of_terms_that_cancel_mixes_no_records(weight):
    for step in (bias_before_normalisation, rounded_by_the_batch):
        assert not explained(step, weight=weight).findings


def normalised_by_the_batch(seed, data):
    x, weight = batch(seed, data)
    rows = gradients(x, weight)
    # a tensor that the record moves a thousand times less than the others
    means = x.mean(2)
    rows["bias"] = means / means.std(0) / 1e4
    return released(rows)


def test_mixing_in_a_tensor_that_moves_little_is_found():
    first = explained(normalised_by_the_batch).findings[0]
    assert first.kind == "records_mixed_before_sum"
