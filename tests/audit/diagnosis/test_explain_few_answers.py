"""Answers that a draw chooses among few: no line of right code is named, and data beside them are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import explain
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


@pytest.mark.parametrize("answer", [raw_beside, largest, counted, shifted])
def test_data_that_no_choice_hides_are_found(answer):
    told = explain(mechanisms.mechanism(answer), VOTES, key=jax.random.key(0), claim=RANDOMISED)
    assert told.suspicions
    assert all(CHOSEN not in one.says for one in told.findings)


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
