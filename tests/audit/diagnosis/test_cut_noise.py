"""Noise that is cut, beside releases that are cut, rounded or made positive after the noise."""

import numpy as np
import pytest

from audit.diagnosis.cut_noise import cut_noise

TRIALS, WIDTH = 300, 6
SUM = np.linspace(-1, 1, WIDTH)
MOVED = 0.3 * np.ones(WIDTH)

RIGHT = {
    "plain": lambda z, s: s + z,
    "release cut at its bounds": lambda z, s: np.clip(s + z, -1, 1),
    "release made positive": lambda z, s: np.maximum(s + z, 0),
    "rounded": lambda z, s: np.round(4 * (s + z)) / 4,
    "a byte that saturates": lambda z, s: np.clip(np.round(2 * (s + z)), -2, 2),
    "float32": lambda z, s: (s + z).astype(np.float32),
    "one sign": lambda z, s: np.sign(s + z),
    "cut far out": lambda z, s: np.clip(s + z, -3.5, 3.5),
    "nothing varies": lambda z, s: s + 0 * z,
}
WRONG = {
    "noise cut at 1": lambda z, s: s + np.clip(z, -1, 1),
    "noise cut at 1.5": lambda z, s: s + np.clip(z, -1.5, 1.5),
    "noise cut hard": lambda z, s: s + np.clip(z, -0.1, 0.1),
    "noise cut hard from above": lambda z, s: s + np.minimum(z, -1),
    "noise made positive": lambda z, s: s + np.maximum(z, 0),
    "noise cut from above": lambda z, s: s + np.minimum(z, 1.5),
    "release cut where the sum is": lambda z, s: np.minimum(s + z, s + 0.5),
    "float32": lambda z, s: (s + np.clip(z, -1, 1)).astype(np.float32),
}


def sides(make):
    rng = np.random.default_rng(0)
    return [make(rng.standard_normal((TRIALS, WIDTH)), own) for own in (SUM, SUM + MOVED)]


@pytest.mark.parametrize("name", RIGHT)
def test_a_release_that_is_cut_alike_on_both_sides_is_not_accused(name):
    assert cut_noise(*sides(RIGHT[name]), risk=1e-6) is None


@pytest.mark.parametrize("name", WRONG)
def test_noise_that_ends_where_the_record_says_is_told(name):
    found = cut_noise(*sides(WRONG[name]), risk=1e-6)
    assert found is not None
    assert found.wrong
    assert found.says.startswith("values pile up at an end that the record moves: coordinate ")
    assert "the noise or the release is cut" in found.says
