import jax
import numpy as np
import pytest
from joint_judge import judge_jointly
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.bounds.bounded_numbers import EpsilonAt
from audit.bounds.clopper_pearson import ErrorCounts
from audit.bounds.joint import GAMMA_SHARE, joint_p_value
from audit.bounds.supporting_lines import tabulate
from audit.power import power as power_of_rectangles
from audit.power.power import detectable, is_conclusive, refuting, trials_needed
from audit.verdict.judgement import Against, judge_statements
from audit.verdict.proven_numbers import against, prove
from guarantees.numerics.search import crossing

CLAIM = guarantees.gaussian(mu=1.0)


def run(method, mu=1.4, trials=1000):
    policy = audit.FromTheory(method=method)
    options = {"claim": CLAIM, "trials": trials, "risk": 0.05, "key": jax.random.key(0), "policy": policy}
    return audit.run_audit(Shift(mu=mu), PAIR, First(curve=CLAIM.curve), **options)


@pytest.mark.long
def test_both_counts_together_are_the_default_and_the_rectangle_stays_available():
    rectangle, joint = run("rectangle"), run("joint")
    assert audit.FromTheory() == audit.FromTheory(method="joint")
    assert joint.p_value < rectangle.p_value
    assert all(number.at_least > number.rectangle for number in joint.numbers)
    assert joint.delta(0.0) > rectangle.delta(0.0)
    assert (rectangle.numbers, rectangle.shares) == ((), {"rest": rectangle.risk})


def test_the_shares_of_a_record_sum_to_its_risk_the_verdict_included():
    record = run("joint")
    assert list(record.shares) == ["verdict", "epsilon", "delta", "rest"]
    assert sum(record.shares.values()) == pytest.approx(record.risk)
    assert record.verdict == "violation"
    passed = 0.75 * record.shares["verdict"]
    assert {number.name: number.risk for number in record.numbers} == {
        "epsilon": pytest.approx(record.shares["epsilon"] + passed),
        "delta": record.shares["delta"],
    }
    kept = run("joint", mu=1.0)
    assert {number.name: number.risk for number in kept.numbers} == {
        name: kept.shares[name] for name in ("epsilon", "delta")
    }
    assert sum(point.risk for point in record.points) + record.band.risk == pytest.approx(record.shares["rest"])
    judged = next(point for point in record.points if point.target == "verdict")
    share = record.shares["verdict"]
    own = joint_p_value(judged.counts, CLAIM, gamma=GAMMA_SHARE * share) * record.risk / share
    assert record.p_value <= own


def test_a_proven_number_beyond_the_claim_is_a_violation():
    """Epsilon above what the claim promises refutes it, whatever the verdict's own test says."""
    counts = ErrorCounts(false_alarms=0, trials_without=20_000, misses=19_700, trials_with=20_000)
    claim = guarantees.gaussian(mu=0.5)
    question = EpsilonAt(delta=1e-5)
    said = against(claim, (counts,), question, risk=0.03)
    assert prove((counts,), question, risk=0.03).at_least > claim.epsilon(1e-5)
    assert said.p_value <= 0.03
    nothing = Against(
        reason="nothing", p_value=1.0, risk=0.01, at=lambda: pytest.fail("it refutes nothing"), proves="curve"
    )
    judged = judge_statements((nothing, said), claim, risk=0.05, deciding=0.01, delta=1e-5, trials_per_side=20_000)
    assert (judged.verdict, "epsilon" in judged.reason) == ("violation", True)
    assert judged.violated_at.says.startswith("epsilon at delta 1e-05: at least ")


@pytest.mark.long
def test_few_trials_that_two_clean_sheets_would_refute_are_not_called_hopeless():
    """At 8 trials per side the rectangle could never refute mu 1 at this risk, the joint test could."""
    counts = ErrorCounts(false_alarms=2, trials_without=8, misses=4, trials_with=8)
    clean = ErrorCounts(false_alarms=0, trials_without=8, misses=0, trials_with=8)
    assert joint_p_value(clean, CLAIM, gamma=GAMMA_SHARE * 0.05) <= 0.05
    said = judge_jointly(counts, CLAIM, risk=0.05, delta=1e-5)
    assert said.verdict == "inconclusive"
    assert "no counts of this size" not in said.reason


@pytest.mark.parametrize(("misses", "outcome"), [(40, "violation"), (250, "no_violation_found")])
def test_counts_far_below_the_claim_refute_it(misses, outcome):
    counts = ErrorCounts(false_alarms=154, trials_without=500, misses=misses, trials_with=500)
    assert judge_jointly(counts, CLAIM, risk=0.05, delta=1e-5).verdict == outcome


def test_unknown_methods_and_targets_are_refused():
    with pytest.raises(ValueError, match="targets must be a sequence, each one of"):
        audit.FromTheory(targets=("epsilon", "gamma"))
    with pytest.raises(ValueError, match="targets must be distinct"):
        audit.FromTheory(targets=("epsilon", "epsilon"))
    with pytest.raises(ValueError, match="method must be one of"):
        audit.Split(method="square")


def test_a_promise_made_of_single_lines_hides_no_small_leak():
    claim = guarantees.fixed_batch_upper(rounds=10, noise_multiplier=0.7)
    few = ErrorCounts(false_alarms=30, trials_without=100, misses=30, trials_with=100)
    found = judge_jointly(few, claim, risk=0.05, delta=1e-5).detectable.tv_excess
    assert found is None or found > 0.1


@pytest.mark.long
def test_a_claim_whose_thresholds_take_long_is_judged_from_a_table_of_it():
    claim = guarantees.fixed_batch_shuffle(rounds=3, noise_multiplier=1.0)
    lines = tabulate(claim)
    assert len(lines.x) > 500
    assert len(claim.law._points) < 150
    alpha = np.array([0.01, 0.1, 0.4])
    gap = claim.beta(alpha) - lines.below(alpha)
    assert np.all(gap >= 0)
    assert np.all(gap < 1e-4)


@pytest.mark.few(2)
@pytest.mark.parametrize("mu", [0.3, 1.0, 4.0])
def test_a_short_search_is_conclusive_where_the_full_one_is(mu):
    claim = guarantees.gaussian(mu=mu)
    found = []
    for trials in (5, 20, 80, 150, 400, 3000):
        power = refuting(claim, trials_per_side=trials, risk=0.05)
        size = {"delta": 1e-5, "trials_per_side": trials}
        found.append(is_conclusive(claim, power=power, **size))
        assert found[-1] == detectable(claim, risk=0.05, **size).conclusive, trials
    assert set(found) == {False, True}


def test_a_search_for_trials_looks_for_the_noise_of_an_epsilon_once(monkeypatch):
    asked = []

    def counted(excess, low, high, goal):
        asked.extend(goal.tolist())
        return crossing(excess, low, high, goal)

    monkeypatch.setattr(power_of_rectangles, "crossing", counted)
    power_of_rectangles._noise_at.cache_clear()
    trials_needed(guarantees.gaussian(mu=1.0), delta=1e-5, risk=0.05, test=refuting)
    assert asked
    assert len(asked) == len(set(asked))


@pytest.mark.long
def test_the_trials_that_would_do_are_those_of_the_joint_test():
    claim = guarantees.gaussian(mu=1.0)
    few = ErrorCounts(false_alarms=3, trials_without=10, misses=7, trials_with=10)
    needed = judge_jointly(few, claim, risk=0.05, delta=1e-5).trials_needed
    by_rectangle = trials_needed(claim, delta=1e-5, risk=0.05, test=refuting)
    assert needed is not None
    assert by_rectangle is not None
    assert needed < 0.8 * by_rectangle
    enough = ErrorCounts(
        false_alarms=needed // 4, trials_without=needed // 2, misses=needed // 4, trials_with=needed // 2
    )
    assert judge_jointly(enough, claim, risk=0.05, delta=1e-5).verdict == "no_violation_found"
