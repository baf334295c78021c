"""Right libraries are not accused, and what is said of bugs is true: a few here, all in benchmarks/diagnosis.py."""

import importlib.util
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from checks import FALSE_FAILURE, assert_rate_at_most
from zoo import faults as faulty

import mechanisms
from audit.diagnosis import diagnose, diagnose_mechanism
from mechanisms.release import Layout

HERE = Path(__file__).parent


def beside(name):
    """A module of this folder, which is no package."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


truths, unseen = beside("truths"), beside("unseen_bugs")
STATED = {"clip": unseen.CLIP, "noise_multiplier": unseen.NOISE, "rate": unseen.RATE}
DIVISORS = {"sum": 1.0, "public N q": 4.0}


def right_library(seed, divisor, trials=200, noise=unseen.NOISE):
    """All trials of a right NumPy step at once, both sides."""
    rng, pair = np.random.default_rng(seed), unseen.pair()
    for rows in (pair.without, pair.with_record):
        clipped = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True) / unseen.CLIP)
        taken = rng.random((trials, len(rows))) < unseen.RATE
        noisy = taken @ clipped + noise * unseen.CLIP * rng.standard_normal((trials, rows.shape[1]))
        yield (noisy / divisor).astype(np.float32)


def accused(seed, divisor, risk, **more):
    return any(
        answer.wrong for answer in diagnose(*right_library(seed, divisor, **more), unseen.pair(), **STATED, risk=risk)
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("divisor", DIVISORS.values(), ids=DIVISORS)
def test_a_right_library_is_accused_at_most_at_the_stated_risk(divisor):
    runs, risk = 40, 0.05
    assert_rate_at_most(sum(accused(seed, divisor, risk) for seed in range(runs)), runs, risk)


@pytest.mark.long
@pytest.mark.parametrize("divisor", DIVISORS.values(), ids=DIVISORS)
@pytest.mark.parametrize("trials", [40, 300, 1000])
def test_right_libraries_over_and_over(divisor, trials):
    runs, risk = 400, 0.05
    assert_rate_at_most(sum(accused(seed, divisor, risk, trials=trials) for seed in range(runs)), runs, risk)


def test_a_library_with_less_noise_is_accused_by_the_same_check():
    assert all(accused(seed, 4.0, 0.05, trials=1000, noise=0.5) for seed in range(3))


def test_a_right_foreign_step_is_not_accused():
    answers = diagnose_mechanism(
        unseen.mechanism(), unseen.pair(), **STATED, trials=300, risk=FALSE_FAILURE, key=jax.random.key(1)
    )
    assert not [answer.says for answer in answers if answer.wrong]
    assert not [answer.says for answer in answers if answer.says.startswith("not asked")]


@pytest.mark.few(3)
@pytest.mark.parametrize("bug", unseen.UNSEEN)
def test_what_is_said_of_the_unseen_bugs_is_true(bug):
    answers = diagnose_mechanism(unseen.mechanism(bug), unseen.pair(), **STATED, key=jax.random.key(2))
    assert truths.judged(answers, unseen.UNSEEN[bug].truths, unseen=True) == "right", truths.said(answers)


def test_an_unclipped_bias_is_not_a_shared_key():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((4, 30))
    pair = mechanisms.Neighbours(without=rows[:-1], with_record=rows, relation="add_remove")
    layout = Layout(names=("weight", "bias"), shapes=((24,), (6,)))

    def outputs(gradients):
        own = gradients / np.maximum(1.0, np.linalg.norm(gradients[:, :24], axis=1, keepdims=True))
        own[:, 24:] = 5 * gradients[:, 24:]
        taken = rng.random((1000, len(gradients))) < 0.5
        return taken @ own + rng.standard_normal((1000, 30))

    answers = diagnose(
        outputs(pair.without), outputs(rows), pair, clip=1.0, noise_multiplier=1.0, rate=0.5, layout=layout
    )
    (answer,) = truths.said(answers)
    assert truths.word(answer) == "direction"
    assert "'bias'" in answer.says


def test_every_bug_of_the_zoo_has_its_truth():
    assert {fault.name for fault in faulty.zoo()} == set(truths.ZOO)
