"""Published audits, judged again: every row has its assumption, and a fit of a curve is not a proof."""

import numpy as np
import pytest
from checks import assert_rate_at_most

from papers.__main__ import main
from papers.audits import PROTOCOLS, epsilon_of, gaussian_fit, proven


@pytest.mark.long
def test_every_protocol_has_a_row_with_its_assumption_and_a_valid_bound_below_the_claim(capsys):
    assert main(["audits", "--trainings", "60", "--repeat", "1"]) == 0
    first, second, third = capsys.readouterr().out.strip().split("\n\n")
    rows = [line.split(" | ") for line in first.splitlines() if line.startswith("| ")][1:]
    known = ["annamalai2024", "cebere2025", "jagielski2020", "nasr2023", "mahloujifar2024"]
    assert [row[0].strip("| ") for row in rows] == known
    assert len(rows) == len(PROTOCOLS)
    for row in rows:
        claimed, assumes, valid = float(row[3]), row[5], float(row[6])
        assert assumes
        assert 0 <= valid <= claimed
    eight = next(line for line in second.splitlines() if line.startswith("| 8 |"))
    at_once, revealed = (float(cell) for cell in eight.split("|")[2:4])
    assert at_once < revealed
    for line in third.splitlines()[2:-1]:
        claimed, picked, labelled, valid = (float(cell) for cell in line.strip("| ").split("|"))
        assert 0 < valid < min(picked, labelled) < claimed


def test_a_gaussian_fit_of_scores_that_are_not_gaussian_is_wrong_and_our_bound_is_not():
    rng, runs, side, epsilon = np.random.default_rng(40), 20, 300, 1.0
    fitted = valid = 0
    for _ in range(runs):
        zero, one = rng.laplace(size=side), rng.laplace(size=side) + epsilon
        fitted += epsilon_of(gaussian_fit(zero, one)) > epsilon
        valid += proven(zero, one, 1e-5) > epsilon
    assert_rate_at_most(valid, runs, 0.05)
    with pytest.raises(AssertionError):
        assert_rate_at_most(fitted, runs, 0.05)
