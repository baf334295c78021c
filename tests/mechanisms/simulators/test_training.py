"""Many rounds: the transcript has the law of its batches, in full and in sufficient statistics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import assert_has_law, assert_same_law
from scipy import stats

import mechanisms
from mechanisms import sampling

KEY = jax.random.key(77)
CLIP, NOISE = 0.5, 0.8
PAIR = mechanisms.worst_case_pair(records=5, dimension=3, clip=CLIP, shared=-1.0, relation="zero_out")
SAMPLERS = [
    sampling.poisson(rate=0.4, steps=3),
    sampling.truncated_poisson(rate=0.6, steps=3, most=3),
    sampling.shuffle(batch_size=2),
    sampling.deterministic(batch_size=2),
    sampling.fixed_size(batch_size=2, steps=3),
    sampling.balls_and_bins(steps=3),
    sampling.shuffle_buffer(batch_size=2, buffer=3, position=1),
]


def draw(step, dataset, count=3000):
    data = dataset if step.reads_tables else dataset.dense()
    keys = jax.vmap(jax.random.fold_in, (None, 0))(KEY, jnp.arange(count))
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda key: step(key, data)))(keys))


def training(sampler, **settings):
    return mechanisms.many_rounds(sampler=sampler, clip=CLIP, noise_multiplier=NOISE, **settings)


FEW = ("shuffle-updates", "poisson-isolated")
CASES = [(sampler, sees) for sampler in SAMPLERS for sees in ("updates", "isolated")]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("sampler", "sees"),
    [
        pytest.param(*case, id=name, marks=[] if name in FEW else [pytest.mark.long])
        for case, name in ((case, f"{case[0].name}-{case[1]}") for case in CASES)
    ],
)
def test_statistics_have_the_law_of_the_full_transcript(sampler, sees):
    step = training(sampler, sees=sees)
    full = draw(step, PAIR.with_record)
    statistics = draw(step.collapsed(), PAIR.with_record)
    assert full.shape == (3000, step.rounds(6), 3)
    assert statistics.along.shape == (3000, step.rounds(6), 1)
    for t in range(step.rounds(6)):
        assert_same_law(full[:, t, 0], statistics.along[:, t, 0])
    # rounds depend on each other through the record's place: compare a joint statistic too
    assert_same_law(full[..., 0].max(axis=1), statistics.along[..., 0].max(axis=1))
    assert_same_law(full[..., 0].sum(axis=1), statistics.along[..., 0].sum(axis=1))


@pytest.mark.long
@pytest.mark.parametrize("sees", ["updates", "isolated"])
@pytest.mark.parametrize("sampler", [sampling.poisson(rate=0.4, steps=3), sampling.deterministic(batch_size=4)])
def test_statistics_count_a_group(sampler, sees):
    pair = mechanisms.worst_case_pair(records=5, dimension=3, clip=CLIP, relation="zero_out", group=3)
    step = training(sampler, sees=sees, group=3)
    full, statistics = draw(step, pair.with_record), draw(step.collapsed(), pair.with_record)
    for t in range(step.rounds(8)):
        assert_same_law(full[:, t, 0], statistics.along[:, t, 0])
    with pytest.raises(ValueError, match="the same group"):
        training(sampler).collapsed()(KEY, pair.with_record)


@pytest.mark.long
def test_a_wrong_place_would_be_seen():
    right = draw(training(sampling.shuffle(batch_size=2)).collapsed(), PAIR.with_record)
    wrong = draw(training(sampling.deterministic(batch_size=2)).collapsed(), PAIR.with_record)
    with pytest.raises(AssertionError):
        assert_same_law(right.along[:, 0, 0], wrong.along[:, 0, 0])


@pytest.mark.long
def test_coordinates_that_no_gradient_moves_carry_the_noise_alone():
    full = draw(training(sampling.shuffle(batch_size=2)), PAIR.with_record)
    assert_has_law(full[..., 1:].ravel(), stats.norm(scale=NOISE * CLIP).cdf)


@pytest.mark.long
def test_the_final_weights_are_the_sum_of_the_updates():
    for sampler in (SAMPLERS[0], SAMPLERS[2]):
        step = training(sampler, releases="final")
        full = draw(step, PAIR.with_record)
        statistics = draw(step.collapsed(), PAIR.with_record)
        assert full.shape == (3000, 3)
        assert_same_law(full[:, 0], statistics.along[:, 0])
        assert_same_law((full[:, 1:] ** 2).mean(axis=1), statistics.rest)
    np.testing.assert_allclose(
        draw(training(SAMPLERS[2]), PAIR.with_record, 50).sum(axis=1),
        draw(training(SAMPLERS[2], releases="final"), PAIR.with_record, 50),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.long
def test_an_epoch_draws_its_own_order_unless_told_to_keep_it():
    seen = {}
    for same in (False, True):
        step = training(sampling.shuffle(batch_size=1, same_order=same), epochs=2, sees="isolated").collapsed()
        quiet = mechanisms.many_rounds(
            sampler=step.sampler, clip=CLIP, noise_multiplier=1e-6, epochs=2, sees="isolated"
        ).collapsed()
        places = np.argmax(draw(quiet, PAIR.with_record, 500).along.reshape(500, 2, 6), axis=2)
        seen[same] = np.mean(places[:, 0] == places[:, 1])
    assert seen[True] == 1.0
    assert stats.binomtest(round(seen[False] * 500), 500, 1 / 6).pvalue > 1e-6


def test_a_query_reads_what_was_released_before():
    def follows(history, number, records):
        # the next gradient is the last update itself: everything released feeds back
        last = jnp.where(number > 0, history[number - 1], 1.0)
        return jnp.broadcast_to(last, records.shape)

    step = training(sampling.deterministic(batch_size=6), epochs=3, query=follows)
    out = draw(step, PAIR.with_record, 200)
    assert out.shape == (200, 3, 3)
    norms = np.linalg.norm(out[:, 0], axis=1, keepdims=True)
    expected = 6 * out[:, 0] * np.minimum(1.0, CLIP / norms)
    assert_has_law((out[:, 1] - expected).ravel(), stats.norm(scale=NOISE * CLIP).cdf)


@pytest.mark.long
def test_repeated_steps_are_independent_and_each_has_the_law_of_one():
    step = mechanisms.one_round(normalise_by="expected_batch", rate=0.5, clip=CLIP, noise_multiplier=NOISE)
    many = draw(mechanisms.repeated(step=step, times=4), PAIR.with_record)
    one = draw(step, PAIR.with_record)
    assert many.shape == (3000, 4, 3)
    assert_same_law(many[:, 2, 0], one[:, 0])
    assert abs(np.corrcoef(many[:, 0, 1], many[:, 1, 1])[0, 1]) < 0.1
    assert mechanisms.repeated(step=step, times=4).collapsed().kind == "collapsed_transcript"


def test_a_sampler_may_be_a_table_as_in_a_suite():
    step = training({"kind": "shuffle", "batch_size": 2})
    assert step.sampler == sampling.shuffle(batch_size=2)
    assert mechanisms.many_rounds(**step.parameters) == step


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampler": {"kind": "shufle", "batch_size": 2}}, "sampler must be a table whose kind is one of"),
        ({"sampler": {"kind": "shuffle", "size": 2}}, "sampler 'shuffle' has no 'size'; it takes batch_size"),
        ({"sampler": "shuffle"}, 'sampler = { kind = "shuffle", batch_size = ... }'),
        ({"sampler": {"kind": "poisson", "rate": 0.1}}, "sampler 'poisson' needs steps: sampler = { kind"),
        ({"sampler": SAMPLERS[0], "epochs": 0}, "epochs must be"),
        ({"sampler": SAMPLERS[0], "sees": "all"}, "sees must be one of"),
        ({"sampler": SAMPLERS[0], "releases": "update"}, "releases must be transcript or final"),
    ],
)
def test_bad_trainings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.many_rounds(clip=1.0, noise_multiplier=1.0, **settings)
