"""A transformer with LoRA layers, tuned privately once, and what this one training proves of its epsilon.

    python examples/lora_jax.py [--size large] [--epsilon 4 8] [--canaries 1000 10000] [--seeds 1] [--by jax_privacy]
                                [--text 1000] [--divided 4]

The large model has 17 million weights and wants a GPU; the small one takes a minute on two cores. The text is made
here: a chain of tokens for pretraining, another for the private part. Canaries are records whose loss is one LoRA
weight, so the same code takes, clips and sums their gradients; every update is seen. ``--text`` replaces them by lines
of random tokens, whose gradients overlap: weaker. ``--divided`` divides the noise, a training that breaks its claim.
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from scipy.optimize import brentq

import audit
import guarantees

RATE, STEPS, CLIP, LENGTH, DELTA = 1 / 16, 256, 1.0, 10.0, 1e-5
CHUNK = 256
"""Canaries whose gradients are held at once."""


class Size(NamedTuple):
    """Of a model and of its data."""

    width: int
    layers: int
    heads: int
    tokens: int
    length: int
    rank: int
    records: int
    pretraining: int


SIZES = {
    "large": Size(384, 8, 6, 8192, 64, 8, 4096, 600),
    "small": Size(32, 2, 2, 64, 16, 8, 512, 100),
}


def shapes(size):
    """Inputs and outputs of the matrices of one layer."""
    near, far = (size.width, size.width), (size.width, 4 * size.width)
    return {"query": near, "key": near, "value": near, "out": near, "up": far, "down": far[::-1]}


def base_weights(key, size):
    """Random weights before pretraining."""
    keys = iter(jax.random.split(key, 2 + 6 * size.layers))
    layers = [
        {name: jax.random.normal(next(keys), form) / form[0] ** 0.5 for name, form in shapes(size).items()}
        for _ in range(size.layers)
    ]
    tokens, places = ((size.tokens, size.width), (size.length, size.width))
    return {
        "tokens": jax.random.normal(next(keys), tokens) * 0.02,
        "places": jax.random.normal(next(keys), places) * 0.02,
        "layers": layers,
    }


def lora_weights(key, size):
    """Two thin matrices for each matrix of the model; their product starts at zero."""
    keys = iter(jax.random.split(key, 6 * size.layers))
    return [
        {
            name: {
                "a": jax.random.normal(next(keys), (form[0], size.rank)) / form[0] ** 0.5,
                "b": jnp.zeros((size.rank, form[1])),
            }
            for name, form in shapes(size).items()
        }
        for _ in range(size.layers)
    ]


def normed(x):
    """Layer normalisation without weights."""
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def text_loss(size, base, lora, text):
    """Mean loss of the next token of one line, times its weight; without ``lora`` that of the base model."""
    line = text["line"]
    x = base["tokens"][line[:-1]] + base["places"][: len(line) - 1]
    seen = jnp.tril(jnp.ones((len(x), len(x)), bool))
    for number, layer in enumerate(base["layers"]):

        def times(x, name, layer=layer, own=lora and lora[number]):
            found = x @ layer[name]
            return found + (x @ own[name]["a"]) @ own[name]["b"] if own else found

        inner = normed(x)
        query, key, value = (times(inner, name).reshape(len(x), size.heads, -1) for name in ("query", "key", "value"))
        weights = jnp.einsum("ihd,jhd->hij", query, key) / query.shape[-1] ** 0.5
        weights = jax.nn.softmax(jnp.where(seen, weights, -1e9))
        x = x + times(jnp.einsum("hij,jhd->ihd", weights, value).reshape(x.shape), "out")
        x = x + times(jax.nn.gelu(times(normed(x), "up")), "down")
    logits = normed(x) @ base["tokens"].T
    return text["weight"] * optax.softmax_cross_entropy_with_integer_labels(logits, line[1:]).mean()


def canary_loss(lora, canary):
    """One LoRA weight, times a length above the clipping norm: its gradient is that coordinate."""
    return canary["weight"] * LENGTH * ravel_pytree(lora)[0][canary["coordinate"]]


def made_text(rng, size, lines, chain):
    """Lines of tokens, each followed by one of four; ``chain`` draws which."""
    followers = np.random.default_rng(chain).integers(0, size.tokens, (size.tokens, 4))
    found = [rng.integers(0, size.tokens, lines)]
    for _ in range(size.length - 1):
        found.append(followers[found[-1], rng.integers(0, 4, lines)])
    return np.stack(found, axis=1)


def pretrained(size, steps):
    """A base model that knows one chain of tokens; nothing private is in it."""
    rng, adam = np.random.default_rng(0), optax.adam(1e-3)
    base = base_weights(jax.random.key(0), size)

    @jax.jit
    def step(base, moments, lines):
        texts = {"line": lines, "weight": jnp.ones(len(lines))}
        mean = lambda base: jax.vmap(lambda text: text_loss(size, base, None, text))(texts).mean()  # noqa: E731
        change, moments = adam.update(jax.grad(mean)(base), moments)
        return optax.apply_updates(base, change), moments

    moments = adam.init(base)
    for _ in range(steps):
        base, moments = step(base, moments, made_text(rng, size, 256, chain=1))
    return base


def own_sum(loss):
    """Sum of clipped gradients of a batch, written out."""

    def clipped(lora, batch):
        gradients = jax.vmap(lambda record: ravel_pytree(jax.grad(loss)(lora, record))[0])(batch)
        norms = jnp.linalg.norm(gradients, axis=1)
        return (CLIP / jnp.maximum(CLIP, norms)) @ gradients

    return jax.jit(clipped)


def jax_privacy_sum(loss):
    """The same by JAX Privacy."""
    import jax_privacy

    taken = jax_privacy.clipped_grad(loss, l2_clip_norm=CLIP, keep_batch_dim=False)
    return jax.jit(lambda lora, batch: ravel_pytree(taken(lora, batch))[0])


SUMS = {"own": own_sum, "jax_privacy": jax_privacy_sum}


def own_noise(key, noise_multiplier, size):
    """Noise of one step."""
    return noise_multiplier * CLIP * jax.random.normal(key, (size,))


def jax_privacy_noise(key, noise_multiplier, size):
    """The same by JAX Privacy's privatizer."""
    from jax_privacy import noise_addition

    privatizer = noise_addition.gaussian_privatizer(stddev=noise_multiplier * CLIP, prng_key=key)
    return privatizer.update(jnp.zeros(size), privatizer.init(jnp.zeros(size)))[0]


NOISES = {"own": own_noise, "jax_privacy": jax_privacy_noise}


def padded(columns, size):
    """A batch of one shape: records of weight 0 follow."""
    count = len(next(iter(columns.values())))
    if count > size:
        raise ValueError(f"a batch of {count} records; make room for more than {size}.")
    filled = {name: np.zeros((size, *column.shape[1:]), column.dtype) for name, column in columns.items()}
    for name, column in columns.items():
        filled[name][:count] = column
    return filled | {"weight": (np.arange(size) < count).astype(np.float32)}


class Tuning:
    """A private LoRA training whose every update is seen."""

    def __init__(self, size, *, by="own", base=None):
        self.size, self.noise = size, NOISES[by]
        self.base = pretrained(size, size.pretraining) if base is None else base
        self.loss = functools.partial(text_loss, size, self.base)
        self.sums = {"line": SUMS[by](self.loss), "coordinate": SUMS[by](canary_loss)}
        self.start = lora_weights(jax.random.key(1), size)
        flat, self.unflat = ravel_pytree(self.start)
        self.weights = len(flat)
        of_line = lambda lora, line: self.loss(lora, {"line": line, "weight": 1.0})  # noqa: E731
        self.losses = jax.jit(jax.vmap(of_line, in_axes=(None, 0)))

    def steps(self, lines, joining, *, seed, noise_multiplier):
        """Yield the weights before each step, the sum of the lines' gradients in it, and its noisy sum.

        ``joining`` yields the canaries that join: {"coordinate": ...} or {"line": ...}.
        """
        rng, key, adam = np.random.default_rng((seed, 1)), jax.random.key(seed), optax.adam(1e-3)
        most = int(RATE * len(lines) + 8 * (RATE * len(lines)) ** 0.5) + 8
        expected = RATE * len(lines)
        lora, moments = self.start, adam.init(self.start)

        @jax.jit
        def step(lora, moments, noisy):
            change, moments = adam.update(self.unflat(noisy / expected), moments)
            return optax.apply_updates(lora, change), moments

        for number, canaries in enumerate(joining):
            batch = lines[rng.random(len(lines)) < RATE]
            others = self.sums["line"](lora, padded({"line": batch}, most))
            noisy = others + self.noise(jax.random.fold_in(key, number), noise_multiplier, self.weights)
            ((kind, column),) = canaries.items()
            for first in range(0, len(column), CHUNK):
                noisy += self.sums[kind](lora, padded({kind: column[first : first + CHUNK]}, CHUNK))
            yield lora, others, noisy
            lora, moments = step(lora, moments, noisy)
        self.tuned = lora


def noise_for(epsilon):
    """The noise multiplier at which the training keeps an epsilon at DELTA."""
    found = brentq(lambda noise: training_claim(noise).epsilon(DELTA) - epsilon, 0.6, 4.0, xtol=1e-3)
    return float(found) + 1e-3


@functools.cache
def training_claim(noise_multiplier):
    """What the training promises."""
    return guarantees.poisson_training(
        rate=RATE, noise_multiplier=noise_multiplier, steps=STEPS, accountant="certified"
    )


def with_canaries(tuning, lines, *, canaries, noise_multiplier, divided, seed):
    """One training with a canary in each of so many LoRA coordinates.

    The adversary of differential privacy knows all other records: their sum is taken off. It depends on the released
    updates and on records that are no canaries, so scores still do not read the coins.
    """

    def train(own):
        joining = ({"coordinate": own.coordinates[places]} for places in own.batches(STEPS))
        for _, others, noisy in tuning.steps(lines, joining, seed=seed, noise_multiplier=noise_multiplier / divided):
            yield own.seen(noisy - others)

    return audit.one_training(
        train,
        weights=tuning.weights,
        places=canaries,
        rate=RATE,
        noise_multiplier=noise_multiplier,
        delta=DELTA,
        length=LENGTH,
        clip=CLIP,
        seed=seed,
    )


@jax.jit
def joined_odds(rows, seen, variance):
    """Log odds that each canary joined a step: ``seen`` is the sum of the rows that did, plus noise.

    Gradients of text overlap, so other canaries hide one as noise would. As if joining were normal with its own mean
    and variance, all of them are estimated at once; without what was supposed of a canary itself, the estimate is what
    the step says of it. A score may be any function of what was released: where nothing is normal it is a poorer one.
    """
    mean, spread = RATE / 2, RATE / 2 * (1 - RATE / 2)
    with jax.default_matmul_precision("highest"):
        covariance = jnp.linalg.inv(rows @ rows.T / variance + jnp.eye(len(rows)) / spread)
        found = mean + covariance @ (rows @ (seen - mean * rows.sum(0))) / variance
    own = jnp.diag(covariance)
    precision = 1 / own - 1 / spread
    return found / own - mean / spread - precision / 2


def with_text(tuning, lines, *, canaries, noise_multiplier, divided, seed):
    """One training with lines of random tokens: what every update, and what the tuned model alone, says of them."""
    rng = np.random.default_rng((seed, 2))
    extra = rng.integers(0, tuning.size.tokens, (canaries, tuning.size.length))
    coins = rng.random(canaries) < 0.5
    included, noise = extra[coins], noise_multiplier / divided

    def gradient(lora, line):
        taken = ravel_pytree(jax.grad(tuning.loss)(lora, {"line": line, "weight": 1.0}))[0]
        return taken * (CLIP / jnp.maximum(CLIP, jnp.linalg.norm(taken)))

    gradients = jax.jit(lambda lora, lines: jax.lax.map(functools.partial(gradient, lora), lines, batch_size=CHUNK))
    joining = ({"line": included[rng.random(len(included)) < RATE]} for _ in range(STEPS))
    every = np.zeros(canaries)
    for lora, others, noisy in tuning.steps(lines, joining, seed=seed, noise_multiplier=noise):
        told = joined_odds(gradients(lora, extra), noisy - others, (noise_multiplier * CLIP) ** 2)
        every += np.log1p(RATE * np.expm1(np.minimum(np.asarray(told, float), 700.0)))
    last = np.asarray(tuning.losses(tuning.start, extra) - tuning.losses(tuning.tuned, extra), float)
    return [audit.one_run(scores, coins, risk=0.05, delta=DELTA) for scores in (every, last)]


def main():
    """Print a row for each training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[4.0, 8.0])
    parser.add_argument("--canaries", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--text", type=int, default=0, help="so many canaries that are text")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--by", choices=SUMS, default="own")
    parser.add_argument("--divided", type=float, default=1.0)
    options = parser.parse_args()
    size = SIZES[options.size]
    begun = time.perf_counter()
    tuning = Tuning(size, by=options.by)
    lines = made_text(np.random.default_rng(5), size, size.records, chain=2)
    held_out = made_text(np.random.default_rng(6), size, 256, chain=2)
    base = sum(leaf.size for leaf in jax.tree.leaves(tuning.base))
    before = float(tuning.losses(tuning.start, held_out).mean())
    print(
        f"{base:,} weights, {tuning.weights:,} LoRA weights, {len(lines):,} private lines, {STEPS} steps, rate "
        f"{RATE:g}, on {jax.devices()[0].device_kind}; pretrained in {time.perf_counter() - begun:.0f} s",
        flush=True,
    )
    print(
        "| claimed epsilon | noise | canaries | seed | proven | expected | no test exceeds | loss | seconds |",
        flush=True,
    )
    for epsilon in options.epsilon:
        noise = noise_for(epsilon)
        settings = {"noise_multiplier": noise, "divided": options.divided}
        for canaries in [options.text] if options.text else options.canaries:
            if canaries > tuning.weights:
                continue
            plan = audit.plan_one_run(claim=training_claim(noise), canaries=canaries, delta=DELTA)
            for seed in range(options.seeds):
                begun = time.perf_counter()
                if options.text:
                    found = with_text(tuning, lines, canaries=canaries, seed=seed, **settings)
                else:
                    found = [with_canaries(tuning, lines, canaries=canaries, seed=seed, **settings)]
                spent = time.perf_counter() - begun
                after = float(tuning.losses(tuning.tuned, held_out).mean())
                print(
                    f"| {epsilon:g} | {noise:.3f} | {canaries:,}{' of text' if options.text else ''} | {seed} | "
                    f"{' / '.join(f'{each.epsilon(DELTA):.2f}' for each in found)} | {plan.expected:.2f} | "
                    f"{plan.limit:.2f} | {before:.2f} -> {after:.2f} | {spent:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
