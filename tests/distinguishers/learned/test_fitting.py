"""Learners: what they find in outputs of which nothing is known, and what they must not stumble over."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo.library import LAYOUT, TWO_STEPS, Library, dense_pair

import distinguishers
from distinguishers.contract import Distinguisher, Learner
from distinguishers.learned.features import learn_features
from distinguishers.learned.fitting import _best_alone
from distinguishers.learned.grain import find_grain
from distinguishers.learned.output_rows import View
from distinguishers.learned.repetition import find_repetition
from mechanisms.contract import Collapsed
from mechanisms.release import Layout, layout_of
from mechanisms.structure import is_structured

KEY = jax.random.key(20261115)


def vector(size: int, rounds: int | None = None) -> Layout:
    return Layout(names=("output",), shapes=((size,),), rounds=rounds)


def advantages(fault: str, *, rate: float = 1.0, records: int = 1, trials: int = 400) -> dict[str, float]:
    """How far each feature alone tells fresh outputs apart, at its best threshold."""
    library = Library(fault, rate=rate)
    rng = np.random.default_rng(1)
    pair = dense_pair(2, records=records)
    view = View(layout=dataclasses.replace(LAYOUT, rounds=2) if fault in TWO_STEPS else LAYOUT)
    rows = [view.rows(library.outputs(rng, side, trials)) for side in pair]
    features = learn_features(*rows, view)
    seen = [np.asarray(jax.jit(jax.vmap(features))(library.outputs(rng, side, trials))) for side in pair]
    assert np.isfinite(seen).all()
    assert seen[0].shape[1] == len(features.names)
    best = {}
    for place, name in enumerate(features.names):
        ordered = np.sort(np.concatenate([side[:, place] for side in seen]))
        below = [np.searchsorted(np.sort(side[:, place]), ordered, side="right") / trials for side in seen]
        best[name] = float(np.abs(below[0] - below[1]).max())
    return best


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("constant seed", "largest_without"),
        ("noise on the first tensor", "largest_without"),
        ("seeded every step", "largest_without"),
        ("float16 noise", "grain"),
    ],
)
def test_what_has_no_noise_is_found_at_once(fault, name):
    assert advantages(fault)[name] == 1.0


def test_features_of_a_right_library_do_not_shout():
    found = advantages("none")
    # N(0, I) against N(g, I) with |g| = 1 has advantage .383; 400 per side and the best of all thresholds add .2
    assert max(found.values()) < 0.6
    assert not any(name.startswith(("grain", "repetition")) for name in found)


@pytest.mark.long
def test_noise_that_is_centred_on_each_tensor_is_found_in_its_means():
    """Every number has its noise, the sum of a tensor none: a record that moves it by .05 is bare."""
    sizes, rng = (60, 640), np.random.default_rng(3)
    view = View(layout=Layout(names=("bias", "weight"), shapes=tuple((size,) for size in sizes)))

    def side(moved: float, trials: int = 60) -> np.ndarray:
        parts = [rng.normal(size=(trials, size)).astype(np.float32) for size in sizes]
        parts = [part - part.mean(axis=1, keepdims=True) for part in parts]
        parts[1] += np.float32(moved / sizes[1])
        return np.concatenate(parts, axis=1)

    features = learn_features(view.rows(side(0.0)), view.rows(side(0.05)), view)
    place = features.names.index("mean of weight")
    without, with_record = (np.asarray(jax.vmap(features)(side(moved)))[:, place] for moved in (0.0, 0.05))
    assert without.max() < with_record.min()


def test_repeated_values_are_remembered_with_the_side_they_were_seen_on():
    rng = np.random.default_rng(0)
    without, with_record = rng.integers(0, 3, (300, 5)), rng.integers(1, 4, (300, 5))
    found = find_repetition(without.astype(np.float32), with_record.astype(np.float32))
    assert found is not None
    seen = jax.jit(found)
    evidence = [float(seen(np.full(5, value, np.float32))[0]) for value in (0.0, 1.0, 3.0)]
    assert evidence[0] < -5 < evidence[1] < 5 < evidence[2]
    assert float(seen(np.full(5, 7.0, np.float32))[3]) == 1.0
    assert find_repetition(*(rng.normal(size=(2, 300, 5)).astype(np.float32))) is None


@pytest.mark.parametrize("unit", [1.0, 0.37])
def test_the_grain_is_found_whatever_divides_the_noise(unit):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 400, 30)).astype(np.float16).astype(np.float32)
    sides = unit * noise + np.array([0.3123, 0.7771])[:, None, None]
    found = find_grain(*sides.astype(np.float32))
    assert found is not None
    fresh = unit * rng.normal(size=(2, 50, 30)).astype(np.float16).astype(float) + sides[:, :1] - unit * noise[:, :1]
    scores = np.asarray(jax.jit(jax.vmap(jax.vmap(found)))(jnp.asarray(fresh, jnp.float32)))[..., 2]
    assert scores[0].max() < scores[1].min()
    assert find_grain(*rng.normal(size=(2, 400, 30)).astype(np.float32)) is None


SHAPES = {
    "one coordinate": (vector(1), lambda rng: rng.normal(size=(40, 1))),
    "no noise at all": (vector(3), lambda rng: np.zeros((40, 3))),
    "constant coordinates": (vector(9), lambda rng: np.hstack([np.full((40, 8), 7.0), rng.normal(size=(40, 1))])),
    "huge": (vector(6), lambda rng: 1e30 * rng.normal(size=(40, 6))),
    "tiny": (vector(6), lambda rng: 1e-30 * rng.normal(size=(40, 6))),
    "one huge coordinate": (vector(6), lambda rng: rng.normal(size=(40, 6)) * np.array([1e20, 1, 1, 1, 1, 1e-20])),
    "transcript": (vector(4, rounds=3), lambda rng: rng.normal(size=(40, 3, 4))),
    "tensors": (LAYOUT, lambda rng: rng.normal(size=(40, LAYOUT.size))),
    "integers": (vector(2), lambda rng: rng.integers(0, 2, (40, 2))),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SHAPES)
def test_every_finite_output_gets_finite_scores(name):
    layout, draw = SHAPES[name]
    rng = np.random.default_rng(4)
    without, with_record, fresh = (draw(rng).astype(np.float32) for _ in range(3))
    found = distinguishers.fit().learn(KEY, without, with_record, layout)
    assert [member.name for member in found.members] == list(found.names)
    assert found.names[0] == "learned"
    score = jax.jit(jax.vmap(found, in_axes=(None, 0)))
    assert score(KEY, fresh).shape == (40, len(found.names))
    assert np.isfinite(score(KEY, fresh)).all()
    assert np.isfinite(score(KEY, np.full_like(fresh, 1e35))).all()
    assert np.isnan(score(KEY, np.full_like(fresh, np.inf))).all()


@pytest.mark.long
def test_the_same_key_and_outputs_give_the_same_score():
    sides = np.random.default_rng(6).normal(size=(2, 100, 5)).astype(np.float32)
    learner = distinguishers.fit(lambda output: output)
    assert isinstance(learner, Learner)
    assert not isinstance(learner, Distinguisher)
    scores = [jax.vmap(learner.learn(KEY, *sides, vector(5)), in_axes=(None, 0))(KEY, sides[0]) for _ in range(2)]
    np.testing.assert_array_equal(*scores)


@pytest.mark.long
def test_collapsed_outputs_are_read_as_the_tensors_they_are():
    rng = np.random.default_rng(4)
    sides = [Collapsed(rng.normal(size=(60, 2)) + shift, rng.chisquare(9, 60)) for shift in (0.0, 3.0)]
    sides = [Collapsed(*(np.asarray(leaf, np.float32) for leaf in side)) for side in sides]
    layout = layout_of(jax.tree.map(lambda leaf: leaf[0], sides[0]))
    score = distinguishers.fit().learn(KEY, *sides, layout)
    without, with_record = (np.asarray(jax.vmap(score, in_axes=(None, 0))(KEY, side))[:, 0] for side in sides)
    assert without.mean() < with_record.mean()


@pytest.mark.long
def test_a_network_learns_what_no_single_feature_shows():
    """Two bits that agree without the record and differ with it: each alone is a fair coin."""
    rng = np.random.default_rng(5)

    def draw(sign: int) -> np.ndarray:
        first = rng.choice([-1.0, 1.0], 600)
        return np.stack([first, sign * first], axis=1).astype(np.float32) + 0.3 * rng.normal(size=(600, 2))

    learner = distinguishers.fit(lambda output: {"first": output[0], "second": output[1]})
    assert learner.parameters == {"features": f"lambda of {__name__}"}
    score = learner.learn(KEY, draw(1), draw(-1), vector(2))
    seen = [np.asarray(jax.vmap(score, in_axes=(None, 0))(KEY, draw(sign))) for sign in (1, -1)]
    hits = [(seen[1][:, member] > 0).mean() - (seen[0][:, member] > 0).mean() for member in range(3)]
    assert hits[0] > 0.9
    assert max(hits[1:]) < 0.2


def test_fit_trials_scale_with_the_budget_between_limits():
    learner = distinguishers.fit()
    wanted = [learner.fit_trials(trials) for trials in (2, 300, 8000, 10**9)]
    assert wanted == [200, 200, 3200, 20_000]


def test_what_cannot_be_learnt_from_is_refused():
    learner = distinguishers.fit()
    with pytest.raises(ValueError, match="at least 20 per side"):
        learner.learn(KEY, np.zeros((3, 2)), np.zeros((3, 2)), vector(2))
    with pytest.raises(ValueError, match="finite"):
        learner.learn(KEY, np.full((30, 2), np.nan), np.zeros((30, 2)), vector(2))
    with pytest.raises(TypeError, match="a function of an output"):
        distinguishers.fit(3)  # pyright: ignore[reportArgumentType]


@pytest.mark.long
def test_the_known_gradient_speaks_in_every_transcript():
    """Also where other features tell the fit trials apart better: here every one of three coordinates."""
    rng, record = np.random.default_rng(3), np.eye(1, 8)[0]
    without = rng.normal(size=(100, 3, 8)).astype(np.float32)
    with_record = (rng.normal(size=(100, 3, 8)) + 5 * (np.arange(8) > 3)).astype(np.float32)
    learner = dataclasses.replace(distinguishers.fit(), record=record)
    found = learner.learn(KEY, without, with_record, vector(8, rounds=3))
    assert found.names[-1] == "learned record"
    member = found.members[-1]
    along = np.asarray(jax.vmap(lambda output: member(KEY, output))(jnp.asarray(without)))
    assert abs(np.corrcoef(along, without[:, :, 0].sum(axis=1))[0, 1]) > 0.999


def test_scores_learnt_on_other_numbers_share_one_program():
    rng = np.random.default_rng(3)
    learnt = []
    for spread in (1.0, 5.0):
        sides = [rng.normal(shift, spread, (100, 3)).astype(np.float32) for shift in (0.0, 2.0)]
        learnt.append(distinguishers.fit().learn(KEY, *sides, vector(3)))
    assert all(map(is_structured, learnt))
    assert jax.tree.structure(learnt[0]) == jax.tree.structure(learnt[1])
    assert [leaf.shape for leaf in map(np.asarray, jax.tree.leaves(learnt[0]))] == [
        leaf.shape for leaf in map(np.asarray, jax.tree.leaves(learnt[1]))
    ]


def test_a_feature_that_shows_in_its_tail_alone_is_a_member():
    """Three features shift a little as a whole; a fourth is far out in 4% of the outputs with the record."""
    rng = np.random.default_rng(4)
    without, with_record = (rng.normal(size=(1000, 4)) + moved for moved in (0.0, [0.3, 0.35, 0.4, 0.0]))
    with_record[:, 3] = np.where(rng.random(1000) < 0.04, -8.0, with_record[:, 3])
    alone, signs = _best_alone(without, with_record, always=(), names=("a", "b", "c", "d"))
    assert alone.tolist() == [2, 1, 3]
    assert signs.tolist() == [1.0, 1.0, -1.0]
