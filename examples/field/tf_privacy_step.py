"""TensorFlow Privacy: one gradient of DPKerasSGDOptimizer, num_microbatches=None, on all rows; clip 1, noise 1.

Promise (privacy/analysis/compute_dp_sgd_privacy_lib.py:216): 'This privacy guarantee uses add-or-remove-one-example
adjacency'. Divisor (privacy/optimizers/dp_optimizer_keras.py:28): the number of examples in the batch.
TensorFlow draws on from one state: seeding would trace the function again in every trial.
"""

import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", OMP_NUM_THREADS="1")
import tensorflow as tf
import tensorflow_privacy as tfp

STEPS = {}


def _step(rows):
    data, weights = tf.constant(rows), tf.Variable(tf.zeros(rows.shape[1]))
    optimizer = tfp.DPKerasSGDOptimizer(
        l2_norm_clip=1.0, noise_multiplier=1.0, num_microbatches=None, learning_rate=1.0
    )

    @tf.function
    def gradient():
        ((found, _),) = optimizer._compute_gradients(lambda: tf.linalg.matvec(data, weights), [weights])
        return found

    return gradient


def release(seed, rows):
    key = rows.tobytes()
    if key not in STEPS:
        STEPS[key] = _step(rows)
    return STEPS[key]().numpy()
