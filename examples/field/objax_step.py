"""objax: PrivateGradValues on all rows, clip 1, noise 1, microbatches of one.

Promise (objax/privacy/dpsgd/gradient.py): 'Computes differentially private gradients as required by DP-SGD'; the
relation is not stated. Divisor: the number of microbatches. Without a keygen it draws from one generator seeded 0.
"""

import jax.numpy as jnp
import numpy as np
import objax

MADE = {}


def _gradient(rows):
    weights = objax.TrainVar(jnp.zeros(rows.shape[1]))
    variables = objax.VarCollection({"w": weights})
    loss = objax.Function(lambda x: (x @ weights.value).mean(), variables)
    values = objax.privacy.dpsgd.PrivateGradValues(loss, variables, 1.0, 1.0, microbatch=1)
    return objax.Jit(lambda x: values(x)[0], values.vars())


def _release(seed, rows):
    key = rows.shape
    if key not in MADE:
        MADE[key] = _gradient(rows)
    objax.random.DEFAULT_GENERATOR.seed(seed)
    return np.asarray(MADE[key](rows)[0])


def release(seed, rows):
    return _release(seed % 2**31, rows)


def fresh_process(seed, rows):
    """As in every process that names no generator: the default one starts at 0."""
    return _release(0, rows)
