"""How long a replay takes: a step of ResNet-18, and of a two-layer transformer with LoRA, in JAX and with Opacus.

Also a training of three steps of a small network, as users write it: a loop of their own in PyTorch, and in JAX.

python benchmarks/which_line_time.py [NAME ...]
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jax
import jax.numpy as jnp
import numpy as np

import mechanisms
from audit.diagnosis.explain import Explanation, explain

CLIP, NOISE, CLASSES, GROUPS = 1.0, 1.0, 10, 8
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels and strides of ResNet-18, two blocks each."""
RATE, STEPS_OF_A_TRAINING = 0.5, 3
IMAGES, TOKENS, SENTENCES, WIDTH, RANK, HEADS, VOCABULARY = 8, 32, 200, 256, 8, 4, 1000


def noisy_sum(key: jax.Array, loss: Callable[..., Any], weights: Any, data: tuple[jax.Array, jax.Array]) -> Any:
    """DP-SGD's update on the whole dataset."""

    def clipped(x: jax.Array, y: jax.Array) -> Any:
        found = jax.grad(loss)(weights, x, y)
        norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(found)))
        return jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, CLIP / norm), found)

    total = jax.tree.map(lambda leaf: leaf.sum(0), jax.vmap(clipped)(*data))
    leaves, form = jax.tree.flatten(total)
    keys = jax.random.split(key, len(leaves))
    return form.unflatten(
        [leaf + NOISE * CLIP * jax.random.normal(own, leaf.shape) for leaf, own in zip(leaves, keys, strict=True)]
    )


def resnet_jax() -> Explanation:
    """ResNet-18 with group normalisation on images of 32 x 32."""

    def conv(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x[None], kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )[0]

    def norm(x: jax.Array) -> jax.Array:
        grouped = x.reshape(*x.shape[:2], GROUPS, -1)
        mean = grouped.mean((0, 1, 3), keepdims=True)
        return ((grouped - mean) / jnp.sqrt(grouped.var((0, 1, 3), keepdims=True) + 1e-5)).reshape(x.shape)

    def loss(weights: Any, image: jax.Array, label: jax.Array) -> jax.Array:
        x = jax.nn.relu(norm(conv(image, weights["stem"], 1)))
        for stride, block in weights_and_strides(weights):
            short = x if "short" not in block else conv(x, block["short"], stride)
            inner = conv(jax.nn.relu(norm(conv(x, block["first"], stride))), block["second"], 1)
            x = jax.nn.relu(norm(inner) + short)
        return -jax.nn.log_softmax(x.mean((0, 1)) @ weights["head"])[label]

    def weights_and_strides(weights: Any) -> list[tuple[int, Any]]:
        strides = [stride if first else 1 for _, stride in STAGES for first in (True, False)]
        return list(zip(strides, weights["blocks"], strict=True))

    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1])), jnp.float32)

    blocks, before = [], 64
    for channels, _ in STAGES:
        for _ in range(2):
            own = {"first": drawn(3, 3, before, channels), "second": drawn(3, 3, channels, channels)}
            blocks.append(own | ({"short": drawn(1, 1, before, channels)} if before != channels else {}))
            before = channels
    weights = {"stem": drawn(3, 3, 3, 64), "blocks": blocks, "head": drawn(512, CLASSES)}
    return replayed(lambda key, data: noisy_sum(key, loss, weights, data), images())


def lora_jax() -> Explanation:
    """Two layers of attention and a network, frozen, with adapters of a low rank on queries and values."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape) / np.sqrt(shape[0]), jnp.float32)

    names = {"q": WIDTH, "k": WIDTH, "v": WIDTH, "o": WIDTH, "up": 4 * WIDTH}
    layers = [
        {name: drawn(WIDTH, size) for name, size in names.items()} | {"down": drawn(4 * WIDTH, WIDTH)} for _ in range(2)
    ]
    embedding, head = drawn(VOCABULARY, WIDTH), drawn(WIDTH, CLASSES)
    adapters = [
        {name: (drawn(WIDTH, RANK), 0.01 * drawn(RANK, WIDTH)) for name in ("q", "v")} for _ in range(len(layers))
    ]

    def loss(own: Any, words: jax.Array, label: jax.Array) -> jax.Array:
        x = embedding[words]
        for layer, extra in zip(layers, own, strict=True):
            found = {name: x @ layer[name] for name in ("q", "k", "v")}
            found |= {name: found[name] + x @ extra[name][0] @ extra[name][1] for name in extra}
            q, k, v = (found[name].reshape(TOKENS, HEADS, -1) for name in ("q", "k", "v"))
            weight = jax.nn.softmax(jnp.einsum("ihd,jhd->hij", q, k) / np.sqrt(WIDTH / HEADS))
            x = x + jnp.einsum("hij,jhd->ihd", weight, v).reshape(TOKENS, WIDTH) @ layer["o"]
            x = x + jax.nn.gelu(x @ layer["up"]) @ layer["down"]
        return -jax.nn.log_softmax(x.mean(0) @ head)[label]

    return replayed(lambda key, data: noisy_sum(key, loss, adapters, data), sentences())


def resnet_opacus() -> Explanation:
    """ResNet-18 with group normalisation, a training of one step by Opacus."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before: int, channels: int, stride: int):
            super().__init__()
            self.inner = nn.Sequential(
                nn.Conv2d(before, channels, 3, stride, 1, bias=False),
                nn.GroupNorm(GROUPS, channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
                nn.GroupNorm(GROUPS, channels),
            )
            same = before == channels
            self.short = nn.Identity() if same else nn.Conv2d(before, channels, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.inner(x) + self.short(x))

    def network() -> Any:
        blocks, before = [], 64
        for channels, stride in STAGES:
            blocks += [Block(before, channels, stride), Block(channels, channels, 1)]
            before = channels
        return nn.Sequential(
            nn.Conv2d(3, 64, 3, 1, 1, bias=False),
            nn.GroupNorm(GROUPS, 64),
            nn.ReLU(),
            *blocks,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(512, CLASSES),
        )

    x, y = images()
    return trained_by_opacus(network, np.moveaxis(x, 3, 1), y)


def lora_opacus() -> Explanation:
    """The same transformer by Opacus: frozen layers, adapters that learn."""
    import torch
    from torch import nn

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False)
            self.down, self.up = nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            return self.frozen(x) + self.up(self.down(x))

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.v = Adapted(), Adapted()
            self.k, self.o = (nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False) for _ in range(2))
            self.wide = nn.Linear(WIDTH, 4 * WIDTH, bias=False).requires_grad_(False)
            self.narrow = nn.Linear(4 * WIDTH, WIDTH, bias=False).requires_grad_(False)

        def forward(self, x: Any) -> Any:
            q, k, v = (part(x).unflatten(2, (HEADS, -1)) for part in (self.q, self.k, self.v))
            weight = torch.softmax(torch.einsum("nihd,njhd->nhij", q, k) / np.sqrt(WIDTH / HEADS), dim=-1)
            x = x + self.o(torch.einsum("nhij,njhd->nihd", weight, v).flatten(2))
            return x + self.narrow(nn.functional.gelu(self.wide(x)))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(VOCABULARY, WIDTH).requires_grad_(False)
            self.layers = nn.Sequential(Layer(), Layer())
            self.head = nn.Linear(WIDTH, CLASSES).requires_grad_(False)

        def forward(self, words: Any) -> Any:
            return self.head(self.layers(self.words(words)).mean(1))

    return trained_by_opacus(Net, *sentences())


def trained_by_opacus(network: Callable[[], Any], x: np.ndarray, y: np.ndarray) -> Explanation:
    """One step on all records."""
    import opacus
    import torch

    def train(data: Any, seed: int) -> Any:
        del seed
        net = network()
        made: Any = opacus.PrivacyEngine().make_private(
            module=net,
            optimizer=torch.optim.SGD([own for own in net.parameters() if own.requires_grad], lr=0.1),
            data_loader=torch.utils.data.DataLoader(data, batch_size=len(data)),
            noise_multiplier=NOISE,
            max_grad_norm=CLIP,
            loss_reduction="sum",
        )
        net, optimizer, loader = made
        for inputs, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(inputs), labels, reduction="sum").backward()
            optimizer.step()
        return net

    sides = [torch.utils.data.TensorDataset(torch.tensor(x[:n]), torch.tensor(y[:n])) for n in (len(y) - 1, len(y))]
    pair = mechanisms.Neighbours(without=sides[0], with_record=sides[1], relation="add_remove")
    training = mechanisms.torch_training(train, releases="final")
    return explain(training, pair, key=jax.random.key(0), noise_multiplier=NOISE)


def training_torch() -> Explanation:
    """A small CNN with gradients by ``vmap`` and Poisson batches, in a loop without Opacus."""
    import torch
    from torch import nn

    def train(data: Any, seed: int) -> Any:
        del seed
        net = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(128, CLASSES)
        )
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        xs, ys = data.tensors

        def loss(weights: Any, x: Any, y: Any) -> Any:
            return nn.functional.cross_entropy(torch.func.functional_call(net, weights, (x[None],)), y[None])

        for _ in range(STEPS_OF_A_TRAINING):
            taken = torch.rand(len(xs)) < RATE
            weights = {name: own.detach() for name, own in net.named_parameters()}
            found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weights, xs[taken], ys[taken])
            norms = torch.stack([part.flatten(1).norm(dim=1) for part in found.values()]).norm(dim=0)
            for name, own in net.named_parameters():
                total = torch.einsum("n,n...->...", (CLIP / norms).clamp(max=1.0), found[name])
                own.grad = total + NOISE * CLIP * torch.randn_like(total)
            optimizer.step()
        return net

    x, y = small_images()
    sides = [torch.utils.data.TensorDataset(torch.tensor(x[:n]), torch.tensor(y[:n])) for n in (len(y) - 1, len(y))]
    pair = mechanisms.Neighbours(without=sides[0], with_record=sides[1], relation="add_remove")
    training = mechanisms.torch_training(train, releases="transcript")
    return explain(training, pair, key=jax.random.key(0), clip=CLIP, noise_multiplier=NOISE)


def training_jax() -> Explanation:
    """A network of two layers by ``jax_training``, Poisson batches."""
    x, y = small_images()
    x = x.reshape(len(x), -1)
    rng = np.random.default_rng(0)
    start = {
        name: jnp.asarray(rng.normal(size=shape) / np.sqrt(shape[0]), jnp.float32)
        for name, shape in {"first": (x.shape[1], 16), "second": (16, CLASSES)}.items()
    }

    def loss(weights: Any, image: jax.Array, label: jax.Array) -> jax.Array:
        return -jax.nn.log_softmax(jnp.tanh(image @ weights["first"]) @ weights["second"])[label]

    def update(key: jax.Array, weights: Any, batch: Any, mask: jax.Array) -> Any:
        masked = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(weights, *batch)
        norms = jnp.sqrt(sum(jnp.sum(leaf**2, axis=(1, 2)) for leaf in jax.tree.leaves(masked)))
        factors = mask * jnp.minimum(1.0, CLIP / norms)
        keys = dict(zip(weights, jax.random.split(key), strict=True))
        noisy = {
            name: jnp.tensordot(factors, leaf, 1) + NOISE * CLIP * jax.random.normal(keys[name], leaf.shape[1:])
            for name, leaf in masked.items()
        }
        return jax.tree.map(lambda own, step: own - 0.1 * step, weights, noisy), noisy

    pair = mechanisms.pair((x[:-1], y[:-1]), (x, y), relation="add_remove")
    training = mechanisms.jax_training(
        lambda key: start,
        update,
        lambda key, records: jax.random.bernoulli(key, RATE, (records,)),
        steps=STEPS_OF_A_TRAINING,
    )
    return explain(training, pair, key=jax.random.key(0), clip=CLIP, noise_multiplier=NOISE)


def small_images() -> tuple[np.ndarray, np.ndarray]:
    """One channel, 16 x 16."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(25, 1, 16, 16)).astype(np.float32), rng.integers(0, CLASSES, 25)


def images() -> tuple[np.ndarray, np.ndarray]:
    """Noise of the size of CIFAR's images."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(IMAGES, 32, 32, 3)).astype(np.float32), rng.integers(0, CLASSES, IMAGES)


def sentences() -> tuple[np.ndarray, np.ndarray]:
    """Words by their numbers."""
    rng = np.random.default_rng(1)
    return rng.integers(0, VOCABULARY, (SENTENCES, TOKENS)), rng.integers(0, CLASSES, SENTENCES)


def replayed(step: Any, data: tuple[np.ndarray, np.ndarray]) -> Explanation:
    """With and without the last record."""
    x, y = data
    pair = mechanisms.pair((x[:-1], y[:-1]), (x, y), relation="add_remove")
    return explain(step, pair, key=jax.random.key(0), clip=CLIP, noise_multiplier=NOISE)


STEPS: dict[str, tuple[Callable[[], Explanation], str]] = {
    "ResNet-18, JAX": (resnet_jax, f"{IMAGES} images"),
    "ResNet-18, Opacus": (resnet_opacus, f"{IMAGES} images"),
    "two-layer transformer with LoRA, JAX": (lora_jax, f"{SENTENCES} sentences"),
    "two-layer transformer with LoRA, Opacus": (lora_opacus, f"{SENTENCES} sentences"),
    "training of three steps, own loop in PyTorch": (training_torch, "25 images"),
    "training of three steps, jax_training": (training_jax, "25 images"),
}


def main(names: list[str]) -> None:
    """Print a row for every step, or for those that are named."""
    print("| step | records | found | CPU seconds | seconds | peak memory |\n|---|---|---|---:|---:|---:|")
    for name, (run, records) in STEPS.items():
        if names and not any(part in name for part in names):
            continue
        began, clock = time.process_time(), time.monotonic()
        told = run()
        found = ", ".join(one.says for one in told.findings) or "nothing"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"| {name} | {records} | {found} | {time.process_time() - began:.1f} | {time.monotonic() - clock:.0f} | "
            f"{peak:.1f} GiB |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
