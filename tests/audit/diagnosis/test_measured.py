"""Right libraries are not accused, and what is said of bugs is true: a few here, all in benchmarks/diagnosis.py."""

import importlib.util
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from checks import FALSE_FAILURE, assert_rate_at_most
from zoo import faults as faulty

import mechanisms
from audit.diagnosis import diagnose, diagnose_mechanism
from audit.diagnosis.signal import _orthonormal
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


@pytest.mark.few(1)
@pytest.mark.parametrize("bug", unseen.UNSEEN)
def test_what_is_said_of_the_unseen_bugs_is_true(bug):
    answers = diagnose_mechanism(unseen.mechanism(bug), unseen.pair(), **STATED, key=jax.random.key(2))
    assert truths.judged(answers, unseen.UNSEEN[bug].truths, unseen=True) == "right", truths.said(answers)


def last_counted_twice(clipped):
    return 2 * clipped[-1] + clipped[:-1].sum(axis=0)


def all_counted_twice(clipped):
    return 2 * clipped.sum(axis=0)


def last_against_the_others(clipped):
    return clipped[:-1].sum(axis=0) - 1.5 * clipped[-1]


@pytest.mark.few(1)
@pytest.mark.parametrize("total", [last_counted_twice, all_counted_twice, last_against_the_others])
def test_the_interval_of_noise_over_sensitivity_covers_the_truth(total):
    """Also where the record moves the sum in another direction than its own gradient's, inside the span of all."""
    missed, runs, risk = 0, 30, 0.5
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        rows = 3 * rng.standard_normal((4, 12))
        pair = mechanisms.neighbours_from_gradients(rows[:-1], rows[-1])
        clipped = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        sums = [total(clipped[:-1]), total(clipped)]
        sides = [own + rng.standard_normal((300, 12)) for own in sums]
        answers = diagnose(*sides, pair, clip=1.0, noise_multiplier=1.0, risk=risk)
        answer = next(answer for answer in answers if answer.code == "ratio")
        low, high = answer.interval
        missed += not low <= 1 / np.linalg.norm(sums[1] - sums[0]) <= high
    assert_rate_at_most(missed, runs, answer.risk)


def test_the_whole_movement_is_told_and_what_of_it_goes_along_the_gradient():
    rng = np.random.default_rng(4)
    old, new = np.eye(2, 12) @ rng.permutation(np.eye(12))
    pair = mechanisms.neighbours_from_gradients(old[None], new)
    sides = [own + rng.standard_normal((4000, 12)) for own in (2 * old, old + 2 * new)]
    (answer,) = truths.said(diagnose(*sides, pair, clip=1.0, noise_multiplier=1.0))
    # the last record is counted twice: the sum moves by 2 new - old, of length 2.24, and by 2 along the new gradient
    moved, along = re.search(r"moves the sum by ([\d.]+) \(([\d.]+) along its own gradient\)", answer.says).groups()
    assert float(moved) == pytest.approx(5**0.5, abs=0.1)
    assert float(along) == pytest.approx(2, abs=0.1)
    assert "moves_others" in answer.causes
    assert "not_clipped" not in answer.causes


@pytest.mark.parametrize("lengths", [(9.0, 0.6), (9.0, 9.0)])
def test_a_gradient_clipped_in_parts_is_among_the_first_causes_and_no_sampling_where_there_is_none(lengths):
    rng = np.random.default_rng(6)
    parts = np.split(rng.standard_normal(40), 2)
    parts = [length * part / np.linalg.norm(part) for part, length in zip(parts, lengths, strict=True)]
    rows = np.eye(8, 40) + 0.01
    pair = mechanisms.neighbours_from_gradients(rows, np.concatenate(parts))
    moved = np.concatenate([part / max(1.0, float(np.linalg.norm(part))) for part in parts])
    clipped = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    sides = [own + 0.5 * rng.standard_normal((2000, 40)) for own in (clipped.sum(0), clipped.sum(0) + moved)]
    found = truths.said(diagnose(*sides, pair, clip=1.0, noise_multiplier=0.5))
    assert any("is clipped on its own" in answer.says for answer in found)
    assert not any("sampled" in answer.says or "rate" in answer.says for answer in found)


def test_a_scale_that_varies_by_trial_is_told_from_one_of_the_dataset():
    rng = np.random.default_rng(7)
    rows = np.ones((1, 6))
    pair = mechanisms.neighbours_from_gradients(rows, -rows[0])

    def first_cause(divide):
        sides = []
        for records in (1, 2):
            taken = rng.random((2000, records)) < 0.5
            sums = (taken * [1, -1][:records]) @ np.tile(rows / 6**0.5, (records, 1))
            sides.append((sums + rng.standard_normal((2000, 6))) / divide(taken)[:, None])
        found = diagnose(*sides, pair, clip=1.0, noise_multiplier=1.0, rate=0.5)
        return next(answer.causes for answer in found if answer.code == "scale_by_record")

    assert first_cause(lambda taken: np.maximum(taken.sum(axis=1), 1)) == ("batch_divisor", "reads_dataset")
    assert first_cause(lambda taken: np.full(len(taken), taken.shape[1])) == ("reads_dataset", "batch_divisor")


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_rounding_aside_of_the_only_gradient_is_no_movement(scale):
    """Of a span with one direction, half of the noise was called a record that changes others' gradients."""
    rng = np.random.default_rng(5)
    row = rng.choice([-1.0, 1.0], 30)
    row *= 2 / np.linalg.norm(row)
    pair = mechanisms.neighbours_from_gradients(0 * np.tile(row, (3, 1)), row)
    sides = [(own + rng.standard_normal((500, 30))).astype(np.float32) / scale for own in (0 * row, row)]
    (answer,) = truths.said(diagnose(*sides, pair, clip=2.0, noise_multiplier=1.0))
    assert answer.code == "ratio"
    assert "along its own gradient" not in answer.says
    assert "moves_others" not in answer.causes


def test_a_divided_release_is_told_by_its_sum_along_the_gradient_too():
    rng = np.random.default_rng(4)
    old, new = np.eye(2, 12) @ rng.permutation(np.eye(12))
    pair = mechanisms.neighbours_from_gradients(3 * old[None], new)
    sides = [(own + rng.standard_normal((4000, 12))) / 5**0.5 for own in (2 * old, old + 2 * new)]
    (answer,) = truths.said(diagnose(*sides, pair, clip=1.0, noise_multiplier=1.0))
    moved, along = re.search(r"moves the sum by ([\d.]+) \(([\d.]+) along its own gradient\)", answer.says).groups()
    assert float(along) == pytest.approx(2, abs=0.2)
    assert float(moved) == pytest.approx(5**0.5, abs=0.2)


def test_no_noise_at_all_is_not_called_a_draw_that_repeats():
    row = np.random.default_rng(5).choice([-1.0, 1.0], 30) / 30**0.5
    pair = mechanisms.neighbours_from_gradients(0 * np.tile(row, (3, 1)), row)
    sides = [np.tile(own, (100, 1)).astype(np.float32) for own in (0 * row, row)]
    (answer,) = truths.said(diagnose(*sides, pair, clip=1.0, noise_multiplier=1.0))
    assert answer.says == "there is no noise."


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


def test_a_basis_part_by_part_is_that_of_all_parts_together():
    rows, sizes = np.random.default_rng(3).standard_normal((4, 9)), [2, 4, 3]
    pieces = np.zeros((3, 4, 9))
    for piece, end, own in zip(pieces, np.cumsum(sizes), sizes, strict=True):
        piece[:, end - own : end] = rows[:, end - own : end]
    _, _, expected = np.linalg.svd(pieces.reshape(12, 9), full_matrices=False)
    found = _orthonormal(rows, sizes)
    assert np.allclose(found @ found.T, np.eye(9))
    assert np.allclose(np.abs(found), np.abs(expected[:9]))
