"""A small transformer with LoRA layers, tuned once by Opacus, and what this one training proves of its epsilon.

    python examples/lora_opacus.py [--canaries 4000] [--epsilon 8] [--divided 4] [--stale]

The same audit as examples/lora_jax.py, with Opacus's hooks, clipping and noise, small enough for two cores; the base is
not pretrained. Canaries are virtual steps of one LoRA coordinate each, as Opacus splits large batches. ``--stale``
tunes a copy of the model, so that nothing reaches the weights that the user keeps: what Opacus's issue 820 describes.
"""

from __future__ import annotations

import argparse
import copy

import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from scipy.optimize import brentq
from torch import nn

import audit
import guarantees

WIDTH, HEADS, LAYERS, TOKENS, LENGTH, RANK = 32, 2, 2, 64, 16, 8
RECORDS, RATE, STEPS, CLIP, DELTA, LEARNING = 512, 1 / 16, 64, 1.0, 1e-5, 0.5
EXPECTED = RECORDS * RATE


class Lora(nn.Module):
    """A frozen matrix and two thin ones, whose product starts at zero."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False).requires_grad_(False)
        self.a, self.b = nn.Linear(inputs, RANK, bias=False), nn.Linear(RANK, outputs, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        """The sum of both."""
        return self.base(x) + self.b(self.a(x))


class Layer(nn.Module):
    """Attention and two matrices."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (Lora(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = Lora(WIDTH, 4 * WIDTH), Lora(4 * WIDTH, WIDTH)

    def forward(self, x):
        """One layer."""
        inner = nn.functional.layer_norm(x, (WIDTH,))
        query, key, value = (
            own(inner).unflatten(-1, (HEADS, -1)).transpose(1, 2) for own in (self.query, self.key, self.value)
        )
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(nn.functional.layer_norm(x, (WIDTH,)))))


class Transformer(nn.Module):
    """Frozen but for its LoRA layers."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH).requires_grad_(False)
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH), requires_grad=False)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, lines):
        """Logits of the next token."""
        x = self.tokens(lines) + self.places[: lines.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return nn.functional.layer_norm(x, (WIDTH,)) @ self.tokens.weight.T


def lora_weights(model):
    """What is tuned."""
    return [own for own in model.parameters() if own.requires_grad]


def made_lines(chain):
    """Lines of tokens, each followed by one of four."""
    draws = torch.Generator().manual_seed(chain)
    followers = torch.randint(TOKENS, (TOKENS, 4), generator=draws)
    lines = [torch.randint(TOKENS, (RECORDS,), generator=draws)]
    for _ in range(LENGTH - 1):
        lines.append(followers[lines[-1], torch.randint(4, (RECORDS,), generator=draws)])
    return torch.stack(lines, 1)


def tuning(model, lines, *, noise_multiplier, stale=False):
    """A training for ``audit.one_training``: every step shows how far it moved the weights of the user's model."""

    def train(canaries):
        held = GradSampleModule(copy.deepcopy(model) if stale else model)
        weights = lora_weights(held)
        sgd = torch.optim.SGD(weights, lr=LEARNING)
        optimizer = DPOptimizer(
            sgd, noise_multiplier=noise_multiplier, max_grad_norm=CLIP, expected_batch_size=EXPECTED
        )
        for joining in canaries.batches(STEPS):
            for rows in canaries.rows(joining):
                pieces = torch.from_numpy(rows).split([own.numel() for own in weights], dim=1)
                for own, piece in zip(weights, pieces, strict=True):
                    own.grad_sample = piece.reshape(-1, *own.shape)
                optimizer.signal_skip_step(do_skip=True)
                optimizer.step()
                optimizer.zero_grad()
            batch = lines[torch.rand(len(lines)) < RATE]
            logits = held(batch[:, :-1])
            nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
            before = [own.detach().clone() for own in lora_weights(model)]
            optimizer.signal_skip_step(do_skip=False)
            optimizer.step()
            optimizer.zero_grad()
            scale = EXPECTED / LEARNING
            yield canaries.seen([(old - new) * scale for old, new in zip(before, lora_weights(model), strict=True)])

    return train


def training_claim(noise_multiplier):
    """What the training promises."""
    return guarantees.poisson_training(
        rate=RATE, noise_multiplier=noise_multiplier, steps=STEPS, accountant="certified"
    )


def main(words=None):
    """Tune once and print what it proves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--canaries", type=int, default=4000)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--divided", type=float, default=1.0)
    parser.add_argument("--stale", action="store_true")
    options = parser.parse_args(words)
    torch.manual_seed(0)
    model, lines = Transformer(), made_lines(2)
    noise = float(brentq(lambda noise: training_claim(noise).epsilon(DELTA) - options.epsilon, 0.4, 3.0, xtol=1e-3))
    size = sum(own.numel() for own in lora_weights(model))
    found = audit.one_training(
        tuning(model, lines, noise_multiplier=noise / options.divided, stale=options.stale),
        weights=size,
        places=options.canaries,
        rate=RATE,
        clip=CLIP,
        noise_multiplier=noise,
        delta=DELTA,
    )
    plan = audit.plan_one_run(claim=training_claim(noise), canaries=options.canaries, delta=DELTA)
    print(
        f"{size:,} LoRA weights, {options.canaries:,} canaries, noise {noise:.2f}: claimed {options.epsilon:g}, "
        f"proven {found.epsilon(DELTA):.2f}, expected {plan.expected:.2f}, no test exceeds {plan.limit:.2f}"
    )


if __name__ == "__main__":
    main()
