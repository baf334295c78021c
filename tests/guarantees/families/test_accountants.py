from __future__ import annotations

import builtins
import functools
import pickle

import numpy as np
import pytest

import guarantees
from guarantees.families import accountants
from guarantees.laws.discrete_law import no_leak
from guarantees.trade_off import TradeOff

SMALL = {"rate": 0.01, "noise_multiplier": 1.0, "steps": 1000}


@functools.cache
def claim(**parameters):
    return guarantees.poisson_training(**(SMALL | parameters))


def test_the_case_that_peers_get_wrong():
    training = claim()
    assert training.epsilon(1e-5) == pytest.approx(1.828244, abs=2e-6)
    assert 1 - training.beta(1e-6) == pytest.approx(9.37e-6, abs=5e-9)
    assert training.mu_star((1e-6, 1 - 1e-6)) == pytest.approx(0.486, abs=0.002)


@pytest.mark.parametrize("spacing", [1e-3, 3e-4])
def test_mu_star_does_not_move_with_the_lattice(spacing):
    assert claim(spacing=spacing).mu_star() == pytest.approx(claim().mu_star(), abs=3e-4)


def test_certified_composition_brackets_the_accountant():
    ours = claim(accountant="certified")
    leaked = TradeOff(ours.certificate.leaked)
    theirs = claim()
    eps = np.linspace(0, 3, 13)
    for direction in ("with_given_without", "without_given_with"):
        assert np.all(theirs.delta(eps, direction) >= leaked.delta(eps, direction) - theirs.error)
        assert theirs.delta(eps, direction) == pytest.approx(ours.delta(eps, direction), abs=5e-6)
    assert ours.epsilon(1e-5) == pytest.approx(1.82824, abs=2e-5)
    assert ours.mu_star() == pytest.approx(0.4855, abs=5e-4)


@pytest.mark.long
def test_certified_composition_agrees_with_the_fourier_accountant():
    oracle = pytest.importorskip("fourier_accountant", reason="fourier-accountant is a development extra")
    ours = claim(accountant="certified")
    theirs = oracle.get_epsilon_R(target_delta=1e-5, sigma=1.0, q=0.01, ncomp=1000, nx=int(1e6), L=20.0)
    low, high = TradeOff(ours.certificate.leaked).epsilon(1e-5), ours.epsilon(1e-5)
    assert low - 1e-5 <= theirs <= high + 1e-5


@pytest.mark.long
def test_certified_composition_lies_within_the_prv_accountants_bounds():
    oracle = pytest.importorskip("prv_accountant", reason="prv-accountant is a development extra")
    mechanism = oracle.PoissonSubsampledGaussianMechanism(noise_multiplier=1.0, sampling_probability=0.01)
    theirs = oracle.PRVAccountant(prvs=[mechanism], max_self_compositions=[1000], eps_error=0.05, delta_error=1e-8)
    low, _, high = theirs.compute_epsilon(delta=1e-5, num_self_compositions=[1000])
    ours = claim(accountant="certified")
    assert low <= TradeOff(ours.certificate.leaked).epsilon(1e-5)
    assert ours.epsilon(1e-5) <= high


def test_both_directions_are_told_apart():
    training = claim()
    forward, backward = (training.epsilon(1e-5, side) for side in ("with_given_without", "without_given_with"))
    assert forward == pytest.approx(training.epsilon(1e-5))
    assert backward == pytest.approx(1.41667, abs=1e-4)


def test_the_renyi_accountant_is_looser():
    loose = claim(accountant="rdp")
    assert loose.epsilon(1e-5) == pytest.approx(2.1014, abs=2e-3)
    levels = np.array([1e-6, 1e-3, 0.1, 0.5])
    assert np.all(loose.beta(levels) <= claim().beta(levels))


def test_substitution_costs_more_and_both_ways_of_computing_it_agree():
    theirs = claim(relation="substitution", spacing=1e-3)
    ours = claim(relation="substitution", accountant="certified")
    assert theirs.epsilon(1e-5) == pytest.approx(2.8434, abs=2e-3)
    assert ours.epsilon(1e-5) == pytest.approx(2.8434, abs=1e-4)


def test_zero_out_shares_the_pair_of_add_remove():
    zero, add = (claim(relation=relation, accountant="certified", steps=10) for relation in ("zero_out", "add_remove"))
    assert zero.epsilon(1e-5) == pytest.approx(add.epsilon(1e-5))
    assert not zero.covers("add_remove")


def test_tiny_deltas_are_refused_with_a_reason_except_in_closed_form():
    with pytest.raises(ValueError, match=r"delta must be >= 1e-10 .* rounding errors"):
        claim().epsilon(1e-12)
    exact = guarantees.poisson_training(rate=1.0, noise_multiplier=10.0, steps=100)
    assert exact.epsilon(1e-12) == pytest.approx(guarantees.gaussian(mu=1.0).epsilon(1e-12), rel=1e-12)


def test_a_missing_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without_extra(name, *rest):
        if name.startswith("dp_accounting"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_extra)
    monkeypatch.setattr(accountants, "_version", lambda: None)
    with pytest.raises(ImportError, match=r"\.\[accountants\].* accountant='certified' needs neither"):
        guarantees.poisson_training(rate=0.1, noise_multiplier=1.0, steps=2)


def test_a_law_is_computed_once_when_it_is_first_asked_for(monkeypatch):
    computed = []
    monkeypatch.setattr(accountants, "_pld_law", lambda *settings: computed.append(settings) or no_leak())
    training = claim(noise_multiplier=1.3)
    assert training.steps == 1000
    assert not computed
    assert training.epsilon(1e-5) == training.delta(0.5) == 0
    assert computed == [(0.01, 1.3, 1000, "add_remove", 1e-4)]


@pytest.mark.parametrize("asked", [False, True])
def test_a_curve_that_was_or_was_not_computed_goes_to_another_process(asked):
    training = guarantees.claim_from_history([(1.0, 0.4, 2)])
    if asked:
        training.epsilon(1e-5)
    assert pickle.loads(pickle.dumps(training)).epsilon(1e-5) == training.epsilon(1e-5)


def test_the_claim_says_where_it_comes_from():
    training = claim()
    assert training.unit == "training"
    assert "dp-accounting" in training.source
    assert "steps=1000" in training.describe()
    assert claim(accountant="certified").certificate is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 1.5}, "rate must be in"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be > 0"),
        ({"steps": 1.5}, "steps must be an integer"),
        ({"relation": "any"}, "relation must be one of"),
        ({"accountant": "gdp"}, "accountant must be one of"),
        ({"accountant": "rdp", "relation": "substitution"}, "relation must be add_remove or zero_out"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        guarantees.poisson_training(**(SMALL | change))
