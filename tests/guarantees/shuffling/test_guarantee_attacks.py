"""Attempts to refute the bounds of docs/shuffling-upper-bound.md, step by step and whole."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm
from shuffle_attacks import divergence, grouping_attack, random_attack, ratios, structured

import guarantees
from guarantees.shuffling.certified_sum import CertifiedSum
from guarantees.shuffling.displacement import Displacement
from guarantees.shuffling.displacement_pools import DISTANCE, Pool, one_slot
from guarantees.shuffling.fine_clones import FineClones
from guarantees.shuffling.moments_by_level import Levels
from guarantees.shuffling.shuffle_bound import shuffle_bound
from guarantees.shuffling.stop_loss import worst_slot

WITH, WITHOUT, REPLACED = "with_given_without", "without_given_with", "replacement"


def integral(points, sigma, epsilon, tau):
    """``int (f_0 - e^eps f_1 - tau f_s)^+`` of Gaussians in a plane, which any three means span: a fine grid."""
    points = points - points.mean(axis=0)
    reach = np.abs(points).max(axis=0) + 6.5 * sigma
    axes = [np.arange(-r, r, 0.06 * sigma) for r in reach]
    (first, second), area = axes, (0.06 * sigma) ** 2
    rows = [norm.pdf(first[:, None], p[0], sigma) * norm.pdf(second[None, :], p[1], sigma) for p in points]
    return float(np.maximum(rows[0] - np.exp(epsilon) * rows[1] - tau * rows[2], 0.0).sum() * area)


def means(rng, kind, *, extreme):
    """Means of f_0, f_1 and f_s in the unit disc; the zeroed-out version sits at its centre."""
    angle, radius = rng.random(3) * 2 * np.pi, np.ones(3) if extreme else np.sqrt(rng.random(3))
    points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if kind != REPLACED:
        points[1 if kind == WITH else 0] = 0.0
    return points


def try_to_beat_the_worst_slot(seed, triples):
    rng, closest = np.random.default_rng(seed), -np.inf
    for trial in range(triples):
        kind = (WITH, WITHOUT, REPLACED)[trial % 3]
        sigma, epsilon = float(rng.choice([0.5, 1.0, 3.0])), float(rng.choice([0.0, 0.1, 1.0]))
        tau = float(rng.choice([-1, 1]) * rng.exponential(1.0))
        points = means(rng, kind, extreme=trial % 2 == 0)
        if trial % 6 == 0:
            # the extremal shapes themselves and their neighbours: all on one line
            points[:, 1] = 0.0
        found = integral(points, sigma, epsilon, tau)
        excess = found - float(worst_slot(kind, epsilon, sigma, np.array(tau)))
        # a grid cell crossed by the edge of the positive set errs by its area times the slope there
        assert excess < 1e-3 * (2 + abs(tau)), (kind, sigma, epsilon, tau, points)
        closest = max(closest, excess)
    return closest


def test_no_three_means_beat_the_worst_slot():
    assert try_to_beat_the_worst_slot(1, 120) > -1e-2


@pytest.mark.long
def test_no_three_means_beat_the_worst_slot_often():
    assert try_to_beat_the_worst_slot(2, 6000) > -1e-2


def test_worst_slot_is_attained():
    """The lemma is sharp: at the means that it names the integral is the formula."""
    ends = {WITH: ((1, 0, -1), (1, 0, 1)), WITHOUT: ((0, 1, 1), (0, 1, -1)), REPLACED: ((1, -1, -1), (1, -1, 1))}
    for kind, (above, below) in ends.items():
        for tau in (-2.0, -0.3, 0.0, 0.4, 3.0):
            points = np.array([[p, 0.0] for p in (above if tau >= 0 else below)], float)
            found = integral(points, 1.3, 0.2, tau)
            assert found == pytest.approx(float(worst_slot(kind, 0.2, 1.3, np.array(tau))), abs=2e-4)


def equal_weights(kind, rounds, sigma, epsilon):
    """``g(T)``: the bound where all weights are equal, as they are when all other records are alike."""
    plan = Displacement(kind=kind, rounds=rounds + 1, noise_multiplier=sigma, pool=one_slot(sigma), epsilon=epsilon)
    return CertifiedSum(plan._law, rounds).positive(rounds) / rounds


@pytest.mark.long
@pytest.mark.parametrize("rounds", [2, 3, 5, 10, 30])
def test_the_pair_of_003_lies_just_below_equal_weights(rounds):
    """Its other records are all alike: a sharp test, though adaptive queries come closer still (test_adaptive)."""
    for sigma in (1.0, 2.5):
        pair = guarantees.fixed_batch_shuffle(rounds=rounds, noise_multiplier=sigma)
        for epsilon in (0.05, 0.6):
            for kind in (WITH, WITHOUT):
                leak, bound = pair.delta(epsilon, kind), equal_weights(kind, rounds, sigma, epsilon)
                assert leak <= bound + 2e-7
                if kind == WITH:
                    # a bound without the others' means, as if they were zero, would not hold
                    isolated = guarantees.isolated_shuffle(rounds=rounds, noise_multiplier=sigma)
                    assert leak > isolated.delta(epsilon, kind)


def best_of_two_slots(kind, sigma, epsilon, first):
    """Two slots on a line: for each first output the worst second query of a grid, so the worst adaptive strategy."""
    e, y = np.exp(epsilon), np.linspace(-8 * sigma - 1, 8 * sigma + 1, 161)
    x0, x1, z = first
    f0, f1, fs = (norm.pdf(y, mean, sigma) for mean in (x0, x1, z))
    grid, best = np.linspace(-1, 1, 5), np.zeros(len(y))
    inner = np.linspace(-9 * sigma - 1, 9 * sigma + 1, 321)
    for a in grid:
        for b in grid:
            u0, u1 = {WITH: (a, 0.0), WITHOUT: (0.0, a), REPLACED: (a, -a)}[kind]
            g0, g1, gs = (norm.pdf(inner, mean, sigma) for mean in (u0, u1, b))
            held = np.outer(f0 - e * f1, gs) + np.outer(fs, g0 - e * g1)
            best = np.maximum(best, np.maximum(held, 0.0).sum(axis=1) * (inner[1] - inner[0]))
    return float(best.sum() * (y[1] - y[0]) / 2)


def test_no_adaptive_strategy_on_two_slots_beats_the_bound():
    tightest = 0.0
    for kind in (WITH, WITHOUT, REPLACED):
        for sigma, epsilon in ((0.8, 0.3), (2.0, 0.1)):
            bound = equal_weights(kind, 2, sigma, epsilon)
            for place in (-1.0, 0.0, 1.0):
                first = {WITH: (1.0, 0.0, place), WITHOUT: (0.0, 1.0, place), REPLACED: (1.0, -1.0, place)}[kind]
                found = best_of_two_slots(kind, sigma, epsilon, first)
                assert found <= bound + 1e-4
                tightest = max(tightest, found / bound)
    assert tightest > 0.9


def bounds_to_attack(kind, rounds, sigma, epsilon, counts):
    """The guarantee, and every bound that speaks about this shuffle, before any minimum is taken."""
    named = {"guarantee": shuffle_bound(rounds, sigma).delta(kind, epsilon)}
    for p in (0.1, 0.4, 0.8):
        plan = FineClones(rounds=rounds, noise_multiplier=sigma, probability=p, distance=DISTANCE[kind])
        named[f"clones {p}"] = plan.delta(epsilon)
    for slots in (1, 2, 4):
        if rounds - slots >= 3:
            # a fixed order's profile bounds that of any pool
            pool = Pool(slots=slots, profiles=one_slot(sigma).profiles)
            pool = one_slot(sigma) if slots == 1 else pool
            plan = Displacement(kind=kind, rounds=rounds, noise_multiplier=sigma, pool=pool, epsilon=epsilon)
            choice = plan.best()
            named[f"pool {slots}"] = np.inf if choice is None else choice.delta
            named[f"levels {slots}"] = Levels(plan).delta()
    if len(counts) == 1:
        named["equal weights"] = equal_weights(kind, rounds, sigma, epsilon)
    return named


def attack_all(seed, rounds, sigmas, *, trials, draws, epsilons=(0.0, 0.1, 0.4)):
    """Number of comparisons; each fails falsely with probability at most 1e-9."""
    rng, compared = np.random.default_rng(seed), 0
    for kind, zero_out, side in ((WITH, True, 0), (WITHOUT, True, 1), (REPLACED, False, 0)):
        for sigma in sigmas:
            attacks = structured(rounds, zero_out)
            attacks += [random_attack(rng, rounds, zero_out, distinct=rounds <= 6) for _ in range(draws)]
            if 3 < rounds <= 6:
                attacks.append(grouping_attack(rounds, zero_out, sigma))
            known: dict = {}
            for attack in attacks:
                loss = ratios(attack, rng, sigma, trials, side)
                for epsilon in epsilons:
                    found, radius = divergence(loss, epsilon)
                    key = (epsilon, len(attack.counts) == 1)
                    if key not in known:
                        known[key] = bounds_to_attack(kind, rounds, sigma, epsilon, attack.counts)
                    for name, bound in known[key].items():
                        assert found - radius <= bound, (kind, rounds, sigma, epsilon, name, attack.counts)
                        compared += 1
    return compared


@pytest.mark.few(1)
@pytest.mark.parametrize("rounds", [3, 5])
def test_no_strategy_of_a_few_records_beats_any_bound(rounds):
    assert attack_all(10 + rounds, rounds, (2.0,), trials=4000, draws=3) > 500


@pytest.mark.long
@pytest.mark.parametrize("rounds", [2, 3, 4, 6, 9, 16, 30])
def test_no_strategy_beats_any_bound_often(rounds):
    compared = attack_all(100 + rounds, rounds, (0.7, 2.0, 5.0), trials=10_000, draws=8)
    print(f"T {rounds}: {compared} comparisons")
    assert compared > 1500


@pytest.mark.long
def test_attacks_would_find_a_bound_that_is_too_small():
    """Negative control: the isolated record's delta is not a bound, and both the pair and its simulation say so."""
    rng, rounds, sigma, epsilon = np.random.default_rng(5), 5, 0.7, 0.4
    attack = next(a for a in structured(rounds, True) if a.counts == (rounds - 1,))
    found, radius = divergence(ratios(attack, rng, sigma, 20_000, 0), epsilon)
    isolated = guarantees.isolated_shuffle(rounds=rounds, noise_multiplier=sigma).delta(epsilon, WITH)
    assert found - radius > isolated
    pair = guarantees.fixed_batch_shuffle(rounds=rounds, noise_multiplier=sigma).delta(epsilon, WITH)
    assert abs(found - pair) < radius


def test_exact_likelihoods_are_those_of_all_permutations():
    """The recursion over arrangements, against the pair's own numerics."""
    rng, sigma = np.random.default_rng(6), 1.1
    attack = structured(2, True)[0]
    loss = ratios(attack, rng, sigma, 40_000, 0)
    found, radius = divergence(loss, 0.2)
    pair = guarantees.fixed_batch_shuffle(rounds=2, noise_multiplier=sigma).delta(0.2, WITH)
    assert abs(found - pair) < radius
    assert ndtr(0.5 / sigma) * 2 - 1 >= divergence(loss, 0.0)[0] - radius
