import jax
import numpy as np
import pytest
from checks import assert_has_law, assert_rate_is, assert_same_law
from scipy import stats

import audit
import guarantees
import mechanisms
from distinguishers import likelihood_ratio
from mechanisms.adapters.for_jax_privacy import jax_privacy_claim, jax_privacy_step
from mechanisms.adapters.for_optax import optax_claim, optax_step
from mechanisms.adapters.trial_seeds import trial_seeds
from mechanisms.pairs import gradient_pairs

CLIP, NOISE, RATE = 0.1, 10.0, 0.5
PAIR = mechanisms.worst_case_pair(records=3, dimension=100, clip=CLIP)
SEEDS = trial_seeds(np.array([8, 9], np.uint32), 0, 500)


def drawn(step, trials=500):
    keys = jax.random.split(jax.random.key(5), trials)
    return np.asarray(jax.jit(jax.vmap(lambda key: step(key, PAIR.without)))(keys))


def ours(normalise_by, rate=RATE):
    return mechanisms.one_round(normalise_by=normalise_by, rate=rate, clip=CLIP, noise_multiplier=NOISE)


def test_optax_divides_by_the_size_of_the_batch():
    step = optax_step(clip=CLIP, noise_multiplier=NOISE)
    found = drawn(step)[:, 1:].ravel()
    assert_has_law(found, stats.norm(0, NOISE * CLIP / 3).cdf)
    with pytest.raises(AssertionError, match="Kolmogorov"):
        assert_has_law(found, stats.norm(0, NOISE * CLIP / 3.2).cdf)


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_dpsgd_steps_against_the_aggregate():
    quiet, noisy = (optax_step(clip=CLIP, noise_multiplier=noise, transform="dpsgd") for noise in (0.0, NOISE))
    aggregate = optax_step(clip=CLIP, noise_multiplier=0.0)
    np.testing.assert_allclose(drawn(quiet, trials=2), -drawn(aggregate, trials=2), rtol=1e-6)
    assert_has_law(drawn(noisy)[:, 1:].ravel(), stats.norm(0, NOISE * CLIP / 3).cdf)


def test_optax_divides_poisson_batches_by_their_own_size():
    found = drawn(optax_step(clip=CLIP, noise_multiplier=NOISE, rate=RATE), trials=4000)
    empty = ~found.any(axis=1)
    assert_rate_is(int(empty.sum()), 4000, (1 - RATE) ** 3)
    sizes = np.arange(1, 4)
    weights = stats.binom.pmf(sizes, 3, RATE) / (1 - (1 - RATE) ** 3)

    def mixture(x):
        return stats.norm.cdf(np.asarray(x)[:, None], 0, NOISE * CLIP / sizes) @ weights

    assert_has_law(found[~empty, 1], mixture)
    with pytest.raises(AssertionError, match="Kolmogorov"):
        assert_has_law(found[~empty, 1], stats.norm(0, NOISE * CLIP).cdf)


@pytest.mark.long
@pytest.mark.parametrize("rate", [1.0, 0.9])
def test_optax_breaks_what_it_documents(rate):
    step = optax_step(clip=CLIP, noise_multiplier=NOISE, rate=rate)
    record = audit.run_audit(
        step,
        PAIR,
        likelihood_ratio(ours("realised_batch", rate), PAIR),
        claim=optax_claim(step),
        trials=1000,
        risk=0.05,
        key=jax.random.key(1),
        diagnose=False,
    )
    assert record.verdict == "violation"


def jax_privacy(**more):
    pytest.importorskip("jax_privacy", reason="JAX Privacy is not installed: pip install dpsgd-audit[jax-privacy]")
    return jax_privacy_step(rate=RATE, clip=CLIP, noise_multiplier=NOISE, **more)


def test_jax_privacy_gives_the_noisy_sum():
    found = jax_privacy().prepare(np.asarray(PAIR.without.dense()))(SEEDS)
    assert_has_law(found[:, 1:].ravel(), stats.norm(0, NOISE * CLIP).cdf)
    assert_same_law(found[:, 0], drawn(ours("none"))[:, 0])
    with pytest.raises(AssertionError, match="Kolmogorov"):
        assert_has_law(found[:, 1:].ravel(), stats.norm(0, NOISE * CLIP * 1.05).cdf)


def test_a_trial_of_jax_privacy_depends_on_its_seed_alone():
    rows = np.asarray(PAIR.without.dense())
    np.testing.assert_array_equal(
        jax_privacy().prepare(rows)(SEEDS[9:12]), jax_privacy().prepare(rows)(SEEDS[:20])[9:12]
    )


def judged(step, model):
    return audit.run_audit(
        step,
        PAIR,
        likelihood_ratio(ours(model), PAIR),
        claim=jax_privacy_claim(step),
        trials=2000,
        risk=0.05,
        key=jax.random.key(2),
    ).verdict


@pytest.mark.long
def test_jax_privacy_keeps_its_promise_unless_the_caller_divides_by_the_dataset():
    assert judged(jax_privacy(), "none") == "no_violation_found"
    assert judged(jax_privacy(normalise_by=2.0), "none") == "no_violation_found"
    assert judged(jax_privacy(normalise_by="expected_batch"), "expected_batch") == "violation"


def test_the_accountant_of_jax_privacy_agrees_with_ours():
    claim = jax_privacy_claim(jax_privacy())
    truth = float(guarantees.subsampled_gaussian(rate=RATE, noise_multiplier=NOISE).epsilon(1e-5))
    assert truth - 1e-9 <= float(claim.epsilon(1e-5)) < truth + 0.01
    assert claim.parameters["deltas"] == (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


ORTHOGONAL = gradient_pairs.orthogonal_pair(records=4, dimension=6, clip=CLIP, relation="zero_out").with_record


def members(sampler, rate, trials=3000, **more):
    """Who was in the batch, shape (trials, records): without noise the sum shows it."""
    pytest.importorskip("jax_privacy", reason="JAX Privacy is not installed: pip install dpsgd-audit[jax-privacy]")
    step = jax_privacy_step(rate=rate, clip=CLIP, noise_multiplier=0.0, sampler=sampler, **more)
    seeds = trial_seeds(np.array([1, 2], np.uint32), 0, trials)
    return np.rint(step.prepare(np.asarray(ORTHOGONAL.dense()))(seeds)[:, :5] / CLIP)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("sampler", "rate", "more"),
    [("poisson", 0.3, {}), ("balls_in_bins", 0.25, {}), ("b_min_sep", 0.3, {"min_sep": 3}), ("b_min_sep", 0.5, {})],
)
def test_one_batch_of_these_samplers_is_a_poisson_batch(sampler, rate, more):
    found = members(sampler, rate, **more)
    for record in found.T:
        assert_rate_is(int(record.sum()), len(found), rate)
    sizes = found.sum(axis=1)
    for size in range(6):
        assert_rate_is(int((sizes == size).sum()), len(found), stats.binom.pmf(size, 5, rate))
    with pytest.raises(AssertionError, match="two-sided p"):
        assert_rate_is(int(found[:, 0].sum()), len(found), rate + 0.1)


def test_batches_of_a_fixed_size_have_it():
    found = members("fixed_batch", 0.4)
    assert set(found.sum(axis=1)) == {2.0}
    for record in found.T:
        assert_rate_is(int(record.sum()), len(found), 0.4)


def test_samplers_refuse_rates_that_they_cannot_have():
    for sampler, rate, rule in (
        ("balls_in_bins", 0.3, "1 over the number of bins"),
        ("b_min_sep", 0.6, "at most 1 / min_sep"),
        ("shuffled", 0.5, "one of"),
    ):
        with pytest.raises(ValueError, match=rule):
            jax_privacy_step(rate=rate, clip=CLIP, noise_multiplier=NOISE, sampler=sampler)
    with pytest.raises(ValueError, match="whole number over the number of records, 5"):
        members("fixed_batch", 0.5)


def test_a_fixed_size_is_accounted_as_twice_the_sensitivity():
    claim = jax_privacy_claim(jax_privacy(sampler="fixed_batch"), deltas=(1e-5,))
    truth = float(guarantees.subsampled_gaussian(rate=RATE, noise_multiplier=NOISE / 2).epsilon(1e-5))
    assert claim.covers("substitution")
    assert truth - 1e-9 <= float(claim.epsilon(1e-5)) < truth + 0.01
