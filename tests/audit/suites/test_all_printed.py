"""All that a suite prints, verdicts and bounds together, is wrong no more often than its risk: counts enumerated."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom

import guarantees
from audit.bounds.bounded_numbers import EpsilonAt
from audit.bounds.clopper_pearson import ErrorCounts
from audit.record.compare import holm
from audit.verdict.judgement import against_jointly
from audit.verdict.proven_numbers import against, prove

RISK = 0.2
EACH = RISK / 2
TRIALS = 10
RIGHT, BROKEN = 0.2, 1.5
"""Epsilon of a mechanism that keeps its claim exactly, and of one that does not; one threshold shows all of it."""
CLAIM = guarantees.randomised_response(epsilon=RIGHT)
QUESTION = EpsilonAt(delta=0.0)


def enumerated(epsilon):
    """All counts of one audit, and their probabilities."""
    rate = 1 / (1 + np.exp(epsilon))
    pairs = list(itertools.product(range(TRIALS + 1), repeat=2))
    mass = [binom.pmf(a, TRIALS, rate) * binom.pmf(m, TRIALS, rate) for a, m in pairs]
    counts = [ErrorCounts(false_alarms=a, trials_without=TRIALS, misses=m, trials_with=TRIALS) for a, m in pairs]
    return np.array(mass), counts


@pytest.fixture(scope="module")
def suite():
    """A broken mechanism's audit spends its part of the risk on epsilon, a right one's on the verdict.

    Of the first: probabilities, p-values, whether its bound is false. Of the second: probabilities and p-values.
    """
    mass, counts = enumerated(BROKEN)
    p = np.array([against(CLAIM, (one,), QUESTION, risk=EACH).p_value for one in counts])
    wrong = np.array([prove((one,), QUESTION, risk=EACH).at_least > BROKEN for one in counts])
    right_mass, right_counts = enumerated(RIGHT)
    right_p = np.array([against_jointly((one,), CLAIM, risk=EACH, for_excess=EACH).p_value for one in right_counts])
    return (mass, p, wrong), (right_mass, right_p)


def something_false(suite, accuses):
    """Probability that the bound is false or that the right mechanism is called violated."""
    (mass, p, wrong), (right_mass, right_p) = suite
    accused = np.array([[accuses(first, second) for second in right_p] for first in p])
    return float(np.sum(np.outer(mass, right_mass)[accused | wrong[:, None]]))


@pytest.mark.long
def test_everything_printed_together_is_wrong_at_most_at_the_risk(suite):
    assert something_false(suite, lambda _, p: p <= EACH) <= RISK


def test_holm_would_print_something_false_more_often(suite):
    """The negative control: verdicts by Holm at the whole risk, beside bounds that spend it again."""
    assert something_false(suite, lambda first, p: holm([first, p])[1] <= RISK) > RISK
