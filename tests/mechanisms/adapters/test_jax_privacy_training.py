"""A user's JAX Privacy plan as a training: seeds are the trial's, a right plan keeps its event, broken ones do not."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import assert_has_law
from scipy import stats

import audit
import mechanisms
from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.in_records import line_answers

pytest.importorskip("jax_privacy", reason="JAX Privacy is not installed: pip install dpsgd-audit[jax-privacy]")

import dp_accounting
import optax
from jax_privacy import batch_selection, noise_addition
from jax_privacy.experimental import execution_plan

STEPS, RATE, NOISE, CLIP = 4, 0.5, 1.0, 0.5
FEATURES = np.eye(5, 3, dtype=np.float32) * 4
DATA = {"x": FEATURES, "weight": np.ones(5, np.float32)}
NULL = {"x": FEATURES[0], "weight": np.float32(0)}
PAIR = mechanisms.zero_out(DATA, 0, null=NULL)
WEIGHTS = {"w": jnp.zeros(3), "b": jnp.zeros(())}
SEEDS = np.arange(300, dtype=np.uint64)


def loss(weights, batch):
    return jnp.mean(batch["weight"] * jnp.log1p(jnp.exp(batch["x"] @ weights["w"] + weights["b"])))


def config(**settings):
    given = {"iterations": STEPS, "strategy": [1.0], "sampling_prob": RATE, "noise_multiplier": NOISE}
    given |= {"epsilon": None, "delta": None, "l2_clip_norm": CLIP}
    return execution_plan.BandMFExecutionPlanConfig(**given | settings)


def training(plan=None, **settings):
    return mechanisms.jax_privacy_training(
        config() if plan is None else plan, loss, WEIGHTS, optax.sgd(0.1), **settings
    )


def flat(outputs):
    return np.concatenate([np.asarray(leaf).reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(outputs)], axis=-1)


def drawn(step, dataset=DATA, seeds=SEEDS):
    return flat(step.prepare(dataset)(seeds))


@dataclasses.dataclass(frozen=True)
class Given(batch_selection.BatchSelectionStrategy):
    """The same batches whatever the seed."""

    batches: tuple[tuple[int, ...], ...]

    def batch_iterator(self, num_examples, rng=None):
        return (np.array(batch, np.int32) for batch in self.batches)


def test_noise_is_the_plans_and_every_trial_has_its_own():
    nothing = {"x": FEATURES, "weight": np.zeros(5, np.float32)}
    found = drawn(training(), nothing)
    assert found.shape == (300, STEPS, 4)
    assert_has_law(found.ravel(), stats.norm(scale=NOISE).cdf)
    with pytest.raises(AssertionError, match="Kolmogorov"):
        assert_has_law(found.ravel(), stats.norm(scale=1.3 * NOISE).cdf)


def test_a_trial_depends_on_its_seed_alone():
    many = jax.tree.map(lambda column: np.repeat(column, 25, axis=0), DATA)
    step = training(steps=2)
    batches = step.plan.plan.batch_selection_strategy
    longest = [max(map(len, itertools.islice(batches.batch_iterator(125, rng=seed), 2))) for seed in range(4)]
    assert min(longest) <= 64 < max(longest), "batches of one width show nothing"
    np.testing.assert_array_equal(drawn(step, many, SEEDS[2:4]), drawn(step, many, SEEDS[:4])[2:])


@pytest.mark.long
def test_sums_are_those_of_the_plan_at_weights_that_move():
    batches = ((0, 3, 3), (), (4, 1))
    plan = dataclasses.replace(config(noise_multiplier=0.0).plan, batch_selection_strategy=Given(batches))
    rows, weights, expected = np.concatenate([np.ones((5, 1)), FEATURES], axis=1), np.zeros(4), []
    for batch in batches:
        gradients = [row / (1 + np.exp(-row @ weights)) for row in rows[list(batch)]]
        expected.append(sum((g / max(CLIP, np.linalg.norm(g)) for g in gradients), np.zeros(4)))
        weights = weights - 0.1 * expected[-1]
    np.testing.assert_allclose(drawn(training(plan), seeds=SEEDS[:2]), [expected] * 2, atol=1e-6)
    final = training(plan, releases="final").prepare(DATA)(SEEDS[:1])
    np.testing.assert_allclose(np.append(final["b"], final["w"][0]), -weights, atol=1e-6)
    update = training(plan, releases="update").prepare(DATA)(SEEDS[:1])
    np.testing.assert_allclose(np.append(update["b"], update["w"][0]), expected[0], atol=1e-6)


@pytest.mark.long
def test_the_other_arguments_of_clipped_grad_change_nothing_else():
    def one(weights, x, weight):
        return loss(weights, {"x": x, "weight": weight}), x

    step = mechanisms.jax_privacy_training(
        config(),
        one,
        WEIGHTS,
        optax.sgd(0.1),
        arguments={"batch_argnums": (1, 2), "keep_batch_dim": False, "has_aux": True, "microbatch_size": 2},
    )
    data = (DATA["x"], DATA["weight"])
    np.testing.assert_allclose(drawn(step, data, SEEDS[:8]), drawn(training(), seeds=SEEDS[:8]), atol=1e-5)
    np.testing.assert_allclose(step.gradients(data), training().gradients(DATA), atol=1e-6)


def test_gradients_are_not_clipped():
    expected = [np.concatenate([[0.5], 0.5 * row]) for row in FEATURES]
    np.testing.assert_allclose(training().gradients(DATA), expected, atol=1e-6)
    assert not training().gradients(PAIR.without)[0].any()


def test_a_key_that_cannot_be_set_is_refused_and_a_function_of_a_key_taken():
    def dense(key):
        noise = noise_addition.matrix_factorization_privatizer(np.eye(STEPS), stddev=NOISE, prng_key=key)
        return dataclasses.replace(config().plan, noise_addition_transform=noise)

    with pytest.raises(ValueError, match="this state holds 0 keys"):
        training(dense(jax.random.key(0))).prepare(DATA)
    nothing = {"x": FEATURES, "weight": np.zeros(5, np.float32)}
    assert_has_law(drawn(training(dense), nothing).ravel(), stats.norm(scale=NOISE).cdf)
    old = noise_addition.gaussian_privatizer(stddev=NOISE, prng_key=jax.random.PRNGKey(0))
    plan = dataclasses.replace(config().plan, noise_addition_transform=old)
    np.testing.assert_array_equal(drawn(training(plan), seeds=SEEDS[:8]), drawn(training(), seeds=SEEDS[:8]))


@functools.cache
@functools.cache
def promised():
    return training().claim()


@pytest.mark.long
def test_the_claim_is_that_of_the_plans_event():
    accountant = dp_accounting.pld.PLDAccountant().compose(config().plan.dp_event)
    assert (promised().relation, promised().unit) == ("zero_out", "training")
    assert promised().epsilon(1e-3) == pytest.approx(accountant.get_epsilon(1e-3), rel=1e-3)
    independent = config(
        partition_type=batch_selection.PartitionType.INDEPENDENT,
        accountant=dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE),
    )
    one = training(independent, releases="update").claim()
    assert (one.relation, one.unit) == ("add_remove", "step")
    assert one.epsilon(1e-3) < promised().epsilon(1e-3)


def test_a_claim_for_other_neighbours_is_refused():
    with pytest.raises(ValueError, match="relation must be given, because a bare plan"):
        training(config().plan).claim()
    with pytest.raises(ValueError, match="relation must be that of the plan, zero_out"):
        training().claim(relation="add_remove")


def towards_the_record(output):
    """The record's share of all sums: its gradient is (1, 4, 0, 0) times a number, the bias first."""
    return (output[:, 0] + 4 * output[:, 1]).sum()


def judge(plan, score=towards_the_record, claim=None):
    given = {"claim": claim or promised(), "trials": 1500, "risk": 0.01, "key": jax.random.key(3)}
    return audit.run_audit(training(plan), PAIR, score, **given, diagnose=False)


BROKEN = {
    "less noise": lambda right: dataclasses.replace(config(noise_multiplier=NOISE / 3).plan, dp_event=right.dp_event),
    "batches never drawn": lambda right: dataclasses.replace(right, batch_selection_strategy=Given(((0, 1),) * STEPS)),
    "the noise has one key": lambda right: lambda key: right,
}


@pytest.mark.long
def test_a_right_plan_keeps_its_promise():
    record = judge(config())
    assert (record.verdict, record.releases) == ("no_violation_found", "transcript")
    assert "PoissonSampledDpEvent" in record.mechanism.parameters["event"]


@pytest.mark.few(1)
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_plan_does_not(broken):
    assert judge(BROKEN[broken](config().plan)).verdict == "violation"


@pytest.mark.long
@pytest.mark.parametrize(("groups", "verdict"), [(3, "no_violation_found"), (1, "violation")])
def test_banded_noise_needs_as_many_groups_as_bands(groups, verdict):
    right = config(strategy=[1.0, 0.5, 0.25], iterations=9)
    batches = batch_selection.CyclicPoissonSampling(sampling_prob=RATE, iterations=9, cycle_length=groups)
    plan = dataclasses.replace(right.plan, batch_selection_strategy=batches)
    assert judge(plan, claim=training(right).claim()).verdict == verdict


@pytest.mark.long
@pytest.mark.parametrize("broken", [None, *BROKEN])
def test_the_default_battery_needs_no_score(broken):
    plan = config() if broken is None else BROKEN[broken](config().plan)
    assert judge(plan, score=None).verdict == ("no_violation_found" if broken is None else "violation")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"plan": 3}, "plan must be a DPExecutionPlan"),
        ({"releases": "all"}, "releases must be one of"),
        ({"steps": 0}, "steps must be an integer >= 1"),
        ({"arguments": {"prng_argnum": 2}}, "without prng_argnum"),
    ],
)
def test_bad_trainings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        training(**settings)
    with pytest.raises(ValueError, match="at least 9 batches"):
        training(steps=9).prepare(DATA)(SEEDS)


@pytest.mark.parametrize("broken", [None, "less noise"])
def test_after_a_violation_the_lines_are_the_librarys_and_none_of_ours(broken):
    plan = config() if broken is None else BROKEN[broken](config().plan)
    told, _ = line_answers(training(plan, steps=2), PAIR, key=jax.random.key(0), stated=Stated(noise_multiplier=NOISE))
    files = [path for answer in told for path, _ in answer.lines]
    assert files == ([] if broken is None else ["jax_privacy/noise_addition.py"] * 2 + ["jax_privacy/clipping.py"])
