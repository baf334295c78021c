"""How often a suite of right mechanisms cries wolf."""

import dataclasses

import jax
import numpy as np
import pytest
from checks import assert_rate_at_most
from scipy.special import ndtr, ndtri
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.bounds.clopper_pearson import ErrorCounts
from audit.bounds.points import rectangles
from audit.record.record import SuitePart
from audit.suites.exit_codes import exit_code
from audit.suites.run import adjust, risk_of_each
from audit.verdict.judgement import p_value

AUDITS = 20
TRIALS = 500
CLAIM = guarantees.gaussian(mu=1.0)
RATES = ndtr(np.linspace(-1.5, 0.5, AUDITS))
"""False-alarm rates of the audits' tests; each mechanism leaks exactly what is claimed."""


@pytest.fixture(scope="module")
def template():
    return audit.run_audit(
        Shift(mu=1.0), PAIR, First(), claim=CLAIM, trials=2 * TRIALS, risk=0.05, key=jax.random.key(0), target="verdict"
    )


def suites(runs, seed):
    """Counts (runs, audits) of false alarms and misses at the claim's own curve."""
    generator = np.random.default_rng(seed)
    misses = ndtr(-1.0 - ndtri(RATES))
    return generator.binomial(TRIALS, RATES, (runs, AUDITS)), generator.binomial(TRIALS, misses, (runs, AUDITS))


def judged(false_alarms, misses):
    counts = ErrorCounts(false_alarms=int(false_alarms), trials_without=TRIALS, misses=int(misses), trials_with=TRIALS)
    return p_value(lambda risk: rectangles((counts,), np.array([risk])), CLAIM)


def stated(template, p):
    """The record of one audit of the suite, judged at its part of the risk."""
    verdict = "violation" if p <= 0.05 / AUDITS else "no_violation_found"
    return dataclasses.replace(template, p_value=p, verdict=verdict)


def false_alarms_of_suites(template, runs, seed):
    """Suites that say 'violation' at all, through the p-values and exit codes of real runs."""
    found = 0
    for alarms, misses in zip(*suites(runs, seed), strict=True):
        records = tuple(stated(template, judged(a, m)) for a, m in zip(alarms, misses, strict=True))
        found += exit_code(adjust(records)) != 0
    return found


def z_test_alarms(runs, seed):
    """The same suites by one-sided two-proportion z-tests of alpha + beta against the claim, uncorrected."""
    alarms, misses = suites(runs, seed)
    alpha, beta = alarms / TRIALS, misses / TRIALS
    expected = RATES + ndtr(-1.0 - ndtri(RATES))
    error = np.sqrt((alpha * (1 - alpha) + beta * (1 - beta)) / TRIALS)
    return int(np.sum(np.any((expected - alpha - beta) / error > ndtri(0.95), axis=1)))


@pytest.mark.long
def test_a_suite_of_right_mechanisms_cries_wolf_at_most_once_in_twenty_runs(template):
    assert_rate_at_most(false_alarms_of_suites(template, 500, seed=5), 500, 0.05)


def test_uncorrected_z_tests_cry_wolf_in_most_runs():
    alarms = z_test_alarms(500, seed=5)
    assert 0.5 < alarms / 500 < 0.8
    with pytest.raises(AssertionError):
        assert_rate_at_most(alarms, 500, 0.05)


def test_one_broken_mechanism_in_twenty_is_still_found(template):
    records = adjust(tuple(stated(template, p) for p in (1e-6, *np.linspace(0.1, 1, 19))))
    assert [record.verdict for record in records] == ["violation", *["no_violation_found"] * 19]
    assert [record.adjusted_p_value <= 0.05 for record in records] == [True, *[False] * 19]


@pytest.mark.parametrize("look", [0, 1, 2, 5])
def test_the_adjusted_p_value_is_the_suites_risk_at_which_a_look_finds_a_violation(template, look):
    own = SuitePart(risk=0.05, audits=2, seed=0)
    each = risk_of_each(own, look)
    for p in (0.9 * each, 1.1 * each):
        records = adjust(tuple(dataclasses.replace(template, p_value=p, look=look) for _ in range(own.audits)))
        assert all((record.adjusted_p_value <= own.risk) == (p <= each) for record in records)
