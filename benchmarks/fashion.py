"""A CNN of 26,010 parameters, trained with DP-SGD on Fashion-MNIST, audited in three ways, side by side.

    python benchmarks/fashion.py [audits one_run accuracy] [--source DIR/train] [--images 2000] [--trainings 1000]

Transcript: every noisy sum of a training with a gradient canary. Last iterate: only the weights at the end. One run:
one epoch with many canaries, each in by a fair coin. Then the accuracy of one epoch with the noise of [ertan2026,
theorem 6.1] and without. Without --source the 32 images that come with the package: a check that everything runs.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import audit
import distinguishers
import guarantees
import mechanisms
from mechanisms import sampling
from mechanisms.networks.for_flax import classifier, flat_network
from mechanisms.pairs.images import labelled_images
from mechanisms.randomness.noise import normal
from mechanisms.simulators.rounds import clip_rows

NET = flat_network("classifier")
RISK, DELTA, LEARNING_RATE = 0.05, 1e-5, 0.5
CHUNK = 50
"""Trainings at once: their per-example gradients are what fills the memory."""


def training(sampler, loss, *, clip, noise, batch, releases="transcript"):
    """DP-SGD from the fixed first weights, an epoch long; the noisy sums, or how far the weights have come."""
    gradient = jax.vmap(jax.grad(loss), in_axes=(None, 0))

    def step(key, dataset):
        dataset = jax.tree.map(jnp.asarray, dataset)
        records = len(jax.tree.leaves(dataset)[0])
        index, mask = sampler(jax.random.fold_in(key, 0), records)

        def take(weights, part):
            number, own, present = part
            rows = clip_rows(gradient(weights, jax.tree.map(lambda column: column[own], dataset)), clip)
            total = jnp.dot(present, rows, precision=jax.lax.Precision.HIGHEST)
            noisy = total + noise * clip * normal(jax.random.fold_in(key, number + 1), weights.shape)
            return weights - LEARNING_RATE / batch * noisy, (noisy if releases == "transcript" else None)

        start = jax.lax.optimization_barrier(jnp.asarray(NET.initial))
        weights, released = jax.lax.scan(take, start, (jnp.arange(len(index)), index, mask))
        return released if releases == "transcript" else start - weights

    step.kind = "transcript" if releases == "transcript" else "vector"
    step.releases = releases
    step.name = f"cnn_{releases}"
    step.parameters = {"sampler": sampler.name, "batch": batch}
    return mechanisms.mechanism(step, noise_multiplier=noise, clip=clip)


def once(step, data, seed):
    """What one training releases."""
    return jax.jit(lambda key, own: step(key, own))(jax.random.key(seed), data)


def samplers(records, batch):
    rounds = records // batch
    return (
        ("shuffled", sampling.shuffle(batch_size=batch), rounds),
        ("Poisson", sampling.poisson(rate=batch / records, steps=rounds), rounds),
    )


def canary_audits(rows, options):
    """Transcript and last iterate: many trainings each, with and without one canary."""
    canaries = mechanisms.gradient_canaries(jnp.asarray(NET.initial), length=10 * options.clip)
    pair, loss = canaries.pair(rows, others="own"), canaries.loss(NET.loss)
    direction = canaries.direction()
    setting = {"clip": options.clip, "noise": options.noise, "batch": options.batch}
    for name, sampler, rounds in samplers(len(rows), options.batch):
        claim = guarantees.poisson_training(
            rate=options.batch / len(rows),
            noise_multiplier=options.noise,
            steps=rounds,
            relation="zero_out",
            accountant="certified",
        )
        # what the others add along the canary's coordinate is small beside the noise, so the model leaves it out
        model = mechanisms.many_rounds(
            sampler=sampler, clip=options.clip, noise_multiplier=options.noise, sees="isolated"
        ).collapsed()
        flat = mechanisms.worst_case_pair(records=len(rows) - 1, dimension=1, clip=options.clip, relation="zero_out")
        ratio = distinguishers.likelihood_ratio(model, flat)

        def moved(key, output):
            """How far the weights went along the canary's direction."""
            return jnp.dot(output, direction)

        for what, score in (("transcript", distinguishers.along(ratio, direction)), ("final", moved)):
            start = time.monotonic()
            record = audit.run_audit(
                training(sampler, loss, releases=what, **setting),
                pair,
                score,
                claim=claim,
                trials=options.trainings,
                risk=RISK,
                key=jax.random.key(options.seed),
                diagnose=False,
                execution=audit.Execution(chunk=CHUNK),
            )
            yield (
                f"| {name} | {what} | {options.trainings:,} trainings | {record.epsilon(delta=DELTA):.2f} | "
                f"{claim.epsilon(DELTA):.2f} | {record.delta(epsilon=0.0):.3f} | {claim.total_variation:.3f} | "
                f"{record.verdict} | {time.monotonic() - start:.0f} |"
            )


def one_training(rows, options):
    """One epoch with many canaries, in by fair coins; their coordinates of the last weights are the scores."""
    count = options.canaries
    canaries = mechanisms.gradient_canaries(jnp.asarray(NET.initial), count=count, length=10 * options.clip)
    extra = np.repeat(rows[:1], count, axis=0)
    coins = np.random.default_rng(options.seed).random(count) < 0.5
    data = canaries.mark(
        np.concatenate([rows, extra]),
        canary=np.concatenate([np.full(len(rows), -1), np.arange(count)]),
        weight=np.concatenate([np.ones(len(rows)), coins]),
    )
    for name, sampler, rounds in samplers(len(rows) + count, options.batch):
        start = time.monotonic()
        step = training(
            sampler,
            canaries.loss(NET.loss),
            clip=options.clip,
            noise=options.noise,
            batch=options.batch,
            releases="final",
        )
        moved = np.asarray(once(step, data, options.seed))
        found = audit.one_run(moved[canaries.table], coins, risk=RISK, relation="zero_out")
        claim = guarantees.poisson_training(
            rate=options.batch / (len(rows) + count),
            noise_multiplier=options.noise,
            steps=rounds,
            relation="zero_out",
            accountant="certified",
        )
        yield (
            f"| {name} | one run | 1 training, {count:,} canaries | {found.epsilon(DELTA):.2f} | "
            f"{claim.epsilon(DELTA):.2f} | | {claim.total_variation:.3f} | not {found.mu:.2f}-GDP | "
            f"{time.monotonic() - start:.0f} |"
        )


def accuracies(rows, held_out, options):
    """One epoch under shuffling: noise at the threshold of the theorem, the audited noise, and none."""
    model = classifier()
    images, labels = held_out[:, :-1].reshape(-1, 28, 28, 1), held_out[:, -1]
    sampler = sampling.shuffle(batch_size=options.batch)
    rounds = sampler.rounds(len(rows))
    for noise in (guarantees.noise_threshold(rounds=rounds), options.noise, 0.0):
        step = training(sampler, NET.loss, clip=options.clip, noise=noise, batch=options.batch, releases="final")
        moved = once(step, rows, options.seed)
        logits = model.apply(NET.unravel(jnp.asarray(NET.initial) - moved), images)
        right = float(np.mean(np.argmax(np.asarray(logits), axis=1) == labels))
        yield f"| {rounds} | {noise:.3f} | {right:.4f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["audits", "one_run", "accuracy"])
    parser.add_argument("--source", default="fashion_mnist")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--trainings", type=int, default=1000)
    parser.add_argument("--canaries", type=int, default=1000)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--noise", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = labelled_images(options.source)
    few = rows[: options.images]
    print("| batches | seen | spent | epsilon(1e-5) >= | claimed | delta(0) >= | claimed | says | s |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    whole = rows[: max(options.images, len(rows) - 10_000)]
    for part, lines in (("audits", canary_audits(few, options)), ("one_run", one_training(whole, options))):
        for line in lines if part in options.parts else ():
            print(line, flush=True)
    if "accuracy" in options.parts:
        print("\n| rounds | noise multiplier | accuracy |\n|---|---|---|", flush=True)
        for line in accuracies(whole, rows[-min(10_000, len(rows) // 2) :], options):
            print(line, flush=True)


if __name__ == "__main__":
    main()
