"""A promise that is the smaller of several bounds is a curve like any other: convex, falling, on the right side."""

import dataclasses

import numpy as np
import pytest
from attack.properties import faults

import guarantees
from guarantees.laws.gaussian_and_laplace import gaussian_delta
from guarantees.shuffling.guarantee import UpperLaw
from guarantees.trade_off import TradeOff


@dataclasses.dataclass(frozen=True)
class SmallerOfTwo:
    """Two bounds that cross: their minimum is not convex in e^eps."""

    noise_multiplier: float = 1.0

    def delta(self, kind, epsilon):
        # the second direction's bound is the looser one near 0, as the barycentre's is
        other = 0.2 if kind == "with_given_without" else 0.21
        return min(float(gaussian_delta(epsilon, 1.0)), other * float(np.exp(-epsilon)) if epsilon < 1.5 else 1.0)


@pytest.fixture
def claim():
    like = guarantees.gaussian(mu=1.0, relation="zero_out")
    return dataclasses.replace(like, curve=TradeOff(UpperLaw(SmallerOfTwo())))


def test_the_curve_keeps_its_rules(claim):
    assert not faults(claim)


def test_the_curve_is_at_least_every_line_of_the_table(claim):
    levels = np.linspace(0.001, 0.999, 200)
    beta = claim.beta(levels)
    for epsilon in claim.law.table.losses:
        if 0 <= epsilon < np.inf:
            line = 1 - claim.delta(float(epsilon), "with_given_without") - np.exp(epsilon) * levels
            assert np.all(beta >= line - 1e-12)
