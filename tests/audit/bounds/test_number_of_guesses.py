import itertools

import numpy as np
import pytest
from checks import assert_rate_at_most
from scipy.special import expit
from worst_training import largest_chance

from audit.bounds.bounds_from_guesses import capped_epsilon, capped_tail, epsilon_from_guesses, worst_tail
from audit.bounds.number_of_guesses import SAMPLE, foretold, guess_extremes, risk_split, sampled_canaries
from audit.bounds.ranking import drawn_places


def free_guesses(coins, sizes, answers=(0, 1)):
    """Every way to guess any of these numbers of the coins: where, and what."""
    return [
        (where, what)
        for k in sizes
        for where in itertools.combinations(coins, k)
        for what in itertools.product(answers, repeat=k)
    ]


def right(side, guess):
    return sum(side[i] == answer for i, answer in zip(*guess, strict=True))


def capped(needed, *, exposed, epsilon, split):
    """The risk at which every number of guesses, with so many needed right, is within its caps."""
    return max(capped_tail(v, k, epsilon=epsilon, exposed=exposed, split=split) for k, v in needed.items())


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("coins", "needed", "epsilon", "delta"),
    [
        (3, {1: 1, 3: 3}, 0.5, 0.02),
        (4, {2: 2, 4: 3}, 0.3, 0.05),
        (4, {1: 1, 3: 3}, 0.0, 0.05),
        (4, {2: 2, 3: 3}, 1.0, 0.01),
    ],
)
def test_no_training_that_chooses_the_number_of_guesses_exceeds_the_caps(coins, needed, epsilon, delta):
    outputs = free_guesses(range(coins), needed)
    best = largest_chance(coins, outputs, lambda side, y: right(side, y) >= needed[len(y[0])], [(epsilon, delta)])
    for split in (0.5, 0.8, 0.9):
        assert best <= capped(needed, exposed=coins * delta, epsilon=epsilon, split=split) + 1e-9


@pytest.mark.long
def test_full_risk_at_a_number_of_guesses_that_the_training_chooses_is_exceeded():
    coins, needed, epsilon, delta = 4, {2: 2, 4: 3}, 0.3, 0.05
    outputs = free_guesses(range(coins), needed)
    best = largest_chance(coins, outputs, lambda side, y: right(side, y) >= needed[len(y[0])], [(epsilon, delta)])
    alone = [worst_tail(v, k, epsilon=epsilon, exposed=coins * delta) for k, v in needed.items()]
    assert best > max(alone) + 0.005


def best_with_a_revealed_coin(coins, needed, places, epsilon, delta, answers=(0, 1)):
    """The same where an output names a coin to reveal, and what to guess of the others for either side of it."""
    outputs = [
        (place, each)
        for place in places
        for each in itertools.product(
            *(free_guesses([i for i in range(coins) if i != place], [size], answers) for size in needed)
        )
    ]

    def wins(side, output):
        place, guesses = output
        guess = guesses[side[place]]
        return right(side, guess) >= needed[len(guess[0])]

    return largest_chance(coins, outputs, wins, [(epsilon, delta)])


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("coins", "places", "needed", "epsilon", "delta"),
    [(3, range(3), {1: 1, 2: 2}, 0.5, 0.03), (4, [0], {1: 1, 3: 3}, 0.3, 0.05), (4, [0], {2: 2, 3: 2}, 1.0, 0.02)],
)
def test_no_training_that_reveals_a_coin_to_choose_exceeds_the_caps(coins, places, needed, epsilon, delta):
    best = best_with_a_revealed_coin(coins, needed, places, epsilon, delta)
    for split in (0.5, 0.8):
        assert best <= capped(needed, exposed=coins * delta, epsilon=epsilon, split=split) + 1e-9


@pytest.mark.long
def test_no_training_of_five_coins_that_reveals_one_exceeds_the_caps():
    """Guesses 'in' only: with free ones the program has 37,000 variables."""
    needed, epsilon, delta = {1: 1, 2: 2}, 0.5, 0.03
    best = best_with_a_revealed_coin(5, needed, [0], epsilon, delta, answers=(1,))
    for split in (0.5, 0.8):
        assert best <= capped(needed, exposed=5 * delta, epsilon=epsilon, split=split) + 1e-9


def test_a_guessed_coin_never_moves_the_choice():
    """Flip every guessed coin, one at a time and all at once: the guesses stay."""
    rng = np.random.default_rng(31)
    for m, shift, delta in ((40, 1.0, 0.0), (300, 2.0, 1e-3), (1000, 0.5, 1e-5)):
        coins = rng.random(m) < 0.5
        scores = rng.normal(size=m) + shift * coins
        order = np.argsort(-scores)
        scores, coins = scores[order], coins[order]
        found = guess_extremes(scores, coins, delta=delta, risk=0.05, sampled=sampled_canaries(len(scores), seed=0))
        free = np.flatnonzero(~drawn_places(m, int(SAMPLE * m), seed=0))
        guessed = np.concatenate([free[: found.guessed_in], free[len(free) - found.guessed_out :]])
        for flips in [guessed, *guessed[::9, None]]:
            moved = coins.copy()
            moved[flips] ^= True
            again = guess_extremes(scores, moved, delta=delta, risk=0.05, sampled=sampled_canaries(len(scores), seed=0))
            assert (again.guessed_in, again.guessed_out) == (found.guessed_in, found.guessed_out)
        wrong = coins.copy()
        wrong[guessed] = np.arange(len(guessed)) >= found.guessed_in
        again = guess_extremes(scores, wrong, delta=delta, risk=0.05, sampled=sampled_canaries(len(scores), seed=0))
        assert again.right == 0, "these are the coins it counts"


def clipped(rng, m, epsilon, shift=1.5):
    """Gaussian-like scores whose odds never exceed e^epsilon: exactly (epsilon, 0)-DP, from the highest score."""
    scores = rng.normal(size=m) + shift * (rng.random(m) < 0.5)
    coins = rng.random(m) < expit(np.clip(shift * (scores - shift / 2), -epsilon, epsilon))
    order = np.argsort(-scores)
    return scores[order], coins[order]


def shown(rng, m, delta):
    """(0, delta)-DP: all coins with probability delta, else nothing."""
    coins = rng.random(m) < 0.5
    scores = rng.random(m) + (coins if rng.random() < delta else 0)
    order = np.argsort(-scores)
    return scores[order], coins[order]


def exceeded(draw, truth, *, delta, runs, seed):
    """How often the bound is above the truth; and that of the best number of guesses picked afterwards."""
    rng = np.random.default_rng(seed)
    wrong = picked = 0
    for _ in range(runs):
        scores, coins = draw(rng)
        wrong += (
            guess_extremes(scores, coins, delta=delta, risk=0.1, sampled=sampled_canaries(len(scores), seed=0)).epsilon(
                delta
            )
            > truth
        )
        m, told = len(coins), np.cumsum(coins) + np.cumsum(~coins[::-1])
        ks = np.unique(np.geomspace(4, m // 2, 15).astype(int))
        bounds = foretold(
            told[ks - 1].astype(float), 2.0 * ks, exposed=m * delta, risk=0.1, split=risk_split(m * delta)
        )
        picked += bounds.max() > truth
    return wrong, picked


@pytest.mark.long
def test_bounds_keep_their_risk_and_the_best_number_picked_afterwards_does_not():
    wrong, picked = exceeded(lambda rng: clipped(rng, 800, 1.0), 1.0, delta=0.0, runs=250, seed=32)
    assert_rate_at_most(wrong, 250, 0.1)
    with pytest.raises(AssertionError):
        assert_rate_at_most(picked, 250, 0.1)


@pytest.mark.few(2)
@pytest.mark.parametrize(("m", "delta"), [(1000, 1e-5), (1000, 1e-3), (1000, 0.1)])
def test_a_training_that_shows_all_as_often_as_delta_keeps_the_risk(m, delta):
    wrong, _ = exceeded(lambda rng: shown(rng, m, delta), 0.0, delta=delta, runs=60, seed=33)
    assert_rate_at_most(wrong, 60, 0.1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("draw", "truth", "delta"),
    [
        (lambda rng: clipped(rng, 1000, 1.0), 1.0, 0.0),
        (lambda rng: clipped(rng, 1000, 2.0), 2.0, 1e-3),
        (lambda rng: shown(rng, 1000, 1e-5), 0.0, 1e-5),
        (lambda rng: shown(rng, 1000, 1e-3), 0.0, 1e-3),
        (lambda rng: shown(rng, 1000, 0.1), 0.0, 0.1),
    ],
    ids=["epsilon 1", "epsilon 2, delta 1e-3", "m delta .01", "m delta 1", "m delta 100"],
)
def test_two_thousand_null_runs_keep_the_risk(draw, truth, delta):
    wrong, picked = exceeded(draw, truth, delta=delta, runs=2000, seed=34)
    print(f"delta {delta:g}: {wrong} of 2000 bounds above {truth} at risk .1; picked afterwards {picked}")
    assert_rate_at_most(wrong, 2000, 0.1)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 20, 200])
def test_any_number_of_canaries_will_do(m):
    rng = np.random.default_rng(m)
    for scores in (np.zeros(m), -np.sort(rng.normal(size=m))):
        found = guess_extremes(
            scores, rng.random(m) < 0.5, delta=1e-5, risk=0.05, sampled=sampled_canaries(len(scores), seed=0)
        )
        assert 1 <= found.guessed <= m
        assert found.revealed + found.guessed <= m
        assert found.epsilon(1e-5) >= 0


def test_the_bound_ends_where_a_cap_is_reached_and_is_below_that_of_a_number_fixed_beforehand():
    for right_guesses, guesses, exposed in ((180, 200, 1.0), (100, 100, 0.01), (900, 1000, 5.0)):
        split = risk_split(exposed)
        bound = capped_epsilon(right_guesses, guesses, exposed=exposed, risk=0.05, split=split)
        assert 0 < bound < epsilon_from_guesses(right_guesses, guesses, exposed=exposed, risk=0.05)
        assert capped_tail(right_guesses, guesses, epsilon=bound, exposed=exposed, split=split) <= 0.05
        assert capped_tail(right_guesses, guesses, epsilon=bound + 1e-6, exposed=exposed, split=split) > 0.05
        near = foretold(
            np.array([float(right_guesses)]), np.array([float(guesses)]), exposed=exposed, risk=0.05, split=split
        )
        assert near[0] == pytest.approx(bound, abs=4e-4)
    assert risk_split(0.0) == 1.0


def test_scores_of_a_sampled_step_are_guessed_on_one_side():
    """Nothing in the middle shows what the highest scores are worth: the random sample does."""
    rng = np.random.default_rng(35)
    coins = rng.random(10_000) < 0.5
    scores = (coins & (rng.random(10_000) < 0.1)) + 0.3 * rng.normal(size=10_000)
    order = np.argsort(-scores)
    found = guess_extremes(
        scores[order], coins[order], delta=1e-5, risk=0.05, sampled=sampled_canaries(len(scores), seed=0)
    )
    assert found.guessed_out == 0
    assert found.epsilon(1e-5) > 2.5
