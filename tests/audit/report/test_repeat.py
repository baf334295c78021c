"""The Python of 'Repeat it' repeats the audit: what the mechanism was told, and how its thresholds were fixed."""

import dataclasses
import sys
from pathlib import Path

import foreign
import jax
import numpy as np
import pytest

import audit
import guarantees
import mechanisms
from audit.report.repeat import program
from mechanisms import sampling

PAIR = mechanisms.worst_case_pair(records=3, dimension=6, clip=1.0)
SERVE = Path(__file__).parents[3] / "examples/command/serve.py"
GIVEN = {"claim": guarantees.gaussian(mu=2.0), "trials": 400, "risk": 0.05, "key": jax.random.key(3)}


@pytest.fixture(scope="module")
def record():
    step = mechanisms.command_step(
        command=(sys.executable, str(SERVE), "foreign:noisy_sum"),
        folder=str(Path(foreign.__file__).parent),
        clip=1.0,
        noise_multiplier=0.5,
        gradients=foreign.rows_twice_as_long,
    )
    return audit.run_audit(step, PAIR, policy=audit.Split(fit_trials=200), **GIVEN)


def test_the_program_gives_the_counts_of_the_record(record):
    names: dict[str, object] = {}
    exec(program(record), names)
    again = names["record"]
    assert again.points == record.points
    assert again.policy == record.policy
    assert again.mechanism == record.mechanism
    assert "learned" not in record.distinguisher.parameters["members"][0]


def test_the_record_says_which_gradients_were_told(record):
    assert record.mechanism.parameters["gradients"] == "foreign:rows_twice_as_long"
    assert "import foreign  # your own\n" in program(record)
    assert "gradients=foreign.rows_twice_as_long)" in program(record)


def test_gradients_that_nobody_can_import_are_named_as_the_readers_own(record):
    given = {**record.mechanism.parameters, "gradients": "study:<lambda>"}
    told = program(dataclasses.replace(record, mechanism=dataclasses.replace(record.mechanism, parameters=given)))
    assert "# gradients: your own study:<lambda>\n" in told
    assert "gradients=gradients)" in told
    compile(told, "told", "exec")


def training(**told):
    return mechanisms.jax_training(
        init=lambda key: np.zeros(3),
        update=lambda key, state, batch, mask: (state, state),
        sampler=sampling.poisson(rate=0.5, steps=1),
        steps=1,
        **told,
    )


def test_a_step_of_ones_own_is_shown_with_what_it_was_told():
    told = {"clip": 1.0, "noise_multiplier": 0.5, "gradients": foreign.rows_twice_as_long}
    own = mechanisms.callable_step(foreign.noisy_sum, **told)
    record = audit.run_audit(own, PAIR, lambda output: output[0], **GIVEN)
    (line,) = [line for line in program(record).splitlines() if line.startswith("step = ")]
    assert line.startswith("step = noisy_sum  # your own: import it as it was audited, with clip=1.0")
    assert "gradients=foreign:rows_twice_as_long" in line


def test_every_function_that_is_told_is_recorded():
    gradients = foreign.rows_twice_as_long
    steps = (training(gradients=gradients), mechanisms.mechanism(lambda key, rows: rows.sum(0), gradients=gradients))
    assert [step.parameters["gradients"] for step in steps] == ["foreign:rows_twice_as_long"] * 2
    assert training(loss=foreign.noisy_sum).parameters["loss"] == "foreign:noisy_sum"
    assert "gradients" not in training().parameters
