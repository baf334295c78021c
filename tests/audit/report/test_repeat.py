"""The Python of 'Repeat it' repeats the audit: what the mechanism was told, and how its thresholds were fixed."""

import dataclasses
import sys
from pathlib import Path

import foreign
import jax
import numpy as np
import pytest

import audit
import distinguishers
import guarantees
import mechanisms
from audit.record.record import SuitePart, plain
from audit.report.repeat import command_of, program
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


@pytest.mark.long
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
    assert "import foreign  # your own\n" in program(record)
    call = "step = mechanisms.callable_step(foreign.noisy_sum, clip=1.0, noise_multiplier=0.5, gradients=foreign.rows"
    assert call in program(record)


def noisy(key, rows):
    return rows.sum(0) + 0.5 * jax.random.normal(key, rows.shape[1:])


def remarked(key, rows):
    return noisy(key, rows)


remarked.parameters = {"batch": 4}


@pytest.mark.parametrize(
    ("own", "call"),
    [
        (mechanisms.callable_step(foreign.noisy_sum, settings={"at": 1}), "callable_step(foreign.noisy_sum, settings="),
        (mechanisms.mechanism(noisy, clip=1.0), f"mechanism({__name__}.noisy, clip=1.0)"),
        (mechanisms.mechanism(remarked, clip=1.0), f"mechanism({__name__}.remarked, clip=1.0)"),
    ],
)
def test_the_program_of_a_function_of_ones_own_gives_the_counts_of_its_record(own, call):
    """It said 'step = noisy_sum  # your own: import it', without the module or the adapter."""
    score = distinguishers.projection(PAIR)
    record = audit.run_audit(own, PAIR, score, **GIVEN, diagnose=False)
    told = program(record)
    assert f"step = mechanisms.{call}" in told
    names: dict[str, object] = {}
    exec(told, names)
    assert names["record"].points == record.points
    assert names["record"].mechanism == record.mechanism


def test_a_training_is_shown_with_its_adapter_its_functions_and_what_is_released(record):
    given = {"train": "study:train", "steps": 2, "loss": "study:<lambda>", "torch": "2.8.0", "opacus": "1.6.0"}
    own = dataclasses.replace(record.mechanism, name="train", parameters=given)
    told = program(dataclasses.replace(record, mechanism=own, releases="transcript"))
    assert "step = mechanisms.torch_training(study.train, steps=2, loss=loss, releases='transcript')\n" in told
    assert "import study  # your own\n# loss: your own study:<lambda>\n" in told
    script = dataclasses.replace(own, parameters={"train": "__main__:train"})
    told = program(dataclasses.replace(record, mechanism=script))
    assert "# train: your own __main__:train\n" in told
    assert "step = mechanisms.torch_training(train)\n" in told
    jaxed = dataclasses.replace(own, parameters=plain(training().parameters))
    told = program(dataclasses.replace(record, mechanism=jaxed, releases="transcript"))
    assert "step = mechanisms.jax_training(init=init, update=update, sampler={'kind': 'poisson'," in told
    compile(told, "told", "exec")


def test_datasets_of_ones_own_are_not_made_up(record):
    own = mechanisms.add_record(np.zeros((3, 6), np.float32), np.ones(6, np.float32))
    part = dataclasses.replace(record.neighbours, name=own.name, parameters=plain(own.parameters))
    told = program(dataclasses.replace(record, neighbours=part))
    assert "pair = ...  # your own data: mechanisms.add_record(...), records 3, relation add_remove" in told
    compile(told, "told", "exec")


def test_the_command_of_a_page_repeats_one_audit(record):
    """It repeated all audits of the suite."""
    within = dataclasses.replace(record, name="half it", suite=SuitePart(risk=0.05, audits=19, seed=4))
    whole = "dpsgd-audit run fed.toml --seed 4 --audit other --audit 'half it' --stop-early"
    assert command_of(within, whole) == "dpsgd-audit run fed.toml --seed 4 --stop-early --audit 'half it'"
    assert command_of(within) == "dpsgd-audit run SUITE.toml --seed 4 --trials 400 --audit 'half it'"
    assert command_of(within, "make audit") == "make audit"
    alone = dataclasses.replace(within, suite=SuitePart(risk=0.05, audits=1, seed=4))
    assert command_of(alone, "dpsgd-audit run fed.toml --seed 4") == "dpsgd-audit run fed.toml --seed 4"
    assert command_of(record) == ""


def test_every_function_that_is_told_is_recorded():
    gradients = foreign.rows_twice_as_long
    steps = (training(gradients=gradients), mechanisms.mechanism(lambda key, rows: rows.sum(0), gradients=gradients))
    assert [step.parameters["gradients"] for step in steps] == ["foreign:rows_twice_as_long"] * 2
    assert training(loss=foreign.noisy_sum).parameters["loss"] == "foreign:noisy_sum"
    assert "gradients" not in training().parameters
