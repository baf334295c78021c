"""One call: canaries that do not hide one another, one training, a verdict; in NumPy, PyTorch and JAX."""

import importlib.util
import re
import warnings

import numpy as np
import pytest
from checks import assert_rate_at_most

import audit
import guarantees
from audit.bounds.counted_guesses import Guesses
from audit.one_run.procedure import judged
from audit.one_run.training import AnotherClipWarning
from audit.record.of_one_run import as_record, judged_again
from audit.report.figures import drawn, overview
from audit.report.look_again import look_again
from audit.report.statement import model_card
from mechanisms.pairs.coordinate_canaries import CHUNK, coordinate_canaries

WEIGHTS, NOISE = 600, 1.0


def steps_of(canaries, add, *, rate=1.0, steps=1):
    """What every step shows; ``add`` sums clipped rows and adds noise."""
    for joining in canaries.batches(steps):
        yield canaries.seen(add(canaries.rows(joining)))


def numpy_training(noise, *, steps=1, seed=3):
    rng = np.random.default_rng(seed)

    def add(chunks):
        total = np.zeros(WEIGHTS)
        for rows in chunks:
            total += (rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))).sum(0)
        return total + noise * rng.normal(size=WEIGHTS)

    return lambda canaries: steps_of(canaries, add, steps=steps)


def test_canaries_are_rows_of_one_coordinate_in_chunks_of_one_shape():
    canaries = coordinate_canaries(WEIGHTS, places=100, each=3, length=7.0, seed=5)
    (joining,) = canaries.batches(1)
    assert len(joining) == canaries.coins.sum(), "everybody joins a full batch"
    chunks = list(canaries.rows(joining))
    assert {rows.shape for rows in chunks} == {(CHUNK, WEIGHTS)}, "whatever the batch, memory is one chunk"
    total = np.sum([rows.sum(0) for rows in chunks], axis=0)
    np.testing.assert_array_equal(canaries.seen(total), 7.0 * canaries.coins.sum(1))
    assert np.count_nonzero(total) <= 100
    in_parts = [total[:10].reshape(2, 5), total[10:]]
    np.testing.assert_array_equal(canaries.seen(in_parts), canaries.seen(total))
    with pytest.raises(ValueError, match="600 numbers"):
        canaries.seen(total[1:])
    with pytest.raises(ValueError, match="at most the 600 weights"):
        coordinate_canaries(WEIGHTS, places=601)


def test_poisson_batches_have_the_rate_and_are_drawn_apart_from_the_coins():
    canaries = coordinate_canaries(WEIGHTS, places=500, rate=0.3, seed=6)
    sizes = [len(joining) for joining in canaries.batches(200)]
    trials = 200 * int(canaries.coins.sum())
    assert_rate_at_most(sum(sizes), trials, 0.31)
    assert_rate_at_most(trials - sum(sizes), trials, 0.71)
    assert not np.array_equal(canaries.coins, coordinate_canaries(WEIGHTS, places=500, seed=7).coins)


def test_scores_are_the_likelihood_ratio_with_the_other_coins_known():
    canaries = coordinate_canaries(40, places=40, each=2, rate=0.5, seed=8)
    seen = np.linspace(-1.0, 3.0, 40)[None, :]

    def density(own):
        found = np.zeros(40)
        for i, other in enumerate(canaries.coins[:, 0]):
            for a, b in np.ndindex(2, 2):
                chance = (0.5 if own else a == 0) * (0.5 if other else b == 0)
                found[i] += chance * np.exp(-((seen[0, i] - a - b) ** 2) / 2 / 0.8**2)
        return found

    expected = np.log(density(True) / density(False))
    np.testing.assert_allclose(canaries.scores(seen, clip=1.0, noise_multiplier=0.8), expected, rtol=1e-9)


def test_revealed_canaries_do_not_hide_the_one_that_is_guessed():
    setting = {"weights": WEIGHTS, "places": WEIGHTS, "noise_multiplier": 0.5, "delta": 0.0, "seed": 9}
    alone, among = (audit.one_training(numpy_training(0.5), each=each, **setting) for each in (1, 8))
    assert among.epsilon(0.0) > 0.7 * alone.epsilon(0.0) > 1.0
    canaries = coordinate_canaries(WEIGHTS, places=WEIGHTS, each=8, seed=9)
    (seen,) = numpy_training(0.5)(canaries)
    plain = audit.one_run(seen, canaries.guessed, risk=0.05, delta=0.0)
    assert plain.epsilon(0.0) < 0.5 * among.epsilon(0.0), "scores that do not know the revealed coins"
    assert any("7 have revealed coins" in condition for condition in among.conditions)
    assert any("seed 9, which drew the coins" in condition for condition in alone.conditions)


def test_a_training_that_keeps_its_claim_is_not_accused_and_one_with_a_third_of_the_noise_is():
    claim = guarantees.gaussian(mu=1.0)
    setting = {"weights": WEIGHTS, "places": WEIGHTS, "noise_multiplier": NOISE, "claim": claim}
    accused = sum(
        audit.one_training(numpy_training(NOISE, seed=seed), seed=seed, **setting).verdict == "violation"
        for seed in range(8)
    )
    assert_rate_at_most(accused, 8, 0.05)
    assert audit.one_training(numpy_training(NOISE / 3), **setting).verdict == "violation"


def test_advice_on_more_canaries_says_what_to_do_where_they_have_no_room():
    """'About 1,400 canaries would be enough', of a model with 665 weights, and nothing that helps."""
    claim = guarantees.poisson_training(rate=0.25, noise_multiplier=1.1, steps=20, accountant="certified")
    sides = {"guessed_in": 42, "guessed_out": 42, "right_in": 38, "right_out": 38}
    found = (Guesses(**sides, canaries=600, risk=0.02),)
    reason = {weights: judged(found, claim, delta=1e-5, weights=weights).reason for weights in (665, 3000, None)}
    more = re.search(r"has 665: of 665 canaries guess more, guesses=\[\((\d+), (\d+)\)\], fixed", reason[665])
    fewer, power = [int(side) for side in more.groups()], []
    for k in (fewer[0], 42):
        right = Guesses(guessed_in=k, guessed_out=k, right_in=k - 1, right_out=k, canaries=665, risk=0.02)
        power.append(judged((right,), claim, delta=1e-5).verdict)
    assert power == ["violation", "inconclusive"]
    assert max(fewer) < 98, "of fewer canaries the same number shows more"
    assert reason[3000] == reason[None]
    assert "(98, 98)" in reason[None]


def test_a_model_too_small_for_any_number_of_guesses_is_told_so_in_its_record_too():
    claim = guarantees.gaussian(mu=3.0)
    given = {"weights": WEIGHTS, "places": 60, "noise_multiplier": NOISE, "claim": claim}
    found = audit.one_training(numpy_training(NOISE), **given)
    assert "the model has 600: as many guesses as there are weights would not be enough. Use a larger" in found.reason
    record = as_record(found)
    assert look_again([record]).startswith("Train a larger model, or several times, with canaries")
    assert record.reason == found.reason == judged_again(record, claim).reason


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_pytorch_updates_are_read_as_they_come():
    import torch

    def add(chunks):
        rows = torch.cat([torch.from_numpy(each) for each in chunks])
        clipped = rows / rows.norm(dim=1, keepdim=True).clamp(min=1.0)
        total = clipped.sum(0) + 0.3 * torch.randn(WEIGHTS, generator=torch.Generator().manual_seed(1))
        return [torch.nn.Parameter(part) for part in total.split([100, 500])]

    found = audit.one_training(
        lambda canaries: steps_of(canaries, add), weights=WEIGHTS, places=WEIGHTS, noise_multiplier=0.3
    )
    assert found.epsilon(1e-5) > 2


def test_jax_updates_are_read_as_they_come():
    import jax

    def add(chunks):
        total = sum((rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))).sum(0) for rows in chunks)
        return jax.numpy.asarray(total) + 0.3 * jax.random.normal(jax.random.key(0), (WEIGHTS,))

    found = audit.one_training(
        lambda canaries: steps_of(canaries, add), weights=WEIGHTS, places=WEIGHTS, noise_multiplier=0.3
    )
    assert found.epsilon(1e-5) > 2


def test_guesses_may_be_fixed_before_the_training():
    setting = {"weights": WEIGHTS, "places": 500, "noise_multiplier": NOISE, "risk": 0.05}
    found = audit.one_training(numpy_training(NOISE), guesses=[(30, 40)], **setting)
    assert [(each.guessed_in, each.guessed_out) for each in found.guesses] == [(30, 40)]


def test_a_training_that_moves_no_weight_is_refused_before_it_is_judged():
    def stuck(canaries):
        for _ in canaries.batches(3):
            yield canaries.seen(np.zeros(WEIGHTS))

    with pytest.raises(ValueError, match="in 3 steps no canary's coordinate moved, not even by noise"):
        audit.one_training(stuck, weights=WEIGHTS, places=WEIGHTS, noise_multiplier=1.0)


@pytest.mark.parametrize("seed", range(3))
def test_noise_of_the_same_seed_is_not_the_coins(seed):
    """`default_rng((seed, 0))` draws what `default_rng(seed)` does, and half of all trainings begin with the latter."""
    rng, claim = np.random.default_rng(seed), guarantees.epsilon_delta(epsilon=1.0, delta=0.0)

    def train(canaries):
        for joining in canaries.batches(1):
            rows = np.concatenate(list(canaries.rows(joining)))
            clipped = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
            yield canaries.seen(clipped.sum(0) - rng.laplace(size=WEIGHTS))

    found = audit.one_training(train, weights=WEIGHTS, places=WEIGHTS, noise_multiplier=1.4, claim=claim, seed=seed)
    assert found.verdict != "violation", found.epsilon(0.0)


def test_a_clip_that_is_not_the_trainings_is_told_and_its_own_is_not():
    given = {"weights": WEIGHTS, "places": WEIGHTS, "noise_multiplier": NOISE}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        audit.one_training(numpy_training(NOISE), **given)
    with pytest.warns(AnotherClipWarning, match=r"moves the noisy sum by about (0\.9|1\.).* and clip=2 implies 2"):
        audit.one_training(numpy_training(NOISE), **given, clip=2.0)


def test_the_card_says_what_was_seen_and_how_canaries_were_taken_and_names_are_numbered(tmp_path):
    claim = guarantees.epsilon_delta(epsilon=6.0, delta=1e-5)
    given = {"weights": WEIGHTS, "places": WEIGHTS, "noise_multiplier": NOISE, "rate": 0.5, "claim": claim}
    found = audit.one_training(numpy_training(NOISE, steps=2), **given)
    audit.save_records((found, found), tmp_path / "records.json")
    records = audit.load_records(tmp_path / "records.json")
    assert [record.name for record in records] == ["one training", "one training (2)"]
    card = model_card(records, title="once")
    assert "the noisy sum of every update (2 in all) in the coordinates of the canaries" in card
    assert "| sampler used | Poisson batches at rate 0.5, drawn by canaries.batches" in card
    with drawn(tmp_path / "one.svg", width=3.3, height=2.0) as axes:
        overview(records, axes)
        assert "ceiling" in axes.get_legend_handles_labels()[1]
        (ceilings,) = [line for line in axes.lines if line.get_label() == "ceiling"]
    np.testing.assert_allclose(ceilings.get_xdata(), [record.one_run.most(record.report_delta) for record in records])
