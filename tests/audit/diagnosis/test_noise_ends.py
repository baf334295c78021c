"""Noise that ends early is a hint in few dimensions; what is done to normal noise, or beside it, is none."""

import jax
import numpy as np
import pytest
from checks import assert_rate_at_most

import audit
import guarantees
import mechanisms
from audit.diagnosis.distribution import cut_tails
from audit.diagnosis.noise_ends import noise_ends_early
from audit.diagnosis.same_seeds import Movements
from audit.diagnosis.stated_noise import KnownStep

WIDTH, SIGMA = 12, 2.0
ROWS = np.random.default_rng(3).normal(size=(2, WIDTH)).astype(np.float32)
DENSE = mechanisms.add_record(ROWS, np.linspace(2, 6, WIDTH, dtype=np.float32), unit="client")
PLAIN = mechanisms.worst_case_pair(records=2, dimension=WIDTH, clip=1.0)
ONE = mechanisms.worst_case_pair(records=2, dimension=1, clip=1.0)
TOLD = {"clip": 1.0, "noise_multiplier": SIGMA, "gradients": lambda rows: rows}


def clipped(rows):
    return (rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))).sum(axis=0)


def noisy(draw):
    return lambda seed, rows: clipped(rows) + SIGMA * draw(np.random.default_rng(seed), rows.shape[1])


def cut(rng, width):
    return np.clip(rng.standard_normal(width), -2.5, 2.5)


def three_uniforms(rng, width):
    return 2 * (rng.random((3, width)).sum(axis=0) - 1.5)


def hints(code, pair, seed=1, **told):
    claim = guarantees.gaussian(mu=1 / SIGMA)
    step = mechanisms.callable_step(code, **told)
    record = audit.run_audit(step, pair, claim=claim, trials=2000, risk=0.05, key=jax.random.key(seed))
    assert record.verdict != "violation"
    return {found.code: found.says for found in record.diagnoses if found.wrong}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("draw", "pair", "told"),
    [
        (cut, DENSE, {}),
        (cut, ONE, TOLD),
        (three_uniforms, DENSE, {}),
        (three_uniforms, PLAIN, TOLD),
    ],
)
def test_noise_that_ends_early_is_a_hint(draw, pair, told):
    found = hints(noisy(draw), pair, **told)
    assert set(found) == {"ends"}
    farthest = float(found["ends"].split("numbers is ")[1].split(" ")[0])
    assert farthest == pytest.approx(2.5 / 0.979 if draw is cut else 2.9, abs=0.1)


def spread(rng, like):
    return SIGMA * rng.uniform(-1, 1, like.shape)


RIGHT = {
    "as it is": lambda release, rng: release,
    "cut at public bounds": lambda release, rng: np.clip(release, -3 * SIGMA, 3 * SIGMA),
    "made short": lambda release, rng: (
        release * np.minimum(1.0, 3 * SIGMA / np.linalg.norm(release, axis=1, keepdims=True))
    ),
    "from a narrow public start": lambda release, rng: spread(rng, release) / 2 - 0.05 * release,
    "from a wide public start": lambda release, rng: 2 * spread(rng, release) - 0.05 * release,
    "beside uniform noise": lambda release, rng: release + spread(rng, release),
    "one number again and again": lambda release, rng: np.tile(release[:, :1], release.shape[1]),
    "of a batch": lambda release, rng: release + rng.integers(0, 2, (len(release), 1)) * ROWS[:1, :1],
    "uneven": lambda release, rng: release * np.linspace(1, 3, release.shape[1]),
    "divided": lambda release, rng: release / 10,
    "single precision": lambda release, rng: release.astype(np.float32),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("width", [1, 2, 12, 100])
def test_what_is_done_to_normal_noise_or_beside_it_is_none(width, told):
    """Each seed has another way, and trials and a movement of its own; of 2,880 seeds none was accused."""
    risk, found = 1e-3, []
    for seed in range(22):
        rng = np.random.default_rng([seed, width, told])
        name, after = list(RIGHT.items())[seed % len(RIGHT)]
        moves = rng.standard_normal(width) if rng.integers(2) else np.eye(width)[0]
        moves /= np.linalg.norm(moves)
        pair = mechanisms.neighbours_from_gradients(np.ones((2, width)) / width, moves)
        given = KnownStep.of(pair, clip=1.0, noise_multiplier=SIGMA, rate=1.0) if told else None
        count = int(rng.integers(300, 2000))
        sides = [after(own + SIGMA * rng.standard_normal((count, width)), rng) for own in (0 * moves, moves)]
        scale = 0.1 if name == "divided" else 0.05 if "start" in name else 1.0
        moved = Movements(different=scale * moves[None], once=False)
        said = noise_ends_early(moved, sides, allowed=1 / SIGMA, step=given, risk=risk)
        found += [] if said is None else [name]
    assert not found


@pytest.mark.parametrize("shape", [(20, 2), (20, 30), (200, 12)])
def test_the_farthest_number_of_normal_noise_is_too_near_at_most_at_the_risk(shape):
    runs, risk, found = 400, 0.1, 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        sides = [scale * rng.standard_normal(shape) for scale in (1, 3)]
        found += cut_tails(sides, risk=risk).wrong
    assert_rate_at_most(found, runs, risk)


@pytest.mark.parametrize(("width", "end"), [(5, 3**0.5), (100, 3**0.5)])
def test_how_far_out_noise_reaches_is_told_in_its_own_deviations(width, end):
    """In few dimensions each trial was taken over its own size, and uniform noise seemed to reach 2.6 deviations."""
    sides = np.random.default_rng(0).uniform(-1, 1, (2, 1000, width))
    found = cut_tails(sides, risk=1e-6)
    assert found.wrong
    assert found.estimate == pytest.approx(end, rel=0.1)
