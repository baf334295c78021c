"""Faulty steps are found at their lines, and nothing is said about right ones."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from diagnosis import jax_styles, recorded, replayed, strangers
from diagnosis.replayed import CLIP, FAULTY, NOISE, RIGHT

import mechanisms
from audit.diagnosis.explain import Kind, explain
from mechanisms.simulators.one_round import one_round

KEY = jax.random.key(3)


def told(step, pair=None, multiplier=NOISE):
    return explain(step, pair or replayed.added(), key=KEY, noise_multiplier=multiplier)


def zeroed():
    """Two datasets of one size, the record not the last."""
    return mechanisms.zero_out(replayed.rows(8), 3, null=(np.zeros(replayed.WIDTH, np.float32), np.float32(0)))


@pytest.mark.few(4)
@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_step_is_found_at_its_line(name):
    step, kind = FAULTY[name]
    found = told(step).findings
    assert [one.kind for one in found][:1] == [kind], found
    lines = {line for path, line in found[0].lines if path == replayed.__file__}
    assert replayed.marked_lines(step) <= lines or replayed.marked_lines(step) & lines, (found[0], lines)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_said_about_a_right_step(name):
    explanation = told(RIGHT[name])
    assert explanation.findings == (), explanation.findings[0].says
    assert explanation.rounds
    assert min(one.multiplier for one in explanation.rounds) == pytest.approx(NOISE, rel=0.02)


@pytest.mark.few(1)
@pytest.mark.parametrize("pair", [replayed.added, zeroed])
@pytest.mark.parametrize("step", jax_styles.RIGHT, ids=lambda step: step.__name__)
def test_nothing_is_said_about_a_right_step_in_another_style(step, pair):
    explanation = told(step, pair())
    assert explanation.findings == (), explanation.findings[0].says
    assert explanation.rounds


@pytest.mark.few(2)
@pytest.mark.parametrize("step", replayed.EQUAL_SIZES, ids=lambda step: step.__name__)
def test_nothing_is_said_about_a_right_step_on_datasets_of_one_size(step):
    pair = zeroed()
    explanation = told(step, pair)
    assert explanation.findings == (), explanation.findings[0].says
    assert explanation.rounds


@pytest.mark.few(2)
@pytest.mark.parametrize("records", [8, 9])
@pytest.mark.parametrize("name", ["pairs_clipped_in_a_padded_batch", "groups_clipped_in_a_loop"])
def test_groups_that_are_clipped_together_are_found_wherever_the_record_stands(name, records):
    x, y = replayed.rows(records)
    step, kind = FAULTY[name]
    (found,) = told(step, mechanisms.pair((x[:-1], y[:-1]), (x, y), relation="add_remove")).findings
    assert found.kind == kind, found.says
    assert replayed.marked_lines(step) <= {line for path, line in found.lines if path == replayed.__file__}


def test_the_factors_of_empty_places_hide_no_clipping():
    """They are a billion times those of records: beside them every difference was taken for rounding."""
    x, y = replayed.rows()
    pair = mechanisms.replace_record((x, y), 3, (-3 * x[3], y[3] + 5))
    assert told(RIGHT["clipped_records_in_padded_groups"], pair).findings == ()


def test_mixing_is_found_on_datasets_of_one_size():
    pair = zeroed()
    assert [one.kind for one in told(FAULTY["normalised_over_the_batch"][0], pair).findings] == [
        Kind.RECORDS_MIXED_BEFORE_SUM
    ]


def test_the_record_need_not_be_the_last():
    x, y = replayed.rows()
    order = np.r_[0:3, 8, 3:8]
    pair = mechanisms.pair((x[:-1], y[:-1]), (x[order], y[order]), relation="add_remove")
    pair = type(pair)(without=pair.without, with_record=pair.with_record, relation="add_remove", index=3)
    assert told(RIGHT["poisson_rounds"], pair).findings == ()


def test_a_batch_that_n_and_n_plus_one_records_draw_differently_is_not_judged():
    assert [one.kind for one in told(replayed.batch_of_fixed_size).findings] == [Kind.NOT_FOLLOWED]


def test_a_loop_whose_length_depends_on_the_data_is_not_judged_and_named():
    def shrunk(key, data):
        total = replayed.gradients(replayed.WEIGHTS, data).sum(0)
        total = jax.lax.while_loop(lambda x: jax.numpy.linalg.norm(x) > CLIP, lambda x: 0.9 * x, total)
        return total + replayed.noise(key)

    (found,) = told(shrunk).findings
    assert found.kind == Kind.NOT_FOLLOWED
    assert found.lines[0][0] == __file__


def test_what_a_release_costs_is_exact():
    (first,) = told(RIGHT["whole_dataset"]).rounds
    assert (first.sensitivity, first.noise_deviation, first.exact) == (
        pytest.approx(CLIP, rel=1e-5),
        pytest.approx(CLIP * NOISE, rel=1e-5),
        True,
    )


@pytest.mark.parametrize("divisor", ["none", "expected_batch"])
def test_a_simulator_of_ours_is_followed(divisor):
    step = one_round(normalise_by=divisor, rate=0.5, clip=1.0, noise_multiplier=2.0)
    explanation = told(step, mechanisms.worst_case_pair(records=4, dimension=5, clip=1.0), 2.0)
    kinds = [one.kind for one in explanation.findings]
    assert kinds == ([] if divisor == "none" else [Kind.CHANGED_AFTER_RELEASE])
    assert explanation.rounds[0].multiplier == pytest.approx(2.0, rel=0.01)


def test_a_training_of_poisson_batches_is_followed_to_the_users_own_line():
    def update(key, state, batch, mask):
        rows = replayed.clipped(replayed.gradients(state, batch))
        noisy = mask @ rows + replayed.noise(key) / 2  # BUG
        return state - replayed.STEP * noisy, noisy

    training = mechanisms.jax_training(
        lambda key: replayed.WEIGHTS, update, mechanisms.sampling.poisson(rate=0.7, steps=2), steps=2
    )
    explanation = told(training)
    (found,) = explanation.findings
    assert found.kind == Kind.TOO_LITTLE_NOISE
    assert replayed.marked_lines(update) <= {line for path, line in found.lines if path == __file__}
    assert [one.multiplier for one in explanation.rounds] == pytest.approx([NOISE / 2] * 2, rel=1e-3)


def test_a_substituted_record_may_move_the_sum_by_twice_the_clipping_norm():
    x, y = replayed.rows()
    pair = mechanisms.replace_record((x, y), 8, (x[8], -y[8]))
    (first,) = told(replayed.whole_dataset, pair).rounds
    assert first.sensitivity == pytest.approx(2 * CLIP, rel=1e-3)
    assert told(replayed.whole_dataset, pair).findings == ()


def test_jax_privacy_is_followed_but_for_its_sampler():
    pytest.importorskip("jax_privacy")
    step = mechanisms.jax_privacy_step(rate=0.5, clip=1.0, noise_multiplier=2.0, normalise_by=3.0)
    leaking = mechanisms.jax_privacy_step(rate=0.5, clip=1.0, noise_multiplier=2.0, normalise_by="expected_batch")
    pair = mechanisms.worst_case_pair(records=4, dimension=5, clip=1.0)
    assert told(step, pair, 2.0).findings == ()
    assert told(leaking, pair, 2.0).findings[0].kind in (Kind.NOISE_SCALE_FROM_DATA, Kind.RECORDS_MIXED_BEFORE_SUM)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_optax_is_followed_on_a_batch_of_all_records(rate):
    step = mechanisms.optax_step(clip=1.0, noise_multiplier=2.0, rate=rate)
    zeroed = mechanisms.worst_case_pair(records=4, dimension=5, clip=1.0, relation="zero_out")
    assert told(step, zeroed, 2.0).findings == ()
    (found,) = told(step, mechanisms.worst_case_pair(records=4, dimension=5, clip=1.0), 2.0).findings
    assert found.kind == Kind.CHANGED_AFTER_RELEASE
    assert found.lines[0][0].endswith("optax/contrib/_privacy.py")


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("microbatch", [None, 2])
def test_a_plan_of_jax_privacy_is_followed(microbatch):
    pytest.importorskip("jax_privacy")
    from jax_privacy.experimental import execution_plan

    def loss(weights, batch):
        return replayed.loss(weights, batch[0][0], batch[1][0])

    def training(multiplier):
        plan = execution_plan.BandMFExecutionPlanConfig(
            iterations=2,
            strategy=[1.0],
            sampling_prob=0.5,
            noise_multiplier=multiplier,
            epsilon=None,
            delta=None,
            l2_clip_norm=CLIP,
        )
        given = {} if microbatch is None else {"microbatch_size": microbatch}
        return mechanisms.jax_privacy_training(plan, loss, replayed.WEIGHTS, optax.sgd(0.1), arguments=given)

    right = told(training(NOISE), zeroed() if microbatch else None)
    assert right.findings == ()
    assert min(one.multiplier for one in right.rounds) == pytest.approx(NOISE, rel=0.02)
    assert [one.kind for one in told(training(NOISE / 2), zeroed()).findings] == [Kind.TOO_LITTLE_NOISE]


def equal_lengths():
    """Rows that are all as long as the clipping norm: with one more the median of their lengths is the same."""
    rows = np.random.default_rng(1).normal(size=(6, replayed.WIDTH)).astype(np.float32)
    rows *= CLIP / np.linalg.norm(rows, axis=1, keepdims=True)
    return mechanisms.pair(rows[:-1], rows, relation="add_remove")


@pytest.mark.parametrize("bound", [np.median, np.max, np.mean], ids=lambda bound: bound.__name__)
def test_a_bound_that_the_data_tell_is_found_among_records_of_one_length(bound):
    def step(key, rows):
        lengths = jax.numpy.linalg.norm(rows, axis=1)
        return replayed.clipped(rows, getattr(jax.numpy, bound.__name__)(lengths)).sum(0) + replayed.noise(key)  # BUG

    found = told(step, equal_lengths()).findings[0]
    assert found.kind == (Kind.RECORDS_MIXED_BEFORE_SUM if bound is not np.max else Kind.NOT_CLIPPED), found.says
    assert replayed.marked_lines(step) <= {line for path, line in found.lines if path == __file__}


def images():
    x = 2 * jax.random.normal(jax.random.key(5), (6, 6))
    y = jax.numpy.array([0, 1, 2, 0, 1, 2])
    return mechanisms.pair((x[:5], y[:5]), (x, y), relation="add_remove")


@pytest.mark.few(1)
@pytest.mark.parametrize("step", strangers.STEPS, ids=lambda step: step.__name__)
def test_a_step_of_a_strangers_is_found_and_its_right_twin_is_not(step):
    def explained(right):
        own = functools.partial(step, right=right)
        return explain(own, images(), key=KEY, clip=strangers.CLIP, noise_multiplier=strangers.NOISE)

    found, *others = explained(right=False).findings
    assert not others
    assert replayed.marked_lines(step) & {line for path, line in found.lines if path == strangers.__file__}
    assert explained(right=True).findings == ()


@pytest.mark.few(3)
@pytest.mark.parametrize("step", recorded.STEPS, ids=lambda step: step.__name__)
def test_examples_of_dp_recorders_need_no_decorators(step):
    without, with_record, relation = recorded.STEPS[step]
    pair = mechanisms.Neighbours(without=without, with_record=with_record, relation=relation)
    findings = told(step, pair, 2**0.5).findings
    if step is recorded.right_count:
        assert findings == ()
        return
    # how many classes there are depends on the data, which JAX does not trace: not judged, at the line
    assert (findings[0].kind == Kind.NOT_FOLLOWED) == (step is recorded.classes_of_the_data)
    assert replayed.marked_lines(step) & {line for path, line in findings[0].lines if path == recorded.__file__}


def bare_bias_twice(key, rows):
    weights, bias = jnp.zeros(3), jnp.zeros(())
    for own in jax.random.split(key):
        slopes = jax.vmap(jax.grad(lambda p, x: (jnp.tanh(x @ p[0] + p[1]) - x[0]) ** 2), (None, 0))
        rise, lift = slopes((weights, bias), rows)
        factor = jnp.minimum(1, 1 / jnp.maximum(jnp.sqrt((rise**2).sum(1) + lift**2), 1e-9))
        weights = weights - 3 * ((rise * factor[:, None]).sum(0) + jax.random.normal(own, (3,)))
        bias = bias - 3 * (lift * factor).sum()
    return {"weights": weights, "bias": bias}


def test_what_a_bias_without_noise_does_to_the_next_step_is_no_finding_of_its_own():
    rows = np.random.default_rng(0).normal(size=(6, 3)).astype("f4")
    neighbours = mechanisms.Neighbours(without=rows[:-1], with_record=rows, relation="add_remove")
    (told,) = explain(bare_bias_twice, neighbours, key=jax.random.key(0), noise_multiplier=1.0).findings
    assert told.kind == "released_without_noise"
    assert told.lines[0] == (__file__, bare_bias_twice.__code__.co_firstlineno + 7)


@pytest.mark.parametrize(
    ("names", "also"),
    [
        ("abcd", "['b'], ['c'], ['d']"),
        ("abcdef", "['b'], ['c'], ['d'], ['e'], ['f']"),
        ("abcdefg", "['b'], ['c'], ['d'], ['e'], 2 more"),
    ],
)
def test_outputs_that_one_line_releases_without_noise_are_one_finding(names, also):
    def step(key, data):
        del key
        rows = data[0] / jnp.maximum(1.0, jnp.linalg.norm(data[0], axis=1, keepdims=True) / CLIP)
        return {name: rows[:, 0].sum() + 0 * place for place, name in enumerate(names)}

    (found,) = told(step).findings
    assert found.kind == Kind.RELEASED_WITHOUT_NOISE
    assert found.says.startswith(f"The leaf ['a'] of the output (also {also}) is released without noise")


def test_noise_times_zero_covers_nothing_and_is_no_second_use_of_a_key():
    def step(key, data):
        rows = data[0] / jnp.maximum(1.0, jnp.linalg.norm(data[0], axis=1, keepdims=True) / CLIP)
        total = rows.sum(0)
        noise = NOISE * CLIP * jax.random.normal(key, (2, replayed.WIDTH))
        return {"weights": total + noise[0], "bias": total + 0.0 * noise[1]}

    found = told(step).findings
    assert [one.kind for one in found] == [Kind.RELEASED_WITHOUT_NOISE], found
    assert "bias" in found[0].says


def test_noise_that_is_repeated_says_how_often_and_in_which_rounds():
    def broadcast(key, data):
        total = jnp.outer(jnp.arange(3.0), replayed.clipped(replayed.gradients(replayed.WEIGHTS, data)).sum(0))
        return total + jnp.sqrt(3) * replayed.noise(key)

    def same_key_in_every_step(key, data):
        weights = replayed.WEIGHTS
        for _ in range(2):
            noisy = replayed.clipped(replayed.gradients(weights, data)).sum(0) + replayed.noise(key)
            weights = weights - replayed.STEP * noisy
        return weights

    assert f"({replayed.WIDTH} numbers for {3 * replayed.WIDTH} coordinates)" in told(broadcast).findings[0].says
    assert "(rounds 1 and 2;" in told(same_key_in_every_step).findings[0].says


COARSE = [
    pytest.param(lambda noise: (8 * noise).astype(jnp.int8), id="whole numbers"),
    pytest.param(lambda noise: jnp.float32(3.0) * noise.astype(jnp.bfloat16), id="bfloat16, scaled later"),
    pytest.param(
        lambda noise: 3 * noise.astype(jnp.float8_e4m3fn).astype(jnp.float32), id="eight bits", marks=pytest.mark.long
    ),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("coarse", COARSE)
def test_numbers_of_few_bits_that_agree_by_chance_are_no_second_use_of_a_key(coarse):
    def step(key, data):
        rows = data[0][:, :2] / jnp.maximum(1.0, jnp.linalg.norm(data[0][:, :2], axis=1, keepdims=True) / CLIP)
        noise = NOISE * CLIP * jax.random.normal(key, (40, 2))
        return [rows.sum(0)[number % 2] * (1 + number) / 40 + coarse(own) for number, own in enumerate(noise[:, 0])]

    assert Kind.KEY_USED_TWICE not in {found.kind for found in told(step).findings}


def test_a_loss_that_cannot_be_differentiated_is_refused_as_in_an_audit():
    training = mechanisms.jax_training(
        lambda key: jnp.zeros(3),
        lambda key, weights, batch, mask: (weights, jnp.sum(mask[:, None] * batch, 0)),
        mechanisms.sampling.poisson(rate=0.5, steps=1),
        steps=1,
        loss=lambda weights, record: weights,
    )
    pair = mechanisms.add_record(np.ones((3, 3), np.float32), np.ones(3, np.float32))
    with pytest.raises(TypeError, match="cannot be differentiated"):
        explain(training, pair, key=KEY)
