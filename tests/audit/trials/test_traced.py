import itertools
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import PAIR, BreaksAt, First, Shift

import mechanisms
from audit.trials import cells, traced
from audit.trials.both_sides import both_sides
from audit.trials.keys import trial_number
from audit.trials.source import Blocks, NonFiniteScoreError, tally
from audit.trials.user_code_errors import MechanismError

KEY = jax.random.key(11)
EDGES = np.linspace(-3, 3, 13, dtype=np.float32)[None]


def program(chunk=None, distinguisher=None, side="without"):
    dataset = PAIR.without if side == "without" else PAIR.with_record
    return traced.compile_program(Shift(mu=1.0), dataset, distinguisher or First(), side=side, chunk=chunk)


@pytest.mark.few(2)
@pytest.mark.parametrize("chunk", [1, 7, 64, 1000, 4096])
def test_scores_do_not_depend_on_the_chunk_size(chunk):
    reference = program(chunk=250).source(KEY).scores(0, 1000)
    assert reference.shape == (1000, 1)
    # jax 0.8 rounds the last digit otherwise in chunks of few trials
    last_digits = 4 if jax.__version_info__ < (0, 9) else 0
    np.testing.assert_array_max_ulp(program(chunk=chunk).source(KEY).scores(0, 1000), reference, last_digits)


@pytest.mark.few(1)
@pytest.mark.parametrize(("chunk", "pieces"), [(64, [0, 1000]), (64, [0, 1, 999, 1000]), (100, [0, 350, 1000])])
def test_no_trial_is_lost_or_counted_twice(chunk, pieces):
    source = program(chunk=chunk).source(KEY)
    counted = sum(source.cells(a, b, EDGES) for a, b in itertools.pairwise(pieces))
    scores = source.scores(0, 1000)[:, 0]
    expected = np.bincount(np.searchsorted(EDGES[0], scores, side="left"), minlength=14)
    assert counted.sum() == 1000
    np.testing.assert_array_equal(counted[0], expected)


@pytest.mark.few(2)
@pytest.mark.parametrize("first", [2**31 - 3, 2**32 - 3, 2**33 + 2**32 - 3])
def test_trial_numbers_have_64_bits(first, monkeypatch):
    monkeypatch.setattr(traced, "MOST_AT_ONCE", 10)
    source = program(chunk=4).source(KEY)
    scores = source.scores(first, first + 23)
    alone = np.concatenate([source.scores(number, number + 1) for number in range(first, first + 23)])
    np.testing.assert_array_equal(scores, alone)
    assert len(np.unique(np.concatenate([scores, source.scores(0, 23)]))) == 46
    counted = source.cells(first, first + 23, EDGES)
    expected = np.bincount(np.searchsorted(EDGES[0], scores[:, 0], side="left"), minlength=14)
    np.testing.assert_array_equal(counted[0], expected)


def test_a_score_on_an_edge_counts_below_it():
    scores = np.float32([[0.0], [1.0], [np.nextafter(np.float32(1), np.float32(2))]])
    found = jax.jit(cells.count_cells)(scores, np.array([True, True, True]), np.float32([[0.0, 1.0]]))
    assert found.tolist() == [[1, 1, 1]]


@pytest.mark.long
def test_both_ways_of_counting_agree():
    scores = jax.random.normal(KEY, (5000, 3))
    edges = jnp.sort(jax.random.normal(jax.random.key(1), (3, 57)), axis=1)
    wanted = jnp.arange(5000) % 7 != 0
    together = cells._count_together(scores, wanted, edges)
    assert together.sum() == 3 * wanted.sum()
    np.testing.assert_array_equal(cells._count_apart(scores, wanted, edges), together)


def test_sides_and_keys_differ():
    own = program().source(KEY).scores(0, 50)
    assert not np.array_equal(own, program(side="with").source(KEY).scores(0, 50))
    assert not np.array_equal(own, program().source(jax.random.key(12)).scores(0, 50))


def test_a_yes_or_no_is_a_score():
    scores = program(distinguisher=lambda output: output[0] > 0).source(KEY).scores(0, 50)
    assert scores.dtype == np.float32
    assert set(np.unique(scores)) == {0.0, 1.0}


def test_a_non_finite_score_names_its_trial_and_side():
    bad = float(program(side="with").source(KEY).scores(0, 1000)[777, 0])
    source = program(chunk=64, side="with", distinguisher=BreaksAt(value=bad)).source(KEY)
    with pytest.raises(NonFiniteScoreError, match="trial 777 on the side 'with'"):
        source.cells(0, 1000, EDGES)
    with pytest.raises(NonFiniteScoreError, match="trial 777 on the side 'with'"):
        source.scores(0, 1000)
    assert source.cells(0, 777, EDGES).sum() == 777


def test_an_interrupted_tally_continues_where_it_stopped():
    without, with_record = program(chunk=64).source(KEY), program(chunk=64, side="with").source(KEY)
    whole = tally(without, with_record, edges=EDGES, trials_per_side=1000)
    part = tally(without, with_record, edges=EDGES, trials_per_side=333)
    rest = tally(without, with_record, edges=EDGES, trials_per_side=1000, start=part)
    np.testing.assert_array_equal(rest.without, whole.without)
    np.testing.assert_array_equal(rest.with_record, whole.with_record)


def test_a_deadline_ends_both_sides_at_the_same_trial():
    without, with_record = program(chunk=8).source(KEY), program(chunk=8, side="with").source(KEY)
    cut = tally(without, with_record, edges=EDGES, trials_per_side=10**6, deadline=0.0)
    assert 0 < cut.trials_per_side < 10**6
    assert cut.without.sum() == cut.with_record.sum() == cut.trials_per_side


@pytest.mark.parametrize(("one_by_one", "drawn"), [(False, 64 * 10), (True, 1)])
def test_what_a_chunk_takes_to_compile_does_not_eat_the_time_that_is_left(monkeypatch, one_by_one, drawn):
    """The first chunk of ten takes 15 of 17 seconds, and each of the others 0.2: as many as fit are drawn."""
    clock, total = [0.0], 0
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    blocks = Blocks(types.SimpleNamespace(chunk=64, pace=0.2, one_by_one=one_by_one), 17.0)
    seconds = 15.0
    while not blocks.late and total < 10**6:
        pieces = blocks.size if one_by_one else -(-blocks.size // 64)
        took = seconds + 0.2 * (pieces - 1)
        clock[0] += took
        total, seconds = total + blocks.size, 0.2
        blocks.took(blocks.size, took)
    assert drawn <= total <= 64 * 12


def test_memory_does_not_grow_with_the_number_of_trials():
    own = program(chunk=1024)
    lowered = own.programs.count_chunks.jitted.lower(
        own.release, own.scoring, KEY, trial_number(0), jnp.int32(10**9), jnp.asarray(EDGES), size=own.chunk
    )
    memory = lowered.compile().memory_analysis()
    assert memory.temp_size_in_bytes < 10**7
    assert memory.output_size_in_bytes < 10**4


def test_chunks_fit_the_device_whatever_the_dimension():
    cpu = jax.default_backend() == "cpu"
    room = traced.CHUNK_ENTRIES if cpu else traced.DEVICE_CHUNK_ENTRIES
    for size in (1_485_217, 10_000):
        assert traced.chunk_size("vector", jnp.zeros(size)) == max(1, room // size)
    most = traced.LARGEST_CHUNK if cpu else traced.LARGEST_DEVICE_CHUNK
    assert traced.chunk_size("vector", PAIR.without) == most


def test_chunks_on_a_device_leave_room_for_the_records(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    output, room = jnp.zeros(100), traced.DEVICE_CHUNK_ENTRIES
    assert traced.chunk_size("vector", output, records=60_000) == room // 60_000
    assert traced.chunk_size("vector", output, records=200, own_code=False) == room // (100 * 200)
    assert traced.chunk_size("collapsed", jnp.zeros(4), records=60_000) == traced.LARGEST_COLLAPSED_CHUNK // 4


@pytest.mark.parametrize(("released", "what"), [(None, "nothing"), ({"a": "text"}, "a str")])
def test_a_step_that_releases_no_arrays_is_named_with_its_side_and_line(released, what):
    def forgets(key, dataset):
        return released

    line = forgets.__code__.co_firstlineno
    says = rf"'forgets' failed on the side 'without': ValueError: it returns {what}, and .*\(.*test_traced.py:{line}\)$"
    with pytest.raises(MechanismError, match=says):
        both_sides(mechanisms.mechanism(forgets), PAIR).layout()


def test_what_jax_raises_ends_before_our_own_sentence_begins():
    class Odd:
        name = "odd"

        def __call__(self, key, dataset):
            raise TypeError("odd() takes 1 positional argument but 2 were given")

    with pytest.raises(MechanismError, match=r"but 2 were given\. A step is called as step\(key, dataset\)"):
        both_sides(mechanisms.mechanism(Odd()), PAIR).layout()


def test_code_that_takes_the_key_for_a_seed_is_told_how_code_of_a_seed_is_audited():
    def seeded(seed, rows):
        return rows.sum(0) + np.random.default_rng(seed % 2**32).standard_normal(rows.shape[1])

    with pytest.raises(MechanismError, match=r"OverflowError: .*code that JAX cannot trace is mechanisms"):
        both_sides(mechanisms.mechanism(seeded), PAIR).layout()
