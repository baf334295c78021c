import jax
import numpy as np
import pytest
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.trials.keys import AUDIT, audit_keys, key_from_seed, trial_keys, trial_number, trials_from


def data(keys):
    """The numbers of keys, one tuple for each."""
    return [tuple(map(int, np.asarray(jax.random.key_data(key)).ravel())) for key in keys]


def test_a_callers_own_split_gives_none_of_our_keys():
    key = jax.random.key(0)
    ours = data(audit_keys(key))
    theirs = data([*jax.random.split(key, 1000), *(jax.random.fold_in(key, i) for i in range(1000)), key])
    assert len(set(ours)) == 5
    assert not set(ours) & set(theirs)
    assert AUDIT > 2**30


def test_both_keys_of_every_trial_differ_from_each_other_and_from_every_other_trials():
    key = jax.random.key(3)
    numbers = trials_from(trial_number(2**32 - 500), 1000)
    found = jax.jit(jax.vmap(lambda trial: trial_keys(key, trial)))(numbers)
    assert len(set(data(found.release) + data(found.score))) == 2000


def test_trials_are_numbered_across_the_words():
    numbers = trials_from(trial_number(2**32 - 2), 5, 2**32 - 1)
    whole = [(int(high) << 32) + int(low) for high, low in zip(*map(np.asarray, numbers), strict=True)]
    assert whole == [2**33 - 3 + i for i in range(5)]
    with pytest.raises(ValueError, match="trial"):
        trial_number(2**64)


@pytest.mark.parametrize("seed", [-1, 2**32, 2**32 + 5, 2**64])
def test_a_seed_that_jax_would_shorten_is_refused(seed):
    with pytest.raises(ValueError, match="modulo 2\\^32"):
        key_from_seed(seed)


def test_a_seed_means_the_same_whatever_generator_is_the_default():
    expected = data([key_from_seed(2**32 - 1)])
    with jax.default_prng_impl("rbg"):
        made = key_from_seed(2**32 - 1)
        assert data([made]) == expected
        assert str(jax.random.key_impl(made)) == "threefry2x32"


@pytest.mark.long
def test_a_key_of_another_generator_is_served():
    record = audit.run_audit(
        Shift(mu=1.0),
        PAIR,
        First(),
        claim=guarantees.gaussian(mu=1.0),
        trials=200,
        risk=0.05,
        key=jax.random.key(0, impl="rbg"),
        diagnose=False,
    )
    assert record.environment["generator"] == "philox4x32-10, box-muller 44-bit"
