"""Where the clipping is what is wrong, its line stands first, with and without a stated clipping norm."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import explain

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")

ROWS = np.random.default_rng(1).normal(size=(6, 7)).astype("f4")
ROWS[-1] *= 9
KEY = jax.random.key(0)


def norms(array, part):
    return array.sqrt((part**2).sum(1)) if array is torch else jnp.sqrt((part**2).sum(1))


def cut(array, part, bound=1.0):
    factor = bound / array.maximum(norms(array, part), bound * array.ones(len(part)))
    return (factor[:, None] * part).sum(0)


def length(array, total):
    return array.sqrt((total**2).sum())


def noisy(draw, part, deviation=1.0):
    return part + deviation * draw(part.shape)


def parts_by_themselves(array, draw, rows):
    sums = [cut(array, part) for part in (rows[:, :4], rows[:, 4:])]  # HERE
    return [noisy(draw, part) for part in sums]


def coordinates_by_themselves(array, draw, rows):
    total = array.clip(rows, -1.0, 1.0).sum(0)  # HERE
    return noisy(draw, total)


def mean_clipped(array, draw, rows):
    mean = rows.mean(0)
    size = length(array, mean)  # HERE
    return noisy(draw, mean * array.minimum(1 / size, array.ones(())))  # HERE


def half_of_the_noise(array, draw, rows):
    total = cut(array, rows[:, :4])
    return noisy(draw, total, 0.5)


def of_jax(step):
    def released(key, rows):
        keys = iter(jax.random.split(key, 4))
        return step(jnp, lambda shape: jax.random.normal(next(keys), shape), rows)

    return released


def of_torch(step):
    def released(seed, rows):
        torch.manual_seed(seed)
        return step(torch, torch.randn, torch.as_tensor(rows))

    return mechanisms.callable_step(released)


def here(step):
    source, start = inspect.getsourcelines(step)
    (line,) = [start + number for number, text in enumerate(source) if "# HERE" in text]
    return __file__, line


PAIR = mechanisms.pair(ROWS[:-1], ROWS)
WRONG = {
    parts_by_themselves: ("too_little_noise", "by 1 in each of 2 parts, as if each were clipped on its own"),
    coordinates_by_themselves: ("too_little_noise", "coordinates, as if each were clipped on its own"),
    mean_clipped: ("clipped_after_sum", "only then bounded"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("told", [{"noise_multiplier": 1.0}, {"noise_multiplier": 1.0, "clip": 1.0}], ids=len)
@pytest.mark.parametrize("library", [of_jax, of_torch], ids=lambda library: library.__name__)
@pytest.mark.parametrize("step", WRONG, ids=lambda step: step.__name__)
def test_the_line_that_clips_stands_first(step, library, told):
    (found,) = explain(library(step), PAIR, key=KEY, **told).findings
    kind, says = WRONG[step]
    assert (found.kind, says in found.says) == (kind, True), found
    source, start = inspect.getsourcelines(step)
    lines = {start + number for number, text in enumerate(source) if "# HERE" in text}
    assert found.lines[0][0] == __file__
    assert found.lines[0][1] in lines, found


def test_a_record_of_equal_coordinates_is_not_called_clipped_coordinate_by_coordinate():
    # each of four is half of the bound, which is as much as half of the noise would cover
    rows = np.concatenate([ROWS[:-1], np.full((1, 7), 9.0, "f4")])
    pair = mechanisms.pair(rows[:-1], rows)
    (found,) = explain(of_jax(half_of_the_noise), pair, key=KEY, noise_multiplier=1.0).findings
    assert (found.kind, "clipped on its own" in found.says) == ("too_little_noise", False), found.says
    _, start = inspect.getsourcelines(half_of_the_noise)
    assert found.lines[0] == (__file__, start + 2), found


def longer_sum(array, draw, rows):
    total = cut(array, rows)
    return noisy(draw, 3.0 * total)  # HERE


def longer_rows(array, draw, rows):
    factor = 1 / array.maximum(norms(array, rows), array.ones(len(rows)))
    clipped = factor[:, None] * rows
    clipped = 3.0 * clipped  # HERE
    return noisy(draw, clipped.sum(0))


@pytest.mark.few(3)
@pytest.mark.parametrize("told", [{"noise_multiplier": 1.0}, {"noise_multiplier": 1.0, "clip": 1.0}], ids=len)
@pytest.mark.parametrize("step", [longer_sum, longer_rows], ids=lambda step: step.__name__)
def test_what_makes_a_clipped_record_longer_again_stands_before_the_clipping(step, told):
    (found,) = explain(of_jax(step), PAIR, key=KEY, **told).findings
    assert found.kind == "too_little_noise"
    assert found.lines[0] == here(step), found
    assert f"since test_explain_clipping.py:{here(step)[1]} makes longer what" in found.says


def added(one, other):
    return one + other


def summed_twice(array, draw, rows):
    total = added(cut(array, rows), cut(array, rows[:, ::-1])[::-1])  # HERE
    return added(total, noisy(draw, array.zeros(7)))


def test_a_helper_that_adds_noise_too_is_not_what_makes_a_record_longer():
    """Its own line was named, at which the noise is rightly added."""
    (found,) = explain(of_jax(summed_twice), PAIR, key=KEY, noise_multiplier=1.0, clip=1.0).findings
    assert found.kind == "too_little_noise"
    assert found.lines[0] == here(summed_twice), found


def by_part_of_its_length(array, draw, rows, *, measured=slice(5), bound=1.0):
    lengths = array.sqrt((rows[:, measured] ** 2).sum(1))  # HERE
    factor = bound / array.maximum(lengths, bound * array.ones(len(rows)))
    return [noisy(draw, (factor[:, None] * part).sum(0)) for part in (rows[:, :5], rows[:, 5:])]


@pytest.mark.parametrize("right", [{"measured": slice(None)}, {"measured": slice(None), "bound": 1.005}, {}], ids=str)
def test_a_length_that_leaves_out_small_tensors_is_found_where_the_noise_suffices_for_this_record(right):
    """Nothing was found: the record moved the release by 1.003 where 1 was stated."""
    rows = np.concatenate([ROWS[:-1], [[3.0, 3.0, 3.0, 3.0, 3.0, 0.4, 0.4]]]).astype("f4")
    step = of_jax(lambda array, draw, rows: by_part_of_its_length(array, draw, rows, **right))
    told = explain(step, mechanisms.pair(rows[:-1], rows), key=KEY, noise_multiplier=1.0, clip=1.0)
    assert [found.kind for found in told.findings] == ([] if right else ["not_clipped"])
    if not right:
        assert told.findings[0].lines[0] == here(by_part_of_its_length)
        assert "leaves out 1 of 2 tensors (of 2 numbers)" in told.findings[0].says


def masked(array, draw, rows):
    factor = 2 / array.maximum(norms(array, rows), 2 * array.ones(len(rows)))  # HERE
    factor = array.ones(len(rows)) * factor
    return noisy(draw, (factor[:, None] * rows).sum(0))


def test_a_wrong_factor_is_named_where_it_is_computed_and_not_where_a_mask_hands_it_on():
    (found,) = explain(of_jax(masked), PAIR, key=KEY, noise_multiplier=1.0, clip=1.0).findings
    assert found.lines[0] == here(masked), found


def squares_for_lengths(rows):
    return jnp.minimum(1.0, 0.5 / (rows**2).sum(1))  # HERE


def from_twice_the_bound_on(rows):
    size = norms(jnp, rows)
    return jnp.where(size > 1.0, 0.5 / size, 1.0)  # HERE


def a_little_more_for_the_short(rows):
    size = norms(jnp, rows)
    return jnp.minimum(1.0, 0.5 / size) + jnp.exp(-size)  # HERE


def right(rows):
    return 0.5 / jnp.maximum(norms(jnp, rows), 0.5)


def without_a_sharp_bound(rows):
    return 0.5 / (norms(jnp, rows) + 0.01)


def shorter_than_need_be(rows):
    return 0.5 / jnp.maximum(norms(jnp, rows), 0.5) ** 2 * jnp.minimum(norms(jnp, rows), 0.5)


LATE = [squares_for_lengths, from_twice_the_bound_on, a_little_more_for_the_short]


@pytest.mark.few(2)
@pytest.mark.parametrize("factors", [*LATE, right, without_a_sharp_bound, shorter_than_need_be])
def test_a_factor_that_is_right_for_long_records_alone_is_found(factors):
    def step(key, rows):
        batch, noise = jax.random.split(key)
        taken = jax.random.bernoulli(batch, 0.5, (len(rows),))
        return (taken * factors(rows)) @ rows + 0.5 * jax.random.normal(noise, (7,))

    pair = mechanisms.pair(ROWS[:-1], ROWS)
    found = explain(step, pair, key=KEY, clip=0.5, noise_multiplier=1.0).findings
    source, start = inspect.getsourcelines(factors)
    lines = [start + number for number, line in enumerate(source) if "# HERE" in line]
    assert [one.lines[0][1] for one in found] == lines, found
    assert all("times smaller to see this." in one.says for one in found)


def squares_that_torch_takes_for_lengths(rows):
    return torch.clamp(0.5 / rows.square().sum(1), max=1.0)  # HERE


def squares_of_both(rows):
    return torch.clamp(0.25 / rows.square().sum(1), max=1.0)


def shorter_in_torch(rows):
    size = norms(torch, rows).clamp(min=0.5)
    return 0.25 / size**2


@pytest.mark.parametrize("factors", [squares_that_torch_takes_for_lengths, squares_of_both, shorter_in_torch])
def test_a_record_that_moves_less_the_longer_it_is_is_tried_just_above_the_bound(factors):
    """Among them no fault: no record moves the sum by more than the bound."""

    def step(draw, rows):
        return factors(rows) @ rows + 0.5 * draw((7,))

    pair = mechanisms.pair(torch.tensor(ROWS[:-1]), torch.tensor(ROWS))
    code = of_torch(lambda array, draw, rows: step(draw, rows))
    found = explain(code, pair, key=KEY, clip=0.5, noise_multiplier=1.0).findings
    source, start = inspect.getsourcelines(factors)
    lines = [start + number for number, line in enumerate(source) if "# HERE" in line]
    assert [one.lines[0][1] for one in found] == lines, found
    assert all("is taken for its length" in one.says for one in found)


def noise_of_two_halves(key, rows):
    """Three rounds of drawn batches; each half of the records brings its part of the noise."""
    halves = jnp.arange(len(rows)) % 2

    def one_round(weights, key):
        batch, *keys = jax.random.split(key, 3)
        taken = jax.random.bernoulli(batch, 0.5, (len(rows),))
        gradients = rows * (1.0 + weights)
        factors = taken / jnp.maximum(1.0, jnp.linalg.norm(gradients, axis=1))
        parts = [
            (factors * (halves == half)) @ gradients + 0.5**0.5 * jax.random.normal(own, (7,))
            for half, own in enumerate(keys)
        ]
        total = sum(parts)
        return weights - 0.1 * total, total

    return jax.lax.scan(one_round, jnp.zeros(7), jax.random.split(key, 3))[1]


@pytest.mark.long
def test_noise_that_is_added_in_parts_covers_a_short_record():
    pair = mechanisms.pair(ROWS[:-1], ROWS)
    for number in range(3):
        told = explain(noise_of_two_halves, pair, key=jax.random.key(number), clip=1.0, noise_multiplier=1.0)
        assert not told.findings, told
        rows = [(one.sensitivity, one.noise_deviation, one.multiplier) for one in told.rounds]
        assert rows == [pytest.approx((1.0, 1.0, 1.0), rel=1e-4)] * 3
        assert "in parts" not in str(told)


def cut_to(rows, bound):
    by = 1.0 / jnp.maximum(1.0, norms(jnp, rows) / bound)
    return (by[:, None] * rows).sum(0)


def cut_to_its_own(rows, noise_multiplier):
    by = 1.0 / jnp.maximum(1.0, norms(jnp, rows) / 2.0)  # HERE
    return (by[:, None] * rows).sum(0), noise_multiplier


def a_larger_bound_handed_over(key, rows):
    total = cut_to(rows, 2.0)  # HERE
    return total + jax.random.normal(key, total.shape)


def a_larger_bound_of_a_helper(key, rows):
    total, _ = cut_to_its_own(rows, 2.0)
    return total + jax.random.normal(key, total.shape)


@pytest.mark.parametrize(("step", "own"), [(a_larger_bound_handed_over, True), (a_larger_bound_of_a_helper, False)])
def test_a_right_length_over_a_larger_bound_is_no_wrong_length(step, own):
    """It said 'measures its length as 5 when it is 10', and named the helper's line, not the bound's."""
    pair = mechanisms.add_record(ROWS[:-1], ROWS[-1])
    told = explain(step, pair, key=KEY, noise_multiplier=1.0, clip=1.0)
    lines, start = inspect.getsourcelines(step if own else cut_to_its_own)
    due = next(start + number for number, line in enumerate(lines) if "# HERE" in line)
    assert told.findings[0].lines[0][1] == due, told
    assert "moves the sum" in str(told)
    assert "measures its length" not in str(told)
    assert ("hands that bound over" in str(told)) is own


@pytest.mark.parametrize("rate", [None, 1e-9])
def test_a_record_that_moves_nothing_may_have_joined_no_batch_where_batches_are_drawn(rate):
    def step(key, rows):
        drawn, own = jax.random.split(key)
        taken = jnp.zeros(len(rows)) if rate is None else jax.random.bernoulli(drawn, rate, (len(rows),))
        return taken @ rows + jax.random.normal(own, rows.shape[1:])

    told = str(explain(step, mechanisms.add_record(ROWS[:-1], ROWS[-1]), key=KEY, noise_multiplier=1.0, clip=1.0))
    assert "the record moved nothing that is released" in told
    assert ("it may have joined no batch" in told) is (rate is not None)
    claim = guarantees.gaussian(mu=1.0)
    told = str(explain(step, mechanisms.add_record(ROWS[:-1], ROWS[-1]), key=KEY, claim=claim))
    assert "the record moved nothing that is released" in told
    assert "joined no batch" not in told


def a_part_as_it_is(joined, bounded=jnp.tanh):
    """A factor made for the whole record, and multiplied into one of its two parts."""

    def step(key, rows):
        gradients = bounded(rows)
        factor = 1 / jnp.maximum(1.0, jnp.linalg.norm(gradients, axis=1))
        one = factor @ gradients[:, :4]
        other = jnp.ones(len(rows)) @ gradients[:, 4:]  # HERE
        return joined(key, one, other)

    return step


def as_one_vector(key, one, other):
    total = jnp.concatenate([one, other])
    return total + jax.random.normal(key, total.shape)


def as_two_leaves(key, one, other):
    keys = jax.random.split(key)
    return {"one": one + jax.random.normal(keys[0], (4,)), "other": other + jax.random.normal(keys[1], (3,))}


@pytest.mark.parametrize("joined", [as_one_vector, as_two_leaves])
def test_a_part_that_is_not_multiplied_is_named_and_not_the_right_length_of_all(joined):
    """It said that the whole length, which is right, was measured wrongly."""
    step = a_part_as_it_is(joined)
    told = explain(step, mechanisms.add_record(ROWS[:-1], ROWS[-1]), key=KEY, noise_multiplier=1.0, clip=1.0)
    lines, start = inspect.getsourcelines(step)
    due = next(start + number for number, line in enumerate(lines) if "# HERE" in line)
    assert "measures its length" not in str(told)
    assert "multiplies only a part of it" in str(told)
    assert told.findings[0].lines[0][1] == due, told


@pytest.mark.parametrize("deviation", [2.0, 1.0])
def test_a_zeroed_record_that_still_has_a_gradient_makes_no_zero_out_pair(deviation):
    """It said that the line which subtracts the weights makes longer what was clipped."""

    def step(key, rows):
        gradients = rows - 0.5
        clipped = gradients / jnp.maximum(1.0, jnp.linalg.norm(gradients, axis=1, keepdims=True))
        return clipped.sum(0) + deviation * jax.random.normal(key, rows.shape[1:])

    pair = mechanisms.zero_out(np.abs(ROWS), 5)
    told = explain(step, pair, key=KEY, noise_multiplier=2.0, clip=1.0)
    assert "makes longer" not in str(told)
    if deviation < 2:
        assert [one.kind for one in told.findings] == ["too_little_noise"]
        return
    assert [one.kind for one in told.findings] == ["not_followed"]
    assert "this is no zero_out pair for this code" in told.findings[0].says


def test_the_mean_of_a_group_that_is_clipped_as_one_is_told_by_its_share_of_the_length():
    def step(key, rows):
        groups = jnp.pad(jnp.tanh(rows), ((0, len(rows) % 2), (0, 0))).reshape(-1, 2, 7).mean(1)
        clipped = 2 * groups / jnp.maximum(1.0, jnp.linalg.norm(groups, axis=1, keepdims=True))
        return clipped.sum(0) + jax.random.normal(key, (7,))

    pair = mechanisms.add_record(ROWS[:4], 0.9 * ROWS[4] / np.linalg.norm(ROWS[4]) + 0.5)
    told = str(explain(step, pair, key=KEY, noise_multiplier=1.0, clip=1.0))
    assert "(1/2 of it, as of 2 records that are averaged before they are clipped as one)" in told
