"""Whatever a run diagnoses, its record is right as it was written; a diagnosis that no run writes is not."""

import dataclasses

import jax
import numpy as np
import pytest

import audit
import guarantees
import mechanisms
from audit.verify.procedure import verify

PAIR = mechanisms.worst_case_pair(records=2, dimension=8, clip=1.0)
WIDE = mechanisms.worst_case_pair(records=66, dimension=1000, clip=1.0)


def noise(seed, rows, scale=2.0):
    return scale * np.random.default_rng(seed).normal(size=rows.shape[1])


def kept():
    totals = {}

    def walk(seed, rows):
        before = totals.get(rows.tobytes(), np.zeros(rows.shape[1]))
        totals[rows.tobytes()] = 0.9 * before + rows.sum(axis=0) + noise(seed, rows)
        return totals[rows.tobytes()]

    return walk


def traced(key, rows):
    return rows.sum(axis=0) + 2 * jax.random.normal(key, rows.shape[1:])


FOREIGN = {
    "kept state": kept,
    "few seeds": lambda: lambda seed, rows: rows.sum(axis=0) + noise(seed % 50, rows),
    "too little noise": lambda: lambda seed, rows: rows.sum(axis=0) + noise(seed, rows, 1.0),
    "no noise": lambda: lambda seed, rows: rows.sum(axis=0),
    "constant": lambda: lambda seed, rows: np.zeros(rows.shape[1]),
    "cut": lambda: lambda seed, rows: np.clip(rows.sum(axis=0) + noise(seed, rows), -1, 1),
}


def audited(step, mu, *, pair=PAIR, trials=600):
    claim = guarantees.gaussian(mu=mu)
    return audit.run_audit(step, pair, claim=claim, trials=trials, risk=0.05, key=jax.random.key(0))


def wrong(record):
    return [check.says for check in verify([record]).checks if check.state == "wrong"]


@pytest.mark.few(1)
@pytest.mark.parametrize("mu", [0.3, 20.0])
@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_diagnosed_of_foreign_code_is_right(kind, mu):
    assert wrong(audited(mechanisms.callable_step(FOREIGN[kind]()), mu)) == []


@pytest.mark.long
def test_that_code_was_not_followed_is_right():
    record = audited(traced, 2.0, pair=WIDE, trials=40)
    (answer,) = record.diagnoses
    assert answer.code == "line:not_followed"
    assert wrong(record) == []
    assert wrong(dataclasses.replace(record, diagnoses=(answer, answer)))


@pytest.fixture(scope="module")
def dependent():
    record = audited(mechanisms.callable_step(kept()), 0.3, trials=1000)
    assert record.verdict == "violation"
    assert record.diagnoses[0].code == "dependent"
    return record


@pytest.mark.long
def test_the_direction_of_dependent_trials_is_found_where_it_was_added(dependent):
    other = audited(mechanisms.callable_step(FOREIGN["too little noise"]()), 0.3)
    assert other.diagnoses[-1].code == "leaks_more"
    assert wrong(dataclasses.replace(dependent, diagnoses=(*dependent.diagnoses, other.diagnoses[-1])))
    assert wrong(dataclasses.replace(other, diagnoses=other.diagnoses[:-1]))


def test_every_diagnosis_of_dependent_trials_is_primary(dependent):
    again = dataclasses.replace(dependent, diagnoses=2 * dependent.diagnoses)
    once, twice = ({each.key: each.values for each in verify([one]).primary} for one in (dependent, again))
    assert twice["diagnoses"] == 2 * once["diagnoses"] > 0
