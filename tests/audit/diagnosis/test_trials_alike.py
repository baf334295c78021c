"""Trials that repeat, or that depend on the one before: found first, also after a violation; right code is not."""

import functools

import jax
import numpy as np
import pytest
from checks import assert_rate_at_most

import audit
import guarantees
import mechanisms
from audit.diagnosis.trials_alike import trials_alike
from audit.report.formats import markdown
from audit.report.statement import statement
from audit.report.text import record_lines

ASKED = functools.partial(trials_alike, continuous=True, cut=False, plus_noise=True)
MANY = mechanisms.worst_case_pair(records=3, dimension=20, clip=1.0)
ONE = mechanisms.add_record(np.array([[3.0], [4.0], [7.0]], np.float32), np.array([9.0], np.float32))


def audited(code, pair, **told):
    step, claim = mechanisms.callable_step(code, **told), guarantees.gaussian(mu=1.0)
    return audit.run_audit(step, pair, claim=claim, trials=1000, risk=0.05, key=jax.random.key(0))


def wrong(record):
    return [answer for answer in record.diagnoses if answer.wrong]


def walk(totals, seed, rows):
    """Each trial adds its noise to what the one before released."""
    before = totals.setdefault(rows.tobytes(), rows.sum(axis=0))
    totals[rows.tobytes()] = before + np.random.default_rng(seed).standard_normal(rows.shape[1])
    return totals[rows.tobytes()]


@pytest.mark.parametrize("told", [{}, {"clip": 1.0, "noise_multiplier": 1.0, "gradients": lambda rows: rows}])
def test_a_total_that_is_never_reset_is_named_and_nothing_else(told):
    record = audited(functools.partial(walk, {}), MANY, **told)
    assert record.verdict == "violation"
    (answer,) = wrong(record)
    assert (answer.code, answer.causes) == ("dependent", ("kept_state",))
    assert "leaks_more" not in {each.code for each in record.diagnoses}
    for said in (statement((record,)), markdown((record,), title="t"), "\n".join(record_lines(record))):
        assert "take them for independent" in said
        assert "bounds hold if" in said
        assert "nevertheless" not in said


def test_the_generator_of_the_system_is_no_state():
    own = np.random.default_rng(5)
    record = audited(lambda seed, rows: rows.sum(axis=0) + own.standard_normal(rows.shape[1]), MANY)
    assert record.repeatable is False
    assert (record.verdict, wrong(record)) == ("no_violation_found", [])


def few(seeds, seed, rows):
    return np.clip(rows, 0, 1).sum() + np.random.default_rng(seed % seeds).standard_normal()


@pytest.mark.parametrize("seeds", [50, 400])
def test_few_seeds_of_one_released_number_are_named_before_the_tails_of_the_noise(seeds):
    record = audited(functools.partial(few, seeds), ONE)
    assert record.verdict == "violation"
    (answer,) = wrong(record)
    assert (answer.code, answer.causes[0]) == ("repeated", "seed_again")
    assert " different releases in 1,000 trials" in answer.says


def test_one_release_that_comes_again_may_be_an_empty_batch():
    drawn = np.random.default_rng(0).normal(size=(2, 100, 5))
    drawn[:, ::10] = 0.0
    hint = ASKED(*drawn, risk=0.01)
    assert hint is not None
    assert "20 of 200 trials" in hint.says
    assert hint.causes == ("empty_batch", "seed_again")


def test_trials_in_any_order_are_independent_at_the_risk_that_is_stated():
    found = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        some = rng.standard_cauchy(size=(2, 60, 3)) if seed % 2 else rng.integers(0, 2, size=(2, 60, 1))
        found += ASKED(*some, continuous=False, risk=0.2) is not None
    assert_rate_at_most(found, 300, 0.1)


def digits(values):
    return np.array([[float(f"{value:.3g}") for value in side] for side in values])


ROUNDED = {
    "as it is": lambda drawn: drawn,
    "two decimals": lambda drawn: np.round(drawn, 2),
    "three digits": digits,
    "half precision": lambda drawn: drawn.astype(np.float16),
    "bfloat16": lambda drawn: (drawn.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32),
    "whole numbers": lambda drawn: np.round(40 * drawn),
    "the root of a whole number": lambda drawn: np.sqrt(np.maximum(0, 500 + np.round(80 * drawn))),
    "beside a large sum": lambda drawn: (1e6 + drawn).astype(np.float32),
    "cut": lambda drawn: np.clip(drawn, -1, 1.5),
}


@pytest.mark.parametrize("law", ["normal", "laplace"])
@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_or_cut_noise_repeats_rightly(name, law):
    for seed in range(20):
        drawn = getattr(np.random.default_rng(seed), law)(size=(2, 1000))
        assert ASKED(*ROUNDED[name](drawn), cut=True, risk=1e-6) is None, seed
