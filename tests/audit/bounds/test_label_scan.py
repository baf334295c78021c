import numpy as np
import pytest
from checks import assert_rate_at_most, assert_rate_is
from scipy.special import expit
from scipy.stats import binom

from audit.bounds.label_scan import as_coin_flips, bound_from_guesses, default_guesses, label_scan, tail_probability


def leaky_response(rng, trials, epsilon, delta):
    """The mechanism at which the bound is tight: exposed with probability delta, else randomised response."""
    labels = rng.random(trials) < 0.5
    truthful = rng.random(trials) < expit(epsilon)
    exposed = rng.random(trials) < delta
    scores = np.where(labels == truthful, 1.0, -1.0)
    return np.where(exposed, np.where(labels, 2.0, -2.0), scores) + 1e-3 * rng.random(trials), labels


def normal_trials(seed, trials=200_000):
    rng = np.random.default_rng(seed)
    labels = rng.random(trials) < 0.5
    return rng.normal(size=trials) + labels, labels


def test_tail_is_the_convolution_of_two_binomials():
    k, n, epsilon, delta = 7, 40, 0.7, 0.1
    both = np.convolve(binom.pmf(np.arange(k + 1), k, expit(epsilon)), binom.pmf(np.arange(n + 1), n, delta / 2))
    for correct in range(10):
        ours = tail_probability(correct, k, n, epsilon=epsilon, delta=delta)
        assert ours == pytest.approx(both[correct:].sum(), rel=1e-10)


def test_bound_is_where_the_tail_equals_the_risk():
    for correct, k in ((60, 64), (64, 64), (400, 512)):
        bound = bound_from_guesses(correct, k, 10_000, delta=1e-5, risk=0.01)
        assert tail_probability(correct, k, 10_000, epsilon=bound, delta=1e-5) <= 0.01
        assert tail_probability(correct, k, 10_000, epsilon=bound + 1e-5, delta=1e-5) > 0.01
    assert bound_from_guesses(30, 64, 10_000, delta=1e-5, risk=0.01) == 0.0
    assert bound_from_guesses(64, 64, 10_000, delta=0.0, risk=0.01) == pytest.approx(
        -np.log(0.01 ** (-1 / 64) - 1), abs=1e-6
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_bound_exceeds_the_truth_no_oftener_than_its_risk(delta):
    rng = np.random.default_rng(9)
    wrong = plug_in_wrong = 0
    for _ in range(100):
        scores, labels = leaky_response(rng, 1000, 1.0, delta)
        scan = label_scan(scores, labels, delta=delta, risk=0.2, guesses=(30, 100, 300))
        wrong += scan.epsilon > 1.0
        plug_in_wrong += np.log(scan.correct_top[1] / max(1, scan.guesses[1] - scan.correct_top[1])) > 1.0
    assert_rate_at_most(wrong, 100, 0.2)
    with pytest.raises(AssertionError):
        assert_rate_at_most(plug_in_wrong, 100, 0.2)


def test_tied_scores_prove_nothing():
    labels = np.random.default_rng(10).random(500) < 0.5
    assert label_scan(np.zeros(500), labels, delta=0.0, risk=0.05).epsilon == 0.0


def test_answers_of_zero_and_one_are_ordered_by_the_seed():
    rng = np.random.default_rng(13)
    labels = rng.random(4000) < 0.5
    told = (labels ^ (rng.random(4000) > expit(1.5))).astype(float)
    scan = label_scan(told, labels, delta=0.0, risk=0.05, seed=5)
    assert scan.seed == 5
    assert 1.0 < scan.epsilon < 1.5
    assert label_scan(told - 1e-9 * labels, labels, delta=0.0, risk=0.05).epsilon < 1.0, "ordered against the guesser"
    assert label_scan(told, labels, delta=0.0, risk=0.05, seed=6).correct_top != scan.correct_top


def test_directions_mirror_each_other():
    scores, labels = normal_trials(11, 4000)
    scan = label_scan(scores, labels, delta=1e-5, risk=0.05)
    mirrored = label_scan(-scores, ~labels, delta=1e-5, risk=0.05)
    assert scan.with_given_without == mirrored.without_given_with
    assert scan.correct_bottom == mirrored.correct_top
    one_sided = label_scan(scores, labels, delta=1e-5, risk=0.05, top_share=1.0)
    assert one_sided.without_given_with == 0.0
    assert one_sided.with_given_without >= scan.with_given_without


def test_fixed_sides_become_coin_flips():
    rng = np.random.default_rng(12)
    counts = []
    for _ in range(300):
        scores, labels = as_coin_flips(rng, np.zeros(1000), np.ones(1000))
        assert np.array_equal(scores == 1, labels)
        counts.append(labels.sum())
    trials = len(scores)
    assert 1750 < trials <= 2000
    assert_rate_is(int(np.sum(counts)), 300 * trials, 0.5)
    assert_rate_is(int(np.sum(np.array(counts) > trials // 2)), 300, binom.sf(trials // 2, trials, 0.5))
    assert np.std(counts) > 10


@pytest.mark.long
def test_normal_scores_reach_the_stated_epsilon():
    """N(0,1) against N(1,1), 2e5 coin flips, delta 1e-5, risk 0.05: the median is at least 2.74."""
    found = [label_scan(*normal_trials(seed), delta=1e-5, risk=0.05).epsilon for seed in range(20)]
    assert_rate_at_most(sum(value < 2.74 for value in found), 20, 0.5)
    assert max(found) < 4.377


@pytest.mark.long
def test_normal_scores_reach_the_stated_epsilon_over_200_seeds():
    drawn = [label_scan(*normal_trials(seed), delta=1e-5, risk=0.05).epsilon for seed in range(200)]
    assert np.median(drawn) >= 2.74
    fixed = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        sides = rng.normal(size=100_000), rng.normal(size=100_000) + 1
        fixed.append(label_scan(*as_coin_flips(rng, *sides), delta=1e-5, risk=0.05).epsilon)
    assert np.median(fixed) >= 2.74


def test_guesses_suit_any_number_of_trials():
    for trials in (1, 5, 100, 10**6):
        ks = default_guesses(trials)
        assert all(1 <= k <= trials for k in ks)
    assert len(default_guesses(10**6)) == 12


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="guesses"):
        label_scan(np.zeros(5), np.zeros(5), delta=0.0, risk=0.05, guesses=(9,))
    with pytest.raises(ValueError, match="NaN"):
        label_scan(np.array([np.nan, 1.0]), np.zeros(2), delta=0.0, risk=0.05)
    with pytest.raises(ValueError, match="0 or 1"):
        label_scan(np.zeros(2), np.array([0, 2]), delta=0.0, risk=0.05)


def test_sorted_scores_are_permuted_before_labels_are_drawn():
    """The same law on both sides: nothing to find, also when the files were sorted."""
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(100):
        sides = np.sort(rng.normal(size=500)), np.sort(rng.normal(size=500))
        wrong += label_scan(*as_coin_flips(rng, *sides), delta=0.0, risk=0.1).epsilon > 0
    assert_rate_at_most(wrong, 100, 0.1)
