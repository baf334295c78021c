"""The budget of an audit's risk: never more than the risk, made once, read by everything after it."""

import dataclasses
import itertools
import json

import pytest
from made_records import RIGHT, SCORE, fitted, sides, suite_of_policies

from audit.goal import Goal
from audit.policies.catalogue import POLICIES
from audit.record.stored import from_json
from audit.risk import WEIGHTS, RiskBudget, on_points, shared
from audit.verify.procedure import verify

GOAL = Goal(claim=RIGHT, delta=1e-5, trials_per_side=100, risk=0.05)
FIXED = {
    "from theory": POLICIES["from_theory"](),
    "rectangles": POLICIES["from_theory"](method="rectangle"),
    "on one": POLICIES["from_theory"](targets=("mu",)),
    "split": POLICIES["split"](fit_trials=100),
    "fixed": POLICIES["fixed"](thresholds=(0.0, 1.0)),
    "anytime": POLICIES["anytime"](),
}


@pytest.fixture(scope="module")
def records():
    return suite_of_policies(("from theory", "rectangles", "fixed", "anytime"))


@pytest.mark.parametrize(
    "parts",
    [{"verdict": 0.03, "epsilon": 0.03}, {"points": 0.04, "band": 0.02}, {"mu": -0.01}, {"risk": 1.0}, {"risk": 0.0}],
)
def test_a_budget_that_exceeds_its_risk_cannot_be_made(parts):
    with pytest.raises(ValueError, match=r"shares must be|risk must be"):
        RiskBudget(**{"risk": 0.05, **parts})
    with pytest.raises(dataclasses.FrozenInstanceError):
        RiskBudget(risk=0.05).risk = 0.5


def test_any_statements_share_exactly_the_risk():
    for count in range(1, len(WEIGHTS) + 1):
        for statements in itertools.combinations(WEIGHTS, count):
            budget = shared(0.05, statements)
            assert set(budget.shares) == set(statements)
            assert sum(budget.shares.values()) == pytest.approx(0.05)


def test_what_thresholds_leave_is_the_bands():
    assert on_points(0.05, [0.01, 0.02]).band == pytest.approx(0.02)
    assert on_points(0.05, [0.025, 0.025]).band == 0
    with pytest.raises(ValueError, match="at most the risk"):
        on_points(0.05, [0.03, 0.03])


@pytest.mark.parametrize("name", FIXED)
def test_a_test_carries_its_budget_and_its_cuts_keep_to_it(name):
    test = FIXED[name].fix(SCORE.curve, fitted, GOAL)
    assert test.budget.risk == GOAL.risk
    cuts = tuple(dataclasses.replace(cut, risk=1.1 * cut.risk + 1e-4) for cut in test.cuts)
    with pytest.raises(ValueError, match="within the budget's"):
        dataclasses.replace(test, cuts=cuts)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["from theory", "fixed", "anytime"])
def test_judging_reads_the_budget_of_the_test_and_makes_none(name):
    policy = FIXED[name]
    test = policy.fix(SCORE.curve, fitted, GOAL)
    tally = policy.count(sides(10), test, GOAL)
    less = dataclasses.replace(test.budget, epsilon=test.budget.epsilon / 4)
    usual, found = (policy.judge(tally, dataclasses.replace(test, budget=own), GOAL) for own in (test.budget, less))
    spent = {number.name: number.risk for number in usual.numbers}
    assert {n.name: n.risk for n in found.numbers} == pytest.approx({**spent, "epsilon": spent["epsilon"] / 4})


def test_the_record_keeps_the_budget_and_verify_knows_another(records):
    for record in records:
        assert from_json(json.loads(json.dumps(record.to_json()))).budget == record.budget
    changed = dataclasses.replace(records[0].budget, epsilon=0.9 * records[0].budget.epsilon)
    found = verify((dataclasses.replace(records[0], budget=changed), *records[1:]))
    assert [(check.audit, check.what) for check in found.checks if check.state == "wrong"] == [
        (records[0].name, "numbers")
    ]
