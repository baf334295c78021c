import dataclasses
import functools
import itertools
import multiprocessing
import os
import pickle
import re
import signal
import time
import types
from concurrent.futures import ThreadPoolExecutor

import foreign
import jax
import numpy as np
import pytest
from toys import First

import audit
import guarantees
import mechanisms
from audit.trials import workers
from audit.trials.both_sides import both_sides
from audit.trials.fit_trials import draw_counter
from audit.trials.keys import both_keys
from audit.trials.source import NonFiniteScoreError
from audit.trials.user_code_errors import Terminated, large_seed, last_words, own_traceback
from audit.trials.workers import ForeignError
from guarantees.checks import require
from mechanisms.adapters.for_callable import callable_step
from mechanisms.adapters.trial_seeds import trial_seeds
from mechanisms.contract import BatchMechanism, Mechanism
from mechanisms.pairs.neighbours import Neighbours

KEY = jax.random.key(21)
PAIR = Neighbours(without=np.zeros((1, 3)), with_record=np.array([[1.0, 0.0, 0.0]]), relation="zero_out")
EDGES = np.linspace(-1, 2, 7, dtype=np.float32)[None]
WORDS = np.array([1, 2], np.uint32)


def source(function=foreign.noisy_sum, *, chunk=16, side=0, workers=0, timeout=None, key=KEY):
    step = callable_step(function, workers=workers, timeout=timeout)
    return both_sides(step, PAIR).scored(First(), chunk=chunk)[side].source(key)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_scores_do_not_depend_on_the_batch_size(chunk):
    np.testing.assert_array_equal(source(chunk=chunk).scores(0, 100), source().scores(0, 100))


def test_workers_and_this_process_draw_the_same_trials():
    np.testing.assert_array_equal(source(workers=2).scores(3, 80), source().scores(3, 80))


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.long)])
def test_both_sides_may_be_drawn_at_once(workers):
    step = callable_step(foreign.seeds_a_global_generator, workers=workers)
    sides = [program.source(KEY) for program in both_sides(step, PAIR).scored(First(), chunk=8)]
    alone = [side.scores(0, 200) for side in sides]
    with ThreadPoolExecutor(2) as threads:
        together = list(threads.map(lambda side: side.scores(0, 200), sides))
    np.testing.assert_array_equal(together, alone)


def test_no_trial_is_lost_or_counted_twice():
    own = source()
    counted = sum(own.cells(a, b, EDGES) for a, b in itertools.pairwise([0, 1, 50, 100]))
    place = np.searchsorted(EDGES[0], own.scores(0, 100)[:, 0], side="left")
    np.testing.assert_array_equal(counted[0], np.bincount(place, minlength=8))


def test_sides_and_keys_differ():
    own = source().scores(0, 20)
    assert not np.array_equal(own, source(side=1).scores(0, 20))
    assert not np.array_equal(own, source(key=jax.random.key(22)).scores(0, 20))


def failing_trial(remainder=7):
    seeds = trial_seeds(np.asarray(jax.random.key_data(KEY)), 0, 1000)
    return int(np.flatnonzero(seeds % 50 == remainder)[0])


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_one_line_names_it_and_the_trial_without_a_traceback(workers):
    own = source(foreign.fails_sometimes, workers=workers, side=1)
    with pytest.raises(ForeignError) as caught:
        own.scores(0, 1000)
    text = str(caught.value)
    assert f"trial {failing_trial()} on the side 'with' of fails_sometimes" in text
    assert re.search(r" failed: KeyError: 'weights' \(at .*foreign\.py:\d+\)\.$", text)
    assert "\n" not in text


@pytest.mark.parametrize("workers", [0, 1])
def test_a_missing_package_is_told_in_one_line(workers):
    """Each of five audits printed the same traceback."""
    with pytest.raises(ForeignError) as caught:
        source(foreign.needs_a_package, workers=workers).scores(0, 10)
    said = str(caught.value)
    assert re.search(r"^needs_a_package imports 'package_that_nobody_has' at .*foreign\.py:\d+, which ", said)
    assert "\n" not in said


def test_an_error_without_a_line_of_the_users_has_no_traceback():
    def ours():
        require("mu", False, "> 0", -1)

    with pytest.raises(ValueError, match="mu") as caught:
        ours()
    assert own_traceback(caught.value).startswith("Traceback")
    ours_alone = caught.value.with_traceback(caught.value.__traceback__.tb_next.tb_next)
    assert own_traceback(ours_alone) == "ValueError: mu must be > 0, got -1.\n"


def test_code_that_changes_the_records_is_told_to_copy_them():
    lent = np.zeros(3)
    lent.flags.writeable = False
    with pytest.raises(ValueError, match="read-only") as caught:
        lent *= 2
    assert last_words(own_traceback(caught.value)).startswith("ValueError: output array is read-only: all trials get ")


@pytest.mark.parametrize("use", [jax.random.key, np.random.seed])
def test_a_generator_that_takes_no_seed_of_64_bits_is_told_what_to_write(use):
    with pytest.raises((OverflowError, ValueError)) as caught:
        use(2**64 - 1)
    assert "use seed % 2**32" in own_traceback(caught.value)


def test_a_seed_that_is_too_large_for_pytorch_is_told_what_to_write():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")
    with pytest.raises(ValueError, match="Overflow") as caught:
        torch.manual_seed(2 * (2**64 - 1))
    assert "made of it, that goes up to 2**64 - 1: use seed % 2**32" in own_traceback(caught.value)
    with pytest.raises(ValueError, match="Overflow") as caught:
        torch.Generator().manual_seed(2**64)
    assert large_seed(caught.value).endswith("share")
    assert not large_seed(ValueError("Overflow of something else"))


def test_the_last_words_of_an_error_with_several_lines_begin_with_the_first():
    """It said 'line 2'."""
    with pytest.raises(RuntimeError) as caught:
        foreign.says_two_lines(0, None)
    assert re.search(r"^RuntimeError: no memory \(at .*foreign\.py:\d+\)$", last_words(own_traceback(caught.value)))


def test_the_last_words_of_a_program_name_its_line():
    place = 'File "step.py", line 5, in <module>'
    said = f"CommandError: x. Its standard error: Traceback:\n  {place}\nIndexError: out of range"
    assert last_words(said) == "IndexError: out of range (at step.py:5)"
    said = "mechanisms.program.CommandError: x. Its standard error: one\ntwo"
    assert last_words(said) == "CommandError: x. Its standard error ends with: two"
    assert (
        last_words("place\nmechanisms.for_command.CommandError: cannot start 'x'.") == "CommandError: cannot start 'x'"
    )


@pytest.mark.parametrize(("side", "function"), [(1, "fails_with_the_record"), (1, "fails_sometimes")])
def test_a_failure_on_one_side_alone_is_told_as_the_leak_that_it_is(side, function):
    with pytest.raises(ForeignError) as caught:
        source(getattr(foreign, function), side=side).scores(0, 1000)
    place = str(caught.value)
    alone = "without the record the same seed gives a release, so the failure alone tells the two datasets apart"
    assert (alone in place) == (function == "fails_with_the_record")
    assert ("return a fixed row instead of failing" in place) == (function == "fails_with_the_record")
    assert "command-protocol" not in place
    assert (" one class only (at " if function == "fails_with_the_record" else " KeyError: 'weights' (at ") in place


def test_a_program_that_fails_at_its_tenth_trial_on_either_side_is_no_leak():
    """The other side was asked with a fresh program, and its answer was called one."""

    def prepare(dataset):
        trials = iter(range(10))
        return lambda seeds: np.stack([dataset.sum(0) + next(trials) for _ in seeds])

    program = types.SimpleNamespace(name="program", kind="vector", prepare=prepare)
    trials = workers._PreparedSides(program, {"without": PAIR.without, "with": PAIR.with_record})
    with pytest.raises(ForeignError) as caught:
        trials.run(workers.Batch("without", WORDS, 0, 16))
    assert re.search(r"trial 10 .* failed after 10 others, though it succeeds alone: ", str(caught.value))


@pytest.mark.parametrize(("size", "which"), [(1, "trial 0"), (16, "trials 0 to 15")])
def test_code_whose_first_call_alone_fails_is_said_to_have_answered_the_second(size, which):
    calls = iter(range(99))

    def draw(seeds):
        if next(calls) == 0:
            raise ImportError("only once")
        return np.zeros((len(seeds), 2))

    program = types.SimpleNamespace(name="program", kind="vector", prepare=lambda dataset: draw)
    trials = workers._PreparedSides(program, {"without": PAIR.without, "with": PAIR.with_record})
    with pytest.raises(ForeignError) as caught:
        trials.run(workers.Batch("without", WORDS, 0, size))
    place = str(caught.value)
    assert place.startswith(f"{which} on the side 'without' of program")
    assert " failed once and succeeded when drawn again, as code that fails in its first call only: " in place
    assert "ImportError: only once (at " in place


def test_a_worker_that_leaves_is_not_interrupted_while_it_ends_its_programs():
    """Its parent ends it after a moment; that printed a traceback where a program took longer to stop."""
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    before = signal.signal(signal.SIGTERM, workers._end)
    try:
        workers._answer(theirs, pickle.dumps((None, {})))
        os.kill(os.getpid(), signal.SIGTERM)
        signal.signal(signal.SIGTERM, workers._end)
        with pytest.raises(Terminated):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_step_that_ends_the_process_is_told_in_words():
    with pytest.raises(ForeignError) as caught:
        source(foreign.leaves).scores(0, 1)
    assert re.search(r"^trial 0 .* failed: it called sys\.exit\(0\) \(at .*foreign\.py:\d+\)\.$", str(caught.value))


def test_a_non_finite_output_names_its_trial():
    told = rf"output of trial {failing_trial()} on the side 'without' is not finite: .*largest float32\. Where one"
    with pytest.raises(NonFiniteScoreError, match=told) as caught:
        source(foreign.gives_nan).scores(0, 1000)
    assert "command-protocol" not in str(caught.value)


def test_a_timeout_that_nothing_keeps_is_refused():
    for make in (mechanisms.callable_step, mechanisms.torch_training):
        with pytest.raises(ValueError, match=r"timeout=5 .* nothing can end it: add workers=1, or leave timeout= out"):
            make(max, timeout=5.0)
        assert make(max, workers=1, timeout=5.0).timeout == 5.0
        assert make(max).timeout == 60.0
    opacus = functools.partial(mechanisms.opacus_step, batch_size=2, clip=1.0, noise_multiplier=1.0)
    jax_privacy = functools.partial(mechanisms.jax_privacy_step, rate=0.5, clip=1.0, noise_multiplier=1.0)
    for make in (opacus, jax_privacy):
        with pytest.raises(ValueError, match=r"timeout=5 .* nothing can end it: add workers=1, or leave timeout= out"):
            make(timeout=5.0)
        assert make(workers=1, timeout=5.0).timeout == 5.0
        # as a record says it, and with fields replaced
        assert dataclasses.replace(make(), clip=2.0).timeout == make(timeout=60.0).timeout == 60.0


def test_a_worker_that_hangs_is_an_error_without_waiting_for_its_start_allowance():
    own = source(foreign.hangs, workers=1, timeout=0.2)
    began = time.monotonic()
    with pytest.raises(ForeignError) as told:
        own.scores(0, 16)
    assert time.monotonic() - began < workers.START_SECONDS
    words = str(told.value)
    assert words.startswith("trials 0 to 15 on the side 'without' of hangs did not answer within 0.2 s: it may hang")
    assert words.endswith("raise timeout=, or draw fewer trials at once with chunk=.")
    with pytest.raises(ForeignError, match="closed after an earlier error"):
        own.scores(0, 16)


def test_one_trial_that_hangs_is_not_told_to_be_fewer():
    with pytest.raises(ForeignError, match=r"^trial 0 on the side 'without' of hangs .* raise timeout=\.$"):
        source(foreign.hangs, workers=1, timeout=0.2, chunk=1).scores(0, 1)


def test_a_worker_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr(workers, "START_SECONDS", 0.0)
    with pytest.raises(ForeignError, match=r"noisy_sum was not ready for the side 'without' within 0\.01 s"):
        source(workers=1, timeout=0.01).scores(0, 16)


def test_a_worker_that_dies_is_an_error():
    with pytest.raises(ForeignError, match=r"died \(exit code 3\) while drawing trials 0 to 15"):
        source(foreign.dies, workers=1).scores(0, 16)


def test_what_cannot_be_sent_to_a_worker_is_refused():
    with pytest.raises(ValueError, match="importable module, or set workers=0"):
        source(lambda seed, dataset: dataset[0], workers=1)


def test_seeds_depend_on_the_trial_and_the_key_alone():
    np.testing.assert_array_equal(trial_seeds(WORDS, 0, 100)[40:60], trial_seeds(WORDS, 40, 60))
    assert not np.isin(trial_seeds(WORDS, 0, 1000), trial_seeds(WORDS + 1, 0, 1000)).any()


def test_the_lower_half_of_a_seed_never_repeats():
    low = trial_seeds(WORDS, 0, 300_000) & np.uint64(0xFFFFFFFF)
    assert len(np.unique(low)) == 300_000
    # about 10 of 300,000 numbers drawn at random would repeat
    bits = np.unpackbits(low.astype("<u4").view(np.uint8)).reshape(300_000, 32)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5.5 * 0.5 / np.sqrt(300_000)


def test_a_batch_mechanism_is_not_an_ordinary_one():
    step = callable_step(foreign.noisy_sum)
    assert isinstance(step, BatchMechanism)
    assert not isinstance(step, Mechanism)


def audited(function, **more):
    claim = guarantees.gaussian(mu=1 / foreign.NOISE)
    return audit.run_audit(callable_step(function), PAIR, First(), claim=claim, trials=600, risk=0.05, key=KEY, **more)


def test_foreign_code_is_judged():
    assert audited(foreign.too_little_noise).verdict == "violation"
    assert audited(foreign.noisy_sum).verdict != "violation"


def test_fit_trials_of_foreign_code_are_told_batch_by_batch():
    told = []
    both = both_sides(callable_step(foreign.noisy_sum), PAIR)
    drew = draw_counter(lambda drawn, planned: told.append((drawn, planned)), 400)
    both.outputs(both_keys(KEY), 200, size=128, drew=drew)
    assert told[0] == (64, 400)
    assert told[-1] == (400, 400)


def test_an_interrupted_audit_of_foreign_code_resumes():
    seen = []
    whole = audited(foreign.noisy_sum, execution=audit.Execution(progress=seen.append))
    again = audited(foreign.noisy_sum, execution=audit.Execution(resume=seen[0]))
    assert seen[0].trials_per_side < 1000
    assert again.grids == whole.grids


def test_what_a_program_said_stands_once_in_the_error_of_an_audit():
    step = mechanisms.command_step(command=["sh", "-c", "for line in $SAID; do echo $line >&2; done; exit 3"])
    pair = mechanisms.worst_case_pair(records=3, dimension=2, clip=1.0)
    for said, shown in (("broken", "standard error: broken"), ("one two", "standard error ends with: two.\none\ntwo")):
        loud = dataclasses.replace(step, environment=(f"SAID={said}",))
        with pytest.raises(ForeignError) as raised:
            both_sides(loud, pair).layout()
        assert str(raised.value).count("CommandError") == 1
        assert shown in str(raised.value)


@pytest.mark.parametrize("score", [lambda key, output: float(output[0]), lambda key, output: output[0] or output[1]])
def test_a_score_that_jax_cannot_trace_says_what_to_write(score):
    """It was JAX's own message, about a line of ours."""
    given = {"claim": guarantees.gaussian(mu=1.0), "trials": 40, "risk": 0.05, "key": KEY}
    with pytest.raises(TypeError, match=r"the score 'lambda.*' cannot be compiled: .*use jnp.where in place of `if`"):
        audit.run_audit(callable_step(foreign.noisy_sum), PAIR, score, **given)
