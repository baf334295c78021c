import jax
import numpy as np
import pytest
from compilations import compilations

from audit.trials.keys import audit_keys
from audit.trials.threefry import fold_in, split


def words(key):
    return np.asarray(jax.random.key_data(key)).tolist()


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_keys_are_those_of_jax(seed, implementation):
    key = jax.random.key(np.uint32(seed), impl=implementation)
    for number in (0, 1, 0x64702D61, 2**32 - 1):
        assert words(fold_in(key, number)) == words(jax.random.fold_in(key, np.uint32(number)))
    assert [words(own) for own in split(key, 5)] == [words(own) for own in jax.random.split(key, 5)]
    assert words(fold_in(key, 3, 4)) == words(jax.random.fold_in(jax.random.fold_in(key, 3), 4))
    assert words(fold_in(key)) == words(key)


def test_keys_do_not_depend_on_how_jax_splits():
    with jax.threefry_partitionable(True):
        expected = [words(own) for own in jax.random.split(jax.random.key(3), 4)]
    with jax.threefry_partitionable(False):
        assert [words(own) for own in split(jax.random.key(3), 4)] == expected


def test_the_keys_of_an_audit_compile_nothing():
    key = jax.random.key(11)
    with compilations() as counted:
        keys = audit_keys(key)
    assert (counted.compiled, counted.traced) == (0, 0)
    assert len({tuple(words(own)) for own in keys}) == 5
