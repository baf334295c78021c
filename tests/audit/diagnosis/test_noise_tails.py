import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import FALSE_FAILURE, assert_rate_at_most

import guarantees
import mechanisms
from audit.diagnosis import noise_tails as tails
from audit.diagnosis.noise_tails import Counted, count_beyond, noise_tails
from audit.trials.keys import trial_keys, trial_number
from mechanisms.randomness.noise import normal

NOISE, WIDTH, END = 0.5, 50_001, 3.0
PAIR = mechanisms.worst_case_pair(records=1, dimension=WIDTH, clip=1.0, shared=0.0, relation="zero_out")
CLAIM = guarantees.gaussian(mu=1 / NOISE)


def right(key, gradients):
    return gradients.sum(0) + NOISE * normal(key, gradients.shape[1:])


def cut(key, gradients):
    drawn = normal(key, gradients.shape[1:])
    return gradients.sum(0) + NOISE * jnp.where(jnp.abs(drawn) < END, drawn, 0.0)


def foreign_cut(seed, gradients):
    drawn = np.random.default_rng(seed).standard_normal(gradients.shape[1])
    return gradients.sum(0) + NOISE * np.where(np.abs(drawn) < END, drawn, 0.0)


def found(step, draws=1_000_000, **more):
    options = {"claim": CLAIM, "clip": 1.0, "noise_multiplier": NOISE, "key": jax.random.key(5), "thresholds": (END,)}
    return noise_tails(step, PAIR, draws=draws, **{**options, **more})


@pytest.mark.few(1)
@pytest.mark.parametrize("step", [mechanisms.mechanism(cut), mechanisms.callable_step(foreign_cut)])
def test_noise_that_ends_is_found_and_leaks_at_the_claimed_epsilon(step):
    answer = found(step)
    assert answer.ends
    assert answer.largest < END < answer.typical_largest
    assert answer.points[0].beyond == 0
    assert answer.delta > answer.claimed_delta
    # delta is at most P(X > END - 2) of noise that never passes END, and the bound is not far below it
    assert 0.05 < answer.delta < answer.points[0].delta_if_it_ends < 0.16
    assert "the noise ends too early" in answer.says


@pytest.mark.long
def test_right_noise_is_not_accused():
    answer = found(mechanisms.mechanism(right), thresholds=(3.0, 4.0), risk=2 * FALSE_FAILURE)
    assert not answer.ends
    assert answer.delta <= answer.claimed_delta
    assert answer.claimed_delta == pytest.approx(1e-5, rel=1e-3)


@pytest.mark.long
def test_a_divisor_sets_the_unit():
    halved = found(mechanisms.mechanism(lambda key, rows: right(key, rows) / 4), divisor=4.0, risk=2 * FALSE_FAILURE)
    assert not halved.ends
    assert halved.largest == pytest.approx(found(mechanisms.mechanism(right)).largest, rel=1e-6)


@pytest.mark.long
def test_a_sampled_record_leaks_less():
    whole, half = found(mechanisms.mechanism(cut)), found(mechanisms.mechanism(cut), rate=0.5)
    assert half.points[0].delta_if_it_ends == pytest.approx(whole.points[0].delta_if_it_ends / 2)
    assert half.delta < whole.delta / 2


def test_streamed_counts_are_those_of_all_outputs_together(monkeypatch):
    small = mechanisms.worst_case_pair(records=1, dimension=101, clip=1.0, shared=0.0, relation="zero_out")
    monkeypatch.setattr(tails, "CHUNK_ENTRIES", 303)
    key, levels = jax.random.key(2), np.array([0.1, 0.9])
    streamed = count_beyond(mechanisms.mechanism(right), small, levels, draws=1000, key=key)
    assert streamed.draws == 1200
    data = small.without.dense()
    outputs = np.stack([right(trial_keys(key, trial_number(trial)).release, data) for trial in range(12)])[:, 1:]
    assert streamed.beyond == tuple(int((outputs > level).sum()) for level in levels.astype(np.float32))
    assert streamed.largest == pytest.approx(outputs.max(), rel=1e-6)


def counted(generator, draws, levels):
    drawn = generator.standard_normal(draws)
    return Counted(
        draws=draws, beyond=tuple(int((drawn > level).sum()) for level in levels), largest=float(drawn.max())
    )


def test_p_values_of_normal_noise_are_rarely_small():
    generator, levels = np.random.default_rng(3), np.array([2.0, 2.5])
    values = np.array([tails._p_value(counted(generator, 5000, levels), 1.0, levels) for _ in range(1000)])
    for level in (0.01, 0.05, 0.2):
        assert_rate_at_most(int((values <= level).sum()), len(values), level)


def test_the_bound_on_delta_rarely_exceeds_the_truth():
    generator, epsilon, rate, level, runs = np.random.default_rng(4), 0.5, 0.7, 1.5, 1000
    upper, lower = jax.scipy.stats.norm.sf(np.array([level, level - 1.0]))
    truth = rate * float(lower) - (np.expm1(epsilon) + rate) * float(upper)

    def bound():
        one = counted(generator, 2000, (level, level - 1.0))
        return tails._points(one, (level,), epsilon=epsilon, rate=rate, risk=0.05)[0].delta

    bounds = np.array([bound() for _ in range(runs)])
    assert_rate_at_most(int((bounds > truth).sum()), runs, 0.05)
    assert bounds.mean() > truth / 2


def test_pairs_and_arguments_that_cannot_be_used_are_refused():
    generator = np.random.default_rng(5)
    turned = mechanisms.neighbours_from_gradients(generator.normal(size=(2, 30)), generator.normal(size=30))
    with pytest.raises(ValueError, match="along the first coordinates"):
        count_beyond(mechanisms.mechanism(right), turned, np.array([1.0]), draws=10, key=jax.random.key(0))
    with pytest.raises(ValueError, match="draws must be an integer >= 1"):
        found(mechanisms.mechanism(right), draws=0)
    with pytest.raises(ValueError, match="thresholds must be numbers > 0"):
        found(mechanisms.mechanism(right), thresholds=())


@pytest.mark.long
def test_outputs_that_are_not_finite_or_of_another_length_are_refused():
    for value in (0.0, -0.0):
        with pytest.raises(ValueError, match="not finite"):
            found(mechanisms.mechanism(lambda key, rows, value=value: jnp.abs(right(key, rows)) / value), draws=10)
    with pytest.raises(ValueError, match="as many coordinates as the pair"):
        found(mechanisms.mechanism(lambda key, rows: jnp.repeat(right(key, rows), 2)), draws=10)


@pytest.mark.long
def test_a_claim_of_enormous_epsilon_gives_no_delta():
    assert found(mechanisms.mechanism(right), draws=1000, claim=guarantees.gaussian(mu=100.0)).delta == 0.0


@pytest.mark.long
def test_float32_normals_of_jax_end_and_ours_do_not():
    pair = mechanisms.worst_case_pair(records=1, dimension=10**6, clip=1.0, shared=0.0, relation="zero_out")

    def tails_of(step, risk):
        given = {"claim": CLAIM, "clip": 1.0, "noise_multiplier": NOISE, "key": jax.random.key(6)}
        return noise_tails(step, pair, draws=300_000_000, risk=risk, **given)

    def by_jax(key, gradients):
        return gradients.sum(0) + NOISE * jax.random.normal(key, gradients.shape[1:], jnp.float32)

    found = tails_of(mechanisms.mechanism(by_jax), 0.05)
    assert found.delta > found.claimed_delta
    assert tails_of(mechanisms.mechanism(by_jax), 2 * FALSE_FAILURE).ends
    ours = tails_of(mechanisms.mechanism(right), 2 * FALSE_FAILURE)
    assert not ours.ends
    assert ours.delta <= ours.claimed_delta
