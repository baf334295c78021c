"""Splines through a law: as good as they say, also beyond the last node."""

import numpy as np
import pytest

from guarantees.laws.consistency import InconsistentLawError
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.shuffling.spline_law import SplineLaw

SIDES = ("without_above", "without_below", "with_above", "with_below")


class KnownSoFar(GaussianLaw):
    """A law that is not known beyond some losses."""

    def tails(self, threshold):
        if np.any(np.abs(threshold) > 23.0):
            raise InconsistentLawError("not known")
        return super().tails(threshold)


def largest_error(spline, law, thresholds):
    found, truth = spline.tails(thresholds), law.tails(thresholds)
    return max(np.abs(getattr(found, side) - getattr(truth, side)).max() for side in SIDES)


@pytest.mark.parametrize("mu", [0.01, 2.0, 5.0])
def test_the_stated_error_holds_between_and_beyond_the_nodes(mu):
    """Nodes ended where the smaller rate was 1e-12: with mu 5 the other was 2%, and 1e-9 was stated."""
    law = GaussianLaw(mu=mu)
    spline = SplineLaw(law)
    assert largest_error(spline, law, np.linspace(-60, 60, 20_001)) <= spline.error < 1e-7


def test_what_lies_beyond_all_that_is_known_is_stated():
    law, whole = KnownSoFar(mu=5.0), GaussianLaw(mu=5.0)
    spline = SplineLaw(law)
    off = largest_error(spline, whole, np.linspace(-60, 60, 20_001))
    assert 0.01 < off <= spline.error < 0.03
