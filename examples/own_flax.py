"""An own Flax CNN, trained privately with Adam on images, and its audit: the last ten lines are the audit's."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen
from jax.flatten_util import ravel_pytree

RATE, CLIP, NOISE, STEPS = 0.5, 1.0, 1.0, 3


class Net(linen.Module):
    """Two convolutions and a linear layer."""

    @linen.compact
    def __call__(self, images):
        """Logits."""
        x = linen.relu(linen.Conv(4, (5, 5), strides=4)(images))
        x = linen.relu(linen.Conv(8, (3, 3), strides=2)(x))
        return linen.Dense(10)(x.reshape(len(x), -1))


net, adam = Net(), optax.adam(1e-3)


def loss(weights, record):
    """Of one record."""
    logits = net.apply(weights, record["image"][None])[0]
    return optax.softmax_cross_entropy_with_integer_labels(logits, record["label"])


def init(key):
    """Weights and Adam's moments."""
    weights = net.init(key, jnp.zeros((1, 28, 28, 1)))
    return weights, adam.init(weights)


def batches(key, records):
    """Poisson sampling: every record is in the batch with probability RATE."""
    return jax.random.bernoulli(key, RATE, (records,))


def private_sum(key, weights, batch, mask):
    """Clipped per-example gradients, summed over the batch, plus noise."""
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))(weights, batch)
    factors = mask / jnp.maximum(1.0, jax.vmap(optax.tree.norm)(gradients) / CLIP)
    sums, as_tree = ravel_pytree(jax.tree.map(lambda g: jnp.tensordot(factors, g, axes=1), gradients))
    return as_tree(sums), as_tree(NOISE * CLIP * jax.random.normal(key, sums.shape))


def update(key, state, batch, mask):
    """One private step; the noisy sum is what it lets out."""
    weights, moments = state
    noisy = optax.tree.add(*private_sum(key, weights, batch, mask))
    step, moments = adam.update(noisy, moments)
    return (optax.apply_updates(weights, step), moments), noisy


def broken_update(key, state, batch, mask):
    """The same, but somebody left the biases without noise."""
    weights, moments = state
    sums, noise = private_sum(key, weights, batch, mask)
    noise = jax.tree_util.tree_map_with_path(lambda path, n: n * ("bias" not in jax.tree_util.keystr(path)), noise)
    noisy = optax.tree.add(sums, noise)
    step, moments = adam.update(noisy, moments)
    return (optax.apply_updates(weights, step), moments), noisy


def images(count):
    """The first images and labels of MNIST."""
    with np.load(Path(__file__).parents[1] / "mechanisms/pairs/data/mnist.npz") as stored:
        return {"image": stored["images"][:count, :, :, None] / np.float32(255), "label": stored["labels"][:count]}


def main(step=update, trials=2000):
    """Audit three steps: all that they let out, against what an accountant says of three Poisson steps."""
    import audit, guarantees, mechanisms  # noqa: E401, I001

    pair = mechanisms.pair(images(4), images(5))
    training = mechanisms.jax_training(init, step, batches, steps=STEPS, loss=loss, weights=lambda state: state[0])
    claim = guarantees.poisson_training(rate=RATE, noise_multiplier=NOISE, steps=STEPS, accountant="certified")
    return audit.run_audit(training, pair, claim=claim, trials=trials, risk=0.05, key=jax.random.key(0), diagnose=False)


if __name__ == "__main__":
    print(main(broken_update if "broken" in sys.argv else update).verdict)
