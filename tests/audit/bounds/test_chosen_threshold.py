import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binom

import guarantees
from audit.bounds.bounded_numbers import DeltaAt, EpsilonAt
from audit.bounds.chosen_threshold import (
    ScoreModel,
    best_threshold,
    expected_bound,
    scores_to_choose,
    strongest_threshold,
)
from audit.bounds.inversion import approximate_bound
from audit.goal import Goal
from audit.policies.candidates import choose, from_fit

TRIALS = (90_000, 90_000)


def sides(seed, n, *, shift=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), rng.normal(size=n) + shift


def test_gaussian_scores_are_extended_beyond_their_tail():
    model = ScoreModel(without=np.sort(sides(0, 5000)[0]), with_record=np.sort(sides(0, 5000)[1]))
    alpha, beta = model.rates(np.array([3.5, 4.5]))
    assert alpha == pytest.approx(1 - ndtr([3.5, 4.5]), rel=0.5)
    assert beta == pytest.approx(ndtr([2.5, 3.5]), abs=0.003)


def test_heavier_tails_are_not_taken_for_gaussian_ones():
    rng = np.random.default_rng(1)
    scores = np.sort(rng.standard_t(2, size=5000))
    alpha, _ = ScoreModel(without=scores, with_record=scores).rates(np.array([8.0]))
    assert alpha[0] > 0.2 * np.mean(scores > 8.0) > 0


def test_the_threshold_for_epsilon_lies_in_the_tail_and_for_delta_in_the_middle():
    far = best_threshold(*sides(2, 10_000), EpsilonAt(delta=1e-5), trials=TRIALS, risk=0.05)
    middle = best_threshold(*sides(2, 10_000), DeltaAt(epsilon=0.0), trials=TRIALS, risk=0.05)
    assert (far.threshold > 3.2 and far.rejects == "above") or far.threshold < -2.2
    assert middle.threshold == pytest.approx(0.5, abs=0.2)


def test_what_a_threshold_is_expected_to_prove_follows_the_exact_mean_without_steps():
    """Three whole-numbered quantiles of some ten false alarms jump by .03; a jump upwards was taken for the best."""
    question, n, risk = EpsilonAt(delta=1e-5), 10**5, 0.0325
    alpha = np.linspace(6, 40, 69) / n
    beta = ndtr(-ndtri(alpha) - 1)
    counts = np.arange(90)[:, None]
    misses = np.rint(n * beta)
    bounds = approximate_bound(counts, misses, trials=(n, n), question=question, risk=risk)
    mean = np.sum(binom.pmf(counts, n, alpha) * bounds, axis=0)
    off = expected_bound(alpha, beta, question, trials=(n, n), risk=risk) - mean
    assert np.ptp(off) < 0.012
    assert mean[np.argmax(mean + off)] > mean.max() - 0.002


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bits", [1000, 290, -150, -290, -1000])
def test_scores_whose_squares_are_no_floats_have_the_same_threshold(bits):
    without, with_record = sides(0, 500)
    one, other = (
        best_threshold(scale * without, scale * with_record, DeltaAt(epsilon=0.0), trials=TRIALS, risk=0.05)
        for scale in (1.0, 2.0**bits)
    )
    assert (other.threshold, other.rejects) == (one.threshold * 2.0**bits, one.rejects)


def gap(seed, n):
    """Scores of which 5% with the record lie beyond a gap; without it none do, though a normal law would put 3% there.

    The rest differ a little.
    """
    rng = np.random.default_rng(seed)
    zero, one = (rng.choice([-2.0, -1.0, 0.0], p=p, size=n) for p in ([0.2, 0.5, 0.3], [0.1, 0.5, 0.4]))
    one[rng.random(n) < 0.05] = 1.0
    return zero + 0.05 * rng.normal(size=n), one + 0.05 * rng.normal(size=n)


def test_a_gap_that_a_smooth_model_fills_is_not_overlooked():
    goal = Goal(claim=guarantees.gaussian(mu=1.0), delta=1e-5, trials_per_side=5000, risk=0.01)
    sides = [side[:, None] for side in gap(6, 1000)]
    found = choose(from_fit(*sides), "verdict", goal)
    assert 0.15 < found.threshold < 0.9
    assert found.rejects == "above"


def test_a_reversed_score_rejects_below():
    zero, one = sides(3, 2000, shift=-1.0)
    assert best_threshold(zero, one, DeltaAt(epsilon=0.0), trials=TRIALS, risk=0.05).rejects == "below"


def test_the_strongest_threshold_lies_where_the_claim_is_broken():
    found = strongest_threshold(*sides(4, 4000), guarantees.gaussian(mu=0.5), trials=TRIALS)
    assert -0.5 < found.threshold < 1.5


@pytest.mark.parametrize("values", [[0.0], [0.0, 1.0], list(range(6))])
def test_few_distinct_scores_do_not_break_the_choice(values):
    rng = np.random.default_rng(5)
    zero, one = (rng.choice(values, size=100).astype(float) for _ in range(2))
    best = best_threshold(zero, one, EpsilonAt(delta=1e-5), trials=(900, 900), risk=0.05)
    strongest = strongest_threshold(zero, one, guarantees.gaussian(mu=1.0), trials=(900, 900))
    assert np.isfinite([best.threshold, strongest.threshold]).all()


def test_a_tenth_chooses_up_to_a_limit():
    assert [scores_to_choose(n) for n in (4, 1000, 10**5, 10**7)] == [2, 100, 10**4, 200_000]


def test_rates_never_turn_back_far_from_one_side():
    """The normal deviates of these scores are a cubic that turns at -6.35; thresholds of the other side lie beyond."""
    z = np.linspace(-6.0, 6.0, 20_001)
    deviates = ndtri((np.arange(20_000) + 0.5) / 20_000)
    scores = np.interp(deviates, z + 0.05 * z**2 - 0.003 * z**3, z)
    model = ScoreModel(without=scores, with_record=scores - 40.0)
    alpha, beta = model.rates(np.linspace(-60.0, 60.0, 4001))
    assert np.all(np.diff(alpha) <= 1e-12)
    assert np.all(np.diff(beta) >= -1e-12)
