"""Where a claim of an epsilon breaks, in the user's own numbers, and right releases of which nothing is said."""

import jax
import numpy as np
import pytest
from checks import assert_rate_at_most

import audit
import guarantees
import mechanisms
from audit.diagnosis.telling_event import telling_event

TRIALS, EPSILON = 2000, 1.0
COUNTS = (np.array([1, 2, 1, 1, 0]), np.array([1, 3, 1, 1, 0]))
"""Histograms without the record and with it."""


def noisy_winner(rng, counts):
    """The place of the largest noisy count, and the count without noise."""
    places = np.argmax(counts + rng.laplace(scale=2 / EPSILON, size=(TRIALS, 5)), axis=1)
    return np.stack([places, counts[places]], axis=1)


def chosen(rng, counts, epsilon):
    weights = np.exp(epsilon * counts)
    return rng.choice(5, p=weights / weights.sum(), size=(TRIALS, 1))


def total(noise):
    return lambda rng, counts: counts.sum() + noise(rng, (TRIALS, 1))


def laplace(rng, shape):
    return rng.laplace(scale=1 / EPSILON, size=shape)


WRONG = {
    "the winner's count": (noisy_winner, "the release is (1, 3) in ", "bare_part"),
    "a sharp choice": (lambda rng, counts: chosen(rng, counts, 3.0), "the release is ", "sharp_choice"),
    "uniform noise": (total(lambda rng, shape: rng.uniform(-3, 3, shape)), "the release is ", "cut"),
}
RIGHT = {
    "a choice": lambda rng, counts: chosen(rng, counts, EPSILON / 2),
    "a count": total(laplace),
    "a rounded count": lambda rng, counts: np.round(total(laplace)(rng, counts)),
    "a histogram": lambda rng, counts: counts + laplace(rng, (TRIALS, 5)),
}


def found(make, seed, risk=1e-3):
    sides = [make(np.random.default_rng([seed, side]), counts) for side, counts in enumerate(COUNTS)]
    return telling_event(*sides, epsilon=EPSILON, delta=1e-5, risk=risk)


@pytest.mark.parametrize("name", WRONG)
def test_the_release_that_breaks_a_claim_is_named(name):
    """Nothing was said of these but that the claim is broken."""
    make, says, cause = WRONG[name]
    answer = found(make, 1)
    assert answer is not None
    assert answer.wrong
    assert answer.says.startswith(says)
    assert "the claim allows at most 2.72 times as many" in answer.says
    assert answer.causes[0] == cause


@pytest.mark.few(1)
@pytest.mark.parametrize("name", RIGHT)
def test_right_releases_are_not_accused(name):
    runs, risk = 50, 0.05
    assert_rate_at_most(sum(found(RIGHT[name], seed, risk) is not None for seed in range(runs)), runs, risk)


def test_few_trials_and_no_limit_say_nothing():
    sides = [np.zeros((30, 1)), np.ones((30, 1))]
    assert telling_event(*sides, epsilon=1.0, delta=0.0, risk=0.1) is None
    sides = [np.zeros((300, 1)), np.ones((300, 1))]
    assert telling_event(*sides, epsilon=np.inf, delta=0.0, risk=0.1) is None
    assert telling_event(*sides, epsilon=1.0, delta=0.0, risk=0.1) is not None
    assert telling_event(sides[0], sides[0], epsilon=1.0, delta=0.0, risk=0.1) is None


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([[1, 3], [0, 2]], "the release is (0, 2) or (1, 3) in "),
        ([[0, 0, 1, 0, 0, 1], [1, 0, 0, 0, 0, 1]], "the release is one of 2 values such as ("),
    ],
)
def test_values_of_many_numbers_are_not_all_listed(values, says):
    """'The release is one of (1.24672, 2.68428, ...), (0.310145, ...' and 'with it' came before the record."""
    with_record = np.repeat(values, 100, axis=0)
    without = np.repeat(np.random.default_rng(0).normal(size=(20, with_record.shape[1])), 10, axis=0)
    told = telling_event(without, with_record, epsilon=1.0, delta=0.0, risk=0.1).says
    assert told.startswith(says)
    assert "in 100 of 100 trials with the record and in 0 of 100 without it; " in told


def always_its_own_bit(seed, rows):
    """As a library's RAPPOR does: of eight bits the record's own never becomes 0."""
    generator = np.random.default_rng(seed)
    own = np.arange(8) == int(rows[0, 0])
    return np.where(own, 1.0, generator.random(8) < 0.5)


def coin_of_two_answers(seed, rows):
    generator, own = np.random.default_rng(seed), int(rows[0, 0])
    return float(own if generator.random() < 0.73 else (own + generator.integers(1, 4)) % 4)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("code", "epsilon", "says"),
    [(always_its_own_bit, 2.2, "coordinate"), (coin_of_two_answers, 1.0, "the release is")],
)
def test_of_few_values_the_telling_one_is_said_first(code, epsilon, says):
    """It was 'moves the release by 1.5 noise deviations: too little noise'."""
    pair = mechanisms.replace_record(np.array([[1.0]], np.float32), 0, np.array([3.0], np.float32))
    given = {"claim": guarantees.randomised_response(epsilon=epsilon, relation="substitution"), "trials": 2000}
    record = audit.run_audit(mechanisms.callable_step(code), pair, **given, risk=0.05, key=jax.random.key(2))
    assert record.verdict == "violation"
    (wrong,) = (found for found in record.diagnoses if found.wrong)
    assert wrong.code in ("telling_event", "clear")
    assert says in wrong.says
    assert sum(found.risk for found in record.diagnoses) <= 0.2 * record.risk


def test_values_that_came_once_are_not_named():
    """It was 'the release is 0, 0.000187412, 0.00432989 or 0.00648279'."""
    rng = np.random.default_rng(3)
    without = rng.normal(size=(TRIALS, 1))
    # two thirds of the trials repeat a value
    without[: TRIALS // 3], without[TRIALS // 3 : 2 * TRIALS // 3] = 5.0, 6.0
    with_record = without.copy()
    with_record[with_record == 5.0] = 0.0
    found = telling_event(rng.permutation(without), rng.permutation(with_record), epsilon=1.0, delta=0.0, risk=0.01)
    assert found is not None
    assert found.says.startswith(("the release is 0 in ", "the release is 5 in "))
