"""The best adaptive queries of a few slots, found without the library: what they gain, and that no bound is beaten."""

from __future__ import annotations

import pytest
from attack.queries import ENDS, INSIDE, ROUND, SETTINGS, W, Z, alike, apart, contribution

import guarantees
from guarantees.shuffling.certified_sum import CertifiedSum
from guarantees.shuffling.displacement import Displacement
from guarantees.shuffling.displacement_pools import one_slot
from guarantees.shuffling.shuffle_bound import shuffle_bound
from guarantees.shuffling.stop_loss import worst_slot

QUICK = {"states": 2**13, "points": 301}


def equal_weights(kind, rounds, sigma, epsilon):
    """``g(T)`` of docs/shuffling-upper-bound.md: the bound where all others are alike, sharper than the guarantee."""
    plan = Displacement(kind=kind, rounds=rounds + 1, noise_multiplier=sigma, pool=one_slot(sigma), epsilon=epsilon)
    return CertifiedSum(plan._law, rounds).positive(rounds) / rounds


def test_the_line_has_the_values_of_quadrature():
    assert alike(rounds=2, sigma=1.0, epsilon=0.0, kind=Z) == pytest.approx(0.364382, rel=1e-4)
    assert alike(rounds=2, sigma=2.0, epsilon=0.3, kind=W) == pytest.approx(0.065997, rel=1e-4)
    # another search, another grid
    line = alike(rounds=3, sigma=2.0, epsilon=0.3, kind=Z)
    assert apart(sigma=2.0, epsilon=0.3, kind=Z, points=81, same=True) == pytest.approx(line, rel=2e-4)


def test_queries_beside_the_line_gain_a_little_in_one_direction():
    """A tenth of a per cent where there is something to see: far above the lattice's error, which all queries share."""
    for kind, least, most in ((W, 3e-4, 1e-3), (Z, -1e-9, 1e-6)):
        given = {"rounds": 3, "sigma": 1.5, "epsilon": 0.5, "kind": kind, **QUICK}
        assert least < alike(**given, places=(*ENDS, (0.0, 1.0))) / alike(**given) - 1 < most


@pytest.mark.long
def test_two_slots_leak_most_on_the_line_by_the_lemma_of_the_worst_slot():
    """What the last slot is worth is known in every dimension, so the first query alone is left."""
    for kind in (Z, W):

        def worth(place, kind=kind):
            values, masses = contribution(1.0, 1.5, kind, place, 501)
            return float(masses @ worst_slot(kind, 1.5, 1.0, -values)) / 2

        line = worth(ENDS[0])
        assert line == pytest.approx(alike(rounds=2, sigma=1.0, epsilon=1.5, kind=kind), rel=1e-3)
        assert all(worth(place) < line for place in (ENDS[1], *ROUND, *INSIDE))


def test_others_queried_apart_gain_nothing_on_three_slots():
    for kind in (Z, W):
        given = {"sigma": 1.0, "epsilon": 0.5, "kind": kind, "points": 41}
        assert apart(**given) == pytest.approx(apart(**given, same=True), rel=1e-12)


def attack(rounds, settings, places, **lattice):
    """Comparisons of the best queries with both bounds, and how near they come to the sharper one."""
    compared, nearest = 0, 0.0
    for sigma, epsilon in settings:
        for kind in (Z, W):
            found = alike(rounds=rounds, sigma=sigma, epsilon=epsilon, kind=kind, places=places, **lattice)
            sharper = equal_weights(kind, rounds, sigma, epsilon)
            for bound in (sharper, shuffle_bound(rounds, sigma).delta(kind, epsilon)):
                assert found <= bound * (1 + 1e-4), (rounds, sigma, epsilon, kind)
                compared += 1
            # the pair is a lower bound: were it taken for a guarantee, this would be found
            pair = guarantees.fixed_batch_shuffle(rounds=rounds, noise_multiplier=sigma).delta(epsilon, kind)
            assert found > pair * (1 + 1e-4), (rounds, sigma, epsilon, kind)
            nearest = max(nearest, found / sharper)
    return compared, nearest


def test_the_best_queries_beat_the_pair_and_no_bound():
    compared, nearest = attack(4, ((2.0, 0.3),), ENDS, **QUICK)
    assert compared == 4
    assert nearest > 0.8


@pytest.mark.long
@pytest.mark.parametrize("rounds", [2, 3, 4, 5, 6])
def test_the_best_queries_of_the_plane_beat_no_bound(rounds):
    compared, nearest = attack(rounds, SETTINGS, (*ENDS, *ROUND, *INSIDE))
    print(f"T {rounds}: {compared} comparisons, at most {nearest:.4f} of the bound for others alike")
    assert compared == 4 * len(SETTINGS)
