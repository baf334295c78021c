"""An answer says when its direction was only learned, and what would find half the noise missing."""

import dataclasses

import numpy as np
import pytest

from audit.bounds.clopper_pearson import clopper_pearson_upper
from audit.record.derive import claim_part
from audit.report.caveats import half_noise_trials, learned_note, only_learned, trials_note
from audit.report.text import record_lines
from guarantees import epsilon_delta, gaussian, subsampled_gaussian


def renamed(record, *members):
    points = tuple(dataclasses.replace(point, member=members[0]) for point in record.points)
    grids = tuple(dataclasses.replace(record.grids[0], member=name) for name in members)
    return dataclasses.replace(record, verdict="no_violation_found", violated_at=None, points=points, grids=grids)


def test_a_learned_direction_is_told_and_a_known_one_is_not(violation):
    learned = renamed(violation, "learned", "learned direction 0")
    assert only_learned(learned)
    assert "only learned, from" in learned_note(learned)
    assert any(line.startswith("  learned: the direction in which the record moves") for line in record_lines(learned))
    for known in (renamed(violation, "projection", "learned"), renamed(violation, "learned", "learned record")):
        assert learned_note(known) == ""


@pytest.mark.parametrize(
    ("claim", "leak"),
    [
        (gaussian(mu=1.0), gaussian(mu=2.0)),
        (gaussian(mu=0.2), gaussian(mu=0.4)),
        (subsampled_gaussian(rate=0.5, noise_multiplier=1.0), subsampled_gaussian(rate=0.5, noise_multiplier=0.5)),
    ],
)
def test_so_many_trials_find_half_the_noise_missing(claim, leak):
    """By drawing counts of the best test of the leaky mechanism, symmetric or not, and judging them exactly."""
    trials = half_noise_trials(claim_part(claim, 1e-5), risk=0.05)
    threshold = 0.0
    alpha, beta = (float(rate) for rate in leak.errors(threshold))
    rng = np.random.default_rng(0)
    rates = [rng.binomial(trials // 2, rate, 2000) for rate in (alpha, beta)]
    upper = sum(clopper_pearson_upper(counts, trials // 2, risk=0.025) for counts in rates)
    power = np.mean(1 - upper > float(claim.total_variation))
    assert 0.6 < power < 0.97


def test_too_few_trials_along_a_known_direction_are_told_with_their_number(violation):
    known = renamed(violation, "projection")
    few = dataclasses.replace(known, trials=20)
    assert "half of the noise missing takes about" in trials_note(few)
    assert any(line.startswith("  trials:  half of the noise") for line in record_lines(few))
    enough = dataclasses.replace(known, trials=10**7)
    for quiet in (enough, dataclasses.replace(few, verdict="violation"), renamed(few, "learned")):
        assert trials_note(quiet) == ""


def test_a_claim_without_an_advantage_has_no_number():
    assert half_noise_trials(claim_part(epsilon_delta(epsilon=0.0, delta=0.0), 1e-5), risk=0.05) is None
