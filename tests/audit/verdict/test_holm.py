import itertools

import numpy as np
import pytest

from audit.record.compare import holm


def closed(p_values, i):
    """The largest p-value of Bonferroni's test of any hypotheses together, i among them: a closed test's."""
    others = [p for j, p in enumerate(p_values) if j != i]
    together = ((p_values[i], *some) for size in range(len(p_values)) for some in itertools.combinations(others, size))
    return max(min(1.0, len(some) * min(some)) for some in together)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_adjusted_p_values_are_those_of_the_closed_test(count):
    drawn = np.random.default_rng(count).uniform(size=(5, count)) ** 4
    for p_values in (*drawn.tolist(), np.round(drawn[0], 1).tolist(), [0.0] * count):
        expected = [closed(p_values, i) for i in range(count)]
        np.testing.assert_allclose(holm(p_values), expected, rtol=1e-14, atol=0)


def test_the_textbook_case():
    assert holm([0.01, 0.04, 0.03, 0.005]) == [0.03, 0.06, 0.06, 0.02]
    assert holm([]) == []
