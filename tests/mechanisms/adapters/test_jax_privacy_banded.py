"""JAX Privacy's banded matrix factorisation: noise as it says, a right training keeps its claim, broken ones do not."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import assert_has_law
from scipy import stats

import audit
import mechanisms
from distinguishers.exact.banded import banded_matrix, banded_ratio, round_spread
from mechanisms.adapters.jax_privacy_banded import banded_claim, banded_training

pytest.importorskip("jax_privacy")

STRATEGY, ROUNDS, RATE, NOISE = (1.0, 0.5, 0.25), 9, 0.6, 1.0
PAIR = mechanisms.worst_case_pair(records=5, dimension=2, clip=1.0, shared=0.0, relation="zero_out")


def training(**settings):
    given = {"strategy": STRATEGY, "iterations": ROUNDS, "rate": RATE, "clip": 1.0, "noise_multiplier": NOISE}
    return banded_training(**given | settings)


def transcripts(step, dataset, count=400):
    return step.prepare(np.asarray(dataset.dense()))(np.arange(count, dtype=np.uint64))


def test_undone_correlation_leaves_white_noise_of_the_promised_size():
    found = transcripts(training(), PAIR.without)
    assert found.shape == (400, ROUNDS, 2)
    white = np.einsum("ts,nsd->ntd", banded_matrix(STRATEGY, ROUNDS), found)
    deviation = NOISE * np.linalg.norm(STRATEGY)
    assert_has_law(white.ravel(), stats.norm(scale=deviation).cdf)
    assert abs(np.corrcoef(white[:, 0, 0], white[:, 1, 0])[0, 1]) < 5 / np.sqrt(400)


@pytest.mark.parametrize("fault", ["white_noise", "same_noise"])
def test_faulty_noise_is_not_that(fault):
    found = transcripts(training(fault=fault), PAIR.without)
    white = np.einsum("ts,nsd->ntd", banded_matrix(STRATEGY, ROUNDS), found)
    assert abs(np.corrcoef(white[:, 0, 0], white[:, 1, 0])[0, 1]) > 5 / np.sqrt(400)


def test_the_ratio_mixes_over_groups_and_attendance():
    ratio = banded_ratio(training(), PAIR)
    matrix, deviation = banded_matrix(STRATEGY, ROUNDS), NOISE * np.linalg.norm(STRATEGY)
    for out in np.random.default_rng(5).normal(0, 1.5, (2, ROUNDS)):

        def density(own, out=out):
            total = 0.0
            for group in range(3):
                for attends in itertools.product((0, 1), repeat=3):
                    means = np.zeros(ROUNDS)
                    means[group::3] = own * np.array(attends)
                    weight = np.prod([RATE if a else 1 - RATE for a in attends]) / 3
                    total += weight * stats.norm.pdf(matrix @ (out - means), 0, deviation).prod()
            return total

        expected = np.log(density(1.0)) - np.log(density(0.0))
        found = ratio(jax.random.key(0), jnp.asarray(np.stack([out, 0 * out], axis=1), jnp.float32))
        assert float(found) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def judge(step, score, claim, trials=2000):
    return audit.run_audit(
        step, PAIR, score, claim=claim, trials=trials, risk=0.01, key=jax.random.key(3), diagnose=False
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "test", "verdict"),
    [
        ("none", "ratio", "no_violation_found"),
        ("none", "spread", "no_violation_found"),
        # the same deviation without the correlation hides the record better: useless, not unsafe
        ("white_noise", "ratio", "no_violation_found"),
        ("same_noise", "spread", "violation"),
        ("short_cycle", "ratio", "violation"),
    ],
)
def test_a_right_training_keeps_what_the_accountant_promises_and_broken_ones_do_not(fault, test, verdict):
    step = training(fault=fault)
    score = banded_ratio(step, PAIR) if test == "ratio" else round_spread()
    assert judge(step, score, banded_claim(training())).verdict == verdict


@pytest.mark.long
def test_balls_in_bins_keep_their_promise_and_twice_the_noise_would_not():
    step = training(strategy=(1.0,), iterations=12, cycle=6, rate=1.0, batches="balls_in_bins")
    ratio = banded_ratio(step, PAIR)
    assert judge(step, ratio, banded_claim(step)).verdict == "no_violation_found"
    promised = training(
        strategy=(1.0,), iterations=12, cycle=6, rate=1.0, batches="balls_in_bins", noise_multiplier=2.0
    )
    assert judge(step, ratio, banded_claim(promised)).verdict == "violation"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": ()}, "strategy must be finite numbers"),
        ({"iterations": 2}, "iterations must be an integer >= the 3 bands"),
        ({"cycle": 5}, "cycle must be None"),
        ({"batches": "balls_in_bins"}, "rate must be 1 for balls in bins"),
        ({"fault": "all"}, "fault must be one of"),
    ],
)
def test_bad_trainings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        training(**settings)


def test_nothing_is_promised_of_banded_noise_with_balls_in_bins():
    with pytest.raises(ValueError, match="one number for balls in bins"):
        banded_claim(training(rate=1.0, batches="balls_in_bins"))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("fault", "kind"), [("none", "not_followed"), ("same_noise", "key_used_twice")], ids=["right", "same_noise"]
)
def test_a_replay_names_a_line_of_the_library(fault, kind):
    pair = mechanisms.worst_case_pair(records=5, dimension=8, clip=1.0, shared=0.0, relation="zero_out")
    told = audit.explain(training(fault=fault, iterations=4), pair, key=jax.random.key(0), noise_multiplier=NOISE)
    assert [found.kind for found in told.findings][:1] == [kind]
    assert told.findings[0].lines[0][0].endswith("jax_privacy/noise_addition.py")
