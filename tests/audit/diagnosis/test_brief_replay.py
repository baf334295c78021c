"""Without a violation JAX code of few equations is replayed, too, and the verdict stays as counted."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import distinguishers
import guarantees
import mechanisms
from audit.diagnosis.explain import Kind
from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.jaxprs import follow
from audit.policies.fixed import Fixed
from audit.procedure import run_audit
from audit.report.table import print_table
from audit.report.text import record_lines

PAIR = mechanisms.worst_case_pair(records=3, dimension=4, clip=1.0)


def right(key, rows, noise=1.0):
    total = (rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1.0)).sum(0)
    return total + noise * jax.random.normal(key, total.shape)


def half(key, rows):
    return right(key, rows, noise=0.5)


def long(key, rows):
    """The same in a hundred steps."""
    return jax.lax.scan(lambda state, own: (state + half(own, rows), None), 0.0 * rows[0], jax.random.split(key, 100))[
        0
    ]


def audited(step, **more):
    return run_audit(
        step,
        PAIR,
        distinguishers.projection(PAIR),
        claim=guarantees.gaussian(mu=1.0),
        trials=20,
        risk=0.05,
        key=jax.random.key(2),
        policy=Fixed(thresholds=(0.0,), method="rectangle"),
        **more,
    )


def test_what_a_brief_replay_finds_is_kept_beside_the_verdict():
    record = audited(half)
    assert record.verdict != "violation"
    (found,) = record.diagnoses
    assert found.code == "line:too_little_noise"
    assert "noise multiplier of 0.5, but 1 is claimed" in found.says
    silent = audited(half, diagnose=False)
    same = dataclasses.replace(silent, diagnoses=record.diagnoses, diagnose=True)
    assert dataclasses.replace(same, seconds=0.0, started="") == dataclasses.replace(record, seconds=0.0, started="")


@pytest.mark.long
def test_right_code_is_not_accused():
    assert audited(right).diagnoses == ()


@pytest.mark.parametrize(("step", "kind"), [(half, Kind.TOO_LITTLE_NOISE), (long, Kind.NOT_FOLLOWED)])
def test_long_programs_are_not_replayed_in_brief(step, kind):
    stated = Stated(noise_multiplier=1.0)
    own = mechanisms.mechanism(step)
    found = follow(own, PAIR, key=jax.random.key(0), stated=stated, brief=True).findings
    assert [one.kind for one in found] == [kind]


@pytest.mark.long
def test_a_run_says_that_a_long_program_was_not_replayed(capsys):
    record = audited(lambda key, rows: long(key, rows))
    said = "without a violation so long a program is not replayed; `dpsgd-audit explain` replays it"
    assert [answer.wrong for answer in record.diagnoses] == [False]
    (line,) = (line for line in record_lines(record) if said in line)
    assert line.startswith("  replay:  Not judged: ")
    print_table((record,), suite_risk=0.05)
    assert said in " ".join(capsys.readouterr().out.split())
