"""What every distinguisher must do, for every kind of output that it reads."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import FALSE_FAILURE
from scipy import stats

import distinguishers
import mechanisms
from distinguishers.catalogue import DISTINGUISHERS
from distinguishers.contract import Distinguisher
from mechanisms.pairs.neighbours import GradientTable
from mechanisms.release import layout_of
from mechanisms.simulators.one_round import OneRound

KEY = jax.random.key(20240603)
TRIALS = 400
PAIR = mechanisms.worst_case_pair(records=2, dimension=20, clip=0.5, shared=0.0, extra=1.0)
SUM = mechanisms.one_round(normalise_by="none", rate=0.9, clip=0.5, noise_multiplier=0.5)
MEAN = mechanisms.one_round(normalise_by="expected_batch", rate=0.9, clip=0.5, noise_multiplier=0.5)


@dataclasses.dataclass(frozen=True)
class Case:
    """A distinguisher, and a mechanism on which its score must rise with the record."""

    distinguisher: Distinguisher
    violating: OneRound
    spends_key: bool = False


def trained(draw, step) -> Distinguisher:
    without, with_record = draw(step, PAIR.without, 400, 1), draw(step, PAIR.with_record, 400, 2)
    layout = layout_of(jax.tree.map(lambda leaf: leaf[0], without))
    return distinguishers.fit().learn(KEY, without, with_record, layout).members[0]


CASES = {
    "likelihood_ratio": lambda draw, step: Case(distinguishers.likelihood_ratio(MEAN, PAIR), MEAN),
    "normality_test": lambda draw, step: Case(distinguishers.normality_test(MEAN, PAIR), MEAN, True),
    "anderson_darling": lambda draw, step: Case(
        distinguishers.normality_test(MEAN, PAIR, test="anderson_darling", level=None), MEAN, True
    ),
    "max_coordinate": lambda draw, step: Case(distinguishers.max_coordinate(PAIR), SUM),
    "projection": lambda draw, step: Case(distinguishers.projection(PAIR), SUM),
    "norm": lambda draw, step: Case(distinguishers.norm(PAIR), MEAN),
    "norm of everything": lambda draw, step: Case(distinguishers.norm(sign=1), SUM),
    "ratio": lambda draw, step: Case(distinguishers.ratio(PAIR), MEAN),
    "contrast": lambda draw, step: Case(distinguishers.contrast(PAIR), SUM),
    "battery": lambda draw, step: Case(distinguishers.battery(PAIR, mechanism=step), MEAN),
    "learned": lambda draw, step: Case(trained(draw, step), MEAN),
}
PAIRS = [(name, kind) for name in CASES for kind in ("vector", "collapsed")]


@pytest.mark.few(5)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_every_distinguisher_keeps_the_contract(name, kind, draw_outputs):
    step = MEAN if kind == "vector" else MEAN.collapsed()
    case = CASES[name](draw_outputs, step)
    score = case.distinguisher
    assert isinstance(score, Distinguisher)
    assert score.name in (*DISTINGUISHERS, "learned")
    assert all(isinstance(word, str) for word in score.parameters)
    if kind not in score.accepts:
        return
    violating = case.violating if kind == "vector" else case.violating.collapsed()
    outputs = [
        draw_outputs(violating, table, TRIALS, 30 + i) for i, table in enumerate((PAIR.without, PAIR.with_record))
    ]
    keys = jax.random.split(KEY, TRIALS)
    fast = jax.jit(jax.vmap(score))
    without, with_record = (np.asarray(fast(keys, side)) for side in outputs)
    members = len(score.members) if name == "battery" else None
    assert members is not None or score.members == (score,)
    assert without.dtype == np.float32
    assert without.shape == ((TRIALS,) if members is None else (TRIALS, members))
    assert np.isfinite(without).all()
    assert np.isfinite(with_record).all()
    np.testing.assert_array_equal(fast(keys, outputs[0]), without)
    one = jax.eval_shape(score, keys[3], jax.tree.map(lambda leaf: leaf[3], outputs[0]))
    assert (one.shape, one.dtype) == (without.shape[1:], without.dtype)
    other = np.asarray(fast(jax.random.split(jax.random.key(1), TRIALS), outputs[0]))
    assert (not np.array_equal(other, without)) == case.spends_key
    assert_rises(without if members is None else without[:, 1], with_record if members is None else with_record[:, 1])


def test_a_users_function_becomes_a_distinguisher_under_its_own_name():
    def first(key, output):
        return output[0]

    score = distinguishers.distinguisher(first, place=0)
    assert isinstance(score, Distinguisher)
    assert (score.name, score.parameters, score.accepts, score.curve) == ("first", {"place": 0}, ("any",), None)
    assert score.members == (score,)
    assert score(KEY, jnp.arange(1.0, 3.0)) == 1.0
    with pytest.raises(TypeError, match="a function of an output, or of a key and an output"):
        distinguishers.distinguisher(3)  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize(
    "plain", [lambda output: output[1], jnp.max, lambda key, output: output[1], lambda *both: both[1][1]]
)
def test_a_plain_function_may_want_the_output_alone(plain):
    assert distinguishers.distinguisher(plain)(KEY, jnp.arange(1.0, 3.0)) == 2.0


def test_an_object_that_answers_in_part_keeps_its_answers():
    class Last:
        name, accepts = "last", ("vector",)

        def __call__(self, key, output):
            return output[-1]

    score = distinguishers.distinguisher(Last())
    assert (score.name, score.accepts, score.parameters) == ("last", ("vector",), {})
    whole = distinguishers.norm(PAIR)
    assert distinguishers.distinguisher(whole) is whole


def assert_rises(without: np.ndarray, with_record: np.ndarray) -> None:
    """The score with the record is the larger one in more pairs than a fair coin would ever show."""
    wins = int((with_record > without).sum())
    assert stats.binom.sf(wins - 1, len(without), 0.5) < FALSE_FAILURE, f"{wins} of {len(without)} pairs rose"


def test_the_check_of_direction_can_fail():
    rng = np.random.default_rng(0)
    with pytest.raises(AssertionError):
        assert_rises(rng.normal(size=TRIALS), rng.normal(size=TRIALS))


def test_catalogue_names_are_the_names_that_distinguishers_report():
    alone = mechanisms.worst_case_pair(records=3, dimension=1, clip=1.0, relation="zero_out")
    training = mechanisms.many_rounds(sampler={"kind": "shuffle", "batch_size": 1}, clip=1.0, noise_multiplier=1.0)
    for name, constructor in DISTINGUISHERS.items():
        if name == "largest_round":
            assert constructor(training, alone).name == name
            continue
        if name in ("fit", "default_battery"):
            continue
        model = name in ("likelihood_ratio", "normality_test")
        assert (constructor(MEAN, PAIR) if model else constructor(PAIR)).name == name


def test_battery_reads_what_its_mechanism_gives():
    names = [member.name for member in distinguishers.battery(PAIR).members]
    assert names == ["projection", "norm", "ratio", "contrast", "max_coordinate"]
    assert distinguishers.battery(PAIR).accepts == ("vector",)
    collapsed = distinguishers.battery(PAIR, mechanism=MEAN.collapsed())
    assert "collapsed" in collapsed.accepts
    zero = mechanisms.zero_pair(records=2, dimension=20, clip=0.5)
    assert [member.name for member in distinguishers.battery(zero).members] == ["norm", "max_coordinate"]
    assert [m.name for m in distinguishers.battery(mechanisms.scalar_pair()).members] == [
        "projection",
        "norm",
        "max_coordinate",
    ]
    assert distinguishers.battery(mechanisms.scalar_pair()).members[0](KEY, jnp.ones(1)) == 1.0


def test_rotated_gradients_score_as_aligned_ones_do():
    rng = np.random.default_rng(9)
    rotation = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    gradients = np.zeros((3, 20))
    gradients[:, 0] = (0.1, 0.1, 0.4)
    plain = mechanisms.Neighbours(
        without=GradientTable(rows=gradients[:2, :1], counts=(1, 1), dimension=20),
        with_record=GradientTable(rows=gradients[:, :1], counts=(1, 1, 1), dimension=20),
        relation="add_remove",
    )
    turned = mechanisms.neighbours_from_gradients(gradients[:2] @ rotation, gradients[2] @ rotation)
    y = rng.normal(size=20)
    for make in (distinguishers.projection, distinguishers.norm, distinguishers.ratio):
        there, here = (
            make(turned)(KEY, jnp.asarray(y @ rotation, jnp.float32)),
            make(plain)(KEY, jnp.asarray(y, jnp.float32)),
        )
        assert float(there) == pytest.approx(float(here), rel=1e-4)


def test_norm_keeps_its_digits_for_tiny_outputs():
    y = 1e-4 * np.random.default_rng(1).normal(size=20)
    found = float(distinguishers.norm(PAIR)(KEY, jnp.asarray(y, jnp.float32)))
    assert found == pytest.approx(-np.log(np.mean(y[1:] ** 2)), rel=1e-5)


def test_contrast_sees_through_noise_that_coordinates_share():
    rng = np.random.default_rng(2)
    outputs = np.repeat(rng.normal(size=(50, 1)), 20, axis=1) * 100
    lifted = outputs + 0.5 * (np.arange(20) == 0)
    score = jax.vmap(lambda y: distinguishers.contrast(PAIR)(KEY, y))
    assert np.abs(np.asarray(score(jnp.asarray(outputs, jnp.float32)))).max() < 1e-3
    assert np.asarray(score(jnp.asarray(lifted, jnp.float32))).min() > 0.4


def test_pairs_without_a_direction_are_refused_with_a_reason():
    zero = mechanisms.zero_pair(records=2, dimension=20, clip=0.5)
    with pytest.raises(ValueError, match="sums of gradients differ"):
        distinguishers.projection(zero)
    with pytest.raises(ValueError, match="sign must be"):
        distinguishers.norm(sign=0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"equally long vectors.*leave the distinguisher out"):
        distinguishers.projection(mechanisms.Neighbours(without="a", with_record="b", relation="substitution"))
