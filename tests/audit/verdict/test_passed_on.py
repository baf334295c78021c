"""What a verdict that refuted its claim passes on to epsilon: all that is stated together, counts enumerated."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom

import guarantees
from audit.bounds.bounded_numbers import EpsilonAt
from audit.bounds.clopper_pearson import ErrorCounts
from audit.risk import FOR_EXCESS, RiskBudget, shared
from audit.verdict.judgement import against_jointly
from audit.verdict.proven_numbers import against, prove
from audit.verdict.violated import by_counts

BUDGET = RiskBudget(risk=0.2, verdict=0.1, epsilon=0.1)
TRIALS = 7
CLAIMED = 0.2
CLAIM = guarantees.randomised_response(epsilon=CLAIMED)
BROKEN = 0.5
"""Epsilon of randomised response that breaks the claim: a delta proven above its own is false."""
QUESTION = EpsilonAt(delta=0.0)


def mass(epsilon):
    """Probabilities of all counts of one test of randomised response."""
    each = binom.pmf(np.arange(TRIALS + 1), TRIALS, 1 / (1 + np.exp(epsilon)))
    return np.outer(each, each).ravel()


@pytest.fixture(scope="module")
def statements():
    """For all counts of a test: does the verdict refute, is its delta too high, and epsilon without and with a gain.

    The verdict and epsilon have tests of their own, which are taken for independent: then most goes wrong.
    """
    counts = [
        ErrorCounts(false_alarms=a, trials_without=TRIALS, misses=m, trials_with=TRIALS)
        for a, m in itertools.product(range(TRIALS + 1), repeat=2)
    ]
    kept, gain = BUDGET.for_excess, BUDGET.passed_on(refuted=True)["epsilon"]
    refuted = np.array([against_jointly((one,), CLAIM, risk=BUDGET.verdict, for_excess=kept).refutes for one in counts])
    broken = guarantees.randomised_response(epsilon=BROKEN)
    places = [by_counts(one, CLAIM, risk=kept) for one in counts]
    too_high = refuted & np.array([(at.at_least or 0.0) > broken.delta(at.given) for at in places])
    epsilon = [
        np.array([prove((one,), QUESTION, risk=BUDGET.epsilon, passed_on=more).at_least for one in counts])
        for more in (0.0, gain)
    ]
    return refuted, too_high, *epsilon


def something_false(statements, truth, *, always=False):
    """Probability that a false verdict, delta or epsilon is stated; ``always`` passes on without a verdict."""
    refuted, too_high, plain, raised = statements
    probability = mass(truth)
    false_plain = probability[(raised if always else plain) > truth].sum()
    false_raised = probability[raised > truth].sum()
    by_verdict = probability[refuted if truth <= CLAIMED else too_high].sum()
    rightly = probability[refuted].sum() - by_verdict
    return by_verdict + rightly * false_raised + (1 - by_verdict - rightly) * false_plain


@pytest.mark.few(1)
@pytest.mark.parametrize("truth", [CLAIMED, BROKEN])
def test_verdict_delta_and_epsilon_are_wrong_at_most_at_their_shares_together(statements, truth):
    assert BUDGET.risk / 3 < something_false(statements, truth) <= BUDGET.risk


def test_a_share_passed_on_without_a_verdict_would_be_spent_twice(statements):
    """The negative control: epsilon at both shares although the verdict's may be lost already."""
    assert something_false(statements, CLAIMED, always=True) > BUDGET.risk


def test_more_risk_never_lowers_a_bound(statements):
    _, _, plain, raised = statements
    assert np.all(raised >= plain)
    assert np.any(raised > plain)


def test_only_a_refuted_claim_passes_on_and_only_to_epsilon():
    budget = shared(0.05, ("verdict", "epsilon", "delta", "rest"))
    assert budget.passed_on(refuted=False) == {}
    assert budget.passed_on(refuted=True) == {"epsilon": pytest.approx(0.01 * (1 - FOR_EXCESS))}
    assert budget.passed_on(refuted=True)["epsilon"] + budget.for_excess == pytest.approx(budget.verdict)
    alone = shared(0.05, ("verdict", "rest"))
    assert (alone.passed_on(refuted=True), alone.for_excess) == ({}, alone.verdict)


def test_what_broke_tells_the_number_that_is_reported_and_the_p_value_stays():
    counts = (ErrorCounts(false_alarms=3, trials_without=1000, misses=400, trials_with=1000),)
    said = [against(CLAIM, counts, QUESTION, risk=0.03, passed_on=more) for more in (0.0, 0.01)]
    assert said[0].p_value == said[1].p_value
    told = prove(counts, QUESTION, risk=0.03, passed_on=0.01)
    assert said[1].at().at_least == told.at_least > said[0].at().at_least
    assert told.risk == pytest.approx(0.04)
