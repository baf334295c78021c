import foreign
import jax
import numpy as np
import pytest
from checks import assert_rate_at_most

import mechanisms
from audit.diagnosis import diagnose, diagnose_mechanism, read_noise

CLIP, NOISE, WIDTH, TRIALS = 1.0, 2.0, 40, 300
PAIR = mechanisms.worst_case_pair(records=4, dimension=WIDTH, clip=CLIP)
QUESTIONS = (
    "noise scale, side 'without'",
    "noise scale, side 'with'",
    "does the noise depend on the record?",
    "does the noise change from trial to trial?",
    "is noise shared between coordinates?",
    "is noise repeated from trial to trial?",
    "does the record move the sum by more than the clipping norm?",
    "is the noise normal?",
    "does the noise take too few values?",
)


def right(generator, shift):
    outputs = NOISE * CLIP * generator.standard_normal((TRIALS, WIDTH))
    outputs[:, 0] += shift
    return outputs.astype(np.float32)


def asked(make_without=right, make_with=right, seed=1, moved=CLIP):
    generator = np.random.default_rng(seed)
    first, second = make_without(generator, -4 * CLIP), make_with(generator, -4 * CLIP + moved)
    return diagnose(first, second, PAIR, clip=CLIP, noise_multiplier=NOISE)


def wrong(*makers, **more):
    return {d.question for d in asked(*makers, **more) if d.wrong}


def halved(generator, shift):
    return right(generator, shift) / 2


def by_batch(generator, shift):
    return right(generator, shift) / generator.integers(2, 5, (TRIALS, 1))


def one_key(generator, shift):
    outputs = np.repeat(NOISE * CLIP * generator.standard_normal((TRIALS, 1)), WIDTH, axis=1)
    outputs[:, 0] += shift
    return outputs


def seed_twice(generator, shift):
    outputs = right(generator, shift)
    outputs[1::2, 1:] = outputs[::2, 1:]
    return outputs


def uniform(generator, shift):
    outputs = NOISE * CLIP * np.sqrt(12) * (generator.random((TRIALS, WIDTH)) - 0.5)
    outputs[:, 0] += shift
    return outputs


def rough(generator, shift):
    return np.round(right(generator, shift) * 8) / 8


def test_every_question_is_asked_and_the_risk_is_shared():
    found = asked()
    assert tuple(d.question for d in found) == QUESTIONS
    assert sum(d.risk for d in found) == pytest.approx(0.05)
    assert not any(d.wrong for d in found)


def test_right_code_is_rarely_called_wrong():
    runs = 200
    assert_rate_at_most(sum(bool(wrong(seed=seed)) for seed in range(runs)), runs, 0.05)


CASES = [
    ((halved, halved), QUESTIONS[0]),
    ((right, halved), QUESTIONS[2]),
    ((by_batch, by_batch), QUESTIONS[3]),
    ((one_key, one_key), QUESTIONS[4]),
    ((seed_twice, seed_twice), QUESTIONS[5]),
    ((uniform, uniform), QUESTIONS[7]),
    ((rough, rough), QUESTIONS[8]),
]


@pytest.mark.parametrize(("makers", "question"), CASES, ids=[case[1] for case in CASES])
def test_what_is_wrong_is_named(makers, question):
    assert question in wrong(*makers)


def test_a_record_that_is_not_clipped_is_named():
    assert QUESTIONS[6] in wrong(moved=3 * CLIP)


def test_a_divisor_is_found_with_its_interval_and_does_not_look_like_unclipped_gradients():
    found = {d.question: d for d in asked(halved, halved)}
    low, high = found[QUESTIONS[0]].interval
    assert low < NOISE * CLIP / 2 < high
    assert "as if divided by 2" in found[QUESTIONS[0]].says or "as if divided by 1.9" in found[QUESTIONS[0]].says
    assert not found[QUESTIONS[6]].wrong


def test_no_noise_at_all_is_named():
    silent = wrong(lambda _, shift: np.eye(1, WIDTH) * shift * np.ones((TRIALS, 1)), right)
    assert {QUESTIONS[0], QUESTIONS[2], QUESTIONS[8]} <= silent


def test_a_rotated_span_leaves_independent_noise():
    generator = np.random.default_rng(5)
    pair = mechanisms.neighbours_from_gradients(generator.normal(size=(3, WIDTH)), generator.normal(size=WIDTH))
    noise = read_noise(generator.standard_normal((TRIALS, WIDTH)), pair)
    assert noise.rest.shape == (TRIALS, WIDTH - 4)
    assert np.abs(np.corrcoef(noise.rest.T) - np.eye(WIDTH - 4)).max() < 5.5 / np.sqrt(TRIALS)


def test_outputs_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match="of 40 coordinates"):
        diagnose(np.zeros((5, 3)), np.zeros((5, 3)), PAIR, clip=CLIP, noise_multiplier=NOISE)


def test_mechanisms_are_drawn_and_diagnosed():
    step = mechanisms.one_round(normalise_by="expected_batch", rate=0.5, clip=CLIP, noise_multiplier=NOISE)
    found = {
        d.question: d for d in diagnose_mechanism(step, PAIR, clip=CLIP, noise_multiplier=NOISE, key=jax.random.key(3))
    }
    assert found[QUESTIONS[2]].wrong
    assert found[QUESTIONS[0]].interval[0] < NOISE * CLIP / 2 < found[QUESTIONS[0]].interval[1]
    assert not found[QUESTIONS[4]].wrong


def test_foreign_code_is_drawn_and_diagnosed():
    step = mechanisms.callable_step(foreign.too_little_noise)
    found = diagnose_mechanism(step, PAIR, clip=foreign.CLIP, noise_multiplier=foreign.NOISE, key=jax.random.key(3))
    assert "as if divided by 2.0" in found[0].says or "as if divided by 1.9" in found[0].says
    assert not found[2].wrong
