import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import FALSE_FAILURE, assert_has_law, assert_rate_is
from scipy import stats

from mechanisms.randomness import noise
from mechanisms.randomness.bits import Stream, Words, blocks, key_words

SEED = 20_260
EDGES = [0, 1, 2**8 - 1, 2**8, 2**12, 2**20 - 1, 2**20, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]
normal_pair = jax.jit(noise.normal_pair)
GRID = np.array([(high, low) for high in EDGES for low in EDGES], np.uint64)


def as_words(high, low):
    return Words(jnp.asarray(high, jnp.uint32), jnp.asarray(low, jnp.uint32))


def radius_integer(high, low):
    """The 44 bits that decide the radius."""
    return (np.asarray(high, np.uint64) << np.uint64(12)) | (np.asarray(low, np.uint64) >> np.uint64(20))


def slow_pair(high, low):
    """Box and Muller's formula in float64, from the same bits."""
    u = (radius_integer(high, low).astype(np.float64) + 0.5) * 2.0**-44
    low = np.asarray(low, np.int64)
    quadrant, inside = (low >> 18) & 3, ((low & (2**18 - 1)) << 12) | (low >> 20)
    inside = np.where(inside >= 2**29, inside - 2**30, inside)
    angle = (quadrant + (inside + 0.5) / 2**30) * np.pi / 2
    radius = np.sqrt(-2 * np.log(u))
    return radius * np.cos(angle), radius * np.sin(angle)


@functools.partial(jax.jit, static_argnums=(0, 2))
def counts_beyond(draw, keys, size, levels):
    """How many draws lie beyond each level, above and below."""

    def add(total, key):
        x = draw(key, (size,))
        return total + jnp.stack([jnp.sum(x > levels[:, None], 1), jnp.sum(x < -levels[:, None], 1)]), None

    return jax.lax.scan(add, jnp.zeros((2, len(levels)), jnp.int32), keys)[0]


def test_extreme_bit_patterns_give_finite_normals_within_the_stated_ceiling():
    x = np.stack(normal_pair(as_words(GRID[:, 0], GRID[:, 1])))
    assert np.isfinite(x).all()
    assert np.abs(x).max() <= noise.LARGEST_NORMAL * (1 + 1e-6)
    assert np.abs(x).max() > 7.8
    assert 2 * stats.norm.sf(np.abs(x).max()) < 1e-14


def test_the_map_agrees_with_a_slow_one_in_double_precision():
    rng = np.random.default_rng(SEED)
    high = np.concatenate([GRID[:, 0], rng.integers(0, 2**32, 100_000), rng.integers(0, 2**12, 10_000)])
    low = np.concatenate([GRID[:, 1], rng.integers(0, 2**32, 110_000)])
    found = np.stack(normal_pair(as_words(high, low)))
    slow = np.stack(slow_pair(high, low))
    assert np.abs(found - slow).max() < 2e-6
    lengths = [np.hypot(*found), np.hypot(*slow)]
    # worst where 1 - u is 2^-8: a rounding of u by 3e-8 is one of 8e-6 in the squared radius
    np.testing.assert_allclose(*lengths, rtol=5e-6)


def test_a_half_turn_negates_and_a_quarter_turn_swaps():
    high, low = GRID[:, 0], GRID[:, 1]
    x, y = map(np.asarray, normal_pair(as_words(high, low)))
    half = list(map(np.asarray, normal_pair(as_words(high, low ^ np.uint64(2**19)))))
    np.testing.assert_array_equal(half[0], -x)
    np.testing.assert_array_equal(half[1], -y)
    quadrant = low >> np.uint64(18)
    turned = (low & ~np.uint64(3 << 18)) | (((quadrant + np.uint64(1)) & np.uint64(3)) << np.uint64(18))
    quarter = list(map(np.asarray, normal_pair(as_words(high, turned))))
    np.testing.assert_array_equal(quarter[0], -y)
    np.testing.assert_array_equal(quarter[1], x)


def test_radius_and_angle_have_the_right_second_moments_on_a_full_grid():
    low = np.arange(2**20, dtype=np.uint64)
    x, y = (np.asarray(v, np.float64) for v in normal_pair(as_words(np.full(2**20, 2**31), low)))
    assert np.mean(x**2) / np.mean(y**2) == pytest.approx(1, abs=1e-8)
    assert np.mean(x**2 + y**2) == pytest.approx(2 * np.log(2), rel=3e-8)
    assert np.mean(x * y) == pytest.approx(0, abs=1e-8)
    high = np.arange(2**11, 2**32, 2**12, dtype=np.uint64)
    x, y = (np.asarray(v, np.float64) for v in normal_pair(as_words(high, np.zeros(2**20))))
    slow = np.stack(slow_pair(high, np.zeros(2**20)))
    assert np.mean(x**2 + y**2) / np.mean(slow[0] ** 2 + slow[1] ** 2) == pytest.approx(1, abs=3e-8)


def test_the_farthest_tail_of_the_map_is_right_by_enumeration():
    # every radius that reaches 7.3 (V < 50), with every fourth angle of one quadrant
    low = np.arange(0, 2**18, 4, dtype=np.uint64)
    reached = 0
    for radius in range(50):
        x, y = normal_pair(as_words(np.zeros(len(low)), (np.uint64(radius) << np.uint64(20)) | low))
        reached += int((jnp.abs(x) > 7.3).sum()) + int((jnp.abs(y) > 7.3).sum())
    assert float(np.hypot(x[0], y[0])) < 7.3
    tail = reached / (2 * len(low)) * 2.0**-44
    assert tail == pytest.approx(2 * stats.norm.sf(7.3), abs=1e-14)


@pytest.mark.parametrize("level", [1.0, 3.0, 5.0, 6.0, 7.0])
def test_the_tail_of_the_map_is_exact_to_one_in_a_trillion(level):
    cosine = np.cos((np.arange(2**18) + 0.5) / 2**18 * np.pi / 2)
    inside = np.exp(-((level / cosine) ** 2) / 2)
    # the radius passes where V + 1/2 < 2^44 * inside; cos t covers each value twice a turn, both signs
    tail = np.mean(np.round(inside * 2.0**44)) * 2.0**-44
    assert tail == pytest.approx(2 * stats.norm.sf(level), abs=2e-14)


@pytest.mark.parametrize("many", [40, pytest.param(200, marks=pytest.mark.long)])
def test_tail_counts_of_normals_are_within_exact_limits(many):
    levels = jnp.array([3.0, 4.0, 5.0, 5.3])
    keys = jax.random.split(jax.random.key(SEED), many)
    counts = np.asarray(counts_beyond(noise.normal, keys, 100_000, levels))
    for level, above, under in zip(np.asarray(levels, float), *counts, strict=True):
        assert_rate_is(int(above), many * 100_000, stats.norm.sf(level))
        assert_rate_is(int(under), many * 100_000, stats.norm.sf(level))


@pytest.mark.long
def test_normals_come_as_close_to_zero_as_they_should():
    levels = jnp.array([1e-6, 1e-5, 1e-4])
    keys = jax.random.split(jax.random.key(SEED), 200)

    def closeness(key, shape):
        return -jnp.abs(noise.normal(key, shape))

    far = np.asarray(counts_beyond(closeness, keys, 100_000, levels))[1]
    for level, count in zip(np.asarray(levels, float), 20_000_000 - far, strict=True):
        assert_rate_is(int(count), 20_000_000, 2 * stats.norm.cdf(level) - 1)


@pytest.mark.long
def test_tail_counts_reject_noise_one_percent_too_wide():
    keys = jax.random.split(jax.random.key(SEED), 20)
    counts = counts_beyond(lambda k, s: 1.01 * noise.normal(k, s), keys, 100_000, jnp.array([3.0]))
    with pytest.raises(AssertionError, match="two-sided"):
        assert_rate_is(int(counts.sum()), 2_000_000, 2 * stats.norm.sf(3.0))


@pytest.mark.long
@pytest.mark.parametrize(("draw", "right"), [(noise.normal, True), (jax.random.normal, False)])
def test_a_billion_draws_tell_these_tails_from_those_of_jax(draw, right):
    level, draws = 5.42, 1_000_000_000
    keys = jax.random.split(jax.random.key(SEED), draws // 1_000_000)
    beyond = int(counts_beyond(draw, keys, 1_000_000, jnp.array([level])).sum())
    if right:
        assert_rate_is(beyond, draws, 2 * stats.norm.sf(level))
    else:
        assert beyond == 0
        with pytest.raises(AssertionError, match="two-sided"):
            assert_rate_is(beyond, draws, 2 * stats.norm.sf(level))


def test_normals_have_the_normal_law():
    sample = np.asarray(noise.normal(jax.random.key(SEED), (300_000,)), np.float64)
    assert_has_law(sample, stats.norm.cdf)
    with pytest.raises(AssertionError, match="Kolmogorov"):
        assert_has_law(sample * 1.02, stats.norm.cdf)


def correlation_is_plausible(first, second):
    """Whether sums of products of independent standardised values are as small as they should be."""
    z = np.mean(first * second, dtype=np.float64) * np.sqrt(first.size)
    return abs(z) < stats.norm.isf(FALSE_FAILURE / 2)


def test_coordinates_partners_and_keys_are_uncorrelated_and_so_are_their_squares():
    keys = jax.random.split(jax.random.key(SEED), 1000)
    x = np.asarray(jax.jit(jax.vmap(lambda k: noise.normal(k, (2000,))))(keys), np.float64)
    half = x.shape[1] // 2
    squares = (x**2 - 1) / np.sqrt(2)
    for values in (x, squares, x**3 / np.sqrt(15)):
        assert correlation_is_plausible(values[:, 0::2], values[:, 1::2])
        assert correlation_is_plausible(values[:, 1:-1:2], values[:, 2::2])
        assert correlation_is_plausible(values[:, :half], values[:, half:])
        assert correlation_is_plausible(values[:-1], values[1:])
    assert not correlation_is_plausible(x[:, 0::2], x[:, 1::2] + 0.01 * x[:, 0::2])


@pytest.mark.long
def test_moments_are_those_of_a_normal():
    x = np.asarray(noise.normal(jax.random.key(SEED), (2_000_000,)), np.float64)
    for power, mean, square in ((1, 0, 1), (2, 1, 3), (3, 0, 15), (4, 3, 105), (6, 15, 10395)):
        z = (np.mean(x**power) - mean) / np.sqrt((square - mean**2) / x.size)
        assert abs(z) < stats.norm.isf(FALSE_FAILURE / 2), f"moment {power}: {z:.1f} standard errors"


def place(size):
    """Block and normal of each of so many draws."""
    j = np.arange(size)
    if size <= noise.FEW:
        return j, np.zeros_like(j)
    if size <= noise.SHORT:
        return j // 4, j % 4
    return j // 32 * 8 + j % 8, j // 8 % 4


@pytest.mark.few(2)
@pytest.mark.parametrize("size", [1, 7, 16, 17, 100, 1023, 1024, 1025, 3001])
def test_draw_j_of_n_is_a_stated_normal_of_a_stated_block(size):
    key = jax.random.key(SEED)
    block, lane = place(size)
    bits = jax.jit(lambda i: blocks(key, Stream.NORMAL, i))(jnp.asarray(block, jnp.uint32))
    lanes = [value for pair in bits for value in slow_pair(pair.high, pair.low)]
    np.testing.assert_allclose(noise.normal(key, (size,)), np.choose(lane, lanes), rtol=5e-6, atol=2e-6)
    assert len(set(zip(block.tolist(), lane.tolist(), strict=True))) == size


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [1, 16, 100, 1024, 3001])
def test_mapping_over_keys_and_the_device_s_form_change_no_normal(size):
    keys = jax.random.split(jax.random.key(SEED), 5)
    mapped = jax.jit(jax.vmap(lambda key: noise.normal(key, (size,))))(keys)
    np.testing.assert_allclose(mapped[3], noise.normal(keys[3], (size,)), rtol=2e-6, atol=1e-6)
    if size > noise.FEW:
        count = -(-size // 4) if size <= noise.SHORT else 8 * -(-size // 32)
        drawn = [jax.jit(form, static_argnums=1)(key_words(keys[3]), count) for form in (noise._on_cpu, noise._at_once)]
        np.testing.assert_allclose(*drawn, rtol=2e-6, atol=1e-6)
        np.testing.assert_allclose(drawn[0][:size], mapped[3], rtol=2e-6, atol=1e-6)


@pytest.mark.few(2)
@pytest.mark.parametrize("shape", [(), (4, 0), (7, 11, 2)])
def test_every_shape_is_served_in_float32(shape):
    x = noise.normal(jax.random.key(1), shape)
    assert x.shape == shape
    assert x.dtype == jnp.float32
    assert bool(jnp.isfinite(x).all())


def test_uniforms_reach_zero_from_above_with_full_precision():
    edges = noise.open_uniform(*as_words(GRID[:, 0], GRID[:, 1]), 22)
    exact = ((GRID[:, 0] * 2.0**22) + (GRID[:, 1] >> np.uint64(10)) + 0.5) * 2.0**-54
    np.testing.assert_allclose(edges, exact, rtol=2e-7)
