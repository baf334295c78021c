"""Noise that depends on which records are sampled, beside releases whose noise does not."""

import numpy as np
import pytest
from checks import assert_rate_at_most

import mechanisms
from audit.diagnosis.noise import read_noise
from audit.diagnosis.noise_and_batches import noise_follows_batch, noise_follows_record
from audit.diagnosis.signal import read_signal

TRIALS, WIDTH, RISK = 2000, 12, 1e-3
GRADIENTS = np.random.default_rng(4).standard_normal((5, WIDTH))
GRADIENTS /= np.linalg.norm(GRADIENTS, axis=1, keepdims=True)
PAIR = mechanisms.Neighbours(
    without=GRADIENTS[:4], with_record=GRADIENTS, relation="add_remove", parameters={}, name="unit rows"
)
SIGNAL = read_signal(PAIR, clip=1.0)


def poisson(rng, rows, noise):
    return (rng.random((TRIALS, len(rows))) < 0.5) @ rows + noise


def realised(rng, rows, noise):
    taken = rng.random((TRIALS, len(rows))) < 0.5
    return (taken @ rows + noise) / np.maximum(taken.sum(axis=1, keepdims=True), 1)


def fixed_size(rng, rows, noise):
    return np.stack([rows[rng.permutation(len(rows))[:2]].sum(axis=0) for _ in range(TRIALS)]) + noise


def scaled(rng, rows, noise):
    return rng.choice([0.5, 2.0], (TRIALS, 1)) * poisson(rng, rows, noise)


RIGHT = {
    "poisson": poisson,
    "realised batch": realised,
    "fixed size": fixed_size,
    "a scale of the trial's own": scaled,
    "heavy tails": lambda rng, rows, noise: poisson(rng, rows, noise**3 / 4),
    "a large mean": lambda rng, rows, noise: 50 + poisson(rng, rows, noise),
}
"""Noise is none of the batch's business."""
UNTOLD = {
    "uneven noise": lambda rng, rows, noise: poisson(rng, rows, noise * np.geomspace(0.3, 3, WIDTH)),
    "correlated noise": lambda rng, rows, noise: poisson(rng, rows, noise + noise[:, :1]),
}
"""Of these, told answers name what correlates coordinates: it does so without the record as well."""


def one_stream(rng, rows, noise):
    return (noise[:, : len(rows)] < 0) @ rows + noise


def uniform_of_noise(rng, rows, noise):
    return (np.abs(noise[:, -len(rows) :] + 0.3) < 0.9) @ rows + noise


WRONG = {"one stream": one_stream, "taken by the noise": uniform_of_noise}


def answers(make, seed):
    """Of what is told the gradients, and of what is not."""
    rng = np.random.default_rng([seed, 7])
    sides = [make(rng, rows, rng.standard_normal((TRIALS, WIDTH))) for rows in (PAIR.without, PAIR.with_record)]
    told = noise_follows_batch(*(read_noise(side, PAIR, SIGNAL) for side in sides), SIGNAL, risk=RISK)
    return told, noise_follows_record(*sides, risk=RISK)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [*RIGHT, *UNTOLD])
def test_noise_that_is_independent_of_the_batch_is_not_accused(name):
    runs = 8
    found = [answers((RIGHT | UNTOLD)[name], seed) for seed in range(runs)]
    if name in RIGHT:
        assert_rate_at_most(sum(told.wrong for told, _ in found), runs, RISK)
    assert_rate_at_most(sum(untold is not None and untold.wrong for _, untold in found), runs, RISK)


@pytest.mark.parametrize("name", WRONG)
def test_noise_that_depends_on_the_batch_is_told(name):
    told, untold = answers(WRONG[name], 1)
    assert told.wrong
    assert untold is not None
    assert untold.wrong
    for found in (told, untold):
        assert "the noise depends on which records are sampled" in found.says


def test_nothing_is_said_of_a_record_that_moves_nothing():
    rng = np.random.default_rng(0)
    assert noise_follows_record(rng.standard_normal((200, 3)), rng.standard_normal((200, 3)), risk=RISK) is None
    assert noise_follows_record(np.zeros((10, 3)), np.ones((10, 3)), risk=RISK) is None
