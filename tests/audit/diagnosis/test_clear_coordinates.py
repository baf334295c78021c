"""Coordinates on which nothing hides the record are named, and discrete noise is noise."""

import jax
import numpy as np
import pytest
from checks import assert_rate_at_most

import audit
import guarantees
import mechanisms
from audit.diagnosis.clear_coordinates import clear_coordinates
from audit.diagnosis.presence import bare_values
from audit.report.diagnoses import looks_wrong

pytestmark = pytest.mark.long

PAIR = mechanisms.worst_case_pair(records=3, dimension=4, clip=1.0)
SCALAR = mechanisms.worst_case_pair(records=3, dimension=1, clip=1.0)


def noisy(seed, rows):
    return rows.sum(0) + 2 * np.random.default_rng(seed).standard_normal(rows.shape[1])


def beside_a_count(seed, rows):
    return {"w": noisy(seed, rows), "n": len(rows)}


def beside_a_loss(seed, rows):
    return np.append(noisy(seed, rows), (rows**2).sum())


def clear(seed, rows):
    return rows.sum(0)


def clear_without(seed, rows):
    return rows.sum(0) if len(rows) == 3 else noisy(seed, rows)


NAMED = {
    beside_a_count: (PAIR, "'n' (1 of 1 coordinates): it is 3 in each of 200 trials without the record, and 4 in each"),
    beside_a_loss: (PAIR, "coordinate 4: it is 3 in each of 200 trials without the record, and 4 in each of 200"),
    clear: (SCALAR, "coordinate 0: it is -3 in each of 200 trials without the record, and -2 in each of 200"),
    clear_without: (
        SCALAR,
        "coordinate 0: it is -3 in each of 200 trials without the record, and a different number in each",
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("step", NAMED)
def test_what_has_no_noise_is_named(step):
    pair, words = NAMED[step]
    given = {"claim": guarantees.gaussian(mu=0.5), "trials": 400, "risk": 0.05, "key": jax.random.key(1)}
    record = audit.run_audit(mechanisms.callable_step(step), pair, **given)
    assert record.verdict == "violation"
    (said,) = looks_wrong(record.diagnoses)
    assert said.startswith(f"no noise hides the record on {words}"), said
    assert sum(answer.risk for answer in record.diagnoses) <= 0.2 * record.risk * (1 + 1e-9)


@pytest.mark.few(2)
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 8.0])
def test_discrete_noise_that_keeps_the_claim_is_noise(epsilon):
    generator, trials, repetitions, risk = np.random.default_rng(3), 100, 200, 0.1

    def geometric(shift):
        first, second = generator.geometric(-np.expm1(-epsilon), (2, repetitions, trials, 2))
        return shift + first - second

    sides = zip(geometric(0), geometric(1), strict=True)
    given = {"advantage": np.tanh(epsilon / 2), "layout": None, "risk": risk}
    accused = sum(clear_coordinates(*outputs, **given) is not None for outputs in sides)
    assert_rate_at_most(accused, repetitions, risk)


def test_few_values_are_clear_where_the_other_side_has_others():
    generator = np.random.default_rng(4)
    batches = generator.binomial(3, 0.5, (2, 200, 1))
    given = {"advantage": 0.4, "layout": None, "risk": 0.01}
    found = clear_coordinates(batches[0], batches[1] + 10, **given)
    assert "it is one of 4 values in 200 trials without the record, and one of 4 values" in found.says
    assert clear_coordinates(batches[0], batches[1] + 1, **given) is None
    taken = 3 + generator.binomial(1, 0.6, (200, 1))
    assert clear_coordinates(np.full((200, 1), 3), taken, **given) is not None
    assert clear_coordinates(np.full((200, 1), 3), taken, **given | {"advantage": 0.6}) is None


def test_one_draw_that_is_added_to_all_bins_hides_nothing_between_them_and_one_for_each_does():
    rng = np.random.default_rng(3)
    bins, given = np.array([[2.0, 3.0, 5.0, 1.0]], np.float32), {"advantage": 0.4, "layout": None, "risk": 1e-3}
    one = [rng.laplace(size=(200, 1)).astype(np.float32) + bins + [0, 0, own, 0] for own in (0, 1)]
    found = clear_coordinates(*one, **given)
    assert found is not None
    assert found.says.startswith(
        "no noise hides the record on coordinate 2 less coordinate 0, which share a draw: their difference is 3 in "
        "each of 200 trials without the record, and 4 in each of 200 trials with it"
    )
    each = [rng.laplace(size=(200, 4)) + bins + [0, 0, own, 0] for own in (0, 1)]
    assert clear_coordinates(*each, **given) is None
    shares = [side / side.sum(axis=1, keepdims=True) for side in np.abs(each)]
    assert clear_coordinates(*shares, **given) is None


TRIALS, BATCHES = 400, np.random.default_rng(4).standard_normal((7, 12))


def sampled(seed, rows, bare=()):
    """Sums of batches drawn at rate 1/2, with noise but on some coordinates."""
    rng = np.random.default_rng([seed, rows])
    sums = (rng.random((TRIALS, rows)) < 0.5) @ BATCHES[:rows]
    noise = 0.2 * rng.standard_normal(sums.shape)
    noise[:, list(bare)] = 0.0
    return sums + noise


@pytest.mark.parametrize("release", [np.float32, np.float64])
def test_batches_that_vary_more_than_the_noise_do_not_hide_that_there_is_none(release):
    sides = [sampled(1, rows, bare=(3, 4)).astype(release) for rows in (6, 7)]
    found = bare_values(*sides, layout=None, risk=1e-4)
    assert found is not None
    assert (
        "on coordinates 3 to 4: coordinate 3 takes 64 different values in 400 trials without the record" in found.says
    )
    assert bare_values(*(sampled(1, rows) for rows in (6, 7)), layout=None, risk=1e-4) is None


def test_values_that_come_again_whatever_the_record_is_are_not_accused():
    """Drawn numbers beside the noisy sum, noise of few values everywhere, and float32 that has no room for more."""
    runs, risk, accused = 40, 0.1, 0
    for seed in range(runs):
        sides = [sampled(seed, rows) for rows in (6, 7)]
        rng = np.random.default_rng([seed, 99])
        values = rng.standard_normal(20 + 5 * seed)
        for side in sides:
            side[:, 5] = rng.choice(values, TRIALS)
        accused += bare_values(*sides, layout=None, risk=risk) is not None
    assert_rate_at_most(accused, runs, risk)
    grid = [np.round(sampled(1, rows), 1) for rows in (6, 7)]
    assert bare_values(*grid, layout=None, risk=risk) is None
    far = [sampled(1, rows) + 3e6 * (np.arange(12) == 5) for rows in (6, 7)]
    assert bare_values(*far, layout=None, risk=risk) is None
