from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import guarantees
from guarantees.laws.consistency import InconsistentLawError, defect_of
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.gaussian_and_laplace import GaussianLaw
from guarantees.laws.law import LossLaw, Tails
from guarantees.trade_off import TradeOff

SIDES = ("without_above", "without_below", "with_above", "with_below")


@dataclasses.dataclass(frozen=True)
class Spoilt(LossLaw):
    """A Gaussian law of which one tail is multiplied, or a few values replaced."""

    side: str
    factor: float
    error: float = 1e-12

    def tails(self, threshold):
        found = GaussianLaw(mu=1.0).tails(threshold)
        return dataclasses.replace(found, **{self.side: self.factor * getattr(found, self.side)})

    def threshold(self, alpha):
        return GaussianLaw(mu=1.0).threshold(alpha)


QUESTIONS = {
    "beta": lambda curve: curve.beta(0.3),
    "delta": lambda curve: curve.delta(0.2),
    "epsilon": lambda curve: curve.epsilon(1e-3),
    "errors": lambda curve: curve.errors(0.4),
    "total variation": lambda curve: curve.total_variation,
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_lost_mass_is_refused_whatever_is_asked(side, ask):
    curve = TradeOff(Spoilt(side, 0.9))
    for _ in range(2):
        with pytest.raises(InconsistentLawError, match="breaks an identity"):
            ask(curve)
    ask(TradeOff(Spoilt(side, 1.0)))


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_not_a_number_is_refused(ask):
    with pytest.raises(InconsistentLawError):
        ask(TradeOff(Spoilt("with_above", np.nan)))


def test_a_small_loss_widens_the_stated_error():
    curve = TradeOff(Spoilt("with_above", 1 - 1e-7))
    assert curve.error == 1e-12
    curve.delta(0.0)
    assert 1e-8 < curve.error < 1e-7
    assert TradeOff(Spoilt("with_above", 1.0)).error == 1e-12


def test_a_loss_within_the_stated_error_is_kept():
    assert TradeOff(Spoilt("with_above", 0.99, error=0.01)).delta(0.0) > 0


def test_atoms_with_wrong_ratios_are_refused_at_the_first_question():
    losses, without = np.array([-1.0, 1.0]), np.array([0.5, 0.5])
    curve = TradeOff(DiscreteLaw(losses, without, np.array([0.2, 0.8])))
    with pytest.raises(InconsistentLawError):
        _ = curve.total_variation
    right = TradeOff(guarantees.randomised_response(epsilon=1.0).curve.law)
    assert right.total_variation == pytest.approx(np.tanh(0.5))


def test_a_likelihood_ratio_that_does_not_match_its_tails_is_seen():
    """Tails that sum to 1 but belong to no pair: the loss is said to be twice what it is."""
    t = np.linspace(-3, 3, 13)
    honest, wrong = GaussianLaw(mu=1.0).tails(t), GaussianLaw(mu=1.0).tails(t / 2)
    assert defect_of(t, honest) < 1e-15
    assert defect_of(t, wrong) > 1e-3


@pytest.mark.long
def test_lines_that_bound_a_curve_one_by_one_are_no_pair_and_pass():
    upper = guarantees.fixed_batch_upper(rounds=100, noise_multiplier=3.0)
    assert not upper.law.is_pair
    assert upper.error == upper.law.error
    assert np.all(np.diff(upper.delta(np.linspace(0.0, 1.0, 5))) <= 0)


def test_one_threshold_has_only_its_sums():
    tails = Tails(**{side: np.array([0.5]) for side in SIDES})
    assert defect_of(np.zeros(1), tails) == 0.0


def test_making_a_curve_asks_the_law_for_nothing():
    class Costly(Spoilt):
        @property
        def noise(self):
            raise AssertionError("asked for what nobody needed")

    assert isinstance(TradeOff(Costly("with_above", 1.0)).law, Costly)


@pytest.mark.few(2)
@pytest.mark.parametrize("batches", [35, 42, 51])
def test_a_symmetrised_law_of_sums_is_one_of_a_pair_next_to_threshold_0(batches):
    """Both directions leak alike there but for rounding, which is not to decide which one is taken."""
    near = np.geomspace(1e-17, 1e-8, 200)
    thresholds = np.concatenate([-near[::-1], [0.0], near])
    law = guarantees.claim_from_history([(1.0, 1 / batches, 2 * batches)]).symmetrise().law
    assert defect_of(thresholds, law.tails(thresholds)) <= 1e-12
