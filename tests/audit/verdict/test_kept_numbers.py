"""Numbers that judging finds from a claim or a size alone: kept on disk, the same to the last bit."""

import dataclasses

import numpy as np
import pytest

import guarantees
from audit.bounds import local_levels
from audit.policies import candidates
from audit.power import less_noise, power
from audit.power.joint_power import jointly_refuting
from guarantees.laws import kept as module
from guarantees.laws.kept import laws_kept_in
from guarantees.trade_off import TradeOff

CLAIM = guarantees.gaussian(mu=1.0)


def band():
    local_levels.rate_band.cache_clear()
    found = local_levels.rate_band(50, risk=0.01)
    return found.local_level, *found.limit.tolist()


def leaks():
    found = power.detectable(
        CLAIM, delta=1e-5, trials_per_side=500, risk=0.01, test=jointly_refuting, at_once=power.TOGETHER
    )
    return dataclasses.astuple(found)


def enough():
    return (power.trials_needed(CLAIM, delta=1e-5, risk=0.01, test=jointly_refuting, more_than=64),)


def noise():
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0)
    return (less_noise.most_noise_found(claim, trials_per_side=500, risk=0.01, test=jointly_refuting),)


def ends():
    return tuple(candidates.spread(CLAIM.curve).tolist())


def epsilon():
    return (guarantees.gaussian(mu=1.0).curve.epsilon(1e-5),)


def miss_rates():
    return tuple(CLAIM.curve.beta([0.0, 0.1, 1.0]).tolist())


def rates():
    return tuple(np.concatenate(CLAIM.curve.errors(np.linspace(-3.0, 3.0, 100))).tolist())


SEARCHES = {
    "band": (band, local_levels, "_spend", 0.0),
    "leaks": (leaks, power, "_smallest", 99.0),
    "enough": (enough, power, "fewest", 7),
    "noise": (noise, less_noise, "_largest", 2.0),
    "ends": (ends, candidates, "_ends", np.array([0.0, 1.0])),
    "epsilon": (epsilon, TradeOff, "_epsilon", np.array([-1.0])),
    "miss rates": (miss_rates, TradeOff, "_smallest_misses", np.full(3, 2.0)),
    "rates": (rates, TradeOff, "_four", None),
}
"""Who asks, where the search is, and what it cannot find (a curve itself refuses wrong rates)."""


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WORTH_KEEPING", 0.0)
    with laws_kept_in(tmp_path):
        yield tmp_path
    local_levels.rate_band.cache_clear()


@pytest.mark.few(5)
@pytest.mark.parametrize("name", SEARCHES)
def test_a_number_is_searched_for_once(shelf, monkeypatch, name):
    ask, home, search, _ = SEARCHES[name]
    with laws_kept_in(None):
        expected = ask()
    assert ask() == expected

    def twice(*_):
        raise AssertionError("searched again")

    monkeypatch.setattr(home, search, twice)
    assert ask() == expected
    for file in shelf.glob("*.law"):
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(AssertionError, match="searched again"):
        ask()


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [name for name in SEARCHES if SEARCHES[name][-1] is not None])
def test_a_number_that_cannot_be_right_is_searched_for_again(shelf, monkeypatch, name):
    ask, home, search, impossible = SEARCHES[name]
    with laws_kept_in(None):
        expected = ask()
    with monkeypatch.context() as wrong:
        wrong.setattr(home, search, lambda *_: impossible)
        assert ask() != expected
    assert ask() == expected


def test_a_number_of_other_code_is_not_found(shelf, monkeypatch):
    band()
    monkeypatch.setattr(module, "_code", lambda package: [f"changed {package}"])
    band()
    assert len(list(shelf.glob("*.law"))) == 2
