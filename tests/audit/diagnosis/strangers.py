"""Five training steps as a stranger to the replay's rules wrote them: plain JAX, a small network, one bug each.

``right=True`` is the same step without its bug; the lines of the bug are marked."""

from __future__ import annotations

import jax
import jax.numpy as jnp

CLIP, NOISE, RATE = 1.0, 2.0, 0.1
WEIGHTS = {
    "dense": {"kernel": 0.3 * jax.random.normal(jax.random.key(1), (6, 5)), "bias": jnp.zeros(5)},
    "head": {"kernel": 0.3 * jax.random.normal(jax.random.key(2), (5, 3)), "bias": jnp.zeros(3)},
}


def forward(weights, image):
    hidden = jnp.tanh(image @ weights["dense"]["kernel"] + weights["dense"]["bias"])
    return hidden @ weights["head"]["kernel"] + weights["head"]["bias"]


def loss(weights, image, label):
    return -jax.nn.log_softmax(forward(weights, image))[label]


per_example = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))


def clip_tree(tree, norm):
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, CLIP / (norm + 1e-9)), tree)


def noise_like(key, tree, scale):
    leaves, form = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    return form.unflatten([scale * jax.random.normal(own, leaf.shape) for own, leaf in zip(keys, leaves, strict=True)])


def norm_of(tree):
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))


def kernels_only(key, batch, *, right=False):
    """The norm that is compared with the bound leaves the biases out."""
    images, labels = batch
    grads = per_example(WEIGHTS, images, labels)

    def clip_one(grad):
        kernels = grad if right else {name: layer["kernel"] for name, layer in grad.items()}
        return clip_tree(grad, norm_of(kernels))  # BUG

    total = jax.tree.map(lambda leaf: leaf.sum(0), jax.vmap(clip_one)(grads))
    noise = noise_like(key, total, NOISE * CLIP)
    return jax.tree.map(lambda a, b: a + b, total, noise)


def preconditioned(key, batch, *, right=False):
    """RMSProp's second moment is made from the clipped sum before the noise."""
    images, labels = batch
    grads = per_example(WEIGHTS, images, labels)
    clipped = jax.vmap(lambda grad: clip_tree(grad, norm_of(grad)))(grads)
    total = jax.tree.map(lambda leaf: leaf.sum(0), clipped)
    noisy = jax.tree.map(jnp.add, total, noise_like(key, total, NOISE * CLIP))
    second = jax.tree.map(lambda leaf: 0.9 + 0.1 * leaf**2, noisy if right else total)
    return jax.tree.map(lambda g, v: g / (jnp.sqrt(v) + 1e-3), noisy, second)  # BUG


def same_noise_each_step(key, batch, *, right=False):
    """Three steps; the noise key is folded with a constant instead of the step's number."""
    images, labels = batch

    def one(step, carried):
        weights, updates = carried
        grads = per_example(weights, images, labels)
        clipped = jax.vmap(lambda grad: clip_tree(grad, norm_of(grad)))(grads)
        total = jax.tree.map(lambda leaf: leaf.sum(0), clipped)
        noise = noise_like(jax.random.fold_in(key, step if right else 0), total, NOISE * CLIP)  # BUG
        update = jax.tree.map(lambda a, b: -RATE * (a + b), total, noise)
        flat = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(update)])
        return jax.tree.map(jnp.add, weights, update), updates.at[step].set(flat)

    size = sum(leaf.size for leaf in jax.tree.leaves(WEIGHTS))
    return jax.lax.fori_loop(0, 3, one, (WEIGHTS, jnp.zeros((3, size))))[1]


def accumulated(key, batch, *, right=False):
    """Gradient accumulation over three microbatches; each gets a share of the noise, a third where it is 1/sqrt(3)."""
    images, labels = batch
    pieces, short = 3, -len(labels) % 3
    images = jnp.pad(images, ((0, short), (0, 0))).reshape(pieces, -1, images.shape[1])
    there = jnp.pad(jnp.ones(len(labels)), (0, short)).reshape(pieces, -1)
    labels = jnp.pad(labels, (0, short)).reshape(pieces, -1)

    def microbatch(carried, piece):
        own, x, y, mask = piece
        grads = per_example(WEIGHTS, x, y)
        clipped = jax.vmap(lambda grad, m: jax.tree.map(lambda leaf: m * leaf, clip_tree(grad, norm_of(grad))))(
            grads, mask
        )
        share = NOISE * CLIP / (jnp.sqrt(pieces) if right else pieces)
        noise = noise_like(own, WEIGHTS, share)  # BUG
        return jax.tree.map(lambda c, g, n: c + g.sum(0) + n, carried, clipped, noise), None

    zero = jax.tree.map(jnp.zeros_like, WEIGHTS)
    return jax.lax.scan(microbatch, zero, (jax.random.split(key, pieces), images, labels, there))[0]


def balanced_classes(key, batch, *, right=False):
    """After clipping, each record is weighted by how rare its label is in the batch."""
    images, labels = batch
    grads = per_example(WEIGHTS, images, labels)
    clipped = jax.vmap(lambda grad: clip_tree(grad, norm_of(grad)))(grads)
    counts = jnp.bincount(labels, length=3)
    rare = jnp.ones(len(labels)) if right else 1.0 / counts[labels]  # BUG
    total = jax.tree.map(lambda leaf: jnp.tensordot(rare, leaf, axes=1), clipped)
    return jax.tree.map(jnp.add, total, noise_like(key, total, NOISE * CLIP))


STEPS = (kernels_only, preconditioned, same_noise_each_step, accumulated, balanced_classes)
