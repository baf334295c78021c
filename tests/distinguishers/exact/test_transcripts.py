"""Likelihood ratios of transcripts: they have the law that guarantees computes, and are the density ratio."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import assert_rate_is
from scipy import stats

import distinguishers
import guarantees
import mechanisms
from mechanisms import sampling
from mechanisms.contract import Collapsed, Described

KEY = jax.random.key(5)
TRIALS = 20_000
ROUNDS, NOISE = 20, 0.8
PAIR = mechanisms.worst_case_pair(records=ROUNDS - 1, dimension=2, clip=1.0, relation="zero_out")


def training(sampler, *, noise=NOISE, **settings):
    return mechanisms.many_rounds(sampler=sampler, clip=1.0, noise_multiplier=noise, **settings).collapsed()


def scores(step, pair, distinguisher, trials=TRIALS):
    def one(number, dataset):
        own = jax.random.fold_in(KEY, number)
        return distinguisher(own, step(own, dataset))

    sides = ((pair.without, 0), (pair.with_record, trials))
    return [
        np.asarray(jax.jit(jax.vmap(lambda number, data=data: one(number, data)))(first + jnp.arange(trials)))
        for data, first in sides
    ]


EXACT = {
    "fixed batches": (training(sampling.shuffle(batch_size=1)), "fixed_batch_shuffle", 1),
    "isolated": (training(sampling.shuffle(batch_size=1), sees="isolated"), "isolated_shuffle", 1),
    "isolated, two epochs": (
        training(sampling.shuffle(batch_size=1), sees="isolated", epochs=2),
        "isolated_shuffle",
        2,
    ),
    "deterministic": (training(sampling.deterministic(batch_size=1)), "deterministic_batches", 1),
    "poisson": (training(sampling.poisson(rate=1 / ROUNDS, steps=ROUNDS), sees="isolated"), "poisson", 1),
    "fixed size": (training(sampling.fixed_size(batch_size=1, steps=ROUNDS), sees="isolated"), "poisson", 1),
    "balls and bins": (training(sampling.balls_and_bins(steps=ROUNDS), sees="isolated"), "isolated_shuffle", 1),
}


FEW = ("fixed batches", "poisson")
"""Of each kind of ratio one; the others take longer to compile than to check."""


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.long) for name in EXACT]
)
def test_a_ratio_has_the_tails_of_its_exact_curve(name):
    step, family, epochs = EXACT[name]
    ratio = distinguishers.likelihood_ratio(step, PAIR)
    curve = ratio.curve
    truth = {
        "fixed_batch_shuffle": lambda: guarantees.fixed_batch_shuffle(rounds=ROUNDS, noise_multiplier=NOISE),
        "isolated_shuffle": lambda: guarantees.isolated_shuffle(rounds=ROUNDS, noise_multiplier=NOISE, epochs=epochs),
        "deterministic_batches": lambda: guarantees.deterministic_batches(noise_multiplier=NOISE),
        "poisson": lambda: guarantees.subsampled_gaussian(rate=1 / ROUNDS, noise_multiplier=NOISE).compose(ROUNDS),
    }[family]()
    assert curve.total_variation == pytest.approx(truth.total_variation, abs=1e-5)
    without, with_record = scores(step, PAIR, ratio)
    for alpha in (0.02, 0.2, 0.6):
        threshold = float(curve.llr_threshold(alpha))
        exact_alpha, exact_beta = curve.errors(threshold)
        assert_rate_is(int(np.sum(without > threshold)), TRIALS, exact_alpha)
        assert_rate_is(int(np.sum(with_record <= threshold)), TRIALS, exact_beta)


@pytest.mark.long
@pytest.mark.parametrize("rounds", [100, 1000])
def test_thresholds_take_forty_evaluations_of_the_exact_curve(rounds):
    pair = mechanisms.worst_case_pair(records=rounds - 1, dimension=1, clip=1.0, relation="zero_out")
    law = distinguishers.likelihood_ratio(training(sampling.shuffle(batch_size=1), noise=0.5), pair).curve.law
    thresholds = np.array([-0.61, 0.37, 1.43, 2.3])
    found = law.tails(thresholds)
    assert len(law.law._points) <= 40
    exact = law.law.tails(thresholds)
    np.testing.assert_allclose(found.without_above, exact.without_above, atol=law.error)
    np.testing.assert_allclose(found.with_below, exact.with_below, atol=law.error)


@pytest.mark.long
def test_full_transcripts_give_the_score_of_their_statistics():
    step = mechanisms.many_rounds(sampler=sampling.shuffle(batch_size=1), clip=1.0, noise_multiplier=NOISE)
    ratio = distinguishers.likelihood_ratio(step, PAIR)
    out = step(KEY, PAIR.with_record.dense())
    statistics = Collapsed(out[:, :1], jnp.zeros(ROUNDS))
    np.testing.assert_allclose(ratio(KEY, out), ratio(KEY, statistics), rtol=1e-6)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "sampler",
    [
        sampling.shuffle(batch_size=3),
        sampling.shuffle_buffer(batch_size=2, buffer=3, position=4),
        sampling.deterministic(batch_size=3, position=7),
    ],
    ids=lambda sampler: sampler.name,
)
def test_a_ratio_is_that_of_the_densities(sampler):
    """Against a sum over every place, dropped records included, in float64."""
    pair = mechanisms.worst_case_pair(records=7, dimension=1, clip=1.0, shared=-0.5, extra=0.7, relation="zero_out")
    step = training(sampler)
    ratio = distinguishers.likelihood_ratio(step, pair)
    released = jax.jit(lambda key: step(key, pair.with_record))(KEY)
    out = np.asarray(released.along[:, 0], float)
    places, size = sampler.places(8), sampler.batch_size

    def density(own):
        base = np.full(len(out), -0.5 * size)
        found = max(0.0, 1 - places.sum()) * stats.norm.pdf(out, base, NOISE).prod()
        for t, weight in enumerate(places):
            means = base.copy()
            means[t] += 0.5 + own
            found += weight * stats.norm.pdf(out, means, NOISE).prod()
        return found

    expected = np.log(density(0.7)) - np.log(density(0.0))
    assert float(jax.jit(ratio)(KEY, released)) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def every_batch(sampler, records, group):
    """All batches that one epoch may have, as (others, differing) counts by round, with their probabilities."""
    others = records - group
    if sampler.name == "balls_and_bins":
        for bins in itertools.product(range(sampler.steps), repeat=records):
            seats = np.eye(sampler.steps)[list(bins)]
            yield seats[:others].sum(axis=0), seats[others:].sum(axis=0), float(sampler.steps) ** -records
        return
    rounds = []
    for attends in itertools.product((0, 1), repeat=records):
        size, differing = sum(attends), sum(attends[others:])
        if sampler.name == "fixed_size":
            if size == sampler.batch_size:
                rounds.append((size - differing, differing, 1 / math.comb(records, size)))
            continue
        weight = sampler.rate**size * (1 - sampler.rate) ** (records - size)
        if size <= getattr(sampler, "most", records):
            rounds.append((size - differing, differing, weight))
            continue
        members = [i for i in range(records) if attends[i]]
        for kept in itertools.combinations(members, sampler.most):
            own = sum(i >= others for i in kept)
            rounds.append((sampler.most - own, own, weight / math.comb(size, sampler.most)))
    for parts in itertools.product(rounds, repeat=sampler.steps):
        yield *(np.array(column) for column in list(zip(*parts, strict=True))[:2]), math.prod(p[2] for p in parts)


@pytest.mark.few(3)
@pytest.mark.parametrize("sees", ["updates", "isolated"])
@pytest.mark.parametrize(
    ("sampler", "group"),
    [
        (sampling.fixed_size(batch_size=2, steps=2), 1),
        (sampling.truncated_poisson(rate=0.6, steps=2, most=2), 1),
        (sampling.balls_and_bins(steps=3), 1),
        (sampling.poisson(rate=0.3, steps=2), 2),
        (sampling.fixed_size(batch_size=3, steps=2), 2),
    ],
    ids=["fixed size", "cut Poisson", "balls and bins", "group of two", "two, fixed size"],
)
def test_a_ratio_mixes_over_every_batch(sampler, group, sees):
    pair = mechanisms.worst_case_pair(
        records=4, dimension=1, clip=1.0, shared=-0.5, extra=0.7, relation="zero_out", group=group
    )
    step = mechanisms.many_rounds(sampler=sampler, clip=1.0, noise_multiplier=NOISE, sees=sees, group=group)
    ratio = jax.jit(distinguishers.likelihood_ratio(step, pair))
    shared = -0.5 if sees == "updates" else 0.0
    batches = list(every_batch(sampler, 4 + group, group))
    assert sum(weight for *_, weight in batches) == pytest.approx(1.0)
    for out in np.random.default_rng(3).normal(-0.5, 1.0, (3, sampler.steps)):

        def density(own, out=out):
            means = np.array([shared * others + own * differing for others, differing, _ in batches])
            return stats.norm.pdf(out, means, NOISE).prod(axis=1) @ [weight for *_, weight in batches]

        expected = np.log(density(0.7)) - np.log(density(0.0))
        found = ratio(KEY, Collapsed(jnp.asarray(out[:, None], jnp.float32), jnp.zeros(sampler.steps)))
        assert float(found) == pytest.approx(expected, rel=1e-4, abs=2e-5)


@pytest.mark.parametrize(
    ("sampler", "group"),
    [
        (sampling.fixed_size(batch_size=2, steps=2), 1),
        (sampling.balls_and_bins(steps=3), 1),
        (sampling.poisson(rate=0.3, steps=2), 2),
        (sampling.shuffle(batch_size=2), 1),
    ],
    ids=["fixed size", "balls and bins", "group of two", "shuffle"],
)
def test_the_ratio_of_a_final_sum_mixes_over_attendance(sampler, group):
    """Against every batch and, for shuffled ones with a remainder, against the chance of being dropped."""
    pair = mechanisms.worst_case_pair(
        records=4, dimension=1, clip=1.0, shared=-0.5, extra=0.7, relation="zero_out", group=group
    )
    step = training(sampler, releases="final", group=group)
    ratio = jax.jit(distinguishers.likelihood_ratio(step, pair))
    rounds = step.rounds(4 + group)
    if sampler.name == "shuffle":
        batches = [(3, 1, 0.8), (4, 0, 0.2)]
    else:
        batches = [(others.sum(), own.sum(), weight) for others, own, weight in every_batch(sampler, 4 + group, group)]
    for out in (-2.0, -0.3, 1.1):

        def density(own, out=out):
            means = [-0.5 * others + own * differing for others, differing, _ in batches]
            return stats.norm.pdf(out, means, NOISE * np.sqrt(rounds)) @ [weight for *_, weight in batches]

        expected = np.log(density(0.7)) - np.log(density(0.0))
        found = ratio(KEY, Collapsed(jnp.float32([out]), jnp.float32(0.0)))
        assert float(found) == pytest.approx(expected, rel=1e-4, abs=2e-5)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("sees", ["updates", "isolated"])
def test_the_largest_round_has_the_tails_of_its_exact_curve(sees):
    step = training(sampling.shuffle(batch_size=1), sees=sees)
    test = distinguishers.largest_round(step, PAIR)
    family = guarantees.fixed_batch_event if sees == "updates" else guarantees.max_coordinate
    expected = family(rounds=ROUNDS, noise_multiplier=NOISE).total_variation
    assert test.curve.total_variation == pytest.approx(expected, abs=1e-3)
    without, with_record = scores(step, PAIR, test)
    for alpha in (0.02, 0.2, 0.6):
        threshold = float(test.curve.llr_threshold(alpha))
        exact_alpha, exact_beta = test.curve.errors(threshold)
        assert_rate_is(int(np.sum(without > threshold)), TRIALS, exact_alpha)
        assert_rate_is(int(np.sum(with_record <= threshold)), TRIALS, exact_beta)


@pytest.mark.long
@pytest.mark.parametrize("normalise_by", ["expected_batch", pytest.param("realised_batch", marks=pytest.mark.long)])
def test_repeated_rounds_have_the_composed_curve(normalise_by):
    pair = mechanisms.worst_case_pair(records=4, dimension=100, clip=0.1)
    step = mechanisms.one_round(normalise_by=normalise_by, rate=0.7, clip=0.1, noise_multiplier=10.0).collapsed()
    ratio = distinguishers.likelihood_ratio(mechanisms.repeated(step=step, times=3), pair)
    composed = guarantees.normalised_round(
        normalise_by=normalise_by, records=4, rate=0.7, noise_multiplier=10.0, dimension=100
    ).compose(3)
    assert ratio.curve.total_variation == pytest.approx(composed.total_variation, abs=1e-9)
    without, with_record = scores(mechanisms.repeated(step=step, times=3), pair, ratio, 5000)
    alpha, beta = ratio.curve.errors(0.0)
    slack = ratio.curve.error
    assert abs(np.mean(without > 0) - alpha) < slack + 5 * np.sqrt(0.25 / 5000)
    assert abs(np.mean(with_record <= 0) - beta) < slack + 5 * np.sqrt(0.25 / 5000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EveryOther(Described):
    """A sampler of a user's own, which the likelihood ratio knows nothing about: odd batches hold everybody."""

    steps: int

    def rounds(self, records):
        return self.steps

    def __call__(self, key, records):
        index = jnp.tile(jnp.arange(records), (self.steps, 1))
        return sampling.Batches(index, jnp.tile(jnp.arange(self.steps)[:, None] % 2.0, (1, records)))

    def attendance(self, key, records, group=1):
        there = jnp.arange(self.steps) % 2.0
        return sampling.Attendance(there * (records - group), there * group)


@pytest.mark.parametrize(
    ("releases", "told"),
    [
        ("transcript", "no likelihood ratio of transcripts for the sampler 'every_other'; use distinguishers.battery"),
        (
            "final",
            "no likelihood ratio of the final sum for the sampler 'every_other' and group=1; use dist",
        ),
    ],
)
def test_a_sampler_whose_law_nobody_knows_is_refused_by_name(releases, told):
    with pytest.raises(ValueError, match=told):
        distinguishers.likelihood_ratio(training(EveryOther(steps=2), releases=releases), PAIR)


def test_what_has_no_exact_ratio_is_refused_with_a_remedy():
    group = mechanisms.worst_case_pair(records=4, dimension=2, clip=1.0, relation="zero_out", group=2)
    with pytest.raises(ValueError, match="1 except for Poisson, fixed-size and deterministic batches"):
        distinguishers.likelihood_ratio(training(sampling.shuffle(batch_size=1), group=2), group)
    cut = sampling.truncated_poisson(rate=0.5, steps=2, most=2)
    with pytest.raises(ValueError, match="1 except for Poisson, fixed-size and deterministic batches"):
        distinguishers.likelihood_ratio(training(cut, group=2), group)
    pair = mechanisms.worst_case_pair(records=4, dimension=2, clip=1.0)
    with pytest.raises(ValueError, match="needs all gradients along one line"):
        distinguishers.likelihood_ratio(training(sampling.shuffle(batch_size=1)), pair)
