from __future__ import annotations

import numpy as np
import pytest
from three_symbol_clones import three_symbol_clones

import guarantees
from guarantees.laws.gaussian_and_laplace import gaussian_delta
from guarantees.shuffling.certified_sum import CertifiedSum
from guarantees.shuffling.displacement import Displacement, dominating_atoms, upper_hull
from guarantees.shuffling.displacement_pools import DISTANCE, Pool, Profile, one_slot
from guarantees.shuffling.shuffle_bound import ShuffleBound, shuffle_bound
from guarantees.shuffling.stop_loss import clone_slot, lattice_law, worst_slot
from guarantees.trade_off import TradeOff

WITH, WITHOUT = "with_given_without", "without_given_with"

# noise multiplier, rounds: epsilon at delta 1e-5 of the first prototype and of the version before
TABLE = [(3.0, 1000, 0.206, 0.565), (5.0, 10_000, 0.0067, 0.0516), (2.0, 10_000, 0.258, 0.548)]


def stop_loss_of(masses, values, tau):
    return np.maximum(values[None, :] - tau[:, None], 0.0) @ masses


@pytest.mark.parametrize("kind", list(DISTANCE))
def test_lattice_law_dominates_the_worst_slot(kind):
    tau = np.concatenate([np.linspace(-30, 30, 501), np.random.default_rng(1).normal(0, 1, 200)])
    for sigma, epsilon in ((0.8, 0.5), (4.0, 0.01)):

        def exact(t, sigma=sigma, epsilon=epsilon):
            return worst_slot(kind, epsilon, sigma, t)

        law = lattice_law(exact, low=-20.0, high=20.0, spacing=0.11)
        own = stop_loss_of(law.masses, law.values, tau)
        assert np.all(exact(tau) <= own + law.excess)
        assert law.masses.sum() == pytest.approx(1, abs=1e-13)
        # it dominates closely
        assert np.max(own - exact(tau)) < 0.11


def test_stop_loss_functions_are_convex_and_keep_the_mean():
    tau = np.linspace(-50, 50, 4001)
    for epsilon in (0.0, 0.3, 2.0):
        functions = [lambda t, k=k, e=epsilon: worst_slot(k, e, 1.2, t) for k in DISTANCE]
        functions.append(lambda t, e=epsilon: clone_slot(e, 1.0, 1.2, t))
        for function in functions:
            value = function(tau)
            assert np.all(np.diff(value, n=2) > -1e-12)
            assert np.all(np.diff(value) < 1e-15)
            far = np.array([-1e6])
            assert function(far)[0] - 1e6 == pytest.approx(1 - np.exp(epsilon), abs=1e-3)


def test_closed_forms_are_right_to_rounding():
    """What the certificate assumes: the excess of a lattice law allows for 1e-14."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):

        def above(x):
            return mpmath.ncdf(-x)

        for sigma, epsilon, tau in ((0.8, 0.5, 3.0), (5.0, 0.006, 0.4), (1.0, 4.0, 200.0), (2.0, 0.25, 1e-3)):
            s, e, t = mpmath.mpf(sigma), mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(tau)
            b = e * mpmath.exp(1 / (2 * s**2))
            end = -(s**2) * mpmath.log(2 / (b + mpmath.sqrt(b**2 + 4 * t)))
            exact = above((end - 1) / s) - e * above(end / s) - t * above((end + 1) / s)
            assert abs(float(worst_slot(WITH, epsilon, sigma, np.array(tau)) - exact)) < 1e-14
            level = mpmath.log(e + t)
            exact = above(level * s - 1 / (2 * s)) - (e + t) * above(level * s + 1 / (2 * s))
            assert abs(float(worst_slot("without_given_with", epsilon, sigma, np.array(tau)) - exact)) < 1e-14


def test_certified_sum_is_above_a_direct_convolution_and_close():
    law = lattice_law(lambda t: worst_slot(WITH, 0.1, 1.5, t), low=-15.0, high=40.0, spacing=0.05)
    sums, direct = CertifiedSum(law, 6), np.array([1.0])
    for _ in range(6):
        direct = np.convolve(direct, law.masses)
    values = law.spacing * (6 * law.first + np.arange(len(direct)))
    levels = np.array([-4.0, -0.7, 0.0, 0.33, 5.0])
    exact = stop_loss_of(direct, values, levels)
    found = sums.excess(6, levels) - 6 * law.excess
    assert np.all(found >= exact - 1e-14)
    assert found == pytest.approx(exact, abs=1e-6)
    assert sums.positive(6) - 6 * law.excess >= exact[2] - 1e-14


def test_both_ways_to_a_positive_part_agree():
    """Spectrum against ramp, and inverse transform: two programs, one number."""
    law = lattice_law(lambda t: worst_slot(WITH, 0.01, 4.0, t), low=-8.0, high=12.0, spacing=0.03)
    sums = CertifiedSum(law, 5000)
    for copies in (300, 5000):
        slow = float(sums.excess(copies, np.zeros(1))[0])
        assert sums.positive(copies) == pytest.approx(slow, rel=1e-5)


def test_a_window_that_is_too_small_only_weakens_the_bound():
    """What wraps round from below is counted at the top, what wraps from above is added by Chernoff's bound."""
    law = lattice_law(lambda t: worst_slot(WITH, 0.0, 1.0, t), low=-15.0, high=60.0, spacing=0.25)
    wide = float(CertifiedSum(law, 40).excess(40, np.zeros(1))[0])
    narrow = CertifiedSum(law, 40)
    narrow.__dict__["_size"] = 512
    assert float(narrow.excess(40, np.zeros(1))[0]) >= wide - 1e-9


def test_hull_and_dominating_atoms():
    x, y = upper_hull(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 0.2, 1.0, 1.1]))
    assert x.tolist() == [0.0, 2.0, 3.0]
    assert y.tolist() == [0.0, 1.0, 1.1]
    points = np.linspace(-6, 6, 241)
    truth = worst_slot(WITH, 0.2, 1.0, points)
    bumpy = truth * (1 + 0.2 * np.abs(np.sin(5 * points)))
    atoms, masses, excess = dominating_atoms(points, bumpy)
    own = stop_loss_of(masses, atoms, points)
    assert np.all(own + excess >= truth - 1e-12)
    assert np.all(own <= bumpy + 1e-9)
    assert masses.sum() == pytest.approx(1)


def test_pool_profiles_speak_for_ratios_below_one():
    pool = one_slot(1.3)
    for ratio in (0.2, 0.7, 1.0, 2.0):
        for kind in (WITH, "replacement"):
            exact = float(gaussian_delta(np.log(ratio), DISTANCE[kind] / 1.3))
            assert float(pool.pair(kind, np.array(ratio))) == pytest.approx(exact, abs=1e-12)
    assert float(pool.pair(WITH, np.array(-0.5))) == pytest.approx(1.5)


def test_a_profile_between_its_points_lies_above_the_truth():
    grid = np.array([0.0, 0.3, 0.8, 2.0])
    profile = Profile(mu=np.inf, epsilons=grid, deltas=gaussian_delta(grid, 1.0))
    epsilon = np.linspace(0, 2, 101)
    with np.errstate(invalid="ignore"):
        found = np.interp(np.exp(epsilon), np.exp(grid), profile.deltas)
    assert np.all(found >= gaussian_delta(epsilon, 1.0) - 1e-15)


@pytest.mark.long
def test_a_better_known_pool_only_helps():
    sigma, epsilon = 4.0, 0.02

    def delta(pool):
        return Displacement(kind=WITH, rounds=500, noise_multiplier=sigma, pool=pool, epsilon=epsilon).best().delta

    rough = Pool(slots=12, profiles=one_slot(sigma).profiles)
    fine = ShuffleBound(12, sigma).pool
    single = Pool(slots=1, profiles=rough.profiles)
    assert delta(fine) < delta(rough)
    assert delta(fine) < delta(single)
    assert delta(one_slot(sigma)) < delta(single)


@pytest.mark.few(1)
@pytest.mark.parametrize(("sigma", "rounds"), [(2.0, 1000), (1.5, 300), (0.6, 100)])
def test_guarantee_lies_between_the_pair_and_the_older_bounds(sigma, rounds):
    claim = guarantees.fixed_batch_upper(rounds=rounds, noise_multiplier=sigma)
    pair = guarantees.fixed_batch_shuffle(rounds=rounds, noise_multiplier=sigma)
    for epsilon in (0.0, 0.2, 1.0):
        assert pair.delta(epsilon) <= claim.delta(epsilon)
        old = three_symbol_clones(rounds=rounds, noise_multiplier=sigma, epsilon=epsilon)
        assert claim.delta(epsilon) <= old * (1 + 1e-3) + 1e-10


@pytest.mark.long
def test_guarantee_is_a_promise_in_each_direction():
    claim = guarantees.fixed_batch_upper(rounds=1000, noise_multiplier=2.0)
    assert claim.delta(0.6, WITHOUT) < claim.delta(0.6, WITH) == claim.delta(0.6)
    levels = np.array([0.01, 0.2, 0.5, 0.9])
    order = guarantees.deterministic_batches(noise_multiplier=2.0).beta(levels)
    event = guarantees.fixed_batch_event(rounds=1000, noise_multiplier=2.0)
    for curve, leak in ((claim.curve, event.curve), (claim.reverse, event.reverse)):
        assert np.all(curve.beta(levels) >= order - 1e-3)
        assert np.all(curve.beta(levels) <= leak.beta(levels))
    assert 0 < claim.mu_star() < 1 / 2.0 + 0.05
    assert claim.certificate.leaked is None
    assert "below" in claim.certificate.proved


@pytest.mark.long
def test_epochs_keep_the_certificate_one_sided():
    claim = guarantees.fixed_batch_upper(rounds=1000, noise_multiplier=2.0)
    one = claim.delta(0.8)
    composed = claim.compose(4)
    assert composed.certificate.leaked is None
    assert composed.certificate.safe is not None
    assert one < composed.delta(0.8) < 4 * claim.total_variation
    # four epochs of the lower pair leak less
    pair = guarantees.fixed_batch_shuffle(rounds=1000, noise_multiplier=2.0).compose(4)
    assert pair.delta(0.8) <= composed.delta(0.8)
    assert composed.epsilon(1e-5) < guarantees.deterministic_batches(noise_multiplier=2.0).compose(4).epsilon(1e-5)


def test_one_round_is_the_fixed_order():
    claim = guarantees.fixed_batch_upper(rounds=1, noise_multiplier=0.9)
    assert claim.delta(0.7) == pytest.approx(float(gaussian_delta(0.7, 1 / 0.9)))


def test_pools_are_smaller_than_the_epoch_and_shared():
    bound = shuffle_bound(10_000, 5.0)
    assert [pool.rounds for pool in bound.pools] == [63, 630]
    assert bound.pools[1].pools == (bound.pools[0],)
    assert shuffle_bound(10_000, 5.0) is bound


@pytest.mark.long
@pytest.mark.parametrize(("sigma", "rounds", "prototype", "before"), TABLE)
def test_epsilons_of_the_table(sigma, rounds, prototype, before):
    found = guarantees.fixed_batch_upper(rounds=rounds, noise_multiplier=sigma).epsilon(1e-5)
    assert found < prototype < before
    assert found > guarantees.fixed_batch_shuffle(rounds=rounds, noise_multiplier=sigma).epsilon(1e-5)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="rounds must be"):
        guarantees.fixed_batch_upper(rounds=0, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="noise_multiplier must be"):
        guarantees.fixed_batch_upper(rounds=10, noise_multiplier=0.0)


@pytest.mark.parametrize("sigma", [0.01, 0.02, 0.03, 0.05])
def test_little_noise_leaks_what_the_fixed_order_leaks_at_any_epsilon(sigma):
    upper = guarantees.fixed_batch_upper(rounds=10, noise_multiplier=sigma)
    order = guarantees.deterministic_batches(noise_multiplier=sigma)
    epsilon = order.epsilon(1e-5)
    assert upper.epsilon(1e-5) == pytest.approx(epsilon, rel=1e-5)
    assert upper.delta([epsilon, 1000.0]) == pytest.approx(order.delta([epsilon, 1000.0]), rel=1e-3)
    assert upper.beta([0.0, 1.0]) == pytest.approx([1.0, 0.0])
    assert upper.reverse.beta([0.0, 1.0]) == pytest.approx([1.0, 0.0])


def test_what_is_below_rounding_is_left_to_the_fixed_order():
    claim = guarantees.fixed_batch_upper(rounds=10, noise_multiplier=1000.0)
    assert claim.delta([0.5, 1.0, 700.0, 1e6]) == pytest.approx([0.0] * 4)


def test_it_is_summed_up_from_its_table():
    curve = guarantees.fixed_batch_upper(rounds=10, noise_multiplier=0.7).curve
    table = TradeOff(curve.law.table)
    assert curve.regret() == table.regret()
    assert curve.mu_star() == pytest.approx(table.mu_star(), rel=1e-6)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", list(DISTANCE))
def test_next_to_its_rounding_delta_does_not_rise(kind):
    bound = ShuffleBound(5323, 52.51696768898495)
    deltas = [bound.delta(kind, epsilon) for epsilon in (0.002042, 0.003, 0.004339, 0.008)]
    assert np.all(np.diff(deltas) <= 1e-12), deltas
