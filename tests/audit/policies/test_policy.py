"""What a policy is: everything that depends on it is in the object, and nothing else asks which one it is."""

import ast
import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.policies.candidates import grid, known_or_piloted
from audit.policies.catalogue import POLICIES
from audit.policies.policy import Cut, Policy, Test
from audit.policies.rectangles import judge_by_rectangles
from audit.resume.checkpoint import checkpoint
from audit.trials.source import empty_tally

SOURCES = sorted(Path(audit.__file__).parent.rglob("*.py"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtZero(Policy):
    """A policy of one's own: one threshold for the first score."""

    kind: str = "at_zero"

    def fix(self, curve, fit_scores, goal):
        candidates, fit_trials = known_or_piloted(curve, fit_scores)
        cuts = (Cut(target="zero", member=0, threshold=0.0, rejects="above", risk=goal.risk),)
        return Test(cuts=cuts, edges=grid(candidates, cuts), fit_trials=fit_trials, budget=self.budget(cuts, goal))

    def judge(self, tally, test, goal):
        return judge_by_rectangles(tally, test, goal)


def audit_shift(**options):
    claim = guarantees.gaussian(mu=1.0)
    return audit.run_audit(Shift(mu=3.0), PAIR, First(), claim=claim, trials=2000, risk=0.05, **options)


def test_a_policy_of_ones_own_needs_nothing_but_itself():
    record = audit_shift(key=jax.random.key(1), policy=AtZero(), diagnose=False)
    assert record.verdict == "violation"
    assert (record.policy, record.stops_early) == ({"kind": "at_zero"}, False)
    assert [(point.target, point.threshold) for point in record.points] == [("zero", 0.0)]
    with pytest.raises(ValueError, match="'at_zero' has its own"):
        audit_shift(key=jax.random.key(1), policy=AtZero(), target="delta")


def test_every_registered_policy_has_its_kind_and_is_public():
    assert sorted(POLICIES) == ["anytime", "fixed", "from_theory", "split"]
    for kind, policy in POLICIES.items():
        assert policy.kind == kind
        assert getattr(audit, policy.__name__) is policy


def test_a_checkpoint_keeps_whatever_state_a_policy_has(tmp_path):
    edges = np.zeros((1, 3), np.float32)
    place = checkpoint(tmp_path, "this audit")
    for state in ({}, {"looks": 3, "wealth": [0.1, 1e-300]}):
        place.keep(dataclasses.replace(empty_tally(edges), state=state))
        assert place.started().state == state


def _asks(path, names):
    """Whether a file asks isinstance about one of some names."""
    text = path.read_text()
    if "isinstance(" not in text or not any(name in text for name in names):
        return False
    asked = (
        name.id
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
        for name in ast.walk(node.args[1])
        if isinstance(name, ast.Name)
    )
    return not names.isdisjoint(asked)


def test_nothing_asks_which_policy_it_has():
    policies = {policy.__name__ for policy in POLICIES.values()} | {"Policy"}
    assert not [path for path in SOURCES if _asks(path, policies)]


def test_one_place_asks_whether_code_is_foreign():
    kinds = {"Mechanism", "BatchMechanism"}
    assert [path.name for path in SOURCES if _asks(path, kinds)] == ["both_sides.py"]
