"""What a step of a transcript shows, given those before it: its own noise, and the record; right trainings beside."""

import numpy as np
import pytest
from checks import assert_rate_at_most

from audit.diagnosis.step_moves import step_moves
from audit.diagnosis.step_noise import AGAIN, RELEASED_AGAIN, every_step_has_noise

TRIALS, STEPS, WIDTH = 300, 4, 30
ALLOWED = 0.5
"""Deviations of its noise by which the record may move a step."""


def drawn(seed):
    """Noise of every step, and what a batch adds on half of the coordinates."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((TRIALS, STEPS, WIDTH))
    batches = rng.integers(-1, 2, (TRIALS, STEPS, 1)) * np.where(np.arange(WIDTH) < WIDTH // 2, 1.5, 0.0)
    return noise, batches


def followed(noise, batches):
    """Gradients that answer what earlier steps released."""
    out = np.zeros_like(noise)
    for step in range(STEPS):
        out[:, step] = noise[:, step] + batches[:, step] - np.tanh(out[:, :step].sum(axis=1))
    return out


def momentum(noise, batches):
    out = noise + batches
    for step in range(1, STEPS):
        out[:, step] += 0.9 * out[:, step - 1]
    return out


def banded(noise, batches):
    """Noise that is correlated on purpose."""
    out = noise + batches
    out[:, 1:] -= 0.7 * noise[:, :-1]
    return out


def scheduled(steps):
    """Learning rates from 1 to 0, by a cosine."""
    return steps * np.cos(np.linspace(0, np.pi / 2, STEPS))[:, None]


RIGHT = {
    "plain": lambda noise, batches: noise + batches,
    "gradients that follow": followed,
    "momentum": momentum,
    "weights": lambda noise, batches: np.cumsum(noise + batches, axis=1),
    "banded": banded,
    "batches at the first step alone": lambda noise, batches: noise + 3 * batches * (np.arange(STEPS) == 0)[:, None],
    "tensors of other scales": lambda noise, batches: (noise + batches) * np.geomspace(1e-3, 1e3, WIDTH),
    "a schedule": lambda noise, batches: (noise + batches) * np.linspace(1, 0.6, STEPS)[:, None],
    "a schedule to nothing": lambda noise, batches: scheduled(1 + noise + batches),
    "weights under a schedule": lambda noise, batches: np.cumsum(scheduled(1 + noise + batches), axis=1),
    "trained weights under a schedule": lambda noise, batches: 50 + np.cumsum(scheduled(1 + noise + batches), axis=1),
    "momentum under a schedule": lambda noise, batches: scheduled(momentum(noise, 1 + batches)),
    "a schedule over means that nobody sees": lambda noise, batches: scheduled(noise + batches),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", RIGHT)
def test_steps_with_noise_of_their_own_are_not_accused(name):
    runs, risk = 20, 1e-2
    accused = sum(
        every_step_has_noise(*_sides(RIGHT[name], seed), rounds=STEPS, risk=risk).wrong for seed in range(runs)
    )
    assert_rate_at_most(accused, runs, risk)


def reused(noise, batches):
    return noise[:, :1] + 0.2 * batches


def two_keys(noise, batches):
    return noise[:, [0, 1, 0, 1]] + 0.2 * batches


def last_without(noise, batches):
    return noise * (np.arange(STEPS) < STEPS - 1)[:, None] + 0.2 * batches


WRONG = {
    "one draw": (
        reused,
        "earlier steps predict step 2 of 4: given them it varies by at most 0",
        "used at several steps",
    ),
    "one draw under a schedule": (
        lambda noise, batches: scheduled(reused(noise, batches)),
        "earlier steps predict step 2 of 4",
        "used at several steps",
    ),
    "two keys in turn": (two_keys, "earlier steps predict step 3 of 4", "used at several steps"),
    "the last step has none": (last_without, "step 4 of 4 varies by at most 0", "it has less noise, or none"),
    "weights of one draw": (
        lambda noise, batches: 50 + np.cumsum(reused(noise, batches), axis=1),
        "step 2 of 4 adds what step 1 did, ",
        "a key or a draw is used more than once",
    ),
    "weights of two keys in turn": (
        lambda noise, batches: np.cumsum(two_keys(noise, batches), axis=1),
        "step 3 of 4 adds what step 1 did, ",
        "a key or a draw is used more than once",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_first_step_without_noise_of_its_own_is_named(name):
    make, measured, cause = WRONG[name]
    found = every_step_has_noise(*_sides(make, 1), rounds=STEPS, risk=1e-5)
    assert found.wrong
    assert found.says.startswith(measured), found.says
    assert cause in found.says


@pytest.mark.parametrize(
    ("make", "causes"),
    [(reused, RELEASED_AGAIN), (lambda noise, batches: 9 - np.cumsum(reused(noise, batches), axis=1), AGAIN)],
)
def test_a_draw_that_is_used_again_is_told_from_a_schedule(make, causes):
    assert every_step_has_noise(*_sides(make, 1), rounds=STEPS, risk=1e-5).causes == causes


def of_averages(noise, batches):
    """Of weights, from the first step on: what a step adds has ever less of what is new."""
    weights = np.cumsum(noise + batches, axis=1)
    return np.cumsum(weights, axis=1) / np.arange(1, STEPS + 1)[:, None]


def averaged(noise, batches):
    out = np.cumsum(noise + batches, axis=1)
    for step in range(1, STEPS):
        out[:, step] = 0.99 * out[:, step - 1] + 0.01 * out[:, step]
    return out


def fast_fall(noise, batches):
    """Momentum of steps whose sizes fall tenfold each: a step adds nearly what the first did."""
    out = (noise + batches) * 0.1 ** np.arange(STEPS)[:, None]
    for step in range(1, STEPS):
        out[:, step] += 0.97 * out[:, step - 1]
    return np.cumsum(out, axis=1)


def nothing_new(noise, batches):
    """A step that is computed from what was released reveals nothing."""
    return np.cumsum(np.concatenate([noise[:, :1]] * STEPS, axis=1), axis=1)


@pytest.mark.parametrize("make", [of_averages, averaged, fast_fall, nothing_new])
def test_averages_momentum_and_what_is_computed_from_a_release_use_no_draw_again(make):
    for seed in range(5):
        assert every_step_has_noise(*_sides(make, seed), rounds=STEPS, risk=1e-2).causes not in (AGAIN, RELEASED_AGAIN)


def test_a_first_step_that_does_not_vary_says_nothing_of_others():
    noise = np.random.default_rng(0).standard_normal((TRIALS, STEPS, WIDTH))
    for still in (np.zeros_like(noise), 3 + noise * (np.arange(STEPS) > 0)[:, None]):
        assert not every_step_has_noise(still, still, rounds=STEPS, risk=1e-5).wrong
        moved = step_moves(still, still + np.eye(1, STEPS).T, rounds=STEPS, allowed=ALLOWED, risk=1e-5)
        assert not moved.wrong
        assert moved.interval is None


def test_what_earlier_steps_foretell_is_not_said_to_vary_less():
    found = every_step_has_noise(*_sides(RIGHT["weights under a schedule"], 5), rounds=STEPS, risk=0.01)
    assert not found.wrong
    assert found.says == "earlier steps predict step 4 of 4, as by a schedule or by noise used again."


@pytest.mark.few(5)
@pytest.mark.parametrize("name", RIGHT)
def test_a_record_that_moves_every_step_as_far_as_is_allowed_is_not_accused(name):
    runs, risk = 8, 0.1
    accused = sum(_moves(RIGHT[name], seed, ALLOWED, risk=risk).wrong for seed in range(runs))
    assert_rate_at_most(accused, runs, risk)


def carried_over(noise, batches, record):
    """Momentum of sums that have no noise yet."""
    sums = momentum(np.zeros_like(noise), batches + record)
    return noise + sums


def seed_again(noise, batches, record):
    """One batch and one draw at all steps, at gradients that follow."""
    first = (noise + batches)[:, :1] + record
    shrink = np.linspace(1.0, 0.7, STEPS)[:, None]
    return first * shrink + 0.1 * np.tanh(noise) + (record * np.linspace(0, 0.3, STEPS)[:, None])


def less_noise(noise, batches, record):
    return noise * np.array([1.0, 1.0, 0.5, 0.5])[:, None] + batches + record


@pytest.mark.parametrize(
    ("make", "step", "cause"),
    [(carried_over, 2, "carried_over"), (seed_again, 2, "key_again"), (less_noise, 3, "other_steps")],
)
def test_a_later_step_that_shows_more_of_the_record_is_named(make, step, cause):
    noise, batches = zip(*(drawn([5, side]) for side in (0, 1)), strict=True)
    record = 2 * ALLOWED * np.eye(1, WIDTH, WIDTH - 1)[0]
    sides = [make(noise[side], batches[side] / 5, side * record).reshape(TRIALS, -1) for side in (0, 1)]
    found = step_moves(*sides, rounds=STEPS, allowed=2 * ALLOWED, risk=1e-3)
    assert found is not None
    assert found.wrong
    assert f"step {step} of 4" in found.says
    assert cause in found.causes
    assert ("key_again" in found.causes) == (make is seed_again)
    assert step_moves(*(side[:100] for side in sides), rounds=STEPS, allowed=2 * ALLOWED, risk=1e-3) is None


def _moves(make, seed, far, *, risk):
    """The answer where each step has the record's share beside its noise, whatever is made of both."""
    record = far * np.eye(1, WIDTH, WIDTH - 1)[0]
    sides = []
    for side in (0, 1):
        noise, batches = drawn([seed, side])
        sides.append(make(noise + side * record, batches).reshape(TRIALS, -1))
    found = step_moves(*sides, rounds=STEPS, allowed=ALLOWED, risk=risk)
    assert found is not None
    return found


def _sides(make, seed):
    """Flat rows, the record on the second side."""
    sides = [make(*drawn([seed, side])) for side in (0, 1)]
    sides[1] = make(drawn([seed, 1])[0], drawn([seed, 1])[1] + 1)
    return [side.reshape(TRIALS, -1) for side in sides]
