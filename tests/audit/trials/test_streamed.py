"""Likelihood ratios of transcripts, streamed: what they read of every round, and never the round as a vector."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest

import distinguishers
import mechanisms
from audit.trials import traced
from audit.trials.keys import trial_keys, trial_number
from audit.trials.programs import is_summed
from audit.trials.user_code_errors import MechanismError
from distinguishers.contract import OneScore
from distinguishers.exact.transcript_scores import LargestRound
from mechanisms import sampling
from mechanisms.contract import OutputKind

DIMENSION = 1500
SAMPLERS = {
    "shuffle": sampling.shuffle(batch_size=2),
    "poisson": sampling.poisson(rate=0.3, steps=5),
    "balls and bins": sampling.balls_and_bins(steps=4),
}
KEY = jax.random.key(3)


def rounds(sampler, **more):
    return mechanisms.many_rounds(sampler=sampler, clip=1.0, noise_multiplier=1.0, **more)


def zeroed(dimension=DIMENSION):
    return mechanisms.worst_case_pair(records=10, dimension=dimension, clip=1.0, relation="zero_out")


def scores(program, trials):
    found = [program.programs.score(program.release, program.scoring, KEY, trial_number(t)) for t in range(trials)]
    return np.concatenate(found)


def scores_of_vectors(mechanism, score, dataset, trials):
    whole = jax.jit(lambda own: score(own.score, mechanism(own.release, dataset)))
    return np.array([whole(trial_keys(KEY, trial_number(trial))) for trial in range(trials)])


def assert_streamed(mechanism, pair, *, kept):
    score = distinguishers.likelihood_ratio(mechanism, pair)
    program = traced.compile_program(mechanism, pair.with_record, score, side="with")
    assert is_summed(program.release, program.scoring)
    read = program.programs.read.eval_shape(program.release, program.scoring, KEY)
    assert sum(leaf.size for leaf in jax.tree.leaves(read)) == kept
    expected = scores_of_vectors(mechanism, score, pair.with_record, 3)
    assert np.allclose(scores(program, 3), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_streamed_transcript_has_the_score_of_its_vectors(name):
    mechanism = rounds(SAMPLERS[name])
    assert_streamed(mechanism, zeroed(), kept=2 * mechanism.rounds(10))


@pytest.mark.long
def test_so_has_a_repeated_step():
    step = mechanisms.one_round(normalise_by="realised_batch", rate=0.3, clip=1.0, noise_multiplier=1.0)
    pair = mechanisms.worst_case_pair(records=10, dimension=DIMENSION, clip=1.0)
    assert_streamed(mechanisms.repeated(step=step, times=6), pair, kept=12)


def test_a_model_of_another_dimension_is_refused():
    step = mechanisms.one_round(normalise_by="realised_batch", rate=0.3, clip=1.0, noise_multiplier=1.0)
    mechanism = mechanisms.repeated(step=step, times=2)
    score = distinguishers.likelihood_ratio(mechanism, zeroed(60))
    with pytest.raises(MechanismError, match=r"every round must have shape \(60,\), got \(40,\)"):
        traced.compile_program(mechanism, zeroed(40).with_record, score, side="with")


@pytest.mark.long
@pytest.mark.parametrize("sees", ["updates", "isolated"])
@pytest.mark.parametrize("releases", ["transcript", "final"])
def test_a_table_gives_what_its_dense_gradients_give(sees, releases):
    mechanism = rounds(sampling.shuffle(batch_size=2), epochs=2, sees=sees, releases=releases)
    table = zeroed(40).with_record
    assert np.allclose(mechanism(KEY, table), mechanism(KEY, table.dense()), atol=1e-5)


@pytest.mark.long
def test_other_noise_compiles_nothing():
    pair, compiled = zeroed(), []
    for noise in (1.0, 2.0):
        mechanism = mechanisms.many_rounds(sampler=SAMPLERS["poisson"], clip=1.0, noise_multiplier=noise)
        score = distinguishers.likelihood_ratio(mechanism, pair)
        program = traced.compile_program(mechanism, pair.with_record, score, side="with")
        scores(program, 1)
        compiled.append(program.programs.score.jitted._cache_size())
    assert compiled[0] == compiled[1]


def test_a_score_that_reads_everything_gets_everything():
    step = mechanisms.one_round(normalise_by="none", rate=0.5, clip=1.0, noise_multiplier=1.0)
    repeated, dataset = mechanisms.repeated(step=step, times=2), zeroed(40).with_record
    program = traced.compile_program(repeated, dataset, lambda output: output[1, 39], side="with")
    assert not is_summed(program.release, program.scoring)
    expected = scores_of_vectors(repeated, lambda key, output: output[1, 39], dataset, 3)
    assert np.allclose(scores(program, 3), expected)


@pytest.mark.long
def test_a_users_span_is_no_span_of_ours():
    @dataclasses.dataclass(frozen=True)
    class Window(OneScore):
        span: int = 5
        name: str = "window"
        parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
        accepts: tuple[OutputKind, ...] = ("any",)
        curve: None = None

        def __call__(self, key, output):
            return output[..., -self.span :].sum()

    class LastRound(LargestRound):
        def __call__(self, key, output):
            return output[0, -1]

    step = mechanisms.one_round(normalise_by="none", rate=0.5, clip=1.0, noise_multiplier=1.0)
    pair, transcript = zeroed(40), rounds(SAMPLERS["shuffle"])
    last = LastRound(**vars(distinguishers.largest_round(transcript, pair)))
    for mechanism, score in ((step, Window()), (transcript, Window()), (transcript, last)):
        program = traced.compile_program(mechanism, pair.with_record, score, side="with")
        expected = scores_of_vectors(mechanism, score, pair.with_record, 2)
        assert np.allclose(scores(program, 2), expected, atol=1e-5)
