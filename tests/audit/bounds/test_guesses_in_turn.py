"""Coins guessed in turn, each revealed after its guess: binomial at delta 0, and not with a delta."""

import itertools
import math

import numpy as np
import pytest
from all_trainings import best_training
from checks import assert_rate_at_most
from scipy.special import expit
from scipy.stats import binom

from audit.bounds.bounds_from_guesses import worst_tail
from audit.bounds.guesses_in_turn import Rule, best_rule, guessed_in_turn, log_odds

RISK = 0.1


def ways(coins):
    """Every way to guess all coins in turn, the first one named by the output: later guesses read earlier coins."""
    seen = [list(itertools.product((0, 1), repeat=turn)) for turn in range(coins)]
    tables = [
        [dict(zip(known, answers, strict=True)) for answers in itertools.product((0, 1), repeat=len(known))]
        for known in seen
    ]
    return [(first, table) for first in range(coins) for table in itertools.product(*tables)]


def right_in_turn(side, way):
    first, tables = way
    turned = side[first:] + side[:first]
    return sum(table[turned[:turn]] == turned[turn] for turn, table in enumerate(tables))


@pytest.mark.few(1)
@pytest.mark.parametrize(("coins", "needed"), [(2, 1), (2, 2), (3, 2), (3, 3)])
def test_no_training_without_a_delta_has_more_right_guesses_in_turn_than_a_binomial(coins, needed):
    epsilon = 0.7
    best = best_training(coins, ways(coins), lambda side, way: right_in_turn(side, way) >= needed, epsilon, 0.0)
    assert best == pytest.approx(binom.sf(needed - 1, coins, expit(epsilon)), abs=1e-6)


def two_of(coins):
    """Every way to guess two coins: the first one's truth chooses the second and its answer."""
    for first, answer in itertools.product(range(coins), (0, 1)):
        rest = list(itertools.product(set(range(coins)) - {first}, (0, 1)))
        for second in itertools.product(rest, repeat=2):
            yield first, answer, second


def right_of_two(side, way):
    first, answer, second = way
    place, guess = second[side[first]]
    return (side[first] == answer) + (side[place] == guess)


@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_a_coin_that_chooses_the_next_one_to_guess_gains_nothing(delta):
    """With a delta this is an observation of three coins, and no proof: such guesses are refused."""
    best = best_training(3, list(two_of(3)), lambda side, way: right_of_two(side, way) >= 2, 0.5, delta)
    assert best == pytest.approx(worst_tail(2, 2, epsilon=0.5, exposed=3 * delta), abs=1e-6)


def test_log_odds_are_those_of_all_coins_by_enumeration():
    rng, each = np.random.default_rng(60), 4
    likelihoods = rng.normal(size=(7, each + 1))
    coins = rng.random((7, each)) < 0.5
    for turn, place in itertools.product(range(each), range(7)):
        chances = {0: 0.0, 1: 0.0}
        for whole in itertools.product((0, 1), repeat=each):
            if list(whole[:turn]) == coins[place, :turn].astype(int).tolist():
                chances[whole[turn]] += math.exp(likelihoods[place, sum(whole)])
        found = log_odds(likelihoods, coins, turn=turn)[place]
        assert found == pytest.approx(math.log(chances[1] / chances[0]), abs=1e-9)


def told(rng, places, each, epsilon):
    """The heads of every place with two-sided geometric noise: with all other coins known, log odds are +-epsilon."""
    coins = rng.random((places, each)) < 0.5
    shown = coins.sum(1) + rng.geometric(-math.expm1(-epsilon), places) - rng.geometric(-math.expm1(-epsilon), places)
    return -epsilon * np.abs(shown[:, None] - np.arange(each + 1)), coins


@pytest.mark.long
def test_two_thousand_null_runs_in_turn_keep_the_risk_and_a_peek_at_ones_own_coin_does_not():
    rng, epsilon, runs, peeks = np.random.default_rng(61), 1.0, 2_000, 200
    rule = best_rule([told(rng, 60, 4, epsilon) for _ in range(10)], risk=RISK)

    def refuted(likelihoods, coins):
        found = guessed_in_turn(likelihoods, coins, rule=rule, risk=RISK)
        return found.p_value(found.right, epsilon=epsilon, delta=0.0) <= RISK

    wrong = peeked = 0
    for run in range(runs):
        likelihoods, coins = told(rng, 60, 4, epsilon)
        wrong += refuted(likelihoods, coins)
        if run < peeks:
            # likelihoods of ten places read their coins
            likelihoods[:10] = np.where(np.arange(5) == coins[:10].sum(1)[:, None], 40.0, -40.0)
            peeked += refuted(likelihoods, coins)
    assert_rate_at_most(wrong, runs, RISK)
    assert wrong > 0.04 * runs, "a risk that is used"
    with pytest.raises(AssertionError):
        assert_rate_at_most(peeked, peeks, RISK)


def test_guesses_that_are_never_made_count_as_wrong_and_no_coin_is_guessed_by_itself():
    rng = np.random.default_rng(62)
    likelihoods, coins = told(rng, 5, 3, 1.0)
    found = guessed_in_turn(likelihoods, coins, rule=Rule(threshold=math.inf, guesses=9), risk=RISK)
    assert found.guessed == 9
    assert found.right <= 5, "only the last turn of five places was left to guess"
    assert found.revealed == 10
    other = coins.copy()
    other[:, -1] ^= True
    rule = Rule(threshold=0.1, guesses=15)
    odds = [log_odds(likelihoods, own, turn=2) for own in (coins, other)]
    np.testing.assert_array_equal(*odds)
    moved = guessed_in_turn(likelihoods, other, rule=rule, risk=RISK)
    assert moved.guessed_in == guessed_in_turn(likelihoods, coins, rule=rule, risk=RISK).guessed_in
