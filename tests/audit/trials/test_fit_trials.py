"""How many outputs are drawn to learn and to choose, beside those that are judged."""

import sys

import jax
import numpy as np
import pytest

import audit
import distinguishers
import guarantees
import mechanisms
from audit.policies.catalogue import default_policy
from audit.trials.fit_trials import fit_trials


@pytest.mark.parametrize(("trials", "learnt", "chosen"), [(2, 40, 20), (60, 60, 30), (150, 150, 74), (200, 200, 100)])
def test_few_trials_of_foreign_code_are_not_outnumbered_by_those_that_choose(trials, learnt, chosen):
    """An audit of 60 trainings made 300 more."""
    assert fit_trials(distinguishers.fit(), trials, costly=True) == learnt
    assert default_policy(None, trials, costly=True).fit_trials == chosen
    # a trial of JAX code costs next to nothing, and what is learnt from more of them finds more
    assert fit_trials(distinguishers.fit(), trials, costly=False) == 200
    assert default_policy(None, trials).fit_trials == 100


@pytest.mark.parametrize("trials", [300, 2000, 10**6])
def test_from_200_trials_on_foreign_code_has_as_many_as_jax_code(trials):
    own = [(fit_trials(distinguishers.fit(), trials, costly=c), default_policy(None, trials, costly=c)) for c in (0, 1)]
    assert own[0] == own[1]


@pytest.mark.long
def test_an_audit_of_foreign_code_calls_it_as_often_as_its_record_says(monkeypatch):
    # where PyTorch is loaded, the code is run three times more, to see what it draws
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    calls = []

    def step(seed, rows):
        calls.append(seed)
        return rows.sum(0) + np.random.default_rng(seed).standard_normal(4)

    pair = mechanisms.worst_case_pair(records=2, dimension=4, clip=1.0)
    given = {"claim": guarantees.gaussian(mu=1.0), "trials": 200, "risk": 0.05, "key": jax.random.key(0)}
    record = audit.run_audit(mechanisms.callable_step(step), pair, **given)
    assert record.fit_trials == 200 + 100
    # two that show the form of an output, four a side drawn twice and at the end, and 24 pairs on the same seeds
    assert len(calls) == record.trials + record.fit_trials + 2 + 24 + 48
