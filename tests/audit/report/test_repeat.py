"""'Repeat it' names the command of one audit, and a record says which functions its mechanism was told."""

import dataclasses

import foreign
import numpy as np
from made_records import made

import mechanisms
from audit.policies.catalogue import POLICIES
from audit.record.record import SuitePart
from audit.report.repeat import command_of
from mechanisms import sampling


def training(**told):
    return mechanisms.jax_training(
        init=lambda key: np.zeros(3),
        update=lambda key, state, batch, mask: (state, state),
        sampler=sampling.poisson(rate=0.5, steps=1),
        steps=1,
        **told,
    )


def test_the_command_of_a_page_repeats_one_audit():
    """It repeated all audits of the suite."""
    record = made("one", POLICIES["from_theory"](method="rectangle"), trials=400)
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
