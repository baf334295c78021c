from __future__ import annotations

import dataclasses

import hypothesis
import pytest
from attack.draws import SPACES, name_of
from attack.properties import faults, judged
from curves import few
from hypothesis import strategies as st

import guarantees
from guarantees import trade_off
from guarantees.laws.gaussian_and_laplace import GaussianLaw

QUICK = [space for space in SPACES if not space.slow]
GAUSSIAN = next(space for space in SPACES if space.name == "gaussian")
HELPERS = {
    "Claim",
    "claim_from_event",
    "claim_from_history",
    "claim_from_pld",
    "claim_from_table",
    "clt_bound",
    "epsilon_floor",
    "noise_threshold",
    "normalised",
    "rounds_needed",
    "separation_bound",
    "shuffling",
    "shuffle_berry_esseen",
}
"""Public names that make no curve of their own."""


def test_every_constructor_is_attacked():
    assert {space.name for space in SPACES} | HELPERS == set(guarantees.__all__)


@pytest.mark.few(4)
@pytest.mark.parametrize("space", QUICK, ids=name_of)
@few
@hypothesis.given(data=st.data())
def test_curves_keep_their_rules_over_the_whole_range(space, data):
    uniform = data.draw(st.lists(st.floats(0.0, 1.0), min_size=len(space.parameters), max_size=len(space.parameters)))
    given = space.draw(uniform)
    verdict, why = judged(space, given)
    assert verdict != "fault", (given, why)


def test_the_rules_are_broken_by_a_curve_that_lost_mass(monkeypatch):
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0)
    assert not faults(claim)
    whole = GaussianLaw.tails

    def short(self, threshold):
        found = whole(self, threshold)
        return dataclasses.replace(found, with_above=0.99 * found.with_above)

    monkeypatch.setattr(GaussianLaw, "tails", short)
    # Its own check refuses it; with that switched off the rules see it.
    assert judged(GAUSSIAN, {"mu": 1.0})[0] == "refused"
    monkeypatch.setattr(trade_off, "defect_of", lambda *_: 0.0)
    monkeypatch.setattr(GaussianLaw, "defect", lambda _: 0.0)
    assert judged(GAUSSIAN, {"mu": 1.0})[0] == "fault"


def test_arguments_without_their_names_are_answered_with_them():
    """'laplace() takes 0 positional arguments but 1 was given' does not say what to write."""
    with pytest.raises(TypeError, match=r"laplace\(\) takes this argument by name: epsilon=1\.0\."):
        guarantees.laplace(1.0)
    with pytest.raises(TypeError, match=r"these arguments by name: rate=0\.1, noise_multiplier=2\."):
        guarantees.subsampled_gaussian(0.1, 2)
