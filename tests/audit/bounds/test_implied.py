"""What one proven number implies of another: never more than is true, and no risk beside that of the first."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt, Mu
from audit.bounds.clopper_pearson import ErrorCounts
from audit.bounds.implied import implied, mu_of
from audit.verdict.proven_numbers import ProvenNumber, prove, stated
from guarantees.laws.gaussian_and_laplace import gaussian_delta

TRIALS = 10, 7
SHARE = 0.1
ASKED = EpsilonAt(delta=0.1), DeltaAt(epsilon=0.0), Mu()
"""What is proven, each by a test of its own."""
ALSO = *ASKED, EpsilonAt(delta=0.0), EpsilonAt(delta=0.3), DeltaAt(epsilon=0.5), DeltaAt(epsilon=2.0)
"""What is read off it."""


def delta_of(without, with_record, epsilon):
    """Delta of two laws on a few symbols, in the worse direction."""
    ways = (without, with_record), (with_record, without)
    return max(float(np.maximum(p - np.exp(epsilon) * q, 0).sum()) for p, q in ways)


laws = st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(sum).map(lambda cells: np.array(cells) / sum(cells))


@given(laws, laws, st.sampled_from([0.0, 0.3, 1.0, 4.0]), st.sampled_from([0.0, 0.1, 0.7, 2.0]))
def test_no_pair_of_laws_has_less_than_its_own_delta_implies(without, with_record, epsilon, other):
    delta = delta_of(without, with_record, epsilon)
    assert (
        implied(DeltaAt(epsilon=other), epsilon=epsilon, delta=delta) <= delta_of(without, with_record, other) + 1e-15
    )
    for at in (0.0, 0.05, 0.3):
        proven = implied(EpsilonAt(delta=at), epsilon=epsilon, delta=delta)
        assert proven == 0 or delta_of(without, with_record, proven * (1 - 1e-9)) >= at - 1e-12
    mu = mu_of(epsilon, delta)
    assert mu == 0 or gaussian_delta(epsilon, mu) <= delta


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_a_gaussian_mechanism_implies_its_own_mu(mu, epsilon):
    delta = float(gaussian_delta(epsilon, mu))
    assert mu - 1e-6 < mu_of(epsilon, delta) <= mu or delta < 1e-300


def test_randomised_response_implies_its_own_epsilon_and_deltas():
    wrong = 1 / (1 + np.exp(1.5))
    assert implied(EpsilonAt(delta=0.0), epsilon=0.0, delta=1 - 2 * wrong) == pytest.approx(1.5, rel=1e-9)
    expected = 1 - wrong - np.e * wrong
    assert implied(DeltaAt(epsilon=1.0), epsilon=0.0, delta=1 - 2 * wrong) == pytest.approx(expected, rel=1e-9)


@pytest.fixture(scope="module")
def proven():
    """What three tests of their own prove, for all counts of one: only the numbers, in the order of ``ASKED``."""
    every = itertools.product(range(TRIALS[0] + 1), range(TRIALS[1] + 1))
    counts = [ErrorCounts(false_alarms=a, trials_without=10, misses=m, trials_with=7) for a, m in every]
    return [tuple(prove((one,), question, risk=SHARE) for question in ASKED) for one in counts]


RATES = [(a, b) for a in np.linspace(0.02, 0.5, 9) for b in np.linspace(0.02, 0.98, 17) if a + b <= 1]


def false_alone_and_with(proven, also):
    """For all error rates: probability that a number is too high, and that something read off them is, or they are."""
    numbers = np.array([[number.at_least for number in row] for row in proven])
    read_off = np.array([[also(row, question) for question in ALSO] for row in proven])
    found = []
    for alpha, beta in RATES:
        # a step of two outputs has the curve through its one point, whose numbers are these
        mass = np.outer(*(binom.pmf(np.arange(n + 1), n, rate) for n, rate in zip(TRIALS, (alpha, beta), strict=True)))
        alone, every = (
            np.any(bounds > [float(q.through(alpha, beta)) + 1e-12 for q in asked], axis=1)
            for bounds, asked in ((numbers, ASKED), (read_off, ALSO))
        )
        found.append((float(mass.ravel()[alone].sum()), float(mass.ravel()[alone | every].sum())))
    return np.array(found).T


@pytest.mark.long
def test_all_that_is_implied_holds_whenever_the_numbers_do_by_enumeration(proven):
    alone, every = false_alone_and_with(proven, stated)
    assert np.array_equal(alone, every)
    assert SHARE / 2 < every.max() <= 3 * SHARE
    better = sum(stated(row, Mu()) > row[2].at_least + 1e-3 for row in proven)
    assert better > len(proven) / 20


def as_if_gaussian(numbers, question):
    """Negative control: epsilon read off a proven mu, as if only Gaussian mechanisms broke it."""
    mu = numbers[2].at_least
    if not isinstance(question, DeltaAt) or mu == 0:
        return stated(numbers, question)
    return float(gaussian_delta(question.epsilon, mu))


@pytest.mark.long
def test_a_proven_mu_implies_no_delta(proven):
    alone, every = false_alone_and_with(proven, as_if_gaussian)
    assert np.any(every > alone + 0.01)


def test_an_epsilon_of_0_and_a_mu_imply_nothing():
    nothing = ProvenNumber(name="epsilon", given=0.3, at_least=0.0, risk=0.1, rectangle=0.0)
    mu = ProvenNumber(name="mu", given=None, at_least=2.0, risk=0.1, rectangle=0.0)
    assert [stated((nothing,), question) for question in ALSO] == [0.0] * len(ALSO)
    assert [stated((mu,), question) for question in ALSO] == [0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0]
