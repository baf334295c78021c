from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom
from three_symbol_clones import Clones, three_symbol_clones

from guarantees.laws.gaussian_and_laplace import gaussian_delta
from guarantees.shuffling.fine_clones import CloneSearch, FineClones


def clone_delta_by_convolution(clones, epsilon):
    beta = 2 * ndtr(0.5 / clones.noise_multiplier) - 1
    law, total = np.array([1.0]), 0.0
    for count in range(clones.rounds):
        values = np.arange(-count, count + 1)
        level = (count + 1) * np.tanh(epsilon / 2)
        above = [law[values > level + shift].sum() for shift in (-1, 0, 1)]
        part = (1 - beta) * above[1] * (1 - np.exp(epsilon)) + beta * (above[0] - np.exp(epsilon) * above[2])
        total += binom.pmf(count, clones.rounds - 1, clones.probability) * part
        law = np.convolve(law, [beta / 2, 1 - beta, beta / 2])
    return total + (1 + np.exp(epsilon)) * clones.additive


def test_clone_bound_is_the_stated_sum():
    for probability, epsilon in ((0.1, 0.3), (0.5, 0.05)):
        clones = Clones(120, 2.0, probability, 500)
        assert clones.delta(epsilon) == pytest.approx(clone_delta_by_convolution(clones, epsilon), rel=1e-9)


def test_fewer_blocks_only_weaken_the_bound():
    values = [Clones(3000, 2.5, 0.02, blocks).delta(0.4) for blocks in (10, 30, 100, 1000)]
    assert np.all(np.diff(values) <= 1e-15)


def test_clone_symbols_simulated():
    """Step 5 of the proof: the likelihood ratio of the symbols, against its divergence."""
    rng, trials, count, epsilon, sigma = np.random.default_rng(31), 400_000, 6, 0.25, 1.0
    beta = 2 * ndtr(0.5 / sigma) - 1
    steps = rng.choice([-1, 0, 1], p=[beta / 2, 1 - beta, beta / 2], size=(trials, count)).sum(axis=1)
    telling = rng.random(trials) < beta
    level = (count + 1) * np.tanh(epsilon / 2)
    estimate = np.mean(steps + telling > level) - np.exp(epsilon) * np.mean(steps - telling > level)
    plan = Clones(count + 1, sigma, 1.0, 50)
    exact = plan.delta(epsilon) - (1 + np.exp(epsilon)) * plan.additive
    # Hoeffding for a difference of two means in [0, 1] and [0, e^eps], at one in a million
    assert abs(estimate - exact) < (1 + np.exp(epsilon)) * np.sqrt(np.log(4e6) / (2 * trials))


def test_whole_outputs_never_tell_more_than_three_symbols():
    """A clone's symbol produces its output, so fine clones leak at most as much, at every p and epsilon."""
    for rounds, sigma, probability in ((40, 1.0, 0.3), (40, 3.0, 0.6), (400, 2.0, 0.1)):
        coarse = Clones(rounds, sigma, probability, 10_000)
        fine = FineClones(rounds=rounds, noise_multiplier=sigma, probability=probability)
        assert fine.additive == pytest.approx(coarse.additive)
        for epsilon in (0.0, 0.1, 0.5, 2.0):
            assert fine.delta(epsilon) <= coarse.delta(epsilon) * (1 + 1e-3) + 1e-10


def test_fine_clones_against_enumerated_counts():
    """The coins turned into a power: the mean over the number of clones, one count after the other, by quadrature."""
    rounds, sigma, p, epsilon = 3, 1.5, 0.4, 0.3
    y = np.linspace(-12, 13, 2501)
    one, zero = (np.exp(-((y - k) ** 2) / (2 * sigma**2)) / np.sqrt(2 * np.pi) / sigma for k in (1, 0))
    mass = (one + zero) / 2 * (y[1] - y[0])
    c = 2 * (one - np.exp(epsilon) * zero) / (one + zero)
    # sums of one, two and three copies, on a fine histogram of c
    groups = np.arange(0, len(c), 5)
    total = np.add.reduceat(mass, groups)
    c, mass = np.add.reduceat(c * mass, groups) / total, total
    two, mass_two = np.add.outer(c, c).ravel(), np.multiply.outer(mass, mass).ravel()
    means = [mass @ np.maximum(c, 0), mass_two @ np.maximum(two, 0) / 2]
    means.append(sum(m * (mass_two @ np.maximum(two + v, 0)) for v, m in zip(c, mass, strict=True)) / 3)
    expected = sum(binom.pmf(k, rounds - 1, p) * means[k] for k in range(3))
    plan = FineClones(rounds=rounds, noise_multiplier=sigma, probability=p)
    found = plan.delta(epsilon) - (1 + np.exp(epsilon)) * plan.additive
    assert found == pytest.approx(expected, rel=5e-3)


def test_search_over_p_never_exceeds_its_ceiling_and_beats_three_symbols():
    ceiling = float(gaussian_delta(0.3, 1 / 2.5))
    found = CloneSearch(rounds=2000, noise_multiplier=2.5, distance=1.0, epsilon=0.3, ceiling=ceiling).best
    assert found < three_symbol_clones(rounds=2000, noise_multiplier=2.5, epsilon=0.3) / 3 < ceiling
