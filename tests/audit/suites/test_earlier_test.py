import dataclasses

import pytest

from audit.record.compare import compare
from audit.suites.earlier_test import test_of as policy_of
from audit.suites.read import parse_suite
from audit.suites.run import run_suite
from audit.suites.suite import SuiteError

SUITE = """
trials = 400
[[audit]]
name = "toy"
mechanism = { function = "toys:Shift", mu = 1.0 }
neighbours = { function = "toys:PAIR" }
distinguisher = { function = "toys:First" }
claim = { kind = "gaussian", mu = 1.0 }
diagnose = false
"""


@pytest.mark.long
def test_a_run_like_an_earlier_one_can_be_compared_with_it():
    suite = parse_suite(SUITE, "s.toml")
    old = run_suite(suite)
    fresh = dataclasses.replace(suite, seed=1)
    assert compare(old, run_suite(fresh), risk=0.01)[0].state == "not_compared"
    again = run_suite(fresh, earlier=old)
    assert [(p.target, p.threshold) for p in again[0].points] == [(p.target, p.threshold) for p in old[0].points]
    assert sum(again[0].shares.values()) == pytest.approx(again[0].risk)
    assert compare(old, again, risk=0.01)[0].test is not None
    stopped = dataclasses.replace(old[0], policy={"kind": "anytime"})
    with pytest.raises(SuiteError, match="cannot be reused"):
        policy_of(stopped, where="s.toml:2")
