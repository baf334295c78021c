"""Hints from the outputs of code that no verdict accuses: bugs that get one, and right code that gets none."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import audit
import guarantees
import mechanisms
from audit.diagnosis.hints import constant_coordinates
from audit.diagnosis.stated_noise import KnownStep
from mechanisms.release import PLAIN, Layout

DIMENSION, RATE, NOISE = 12, 0.5, 1.0
rows = np.random.default_rng(3).normal(size=(3, DIMENSION)).astype(np.float32) * 0.15
LONG = np.r_[np.full(6, 2.0), np.full(6, -0.6)].astype(np.float32)
PAIR = mechanisms.add_record(rows, LONG)
ZERO_OUT = mechanisms.zero_out(np.concatenate([rows, LONG[None]]), 3)
TOLD = {"clip": 1.0, "noise_multiplier": NOISE, "gradients": lambda g: g}
CLAIM = guarantees.subsampled_gaussian(rate=RATE, noise_multiplier=NOISE)
TRAINING = functools.cache(lambda: guarantees.poisson_training(rate=RATE, noise_multiplier=NOISE, steps=3))


def streams(seed):
    return tuple(map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2)))


def clipped(g, bound=1.0):
    return g / np.maximum(1.0, np.linalg.norm(g, axis=1, keepdims=True) / bound)


def step(seed, g, *, clip=clipped, noise=None, total=lambda c: c.sum(0), after=lambda z, n: z, sample=None):
    batch, own = streams(seed)
    taken = np.flatnonzero(batch.random(len(g)) < RATE) if sample is None else sample(batch, len(g))
    drawn = own.normal(0, NOISE, DIMENSION) if noise is None else noise(seed, own, len(taken))
    return after(total(clip(g[taken])) + drawn, len(taken))


def hinted(code, pair=PAIR, *, claim=CLAIM, told=True, trials=2000, releases="update", key=0, settled=True):
    """What an audit with a poor score hints at, by code."""
    mechanism = mechanisms.callable_step(code, releases=releases, **(TOLD if told else {}))
    record = audit.run_audit(
        mechanism,
        pair,
        lambda output: jnp.ravel(output)[5],
        claim=claim,
        trials=trials,
        risk=0.05,
        key=jax.random.key(key),
    )
    assert record.verdict == "no_violation_found" or (record.verdict == "inconclusive" and not settled), record.reason
    return {answer.code: answer.says for answer in record.diagnoses}


def in_halves(g):
    return np.concatenate([clipped(g[:, :6]), clipped(g[:, 6:])], axis=1)


SOME = np.r_[np.ones(10), 0.0, 0.0]


def some_bare(seed, own, n):
    return own.normal(0, NOISE, DIMENSION) * SOME


def if_any(seed, own, n):
    return own.normal(0, NOISE, DIMENSION) * (n > 0)


def of_few_seeds(seed, own, n):
    return np.random.default_rng(seed % 100).normal(0, NOISE, DIMENSION)


@functools.cache
def before(purpose):
    return {"noise": np.zeros(DIMENSION)}


def carried(seed, own, n):
    last = before("carried")
    last["noise"] = 0.6 * last["noise"] + 0.8 * own.normal(0, NOISE, DIMENSION)
    return last["noise"]


def one_stream(seed, g):
    taken = np.random.RandomState(seed % 2**32).rand(len(g)) < RATE
    return clipped(g[taken]).sum(0) + np.random.RandomState(seed % 2**32).randn(DIMENSION)


BUGS = {
    "each half clipped by itself": (functools.partial(step, clip=in_halves), "same_seeds", "with the same seeds"),
    "the sum clipped": (
        functools.partial(step, clip=lambda g: g, total=lambda c: clipped(c.sum(0)[None])[0]),
        "same_seeds",
        "with the same seeds",
    ),
    "the dataset not read": (lambda seed, g: step(seed, rows), "no_part", "bit for bit"),
    "100 seeds": (functools.partial(step, noise=of_few_seeds), "repeated", "a seed or a release is reused"),
    "noise carried over": (functools.partial(step, noise=carried), "dependent", "more alike"),
    "noise on some": (lambda seed, g: step(seed, g * SOME, noise=some_bare), "bare", "10 to 11 never vary"),
    "no noise on an empty batch": (functools.partial(step, noise=if_any), "silent", "an empty batch gets no noise"),
    "divided by the batch": (functools.partial(step, after=lambda z, n: z / max(n, 1)), "scale_by_trial", "varies"),
    "one seed for both": (one_stream, "noise_and_batches", "correlation"),
}
QUICK = ("each half clipped by itself", "the dataset not read")


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_that_no_score_finds_gets_a_hint(name):
    code, kind, says = BUGS[name]
    assert says in hinted(code)[kind]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in BUGS if name not in QUICK])
def test_every_bug_gets_a_hint(name):
    code, kind, says = BUGS[name]
    longer = mechanisms.add_record(3 * rows, LONG)
    assert says in hinted(code, longer if name == "one seed for both" else PAIR)[kind]


def too_little(seed, own, n):
    """The variance is halved."""
    return own.normal(0, NOISE / 2**0.5, DIMENSION)


def uniform(seed, own, n):
    return own.uniform(-(3**0.5), 3**0.5, DIMENSION) * NOISE


def standardised(g):
    """Each feature over the batch, as batch normalisation does."""
    return clipped((g - g.mean(0)) / (g.std(0) + 1e-3))


def whole(seed, g, *, clip=clipped):
    return clip(g).sum(0) + np.random.default_rng(seed).normal(0, NOISE, DIMENSION)


ALIKE = mechanisms.add_record(np.tile(SOME * 2, (6, 1)).astype(np.float32) + 0.3 * rows[0], LONG)
NO_BATCHES = guarantees.gaussian(mu=1 / NOISE)
FEW = {
    "the dataset not read": (lambda seed, g: step(seed, rows), CLAIM, "no_part", "bit for bit"),
    "noise of half the variance": (
        functools.partial(step, noise=too_little),
        CLAIM,
        "told_noise",
        "multiplier 1 need 1.",
    ),
    "the same, divided": (
        functools.partial(step, noise=too_little, after=lambda z, n: z / 5),
        CLAIM,
        "told_noise",
        "which a divisor shrinks too",
    ),
    "uniform noise": (functools.partial(step, noise=uniform), CLAIM, "ends", "Draw normal noise"),
    "standardised over the batch": (
        functools.partial(whole, clip=standardised),
        NO_BATCHES,
        "same_seeds",
        "against its gradient",
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", FEW)
def test_few_trials_are_enough_for_a_hint(name):
    """Below 800 trials all hints were lost."""
    code, claim, kind, says = FEW[name]
    told = hinted(code, ALIKE, claim=claim, trials=600, settled=False)
    assert says in told[kind]
    assert "same_seeds" not in told or kind != "told_noise"


def on_a_grid(size):
    """Discrete noise, as of a discrete Gaussian law, on sums of whole steps."""

    def noisy(seed, g):
        batch, own = streams(seed)
        sums = np.trunc(clipped(g[batch.random(len(g)) < RATE]) / size).sum(0)
        return (sums + np.round(own.normal(0, NOISE / size, DIMENSION))) * size

    return noisy


def in_any_order(seed, g):
    """The batch is Poisson's, and other records are in it with the same seed."""
    batch, own = streams(seed)
    taken = batch.permutation(len(g))[: batch.binomial(len(g), RATE)]
    return clipped(g[taken]).sum(0) + own.normal(0, NOISE, DIMENSION)


def above_threshold(seed, g):
    """The sparse vector technique: few different answers, equal on most seeds."""
    rng = np.random.default_rng(seed)
    threshold = 3 + rng.laplace(0, 4)
    queries = (clipped(g) > 0.05).sum(0) + rng.laplace(0, 8, DIMENSION)
    return (np.arange(DIMENSION) == np.argmax(queries >= threshold)).astype(np.float32)


def from_a_uniform_start(seed, g):
    """Weights after a step: the start varies from trial to trial and ends, the noise does not."""
    batch, own = streams(seed)
    noisy = clipped(g[batch.random(len(g)) < RATE]).sum(0) + own.normal(0, NOISE, DIMENSION)
    return own.uniform(-1, 1, DIMENSION) - 0.05 * noisy


def normalised(g):
    """To the bound, however short they are."""
    return g / np.maximum(np.linalg.norm(g, axis=1, keepdims=True), 1e-9)


def dithered(seed, own, n):
    return own.normal(0, NOISE, DIMENSION) + own.uniform(-6, 6, DIMENSION)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("length", [1e-25, 1e25])
def test_a_record_whose_square_vanishes_or_overflows_may_have_no_gradient(length):
    """The conformance class warned of every right library on such pairs: 'the record changes nothing'."""
    pair = mechanisms.add_record(rows, np.full(DIMENSION, length, np.float32))
    assert not hinted(whole, pair, claim=NO_BATCHES, trials=600, settled=False, told=False)


ROTATION = np.linalg.qr(np.random.default_rng(1).normal(size=(DIMENSION, DIMENSION)))[0]
RIGHT_ON_FEW = {
    "a uniform start": from_a_uniform_start,
    "dithered": functools.partial(step, noise=dithered),
    "soft threshold": functools.partial(step, after=lambda z, n: np.sign(z) * np.maximum(np.abs(z) - 1.5, 0)),
    "plain": step,
    "divided": functools.partial(step, after=lambda z, n: z / 1.25),
    "a coarse grid": on_a_grid(1 / 3),
    "a fine grid": on_a_grid(1 / 64),
    "in any order": in_any_order,
    "few answers": above_threshold,
    "signs": functools.partial(step, after=lambda z, n: np.sign(z)),
    "a shorter release": functools.partial(step, after=lambda z, n: z / max(1.0, float(np.linalg.norm(z)) / 2)),
    "each half at its share": functools.partial(step, clip=lambda g: in_halves(g * 2**0.5) / 2**0.5),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", RIGHT_ON_FEW)
def test_right_code_gets_no_hint_from_few_trials(name):
    assert not hinted(RIGHT_ON_FEW[name], ALIKE, trials=600, settled=False)


def test_normalised_gradients_are_as_long_as_the_bound_allows():
    """Told that they are shorter, nobody may say that the noise is too little for them."""
    pair = mechanisms.add_record(0.02 * rows, 0.02 * LONG)
    assert not hinted(functools.partial(whole, clip=normalised), pair, claim=NO_BATCHES, trials=600, settled=False)


def test_a_release_that_is_rotated_moves_elsewhere_than_its_gradient_and_breaks_nothing():
    assert not hinted(lambda seed, g: whole(seed, g) @ ROTATION, ALIKE, claim=NO_BATCHES, trials=600, settled=False)


SMOOTH = (2 * np.eye(DIMENSION) + np.roll(np.eye(DIMENSION), 1, 0) + np.roll(np.eye(DIMENSION), -1, 0)) / 4
MIXED = {"rotated": ROTATION, "smoothed": SMOOTH, "summed up": np.triu(np.ones((DIMENSION, DIMENSION)))}


@pytest.mark.few(2)
@pytest.mark.parametrize("code", [step, whole])
@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_a_noisy_sum_gets_no_hint(name, code):
    """Of smoothed and summed releases it said 'coordinates 3 apart have correlation 0.0865: a key is used again'."""
    claim = CLAIM if code is step else NO_BATCHES
    assert not hinted(lambda seed, g: code(seed, g) @ MIXED[name], ALIKE, claim=claim, trials=1200, settled=False)


def test_a_draw_that_both_halves_share_gets_a_hint():
    def halves(seed, g):
        return clipped(g).sum(0) + NOISE * np.tile(np.random.default_rng(seed).standard_normal(DIMENSION // 2), 2)

    told = hinted(halves, mechanisms.add_record(rows, np.abs(LONG)), claim=NO_BATCHES, trials=600, told=False)
    assert "moves a mixture of the release's coordinates" in told["same_seeds"]
    assert "a key or a draw is used more than once" in told["same_seeds"]


def test_a_record_that_is_seldom_sampled_beside_a_claim_of_no_batches_takes_part():
    seldom = functools.partial(step, sample=lambda r, n: np.flatnonzero(r.random(n) < 1 / 64))
    assert not hinted(seldom, ALIKE, claim=NO_BATCHES, settled=False)


def rounded(z, n):
    return np.round(z * 4) / 4


def largest_kept(z, n):
    return np.where(np.abs(z) >= np.sort(np.abs(z))[-4], z, 0.0)


def looped(seed, g):
    rng = np.random.Generator(np.random.Philox(key=seed))
    total = np.zeros(DIMENSION)
    for row in g:
        if rng.uniform() < RATE:
            total += row / max(1.0, float(np.linalg.norm(row)))
    return total + NOISE * rng.standard_normal(DIMENSION)


def global_state(seed, g):
    np.random.seed(seed % 2**32)  # noqa: NPY002
    taken = np.random.rand(len(g)) < RATE  # noqa: NPY002
    return (taken @ clipped(g) + np.random.randn(DIMENSION)).astype(np.float32)  # noqa: NPY002


def augmented(seed, g):
    """Draws for a record only if it is in the batch, before the noise."""
    rng = np.random.default_rng(seed)
    mask = rng.random(len(g)) < RATE
    views = [row * rng.choice([-1.0, 1.0]) for row in g[mask]]
    return sum((clipped(view[None])[0] for view in views), np.zeros(DIMENSION)) + rng.normal(0, NOISE, DIMENSION)


def box_muller(seed, own, n):
    return np.sqrt(-2 * np.log1p(-own.random(DIMENSION))) * np.cos(2 * np.pi * own.random(DIMENSION))


def by_permutation(seed, g):
    rng = np.random.default_rng(seed)
    taken = rng.permutation(len(g))[: rng.binomial(len(g), RATE)]
    return clipped(g[taken]).sum(0) + rng.normal(0, NOISE, DIMENSION)


def one_generator(seed):
    return (np.random.default_rng(seed),) * 2


def training(seed, g, *, momentum=0.0, last=False, generators=one_generator, clip=clipped):
    (batch, own), weights, moving, released = generators(seed), np.zeros(DIMENSION), 0.0, []
    for _ in range(3):
        taken = batch.random(len(g)) < RATE
        update = taken @ clip(g - 0.1 * weights) + own.normal(0, NOISE, DIMENSION)
        moving = momentum * moving + update
        weights = weights - 0.1 * moving
        released.append(update if not momentum else moving)
    return weights if last else np.stack(released)


RIGHT = {
    "plain": step,
    "one generator, record by record": looped,
    "global state": global_state,
    "augmented": augmented,
    "binomial, then a permutation": by_permutation,
    "a public divisor and a learning rate": functools.partial(step, after=lambda z, n: -0.1 * z / 8),
    "a public offset": functools.partial(step, after=lambda z, n: z + np.arange(DIMENSION)),
    "noise of four parties": functools.partial(step, noise=lambda s, own, n: own.normal(0, 0.5, (4, DIMENSION)).sum(0)),
    "Box-Muller": functools.partial(step, noise=box_muller),
    "more noise": functools.partial(step, noise=lambda s, own, n: own.normal(0, 1.4, DIMENSION)),
    "each half at its share of the bound": functools.partial(step, clip=lambda g: in_halves(g * 2**0.5) / 2**0.5),
    "a tighter bound": functools.partial(step, clip=functools.partial(clipped, bound=0.5)),
    "normalised gradients": functools.partial(
        step, clip=lambda g: g / (np.linalg.norm(g, axis=1, keepdims=True) + 0.01)
    ),
    "rounded after the noise": functools.partial(step, after=rounded),
    "signs": functools.partial(step, after=lambda z, n: np.sign(z)),
    "bent": functools.partial(step, after=lambda z, n: np.tanh(z)),
    "cut": functools.partial(step, after=lambda z, n: np.clip(z, -1, 1)),
    "the largest coordinates": functools.partial(step, after=largest_kept),
    "a bounded release": functools.partial(step, after=lambda z, n: z / max(1.0, float(np.linalg.norm(z)) / 3)),
    "half precision": functools.partial(step, after=lambda z, n: z.astype(np.float16).astype(np.float32)),
    "more noise on some": functools.partial(
        step, noise=lambda s, own, n: np.r_[own.normal(0, 1, 8), own.normal(0, 9, 4)]
    ),
    "a frozen tensor": lambda seed, g: {"frozen": np.ones(3, np.float32), "moving": step(seed, g)},
    "a noisy count": lambda seed, g: {"sum": step(seed, g), "steps": np.float32(7)},
}
FULL = {
    "no sampling": lambda seed, g: clipped(g).sum(0) + np.random.default_rng(seed).normal(0, NOISE, DIMENSION),
    "sampled, and claimed as if not": functools.partial(step),
    "fixed batches, claimed as if none": lambda seed, g: step(seed, g, sample=lambda r, n: r.permutation(n)[:2]),
}


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    "name", ["augmented", *(pytest.param(name, marks=pytest.mark.long) for name in RIGHT if name != "augmented")]
)
def test_right_code_gets_no_hint(name, told):
    named = name in ("a frozen tensor", "a noisy count")
    assert not hinted(RIGHT[name], told=told and not named)


@pytest.mark.long
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("name", FULL)
def test_right_code_gets_no_hint_beside_a_claim_without_batches(name, told):
    assert not hinted(FULL[name], claim=guarantees.gaussian(mu=1.0), told=told)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["plain", "global state", "bent", "normalised gradients", "each half at its share of the bound"]
)
def test_right_code_gets_no_hint_on_a_pair_of_one_size(name):
    claim = guarantees.subsampled_gaussian(rate=RATE, noise_multiplier=NOISE, relation="zero_out")
    assert not hinted(RIGHT[name], ZERO_OUT, claim=claim)


@pytest.mark.long
@pytest.mark.parametrize("generators", [one_generator, streams])
@pytest.mark.parametrize(("momentum", "last"), [(0.0, False), (0.9, False), (0.9, True)])
def test_a_right_training_gets_no_hint(momentum, last, generators):
    code = functools.partial(training, momentum=momentum, last=last, generators=generators)
    assert not hinted(code, claim=TRAINING(), releases="final" if last else "transcript", told=False)


def as_weights(seed, g, *, averaged=False, fresh=True):
    """Released after every step; one generator for each step, or one that is made anew."""
    weights, released = np.zeros(DIMENSION), []
    for t in range(3):
        own = np.random.default_rng([seed, t] if fresh else seed)
        answers = clipped((np.tanh(g @ weights) - 1)[:, None] * g)
        weights = weights - 0.1 * (answers.sum(0) + own.normal(0, 3**0.5, DIMENSION))
        released.append(0.99 * released[-1] + 0.01 * weights if averaged and released else weights)
    return np.stack(released)


IN_STEPS = {"claim": guarantees.gaussian(mu=1.0), "releases": "transcript", "trials": 600}


def test_weights_of_one_draw_at_all_steps_get_a_hint():
    found = hinted(functools.partial(as_weights, fresh=False), told=False, **IN_STEPS)
    assert "step 2 of 3 adds what step 1 did" in found["step_noise"]


def test_averages_of_weights_get_no_hint():
    """Told their gradients, the steps after the first were accused of its noise."""
    assert not hinted(functools.partial(as_weights, averaged=True), **IN_STEPS)


def adam(seed, g):
    """Weights after every step; the first step has nearly the length of the rate, whatever its noise."""
    (batch, own), weights, first, second, released = streams(seed), np.zeros(DIMENSION), 0.0, 0.0, []
    for t in range(1, 4):
        noisy = (batch.random(len(g)) < RATE) @ clipped(g - 0.1 * weights) + own.normal(0, NOISE, DIMENSION)
        first, second = 0.9 * first + 0.1 * noisy, 0.999 * second + 0.001 * noisy**2
        weights = weights - 0.1 * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-3)
        released.append(weights)
    return np.stack(released)


@pytest.mark.long
@pytest.mark.parametrize("told", [True, False])
def test_weights_of_adam_get_no_hint(told):
    assert not hinted(adam, claim=TRAINING(), releases="transcript", told=told)


@pytest.mark.long
def test_a_training_whose_first_step_moves_too_far_gets_a_hint(monkeypatch):
    """Its first step alone starts from the same weights, and time that questions take costs no hint found before."""
    monkeypatch.setattr("audit.diagnosis.after_verdict.every_step_has_noise", None)
    code = functools.partial(training, generators=streams, clip=in_halves)
    assert "same_seeds" in hinted(code, claim=TRAINING(), releases="transcript", told=False)


@pytest.mark.parametrize(
    ("still", "says"),
    [
        (np.arange(12) == 7, "coordinate 7 never varies: it has one value in all 40 trials, "),
        (np.arange(12) > 9, "coordinates 10 to 11 never vary: each has one value in all 40 trials, "),
    ],
)
def test_coordinates_that_never_vary_look_wrong_only_where_they_have_gradients(still, says):
    """A public mask, or rows of an embedding that are frozen, are right code."""
    first, second = np.random.default_rng(0).normal(size=(2, 20, 12)) * ~still
    layout = Layout(names=(PLAIN,), shapes=((12,),), rounds=None)
    for moved in (None, ~still, np.ones(12)):
        pair = mechanisms.neighbours_from_gradients(np.zeros((1, 12)), 1.0 * (still if moved is None else moved))
        told = None if moved is None else KnownStep.of(pair, clip=None, noise_multiplier=None, rate=1.0)
        found = constant_coordinates(first, second, layout=layout, step=told)
        assert found is not None
        assert found.says.startswith(says)
        assert found.wrong == (found.code == "bare") == (moved is not None and bool(np.any(moved * still)))
