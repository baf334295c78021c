import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import FALSE_FAILURE, assert_rate_is
from scipy import stats

from mechanisms.randomness.bits import MULTIPLIERS, WEYL, Block, Stream, Words, below, blocks, philox, positions, words

SEED = 20_261
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
ONES = 2**32 - 1


def block(numbers):
    a, b, c, d = (jnp.uint32(number) for number in numbers)
    return Block(Words(a, b), Words(c, d))


def slow_philox(key, counter):
    """Salmon's definition in Python's integers."""
    (k0, k1), (a, b, c, d) = key, counter
    for _ in range(10):
        left, right = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = (right >> 32) ^ b ^ k0, right & ONES, (left >> 32) ^ d ^ k1, left & ONES
        k0, k1 = (k0 + WEYL[0]) & ONES, (k1 + WEYL[1]) & ONES
    return a, b, c, d


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0,) * 4, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 2, (ONES,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0xA4093822, 0x299F31D0), PI, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_philox_gives_the_published_answers(key, counter, expected, compiled):
    given = Words(*map(jnp.uint32, key)), block(counter)
    found = (jax.jit(philox) if compiled else philox)(*given)
    assert tuple(int(word) for pair in found for word in pair) == expected == slow_philox(key, counter)


def test_philox_agrees_with_the_definition_in_integers_where_it_is_mapped_and_compiled():
    rng = np.random.default_rng(SEED)
    keys, counters = rng.integers(0, 2**32, (20, 2)), rng.integers(0, 2**32, (20, 4))
    found = jax.jit(jax.vmap(lambda key, counter: jnp.stack(jax.tree.leaves(philox(Words(*key), block(counter))))))(
        jnp.asarray(keys, jnp.uint32), jnp.asarray(counters, jnp.uint32)
    )
    expected = [slow_philox(tuple(map(int, k)), tuple(map(int, c))) for k, c in zip(keys, counters, strict=True)]
    np.testing.assert_array_equal(np.asarray(found, np.uint64), np.array(expected, np.uint64))
    assert found.dtype == jnp.uint32


def test_64_bit_types_stay_inside_the_generator():
    words(jax.random.key(0), Stream.NORMAL, positions((10,)))
    assert jnp.arange(3).dtype == jnp.int32
    with jax.enable_x64(True):
        wide = words(jax.random.key(0), Stream.NORMAL, positions((10,)))
    plain = words(jax.random.key(0), Stream.NORMAL, positions((10,)))
    assert wide.high.dtype == plain.high.dtype == jnp.uint32
    np.testing.assert_array_equal(wide.high, plain.high)


def bits_of(found):
    """Every bit of every block, shape (blocks, 128)."""
    columns = [np.asarray(word).astype("<u4") for pair in found for word in pair]
    return np.unpackbits(np.stack(columns, axis=-1).view(np.uint8), axis=-1).astype(bool)


@pytest.mark.few(1)
@pytest.mark.parametrize("move", ["index", "high", "stream", "key"])
def test_every_bit_is_fair_and_flips_half_the_time_when_one_bit_of_the_input_does(move):
    count = 100_000
    key, other = jax.random.key(SEED), jax.random.wrap_key_data(jnp.array([0, SEED ^ 1], jnp.uint32))
    index = positions((count,))
    first = bits_of(jax.jit(lambda: blocks(key, Stream.NORMAL, index))())
    second = bits_of(
        jax.jit(
            {
                "index": lambda: blocks(key, Stream.NORMAL, index ^ jnp.uint32(1 << 20)),
                "high": lambda: blocks(key, Stream.NORMAL, index, jnp.ones_like(index)),
                "stream": lambda: blocks(key, Stream.CHI_SQUARE, index),
                "key": lambda: blocks(other, Stream.NORMAL, index),
            }[move]
        )()
    )
    limit = stats.norm.isf(FALSE_FAILURE / 2 / 128 / 2)
    for values in (second, first ^ second):
        z = (values.mean(axis=0) - 0.5) * 2 * np.sqrt(count)
        assert np.abs(z).max() < limit
    # the twin that must fail: a bit that is set in one block of fifty too many
    biased = first[:, 0] | (np.arange(count) % 50 == 0)
    with pytest.raises(AssertionError, match="two-sided"):
        assert_rate_is(int(biased.sum()), count, 0.5)


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
