"""Claims as curves: the certificate equals the linear program over all mechanisms and is kept by every null run."""

import numpy as np
import pytest
from checks import assert_rate_at_most
from scipy.optimize import linprog
from scipy.special import ndtr
from scipy.stats import binom
from worst_training import best_training

import guarantees
from audit.bounds.bounds_from_guesses import curve_p_value, gaussian_inverse, inverse_of
from audit.bounds.sharp_guesses import MOST_GUESSES, best_stakes, certified_tail, profile_of, sharp_tail

EPSILONS, DELTAS, REVERSE = np.array([0.0, 0.5, 1.2]), np.array([0.3, 0.15, 0.02]), np.array([0.25, 0.1, 0.05])


def tail(correct, guesses, *, coins, epsilons=EPSILONS, deltas=DELTAS):
    stakes = best_stakes(correct, guesses, coins=coins, epsilons=epsilons, deltas=deltas)
    return certified_tail(correct, guesses, coins=coins, epsilons=epsilons, deltas=deltas, stakes=stakes)


def gaussian(mu):
    return profile_of(guarantees.gaussian(mu=mu).curve, "both")


@pytest.mark.parametrize(
    ("coins", "guesses", "correct"),
    [
        (3, 3, 2),
        (2, 2, 2),
        (3, 2, 1),
        *(pytest.param(*each, marks=pytest.mark.long) for each in ((4, 2, 1), (4, 3, 2), (5, 1, 1), (5, 2, 1))),
    ],
)
def test_the_certificate_is_the_best_of_all_mechanisms(coins, guesses, correct):
    best = best_training(coins, guesses, correct, list(zip(EPSILONS, DELTAS, strict=True)))
    assert tail(correct, guesses, coins=coins) == pytest.approx(best, abs=3e-6)


@pytest.mark.parametrize(("coins", "guesses", "correct"), [(3, 3, 2), (3, 2, 2)])
def test_a_curve_that_is_not_symmetric_costs_the_mean_of_both_directions_or_the_one_that_is_guessed(
    coins, guesses, correct
):
    both = list(zip(EPSILONS, DELTAS, strict=True)), list(zip(EPSILONS, REVERSE, strict=True))
    mean = tail(correct, guesses, coins=coins, deltas=(DELTAS + REVERSE) / 2)
    assert best_training(coins, guesses, correct, both[0], reverse=both[1]) <= mean + 1e-7
    for answers, own in ((guesses, DELTAS), (0, REVERSE)):
        best = best_training(coins, guesses, correct, both[0], reverse=both[1], guessed_in=answers)
        assert best <= tail(correct, guesses, coins=coins / 2, deltas=own) + 1e-7


def test_any_stakes_prove_something_true_and_none_prove_nothing():
    rng = np.random.default_rng(31)
    best = best_training(3, 3, 2, list(zip(EPSILONS, DELTAS, strict=True)))
    for _ in range(60):
        stakes = rng.exponential(0.3, 3) * (rng.random(3) < 0.7)
        found = certified_tail(2, 3, coins=3, epsilons=EPSILONS, deltas=DELTAS, stakes=stakes)
        assert found >= best - 1e-7
    nothing = certified_tail(2, 3, coins=3, epsilons=EPSILONS, deltas=DELTAS, stakes=np.zeros(3))
    assert nothing == pytest.approx(1.0)
    wild = certified_tail(2, 3, coins=3, epsilons=EPSILONS, deltas=DELTAS, stakes=np.full(3, 1e9))
    assert wild == 1.0


def test_the_published_recursion_is_loose_and_independent_coins_are_not_the_worst():
    sharp = sharp_tail(30, 40, coins=40, profile=gaussian(0.5))
    recursion = curve_p_value(30, 40, coins=40, inverse=gaussian_inverse(0.5))
    assert sharp == pytest.approx(0.1459, abs=3e-4)
    assert recursion == pytest.approx(0.185, abs=2e-3)
    assert binom.sf(29, 40, ndtr(0.25)) < 0.04
    assert sharp_tail(0, 40, coins=40, profile=gaussian(0.5)) == 1.0
    assert sharp_tail(MOST_GUESSES, MOST_GUESSES + 1, coins=1e5, profile=gaussian(0.1)) == 1.0


@pytest.mark.long
def test_a_sampled_and_composed_claim_is_refuted_by_its_own_deltas_at_many_epsilons():
    claim = guarantees.poisson_training(rate=0.01, noise_multiplier=1.0, steps=1000)
    recursion = {
        side: inverse_of(whole)
        for side, whole in (("both", claim.curve.symmetrise()), ("in", claim.curve), ("out", claim.curve.reverse))
    }
    for side, coins in (("both", 2_000), ("in", 1_000), ("out", 1_000)):
        profile = profile_of(claim.curve, side)
        sharp = sharp_tail(104, 120, coins=coins, profile=profile)
        assert sharp < 0.9 * curve_p_value(104, 120, coins=coins, inverse=recursion[side])
        for epsilon in (0.5, 1.0, 1.8):
            one = profile(np.array([epsilon]))
            assert sharp < tail(104, 120, coins=coins, epsilons=np.array([epsilon]), deltas=one), (
                "one epsilon says less"
            )


def right_of(scores, coins, pair):
    """How many of the highest scores are in and of the lowest out, for each row."""
    ranked = np.take_along_axis(coins, np.argsort(-scores, axis=1), axis=1)
    return ranked[:, : pair[0]].sum(1) + (~ranked[:, coins.shape[1] - pair[1] :]).sum(1)


def fewest(p_value, guesses, risk):
    """Least number of right guesses whose p-value is within the risk."""
    low, high = 0, guesses
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if p_value(middle) <= risk else (middle, high)
    return high


def worst_law(correct, guesses, *, coins, epsilons, deltas):
    """The law of right guesses that the program finds worst, written down independently: j right, then one more."""
    k, levels = guesses, len(epsilons)
    rows, limit = np.zeros((k * levels + levels, k + 1 + k * levels)), np.zeros(k * levels + levels)
    for e, (epsilon, delta) in enumerate(zip(epsilons, deltas, strict=True)):
        for j in range(k):
            row = e * k + j
            rows[row, j + 1], rows[row, j], rows[row, k + 1 + row] = j + 1, -np.exp(epsilon) * (k - j), -1
            rows[k * levels + e, k + 1 + row] = 1
        limit[k * levels + e] = coins * delta
    law = np.arange(rows.shape[1]) <= k
    wins = np.where(law & (np.arange(rows.shape[1]) >= correct), -1.0, 0.0)
    solved = linprog(wins, A_ub=rows, b_ub=limit, A_eq=law[None, :].astype(float), b_eq=[1.0])
    return np.maximum(solved.x[: k + 1], 0.0) / np.maximum(solved.x[: k + 1], 0.0).sum()


def test_two_thousand_null_runs_keep_the_risk_and_a_p_value_of_independent_coins_does_not():
    rng, m, mu, pair, risk, runs = np.random.default_rng(32), 400, 1.0, (20, 20), 0.1, 2_000
    needed = fewest(lambda v: sharp_tail(v, sum(pair), coins=m, profile=gaussian(mu)), sum(pair), risk)
    coins = rng.random((runs, m)) < 0.5
    right = right_of(rng.normal(size=coins.shape) + mu * coins, coins, pair)
    assert_rate_at_most(int((right >= needed).sum()), runs, risk)
    # the same m-coin promise kept by the worst of all trainings, which spends it on one and the same runs
    epsilons = np.linspace(0.0, 4.0, 30)
    law = worst_law(needed, sum(pair), coins=m, epsilons=epsilons, deltas=gaussian(mu)(epsilons))
    worst = rng.choice(sum(pair) + 1, size=runs, p=law)
    wrong = int((worst >= needed).sum())
    spent = sharp_tail(needed, sum(pair), coins=m, profile=gaussian(mu))
    assert_rate_at_most(wrong, runs, spent)
    assert wrong > 0.7 * spent * runs, "the tail is not just valid but sharp"
    independent = fewest(lambda v: np.mean(right >= v), sum(pair), risk)
    with pytest.raises(AssertionError):
        assert_rate_at_most(int((worst >= independent).sum()), runs, risk)
