"""A claim counts the steps that were taken: another number is refused, and where it cannot be seen it is said."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import audit
import guarantees
import mechanisms
from audit.claim_fits_pair import require_steps
from audit.report.page import write_report
from audit.report.promises import covered
from audit.report.short_story import ten_lines
from audit.report.text import record_lines
from audit.suites.plan import plan_audit

ROWS = np.eye(4, 3, dtype=np.float32)
PAIR = mechanisms.pair(ROWS[:3], ROWS)
ONE = guarantees.subsampled_gaussian(rate=1.0, noise_multiplier=1.0)


def init(key):
    return jnp.zeros(3)


def update(key, state, batch, mask):
    noisy = mask @ batch + jax.random.normal(key, (3,))
    return state - noisy, noisy


def coin(key, records):
    return jax.random.bernoulli(key, 0.5, (records,))


def three_steps(releases):
    return mechanisms.jax_training(init, update, coin, steps=3, releases=releases)


def numpy_rounds(seed, dataset):
    rng = np.random.default_rng(seed)
    return np.stack([(rng.random(len(dataset)) < 0.5) @ dataset + rng.standard_normal(3) for _ in range(3)])


def numpy_step(releases):
    """Compiles nothing."""
    return mechanisms.callable_step(lambda seed, dataset: numpy_rounds(seed, dataset)[0], releases=releases)


def traced_rounds(key, dataset):
    return jnp.zeros((3, 1)) + dataset.sum(0) + jax.random.normal(key, (3, 3))


def poisson(steps):
    return guarantees.poisson_training(rate=1.0, noise_multiplier=1.0, steps=steps)


def history(*steps, unit="training"):
    return guarantees.claim_from_history([(1.0, 1.0, own) for own in steps], unit=unit)


def event(count, unit="training"):
    accounting = pytest.importorskip("dp_accounting")
    one = accounting.PoissonSampledDpEvent(0.5, accounting.GaussianDpEvent(1.0))
    return guarantees.claim_from_event(accounting.SelfComposedDpEvent(one, count), unit=unit, spacing=0.01)


def judged(step, claim, **more):
    return audit.run_audit(
        step,
        PAIR,
        lambda y: y.sum(),
        claim=claim,
        trials=40,
        risk=0.05,
        key=jax.random.key(0),
        policy=audit.Fixed(thresholds=(0.0,), method="rectangle"),
        diagnose=False,
        **more,
    )


@pytest.mark.parametrize("claim", [poisson(5), history(5), history(2, 3), ONE.compose(5), lambda: event(5)])
@pytest.mark.parametrize("releases", ["transcript", "final"])
def test_a_claim_about_more_steps_than_were_taken_is_refused(claim, releases):
    claim = claim() if callable(claim) else claim
    with pytest.raises(ValueError, match=r"counts 5 steps.*'update' takes 3; state it for 3 steps"):
        judged(three_steps(releases), claim)


def test_a_training_of_unknown_length_takes_a_claim_that_says_one_step():
    step = three_steps("final")
    require_steps(step, poisson(1), taken=None)
    with pytest.raises(ValueError, match="is about one step"):
        require_steps(step, ONE, taken=None)


def test_one_step_is_not_counted_as_steps():
    with pytest.raises(ValueError, match=r"counts 1 step, and the training 'update' takes 3; state it for 3 steps"):
        judged(three_steps("final"), poisson(1))
    with pytest.raises(ValueError, match=r"counts 5 steps, and .* takes 1; state it for 1 step \(steps=1"):
        judged(mechanisms.jax_training(init, update, coin, steps=1, releases="final"), poisson(5))


def test_a_plan_refuses_it_before_its_pilot():
    """It drew 400 trials and planned what run then refused."""
    planned = SimpleNamespace(mechanism=three_steps("final"), neighbours=PAIR, claim=poisson(5))
    with pytest.raises(ValueError, match="counts 5 steps"):
        plan_audit(planned, risk=0.05, key=jax.random.key(0))


@pytest.mark.parametrize(
    "step",
    [
        three_steps("final"),
        mechanisms.callable_step(numpy_rounds, releases="transcript"),
        mechanisms.mechanism(traced_rounds, releases="transcript"),
        mechanisms.mechanism(three_steps("final"), clip=1.0),
        mechanisms.repeated(
            step=mechanisms.one_round(normalise_by="none", rate=0.5, clip=1.0, noise_multiplier=1.0), times=3
        ),
    ],
    ids=["jax_training", "foreign", "traced", "wrapped", "repeated"],
)
def test_wherever_steps_are_seen_they_are_compared(step):
    for claim in (poisson(2), poisson(7)):
        with pytest.raises(ValueError, match="takes 3"):
            judged(step, claim)


def test_simulated_trainings_are_compared_too():
    pair = mechanisms.worst_case_pair(records=7, dimension=1, clip=1.0, relation="zero_out")
    step = mechanisms.many_rounds(
        sampler=mechanisms.sampling.shuffle(batch_size=2), clip=1.0, noise_multiplier=1.0, epochs=2
    )
    for wrong in (
        guarantees.isolated_shuffle(rounds=4, noise_multiplier=1.0),
        guarantees.balls_and_bins(rounds=4, noise_multiplier=1.0),
        guarantees.fixed_batch_shuffle(rounds=9, noise_multiplier=1.0),
    ):
        for own in (step, step.collapsed()):
            with pytest.raises(ValueError, match="takes 8"):
                audit.run_audit(own, pair, claim=wrong, trials=40, risk=0.05, key=jax.random.key(0))


@pytest.mark.long
def test_an_accountant_may_count_fewer_and_the_record_says_so():
    """Public steps and correlated noise: not every step that is taken is counted."""
    record = judged(three_steps("transcript"), history(2))
    assert (record.steps, record.claim.steps) == (3, 2)
    assert "  steps:   3 taken, 2 counted by the claim" in record_lines(record)
    for taken, counted, told in (
        (3, None, "3 taken; the claim does not say how many it counts"),
        (None, 5, "the claim counts 5 steps, and how many the program took is not known to the audit: check it"),
        (None, None, "neither the claim nor the training says how many"),
    ):
        claim = dataclasses.replace(record.claim, steps=counted)
        assert f"  steps:   {told}" in record_lines(dataclasses.replace(record, claim=claim, steps=taken))
    for same in ({"steps": 2}, {"releases": "update"}):
        assert not any("steps:" in line for line in record_lines(dataclasses.replace(record, **same)))


@pytest.mark.parametrize("claim", [history(3, unit="step"), lambda: event(3, unit="step")])
def test_an_account_of_several_steps_is_not_one_steps(claim):
    claim = claim() if callable(claim) else claim
    with pytest.raises(ValueError, match="more than one step"):
        judged(three_steps("update"), claim)


def test_a_table_of_a_training_says_how_to_state_it_for_one_step():
    claim = guarantees.claim_from_table([(8.0, 1e-5)])
    with pytest.raises(ValueError, match=r"is for one training, .*claim_from_table\(\.\.\., unit='step'\)"):
        judged(numpy_step("update"), claim)
    assert judged(numpy_step("update"), guarantees.claim_from_table([(8.0, 1e-5)], unit="step")).ran


def test_an_epsilon_and_a_delta_are_about_what_is_released_unless_they_say_otherwise():
    stated = guarantees.epsilon_delta(epsilon=8.0, delta=1e-5)
    assert (stated.unit, dict(stated.parameters)) == ("release", {"epsilon": 8.0, "delta": 1e-5})
    training = guarantees.epsilon_delta(epsilon=8.0, delta=1e-5, unit="training")
    assert training.describe() == "epsilon_delta(epsilon=8.0, delta=1e-05, unit='training')"
    with pytest.raises(ValueError, match="is for one training"):
        judged(numpy_step("update"), training)
    assert covered(judged(numpy_step("update"), stated)) == "one release"
    assert covered(judged(numpy_step("final"), stated)).startswith("one release of the whole training; the claim does")
    assert covered(judged(numpy_step("final"), training)) == "one training"


@pytest.mark.long
def test_a_number_of_steps_that_nobody_checked_is_said_in_the_terminal_and_on_the_page(tmp_path):
    """4,700 steps were claimed for a program that takes 8, and nothing said that this was not checked."""
    step = mechanisms.callable_step(lambda seed, data: np.float32([seed % 7]), releases="final")
    record = judged(step, poisson(4700))
    assert record.steps is None
    assert "the claim counts 4,700 steps, and how many the program took is not known" in covered(record)
    assert "number of steps not checked: 1 audit" in " ".join(ten_lines((record,), width=200))
    page = write_report((record,), tmp_path, title="t").read_text()
    assert "the claim counts 4,700 steps, and how many the program took is not known to the audit" in page


def test_events_tell_their_steps_where_they_can_be_seen():
    accounting = pytest.importorskip("dp_accounting")
    gaussian = accounting.GaussianDpEvent(1.0)
    sampled = accounting.PoissonSampledDpEvent(0.5, gaussian)
    two_in_one = accounting.PoissonSampledDpEvent(1.0, accounting.ComposedDpEvent([gaussian, gaussian]))
    for own, steps in (
        (gaussian, 1),
        (sampled, 1),
        (accounting.SelfComposedDpEvent(gaussian, 4), 4),
        (accounting.ComposedDpEvent([accounting.SelfComposedDpEvent(sampled, 2), sampled]), 3),
        (accounting.ComposedDpEvent([sampled, accounting.NoOpDpEvent()]), 1),
        (accounting.SelfComposedDpEvent(accounting.ComposedDpEvent([gaussian, gaussian]), 3), None),
    ):
        assert guarantees.claim_from_event(own, spacing=0.01).steps == steps
    assert guarantees.claim_from_event(two_in_one, accountant="rdp").steps == 1


def test_claims_know_their_steps():
    assert ONE.steps == 1
    assert ONE.compose(4).steps == 4
    assert ONE.compose(4).compose_with(history(2, 3)).steps == 9
    assert ONE.compose_with(guarantees.gaussian(mu=1.0)).steps is None
    assert guarantees.gaussian(mu=1.0).compose(4).steps is None
    assert guarantees.deterministic_batches(noise_multiplier=1.0).steps is None
    assert guarantees.fixed_batch_shuffle(rounds=3, noise_multiplier=1.0).steps == 3
    assert (
        guarantees.normalised_round(normalise_by="none", records=4, rate=0.5, noise_multiplier=1.0, dimension=3).steps
        == 1
    )
