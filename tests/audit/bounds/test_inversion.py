import numpy as np
import pytest
from scipy.stats import binom

from audit.bounds import inversion as inversions
from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt, Mu
from audit.bounds.clopper_pearson import (
    ErrorCounts,
    delta_lower_bound,
    epsilon_lower_bound,
    mu_lower_bound,
)
from audit.bounds.inversion import (
    approximate_bound,
    inversion,
    joint_bound,
    joint_delta_bound,
    joint_epsilon_bound,
    joint_mu_bound,
)

QUESTIONS = {
    "epsilon": EpsilonAt(delta=0.05),
    "pure": EpsilonAt(delta=0.0),
    "delta": DeltaAt(epsilon=0.0),
    "delta_at_1": DeltaAt(epsilon=1.0),
    "mu": Mu(),
}
LARGEST = {"epsilon": 4.0, "pure": 4.0, "delta": 0.99, "delta_at_1": 0.99, "mu": 4.0}


def counted(false_alarms, trials_without, misses, trials_with):
    return ErrorCounts(false_alarms=false_alarms, trials_without=trials_without, misses=misses, trials_with=trials_with)


def table(bound, n0, n1):
    return np.array([[bound(counted(a, n0, m, n1)) for m in range(n1 + 1)] for a in range(n0 + 1)])


def size(question, bounds, largest):
    """Largest probability that the bound exceeds the truth, over truths and error rates on the truth's curve."""
    n0, n1 = np.array(bounds.shape) - 1
    alpha = np.concatenate([np.linspace(0, 1, 801), np.logspace(-4, -1, 100)])
    worst = 0.0
    for theta in np.concatenate([np.linspace(0, largest, 60), np.unique(bounds[bounds <= largest]) - 1e-9]):
        if theta < 0:
            continue
        beta = question.curve(theta, alpha)
        mass0 = binom.pmf(np.arange(n0 + 1)[:, None], n0, alpha)
        mass1 = binom.pmf(np.arange(n1 + 1)[:, None], n1, beta)
        worst = max(worst, float(np.einsum("ax,am,mx->x", mass0, (bounds > theta).astype(float), mass1).max()))
    return worst


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["epsilon", "delta", "mu"])
def test_a_bound_exceeds_the_truth_at_most_at_its_risk_by_enumeration(name):
    question = QUESTIONS[name]
    bounds = table(lambda c: joint_bound(c, question, risk=0.1), 10, 7)
    assert 0.05 < size(question, bounds, LARGEST[name]) <= 0.1


@pytest.mark.long
@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize(("n0", "n1", "risk"), [(20, 20, 0.05), (8, 40, 0.05), (40, 8, 0.2), (25, 25, 0.01)])
def test_a_bound_keeps_its_risk_for_every_question_by_enumeration(name, n0, n1, risk):
    question = QUESTIONS[name]
    bounds = table(lambda c: joint_bound(c, question, risk=risk), n0, n1)
    assert risk / 3 < size(question, bounds, LARGEST[name]) <= risk


@pytest.mark.long
def test_the_order_alone_is_no_bound():
    """Negative control of the enumeration: the normal approximation is wrong more often than its risk."""
    for name in ("epsilon", "delta", "mu"):
        question = QUESTIONS[name]
        rough = table(
            lambda c, q=question: float(
                approximate_bound(c.false_alarms, c.misses, trials=(10, 7), question=q, risk=0.1)
            ),
            10,
            7,
        )
        assert size(question, rough, LARGEST[name]) > 0.1


@pytest.mark.long
def test_three_numbers_at_the_whole_risk_do_not_hold_together():
    """Why shares must sum to the risk: one of epsilon, delta and mu is wrong more often than each."""
    questions = [EpsilonAt(delta=0.1), DeltaAt(epsilon=1.0), Mu()]
    bounds = [table(lambda c, q=q: joint_bound(c, q, risk=0.1), 10, 7) for q in questions]
    worst = 0.0
    for alpha in np.linspace(0.01, 0.5, 50):
        for beta in np.linspace(0.01, 1 - alpha, 50):
            wrong = np.zeros(bounds[0].shape, bool)
            for question, bound in zip(questions, bounds, strict=True):
                wrong |= bound > question.through(alpha, beta)
            mass = np.outer(binom.pmf(np.arange(11), 10, alpha), binom.pmf(np.arange(8), 7, beta))
            worst = max(worst, float(mass[wrong].sum()))
    assert worst > 0.1


def test_p_values_grow_with_the_number_so_the_first_crossing_is_the_only_one():
    for name, counts in (
        ("epsilon", counted(1, 30, 9, 25)),
        ("mu", counted(3, 40, 12, 30)),
        ("pure", counted(0, 9, 3, 9)),
    ):
        test = inversion(counts, QUESTIONS[name], risk=0.05)
        p = np.array([test.p_value(theta) for theta in np.linspace(0, LARGEST[name], 120)])
        # up to the search for the worst rates, whose tolerance the margin covers
        assert np.all(np.diff(p) >= -inversions.MARGIN * p[1:])


def test_a_p_value_is_what_a_dense_search_finds():
    for name in QUESTIONS:
        question = QUESTIONS[name]
        for counts in (counted(2, 30, 9, 25), counted(0, 40, 20, 30), counted(14, 60, 3, 50), counted(1, 100, 60, 80)):
            test = inversion(counts, question, risk=0.05)
            if test is None:
                continue
            theta = joint_bound(counts, question, risk=0.05)
            kink = np.clip(question.middle(theta), test.low, test.high)
            alpha = np.append(np.linspace(test.low, test.high, 3001), kink)
            a = np.arange(counts.trials_without + 1)
            region = np.full(len(a), -1)
            for first, last, limit in zip(test.region.first, test.region.last, test.region.limit, strict=True):
                region[first : last + 1] = limit
            met = np.where(
                region[:, None] < 0, 0, binom.cdf(region[:, None], counts.trials_with, question.curve(theta, alpha))
            )
            dense = float(np.sum(binom.pmf(a[:, None], counts.trials_without, alpha) * met, axis=0).max())
            ours = test.p_value(theta) - test.gamma
            assert dense <= ours <= dense * (1 + 2 * inversions.MARGIN), (name, counts)
            assert theta == 0 or dense + test.gamma == pytest.approx(0.05, rel=5e-3)


def test_the_region_is_exactly_the_counts_ordered_as_high():
    question, n0, n1 = EpsilonAt(delta=0.05), 12, 9
    counts = counted(2, n0, 3, n1)
    test = inversion(counts, question, risk=0.05)
    a, m = np.meshgrid(np.arange(n0 + 1), np.arange(n1 + 1), indexing="ij")
    order = approximate_bound(a, m, trials=(n0, n1), question=question, risk=0.05)
    inside = np.zeros(order.shape, bool)
    for first, last, limit in zip(test.region.first, test.region.last, test.region.limit, strict=True):
        inside[first : last + 1] = np.arange(n1 + 1) <= limit
    seen = order >= order[2, 3] - 1e-9
    covered = slice(test.region.first[0], test.region.last[-1] + 1)
    assert np.array_equal(inside[covered], seen[covered])


@pytest.mark.parametrize(("a", "m"), [(7, 99_740), (80, 98_500), (31_000, 30_800), (98_500, 80)])
def test_both_counts_together_prove_more_than_the_rectangle(a, m):
    counts = counted(a, 100_000, m, 100_000)
    assert joint_epsilon_bound(counts, delta=1e-5, risk=0.05) > epsilon_lower_bound(counts, delta=1e-5, risk=0.05)
    assert joint_delta_bound(counts, epsilon=0.0, risk=0.05) > delta_lower_bound(counts, epsilon=0.0, risk=0.05)
    assert joint_mu_bound(counts, risk=0.05) > mu_lower_bound(counts, risk=0.05)


def test_a_perfect_score_gives_the_exact_bound():
    """No error at all: delta is excluded iff (1 - (1-delta)/2)^2n <= risk less gamma."""
    n, risk = 100, 0.05
    exact = 1 - 2 * (1 - (risk * (1 - inversions.GAMMA_SHARE)) ** (1 / (2 * n)))
    assert joint_delta_bound(counted(0, n, 0, n), epsilon=0.0, risk=risk) == pytest.approx(exact, abs=2e-4)


def test_counts_that_show_nothing_give_zero():
    for counts in (
        counted(50, 100, 50, 100),
        counted(100, 100, 0, 100),
        counted(0, 1, 0, 1),
        counted(60, 100, 70, 100),
    ):
        for question in QUESTIONS.values():
            assert joint_bound(counts, question, risk=0.05) == 0.0


def test_exchanging_the_datasets_changes_nothing_but_the_nuisance():
    one = joint_epsilon_bound(counted(98_500, 10**5, 80, 10**5), delta=1e-5, risk=0.05)
    other = joint_epsilon_bound(counted(80, 10**5, 98_500, 10**5), delta=1e-5, risk=0.05)
    assert one == pytest.approx(other, abs=1e-3)


def test_bounds_grow_as_errors_fall_and_as_the_risk_rises():
    by_alarms = [joint_epsilon_bound(counted(a, 1000, 800, 1000), delta=1e-5, risk=0.05) for a in range(0, 40, 8)]
    by_risk = [joint_epsilon_bound(counted(20, 1000, 800, 1000), delta=1e-5, risk=r) for r in (1e-6, 1e-3, 0.05, 0.3)]
    assert np.all(np.diff(by_alarms) < 0)
    assert np.all(np.diff(by_risk) > 0)
