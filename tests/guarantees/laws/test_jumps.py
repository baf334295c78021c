"""Rare large losses composed apart: both sides stay proved, and a lattice too coarse for all losses does."""

import numpy as np
import pytest

from guarantees.laws import composition
from guarantees.laws.composition import composed_law
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.gaussian_and_laplace import GaussianLaw, SubstitutedGaussianLaw
from guarantees.laws.jumps import BodyLaw, JumpLaw, body_of, lowered
from guarantees.trade_off import TradeOff

WAYS = ("with_given_without", "without_given_with")
EPS = np.array([0.0, 0.05, 0.2, 0.5, 1.0])
FEW = 2**11
"""Points that are too few for ten thousand steps together."""


@pytest.fixture(scope="module", params=[GaussianLaw(mu=1.0, rate=1e-3), SubstitutedGaussianLaw(mu=0.8, rate=1e-3)])
def coarse_and_fine(request):
    return [TradeOff(composed_law([(request.param, 10_000)], most_points=points)) for points in (FEW, 2**18)]


@pytest.mark.few(1)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_proved_on_a_coarse_lattice_encloses_a_fine_one(coarse_and_fine, way):
    coarse, fine = coarse_and_fine
    low, high = (TradeOff(law).delta(EPS, way) for law in (coarse.certificate.leaked, coarse.certificate.safe))
    assert np.all(low <= TradeOff(fine.certificate.leaked).delta(EPS, way) + 1e-11)
    assert np.all(high >= TradeOff(fine.certificate.safe).delta(EPS, way) - 1e-11)


def test_composing_jumps_apart_is_what_makes_a_coarse_lattice_do(coarse_and_fine, monkeypatch):
    found = coarse_and_fine[0].epsilon_range(1e-5)
    assert found.at_most - found.at_least < 0.02 * found.epsilon
    monkeypatch.setattr(composition, "COARSE", np.inf)
    together = TradeOff(composed_law([(GaussianLaw(mu=1.0, rate=1e-3), 10_000)], most_points=FEW)).epsilon_range(1e-5)
    assert together.at_least == 0.0


def test_jumps_are_composed_apart_only_where_that_is_known_better(monkeypatch):
    parts = [(GaussianLaw(mu=1.0, rate=1e-3), 10_000)]
    vague = DiscreteLaw(np.array([-1.0, 1.0]), np.array([0.731, 0.269]), np.array([0.269, 0.731]), error=1.0)
    monkeypatch.setattr(composition, "_jumps_apart", lambda *_: vague)
    assert composed_law(parts, most_points=FEW).error < 1.0


@pytest.mark.long
def test_body_and_jump_are_pairs_and_leak_together_what_the_step_does():
    law = GaussianLaw(mu=1.0, rate=0.01)
    body = BodyLaw(law, 0.05)
    jump = JumpLaw(body)
    for part in (body, jump):
        assert TradeOff(part).delta(0.0, WAYS[0]) == pytest.approx(TradeOff(part).delta(0.0, WAYS[1]), abs=1e-12)
    both = TradeOff(body).compose_with(TradeOff(jump))
    more = body.jump_rates[1] * body.variation
    for way in WAYS:
        delta, whole = both.delta(EPS, way), TradeOff(law).delta(EPS, way)
        assert np.all(delta >= whole - 1e-12)
        assert np.all(TradeOff(both.certificate.leaked).delta(EPS, way) <= whole + 1e-12)
        assert np.all(delta <= whole + more * np.exp(EPS) + both.error)


def test_a_lowered_law_leaks_less_by_what_was_asked_at_least():
    losses = np.linspace(-2.0, 2.0, 81)
    masses = np.exp(-(losses**2)) / np.exp(-(losses**2)).sum()
    losses -= np.log(np.sum(masses * np.exp(losses)))
    law = DiscreteLaw(atoms=losses, without=masses, with_record=masses * np.exp(losses))
    less, eps = TradeOff(lowered(law, 0.01)), np.linspace(0.0, 1.5, 16)
    assert np.all(less.delta(eps, WAYS[0]) <= np.maximum(TradeOff(law).delta(eps, WAYS[0]) - 0.01, 0) + 1e-15)
    assert np.all(
        less.delta(eps, WAYS[1]) <= np.maximum(TradeOff(law).delta(eps, WAYS[1]) - 0.01 * np.exp(eps), 0) + 1e-15
    )
    assert less.delta(0.0) == pytest.approx(TradeOff(law).delta(0.0) - 0.01, abs=0.002)


def test_a_law_with_losses_beyond_every_float_s_exponential_is_lowered_without_a_warning():
    two = DiscreteLaw(atoms=np.array([-800.0, 800.0]), without=np.array([0.9, 0.1]), with_record=np.array([0.1, 0.9]))
    less = TradeOff(lowered(two, 0.01))
    assert less.delta(0.0) <= 0.79 + 1e-15
    assert less.delta(799.0, WAYS[1]) == 0.0


def test_few_steps_and_discrete_losses_are_composed_as_they_are():
    assert body_of(GaussianLaw(mu=1.0, rate=1e-3), 100) is None
    two = DiscreteLaw(atoms=np.array([-1.0, 1.0]), without=np.array([0.73, 0.27]), with_record=np.array([0.27, 0.73]))
    assert body_of(two, 10**6) is None
    body = body_of(GaussianLaw(mu=1.0, rate=1e-3), 10**5)
    assert body is not None
    assert body_of(body, 10**5) is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "truth"),
    [(1e-6, 0.5, 10**7, 0.0317354), (1e-7, 0.6, 10**8, None), (1e-5, 0.5, 10**6, None)],
)
def test_epsilon_of_very_many_steps_is_known(rate, sigma, steps, truth):
    """The number at delta 1e-3 is a contour integral over 60 x 60 Gauss-Legendre nodes of the moments."""
    curve = TradeOff(composed_law([(GaussianLaw(mu=1 / sigma, rate=rate), steps)]))
    for delta in (1e-3, 1e-5):
        assert curve.epsilon_range(delta).known
    if truth is not None:
        found = curve.epsilon_range(1e-3)
        assert found.at_least <= truth <= found.at_most
