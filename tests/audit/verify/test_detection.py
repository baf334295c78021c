"""What --rerun finds: the stated probabilities are those of drawing a random part of the trials again."""

import dataclasses

import numpy as np
import pytest
from made_records import made
from scipy.stats import hypergeom

from audit.policies.catalogue import POLICIES
from audit.verify.detection import LIKELY, Drawn, detection, level_of


@pytest.fixture(scope="module")
def record():
    return made("one", POLICIES["fixed"](thresholds=(0.0,), method="rectangle"), trials=2000)


@pytest.mark.parametrize(("errors", "total", "trials"), [(0, 50, 10), (7, 300, 90), (1500, 10_000, 1000), (50, 50, 5)])
def test_the_law_of_what_is_drawn_again_is_hypergeometric(errors, total, trials):
    drawn = np.arange(trials + 1)
    below = hypergeom.cdf(drawn, total, errors, trials)
    above = hypergeom.sf(drawn - 1, total, errors, trials)
    own = Drawn(errors, total=total, trials=trials).p_values(drawn)
    assert own == pytest.approx(2 * np.minimum(below, above), abs=1e-12)


def test_changes_of_the_stated_size_are_found_as_often_as_said(record):
    found = detection(record, 300)
    (point,) = record.points
    n, level, drawn = record.trials_per_side, level_of(record), np.arange(301)
    for errors in (point.counts.false_alarms, point.counts.misses):
        chance = hypergeom.pmf(drawn, n, errors, 300)
        for stated in (errors + found.errors_moved, errors - found.errors_moved):
            if 0 <= stated <= n:
                tails = hypergeom.cdf(drawn, n, stated, 300), hypergeom.sf(drawn - 1, n, stated, 300)
                assert chance[2 * np.minimum(*tails) <= level].sum() >= LIKELY - 1e-9
        honest = 2 * np.minimum(hypergeom.cdf(drawn, n, errors, 300), hypergeom.sf(drawn - 1, n, errors, 300))
        assert chance[honest <= level].sum() <= level


def test_a_moved_trial_is_found_where_its_whole_cell_is_drawn_again(record):
    cells = np.concatenate([record.grids[0].without, record.grids[0].with_record]).astype(float)
    by_hand = sum(k * np.prod([(300 - i) / (1000 - i) for i in range(int(k))]) for k in cells) / cells.sum()
    assert detection(record, 300).one_moved == pytest.approx(by_hand)
    assert detection(record, 1000).one_moved == 1.0
    assert "any change of the counts is found" in detection(record, 1000).told()


def test_where_nothing_would_be_found_it_says_so(record):
    few = dataclasses.replace(record)
    assert detection(few, 1).errors_moved is None
    assert "no change of a test's errors" in detection(few, 1).told()
