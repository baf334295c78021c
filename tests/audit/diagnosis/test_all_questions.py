import dataclasses
import functools
import re

import foreign
import jax
import numpy as np
import pytest
from checks import FALSE_FAILURE, assert_rate_at_most
from zoo import steps as faulty_steps

import mechanisms
from audit.diagnosis import diagnose, diagnose_mechanism, distribution, read_noise
from mechanisms.release import Layout

CLIP, NOISE, WIDTH, TRIALS = 1.0, 2.0, 40, 300
PAIR = mechanisms.worst_case_pair(records=4, dimension=WIDTH, clip=CLIP)
DENSE = {
    "one direction": np.outer((1.0, -1.0, -1.0, -1.0), np.ones(20)),
    "five directions": np.random.default_rng(12).standard_normal((5, 24)),
}
"""The differing record's gradient before the others'."""
BOUNDED = "does the record leave the outputs bounded?"
BARE = "does every coordinate have noise?"
SILENT = "does every trial have noise?"
REPEATED = "is noise repeated from trial to trial?"
ELSEWHERE = "does the record move the sum along its gradient?"
SHARED = "is noise shared between coordinates?"
BATCH = "does the noise change from trial to trial?"
RECORD = "does the noise depend on the record?"
VARIES = "do batches vary as stated?"
RATE = "is the record sampled at the stated rate?"
OVER = "is there enough noise for the sensitivity?"
GRAINED = "does the noise take too few values?"
TAILS = "does the noise end too early?"
NORMAL = "is the noise normal?"
NOMINAL = (VARIES, RATE, OVER)
ALWAYS = (BOUNDED, BARE, SILENT, REPEATED, ELSEWHERE, SHARED, BATCH, RECORD, GRAINED, TAILS, NORMAL)
ASKED = (*ALWAYS[:8], *NOMINAL, *ALWAYS[8:])
REMARKS = ("noise scale, side 'without'", "noise scale, side 'with'")


def right(generator, shift):
    outputs = NOISE * CLIP * generator.standard_normal((TRIALS, WIDTH))
    outputs[:, 0] += shift
    return outputs.astype(np.float32)


def asked(make_without=right, make_with=right, seed=1, moved=CLIP, risk=FALSE_FAILURE):
    generator = np.random.default_rng(seed)
    first, second = make_without(generator, -4 * CLIP), make_with(generator, -4 * CLIP + moved)
    return diagnose(first, second, PAIR, clip=CLIP, noise_multiplier=NOISE, risk=risk)


def wrong(*makers, **more):
    return {d.question for d in asked(*makers, **more) if d.wrong}


def said(*makers, **more):
    return [d.question for d in asked(*makers, **more) if d.wrong and not d.follows]


def test_rounding_is_not_taken_for_noise():
    """Of noise with a fixed seed four answers spoke, 'with the record 1.024 times as large, deviation 5.7e-09'."""
    drawn = np.random.default_rng(3).standard_normal(WIDTH)

    def same(generator, shift):
        outputs = drawn + 1e-8 * generator.standard_normal((TRIALS, WIDTH))
        outputs[:, 0] += shift
        return outputs

    assert wrong(same, same) == {REPEATED}
    assert {answer.question for answer in asked(same, same)} == {BOUNDED, SILENT, REPEATED}
    assert {answer.question for answer in asked()} == {*ASKED, *REMARKS}


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


def blocks(generator, shift):
    outputs = right(generator, shift)
    outputs[:, 30:40] = outputs[:, 10:20]
    return outputs


def partly_copied(generator, shift):
    outputs = right(generator, shift)
    outputs[:, 30:34] = 0.6 * outputs[:, 13:17] + 0.8 * outputs[:, 30:34]
    return outputs


def cut(generator, shift):
    noise = generator.standard_normal((TRIALS, WIDTH))
    again = generator.standard_normal((TRIALS, WIDTH))
    outputs = NOISE * CLIP * np.where(np.abs(noise) < 2.7, noise, np.clip(again, -2.7, 2.7))
    outputs[:, 0] += shift
    return outputs


def in_half_precision(generator, shift):
    outputs = right(generator, 0.0).astype(np.float16).astype(np.float32)
    outputs[:, 0] += shift
    return outputs


def in_brain_precision(generator, shift):
    outputs = (right(generator, 0.0).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    outputs[:, 0] += shift
    return outputs


def test_every_question_is_asked_and_the_risk_is_shared():
    found = asked()
    assert tuple(d.question for d in found) == ASKED + REMARKS
    assert sum(d.risk for d in found) == pytest.approx(FALSE_FAILURE)
    assert not any(d.wrong for d in found)


def test_without_nominal_values_the_others_are_asked():
    generator = np.random.default_rng(2)
    found = diagnose(right(generator, 0.0), right(generator, 1.0), PAIR)
    assert tuple(d.question for d in found) == ALWAYS
    assert sum(d.risk for d in found) == pytest.approx(0.01)


@functools.cache
def right_runs():
    return [asked(seed=seed, risk=0.05) for seed in range(80)]


@pytest.mark.parametrize("question", ASKED)
def test_p_values_of_right_code_are_rarely_small(question):
    """The record moves the sum by exactly the clipping norm: the edge of what is right."""
    values = np.array([d.p_value for run in right_runs() for d in run if d.question == question])
    assert len(values) == len(right_runs())
    for level in (0.01, 0.05, 0.2, 0.5):
        assert_rate_at_most(int((values <= level).sum()), len(values), level)


def test_right_code_is_rarely_called_wrong():
    runs = right_runs()
    assert_rate_at_most(sum(any(d.wrong for d in run) for run in runs), len(runs), 0.05)


@pytest.mark.long
def test_twenty_trials_of_six_coordinates_keep_the_risk_too():
    pair, runs = mechanisms.worst_case_pair(records=4, dimension=6, clip=CLIP), 300
    called = 0
    for seed in range(runs):
        sides = NOISE * np.random.default_rng(seed).standard_normal((2, 20, 6))
        called += any(d.wrong for d in diagnose(*sides, pair, clip=CLIP, noise_multiplier=NOISE))
    assert_rate_at_most(called, runs, 0.05)


@pytest.mark.long
def test_a_record_that_hardly_moves_the_sum_keeps_the_risk_on_both_sides():
    """With a bound far below the noise of the means, |shift| exceeds it in either direction."""
    pair, runs, level = mechanisms.worst_case_pair(records=4, dimension=6, clip=CLIP), 300, 0.05
    low = 0
    for seed in range(runs):
        sides = 100 * NOISE * np.random.default_rng(seed).standard_normal((2, 40, 6))
        answers = {d.question: d for d in diagnose(*sides, pair, clip=CLIP, noise_multiplier=100 * NOISE)}
        low += answers[OVER].p_value <= level
    assert_rate_at_most(low, runs, level)
    with pytest.raises(AssertionError):
        assert_rate_at_most(low, runs, level / 4)


@pytest.mark.long
def test_a_divisor_that_reads_the_batch_alike_on_both_sides_does_not_read_the_record():
    runs = 100
    low = sum(
        {d.question: d for d in asked(by_batch, by_batch, seed=seed)}[RECORD].p_value <= 0.01 for seed in range(runs)
    )
    assert_rate_at_most(low, runs, 0.01)


def test_updates_that_were_skipped_say_nothing_about_the_noise_of_others():
    def skipping(generator, shift):
        return right(generator, shift) * (generator.random((TRIALS, 1)) > 0.06)

    assert not {NORMAL, SHARED, TAILS} & wrong(skipping, skipping)
    assert said(skipping, skipping) == [SILENT]


def first_half(generator, shift):
    outputs = right(generator, shift)
    outputs[:, WIDTH // 2 :] = 0.0
    return outputs


def half_silent(generator, shift):
    return right(generator, shift) * (generator.random((TRIALS, 1)) < 0.5)


def few_seeds(generator, shift):
    outputs = NOISE * CLIP * np.stack([np.random.default_rng(k % 16).standard_normal(WIDTH) for k in range(TRIALS)])
    outputs[:, 0] += shift
    return outputs


def laplace(generator, shift):
    outputs = generator.laplace(0.0, NOISE * CLIP / np.sqrt(2), (TRIALS, WIDTH))
    outputs[:, 0] += shift
    return outputs


CASES = [
    ((right, halved), RECORD),
    ((by_batch, by_batch), BATCH),
    ((one_key, one_key), SHARED),
    ((blocks, blocks), SHARED),
    ((partly_copied, partly_copied), SHARED),
    ((seed_twice, seed_twice), REPEATED),
    ((few_seeds, few_seeds), REPEATED),
    ((first_half, first_half), BARE),
    ((half_silent, half_silent), SILENT),
    ((laplace, laplace), NORMAL),
    ((uniform, uniform), TAILS),
    ((cut, cut), TAILS),
    ((rough, rough), GRAINED),
    ((in_half_precision, in_half_precision), GRAINED),
    ((in_brain_precision, in_brain_precision), GRAINED),
]


@pytest.mark.parametrize(("makers", "question"), CASES, ids=[f"{m[0].__name__}: {q}" for m, q in CASES])
def test_what_is_wrong_is_named_and_nothing_that_follows(makers, question):
    """Nothing here moves the noise over the sensitivity, but what follows from another answer."""
    assert said(*makers, risk=0.05) == [question]


def test_a_constant_divisor_on_both_sides_is_not_wrong():
    assert not wrong(halved, halved, moved=CLIP)
    found = {d.question: d for d in asked(halved, halved)}[REMARKS[0]]
    # nobody stated a divisor: half of the noise may as well be missing
    divided = r", as in a release that is divided by (1\.9\d|2|2\.0\d)\.$"
    assert re.search(r": 0\.(49|50)\d* times the stated 2 \(clip times noise multiplier\)" + divided, found.says)


def test_less_noise_is_told_over_the_sensitivity():
    """A tenth of the noise: at more of it 300 trials cannot tell by how much the record moves the mean."""

    def tenth(generator, shift):
        outputs = right(generator, 0.0) / 10
        outputs[:, 0] += shift
        return outputs

    (answer,) = (d for d in asked(tenth, tenth) if d.wrong)
    assert answer.question == OVER
    assert answer.interval[0] < 0.1 < answer.interval[1]
    assert "the noise has deviation 0.199 where 2 is expected" in answer.says


def test_noise_copied_between_blocks_is_found_at_its_distance():
    found = {d.question: d for d in asked(blocks, blocks)}
    assert "coordinates 20 apart" in found[SHARED].says
    assert not found[REPEATED].wrong
    assert not found[RECORD].wrong


def test_tensors_and_steps_are_named():
    layout = Layout(names=("kernel", "bias"), shapes=((5, 4), (20,)))
    generator = np.random.default_rng(1)
    sides = first_half(generator, 0.0), first_half(generator, 1.0)
    first = diagnose(*sides, PAIR, layout=layout)[0]
    assert first.says == "no noise on 'bias' (20 of 20 coordinates)."
    steps = dataclasses.replace(layout, shapes=((5, 2), (10,)), rounds=2)
    first = diagnose(*(own.reshape(TRIALS, 2, 20) for own in sides), PAIR, layout=steps)[0]
    assert first.says == "no noise on step 2."


def test_low_precision_is_told_by_its_grid():
    def says(maker):
        return next(d.says for d in asked(maker, maker) if d.question == GRAINED)

    assert "float16 numbers" in says(in_half_precision)
    assert "bfloat16 numbers" in says(in_brain_precision)
    assert "multiples of 0.125" in says(rough)


def test_a_record_that_is_not_clipped_is_named():
    found = {d.question: d for d in asked(moved=6 * CLIP)}
    assert found[OVER].wrong
    assert found[OVER].interval[0] < 1 / 6 < found[OVER].interval[1]
    assert "stated deviation of 2, but the record moves the sum by" in found[OVER].says


def test_divisors_of_single_trials_are_told_where_they_can_be_told_apart():
    wide, trials = 4000, 60
    pair = mechanisms.worst_case_pair(records=4, dimension=wide, clip=CLIP)
    generator = np.random.default_rng(4)
    divisors = generator.integers(2, 5, (2, trials))
    sides = [NOISE * CLIP * generator.standard_normal((trials, wide)) / own[:, None] for own in divisors]
    found = diagnose(*sides, pair, clip=CLIP, noise_multiplier=NOISE)
    says = next(d.says for d in found if d.question == BATCH)
    for number in (2, 3, 4):
        assert f"by {number} in {int((divisors == number).sum())} trials" in says
    assert "undecided in 0 of 120" in says


def test_no_noise_at_all_is_named():
    def silent(_, shift):
        return np.eye(1, WIDTH) * shift * np.ones((TRIALS, 1))

    assert said(silent, right) == [SILENT]
    assert [d.says for d in asked(silent, silent) if d.wrong and not d.follows] == ["there is no noise."]


def test_few_releases_in_many_trials_have_no_noise():
    def sampled(generator, shift):
        return np.eye(1, WIDTH) * shift * generator.integers(0, 3, (TRIALS, 1))

    told = [d.says for d in asked(sampled, sampled) if d.wrong and d.question == SILENT]
    assert told == [f"there is no noise: 5 different releases in {2 * TRIALS} trials."]


def test_coordinates_without_noise_are_all_named_however_far_batches_move_them():
    """Two of three were 'at most 0.17 of the others' noise', or a correlation was blamed."""

    def biases(generator, shift):
        outputs = right(generator, shift)
        outputs[:, -3:] = np.outer(generator.integers(0, 4, TRIALS), (3.0, 0.1, 0.1))
        return outputs.astype(np.float32)

    (answer,) = (d for d in asked(biases, biases) if d.wrong and not d.follows)
    assert answer.question == BARE
    assert f"on coordinates {WIDTH - 3} to {WIDTH - 1}" in answer.says


def test_noise_on_some_coordinates_alone_is_not_called_none():
    def sparse(generator, shift):
        outputs = right(generator, shift)
        outputs[:, 1:] = 0
        return outputs

    told = [d.says for d in asked(sparse, sparse) if d.wrong and d.question == SILENT]
    assert told == ["there is no noise where no record moves the release."]


def test_coarse_noise_that_is_zero_in_many_trials_is_noise():
    def geometric(generator, shift):
        outputs = np.subtract(*generator.geometric(0.99, (2, TRIALS, WIDTH)))
        outputs[:, 0] += int(shift)
        return outputs.astype(np.float32)

    assert wrong(geometric, geometric) & {SILENT, SHARED, RECORD, BATCH} == set()


def test_a_rotated_span_leaves_independent_noise():
    generator = np.random.default_rng(5)
    pair = mechanisms.neighbours_from_gradients(generator.normal(size=(3, WIDTH)), generator.normal(size=WIDTH))
    noise = read_noise(generator.standard_normal((TRIALS, WIDTH)), pair)
    assert noise.rest.shape == (TRIALS, WIDTH - 4)
    assert np.abs(np.corrcoef(noise.rest.T) - np.eye(WIDTH - 4)).max() < 5.5 / np.sqrt(TRIALS)


def drawn_unevenly(name, *, rate=1.0):
    """A right sum of both sides of a pair, with three times as much noise on every other coordinate."""
    generator, rows = np.random.default_rng(8), DENSE[name]
    deviations = np.where(np.arange(rows.shape[1]) % 2, 0.3, 1.0)
    noise = deviations * generator.standard_normal((2, 2000, rows.shape[1]))
    taken = generator.random((2, 2000, len(rows))) < rate
    taken[0, :, 0] = False
    return mechanisms.neighbours_from_gradients(rows[1:], rows[0]), *(taken @ rows + noise)


@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("name", DENSE)
def test_unequal_noise_is_not_shared_where_a_dense_span_is_turned_out(name, rate):
    """It was 'coordinates 18 apart have correlation 0.09', a key used more than once."""
    pair, *sides = drawn_unevenly(name, rate=rate)
    answers = diagnose(*sides, pair, clip=20.0, noise_multiplier=0.05, rate=rate)
    found = {answer.code: answer for answer in answers}
    assert not found["shared"].wrong
    assert "noise_and_batches" not in found or not found["noise_and_batches"].wrong
    assert found["normal"].wrong


@pytest.mark.parametrize("name", DENSE)
def test_a_draw_that_two_coordinates_share_is_told_beside_unequal_noise(name):
    pair, *sides = drawn_unevenly(name)
    for noise in sides:
        noise[:, 3] += 0.3 * (noise[:, 8] - noise[:, 8].mean())
    found = {answer.code: answer for answer in diagnose(*sides, pair)}
    assert found["shared"].wrong
    # five directions turned out leave mixtures, which are no whole number of coordinates apart
    assert name != "one direction" or found["shared"].says.startswith("coordinates 5 apart")


MIXED = {
    # what the noise is made of, and the numbers that it truly has
    "summed up": (np.triu(np.ones((24, 24))), (1, 0.94)),
    "smoothed": (2 * np.eye(24) + np.roll(np.eye(24), 1, 0) + np.roll(np.eye(24), -1, 0), (1, 0.667)),
    "halves": (np.vstack([np.tile(np.eye(12), 2), np.zeros((12, 24))]), (12, 1.0)),
}


@pytest.mark.parametrize("name", MIXED)
def test_the_correlation_that_is_said_is_that_of_the_released_coordinates(name):
    """Where gradients of all coordinates were turned out it was -0.207 of noise whose neighbours have 0.89."""
    mixing, (apart, correlation) = MIXED[name]
    generator, rows = np.random.default_rng(8), DENSE["five directions"]
    noise = generator.standard_normal((2, 2000, 24)) @ mixing
    sides = rows[1:].sum(0) + noise + np.outer((0, 1), rows[0])[:, None]
    pair = mechanisms.neighbours_from_gradients(rows[1:], rows[0])
    (found,) = (answer for answer in diagnose(*sides, pair) if answer.code == "shared")
    said = re.match(r"coordinates (\d+) apart have correlation ([\d.-]+) on average", found.says)
    assert said, found.says
    assert int(said[1]) == apart
    assert float(said[2]) == pytest.approx(correlation, abs=0.01)
    # where batches move all coordinates, no number is that of the noise alone
    (found,) = (answer for answer in diagnose(*sides, pair, rate=None) if answer.code == "shared")
    assert found.says.startswith("noise that no gradient moves is correlated. ")


def test_outputs_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match="of 40 coordinates"):
        diagnose(np.zeros((5, 3)), np.zeros((5, 3)), PAIR, clip=CLIP, noise_multiplier=NOISE)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"clip": np.nan}, "clip must be > 0 and finite"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be > 0"),
        ({"rate": 2.0}, "rate must be in"),
    ],
)
def test_wrong_nominal_values_are_refused(words, message):
    outputs = right(np.random.default_rng(0), 0.0)
    with pytest.raises(ValueError, match=message):
        diagnose(outputs, outputs, PAIR, **{"clip": CLIP, "noise_multiplier": NOISE, **words})


def test_a_single_trial_is_refused():
    with pytest.raises(ValueError, match="two trials or more"):
        diagnose(np.zeros((1, WIDTH)), np.zeros((1, WIDTH)), PAIR)


def test_mechanisms_are_drawn_and_diagnosed():
    step = mechanisms.one_round(normalise_by="expected_batch", rate=0.5, clip=CLIP, noise_multiplier=NOISE)
    answers = diagnose_mechanism(step, PAIR, clip=CLIP, noise_multiplier=NOISE, rate=0.5, key=jax.random.key(3))
    assert [d.question for d in answers if d.wrong and not d.follows] == [RECORD]
    found = {d.question: d for d in answers}[REMARKS[0]]
    assert found.interval[0] < NOISE * CLIP / 2 < found.interval[1]


def test_foreign_code_is_drawn_and_diagnosed():
    step = mechanisms.callable_step(foreign.too_little_noise)
    found = diagnose_mechanism(step, PAIR, clip=foreign.CLIP, noise_multiplier=foreign.NOISE, key=jax.random.key(3))
    assert [d.question for d in found if d.wrong] == [OVER]
    assert found[0].interval[0] < 0.5 < found[0].interval[1]


WIDE_STEPS = mechanisms.neighbours_from_gradients(np.eye(1, 20) * -np.ones((4, 1)), np.eye(1, 20)[0])


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("step", "says"),
    [
        (faulty_steps.key_reused_across_steps, "coordinates 10 apart have correlation"),
        (faulty_steps.key_reused_across_parameters, "100.0% of the noise is common to all coordinates"),
    ],
)
def test_reused_keys_of_the_zoo_are_found(step, says):
    found = diagnose_mechanism(mechanisms.mechanism(step), WIDE_STEPS, key=jax.random.key(4))
    assert says in found[0].says
    assert [d.question for d in found if d.wrong and not d.follows] == [SHARED]


@pytest.mark.few(1)
@pytest.mark.parametrize("step", [faulty_steps.every_step, faulty_steps.whole_dataset])
def test_their_right_twins_are_not_accused(step):
    found = diagnose_mechanism(mechanisms.mechanism(step), WIDE_STEPS, key=jax.random.key(4), risk=FALSE_FAILURE)
    assert not any(d.wrong for d in found)


def test_too_little_time_for_twenty_trials_is_said():
    step = mechanisms.callable_step(foreign.noisy_sum)
    with pytest.raises(TimeoutError, match="after 0 trials per side"):
        diagnose_mechanism(step, PAIR, key=jax.random.key(3), deadline=0.0)


def test_batches_that_give_no_update_are_no_grain():
    outputs = np.random.default_rng(0).normal(size=(2000, 30)).astype(np.float32)
    outputs[::40] = 0.0
    assert not distribution.grained(outputs, 1.0, risk=1e-3).wrong
    assert distribution.grained(np.round(outputs, 2), 1.0, risk=1e-3).wrong


def test_sums_of_cut_noise_are_said_to_be_cut_and_noise_of_few_numbers_is_not():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(400, 20, 3)).astype(np.float32)
    cut = distribution.grained(noise.clip(-0.5, 0.5).sum(-1), 1.0, risk=1e-3)
    assert cut.wrong
    assert cut.causes[0] == "cut"
    few = distribution.grained(rng.choice(noise.ravel()[:700], (400, 20)), 1.0, risk=1e-3)
    assert few.wrong
    assert few.causes[0] == "coarse_noise"


def test_gradients_that_the_step_tells_are_read():
    """A dict of arrays was no array of gradients, though the step had gradients=."""

    def release(seed, data):
        noise = np.random.default_rng(seed).standard_normal(4)
        return data["x"].sum(axis=0) + 0.1 * noise

    step = mechanisms.callable_step(release, gradients=lambda data: data["x"])
    pair = mechanisms.add_record({"x": np.zeros((2, 4), np.float32)}, {"x": np.eye(1, 4, dtype=np.float32)[0]})
    found = diagnose_mechanism(step, pair, clip=1.0, noise_multiplier=1.0, trials=100, key=jax.random.key(3))
    assert [d.question for d in found if d.wrong and not d.follows] == [OVER]
