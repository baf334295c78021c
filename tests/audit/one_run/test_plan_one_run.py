"""The plan of one training: its expectation is what is proven, its limit is above every valid bound."""

import re

import numpy as np
import pytest

import audit
import guarantees
from audit.one_run.plan import _rejected


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("sigma", "proven", "limit"), [(0.5, 5.51, 6.00), (1, 2.88, 3.06), (2, 1.38, 1.46), (4, 0.59, 0.67)]
)
def test_the_plan_foretells_what_is_measured_and_the_simulated_limit(sigma, proven, limit):
    plan = audit.plan_one_run(claim=guarantees.gaussian(mu=1 / sigma), canaries=100_000)
    assert plan.expected == pytest.approx(proven, rel=0.05)
    assert plan.limit == pytest.approx(limit, rel=0.04)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "claim",
    [
        guarantees.gaussian(mu=2.0),
        guarantees.laplace(epsilon=1.0),
        guarantees.epsilon_delta(epsilon=2.0, delta=1e-5),
        guarantees.subsampled_gaussian(rate=0.2, noise_multiplier=0.7),
    ],
    ids=lambda claim: claim.name,
)
def test_expectation_limit_and_claim_are_in_order(claim):
    for canaries in (2, 10_000):
        plan = audit.plan_one_run(claim=claim, canaries=canaries, delta=1e-5, risk=0.05)
        assert plan.expected <= plan.limit <= plan.claimed * 1.001


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("claim", "canaries", "possible"),
    [
        (guarantees.gaussian(mu=1.2), 300, False),
        (guarantees.gaussian(mu=0.5), 300, True),
        (guarantees.epsilon_delta(epsilon=8.0, delta=1e-5), 500, False),
        (guarantees.epsilon_delta(epsilon=2.0, delta=1e-5), 500, True),
    ],
    ids=str,
)
def test_the_plan_says_where_no_violation_can_be_found(claim, canaries, possible):
    """It said what to expect of epsilon and not that all right guesses would not be enough."""
    plan = audit.plan_one_run(claim=claim, canaries=canaries)
    assert plan.refutable is possible
    assert ("This few canaries cannot refute this claim" in str(plan)) is not possible


@pytest.mark.long
def test_the_noise_that_the_plan_finds_is_found_so_often_and_a_half_more_is_not():
    """It said only what a training that leaks exactly the claim would prove."""
    claim = guarantees.poisson_training(rate=0.25, noise_multiplier=2.0, steps=20)
    plan = audit.plan_one_run(claim=claim, canaries=1000)
    (noise,) = re.findall(r"In 8 of 10 runs they find a noise multiplier of (\S+) or less in place of 2, if", str(plan))
    assert "runs they find" not in str(audit.plan_one_run(claim=guarantees.gaussian(mu=1.2), canaries=300))

    def found(multiplier):
        draw, violations = np.random.default_rng(3), 0
        for _ in range(20):
            coins = draw.random(1000) < 0.5
            joined = coins & (draw.random((20, 1000)) < 0.25)
            sums = joined + multiplier * draw.normal(size=joined.shape)
            likelihood = np.log1p(0.25 * np.expm1((2 * sums - 1) / (2 * multiplier**2))).sum(0)
            violations += audit.one_run(likelihood, coins, risk=0.05, claim=claim).verdict == "violation"
        return violations

    # of 20 at 0.8 fewer than 11, or at 0.25 more than 11, come once in 300 runs
    assert found(float(noise)) >= 11
    assert found(1.5 * float(noise)) <= 11


def test_as_many_canaries_as_are_told_would_be_enough():
    """It said 'use more canaries', and not how many."""

    def reason(canaries, **fixed):
        draw = np.random.default_rng(5)
        coins = draw.random(canaries) < 0.5
        claim = guarantees.gaussian(mu=1.2)
        return audit.one_run(draw.normal(size=canaries) + 1.2 * coins, coins, risk=0.05, claim=claim, **fixed).judgement

    few = reason(300)
    assert few.verdict == "inconclusive"
    told = re.search(r"about ([0-9,]+) canaries .*guesses=\[\((\d+), (\d+)\)\].* about ([0-9,]+), where", few.reason)
    fewest, guessed_in, guessed_out, chosen = (int(number.replace(",", "")) for number in told.groups())
    # guesses that are fixed need fewer canaries, and come first
    assert fewest < chosen
    assert reason(fewest, guesses=[(guessed_in, guessed_out)]).verdict == "no_violation_found"
    assert (
        reason(int(0.8 * fewest), guesses=[(int(0.8 * guessed_in), int(0.8 * guessed_out))]).verdict == "inconclusive"
    )
    assert reason(chosen).verdict == "no_violation_found"
    assert reason(int(0.8 * chosen)).verdict == "inconclusive"


def test_what_a_test_rejects_is_what_simulation_finds():
    """Twenty kinds of canaries, about one of each: the likelihood ratio of both laws of answers, drawn."""
    rng = np.random.default_rng(3)
    right, clip, canaries, runs = np.linspace(0.75, 0.97, 20), 0.75, 60, 20_000
    both = np.full(20, 0.02)
    foretold = _rejected(right, both, clip, canaries)

    def told(chances):
        kinds = rng.multinomial(canaries, [*both, 1 - both.sum()], size=runs)[:, :-1]
        won = rng.binomial(kinds, chances)
        return won @ np.log(right / clip) + (kinds - won) @ np.log((1 - right) / (1 - clip))

    threshold = np.median(told(right))
    seen = int(np.sum(told(np.full(20, clip)) >= threshold))
    assert 0.005 < foretold < 0.2
    # the drawn median is uncertain by itself
    assert seen / runs == pytest.approx(foretold, rel=0.15, abs=3e-4)


@pytest.mark.parametrize(
    ("change", "told"),
    [({"canaries": 1}, "canaries"), ({"risk": 1.5}, "risk"), ({"delta": 2.0}, "delta"), ({"claim": 1.0}, "claim")],
)
def test_bad_arguments_are_named(change, told):
    with pytest.raises((TypeError, ValueError), match=told):
        audit.plan_one_run(**({"claim": guarantees.gaussian(mu=1.0), "canaries": 100} | change))
