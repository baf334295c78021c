"""What is known of epsilon at a delta that the numerical error of the curve comes near to."""

import dataclasses

import numpy as np
import pytest

import guarantees
from guarantees.laws.discrete_law import DiscreteLaw
from guarantees.laws.law import Certificate
from guarantees.summary import summarise
from guarantees.trade_off import TradeOff


def coarse(law, error, **sides):
    """The law of randomised response or the like, said to be known only so well."""
    return dataclasses.replace(
        law, error=error, certificate=Certificate(proved="", estimated="", round_off=1e-15, **sides)
    )


TRUE = guarantees.laplace(epsilon=2.0).curve.compose(3).law
MORE, LESS = (guarantees.laplace(epsilon=e).curve.compose(3).law for e in (2.01, 1.5))


def test_a_closed_form_is_known():
    for claim in (guarantees.gaussian(mu=1.0), guarantees.epsilon_delta(epsilon=1.0, delta=1e-5)):
        for delta in (0.0, 1e-12, 1e-5):
            found = claim.epsilon_range(delta)
            assert found.known
            assert found.promised == found.at_least == found.at_most == found.epsilon == claim.epsilon(delta)


def test_an_estimate_whose_error_exceeds_delta_promises_nothing_there():
    curve = TradeOff(coarse(TRUE, 1e-3))
    found = curve.epsilon_range(1e-5)
    assert not found.known
    assert found.at_most == found.promised == np.inf
    assert found.at_least < curve.epsilon(1e-5) == found.epsilon
    assert TradeOff(coarse(TRUE, 1e-4)).epsilon_range(0.5).known


def test_a_proven_side_is_promised_and_the_other_side_says_how_much_less_it_may_be():
    assert isinstance(TRUE, DiscreteLaw)
    safe = TradeOff(coarse(MORE, 0.1, safe=MORE)).epsilon_range(1e-5)
    assert safe.promised == safe.at_most == pytest.approx(TradeOff(MORE).epsilon(1e-5), rel=1e-6)
    assert TradeOff(MORE).delta(safe.at_least) - 0.1 * (1 + np.exp(safe.at_least)) == pytest.approx(1e-5, abs=1e-9)
    assert not safe.known
    both = TradeOff(coarse(TRUE, 0.1, safe=MORE, leaked=LESS)).epsilon_range(1e-5)
    assert both.at_least == pytest.approx(TradeOff(LESS).epsilon(1e-5), rel=1e-6)
    assert both.at_least < TradeOff(TRUE).epsilon(1e-5) < both.at_most == safe.at_most
    near = TradeOff(coarse(TRUE, 0.1, safe=MORE, leaked=TRUE)).epsilon_range(1e-5)
    assert near.known
    assert near.promised == near.epsilon


def test_a_summary_says_which_epsilons_are_not_known():
    curve = TradeOff(coarse(TRUE, 1e-3))
    summary = summarise(curve, deltas=(1e-5, 0.9))
    assert [found.known for found in summary.ranges] == [False, True]
    assert summary.epsilons == tuple((found.delta, found.epsilon) for found in summary.ranges)
    assert "1e-05" in summary.ranges[0].says
    assert "not known" in summary.ranges[0].says
    assert summary.ranges[1].says == f"{summary.ranges[1].epsilon:.4g}"


def test_a_number_between_certified_curves_says_so_where_the_curves_error_exceeds_delta():
    """Such a number rests on the two curves alone; printed ends never tighten what is certified."""
    near = TradeOff(coarse(TRUE, 0.1, safe=MORE, leaked=TRUE)).epsilon_range(1e-5)
    assert near.known
    assert near.at_least * 0.999 <= float(near.says.split()[0]) <= near.at_least
    assert near.at_most <= float(near.says.split()[2]) <= near.at_most * 1.001
    assert near.says.endswith("(certified from both sides: the curve's own numerical error 0.1 exceeds delta 1e-05)")
    small = dataclasses.replace(near, delta=0.2)
    assert small.says == f"{near.epsilon:.4g}"
    same = dataclasses.replace(near, at_least=5.32011, epsilon=5.32014, at_most=5.32016)
    assert same.says.startswith("5.32 to 5.321 (certified")


@pytest.mark.long
def test_what_is_proven_of_a_training_brackets_an_independent_number():
    setting = {"rate": 1e-2, "noise_multiplier": 0.8, "steps": 100}
    found = guarantees.poisson_training(**setting, accountant="certified").epsilon_range(1e-5)
    assert found.known
    assert found.at_least <= guarantees.poisson_training(**setting, accountant="pld").epsilon(1e-5)
    assert found.at_least <= found.epsilon <= found.at_most


@pytest.mark.long
def test_the_rounding_of_a_composed_law_leaves_out_what_is_proved_to_err_upwards():
    """A lattice's error moves delta up only: it is no reason to doubt the promise."""
    claim = guarantees.balls_and_bins(rounds=50, noise_multiplier=0.5, epochs=3)
    one = guarantees.balls_and_bins(rounds=50, noise_multiplier=0.5)
    assert one.certificate.round_off < one.error / 10
    assert 3 * one.error <= claim.error
    assert claim.certificate.round_off < one.error


@pytest.mark.parametrize("error", [1e-9, 1e-8, 1e-7])
def test_an_error_of_both_rates_moves_delta_by_more_the_larger_epsilon_is(error):
    """A false-alarm rate that is off by the error puts delta off by e^epsilon of it."""
    delta, rough = 1e-5, TradeOff(coarse(TRUE, error))
    found = rough.epsilon_range(delta)
    off = (1 + np.exp(found.epsilon)) * error
    assert rough.delta(found.at_least * (1 - 1e-9)) - (1 + np.exp(found.at_least)) * error >= delta * (1 - 1e-6)
    assert found.at_least < TradeOff(TRUE).epsilon(delta + off / 2)
    if off >= delta:
        assert found.promised == np.inf
    else:
        assert rough.delta(found.at_most) + (1 + np.exp(found.at_most)) * error <= delta * (1 + 1e-6)
        assert found.at_most > TradeOff(TRUE).epsilon(delta - off / 2)


CERTIFIED = {
    "balls and bins": lambda: guarantees.balls_and_bins(rounds=10**6, noise_multiplier=0.3),
    "five epochs of it": lambda: guarantees.balls_and_bins(rounds=10**5, noise_multiplier=0.3, epochs=5),
    "realised batches": lambda: guarantees.normalised_round(
        normalise_by="realised_batch", records=50, rate=0.3, noise_multiplier=2.0, dimension=50
    ).compose(20),
    "Poisson": lambda: guarantees.poisson_training(
        rate=1e-4, noise_multiplier=0.8, steps=10**6, accountant="certified"
    ),
    "few and much": lambda: guarantees.poisson_training(
        rate=1e-6, noise_multiplier=0.5, steps=10**7, accountant="certified"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CERTIFIED)
def test_a_certificate_tells_epsilon_from_both_sides_where_its_curves_error_exceeds_delta(name):
    """Settings whose certificate said nothing at delta 1e-5."""
    found = CERTIFIED[name]().epsilon_range(1e-5)
    print(name, found)
    assert 0 < found.at_least <= found.epsilon <= found.at_most <= 1.005 * found.at_least


def test_the_largest_loss_of_a_computed_curve_is_promised_only_where_a_certificate_bounds_it():
    unbounded = guarantees.normalised_round(
        normalise_by="realised_batch", records=4, rate=0.05, noise_multiplier=10.0, dimension=2
    )
    assert unbounded.epsilon_range(0.0).at_most == np.inf
    assert unbounded.epsilon_range(0.0).says.startswith("not known")
    three = guarantees.laplace(epsilon=1.0).compose(3).epsilon_range(0.0)
    assert three.at_least <= 3.0 <= three.at_most < 3.2


@pytest.mark.few(1)
@pytest.mark.parametrize("delta", [0.0, 1e-30])
def test_a_leak_that_rounding_hides_is_not_called_none(delta):
    """At a rate of 1e-20 delta is 3.8e-21 at epsilon 0, and the tails of both sides are equal floats."""
    closed = guarantees.subsampled_gaussian(rate=1e-20, noise_multiplier=1.0)
    assert closed.epsilon_range(delta).epsilon == (pytest.approx(6.9679e-18, rel=1e-4) if delta else np.inf)
    divided = guarantees.normalised_round(
        normalise_by="realised_batch", records=4, rate=1e-20, noise_multiplier=1.0, dimension=2
    )
    for tiny in (closed.compose(2), divided):
        assert tiny.epsilon_range(delta).at_most == np.inf
        assert tiny.epsilon_range(delta).says.startswith("not known: numerical error")
        assert tiny.epsilon_range(1e-10).says == "0"
    assert guarantees.epsilon_delta(epsilon=0.0, delta=0.0).epsilon_range(delta).says == "0"
