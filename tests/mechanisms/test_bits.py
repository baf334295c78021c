import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32

from mechanisms.bits import Stream, Words, below, positions, threefry, words


def pair(high, low):
    return Words(jnp.uint32(high), jnp.uint32(low))


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_answers(key, counter, expected):
    found = threefry(pair(*key), pair(*counter))
    assert (int(found.high), int(found.low)) == expected


def test_threefry_agrees_with_that_of_jax():
    key = jax.random.key_data(jax.random.key(7))
    counters = jnp.arange(1000, dtype=jnp.uint32)
    ours = threefry(Words(key[0], key[1]), Words(counters, counters + jnp.uint32(5)))
    theirs = threefry_2x32(key, jnp.concatenate([counters, counters + jnp.uint32(5)]))
    np.testing.assert_array_equal(jnp.concatenate(ours), theirs)


def test_streams_of_one_key_differ_from_each_other_and_from_what_jax_derives():
    key, counters = jax.random.key(3), positions((100,))
    drawn = [tuple(np.asarray(words(key, stream, counters).high)) for stream in Stream]
    derived = [jax.random.key_data(jax.random.fold_in(key, i))[0] for i in range(3)]
    seen = {word for stream in drawn for word in stream}
    assert len(set(drawn)) == len(drawn)
    assert len(seen) > 0.99 * 100 * len(drawn)
    assert not seen & {int(word) for word in derived}


@pytest.mark.parametrize("threshold", [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1, 2**64])
def test_two_word_comparison_is_the_comparison_of_integers(threshold):
    edges = [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
    bits = Words(
        jnp.array([e >> 32 for e in edges], jnp.uint32),
        jnp.array([e & 0xFFFFFFFF for e in edges], jnp.uint32),
    )
    assert list(np.asarray(below(bits, threshold))) == [edge < threshold for edge in edges]


def test_a_key_of_another_generator_is_refused():
    with pytest.raises(ValueError, match="threefry2x32"):
        words(jax.random.key(0, impl="rbg"), Stream.NORMAL, positions((2,)))
