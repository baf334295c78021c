import jax
import numpy as np
import pytest
from checks import FALSE_FAILURE

import audit
import guarantees
import mechanisms
from audit.diagnosis.stated_noise import KnownStep, less_noise_than_stated
from mechanisms.release import Layout

WIDTH, TRIALS = 20, 1000
ODD = np.where(np.arange(WIDTH) % 2, 0.3, 1.0)
LAST = np.where(np.arange(WIDTH) < 15, 1.0, 0.5)
PAIRS = {
    "one coordinate": mechanisms.worst_case_pair(records=3, dimension=WIDTH, clip=1.0),
    "all coordinates": mechanisms.neighbours_from_gradients(-np.ones((3, WIDTH)), np.ones(WIDTH)),
}


def clipped(rows):
    return rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))


def step(deviations):
    return lambda seed, rows: clipped(rows).sum(0) + deviations * np.random.default_rng(seed).standard_normal(WIDTH)


def answer(pair, *, deviations=1.0, scale=1.0, layout=None):
    generator, others = np.random.default_rng(3), clipped(-np.ones((3, WIDTH)) if pair == "all coordinates" else ROWS)
    sides = [
        scale * (others.sum(0) - moved * others[0] + deviations * generator.standard_normal((TRIALS, WIDTH)))
        for moved in (0, 1)
    ]
    told = KnownStep.of(PAIRS[pair], clip=1.0, noise_multiplier=1.0, rate=1.0)
    return less_noise_than_stated(*sides, told, layout=layout, risk=FALSE_FAILURE)


ROWS = -np.eye(1, WIDTH) * np.ones((3, 1))


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(("deviations", "where"), [(ODD, "10 of the coordinates 1 to 19"), (LAST, "15 to 19")])
def test_coordinates_with_less_noise_are_told(pair, deviations, where):
    found = answer(pair, deviations=deviations)
    assert where in found.says
    assert "need 1." in found.says
    assert found.causes[0] == "less_on_some"


def test_coordinates_that_are_scaled_with_their_gradients_are_not_accused():
    assert answer("all coordinates", scale=ODD) is None
    halves = Layout(names=("a", "b"), shapes=((15,), (5,)))
    # nothing says by what the second tensor is divided
    assert answer("one coordinate", scale=LAST, layout=halves) is None
    assert answer("one coordinate", scale=LAST) is not None


def test_more_noise_on_some_coordinates_is_not_accused():
    assert answer("one coordinate", deviations=1 / ODD) is None
    assert answer("all coordinates", deviations=1 / LAST) is None


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("deviations", "where"), [(ODD, "on 10 of"), (np.where(np.arange(WIDTH), 0.7, 1.0), "need 1.")]
)
def test_less_noise_that_no_score_finds_gets_a_hint(deviations, where):
    """There was none: of the law's answer, or of more noise along the record than beside it, nothing else followed."""
    code = mechanisms.callable_step(step(deviations), clip=1.0, noise_multiplier=1.0, gradients=lambda rows: rows)
    given = {"claim": guarantees.gaussian(mu=1.0), "trials": 1000, "risk": 0.05, "key": jax.random.key(0)}
    record = audit.run_audit(code, PAIRS["one coordinate"], **given)
    assert record.verdict == "no_violation_found"
    (hint,) = (found for found in record.diagnoses if found.wrong and not found.follows)
    assert hint.code == "told_noise"
    assert where in hint.says


@pytest.mark.long
def test_after_a_violation_the_law_follows_from_less_noise_on_some():
    code = mechanisms.callable_step(step(ODD), clip=1.0, noise_multiplier=1.0, gradients=lambda rows: rows)
    given = {"claim": guarantees.gaussian(mu=1.0), "trials": 2000, "risk": 0.05, "key": jax.random.key(0)}
    record = audit.run_audit(code, PAIRS["all coordinates"], **given)
    assert record.verdict == "violation"
    wrong = {found.code: found.follows for found in record.diagnoses if found.wrong}
    assert wrong["told_noise"] == ""
    assert wrong["normal"] == "told_noise"
    assert "shared" not in wrong


def test_noise_as_stated_beside_more_records_is_not_called_little():
    """Of batches of one record of three at a stated rate of a quarter: 'which a divisor shrinks too', and none is."""
    generator = np.random.default_rng(3)
    rows = clipped(np.ones((4, WIDTH)) + 0.1 * generator.standard_normal((4, WIDTH)))
    sides = [
        rows[generator.integers(count, size=TRIALS)] + 0.7 * generator.standard_normal((TRIALS, WIDTH))
        for count in (3, 4)
    ]
    pair = mechanisms.neighbours_from_gradients(rows[:3], rows[3])
    told = KnownStep.of(pair, clip=1.0, noise_multiplier=0.7, rate=0.25)
    found = less_noise_than_stated(*sides, told, risk=FALSE_FAILURE)
    assert found.says.startswith("the noise has its stated deviation of 0.7, but the other records move the sum by ")
    assert found.causes[0] == "another_rate"
    assert "less_noise" not in found.causes
