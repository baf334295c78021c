"""Both datasets on the same seeds: why the record may move the release too far, by how that changes with the batch."""

import numpy as np
import pytest
from checks import assert_rate_at_most

import mechanisms
from audit.diagnosis.same_seeds import Movements, along_a_mixture, moves_too_far
from audit.diagnosis.stated_noise import KnownStep

WIDTH, SEEDS, RATE, NOISE = 8, 400, 0.5, 0.1
ROWS = 5 * np.eye(3, WIDTH) + 4
RECORD = -40 * np.eye(1, WIDTH)[0] - 30
PAIR = mechanisms.neighbours_from_gradients(ROWS, RECORD)


def clipped(rows, bound=1.0):
    return rows / np.maximum(1.0, np.linalg.norm(rows, axis=-1, keepdims=True) / bound)


STEPS = {
    "the sum clipped": (lambda taken, rows: clipped(taken @ rows), "sum_clipped"),
    "the mean of the batch": (
        lambda taken, rows: taken @ clipped(rows) / np.maximum(taken.sum(axis=1, keepdims=True), 1),
        "sum_scaled",
    ),
    "less noise": (lambda taken, rows: taken @ clipped(rows), "less_noise"),
    "a larger bound": (lambda taken, rows: taken @ clipped(rows, 3.0), "larger_bound"),
}


@pytest.mark.parametrize("told", [False, True], ids=["untold", "told"])
@pytest.mark.parametrize("divisor", [1, 4])
@pytest.mark.parametrize("name", STEPS)
def test_a_movement_that_changes_with_the_batch_is_no_clipping_of_records(name, divisor, told):
    """Of a clipped sum it named less noise, a larger bound, and parts clipped by themselves."""
    made, cause = STEPS[name]
    rng = np.random.default_rng(2)
    taken = (rng.random((SEEDS, 4)) < RATE).astype(float)
    rows = np.vstack([ROWS, RECORD])
    noise = NOISE * rng.standard_normal((SEEDS, WIDTH))
    without, with_record = (
        (made(own, rows) + noise) / divisor for own in (taken * np.array([1.0, 1.0, 1.0, 0.0]), taken)
    )
    found = Movements.of(without, with_record, rate=RATE)
    assert found is not None
    given = {"clip": 1.0, "noise_multiplier": NOISE, "rate": RATE, "divisor": divisor}
    numbers = KnownStep.of(PAIR, **given) if told else None
    drawn = NOISE / divisor * rng.standard_normal((SEEDS, WIDTH))
    answer = moves_too_far(found, drawn, allowed=0.5, rate=RATE, step=numbers, risk=1e-3)
    assert answer is not None
    several = cause in ("sum_clipped", "sum_scaled")
    assert found.several == several
    assert several == ("less_noise" not in answer.causes)
    if told or not several:
        assert answer.causes[0] == (cause if told or cause == "less_noise" else "less_noise")
    else:
        assert "sum_clipped" in answer.causes[:3]
        assert "the sum is clipped" in answer.says


@pytest.mark.parametrize("shared", [False, True])
def test_noise_that_was_mixed_with_the_sum_covers_what_the_record_moves(shared):
    """However a release is smoothed, summed up or rotated; of noise that two halves share a mixture has none."""
    rng, runs, risk = np.random.default_rng(7), 400, 0.1
    accused = 0
    for _ in range(runs):
        mixing, moved = rng.standard_normal((WIDTH, WIDTH)), rng.standard_normal(WIDTH)
        noise = 2 * rng.standard_normal((200, WIDTH))
        if shared:
            noise[:, WIDTH // 2 :] = noise[:, : WIDTH // 2]
        given = mixing @ moved / np.linalg.norm(moved), noise @ mixing.T
        accused += along_a_mixture(*given, allowed=0.5, risk=risk / 2) is not None
    if shared:
        assert accused > 0.9 * runs
    else:
        assert_rate_at_most(accused, runs, risk / 2)
