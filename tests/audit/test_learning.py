"""Audits that are told nothing: what they learn from is drawn apart, recorded, and never judged."""

from __future__ import annotations

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import assert_rate_at_most
from zoo.library import FAULTS, LAYOUT, NOISE, TWO_STEPS, Library, dense_pair

import audit
import distinguishers
import guarantees
import mechanisms
from audit.trials.source import NonFiniteScoreError
from distinguishers.battery import Battery

KEY = jax.random.key(1)
CLAIM = guarantees.gaussian(mu=1.0)


@dataclasses.dataclass(frozen=True)
class NumpyStep:
    """The library behind the wider contract, all seeds of a batch at once."""

    library: Library

    @property
    def name(self) -> str:
        return self.library.fault

    @property
    def kind(self) -> str:
        return "transcript" if self.library.fault in TWO_STEPS else "vector"

    def prepare(self, dataset):
        gradients = np.asarray(dataset)

        def draw(seeds):
            rows = [self.library.outputs(np.random.default_rng(int(seed)), gradients, 1)[0] for seed in seeds]
            slices = self.library.layout.slices
            return {str(i): np.stack(rows)[..., part] for i, part in enumerate(slices)}

        return draw


def pair_of(seed: int, *, records: int = 1, hidden: bool = True) -> mechanisms.Neighbours:
    """A pair; hidden in lists, so that nothing reads gradients off it."""
    without, with_record = dense_pair(seed, records=records)
    sides = (without.tolist(), with_record.tolist()) if hidden else (without, with_record)
    return mechanisms.Neighbours(without=sides[0], with_record=sides[1], relation="add_remove")


def two_tensors(key, dataset):
    """Noise on the weights; the bias is bare."""
    total = dataset["x"].sum(axis=0)
    return {"bias": total[:1], "weights": total[1:] + jax.random.normal(key, (3,))}


def trees(gap: float) -> mechanisms.Neighbours:
    rows = jnp.full((3, 4), gap)
    return mechanisms.Neighbours(without={"x": rows[:2]}, with_record={"x": rows}, relation="add_remove")


@pytest.mark.long
def test_a_tensor_without_noise_is_found_at_once_and_the_record_says_by_whom():
    kept, fitted = [], []
    given = {"claim": CLAIM, "trials": 600, "risk": 0.05, "key": KEY, "diagnose": False}
    execution = audit.Execution(chunk=64, progress=kept.append, fitting=lambda *told: fitted.append(told))
    record = audit.run_audit(two_tensors, trees(1e-3), execution=execution, **given)
    assert record.verdict == "violation"
    assert record.fit_trials == 240 + 200
    # those that choose the score, then those that choose the thresholds, as they are drawn
    assert [told for told in fitted if told[0] == told[1]] == [(240, 240), (200, 200)]
    assert (64, 200) in fitted
    members = record.distinguisher.parameters["members"]
    assert record.distinguisher.parameters["learnt_from"] == 240
    assert members[0] == "learned"
    assert {point.member for point in record.points} <= set(members)
    assert len(set(members)) == len(members) == len(record.grids)
    again = audit.run_audit(two_tensors, trees(1e-3), execution=audit.Execution(chunk=64, resume=kept[0]), **given)
    assert again.points == record.points
    assert again.grids == record.grids


@pytest.mark.long
def test_an_audit_without_time_learns_from_the_fewest_outputs():
    record = audit.run_audit(
        two_tensors,
        trees(1e-3),
        distinguishers.fit(lambda output: output),
        claim=CLAIM,
        trials=600,
        risk=0.05,
        key=KEY,
        execution=audit.Execution(deadline=time.monotonic()),
        diagnose=False,
    )
    assert record.distinguisher.parameters["fit_without"] == 20
    assert record.trials < 600


def test_a_fit_output_that_is_not_finite_is_named_with_its_side():
    def breaks(key, dataset):
        return dataset["x"].sum(axis=0) / (len(dataset["x"]) == 2)

    with pytest.raises(NonFiniteScoreError, match="fit trial 0 on the side 'with'"):
        audit.run_audit(breaks, trees(1.0), claim=CLAIM, trials=400, risk=0.05, key=KEY)


@pytest.mark.long
def test_known_members_are_kept_where_gradients_can_be_had():
    pair = pair_of(1, hidden=False)
    step = mechanisms.one_round(normalise_by="none", rate=1.0, clip=1.0, noise_multiplier=1.0)
    learner = distinguishers.default_battery(pair, mechanism=step)
    rng = np.random.default_rng(0)
    found = learner.learn(KEY, *rng.normal(size=(2, 40, LAYOUT.size)).astype(np.float32), LAYOUT)
    names = [member.name for member in found.members]
    assert names[:5] == ["projection", "norm", "ratio", "contrast", "max_coordinate"]
    assert names[5] == "learned"
    other = dataclasses.replace(LAYOUT, rounds=2)
    found = learner.learn(KEY, *rng.normal(size=(2, 40, 2, LAYOUT.size)).astype(np.float32), other)
    assert found.members[0].name == "learned"
    aligned = mechanisms.worst_case_pair(records=2, dimension=9, clip=1.0)
    assert isinstance(distinguishers.default_battery(aligned, mechanism=step.collapsed()), Battery)


@pytest.mark.long
def test_foreign_code_is_learnt_from_too():
    step, pair = NumpyStep(Library("noise on the first tensor", rate=1.0)), pair_of(1)
    record = audit.run_audit(step, pair, claim=CLAIM, trials=400, risk=0.05, key=KEY, diagnose=False)
    assert record.verdict == "violation"
    assert record.fit_trials == 200 + 132


def shifted(gap: float, repetitions: int) -> int:
    """Violations found in N(0, 1) against N(gap, 1), claimed to be 1 apart, by audits that learn."""
    pair = mechanisms.Neighbours(without=np.zeros((1, 2)), with_record=np.full((1, 2), gap), relation="zero_out")

    def step(key, dataset):
        return dataset[0] / jnp.sqrt(2.0) + jax.random.normal(key, (2,))

    found = 0
    for seed in range(repetitions):
        record = audit.run_audit(
            step, pair, claim=CLAIM, trials=1000, risk=0.2, key=jax.random.key(seed), target="verdict", diagnose=False
        )
        found += record.verdict == "violation"
    return found


@pytest.mark.long
def test_a_right_mechanism_is_refuted_at_most_at_its_risk_by_what_was_learnt():
    assert_rate_at_most(shifted(1.0, 40), 40, 0.2)


@pytest.mark.long
def test_the_check_of_learnt_scores_can_fail():
    with pytest.raises(AssertionError):
        assert_rate_at_most(shifted(2.0, 40), 40, 0.2)


@pytest.mark.long
@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("fault", [*FAULTS, "none", "two right steps"])
def test_faults_are_found_with_and_without_gradients(fault, hidden):
    """At 2,000 fit and 4,000 judged trials per side over a pair of dense gradients, at 1e-3."""
    claim = guarantees.gaussian(mu=(2**0.5 if fault in TWO_STEPS else 1.0) / NOISE)
    record = audit.run_audit(
        NumpyStep(Library(fault, rate=1.0)),
        pair_of(1, hidden=hidden),
        claim=claim,
        trials=8000,
        risk=1e-3,
        key=KEY,
        target="verdict",
        diagnose=False,
    )
    assert record.verdict == ("violation" if fault in FAULTS else "no_violation_found")
