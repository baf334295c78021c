"""Promises of Renyi privacy over their whole range, against the closed form over many more orders."""

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import brentq

import guarantees
from guarantees.trade_off import TradeOff

RHOS = [1e-4, 0.5, 20.0, 700.0]


def closed_form(rho, delta):
    """The least epsilon over very many orders. [canonne2020, proposition 12]"""
    t = 1 + np.geomspace(1e-4, 1e5, 200_001) / np.sqrt(rho)
    return float(np.min(rho * t + ((t - 1) * np.log1p(-1 / t) - np.log(t) - np.log(delta)) / (t - 1)))


def most_leaky_coins(rho, delta):
    """The largest epsilon of two coins that keep the promise at every order, both ways: some mechanism leaks it."""
    t = 1 + np.geomspace(1e-3, 1e4, 2001) / np.sqrt(rho)
    best = t[np.argmin(rho * t + ((t - 1) * np.log1p(-1 / t) - np.log(t) - np.log(delta)) / (t - 1))]

    def excess(loss, heads):
        other = heads * np.exp(-loss)
        tails = np.log1p(-heads) - np.log1p(-other)
        there = np.logaddexp(np.log(heads) + (t - 1) * loss, np.log1p(-heads) + (t - 1) * tails)
        back = np.logaddexp(np.log(heads) - t * loss, np.log1p(-other) - (t - 1) * tails)
        return np.max(np.maximum(there, back) / (t - 1) - rho * t)

    coins = delta * (1 + (best - 1) * np.geomspace(0.8, 1.25, 9))
    losses = [brentq(excess, 0.0, 5 * rho + 50 * np.sqrt(rho), args=(heads,)) for heads in coins]
    return float(np.max(losses + np.log1p(-delta / coins)))


def test_the_largest_promises_are_finite_and_larger_ones_are_refused():
    most = guarantees.zcdp(rho=9000.0).epsilon(1e-9)
    assert most == pytest.approx(closed_form(9000.0, 1e-9), rel=1e-3)
    assert guarantees.renyi(orders=[2.0], epsilons=[9000.0]).epsilon(1e-9) < np.inf
    with pytest.raises(ValueError, match="rho must be at most 9000"):
        guarantees.zcdp(rho=9001.0)
    with pytest.raises(ValueError, match="the smallest of epsilons must be at most 9000"):
        guarantees.renyi(orders=[2.0, 3.0], epsilons=[1e8, np.inf])


def test_an_infinite_order_is_pure_epsilon():
    alone = guarantees.renyi(orders=[np.inf], epsilons=[1.0])
    assert alone.total_variation == pytest.approx(np.tanh(0.5), abs=1e-9)
    both = guarantees.renyi(orders=[2.0, np.inf], epsilons=[0.1, 1.0])
    assert both.epsilon(1e-12) == pytest.approx(1.0, abs=1e-6)
    assert both.total_variation == pytest.approx(
        guarantees.renyi(orders=[2.0], epsilons=[0.1]).total_variation, abs=1e-6
    )


def test_the_largest_orders_keep_the_stated_error():
    alpha, small = np.linspace(0.01, 0.99, 50), 0.0018
    pure, found = guarantees.randomised_response(epsilon=small), guarantees.renyi(orders=[1e20], epsilons=[small])
    assert np.abs(found.beta(alpha) - pure.beta(alpha)).max() <= found.error


@pytest.fixture(scope="module", params=RHOS)
def exact(request):
    return guarantees.zcdp(rho=request.param)


@pytest.mark.few(1)
def test_the_exact_promise_allows_what_some_mechanism_leaks_and_hardly_more(exact):
    rho = exact.parameters["rho"]
    for delta in (1e-12, 1e-9, 1e-6, 1e-5):
        found, leaked = exact.epsilon_range(delta), most_leaky_coins(rho, delta)
        assert leaked <= found.epsilon <= found.at_most
        # 250 orders promise a little less than very many
        assert found.at_least <= closed_form(rho, delta) * (1 + 3.1e-4)
        assert found.at_most <= leaked * (1 + 5e-4)
        assert found.known, found


@pytest.mark.few(2)
def test_what_is_proven_brackets_the_constraints_themselves(exact):
    """The truth at single alphas, by root search over the orders that the claim uses."""
    rho = exact.parameters["rho"]
    t = 1 + np.geomspace(0.01, 2000.0, 250) / np.sqrt(rho)

    def divergence(log_alpha, b):
        log_a, log_not_a = log_alpha, np.log1p(-np.exp(log_alpha))
        log_b, log_not_b = -np.logaddexp(0, -b), -np.logaddexp(0, b)
        forward = np.logaddexp(t * log_not_b + (1 - t) * log_a, t * log_b + (1 - t) * log_not_a) / (t - 1)
        back = np.logaddexp(t * log_not_a + (1 - t) * log_b, t * log_a + (1 - t) * log_not_b) / (t - 1)
        return max((forward - rho * t).max(), (back - rho * t).max())

    for log_alpha in (-1.5, -20.0, -200.0, -500.0):
        alpha = np.exp(log_alpha)
        top = np.log1p(-alpha) - log_alpha
        if divergence(log_alpha, log_alpha - np.log1p(-alpha)) < 0:
            # beyond the point where alpha = beta: the other half of a symmetric curve
            continue
        b = brentq(lambda b, u=log_alpha: divergence(u, b), -5000, top, xtol=1e-13)
        truth = 1 / (1 + np.exp(-b))
        safe, leaked = exact.certificate.safe, exact.certificate.leaked
        assert TradeOff(safe).beta(alpha) <= truth + 1e-12
        assert truth <= TradeOff(leaked).beta(alpha) + 1e-12
        assert exact.beta(alpha) == pytest.approx(truth, abs=exact.error + 1e-12)


def test_orders_below_one_alone_leave_what_a_test_without_false_alarms_may_catch():
    claim = guarantees.renyi(orders=[0.5, 0.8], epsilons=[0.1, 0.3])
    # b >= exp(-(1 - t) epsilon / t) and b >= exp(-epsilon), whichever is more
    assert claim.beta(0.0) == pytest.approx(np.exp(-0.3 * 0.25), abs=1e-6)
    assert claim.error < 1e-4


def test_a_promise_of_everything_or_nothing():
    assert guarantees.renyi(orders=[2.0], epsilons=[0.0]).total_variation == 0
    assert guarantees.renyi(orders=[2.0], epsilons=[np.inf]).total_variation == 1
    # an order without a promise changes nothing
    pair = [guarantees.renyi(orders=o, epsilons=e) for o, e in (([2.0, 0.5], [np.inf, 0.3]), ([0.5], [0.3]))]
    assert pair[0].beta(0.1) == pytest.approx(pair[1].beta(0.1), abs=1e-6)
    assert pair[0].beta(0.0) == pytest.approx(np.exp(-0.3), abs=1e-6)


@pytest.mark.long
def test_a_tiny_promise_is_known_in_proportion():
    claim = guarantees.zcdp(rho=1e-10)
    assert claim.error < 1e-5 * claim.total_variation


@pytest.mark.few(1)
@pytest.mark.parametrize("rho", [1e-27, 1e-21])
def test_promises_too_small_to_follow_add_up_as_they_were_made(rho):
    # each was relaxed to one of 1e-12, of which a hundred would be 1e-10
    hundred = guarantees.zcdp(rho=rho).compose(100)
    assert hundred.total_variation < 1e-6
    assert hundred.compose(10**6).epsilon(1e-5) == 0


def test_an_epsilon_above_that_of_a_larger_order_counts_as_that_one_and_is_told():
    with pytest.warns(UserWarning, match=r"never falls as its order grows, but order 2 has 0.5 .* implies 0.1"):
        falling = guarantees.renyi(orders=[2.0, 4.0, 8.0], epsilons=[0.5, 0.2, 0.1])
    level = guarantees.renyi(orders=[2.0, 4.0, 8.0], epsilons=[0.1, 0.1, 0.1])
    assert falling.epsilon(1e-2) == pytest.approx(level.epsilon(1e-2), rel=1e-9)
    assert falling.parameters["epsilons"] == (0.5, 0.2, 0.1)


@pytest.mark.few(3)
@pytest.mark.parametrize("size", [1e-31, 1e-29, 1e-26, 1e-20, 1e-16, 1e-12, 1e-9])
def test_next_to_nothing_is_known_within_the_stated_error(size):
    # ln(1 + d^2) of order 2 is the divergence of two coins whose total variation is d/2
    order_two = guarantees.renyi(orders=[2.0], epsilons=[size])
    assert order_two.total_variation == pytest.approx(np.sqrt(size) / 2, rel=1e-6, abs=order_two.error)
    every_order = guarantees.zcdp(rho=size)
    assert every_order.total_variation == pytest.approx(np.sqrt(size / 2), rel=1e-3, abs=every_order.error)
    followed = size <= 1e-28 or size > 1e-20
    assert every_order.error < (1e-12 + 1e-5 * every_order.total_variation if followed else 2e-6)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("orders", "epsilons"),
    [
        ([1.0000000183011581, 1345.1185606021866], [3.806498231640501e-11, 2.6348439906237135e-11]),
        ([0.9999945796769579, 80913.37867602773], [1.6944367101197366e-11, 1.0986800434942625e-11]),
        ([0.9998427889512498, 4508.118217304895], [4.8244244269130285e-18, 3.2737518405393082e-18]),
        ([1.0000109228413256], [2.8396063799377737e-27]),
        ([0.9999999996612602], [9.45375423127247e-09]),
        ([1.0000000001225788, 1.0012199780559083], [5.0588265739174106e-08, 2.974321229892833e-07]),
        ([1e9], [1e-9]),
    ],
)
def test_orders_next_to_1_and_small_promises_are_known_within_the_stated_error(orders, epsilons):
    """Total variation in 60 digits: each order's curve has it where alpha = beta, and the smallest one binds."""

    def distance(order, epsilon):
        def divergence(d):
            low, high = (1 - d) / 2, (1 + d) / 2
            return mp.log(high**order * low ** (1 - order) + low**order * high ** (1 - order)) / (order - 1)

        order, least, most = mp.mpf(order), mp.mpf(10) ** -30, mp.mpf(1) / 2
        for _ in range(150):
            middle = mp.sqrt(least * most)
            least, most = (middle, most) if divergence(middle) < epsilon else (least, middle)
        return least

    with mp.workdps(60):
        truth = float(min(distance(*each) for each in zip(orders, epsilons, strict=True)))
    claim = guarantees.renyi(orders=orders, epsilons=epsilons)
    assert abs(claim.total_variation - truth) <= claim.error
    assert claim.error <= max(2e-6, 1e-3 * truth)


@pytest.mark.few(2)
@pytest.mark.parametrize("size", [1e-30, 1e-24, 1e-13])
def test_what_is_not_followed_is_a_range_and_grows_with_its_rounds(size):
    """It was told as no leak, known exactly, however often it was composed."""
    claim = guarantees.renyi(orders=[2.0], epsilons=[size])
    truth = np.sqrt(size) / 2
    found = claim.epsilon_range(truth / 10)
    assert found.at_least == 0 < found.at_most
    many = claim.compose(100)
    assert many.delta(0.0) + many.error >= np.sqrt(100) * truth
    assert many.epsilon_range(truth).at_most > 0
