"""Audits of groups: the claim for k records holds, that for fewer is refused or refuted."""

import dataclasses

import jax
import pytest

import audit
import distinguishers
import guarantees
import mechanisms
from mechanisms import sampling

KEY = jax.random.key(31)
GROUP, NOISE, RATE = 3, 1.0, 0.3
PAIR = mechanisms.worst_case_pair(records=17, dimension=1, clip=1.0, relation="zero_out", group=GROUP)
STEPS = pytest.mark.parametrize("steps", [1, pytest.param(10, marks=pytest.mark.long)])
"""The composed claims of many steps take longer than their audits."""


def training(sampler, sees):
    return mechanisms.many_rounds(sampler=sampler, clip=1.0, noise_multiplier=NOISE, sees=sees, group=GROUP).collapsed()


def poisson(steps):
    return training(sampling.poisson(rate=RATE, steps=steps), "isolated")


def poisson_claim(group, steps):
    return guarantees.poisson_training(
        rate=RATE, noise_multiplier=NOISE, steps=steps, relation="zero_out", accountant="certified", group=group
    )


def judge(step, claim):
    ratio = distinguishers.likelihood_ratio(step, PAIR)
    return audit.run_audit(step, PAIR, ratio, claim=claim, trials=4000, risk=0.01, key=KEY, diagnose=False)


@pytest.mark.long
@STEPS
def test_a_right_training_keeps_the_claim_for_its_group(steps):
    claim = poisson_claim(GROUP, steps)
    record = judge(poisson(steps), claim)
    assert record.verdict == "no_violation_found"
    # nearly all that the claim allows is found, so a smaller one would not do
    assert record.delta(epsilon=0.0) > 0.85 * claim.total_variation
    assert record.neighbours.parameters["group"] == GROUP


@pytest.mark.long
@STEPS
def test_the_claim_for_one_record_is_refused_and_would_be_refuted(steps):
    step, single = poisson(steps), poisson_claim(1, steps)
    with pytest.raises(ValueError, match="the claim is about 1 differing record"):
        judge(step, single)
    assert judge(step, dataclasses.replace(single, group=GROUP)).verdict == "violation"


@pytest.mark.long
def test_a_group_in_one_batch_of_a_fixed_order():
    step = training(sampling.deterministic(batch_size=4), "updates")
    right = guarantees.deterministic_batches(noise_multiplier=NOISE, group=GROUP)
    assert judge(step, right).verdict == "no_violation_found"
    apart = dataclasses.replace(guarantees.deterministic_batches(noise_multiplier=NOISE, group=2), group=GROUP)
    assert judge(step, apart).verdict == "violation"


def test_a_battery_reads_a_group_and_the_ratio_of_one_round_refuses_it():
    pair = mechanisms.worst_case_pair(records=4, dimension=3, clip=1.0, group=2)
    names = [member.name for member in distinguishers.battery(pair).members]
    assert "projection" in names
    step = mechanisms.one_round(normalise_by="none", rate=0.5, clip=1.0, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="differs in one record, got 2"):
        distinguishers.likelihood_ratio(step, pair)
