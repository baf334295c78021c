"""Sums that are bounded in place of their records, in a network whose gradients do not grow with the record."""

from __future__ import annotations

import jax
import pytest
from diagnosis import network_steps
from diagnosis.replayed import marked_lines

from audit.diagnosis.explain import explain

SEEDS = [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)]


def told(step, seed):
    return explain(step, network_steps.added(), key=jax.random.key(seed), noise_multiplier=network_steps.NOISE)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", network_steps.RIGHT)
def test_a_sum_of_clipped_records_may_be_bounded_again(name, seed):
    explanation = told(network_steps.RIGHT[name], seed)
    assert explanation.findings == (), explanation.findings[0].says


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", network_steps.FAULTY)
def test_a_sum_that_is_bounded_in_place_of_its_records_is_found(name, seed):
    step = network_steps.FAULTY[name]
    found = told(step, seed).findings
    assert [one.kind for one in found] == ["clipped_after_sum"], found
    assert {line for _, line in found[0].lines} & marked_lines(step), found[0].lines
