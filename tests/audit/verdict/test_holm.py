import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from audit.verdict.holm import holm


@pytest.mark.few(1)
@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_adjusted_p_values_are_those_of_statsmodels(count):
    drawn = np.random.default_rng(count).uniform(size=(5, count)) ** 4
    # few: statsmodels collects garbage at each call
    for p_values in (*drawn[:2], np.round(drawn[0], 1), np.zeros(count)):
        expected = multipletests(p_values, method="holm")[1]
        np.testing.assert_allclose(holm(p_values.tolist()), expected, rtol=1e-14, atol=0)


def test_the_textbook_case():
    assert holm([0.01, 0.04, 0.03, 0.005]) == [0.03, 0.06, 0.06, 0.02]
    assert holm([]) == []
