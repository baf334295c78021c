import jax
import pytest
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.bounds.clopper_pearson import ErrorCounts
from audit.bounds.joint import joint_p_value
from audit.verdict.judgement import GAMMA_SHARE, judge_jointly

CLAIM = guarantees.gaussian(mu=1.0)


def test_the_verdict_comes_from_the_joint_p_value_and_the_bounds_do_not_change():
    def run(method):
        policy = audit.Split(fit_trials=400, method=method)
        options = {"claim": CLAIM, "trials": 1000, "risk": 0.05, "key": jax.random.key(0), "policy": policy}
        return audit.run_audit(Shift(mu=1.4), PAIR, First(), **options)

    rectangle, joint = run("rectangle"), run("joint")
    assert joint.points == rectangle.points
    assert joint.p_value < rectangle.p_value
    judged = next(point for point in joint.points if point.target == "verdict")
    assert joint.p_value == joint_p_value(judged.counts, CLAIM, gamma=GAMMA_SHARE * 0.05)
    assert joint.policy["method"] == "joint"


@pytest.mark.parametrize(("misses", "outcome"), [(40, "violation"), (250, "no_violation_found")])
def test_counts_far_below_the_claim_refute_it(misses, outcome):
    counts = ErrorCounts(false_alarms=154, trials_without=500, misses=misses, trials_with=500)
    assert judge_jointly(counts, CLAIM, risk=0.05, delta=1e-5).verdict == outcome


def test_a_method_without_its_test_is_refused():
    with pytest.raises(ValueError, match="'verdict' is among them"):
        audit.FromTheory(targets=("epsilon",), method="joint")
    with pytest.raises(ValueError, match="method must be one of"):
        audit.Split(method="square")
