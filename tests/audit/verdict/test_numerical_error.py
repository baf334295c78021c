"""A claim's numerical error is that of both rates of a point, so it lifts a steep curve by more than itself."""

import numpy as np
import pytest

from audit.bounds.bounded_numbers import EpsilonAt
from audit.bounds.clopper_pearson import Limits
from audit.bounds.points import refutes
from audit.verdict.judgement import p_value
from audit.verdict.proven_numbers import promise
from guarantees.claim import Claim
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.trade_off import TradeOff

ERROR = 1e-3


def two_atoms(alpha, power, error):
    """The curve of one event of probability ``alpha`` without and ``power`` with the record."""
    without, with_record = np.array([1 - alpha, alpha]), np.array([1 - power, power])
    losses = np.log(with_record / without)
    return TradeOff(DiscreteLaw(losses, without, with_record, error))


def claim(curve):
    return Claim(curve=curve, name="computed", parameters={}, relation="any")


TRUTH = two_atoms(1e-3, 0.9, 0.0)
COMPUTED = claim(two_atoms(2e-3, 0.9, ERROR))
"""Each of its tails is within its stated error of the truth's."""


def test_the_computed_claim_keeps_its_stated_error():
    between = np.array([0.0])
    for ours, theirs in zip(COMPUTED.errors(between), TRUTH.errors(between), strict=True):
        assert np.abs(ours - theirs).max() <= ERROR * (1 + 1e-9)


@pytest.mark.parametrize("alpha", [1e-4, 5e-4, 1e-3, 2e-3, 0.1, 0.5, 0.9])
def test_a_point_on_the_true_curve_refutes_no_claim_that_is_right_within_its_error(alpha):
    assert not refutes((Limits(alpha=alpha, beta=float(TRUTH.beta(alpha))),), COMPUTED)


def test_a_point_below_by_more_than_the_error_refutes():
    exact = claim(two_atoms(2e-3, 0.9, 0.0))
    on_truth = (Limits(alpha=1e-3, beta=float(TRUTH.beta(1e-3))),)
    assert refutes(on_truth, exact)
    assert refutes((Limits(alpha=0.3, beta=0.05),), COMPUTED)


def test_the_p_value_reads_the_error_as_the_verdict_does():
    assert p_value(lambda _: (Limits(alpha=1e-3, beta=float(TRUTH.beta(1e-3))),), COMPUTED) == 1.0


@pytest.mark.few(6)
@pytest.mark.parametrize("mu", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("part", [0.01, 0.2, 0.3, 0.4])
def test_the_promised_epsilon_leaves_room_for_the_error_at_that_epsilon(mu, part):
    delta = 1e-5
    error = part * delta / np.exp(TradeOff(GaussianLaw(mu=mu)).epsilon(delta))
    rough = claim(TradeOff(GaussianLaw(mu=mu, error=error)))
    promised = promise(rough, EpsilonAt(delta=delta))
    if np.isfinite(promised):
        assert rough.delta(promised) + (1 + np.exp(promised)) * error <= delta * (1 + 1e-6)
    else:
        epsilon = np.linspace(0, 40, 4001)
        assert np.all(rough.delta(epsilon) + (1 + np.exp(epsilon)) * error > delta)
