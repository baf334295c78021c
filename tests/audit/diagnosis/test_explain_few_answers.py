"""Answers that a draw chooses among few: no line of right code is named, and data beside them are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import Kind, explain
from audit.diagnosis.explain.jaxprs.few_answers import CHOSEN

VOTES = mechanisms.replace_record(np.array([0, 0, 0]), 0, 2)
RANDOMISED = guarantees.randomised_response(epsilon=1.0, relation="substitution")


def counts(votes):
    return jnp.bincount(votes, length=4)


def exponential(key, votes):
    return jax.random.choice(key, 4, p=jax.nn.softmax(0.5 * counts(votes)))


def by_sums(key, votes):
    return jnp.searchsorted(jnp.cumsum(jax.nn.softmax(0.5 * counts(votes))), jax.random.uniform(key))


def one_of_items(key, votes):
    return jnp.array([10.0, 20.0, 50.0, 70.0])[exponential(key, votes)]


def three_times(key, votes):
    return jnp.stack([exponential(own, votes) for own in jax.random.split(key, 3)])


def from_a_table(key, votes):
    one = (votes[0] == 2).astype(int)
    return jnp.stack([one, 1 - one])[jax.random.bernoulli(key, 0.25).astype(int)]


def by_arithmetic(key, votes):
    keeps, one = jax.random.bernoulli(key, 0.75).astype(int), (votes[0] == 2).astype(int)
    return keeps * one + (1 - keeps) * (1 - one)


@pytest.mark.few(5)
@pytest.mark.parametrize("claim", [None, RANDOMISED])
@pytest.mark.parametrize("answer", [exponential, by_sums, one_of_items, three_times, from_a_table, by_arithmetic])
def test_a_random_choice_is_not_accused(answer, claim):
    told = explain(mechanisms.mechanism(answer), VOTES, key=jax.random.key(0), claim=claim)
    assert not told.suspicions
    assert told.not_judged


def raw_beside(key, votes):
    return {"item": exponential(key, votes), "votes": counts(votes)}


def largest(key, votes):
    return jnp.argmax(counts(votes).at[2].mul(3))


def counted(key, votes):
    return counts(votes) + 0 * jax.random.randint(key, (), 0, 4)


def shifted(key, votes):
    raw = 4 * counts(votes)[2]
    return jnp.stack([raw, raw + 1])[jax.random.bernoulli(key, 0.5).astype(int)]


@pytest.mark.few(2)
@pytest.mark.parametrize("answer", [raw_beside, largest, counted, shifted])
def test_data_that_no_choice_hides_are_found(answer):
    told = explain(mechanisms.mechanism(answer), VOTES, key=jax.random.key(0), claim=RANDOMISED)
    assert told.suspicions
    assert all(CHOSEN not in one.says for one in told.findings)


REAL = mechanisms.replace_record(np.array([-1.0], "f4"), 0, 1.0)
Z = np.exp(0.5)
EDGE = (Z + 1) / (Z - 1)


def piecewise(key, answer):
    coin, place = jax.random.uniform(key, (2,))
    left = (EDGE + 1) / 2 * answer[0] - (EDGE - 1) / 2
    around = place * (EDGE + 1)
    outside = jnp.where(around < left + EDGE, around - EDGE, around - EDGE + (EDGE - 1))
    return jnp.where(coin < Z / (Z + 1), left + place * (EDGE - 1), outside)


def between_bounds(key, answer):
    chooses, side, inner, outer = jax.random.split(key, 4)
    left = (EDGE + 1) / 2 * answer[0] - (EDGE - 1) / 2
    right = left + EDGE - 1
    place = jax.random.uniform(outer)
    below = jax.random.uniform(side) < (left + EDGE) / (EDGE + 1)
    outside = jnp.where(below, -EDGE + place * (left + EDGE), right + place * (EDGE - right))
    near = jax.random.uniform(inner, minval=left, maxval=right)
    return jnp.where(jax.random.uniform(chooses) < Z / (Z + 1), near, outside)


def hybrid(key, answer):
    chooses, coin, own = jax.random.split(key, 3)
    two = jnp.where(jax.random.uniform(coin) < 0.5 + 0.2 * answer[0], 2.0, -2.0)
    return jnp.where(jax.random.bernoulli(chooses, 0.4), piecewise(own, answer), two)


def square_wave(key, answer):
    centre, (coin, place) = (answer[0] + 1) / 2, jax.random.uniform(key, (2,))
    outside = jnp.where(place < centre, place - 0.25, place + 0.25)
    return jnp.where(coin < 0.576, centre - 0.25 + 0.5 * place, outside)


@pytest.mark.few(2)
@pytest.mark.parametrize("answer", [piecewise, between_bounds, hybrid, square_wave])
def test_an_answer_from_an_interval_is_not_accused(answer):
    told = explain(answer, REAL, key=jax.random.key(0), claim=RANDOMISED)
    assert not told.suspicions
    assert CHOSEN in told.not_judged[0].says


def cut_afterwards(key, answer):
    return jnp.clip(5 * answer.sum() + jax.random.laplace(key), -3, 3)


def moved_interval(key, answer):
    return answer.sum() + jax.random.uniform(key, minval=-50, maxval=50)


def with_tails(key, answer):
    return 0.01 * answer.sum() + 2 * jax.random.laplace(key)


@pytest.mark.parametrize("answer", [cut_afterwards, moved_interval, with_tails])
def test_noise_on_what_nothing_bounds_is_found(answer):
    told = explain(answer, REAL, key=jax.random.key(0), claim=RANDOMISED)
    assert [one.kind for one in told.suspicions] == [Kind.NOT_CLIPPED]


def test_data_without_noise_that_a_coin_may_release_are_not_judged():
    def forgetful(key, answer):
        coin, own = jax.random.split(key)
        bounded = jnp.clip(answer, -1, 1).sum()
        return jnp.where(jax.random.uniform(coin) < 0.1, bounded, bounded + 2 * jax.random.laplace(own))

    told = explain(forgetful, REAL, key=jax.random.key(1), claim=guarantees.laplace(epsilon=1.0))
    assert not told.suspicions
    assert "a coin may choose" in told.not_judged[0].says


def test_a_key_that_chooses_twice_is_found():
    def twice(key, votes):
        return jnp.stack([exponential(key, votes), jax.random.choice(key, 4, p=jax.nn.softmax(1.0 * counts(votes)))])

    told = explain(mechanisms.mechanism(twice), VOTES, key=jax.random.key(0), claim=RANDOMISED)
    assert "key_used_twice" in [one.kind for one in told.suspicions]


def test_batches_are_no_choice_where_they_are_promised():
    def drawn(key, rows):
        return (jax.random.bernoulli(key, 0.5, (len(rows),)) @ rows[:, :1]).round()

    pair = mechanisms.pair(np.ones((3, 1), "f4"), np.r_[np.ones((3, 1)), -np.ones((1, 1))].astype("f4"))
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0)
    told = explain(mechanisms.mechanism(drawn), pair, key=jax.random.key(0), claim=claim)
    assert [one.kind for one in told.suspicions] == ["released_without_noise"]


def by_a_share_of_all(key, votes):
    weights = jnp.exp(7.5 * counts(votes))
    return jnp.searchsorted(jnp.cumsum(weights), jax.random.uniform(key) * weights.sum())


@pytest.mark.parametrize("claim", [None, guarantees.randomised_response(epsilon=15.0, relation="substitution")])
def test_an_answer_that_seldom_comes_is_not_accused(claim):
    told = explain(by_a_share_of_all, VOTES, key=jax.random.key(0), claim=claim)
    assert told.suspicions == ()
    assert told.not_judged


NUMBERS = mechanisms.replace_record(np.array([3.0, 8, 1, 9, 4], np.float32), 0, 7.0)


def quantile(key, numbers, *, edge=False):
    choose, inside = jax.random.split(key)
    edges = jnp.concatenate([jnp.zeros(1), jnp.sort(jnp.clip(numbers, 0, 10)), jnp.full(1, 10.0)])
    scores = jnp.log(jnp.diff(edges) + 1e-9) - 3 * jnp.abs(jnp.arange(6) - 2.5)
    at = jax.random.categorical(choose, scores)
    return edges[at] if edge else edges[at] + jax.random.uniform(inside) * (edges[at + 1] - edges[at])


@pytest.mark.parametrize("claim", [None, guarantees.randomised_response(epsilon=6.0, relation="substitution")])
def test_a_number_from_an_interval_that_a_choice_picks_is_not_accused(claim):
    """The exponential mechanism's quantile: the width of the interval is no deviation that data decide."""
    told = explain(quantile, NUMBERS, key=jax.random.key(1), claim=claim)
    assert told.suspicions == ()
    assert told.not_judged


def test_the_end_of_such_an_interval_is_a_number_of_the_data():
    found = explain(lambda key, numbers: quantile(key, numbers, edge=True), NUMBERS, key=jax.random.key(1)).findings
    assert found[0].kind in (Kind.CHANGED_AFTER_RELEASE, Kind.RELEASED_WITHOUT_NOISE)
