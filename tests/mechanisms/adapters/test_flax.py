"""One round of DP-SGD on a Flax network: its noise, its divisors, its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import FALSE_FAILURE
from scipy import stats

import audit
import guarantees
import mechanisms
from distinguishers import battery, likelihood_ratio
from mechanisms.adapters.for_flax import flax_step
from mechanisms.pairs.images import image_pair
from mechanisms.simulators.rounds import clip_rows

CLIP, NOISE, SIZE = 0.1, 10.0, 26_010
PAIR = image_pair(records=4)


def drawn(step, dataset, trials=40, seed=3):
    keys = jax.random.split(jax.random.key(seed), trials)
    return np.asarray(jax.jit(jax.vmap(step, in_axes=(0, None)))(keys, dataset))


def dpsur(**words):
    settings = {"normalise_by": "realised_batch", "rate": 0.7, "clip": CLIP, "noise_multiplier": NOISE}
    return flax_step(**{**settings, "skip_empty": True, **words})


def assert_noise_is(found, deviation):
    """Chi-square; the gradients add at most 1e-5 to the mean square, a thousandth of its deviation."""
    total = np.sum((found.astype(np.float64) / deviation) ** 2)
    p = 2 * min(stats.chi2.cdf(total, found.size), stats.chi2.sf(total, found.size))
    assert p > FALSE_FAILURE, f"noise is not {deviation}, p = {p:.1e}"


@pytest.mark.long
def test_the_noise_is_divided_as_said():
    found = drawn(dpsur(normalise_by="expected_batch", rate=0.5, skip_empty=False), PAIR.with_record)
    assert found.shape == (40, SIZE)
    assert_noise_is(found, NOISE * CLIP / 2.5)
    with pytest.raises(AssertionError, match="noise is not"):
        assert_noise_is(found, 1.01 * NOISE * CLIP / 2.5)


@pytest.mark.long
def test_gradients_are_clipped_and_summed():
    """Almost without noise and with every record in the batch, the update is the mean of the clipped gradients."""
    step = dpsur(rate=1.0, noise_multiplier=1e-6)
    gradients = step.gradients(PAIR.without)
    lengths = np.linalg.norm(gradients, axis=1)
    assert (lengths > CLIP).all()
    expected = np.asarray(jax.jit(clip_rows, static_argnums=1)(gradients, CLIP)).mean(axis=0)
    np.testing.assert_allclose(drawn(step, PAIR.without, 1)[0], expected, atol=1e-6)
    assert np.linalg.norm(expected) <= CLIP


def test_gradients_are_those_of_finite_differences():
    step = dpsur()
    flat = step._flat
    row, loss = jnp.asarray(PAIR.without[0]), jax.jit(flat.loss)
    direction = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
    direction /= np.linalg.norm(direction)
    change = loss(flat.initial + 0.05 * direction, row) - loss(flat.initial - 0.05 * direction, row)
    np.testing.assert_allclose(step.gradients(PAIR.without)[0] @ direction, change / 0.1, rtol=0.01, atol=1e-3)


@pytest.mark.long
def test_an_empty_batch_leaves_the_parameters_as_they_are():
    dataset = PAIR.without[:1]
    skipped = drawn(dpsur(rate=0.5), dataset)
    kept = drawn(dpsur(rate=0.5, skip_empty=False), dataset)
    empty = (skipped == 0).all(axis=1)
    assert 0 < empty.sum() < len(empty)
    # two programs, which may add in another order
    np.testing.assert_allclose(skipped[~empty], kept[~empty], rtol=0, atol=1e-6)
    assert_noise_is(kept, NOISE * CLIP)


@pytest.mark.long
def test_the_realised_batch_divides():
    found = drawn(dpsur(), PAIR.with_record)
    sizes = NOISE * CLIP / found[(found != 0).any(axis=1)].std(axis=1)
    np.testing.assert_allclose(sizes, np.round(sizes), atol=0.15)
    assert len(np.unique(np.round(sizes))) > 2


@pytest.mark.long
def test_the_battery_reads_the_networks_gradients():
    members = battery(PAIR, mechanism=dpsur()).members
    assert [member.name for member in members] == ["projection", "norm", "ratio", "contrast", "max_coordinate"]
    quiet = dpsur(rate=1.0, noise_multiplier=1e-3, normalise_by="none")
    sides = [drawn(quiet, side, 1)[0] for side in (PAIR.without, PAIR.with_record)]
    first, second = (members[0](jax.random.key(0), output) for output in sides)
    assert float(second) - float(first) == pytest.approx(CLIP, rel=0.02)


def test_the_battery_supposes_zero_gradients_where_they_change():
    step = mechanisms.opacus_step(batch_size=2, clip=CLIP, noise_multiplier=NOISE, network="denoiser")
    assert [member.name for member in battery(PAIR, mechanism=step).members] == ["norm", "max_coordinate"]


def test_rows_that_are_no_images_are_refused():
    with pytest.raises(ValueError, match="784 pixels and a label"):
        dpsur()(jax.random.key(0), mechanisms.worst_case_pair(records=3, dimension=100, clip=CLIP).without)


@pytest.mark.long
def test_dpsur_leaks_more_than_its_accountant_says():
    step = dpsur(rate=0.8)
    model = mechanisms.one_round(normalise_by="realised_batch", rate=0.8, clip=CLIP, noise_multiplier=NOISE)
    zero = mechanisms.zero_pair(records=4, dimension=SIZE, clip=CLIP)
    claim = guarantees.subsampled_gaussian(rate=0.8, noise_multiplier=NOISE)
    words = {"claim": claim, "trials": 2000, "risk": 0.05, "key": jax.random.key(5)}
    assert audit.run_audit(step, PAIR, likelihood_ratio(model, zero), **words).verdict == "violation"
    right = dpsur(rate=0.8, normalise_by="none", skip_empty=False)
    assert audit.run_audit(right, PAIR, likelihood_ratio(model, zero), **words).verdict != "violation"


@pytest.mark.parametrize(
    ("words", "message"),
    [({"network": "denoiser"}, "network must be one of"), ({"rate": 0.0}, "rate must be in"), ({"clip": -1.0}, "clip")],
    ids=str,
)
def test_bad_settings_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        dpsur(**words)
