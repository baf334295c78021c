import importlib.util
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from checks import FALSE_FAILURE, assert_rate_at_most
from scipy import stats
from zoo.faults import zoo

from mechanisms.pairs.neighbours import materialise

ZOO = zoo()
NAMES = [fault.name for fault in ZOO]
BLIND = {"cut_tails"}
"""No test sees this in the budget; the table of benchmarks/zoo_table.py says so too."""
GAUSSIAN = [fault for fault in ZOO if fault.truth is not None and fault.truth.name == "gaussian"]
FAST = ("clipped_per_layer", "noise_shared_by_virtual_steps", "four_steps_for_one")
"""The truths checked in every run; all of them in the long one."""


def benchmark():
    path = Path(__file__).parents[2] / "benchmarks" / "zoo_table.py"
    spec = importlib.util.spec_from_file_location("zoo_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def drawn(step, dataset, seed, trials=400):
    keys = jax.random.split(jax.random.key(seed), trials)
    rows = materialise(dataset)
    return np.asarray(jax.jit(jax.vmap(lambda key: step(key, rows)))(keys), float)


def test_the_zoo_has_at_least_twenty_bugs_each_with_a_reference():
    assert len(set(NAMES)) == len(NAMES) >= 20
    assert all(fault.reference and fault.says and fault.seen_by for fault in ZOO)


@pytest.mark.parametrize("fault", ZOO, ids=NAMES)
def test_a_bug_leaks_more_than_its_claim_where_the_truth_is_known(fault):
    if fault.truth is None:
        pytest.skip("no closed form on this pair")
    epsilons = np.linspace(0, 3, 31)
    assert np.max(np.asarray(fault.truth.delta(epsilons)) - np.asarray(fault.claim.delta(epsilons))) > 1e-3


def test_a_zero_gradient_known_to_the_compiler_is_clipped_to_zero():
    fault = ZOO[NAMES.index("four_steps_for_one")]
    rows = fault.neighbours.with_record.dense()
    assert np.isfinite(jax.jit(lambda key: fault.step(key, rows))(jax.random.key(0))).all()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, id=f.name, marks=() if f.name in FAST else pytest.mark.long) for f in GAUSSIAN],
)
def test_the_stated_mu_is_the_shift_over_the_noise(fault):
    """Mean shift and deviation of 400 releases a side, each within limits of false-failure probability 1e-6."""
    without = drawn(fault.step, fault.neighbours.without, 1)
    with_record = drawn(fault.step, fault.neighbours.with_record, 2)
    pooled = np.concatenate([without - without.mean(0), with_record - with_record.mean(0)])
    degrees = pooled.size - 2 * pooled.shape[1]
    deviation = np.sqrt(np.sum(pooled**2) / degrees)
    shift = with_record.mean(0) - without.mean(0)
    truth = fault.truth.parameters["mu"]
    # |shift|^2 / (2 deviation^2 / 400) is noncentral chi-square; the deviation's own error is far smaller
    square = np.sum(shift**2) / (2 * deviation**2 / 400)
    law = stats.ncx2(pooled.shape[1], truth**2 * 200)
    p = 2 * min(law.cdf(square), law.sf(square))
    assert p > FALSE_FAILURE, f"mu {np.sqrt(square / 200):.3f} where {truth:.3f} is stated, p = {p:.1e}"
    wrong = stats.ncx2(pooled.shape[1], (1.5 * truth) ** 2 * 200)
    assert 2 * min(wrong.cdf(square), wrong.sf(square)) < FALSE_FAILURE


@pytest.mark.long
@pytest.mark.parametrize("fault", ZOO, ids=NAMES)
def test_every_bug_is_found_in_a_minute_or_listed_as_unseen(fault):
    found = benchmark().detect(fault, fault.step, jax.random.key(32), budget=60)
    if fault.name not in BLIND:
        assert found.verdict == "violation"


@pytest.mark.long
def test_right_implementations_are_rarely_accused():
    """200 audits of 1,000 trials of every right twin, looked at after each trial, at risk .05."""
    zoo_benchmark = benchmark()
    for index, fault in enumerate(ZOO):
        accused = zoo_benchmark.false_alarms(fault, jax.random.key(100 + index), repetitions=200, trials=1000)
        assert_rate_at_most(accused, 200, 0.05)
