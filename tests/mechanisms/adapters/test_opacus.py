import functools

import jax
import numpy as np
import pytest
from checks import FALSE_FAILURE
from scipy import stats

import audit
import guarantees
import mechanisms
from audit.trials.foreign import BATCH_TRIALS, batch_size
from distinguishers import likelihood_ratio
from mechanisms.adapters.pytorch.for_opacus import opacus_step
from mechanisms.adapters.pytorch.opacus_claims import UnequalRatesWarning, opacus_claim
from mechanisms.adapters.trial_seeds import trial_seeds

pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")
pytest.importorskip("opacus", reason="Opacus is not installed: pip install dpsgd-audit[opacus]")

CLIP, NOISE = 0.1, 10.0
SEEDS = trial_seeds(np.array([3, 4], np.uint32), 0, 40)
PAIR = mechanisms.worst_case_pair(records=3, dimension=100, clip=CLIP)


@pytest.fixture(autouse=True, scope="module")
def _each_order_once():
    """Opacus takes a second for all orders of one step, and many tests here ask for the same step."""
    from opacus.accountants.analysis import rdp

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rdp, "_compute_rdp", functools.cache(rdp._compute_rdp))
        yield


def outputs(records, seeds=SEEDS, *, noise_multiplier=NOISE, **more):
    pair = mechanisms.worst_case_pair(records=records, dimension=100, clip=CLIP)
    step = opacus_step(batch_size=2, clip=CLIP, noise_multiplier=noise_multiplier, **more)
    return step.prepare(pair.without)(seeds)


def assert_noise_is(found, deviation):
    """Chi-square on the coordinates that carry no gradient; fails falsely with probability at most 1e-6."""
    rest = found[:, 1:].ravel() / deviation
    p = 2 * min(stats.chi2.cdf(np.sum(rest**2), rest.size), stats.chi2.sf(np.sum(rest**2), rest.size))
    assert p > FALSE_FAILURE, f"noise {rest.std() * deviation} where {deviation} was expected, p = {p:.1e}"


VARIANTS = [
    {},
    {"grad_sample_mode": "ghost"},
    {"grad_sample_mode": "fast"},
    {"grad_sample_mode": "functorch"},
    {"physical_batch": 1},
    {"clipping": "per_layer", "layers": 4},
]


@pytest.mark.few(2)
@pytest.mark.parametrize("more", VARIANTS, ids=str)
def test_opacus_divides_by_the_floor_of_the_expected_batch(more):
    assert_noise_is(outputs(3, **more), NOISE * CLIP)
    assert_noise_is(outputs(4, **more), NOISE * CLIP / 2)


@pytest.mark.parametrize(
    "more", [{"loss_reduction": "sum"}, {"loss_reduction": "sum", "grad_sample_mode": "ghost"}], ids=str
)
def test_a_sum_is_divided_by_nothing(more):
    assert_noise_is(outputs(4, **more), NOISE * CLIP)


def test_the_check_of_the_noise_can_fail():
    with pytest.raises(AssertionError, match="was expected"):
        assert_noise_is(outputs(4), NOISE * CLIP)


@pytest.mark.parametrize("mode", ["hooks", "ghost", "fast"])
def test_gradients_are_those_of_the_dataset_clipped(mode):
    """Without noise the update is minus clip times the size of the batch."""
    step = opacus_step(
        batch_size=4,
        clip=CLIP,
        noise_multiplier=0.0,
        loss_reduction="sum",
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    rows = np.zeros((4, 5), np.float32)
    rows[:, 2] = [0.05, 1.0, -2.0, 0.1]
    found = step.prepare(rows)(SEEDS[:2])
    np.testing.assert_allclose(found, [[0, 0, 0.05 + 0.1 - 0.1 + 0.1, 0, 0]] * 2, atol=1e-5)


def test_a_trial_depends_on_its_seed_alone():
    whole = outputs(4)
    np.testing.assert_array_equal(outputs(4, SEEDS[10:15]), whole[10:15])
    assert len(np.unique(whole[:, 1])) == len(SEEDS)


def test_fixed_batches_have_a_fixed_size():
    rows = np.ones((4, 1), np.float32)
    step = opacus_step(batch_size=2, clip=1.0, noise_multiplier=0.0, loss_reduction="sum", poisson_sampling=False)
    np.testing.assert_allclose(step.prepare(rows)(SEEDS), 2.0, atol=1e-4)
    poisson = opacus_step(batch_size=2, clip=1.0, noise_multiplier=0.0, loss_reduction="sum")
    assert len(np.unique(np.round(poisson.prepare(rows)(SEEDS)))) > 2


def test_a_float_floor_divides_by_zero():
    """int(49 * (1 / 49)) is 0: with 49 records and batches of one every update is infinite."""
    step = opacus_step(batch_size=1, clip=CLIP, noise_multiplier=NOISE)
    assert not np.isfinite(step.prepare(np.zeros((49, 3), np.float32))(SEEDS[:1])).any()
    assert np.isfinite(step.prepare(np.zeros((50, 3), np.float32))(SEEDS[:1])).all()


def test_a_number_can_stand_for_infinite_updates():
    step = opacus_step(batch_size=1, clip=CLIP, noise_multiplier=NOISE, infinite=1e6)
    assert (np.abs(step.prepare(np.zeros((49, 3), np.float32))(SEEDS[:1])) == 1e6).all()


def test_the_accountant_speaks_for_the_step_taken(monkeypatch):
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis import rdp

    orders, original = [], rdp._compute_rdp
    monkeypatch.setattr(rdp, "_compute_rdp", lambda q, sigma, order: orders.append(order) or original(q, sigma, order))
    counting = rdp._compute_rdp
    claim = opacus_claim(opacus_step(batch_size=2, clip=CLIP, noise_multiplier=NOISE), PAIR, accountant="rdp")
    # five deltas on two datasets take one Renyi epsilon of each order, and Opacus is left as it was
    assert sorted(orders) == sorted(RDPAccountant.DEFAULT_ALPHAS)
    assert rdp._compute_rdp is counting
    accountant = RDPAccountant()
    accountant.step(noise_multiplier=NOISE, sample_rate=0.5)
    assert claim.epsilon(1e-3) == pytest.approx(accountant.get_epsilon(1e-3))
    assert (claim.parameters["sample_rate"], claim.parameters["steps"]) == (0.5, 1)
    truth = float(guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=NOISE).epsilon(1e-5))
    assert truth <= float(claim.epsilon(1e-5)) < 1.3 * truth
    # at one delta the claim would allow an advantage of 0.098, of which the step has 0.020
    assert claim.parameters["deltas"] == (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    assert claim.delta(0.0) < 0.04


def test_a_claim_says_where_the_rate_itself_depends_on_the_record():
    """4 and 5 records in batches of 2: loaders of length 2 and 3."""
    pair = mechanisms.worst_case_pair(records=4, dimension=4, clip=CLIP)
    with pytest.warns(UnequalRatesWarning, match="0.5 without the record, 0.3333 with it") as seen:
        claim = opacus_claim(opacus_step(batch_size=2, clip=CLIP, noise_multiplier=NOISE), pair, accountant="rdp")
    assert seen[0].filename == __file__
    assert "violates the claim by itself" in claim.source


def test_the_gdp_accountant_promises_more_than_one_step_keeps():
    claim = opacus_claim(opacus_step(batch_size=2, clip=CLIP, noise_multiplier=NOISE), PAIR, accountant="gdp")
    assert float(claim.epsilon(1e-5)) < float(
        guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=NOISE).epsilon(1e-5)
    )


def test_a_delta_at_which_the_gdp_accountant_has_no_epsilon_is_left_out():
    """Its search for a root fails above the delta that it allows at epsilon 0, 0.028 here."""
    step = opacus_step(batch_size=2, clip=CLIP, noise_multiplier=NOISE)
    assert opacus_claim(step, PAIR, accountant="gdp").parameters["deltas"] == (1e-5, 1e-4, 1e-3, 1e-2)
    with pytest.raises(ValueError, match="the gdp accountant has an epsilon at one of them"):
        opacus_claim(step, PAIR, accountant="gdp", deltas=(0.1,))


def audited(model, trials, **more):
    step = opacus_step(batch_size=2, clip=CLIP, noise_multiplier=NOISE, **more)
    assumed = mechanisms.one_round(normalise_by=model, rate=0.5, clip=CLIP, noise_multiplier=NOISE)
    return audit.run_audit(
        step,
        PAIR,
        likelihood_ratio(assumed, PAIR),
        claim=opacus_claim(step, PAIR, accountant="rdp"),
        trials=trials,
        risk=0.05,
        key=jax.random.key(4),
        diagnose=False,
    )


@pytest.mark.long
def test_opacus_breaks_its_own_accountant():
    assert audited("floored_expected_batch", 200).verdict == "violation"


@pytest.mark.long
@pytest.mark.parametrize("more", [{"loss_reduction": "sum"}, {"expected_batch_size": 2}], ids=str)
def test_a_sum_or_a_fixed_batch_size_breaks_nothing(more):
    assert audited("none", 3000, **more).verdict == "no_violation_found"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"version": "0.11.0", "workers": 1}, "version must be one of"),
        ({"version": "0.15", "workers": 1}, "version must be one of"),
        ({"infinite": np.nan}, "infinite must be finite"),
        ({"expected_batch_size": -1}, "expected_batch_size must be > 0"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        opacus_step(batch_size=2, clip=CLIP, noise_multiplier=NOISE, **words)


@pytest.mark.parametrize("accountant", ["rdp", "prv", "gdp"])
def test_no_noise_has_no_claim(accountant):
    with pytest.raises(ValueError, match="noise_multiplier must be > 0"):
        opacus_claim(opacus_step(batch_size=2, clip=CLIP, noise_multiplier=0.0), PAIR, accountant=accountant)


def test_another_version_needs_a_process_of_its_own():
    with pytest.raises(ValueError, match="workers=1"):
        opacus_step(batch_size=2, clip=CLIP, noise_multiplier=NOISE, version="1.5.4")


IMAGES = mechanisms.image_pair(records=3)


def network_outputs(dataset, seeds=SEEDS[:8], *, network="classifier", noise_multiplier=NOISE, **more):
    step = opacus_step(batch_size=2, clip=CLIP, noise_multiplier=noise_multiplier, network=network, **more)
    return step.prepare(dataset)(seeds)


@pytest.mark.few(2)
@pytest.mark.parametrize("more", [{}, {"physical_batch": 1}, {"grad_sample_mode": "ghost"}], ids=str)
def test_a_networks_update_is_divided_by_the_floor_of_the_expected_batch(more):
    """Three images or four at rate 1/2: the gradients are a millionth of the noise's mean square."""
    assert_noise_is(network_outputs(IMAGES.without, **more), NOISE * CLIP)
    found = network_outputs(IMAGES.with_record, **more)
    assert found.shape == (8, 26_010)
    assert_noise_is(found, NOISE * CLIP / 2)
    with pytest.raises(AssertionError, match="was expected"):
        assert_noise_is(found, 1.01 * NOISE * CLIP / 2)


@pytest.mark.parametrize("mode", ["hooks", "ghost", "fast"])
def test_a_networks_gradients_are_clipped_one_by_one(mode):
    """Without noise and with every image in the batch, the update is the sum of gradients found without Opacus."""
    import torch

    from mechanisms.networks.for_torch import network

    step = opacus_step(
        batch_size=3,
        clip=CLIP,
        noise_multiplier=0.0,
        loss_reduction="sum",
        poisson_sampling=False,
        grad_sample_mode=mode,
        network="classifier",
    )
    found = step.prepare(IMAGES.without)(SEEDS[:1])[0]
    expected = np.zeros(26_010)
    net = network("classifier", columns=785)
    for row in torch.from_numpy(IMAGES.without).split(1):
        inputs, target = net.batch(row)
        parts = torch.autograd.grad(net.losses(net.model(*inputs), target).sum(), list(net.model.parameters()))
        gradient = torch.cat([part.ravel() for part in parts]).double().numpy()
        assert np.linalg.norm(gradient) > CLIP
        expected += CLIP * gradient / np.linalg.norm(gradient)
    # weights near 1 are read back to 6e-8, and Opacus adds 1e-6 to the norm
    np.testing.assert_allclose(found, expected, atol=5e-7)
    assert np.linalg.norm(found) <= 3 * CLIP


@pytest.mark.parametrize("network", ["classifier", "denoiser"])
def test_a_networks_trial_depends_on_its_seed_alone(network):
    whole = network_outputs(IMAGES.with_record, SEEDS[:3], network=network)
    np.testing.assert_array_equal(network_outputs(IMAGES.with_record, SEEDS[2:3], network=network), whole[2:])
    assert len(np.unique(whole[:, 5])) == 3


@pytest.mark.long
def test_the_denoiser_is_updated_by_clipped_gradients():
    found = network_outputs(IMAGES.without, SEEDS[:3], network="denoiser", noise_multiplier=0.0, loss_reduction="sum")
    assert found.shape == (3, 1_485_217)
    lengths = np.linalg.norm(found, axis=1)
    assert (lengths <= 3 * CLIP * (1 + 1e-4)).all()
    assert lengths.max() > 0.5 * CLIP


def test_a_network_is_updated_by_the_gradients_that_its_step_tells():
    step = opacus_step(
        batch_size=len(IMAGES.without),
        clip=1e3,
        noise_multiplier=0.0,
        loss_reduction="sum",
        poisson_sampling=False,
        network="classifier",
    )
    found, told = step.prepare(IMAGES.without)(SEEDS[:1])[0], step.gradients(IMAGES.without)
    assert told.shape == (len(IMAGES.without), 26_010)
    np.testing.assert_allclose(found, told.sum(axis=0), atol=1e-5)
    with pytest.raises(ValueError, match="the same in every trial"):
        opacus_step(batch_size=2, clip=CLIP, noise_multiplier=NOISE, network="denoiser").gradients(IMAGES.without)


def test_networks_read_images_only():
    with pytest.raises(ValueError, match="784 pixels and a label"):
        network_outputs(PAIR.without)


def test_long_outputs_are_asked_for_a_few_at_a_time():
    step = opacus_step(batch_size=2, clip=CLIP, noise_multiplier=NOISE, network="denoiser")
    assert step.coordinates == 1_485_217
    assert batch_size(step.coordinates) == 2
    assert batch_size(IMAGES.without.shape[1]) == BATCH_TRIALS


@pytest.mark.long
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_on_images_the_mean_is_found_out_and_the_sum_is_not_accused(reduction):
    """The same distinguisher by norm on the same images; for the sum 1,000 trials are too few to clear it."""
    step = opacus_step(
        batch_size=2, clip=CLIP, noise_multiplier=NOISE, network="classifier", loss_reduction=reduction, workers=2
    )
    supposed = mechanisms.one_round(normalise_by="floored_expected_batch", rate=0.5, clip=CLIP, noise_multiplier=NOISE)
    zero = mechanisms.zero_pair(records=3, dimension=26_010, clip=CLIP)
    record = audit.run_audit(
        step,
        IMAGES,
        likelihood_ratio(supposed, zero),
        claim=guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=NOISE),
        trials=1000,
        risk=0.05,
        key=jax.random.key(6),
        policy=audit.Split(fit_trials=200),
        diagnose=False,
    )
    assert (record.verdict == "violation") == (reduction == "mean")
