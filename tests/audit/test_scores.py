import numpy as np
import pytest
from checks import assert_rate_at_most
from scipy.special import ndtri

import audit
import guarantees
from audit.bounds.chosen_threshold import scores_to_choose
from audit.bounds.clopper_pearson import ErrorCounts
from audit.bounds.inversion import joint_epsilon_bound
from audit.bounds.output_scores import learned_scores
from audit.bounds.points import proven_epsilon, refutes
from audit.goal import Goal
from audit.policies.candidates import choose, from_curve
from audit.scores import chosen_tests
from audit.verdict.judgement import ONE_PLACE

GAUSS = guarantees.gaussian(mu=1.0)


def scores(seed, n, shift):
    return np.random.default_rng(seed).normal(size=n) + shift


def test_scores_from_anywhere_give_bounds_below_the_truth():
    found = audit.from_scores(scores(0, 20_000, 0), scores(1, 20_000, 1), risk=0.05)
    assert 1.8 < found.epsilon(1e-5) < 4.377
    assert 0.34 < found.delta(0.0) < 0.3830
    assert 0.9 < found.mu < 1.0
    assert found.verdict is None
    assert any("independent" in condition for condition in found.conditions)


def test_fixed_thresholds_use_every_score_and_ask_the_user_to_vouch():
    found = audit.from_scores(scores(0, 5000, 0), scores(1, 5000, 1), risk=0.05, thresholds=(0.5,))
    assert found.tests[0].counts.trials_without == 5000
    assert found.seed is None
    assert any("before looking" in condition for condition in found.conditions)


def test_a_claim_gets_a_verdict():
    weak, right = guarantees.gaussian(mu=0.7), guarantees.gaussian(mu=1.0)
    sides = scores(0, 5000, 0), scores(1, 5000, 1)
    assert audit.from_scores(*sides, risk=0.05, claim=weak).verdict == "violation"
    assert audit.from_scores(*sides, risk=0.05, claim=right).verdict == "no_violation_found"


@pytest.mark.parametrize("given", [{}, {"thresholds": (9.0,), "target": "verdict"}])
def test_scores_that_are_all_the_same_find_nothing(given):
    """Of zeros it was said that a Gaussian leak with mu 1.22 would have been found."""
    claim = guarantees.gaussian(mu=1.0)
    sides = (np.zeros(1000), np.zeros(900)) if not given else (scores(0, 1000, 0), scores(1, 1000, 0.5))
    judgement = audit.from_scores(*sides, risk=0.05, claim=claim, **given).judgement
    assert (judgement.verdict, judgement.reason) == ("inconclusive", ONE_PLACE)
    assert judgement.detectable.epsilon is None


def wrong_bounds(runs, bound, *, scores_a_side=250, delta=0.02):
    """How often some number exceeds the truth; scores are sorted, as saved files may be."""
    truth = {"epsilon": float(GAUSS.epsilon(delta)), "delta": GAUSS.total_variation, "mu": 1.0}
    wrong = 0
    for seed in range(runs):
        sides = np.sort(scores(2 * seed, scores_a_side, 0)), np.sort(scores(2 * seed + 1, scores_a_side, 1))
        wrong += any(value > truth[name] for name, value in bound(sides, seed).items())
    return wrong


def ours(sides, seed):
    found = audit.from_scores(*sides, risk=0.2, delta=0.02, seed=seed)
    return {number.name: number.at_least for number in found.numbers}


def one_number(sides, seed):
    return {"epsilon": audit.from_scores(*sides, risk=0.2, delta=0.02, seed=seed, target="epsilon").epsilon(0.02)}


def chosen_by_looking(sides):
    """The largest joint bound over thresholds on the judged scores themselves."""
    counts = [
        ErrorCounts(
            false_alarms=int((sides[0] > t).sum()),
            trials_without=len(sides[0]),
            misses=int((sides[1] <= t).sum()),
            trials_with=len(sides[1]),
        )
        for t in np.linspace(-2.5, 2.5, 9)
    ]
    return max(joint_epsilon_bound(c, delta=0.0, risk=0.1) for c in counts)


def test_bounds_from_scores_hold_at_their_risk():
    assert_rate_at_most(wrong_bounds(12, one_number), 12, 0.2)
    assert_rate_at_most(wrong_bounds(9, ours), 9, 0.2)


def with_infinite_ends(sides):
    """Log-likelihood ratios whose ends overflowed: the same order, a finite middle."""
    return tuple(np.where(side > 1.5, np.inf, np.where(side < -0.5, -np.inf, side)) for side in sides)


def test_bounds_from_infinite_scores_hold_at_their_risk():
    assert_rate_at_most(wrong_bounds(12, lambda sides, seed: one_number(with_infinite_ends(sides), seed)), 12, 0.2)


def test_infinite_scores_count_as_the_largest_and_the_smallest():
    """Any finite scores in the same order prove the same at a threshold that was given, off the band as well."""
    sides = with_infinite_ends((scores(0, 2000, 0), scores(1, 2000, 1)))
    finite = tuple(np.clip(side, -50.0, 80.0) for side in sides)
    infinite, moved = (audit.from_scores(*given, risk=0.05, thresholds=(1.5,)) for given in (sides, finite))
    assert infinite.numbers == moved.numbers
    assert infinite.epsilon(0.1) == moved.epsilon(0.1) > 0


@pytest.mark.long
def test_bounds_from_scores_hold_at_their_risk_over_many_runs():
    assert_rate_at_most(wrong_bounds(1000, one_number), 1000, 0.2)
    assert_rate_at_most(wrong_bounds(600, ours), 600, 0.2)


@pytest.mark.long
def test_choosing_the_threshold_by_looking_does_not_hold():
    """Where both sides have one law epsilon is 0; a threshold chosen by looking finds more too often, ours does not."""
    honest = looking = 0
    for seed in range(60):
        sides = scores(2 * seed, 250, 0), scores(2 * seed + 1, 250, 0)
        honest += audit.from_scores(*sides, risk=0.1, delta=0.0, target="epsilon").epsilon(0.0) > 0
        looking += chosen_by_looking(sides) > 0
    assert_rate_at_most(honest, 60, 0.1)
    with pytest.raises(AssertionError):
        assert_rate_at_most(looking, 60, 0.1)


@pytest.mark.long
@pytest.mark.parametrize("law", ["ties", "heavy"])
def test_bounds_hold_for_scores_that_are_not_gaussian(law):
    """Rounded to halves, and Laplace noise: the truth is that of the mechanism, the scores only process it."""
    rng, wrong, runs = np.random.default_rng(8), 0, 2000
    for seed in range(runs):
        if law == "ties":
            sides = np.round(2 * rng.normal(size=300)) / 2, np.round(2 * rng.normal(size=300) + 2) / 2
            truth = float(GAUSS.epsilon(0.02))
        else:
            sides = rng.laplace(size=300), rng.laplace(size=300) + 1
            truth = float(guarantees.laplace(epsilon=1.0).epsilon(0.02))
        wrong += audit.from_scores(*sides, risk=0.2, delta=0.02, seed=seed, target="epsilon").epsilon(0.02) > truth
    assert_rate_at_most(wrong, runs, 0.2)


def test_few_distinct_scores_are_no_handicap():
    """Rounded to halves, 1,000 per side, mu 1.5, delta 1e-6: jax_privacy's best strategy has a median of 2.36."""
    found = []
    for seed in range(9):
        sides = np.round(2 * scores(2 * seed, 1000, 0)) / 2, np.round(2 * scores(2 * seed + 1, 1000, 1.5)) / 2
        found.append(audit.from_scores(*sides, risk=0.05, delta=1e-6, target="epsilon").epsilon(1e-6))
    assert_rate_at_most(sum(value < 2.36 for value in found), 9, 0.5)
    assert max(found) < float(guarantees.gaussian(mu=1.5).epsilon(1e-6))


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(("mu", "least"), [(0.3, 0.0438), (1.0, 1.154), (1.5, 2.33)])
def test_scores_without_a_threshold_beat_the_peers_split(mu, least):
    """jax_privacy's own cases: its Split proves .0425, 1.147 and 2.317."""
    zero, one = (ndtri((np.arange(n) + 0.5) / n) + shift for n, shift in ((10**6, 0.0), (2 * 10**6, mu)))
    found = audit.from_scores(zero, one, risk=0.2, delta=0.1, target="epsilon").epsilon(0.1)
    assert least < found < float(guarantees.gaussian(mu=mu).epsilon(0.1))


def test_shares_are_stated_and_sum_to_the_risk():
    sides = scores(0, 2000, 0), scores(1, 2000, 1)
    for given in ({}, {"claim": GAUSS}, {"target": "mu"}, {"target": "verdict", "claim": GAUSS}):
        found = audit.from_scores(*sides, risk=0.05, **given)
        assert sum(found.shares.values()) == pytest.approx(0.05)
        assert all(number.risk == found.shares[number.name] for number in found.numbers)
    with pytest.raises(ValueError, match="target"):
        audit.from_scores(*sides, risk=0.05, target="verdict")


def test_the_declared_delta_is_bounded_by_its_own_test_and_others_by_the_band():
    found = audit.from_scores(scores(0, 20_000, 0), scores(1, 20_000, 1), risk=0.05, delta=1e-3)
    own = found.numbers[0]
    assert found.epsilon(1e-3) == own.at_least > own.rectangle
    assert found.epsilon(1e-5) >= own.at_least
    assert found.epsilon(0.1) == pytest.approx(max(proven_epsilon(found.band.points, delta=0.1)))
    assert found.delta(1.0) < guarantees.gaussian(mu=1.0).delta(1.0)


def test_the_seed_is_recorded_and_decides_which_scores_choose():
    sides = scores(0, 3000, 0), scores(1, 3000, 1)
    first, again, other = (audit.from_scores(*sides, risk=0.05, seed=seed) for seed in (1, 1, 2))
    assert first.seed == 1
    assert first.tests == again.tests != other.tests
    assert first.tests[0].counts.trials_without == 2700


def test_a_reversed_score_is_noticed():
    found = audit.from_scores(-scores(0, 5000, 0), -scores(1, 5000, 1), risk=0.05)
    assert found.delta(0.0) > 0.3
    assert found.numbers[1].at_least > 0.3


def test_verdict_and_bounds_never_contradict_each_other(full):
    for seed in range(6 if full else 2):
        sides = scores(2 * seed, 3000, 0), scores(2 * seed + 1, 3000, 1)
        claim = guarantees.gaussian(mu=0.92)
        found = audit.from_scores(*sides, risk=0.2, claim=claim, delta=0.01)
        beyond = found.numbers[0].at_least > claim.epsilon(0.01) or found.numbers[1].at_least > claim.total_variation
        assert not beyond or found.verdict == "violation"


@pytest.mark.parametrize(
    ("without", "message"),
    [
        (np.zeros((3, 2)), "at least 12 outputs"),
        (np.zeros(2), "at least 4"),
        (np.array([0.0, np.nan, 1.0, 2.0]), r"without\[1\] is nan"),
        (np.array(["a", "b"]), "array of real numbers"),
    ],
)
def test_bad_scores_get_a_message(without, message):
    with pytest.raises(ValueError, match=message):
        audit.from_scores(without, np.zeros(10), risk=0.05)


def test_true_and_false_are_scores():
    """What randomised response writes."""
    sides = [np.random.default_rng(7).random(400) < share for share in (0.3, 0.6)]
    found = audit.from_scores(*sides, risk=0.05)
    assert found.epsilon(0.0) == audit.from_scores(*(side.astype(float) for side in sides), risk=0.05).epsilon(0.0) > 0


@pytest.mark.long
@pytest.mark.parametrize(("trials_per_side", "least"), [(10**5, 2.92), (10**7, 3.85)])
def test_a_threshold_from_theory_proves_more_than_any_peer(trials_per_side, least):
    """Scores N(1,1) against N(0,1), delta 1e-5, 95%: the truth is 4.377, the best peer proves 2.60 at 1e5 per side."""
    goal = Goal(claim=GAUSS, delta=1e-5, trials_per_side=trials_per_side, risk=0.05)
    cut = choose(from_curve(GAUSS.curve), "epsilon", goal)
    alpha, beta = (float(np.squeeze(rate)) for rate in GAUSS.curve.errors(cut.threshold))
    rng = np.random.default_rng(5)
    proven = [
        joint_epsilon_bound(
            ErrorCounts(
                false_alarms=int(rng.binomial(trials_per_side, alpha)),
                trials_without=trials_per_side,
                misses=int(rng.binomial(trials_per_side, beta)),
                trials_with=trials_per_side,
            ),
            delta=1e-5,
            risk=0.05,
        )
        for _ in range(200)
    ]
    assert np.median(proven) >= least
    assert_rate_at_most(sum(value > 4.3772 for value in proven), 200, 0.05)


def test_the_verdict_on_scores_reads_the_band():
    """A leak at a threshold that no number's test takes: the band refutes the claim, so the verdict does."""
    draw, claim = np.random.default_rng(8), guarantees.gaussian(mu=1.0)
    without, with_record = draw.normal(-0.5, 1, 5000), draw.normal(0.5, 1, 5000)
    moved = (with_record > 0) & (with_record <= 0.315)
    with_record[moved] = 0.315 + np.abs(draw.normal(0, 0.5, moved.sum()))
    found = audit.from_scores(without, with_record, risk=0.05, claim=claim, thresholds=(0.0,))
    assert refutes(found.band.points, claim)
    assert (found.verdict, found.judgement.p_value <= 0.05) == ("violation", True)


def test_where_a_threshold_lies_is_told_by_the_scores_set_aside_alone():
    """Judged scores may change as they like: with infinite ones among them, too, the tests stay what they were."""
    draw = np.random.default_rng(0)
    sides = [draw.normal(shift, 1, 400) for shift in (0.0, 1.0)]
    for side in sides:
        side[::7] = np.inf
    rng = np.random.default_rng(3)
    aside = [rng.choice(400, scores_to_choose(400), replace=False) for _ in sides]
    changed = []
    for side, kept in zip(sides, aside, strict=True):
        other = 1000.0 + draw.normal(0, 1, 400)
        other[kept] = side[kept]
        changed.append(other)
    share = {"epsilon": 0.03, "delta": 0.01, "rest": 0.01}
    first, second = (chosen_tests(tuple(pair), share, None, 1e-5, 3) for pair in (sides, changed))
    assert [(test.threshold, test.rejects) for test in first] == [(test.threshold, test.rejects) for test in second]


def test_the_band_speaks_for_the_declared_numbers_too():
    # a tenth of Laplace scores looks Gaussian, whose best threshold is far out: there this test proves .2
    draw = np.random.default_rng([0, 1])
    found = audit.from_scores(draw.laplace(size=1000), draw.laplace(size=1000) + 1, risk=0.05)
    (own,) = (number for number in found.numbers if number.name == "epsilon")
    assert own.at_least < 0.3 < 0.5 < found.epsilon(1e-5) <= 1.0
    assert found.epsilon(1e-5) <= found.epsilon(0.0) <= 1.0
    assert found.delta(0.0) >= max(number.at_least for number in found.numbers if number.name == "delta")
    assert found.mu >= max(number.at_least for number in found.numbers if number.name == "mu")


def outputs(seed, moved=0.0, scale=1.0, shape=(8,)):
    """Noise of one scale, moved along the first number."""
    rows = scale * np.random.default_rng(seed).normal(size=(1500, *shape))
    rows.reshape(1500, -1)[:, 0] += moved
    return rows


UNITS = 10.0 ** np.array([-6, -3, 0, 0, 0, 0, 3, 6])


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("without", "with_record"),
    [
        (outputs(0), outputs(1, moved=3.0)),
        (outputs(0), outputs(1, scale=0.6)),
        (outputs(0, shape=(2, 4)), outputs(1, moved=3.0, shape=(2, 4))),
        (np.zeros((1500, 3)), np.tile([0.0, 1.0, 0.0], (1500, 1))),
        (1e-300 * outputs(0), 1e-300 * outputs(1, moved=3.0)),
        (1e307 * outputs(0, scale=0.1), 1e307 * outputs(1, scale=0.1, moved=0.3)),
        (outputs(0) * UNITS + UNITS[::-1], outputs(1, moved=3.0) * UNITS + UNITS[::-1]),
        (outputs(0) > 0, outputs(1, moved=3.0) > 0),
        (outputs(0), outputs(1) * (np.arange(8) != 3)),
        (outputs(0) + 5.0, outputs(1) * np.where(np.arange(8) == 5, 3.0, 1.0) + 5.0),
    ],
    ids=[
        *("moved", "scaled", "two steps", "no noise", "tiny", "huge", "units of each number", "yes or no"),
        *("one coordinate constant", "one coordinate wider"),
    ],
)
def test_outputs_that_differ_are_told_apart_by_a_score_that_a_third_of_them_learns(without, with_record):
    found = audit.from_scores(without, with_record, risk=0.05, claim=guarantees.gaussian(mu=0.5))
    assert found.verdict == "violation"
    assert found.learned_from == (500, 500)
    assert found.tests[0].counts.trials_without == 900
    assert not any("distinguisher" in condition for condition in found.conditions)


def test_an_output_far_from_those_that_learned_is_scored():
    rows = outputs(0)
    far = rows * np.where(np.arange(len(rows)) % 100 == 0, 1e300, 1e-300)[:, None]
    found = audit.from_scores(far, rows, risk=0.05)
    assert np.isfinite(found.sides[0]).all()
    assert np.isfinite(found.sides[1]).all()


@pytest.mark.parametrize(
    ("rows", "copied"),
    [
        (outputs(0), None),
        (np.repeat(outputs(0)[:150], 10, axis=0), "1,350 of the 1,500 trials without the record are copies of others"),
        (outputs(0)[np.arange(1500) % 1499], "1 of the 1,500 trials without the record are copies of others"),
        (
            np.repeat(outputs(0)[:150, :1], 10, axis=0),
            "1,350 of the 1,500 trials without the record are copies of others",
        ),
        (np.round(outputs(0)[:, :1], 2), None),
        (np.round(outputs(0)), None),
        ((outputs(0)[:, :2] > 0) / 3, None),
    ],
    ids=["drawn", "copied", "one copied", "scores copied", "scores rounded", "whole numbers", "few values"],
)
def test_trials_that_were_copied_are_named_among_the_conditions(rows, copied):
    """300 outputs, each ten times, refuted a claim that held, and nothing said that they were copies."""
    other = outputs(1)[:, : rows.shape[1]]
    first = audit.from_scores(rows, other, risk=0.05).conditions[0]
    assert first.endswith("with fresh randomness" if copied is None else f"although {copied}")


def test_constant_outputs_show_nothing():
    same = np.ones((100, 3))
    assert audit.from_scores(same, same, risk=0.05, claim=GAUSS).verdict == "inconclusive"


@pytest.mark.parametrize("runs", [12, pytest.param(200, marks=pytest.mark.long)])
def test_what_learned_is_not_judged(runs):
    """In 40 coordinates 20 outputs find a direction that parts them well, and it says nothing about others."""
    wrong, risk = 0, 0.2
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        found = audit.from_scores(rng.normal(size=(60, 40)), rng.normal(size=(60, 40)), risk=risk, seed=seed)
        wrong += found.mu > 0 or found.epsilon(1e-5) > 0 or found.delta(0.0) > 0
    assert_rate_at_most(wrong, runs, risk)


@pytest.mark.parametrize(
    ("with_record", "given", "says"),
    [
        (np.ones((20, 4)), {}, "3 numbers without the record and 4 with it"),
        (np.ones((5, 3)), {}, "at least 12 outputs"),
        (np.full((20, 3), np.nan), {}, r"with_record\[0\] is not finite"),
        (np.ones((20, 3)), {"thresholds": (1.0,)}, "thresholds must be left out"),
    ],
)
def test_outputs_that_cannot_be_scored_are_refused(with_record, given, says):
    with pytest.raises(ValueError, match=says):
        audit.from_scores(np.ones((20, 3)), with_record, risk=0.05, **given)


@pytest.mark.parametrize("seed", [1, 6, 12, 20])
def test_few_whole_numbers_are_scored_where_what_is_read_of_them_says_the_same(seed):
    rng = np.random.default_rng(seed)
    first, second = (np.round(rng.normal(size=(12, 3))) for _ in range(2))
    found = learned_scores(first, second, seed=0)
    assert np.isfinite([*found.without, *found.with_record]).all()


@pytest.mark.parametrize("kind", ["in order", "shuffled", "of both", "backwards"])
def test_a_column_that_numbers_the_trials_is_refused(kind):
    """`runs.csv:all:member=0` read the column `trial`: epsilon 5 on noise alone."""
    rng = np.random.default_rng(1)
    numbers = {
        "in order": (np.arange(0, 600, 2), np.arange(1, 600, 2)),
        "shuffled": (rng.permutation(300), rng.permutation(300)),
        "of both": np.split(rng.permutation(600), 2),
        "backwards": (np.arange(300)[::-1], np.arange(300)[::-1]),
    }[kind]
    sides = [np.column_stack([rng.normal(size=300), own]) for own in numbers]
    with pytest.raises(ValueError, match=r"number 2 of each output numbers the trials.*leave this column out"):
        audit.from_scores(*sides, risk=0.05)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.integers(0, 1000, size=300),
        lambda rng: rng.integers(0, 2**40, size=300),
        lambda rng: np.sort(rng.normal(size=300)),
        lambda rng: np.repeat(np.arange(150), 2),
        lambda rng: np.zeros(300),
    ],
)
def test_releases_of_whole_numbers_are_not(draw):
    rng = np.random.default_rng(1)
    sides = [np.column_stack([rng.normal(size=300), draw(rng)]) for _ in range(2)]
    assert audit.from_scores(*sides, risk=0.05).epsilon(1e-5) >= 0
