"""Running sums of many masses, against exact ones."""

import math

import numpy as np
import pytest

from guarantees.numerics.powers import running_sums

RANDOM = np.random.default_rng(1)
MASSES = {
    "alike": RANDOM.random(40_000) / 40_000,
    "falling": np.exp(-np.linspace(0.0, 700.0, 40_000)),
    "growing": np.exp(-np.linspace(700.0, 0.0, 40_000)),
    "of every size": 10.0 ** RANDOM.uniform(-300, 0, 40_000),
}


@pytest.mark.parametrize("masses", MASSES.values(), ids=MASSES)
def test_running_sums_are_rounded_once(masses):
    found = running_sums(masses)
    at = [0, 1, 7, 20_000, 39_998, 39_999]
    assert found[at].tolist() == [math.fsum(masses[: i + 1]) for i in at]
    assert (np.diff(found) >= 0).all()


def test_plain_sums_are_not():
    masses = MASSES["alike"]
    assert np.cumsum(masses)[-1] != math.fsum(masses)


def test_of_nothing_and_of_one():
    assert running_sums(np.zeros(0)).tolist() == []
    assert running_sums(np.array([0.3])).tolist() == [0.3]
