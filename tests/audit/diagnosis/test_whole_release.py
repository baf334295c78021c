"""Releases of few numbers, of which none carries noise alone: the law of the noise, its scale, and the record."""

import math

import numpy as np
import pytest
from checks import assert_rate_at_most

from audit.diagnosis.allowed_movement import moves_more_than_allowed
from audit.diagnosis.whole_release import diagnose_whole_release
from audit.trials.kept_outputs import most_looked_at

RISK = 0.003
RNG = np.random.default_rng


def sides(draw, *, seed=0, trials=1000):
    """A count of three records or four, with this noise on each."""
    rng = RNG(seed)
    return tuple(np.asarray([[records + draw(rng, records)] for _ in range(trials)]) for records in (3.0, 4.0))


def wrong(found):
    return [answer.code for answer in found if answer.wrong and not answer.follows]


FAULTS = {
    "scale reads the number of records": (
        lambda rng, n: rng.laplace(0, 3.0 / n**2),
        ["scale_by_record"],
        "depends on the dataset",
    ),
    "normal": (lambda rng, n: rng.normal(0, math.sqrt(2)), ["laplace"], "does not follow the claimed Laplace law"),
    "uniform": (lambda rng, n: rng.uniform(-5, 5), ["laplace"], "does not follow the claimed Laplace law"),
    "cut": (lambda rng, n: np.clip(rng.laplace(0, 1.0), -3, 3), ["laplace"], "is cut"),
    "half the scale": (lambda rng, n: rng.laplace(0, 0.5), ["l1_ratio"], "has scale 0."),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_release_of_one_number_is_told_what_is_wrong_with_its_laplace_noise(name):
    draw, codes, says = FAULTS[name]
    found = diagnose_whole_release(*sides(draw), law="laplace", epsilon=1.0, risk=RISK)
    assert wrong(found) == codes
    assert says in found[0].says
    assert "among others" in found[0].says
    assert sum(answer.risk for answer in found) <= RISK * (1 + 1e-9)


def test_a_normal_law_is_asked_about_where_it_is_claimed_and_none_where_none_is():
    laplace = sides(lambda rng, n: rng.laplace(0, 1.0))
    assert wrong(diagnose_whole_release(*laplace, law="normal", epsilon=None, risk=RISK)) == ["normal"]
    assert [one.code for one in diagnose_whole_release(*laplace, law="any", epsilon=None, risk=RISK)] == [
        "scale_by_record"
    ]


def test_noise_that_looks_laplace_is_asked_about_its_scale_under_a_pure_epsilon():
    """A fifth of it missing, in as many trials as are kept of one number; no scale is told of another law."""
    trials = most_looked_at(1)
    asked = {"law": "any", "epsilon": 1.0, "risk": RISK}
    less = diagnose_whole_release(*sides(lambda rng, n: rng.laplace(0, 0.8), trials=trials), **asked)
    assert wrong(less) == ["l1_ratio"]
    assert sum(answer.risk for answer in less) <= RISK * (1 + 1e-9)
    normal = diagnose_whole_release(*sides(lambda rng, n: rng.normal(0, 0.5), trials=trials), **asked)
    assert [answer.code for answer in normal] == ["scale_by_record"]


def test_a_quarter_of_the_normal_noise_of_one_number_missing_is_told():
    """Whether the record moves it up or down."""
    up = sides(lambda rng, n: rng.normal(0, 1.5), trials=most_looked_at(1))
    for both in (up, up[::-1]):
        found = moves_more_than_allowed(*both, whatever=0.51, normal=0.5, risk=RISK)
        assert found.wrong
        assert found.says.startswith("the record moves the release by 0.6")
        assert "and the claim allows 0.5 if the noise is normal, as it looks: too little noise" in found.says


def test_one_number_is_said_to_move_too_far_at_most_at_the_risk():
    """It moves by all that is allowed; only one end of the interval accuses, at half the risk."""
    rng, accused = RNG(6), 0
    for _ in range(400):
        noise = rng.normal(size=(2, 100, 1))
        found = moves_more_than_allowed(noise[0], noise[1] - 0.5, whatever=0.51, normal=0.5, risk=0.4)
        accused += found.wrong
    assert_rate_at_most(accused, 400, 0.2)


def test_discrete_releases_are_not_asked():
    bits = tuple((side > 3.5).astype(float) for side in sides(lambda rng, n: rng.laplace(0, 1.0)))
    assert diagnose_whole_release(*bits, law="laplace", epsilon=1.0, risk=RISK) == ()


@pytest.mark.few(1)
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("law", ["laplace", "normal"])
def test_noise_as_claimed_is_accused_at_most_at_the_risk(law, width):
    """Wrong with probability .1 at most in each of 300: more than 52 would have probability 1e-4."""
    rng, trials, accused = RNG(5), 100, 0
    for _ in range(300):
        noise = (rng.laplace if law == "laplace" else rng.normal)(size=(2 * trials, width))
        noise[trials:, 0] += 1.0
        found = diagnose_whole_release(noise[:trials], noise[trials:], law=law, epsilon=1.0, risk=0.1)
        accused += bool(wrong(found))
    assert_rate_at_most(accused, 300, 0.1)


OTHER_LAWS = {
    "made positive": np.abs,
    "squared": lambda z: z**2,
    "drawn again beyond 2": lambda z: np.where(np.abs(z) > 2, np.sign(z) * (4 - np.abs(z)), z),
    "squashed": np.tanh,
}


@pytest.mark.parametrize("name", OTHER_LAWS)
def test_many_numbers_together_show_noise_that_is_not_normal(name):
    """Of absolute values of normal numbers the mean absolute deviation is that of normal numbers."""
    noise = OTHER_LAWS[name](RNG(2).standard_normal((2, 500, 20)))
    found = diagnose_whole_release(noise[0], noise[1] + 0.2, law="normal", epsilon=None, risk=RISK)
    assert wrong(found) == ["normal"]
    assert "is not normal" in found[0].says
    assert sum(answer.risk for answer in found) <= RISK * (1 + 1e-9)


def test_normal_numbers_that_are_correlated_are_normal():
    accused = 0
    for seed in range(100):
        noise = RNG(seed).standard_normal((2, 60, 8)) @ RNG(1).standard_normal((8, 40))
        accused += bool(wrong(diagnose_whole_release(noise[0], noise[1], law="normal", epsilon=None, risk=0.1)))
    assert_rate_at_most(accused, 100, 0.1)


@pytest.mark.parametrize(("scale", "codes"), [(1.0, ["l1_ratio"]), (2.0, [])])
def test_laplace_noise_on_several_numbers_is_added_up_after_a_violation(scale, codes):
    rng = RNG(5)
    both = [records * np.array([1.0, 1.0, 0.0]) + rng.laplace(0, scale, (1500, 3)) for records in (3, 4)]
    found = diagnose_whole_release(*both, law="laplace", epsilon=1.0, broken=True, risk=RISK)
    assert wrong(found) == codes
    assert not codes or (found[0].causes[0] == "spent_on_each" and "in all" in found[0].says)
    assert not wrong(diagnose_whole_release(*both, law="laplace", epsilon=1.0, risk=RISK))
    # what repeats a number costs nothing more
    (once, again), factors = (side[:, :1] for side in both), np.array([1, 2])
    repeated = (once * factors / scale, again * factors / scale)
    assert not wrong(diagnose_whole_release(*repeated, law="laplace", epsilon=1.0, broken=True, risk=RISK))


@pytest.mark.few(1)
def test_laplace_noise_that_costs_just_what_is_claimed_is_accused_at_most_at_the_risk():
    rng, runs, accused = RNG(6), 200, 0
    for _ in range(runs):
        both = [records * np.array([1.0, 1.0, 0.0]) + rng.laplace(0, 2.0, (300, 3)) for records in (3, 4)]
        accused += bool(wrong(diagnose_whole_release(*both, law="laplace", epsilon=1.0, broken=True, risk=0.1)))
    assert_rate_at_most(accused, runs, 0.1)
