import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compilations

import audit
import distinguishers
import guarantees
import mechanisms
from audit.trials import programs, traced
from audit.trials.source import WrongCountsError, complete
from mechanisms.simulators.one_round import OneRound
from mechanisms.simulators.training import ManyRounds
from mechanisms.structure import is_structured, next_power, round_up

EDGES = np.linspace(-3, 3, 13, dtype=np.float32)[None]
KEY = jax.random.key(5)


def audited(step, pair, distinguisher, claim, *, seed=0, trials=2000):
    return audit.run_audit(
        step, pair, distinguisher, claim=claim, trials=trials, risk=0.05, key=jax.random.key(seed), diagnose=False
    )


def collapsed(rate, noise, records, dimension):
    pair = mechanisms.worst_case_pair(records=records, dimension=dimension, clip=0.1)
    step = mechanisms.one_round(normalise_by="expected_batch", rate=rate, clip=0.1, noise_multiplier=noise).collapsed()
    claim = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=noise)
    return audited(step, pair, distinguishers.likelihood_ratio(step, pair), claim)


def full(rate, noise, clip):
    pair = mechanisms.worst_case_pair(records=4, dimension=30, clip=clip)
    step = mechanisms.one_round(normalise_by="realised_batch", rate=rate, clip=clip, noise_multiplier=noise)
    claim = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=noise)
    return audited(step, pair, distinguishers.likelihood_ratio(step, pair), claim)


def textbook(noise):
    pair = mechanisms.scalar_pair()
    step = mechanisms.gaussian_mechanism(noise_multiplier=noise)
    return audited(step, pair, distinguishers.likelihood_ratio(step, pair), guarantees.gaussian(mu=1 / noise))


def scored_without_a_model(rate, noise):
    pair = mechanisms.worst_case_pair(records=4, dimension=30, clip=0.5)
    step = mechanisms.one_round(normalise_by="none", rate=rate, clip=0.5, noise_multiplier=noise)
    claim = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=noise)
    return audited(step, pair, distinguishers.projection(pair), claim)


def shuffled(noise, clip):
    pair = mechanisms.worst_case_pair(records=9, dimension=1, clip=clip, relation="zero_out")
    sampler = mechanisms.sampling.shuffle(batch_size=1)
    step = mechanisms.many_rounds(sampler=sampler, clip=clip, noise_multiplier=noise, sees="isolated").collapsed()
    claim = guarantees.gaussian(mu=1 / noise, relation="zero_out")
    return audited(step, pair, distinguishers.likelihood_ratio(step, pair), claim)


@pytest.mark.long
@pytest.mark.parametrize(
    ("run", "first", "second"),
    [
        (scored_without_a_model, (0.3, 1.0), (0.4, 2.0)),
        (collapsed, (0.01, 2.0, 20_000, 200_000), (0.02, 3.0, 30_001, 150_000)),
        (full, (0.3, 1.0, 0.1), (0.4, 2.0, 0.2)),
        (textbook, (1.0,), (2.0,)),
        (shuffled, (1.0, 0.5), (1.5, 1.0)),
    ],
)
def test_a_second_audit_with_other_numbers_compiles_nothing(run, first, second):
    one = run(*first)
    with compilations() as again:
        two = run(*second)
    assert (again.compiled, again.traced) == (0, 0)
    assert two.points != one.points


def test_both_sides_share_one_program():
    pair = mechanisms.worst_case_pair(records=6, dimension=17, clip=0.1)
    step = mechanisms.one_round(normalise_by="none", rate=0.3, clip=0.1, noise_multiplier=1.0)
    ratio = distinguishers.likelihood_ratio(step, pair)
    sides = [
        traced.compile_program(step, dataset, ratio, side=side).source(KEY)
        for side, dataset in (("without", pair.without), ("with", pair.with_record))
    ]
    with compilations() as first:
        sides[0].cells(0, 100, EDGES)
    with compilations() as second:
        sides[1].cells(0, 100, EDGES)
    assert first.compiled >= 1
    assert (second.compiled, second.traced) == (0, 0)


SIGMA = 1.0


def users_step(key, gradients):
    return gradients.sum(0) + SIGMA * jax.random.normal(key, gradients.shape[1:])


def users_scores(pair):
    program = traced.compile_program(users_step, pair.without, distinguishers.projection(pair), side="without")
    return program.source(KEY).scores(0, 50)


def users_pair(scale):
    gradients = scale * np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    return mechanisms.Neighbours(without=gradients[:3], with_record=gradients, relation="add_remove")


def test_a_users_function_is_compiled_once_for_all_data_of_one_shape():
    first = users_scores(users_pair(1.0))
    with compilations() as again:
        second = users_scores(users_pair(3.0))
    assert again.compiled == 0
    assert not np.array_equal(first, second)


def test_what_a_users_function_reads_from_elsewhere_is_never_stale(monkeypatch):
    first = users_scores(users_pair(1.0))
    monkeypatch.setitem(globals(), "SIGMA", 2.0)
    changed = users_scores(users_pair(1.0))
    assert not np.array_equal(first, changed)
    monkeypatch.setitem(globals(), "SIGMA", 1.0)
    with compilations() as again:
        np.testing.assert_array_equal(users_scores(users_pair(1.0)), first)
    assert again.compiled == 0


def scores_of(step, data):
    program = traced.compile_program(step, data, lambda key, output: output[0], side="without", chunk=4)
    return program.source(KEY).scores(0, 4)


def test_steps_that_read_different_parts_of_the_data_are_told_apart():
    # what a program does not read is no argument of its text
    ones, twos = np.ones(2, np.float32), np.full(2, 2, np.float32)
    for part, expected in ((0, 1.0), (1, 2.0)):
        assert scores_of(lambda key, data, part=part: data[part], (ones, twos)).tolist() == [[expected]] * 4


def test_rules_of_the_users_own_for_many_trials_at_once_are_told_apart():
    def step(factor):
        @jax.custom_batching.custom_vmap
        def own(key):
            return jnp.ones(1)

        @own.def_vmap
        def many(size, batched, keys):
            return jnp.full((size, 1), factor), True

        return lambda key, data: jax.lax.cond(data[0] > 0, own, own, key)

    for factor in (2.0, 3.0):
        assert scores_of(step(factor), np.ones(1, np.float32)).tolist() == [[factor]] * 4


def test_calls_back_into_python_are_never_shared():
    # the text of a compiled program does not say what it calls
    def scores(factor):
        def step(key, data):
            shape = jax.ShapeDtypeStruct(data.shape, jnp.float32)
            return jax.pure_callback(lambda x: factor * np.asarray(x), shape, data, vmap_method="sequential")

        return scores_of(step, jnp.ones(1))

    assert scores(2.0).tolist() == [[2.0]] * 4
    assert scores(3.0).tolist() == [[3.0]] * 4


def test_large_constants_are_not_kept(monkeypatch):
    monkeypatch.setattr(programs, "LARGEST_CONSTANTS", 10)
    table = jnp.arange(50.0)
    release = programs.release_of(mechanisms.mechanism(lambda key, data: data + table.sum()), jnp.ones(1))
    assert release.code.digest.startswith("alone")
    assert programs.programs_of(release) is not programs.programs_of(release)


def test_a_vector_of_another_length_is_refused_before_anything_is_compiled():
    pair, other = (mechanisms.worst_case_pair(records=4, dimension=d, clip=0.1) for d in (8, 9))
    step = mechanisms.one_round(normalise_by="none", rate=0.3, clip=0.1, noise_multiplier=1.0)
    for score in (distinguishers.projection(other), distinguishers.likelihood_ratio(step, other)):
        with pytest.raises(traced.MechanismError, match=r"must have shape \(9,\), got \(8,\)"):
            traced.compile_program(step, pair.without, score, side="without")


def test_counts_that_do_not_sum_to_the_trials_are_refused():
    counts = np.array([[3, 4, 3], [0, 9, 1]])
    assert complete(counts, 10) is counts
    with pytest.raises(WrongCountsError, match="11 trials were drawn"):
        complete(counts, 11)
    with pytest.raises(WrongCountsError, match="drawn"):
        complete(np.array([[12, -2]]), 10)


def test_parts_of_unknown_structure_are_told_apart():
    pair = mechanisms.worst_case_pair(records=4, dimension=8, clip=0.1)
    assert is_structured(distinguishers.projection(pair))
    assert is_structured(distinguishers.battery(pair))
    assert not is_structured(distinguishers.distinguisher(lambda key, output: output[0]))


def test_neighbouring_sizes_share_a_padded_one():
    for records in (4, 8, 10, 16, 32, 48, 64, 100, 1000, 59_999, 2**20):
        assert round_up(records) == round_up(records + 1) >= records + 1
        assert round_up(records) <= 2 * max(records, 2) + 1
        assert records <= 33 or round_up(records) <= 1.26 * records
    assert [next_power(n, base=4, least=8) for n in (1, 8, 9, 33)] == [8, 8, 32, 128]


def test_a_subclass_with_a_call_of_its_own_is_audited_itself_not_as_its_parent():
    class Sevens(OneRound):
        def __call__(self, key, dataset):
            return jnp.full(30, 7.0)

    class SevenRounds(ManyRounds):
        def __call__(self, key, dataset):
            return jnp.full((2, 30), 7.0)

    pair = mechanisms.worst_case_pair(records=4, dimension=30, clip=1.0, relation="zero_out")
    one = Sevens(normalise_by="none", rate=0.5, clip=1.0, noise_multiplier=1.0)
    sampler = mechanisms.sampling.shuffle(batch_size=2)
    many = SevenRounds(sampler=sampler, clip=1.0, noise_multiplier=1.0)
    for step in (one, mechanisms.repeated(step=one, times=2), many, mechanisms.mechanism(many, clip=1.0)):
        program = traced.compile_program(step, pair.without, lambda output: output.max(), side="without")
        assert (program.source(KEY).scores(0, 3) == 7.0).all()
