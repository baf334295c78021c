"""Groups: the law of several differing records, against quadrature and another accountant."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

import guarantees
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.laws.group import GroupLaw


def test_a_group_of_one_is_one_record():
    thresholds = np.array([-np.inf, -0.04, 0.0, 0.3, 5.0, 40.0, np.inf])
    one, law = GaussianLaw(mu=1.3, rate=0.05), GroupLaw(mu=1.3, rate=0.05, group=1)
    for name in ("without_above", "without_below", "with_above", "with_below"):
        np.testing.assert_allclose(
            getattr(law.tails(thresholds), name), getattr(one.tails(thresholds), name), atol=1e-14
        )
    levels = np.array([0.0, 1e-6, 0.3, 1.0])
    np.testing.assert_allclose(law.threshold(levels), one.threshold(levels), rtol=1e-12)


@pytest.mark.few(1)
@pytest.mark.parametrize(("rate", "noise", "group"), [(0.05, 1.0, 3), (0.3, 0.8, 10), (0.01, 0.4, 2)])
def test_delta_is_the_integral_of_the_densities(rate, noise, group):
    weights = stats.binom.pmf(range(group + 1), group, rate)
    claim = guarantees.subsampled_gaussian(rate=rate, noise_multiplier=noise, group=group)
    for epsilon in (0.0, 0.5, 2.0):

        def gap(x, epsilon=epsilon):
            with_record = sum(w * stats.norm.pdf(x, j, noise) for j, w in enumerate(weights))
            return max(0.0, with_record - np.exp(epsilon) * stats.norm.pdf(x, 0.0, noise))

        total = quad(gap, -8 * noise, group + 8 * noise, limit=400, epsabs=1e-11)[0]
        assert claim.delta(epsilon, "with_given_without") == pytest.approx(total, abs=1e-8)


@pytest.mark.long
def test_a_training_agrees_with_dp_accounting():
    losses = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    rate, noise, group, steps = 0.1, 1.5, 3, 8
    weights = list(stats.binom.pmf(range(group + 1), group, rate))
    theirs = losses.from_mixture_gaussian_mechanism(
        noise, [float(j) for j in range(group + 1)], weights, value_discretization_interval=1e-3
    ).self_compose(steps)
    ours = guarantees.poisson_training(
        rate=rate, noise_multiplier=noise, steps=steps, group=group, accountant="certified"
    )
    epsilons = np.array([0.0, 0.5, 2.0])
    np.testing.assert_allclose(ours.delta(epsilons), theirs.get_delta_for_epsilon(epsilons), atol=3e-6)


def test_every_batch_holds_the_whole_group_at_rate_one():
    claim = guarantees.poisson_training(rate=1.0, noise_multiplier=2.0, steps=4, group=3)
    assert claim.mu_star() == pytest.approx(3.0, rel=1e-9)
    assert guarantees.deterministic_batches(noise_multiplier=2.0, group=3).mu_star() == pytest.approx(1.5, rel=1e-9)


def test_groups_that_are_not_covered_are_refused():
    with pytest.raises(ValueError, match="for groups"):
        guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=1.0, group=2, relation="substitution")
    with pytest.raises(ValueError, match="accountant='certified'"):
        guarantees.poisson_training(rate=0.1, noise_multiplier=1.0, steps=2, group=2)
    with pytest.raises(ValueError, match="group must be an integer >= 1"):
        guarantees.deterministic_batches(noise_multiplier=1.0, group=0)


def test_a_group_that_is_nearly_always_there_keeps_its_smallest_losses():
    """P(none of three is in the batch) is 2e-18: a loss of -39 is told from the smallest one, -40.8."""
    law = GroupLaw(mu=10.0, rate=1 - 1.24e-6, group=3)
    smallest = law.support[0]
    below = law.tails(np.array([smallest - 1e-6, smallest + 1e-6, -39.0, -30.0])).without_below
    assert below[0] == 0
    assert np.all(np.diff(below) > 0)
