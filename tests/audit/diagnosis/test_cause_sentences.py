"""Faults that give the same measurement: a cause is named alone only where it is the true one.

One row for each fault: what it does to outputs, what may be asked of it, and which causes are true of it.
"""

import ast
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checks import assert_rate_at_most

import mechanisms
from audit import diagnosis
from audit.diagnosis import diagnose
from audit.diagnosis.cause_sentences import CAUSES, QUESTIONS, sentence
from audit.diagnosis.cause_sentences import answer as answered
from audit.diagnosis.explain.findings import Explanation, Round
from audit.diagnosis.explain.sentences import not_followed
from audit.diagnosis.noise import Noise
from audit.diagnosis.presence import repeated
from audit.diagnosis.rank import blame_sampling
from audit.diagnosis.scale import depends_on_record
from audit.diagnosis.sensitivity import Rates
from mechanisms.release import Layout

WIDTH, TRIALS, NOISE, OTHERS = 40, 600, 2.0, 4
UNIT = np.eye(1, WIDTH)[0]
PLAIN = mechanisms.worst_case_pair(records=OTHERS, dimension=WIDTH, clip=1.0)
DENSE_UNIT = np.sign(np.sin(np.arange(1, WIDTH + 1))) / np.sqrt(WIDTH)
DENSE = mechanisms.neighbours_from_gradients(-np.tile(DENSE_UNIT, (OTHERS, 1)), DENSE_UNIT)
ROWS = mechanisms.add_record(-np.tile(UNIT, (OTHERS, 1)), UNIT)
"""The same rows, which nobody calls gradients."""
LONG = mechanisms.neighbours_from_gradients(-np.tile(4 * UNIT, (OTHERS, 1)), 4 * UNIT)
"""Every gradient is longer than the bound."""
SMALL = mechanisms.worst_case_pair(records=OTHERS, dimension=6, clip=1.0)
NOT_A_NUMBER = mechanisms.Neighbours(
    without=-np.tile(UNIT, (OTHERS, 1)),
    with_record=np.concatenate([-np.tile(UNIT, (OTHERS, 1)), np.full((1, WIDTH), np.nan)]),
    relation="add_remove",
)


@dataclasses.dataclass
class Draw:
    """What a fault may change: noise (trials, width), who was taken (trials, records), and the record's last place."""

    rng: np.random.Generator
    unit: np.ndarray
    present: bool
    rate: float
    noise: np.ndarray = dataclasses.field(init=False)
    others: np.ndarray = dataclasses.field(init=False)
    taken: np.ndarray = dataclasses.field(init=False)

    def __post_init__(self):
        self.noise = NOISE * self.rng.standard_normal((TRIALS, WIDTH))
        self.others = (self.rng.random((TRIALS, OTHERS)) < self.rate).astype(float)
        self.taken = self.present * (self.rng.random(TRIALS) < self.rate).astype(float)

    @property
    def sums(self):
        return np.outer(self.taken - self.others.sum(axis=1), self.unit)

    @property
    def release(self):
        return self.sums + self.noise

    def column(self, values):
        """One number a trial, for all coordinates."""
        return np.asarray(values, float)[:, None]


def scaled(draw, values):
    return draw.sums + draw.noise * draw.column(values)


def along(draw, values):
    """The noise along the gradients in other words."""
    return draw.sums + draw.noise - np.outer(draw.noise @ draw.unit, draw.unit) + np.outer(values, draw.unit)


def shortened(rows, bound=10.0):
    return rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True) / bound)


def laplace(draw):
    return draw.sums + draw.rng.laplace(0.0, NOISE / np.sqrt(2), draw.noise.shape)


def uniform(draw):
    return draw.sums + NOISE * np.sqrt(3) * draw.rng.uniform(-1, 1, draw.noise.shape)


def coarse_in_few(draw):
    return (draw.sums + NOISE * np.sign(draw.noise))[:, :6]


def copied(draw):
    draw.noise[:, 30:] = draw.noise[:, 10:20]
    return draw.release


def antithetic(draw):
    draw.noise[:, 21:] = -draw.noise[:, 2:21]
    return draw.release


def autoregressive(draw):
    for t in range(1, TRIALS):
        draw.noise[t] = 0.7 * draw.noise[t - 1] + np.sqrt(1 - 0.49) * draw.noise[t]
    return draw.release


def reseeded(draw):
    draw.noise[1::2] = draw.noise[::2]
    return draw.release


def few_draws(draw):
    draw.noise = NOISE * np.random.default_rng(8).standard_normal((4, WIDTH))[draw.rng.integers(0, 4, TRIALS)]
    return draw.release


def displaced(draw):
    """The record is always taken, and with it the first of the others is not."""
    draw.taken[:] = draw.present
    draw.others[:, 0] *= 1 - draw.present
    return draw.sums @ np.outer(UNIT, UNIT) + 0.1 * draw.noise


def beside(draw, values):
    """Something in coordinates that no gradient touches."""
    return draw.release + np.outer(values, np.eye(1, WIDTH, 7)[0] + np.eye(1, WIDTH, 11)[0])


def record_redrawn(draw):
    directions = draw.rng.standard_normal((TRIALS, WIDTH))
    return draw.release + draw.column(8 * draw.taken) * directions / np.linalg.norm(directions, axis=1, keepdims=True)


def evened_out(draw):
    """Noise along the gradients that goes against what the batch did."""
    count = draw.others.sum(axis=1) - OTHERS / 2
    return along(draw, np.abs(draw.noise @ draw.unit) * np.sign(count))


def of_size_two(draw):
    draw.others = np.tile([1.0, 1.0, 0.0, 0.0], (TRIALS, 1))
    return draw.release


def summed_bound(draw):
    total = np.linalg.norm(draw.sums, axis=1)
    return draw.sums / np.maximum(1.0, draw.column(total)) + 0.2 * draw.noise


def batch_again(draw):
    return _steps(draw, draw.taken, draw.taken)


def carried_over(draw):
    second = (draw.rng.random(TRIALS) < draw.rate) * draw.present
    return _steps(draw, draw.taken, second + 0.9 * draw.taken)


def turns(draw):
    return _steps(draw, draw.taken, draw.present - draw.taken)


def taken_back(draw):
    second = (draw.rng.random(TRIALS) < draw.rate) * draw.present
    return _steps(draw, draw.taken, second - 0.9 * draw.taken)


def _steps(draw, *moves):
    half = WIDTH // 2
    noise = 0.3 * draw.noise.reshape(TRIALS, 2, half)
    noise[:, :, 0] += np.stack(moves, axis=1)
    return noise


@dataclasses.dataclass(frozen=True)
class Fault:
    outputs: Callable[[Draw], np.ndarray]
    asked: tuple[str, ...]
    true: tuple[str, ...]
    rate: float = 1.0
    noise: float = NOISE
    pair: mechanisms.Neighbours = PLAIN
    stated: dict = dataclasses.field(default_factory=dict)
    """In place of a noise multiplier."""


LAPLACE = {"law": "laplace", "epsilon": 1.0}
UNEVEN = np.where(np.arange(WIDTH) % 2, 0.5, 1.4)
FAULTS = {
    "scale redrawn": Fault(
        lambda d: scaled(d, np.exp(d.rng.normal(0, 0.4, TRIALS))), ("scale_by_trial",), ("scale_redrawn",)
    ),
    "divided by the batch": Fault(
        lambda d: d.release / d.column(1 + d.others.sum(axis=1) + d.taken),
        ("scale_by_trial", "scale_by_record"),
        ("batch_divisor", "reads_dataset"),
        rate=0.5,
    ),
    "divided by the batch, most of it the record": Fault(
        lambda d: d.release / d.column(1 + 3 * d.taken),
        ("scale_by_record", "scale_by_trial"),
        ("batch_divisor",),
        rate=0.5,
    ),
    "bound of the batch": Fault(
        lambda d: scaled(d, 1 + d.others.sum(axis=1)), ("scale_by_trial",), ("batch_bound",), rate=0.5
    ),
    "noise of every record": Fault(
        lambda d: scaled(d, np.sqrt(d.others.sum(axis=1) + d.taken)),
        ("silent", "scale_by_trial"),
        ("empty_batch", "noise_of_records"),
        rate=0.5,
    ),
    "release clipped, the records not": Fault(
        lambda d: shortened(4 * d.sums + d.noise), ("scale_by_trial",), ("release_clipped",), rate=0.5, pair=LONG
    ),
    "divided by the dataset": Fault(lambda d: d.release / (4 + d.present), ("scale_by_record",), ("reads_dataset",)),
    "mean over the dataset, one noise": Fault(
        lambda d: d.sums / (4 + d.present) + d.noise / 4, ("ratio",), ("count_divides",)
    ),
    "mean of the batch, noise divided by a constant": Fault(
        lambda d: d.sums / d.column(np.maximum(d.others.sum(axis=1) + d.taken, 1)) + 0.1 * d.noise / 2.5,
        ("batches",),
        ("sum_scaled",),
        rate=0.5,
        noise=0.1 * NOISE,
    ),
    "mean of the batch, much noise divided by a constant": Fault(
        lambda d: d.sums / d.column(np.maximum(d.others.sum(axis=1) + d.taken, 1)) + d.noise / 8,
        ("ratio", "batches"),
        ("sum_scaled",),
        rate=0.5,
    ),
    "mean of the batch, of long gradients": Fault(
        lambda d: d.sums / d.column(np.maximum(d.others.sum(axis=1) + d.taken, 1)) + d.noise / 4,
        ("ratio", "batches"),
        ("sum_scaled",),
        rate=0.5,
        pair=LONG,
    ),
    "only the noise divided by the dataset": Fault(
        lambda d: d.sums + d.noise / (4 + d.present),
        ("scale_by_record", "ratio"),
        ("reads_dataset", "less_noise"),
    ),
    "scaled by the dataset": Fault(lambda d: d.release * (4 + d.present), ("scale_by_record",), ("reads_dataset",)),
    "record redrawn": Fault(record_redrawn, ("scale_by_record",), ("record_redrawn",)),
    "uneven": Fault(lambda d: d.sums + d.noise * UNEVEN, ("normal", "batches"), ("uneven", "less_along", "more_along")),
    "uneven, dense gradients": Fault(lambda d: d.sums + d.noise * UNEVEN, ("normal",), ("uneven",), pair=DENSE),
    "laplace": Fault(laplace, ("normal",), ("another_law",)),
    "laplace of an l2 norm": Fault(
        lambda d: d.sums + d.rng.laplace(0.0, 1.0, d.noise.shape),
        ("l1_ratio",),
        ("l2_for_l1",),
        pair=DENSE,
        stated=LAPLACE,
    ),
    "half of the laplace": Fault(
        lambda d: d.sums + d.rng.laplace(0.0, 0.5, d.noise.shape), ("l1_ratio",), ("less_noise",), stated=LAPLACE
    ),
    "normal for laplace": Fault(lambda d: d.release, ("laplace",), ("not_laplace",), stated=LAPLACE),
    "uniform": Fault(uniform, ("tails",), ("another_law",)),
    "cut": Fault(lambda d: d.sums + np.clip(d.noise, -2 * NOISE, 2 * NOISE), ("tails",), ("cut",)),
    "release cut": Fault(lambda d: np.clip(d.release, -2 * NOISE, 2 * NOISE), ("tails",), ("cut",)),
    "coarse": Fault(lambda d: d.sums + np.round(4 * d.noise) / 4, ("grain",), ("coarse_noise",)),
    "release rounded": Fault(lambda d: np.round(d.release, 1), ("grain",), ("release_rounded",)),
    "coarse in few coordinates": Fault(coarse_in_few, ("grain",), ("coarse_noise",), pair=SMALL),
    "reseeded": Fault(reseeded, ("repeated",), ("seed_again",)),
    "four draws for all trials": Fault(few_draws, ("repeated",), ("seed_again",)),
    "a draw for each dataset": Fault(
        lambda d: d.sums + np.random.default_rng(int(d.present)).standard_normal(WIDTH),
        ("repeated",),
        ("seed_of_dataset",),
    ),
    "state is kept": Fault(autoregressive, ("repeated",), ("kept_state",)),
    "one number": Fault(lambda d: d.sums + np.tile(d.noise[:, :1], WIDTH), ("shared",), ("one_draw",)),
    "copied": Fault(copied, ("shared",), ("key_again",)),
    "antithetic": Fault(antithetic, ("shared",), ("correlated",)),
    "batches elsewhere": Fault(
        lambda d: beside(d, 4 * d.others.sum(axis=1)), ("shared", "normal"), ("sum_elsewhere",), rate=0.5
    ),
    "augmentations": Fault(lambda d: beside(d, d.taken), ("direction",), ("counted_otherwise",)),
    "rows that are no gradients": Fault(
        lambda d: beside(d, d.taken), ("direction",), ("rows_no_gradients",), pair=ROWS
    ),
    "clipped apart": Fault(lambda d: beside(d, -d.taken), ("direction",), ("clipped_apart",)),
    "each part clipped to the bound": Fault(
        lambda d: d.release + np.outer(5 * d.taken, d.unit), ("ratio",), ("clipped_apart",), pair=DENSE
    ),
    "moves others": Fault(lambda d: beside(d, d.taken * d.others.sum(axis=1)), ("direction",), ("moves_others",)),
    "moves others in batches": Fault(
        lambda d: beside(d, 4 * d.taken * d.others.sum(axis=1)), ("direction",), ("moves_batches",), rate=0.5
    ),
    "a statistic of the batch": Fault(
        lambda d: np.where(
            np.eye(1, WIDTH, 7) > 0, 0.5 * d.noise + d.column(3 * d.taken + d.others @ np.arange(1, 5)), d.release
        ),
        ("direction",),
        ("not_of_the_sum",),
        rate=0.5,
    ),
    "fixed batches": Fault(of_size_two, ("batches",), ("fixed_batches",), rate=0.5),
    "less along": Fault(lambda d: along(d, 0.3 * d.noise @ d.unit), ("batches",), ("less_along",), rate=0.5),
    "noise of the batch": Fault(evened_out, ("batches",), ("noise_of_batch",), rate=0.5),
    "sum clipped": Fault(summed_bound, ("batches",), ("sum_clipped",), rate=0.5, noise=0.2 * NOISE),
    "more along": Fault(lambda d: along(d, 2 * d.noise @ d.unit), ("batches",), ("more_along",)),
    "counted at random": Fault(
        lambda d: d.release + np.outer(6 * d.rng.integers(0, 2, TRIALS) - 3, d.unit),
        ("batches",),
        ("counted_at_random",),
    ),
    "batch again": Fault(batch_again, ("steps",), ("batch_again",), rate=0.5),
    "momentum before noise": Fault(carried_over, ("steps", "ratio"), ("carried_over", "counted_again"), rate=0.5),
    "turns": Fault(turns, ("steps",), ("turns",), rate=0.5),
    "taken back": Fault(taken_back, ("steps",), ("taken_back",), rate=0.5),
    "another rate": Fault(
        lambda d: d.sums + 0.1 * d.noise + np.outer(d.present * (1 - d.taken) * (d.rng.random(TRIALS) < 0.8), d.unit),
        ("rate",),
        ("another_rate",),
        rate=0.5,
        noise=0.1 * NOISE,
    ),
    "weight redrawn": Fault(
        lambda d: d.sums + 0.1 * d.noise + np.outer(d.present * (1 - d.taken) * d.rng.uniform(0.5, 1, TRIALS), d.unit),
        ("rate", "ratio"),
        ("weight_redrawn", "counted_again"),
        rate=0.5,
        noise=0.1 * NOISE,
    ),
    "not clipped": Fault(lambda d: d.release + np.outer(3 * d.taken, d.unit), ("ratio",), ("not_clipped",), pair=LONG),
    "sum scaled": Fault(lambda d: 7 * d.sums + d.noise, ("ratio",), ("sum_scaled",)),
    "takes another's place": Fault(
        displaced, ("ratio", "rate", "batches"), ("counted_again", "another_rate"), rate=0.5, noise=0.1 * NOISE
    ),
    "clipped with others": Fault(
        lambda d: d.release + np.outer(4 * d.taken, d.unit), ("ratio",), ("not_clipped_alone",)
    ),
    "counted again": Fault(lambda d: d.release + np.outer(3 * d.taken, d.unit), ("ratio",), ("counted_again",)),
    "larger bound": Fault(lambda d: d.release + np.outer(3 * d.taken, d.unit), ("ratio",), ("larger_bound",)),
    "larger bound, divided by it": Fault(
        lambda d: (d.release + np.outer(3 * d.taken, d.unit)) / 4, ("ratio",), ("larger_bound",)
    ),
    "larger bound for all, divided by it": Fault(
        lambda d: d.sums + d.noise / 4, ("ratio",), ("larger_bound",), pair=LONG
    ),
    "less noise": Fault(lambda d: d.sums + 0.1 * d.noise, ("ratio",), ("less_noise",)),
    "less beside": Fault(
        lambda d: d.sums + 0.01 * d.noise + np.outer(d.noise @ d.unit, d.unit),
        ("ratio", "batches"),
        ("less_beside", "more_along"),
    ),
    "far": Fault(lambda d: d.release + np.outer(1e7 * d.taken, d.unit), ("bounded",), ("not_clipped",)),
    "divided by little": Fault(
        lambda d: d.release / (1 - d.present * (1 - 1e-7)), ("bounded",), ("divided_by_little",)
    ),
    "not a number": Fault(
        lambda d: d.release + np.outer(5 * d.taken, np.ones(WIDTH)),
        ("direction",),
        ("not_a_number",),
        pair=NOT_A_NUMBER,
    ),
}


def said(fault):
    return [answer for answer in answers_of(fault) if answer.wrong and not answer.follows]


def answers_of(fault):
    rng = np.random.default_rng(5)
    unit = DENSE_UNIT if fault.pair is DENSE else UNIT
    sides = [fault.outputs(Draw(rng=rng, unit=unit, present=present, rate=fault.rate)) for present in (False, True)]
    layout, pair = None, fault.pair
    if sides[0].ndim == 3:
        layout = Layout(names=("weight",), shapes=((WIDTH // 2,),), rounds=2)
        pair = mechanisms.neighbours_from_gradients(np.zeros((OTHERS, WIDTH // 2)), UNIT[: WIDTH // 2])
    settings = {"clip": 1.0, "noise_multiplier": fault.noise if layout is None else 0.3 * NOISE, "rate": fault.rate}
    return diagnose(*sides, pair, **(fault.stated or settings), risk=0.01, layout=layout)


@pytest.mark.few(18)
@pytest.mark.parametrize("name", FAULTS)
def test_only_what_may_be_true_is_said(name):
    fault = FAULTS[name]
    answers = said(fault)
    assert answers
    assert {answer.code for answer in answers} <= set(fault.asked), [answer.says for answer in answers]
    for answer in answers:
        assert not answer.causes or set(answer.causes) & set(fault.true), answer.says
    assert any(set(answer.causes) & set(fault.true) for answer in answers), [answer.says for answer in answers]


def test_less_noise_and_a_larger_bound_are_told_apart_where_the_other_records_show_a_divisor():
    divided = ("larger bound, divided by it", "larger bound for all, divided by it")
    (less,), (larger,), (either,) = (said(FAULTS[name]) for name in ("less noise", *divided))
    assert less.causes == ("less_noise",)
    assert "larger_bound" in larger.causes
    assert "less_noise" not in larger.causes
    assert "is divided by 4" in larger.says
    assert {"less_noise", "larger_bound"} <= set(either.causes)


UNEVEN_ROW = np.r_[np.full(4, 5.0), np.full(WIDTH - 4, 0.3)]
TENSORS = Layout(names=("bias", "weight"), shapes=((4,), (WIDTH - 4,)))


@pytest.mark.parametrize(
    ("moved", "says"),
    [
        (np.clip(UNEVEN_ROW, -1, 1), ", as if each of its numbers were clipped by itself."),
        (np.r_[np.full(4, 0.5), np.full(WIDTH - 4, 1 / 6)], ", as if each of its tensors were clipped by itself."),
        (UNEVEN_ROW[::-1] / 5, None),
    ],
    ids=["numbers", "tensors", "elsewhere"],
)
def test_what_is_clipped_by_itself_is_named_where_the_record_moves_so(moved, says):
    """Clipped by value: only that the record does not move along its gradient was said."""
    rng = np.random.default_rng(6)
    noise = 0.2 * rng.standard_normal((2, TRIALS, WIDTH))
    pair = mechanisms.neighbours_from_gradients(np.zeros((OTHERS, WIDTH)), UNEVEN_ROW)
    found = diagnose(noise[0], noise[1] + moved, pair, clip=1.0, noise_multiplier=0.2, risk=0.01, layout=TENSORS)
    (answer,) = (answer for answer in found if answer.code == "direction")
    assert answer.wrong
    assert says in answer.says if says else "as if" not in answer.says


def test_a_scale_drawn_at_random_is_named_unless_empty_batches_say_more():
    """Of right code that scales its release at random three causes were named, none of them this one."""
    redrawn = dataclasses.replace(FAULTS["scale redrawn"], rate=0.5)
    (answer,) = (answer for answer in said(redrawn) if answer.code == "scale_by_trial")
    assert answer.says.endswith(f"{CAUSES['scale_redrawn']}.")
    assert "noise_of_records" not in answer.causes
    (answer,) = (answer for answer in said(FAULTS["noise of every record"]) if answer.code == "scale_by_trial")
    assert answer.causes[0] == "noise_of_records"


def test_the_number_of_records_is_no_cause_where_the_record_moves_the_sum_otherwise():
    for name in ("less noise", "not clipped", "larger bound, divided by it"):
        assert not any("count_divides" in answer.causes for answer in said(FAULTS[name])), name


def test_a_record_that_moves_the_sum_by_the_length_of_its_gradient_is_first_of_all_not_clipped():
    longer = dataclasses.replace(FAULTS["not clipped"], outputs=lambda d: d.release + np.outer(6 * d.taken, d.unit))
    not_clipped = dataclasses.replace(longer, outputs=lambda d: d.release + np.outer(3 * d.taken, d.unit))
    for fault in (not_clipped, dataclasses.replace(not_clipped, outputs=lambda d: not_clipped.outputs(d) / 8)):
        (answer,) = said(fault)
        assert next(cause for cause in answer.causes if not cause.startswith("less")) == "not_clipped"
        assert "as its gradient does without clipping" in answer.says
    (answer,) = said(longer)
    assert "without clipping" not in answer.says
    assert answer.causes[0] == "larger_bound"


def test_what_a_record_moves_at_a_rate_is_said_as_it_was_measured():
    """It is always taken where half of the time is stated: it moves the sum by 1, and not by 2."""
    always = Fault(
        lambda d: np.outer(d.present - d.others.sum(axis=1), UNIT) + 0.1 * d.noise, (), (), rate=0.5, noise=0.1 * NOISE
    )
    answers = said(always)
    assert [answer.code for answer in answers] == ["rate"]
    (ratio,) = (answer for answer in answers_of(always) if answer.code == "ratio")
    (moved,) = re.findall(
        r"the record moves the sum by ([\d.]+) on average where 0.5 is expected at rate 0.5", ratio.says
    )
    assert 0.9 < float(moved) < 1.1


FOUR = np.where(np.arange(WIDTH) < 4, 0.5, 0.0)


def test_noise_that_would_do_for_the_l2_norm_is_not_the_only_cause():
    """In four coordinates half the noise that the l1 norm needs is what the l2 norm needs, by chance."""
    pair = mechanisms.neighbours_from_gradients(np.tile(-FOUR, (OTHERS, 1)), FOUR)
    half = Fault(lambda d: d.sums @ np.outer(UNIT, FOUR) + d.rng.laplace(0.0, 1.0, d.noise.shape), (), (), pair=pair)
    (found,) = said(dataclasses.replace(half, stated=LAPLACE))
    assert {"l2_for_l1", "less_noise"} <= set(found.causes)


def test_what_follows_from_another_answer_accuses_nothing():
    rng = np.random.default_rng(3)
    ten = NOISE * rng.standard_normal((10, WIDTH))
    reseeded = [np.tile(ten, (10, 1)) + taken * UNIT for taken in (0.0, 1.0)]
    answers = diagnose(*reseeded, PLAIN, clip=1.0, noise_multiplier=NOISE, risk=0.01)
    follow = [answer for answer in answers if answer.follows]
    assert [answer.code for answer in answers if answer.wrong and not answer.follows] == ["repeated"]
    assert follow
    assert not any(answer.causes for answer in follow)
    assert {answer.says.rsplit(". ", 1)[1] for answer in follow} == {
        "This follows from the answer to 'is noise repeated from trial to trial?'."
    }


def test_rounding_is_not_called_noise():
    rng = np.random.default_rng(3)
    once = NOISE * rng.standard_normal(WIDTH)
    still = [(once + taken * UNIT + 1e-9 * rng.standard_normal((100, WIDTH))) for taken in (0.0, 1.0)]
    answers = diagnose(*still, PLAIN, clip=1.0, noise_multiplier=NOISE, risk=0.01)
    assert [answer.code for answer in answers if answer.wrong and not answer.follows] == ["repeated"]
    assert all("has noise" not in answer.says and "of theirs" not in answer.says for answer in answers)


def test_a_change_of_law_is_not_told_as_a_scale_that_its_deviations_contradict():
    """It said 'the noise is 0.63 times as large (deviation 22.3 without it, 20.3 with it)'."""
    rng = np.random.default_rng(0)
    scales = {"same": np.ones(500), "half": np.full(500, 0.5), "mostly half": np.where(rng.random(500) < 0.9, 0.5, 4.0)}

    def told(name):
        sides = (scales["same"], scales[name])
        drawn = [own[:, None] * rng.standard_normal((500, 5)) for own in sides]
        noise = [Noise(outputs=d, along=d[:, 0], beside=d, rest=d, rotated=False) for d in drawn]
        return depends_on_record(*noise, risk=1e-6)

    assert "times" in told("half").says
    assert told("half").causes == ("reads_dataset",)
    assert told("mostly half").says.startswith("the record changes the law of the noise (deviation ")
    assert told("mostly half").causes == ("noise_of_dataset",)
    assert not told("same").wrong


def test_a_change_of_scale_that_its_interval_hardly_shows_is_no_change_of_law():
    """It said 'the noise depends on the dataset in more than its scale' of a noisy mean over its records."""
    noise = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        drawn = [rng.laplace(scale=scale, size=(400, 1)) for scale in (1.0, 2 / 3)]
        noise.append([Noise(outputs=d, along=d[:, 0], beside=d, rest=d, rotated=False) for d in drawn])
    found = [depends_on_record(*sides, risk=1e-3) for sides in noise]
    assert {answer.causes for answer in found if answer.wrong} == {("reads_dataset",)}
    assert any("changes the scale of the noise" in answer.says for answer in found)


@pytest.mark.parametrize("noise", [np.abs, np.asarray])
def test_skewed_noise_is_called_so_before_it_is_called_little(noise):
    """It said 'there is less noise than stated' of the absolute values of normal noise."""
    rng = np.random.default_rng(0)
    sides = [noise(rng.standard_normal((600, WIDTH))) * (0.6 if noise is np.asarray else 1.0) for _ in range(2)]
    sides[1] += UNIT
    answers = diagnose(*sides, PLAIN, clip=1.0, noise_multiplier=1.0, risk=0.01)
    (found,) = (answer for answer in answers if answer.code == "ratio")
    assert found.wrong
    assert (found.causes[0] == "one_sided") == (noise is np.abs)


@pytest.mark.parametrize(("draws", "rounded"), [(30, np.round), (200, np.asarray), (None, np.round), (None, np.trunc)])
def test_coarse_noise_is_not_told_as_seeds_alone_where_a_rotation_hides_its_grid(draws, rounded):
    """It said 'trials repeat: 1,706 different draws of noise: a seed or a release is reused' of rounded noise."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    drawn = rounded(0.5 * rng.standard_normal((draws or 2000, 12))) @ turn
    rows = drawn[rng.integers(draws, size=2000)] if draws else drawn
    sides = (rows[:1000], rows[1000:])
    noise = [Noise(outputs=d, along=d[:, 0], beside=d, rest=d, rotated=True) for d in sides]
    found = repeated(*noise, risk=1e-6)
    assert found.wrong
    assert found.causes == (("seed_again",) if draws else ("seed_again", "coarse_noise"))


def test_a_gradient_in_one_coordinate_has_no_parts_that_could_be_clipped_by_themselves():
    (answer,) = said(FAULTS["not clipped"])
    assert "clipped_apart" not in answer.causes


@pytest.mark.few(1)
@pytest.mark.parametrize("law", ["laplace", "any"])
def test_laplace_noise_is_accused_at_most_at_the_risk_where_it_may_be_laplace(law):
    runs, risk = 40, 0.1
    right = Fault(lambda d: d.sums + d.rng.laplace(0.0, 1.0, d.noise.shape), (), ())
    accused = 0
    for seed in range(runs):
        draws = (Draw(rng=np.random.default_rng([seed, p]), unit=UNIT, present=p, rate=1.0) for p in (False, True))
        answers = diagnose(*map(right.outputs, draws), PLAIN, law=law, epsilon=1.0, risk=risk)
        accused += any(answer.wrong for answer in answers)
    assert_rate_at_most(accused, runs, risk)


def test_every_cause_has_a_fault_of_which_it_is_true():
    # test_stated_noise.py, test_step_noise.py, test_trials_alike.py, test_hints.py, above, test_telling_event.py
    elsewhere = {
        "less_on_some",
        "scaled_apart",
        "other_steps",
        "gradients_otherwise",
        "noise_of_dataset",
        "clock_seed",
        "bare_part",
        "one_sided",
        "spent_on_each",
        "sharp_choice",
    }
    assert set(CAUSES) == {cause for fault in FAULTS.values() for cause in fault.true} | elsewhere
    assert {code for fault in FAULTS.values() for code in fault.asked} <= set(QUESTIONS)


def test_one_cause_is_stated_and_several_are_listed():
    assert sentence("it is so", ()) == "it is so."
    assert sentence("it is so", ("cut",)) == f"it is so: {CAUSES['cut']}."
    assert sentence("it is so", ("cut", "turns")) == f"it is so. Possible causes: {CAUSES['cut']}; {CAUSES['turns']}."


def test_a_code_without_words_says_where_to_add_them():
    given = {"wrong": True, "measured": "it is odd", "p_value": 0.0, "risk": 0.01, "assumes": "nothing"}
    with pytest.raises(LookupError, match=r"'new_question'.* add it to QUESTIONS in .*cause_sentences\.py"):
        answered("new_question", **given)
    with pytest.raises(LookupError, match=r"'new_cause'.* add it to CAUSES in .*cause_sentences\.py"):
        answered("ratio", causes=("new_cause",), **given)


def test_every_code_that_a_diagnosis_spells_has_words():
    """Also those that no test triggers: all strings where answers and causes are made."""
    spelt = set()
    for file in sorted(Path(diagnosis.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "answer":
                spelt |= {("QUESTIONS", node.args[0].value)} if isinstance(node.args[0], ast.Constant) else set()
                inside = [word.value for word in node.keywords if word.arg == "causes"]
                strings = [part.value for each in inside for part in ast.walk(each) if isinstance(part, ast.Constant)]
                spelt |= {("CAUSES", text) for text in strings if isinstance(text, str)}
    known = {("QUESTIONS", code) for code in QUESTIONS} | {("CAUSES", code) for code in CAUSES}
    assert len(spelt) > 20
    assert spelt <= known


def test_where_a_replay_has_measured_noise_and_sensitivity_the_rate_is_what_is_left():
    causes = ("clipped_apart", "not_clipped", "counted_again", "another_rate")
    given = {"wrong": True, "p_value": 1e-9, "risk": 0.01, "assumes": "nothing"}
    found = answered("ratio", measured="noise over sensitivity is 0.45 of what is expected", causes=causes, **given)
    other = answered("normal", measured="the noise is not normal", causes=("another_law",), **given)
    told, same = blame_sampling([found, other])
    assert told.causes == ("another_rate", "counted_again")
    assert told.says.startswith(
        "noise over sensitivity is 0.45 of what is expected; in a replay of the code one release"
    )
    assert told.says.endswith(
        "Possible causes: the record is sampled at a different rate; the record is counted more than once."
    )
    assert same is other


def test_a_replay_has_measured_it_where_every_round_has_just_the_multiplier_that_is_due():
    rounds = [Round(number=1, sensitivity=1.5, noise_deviation=1.65, multiplier=mult) for mult in (1.1, 1.3)]
    assert Explanation(rounds=(rounds[0],)).is_as_stated(1.1)
    assert not Explanation(rounds=(rounds[0],)).is_as_stated(None)
    assert not Explanation(rounds=tuple(rounds)).is_as_stated(1.1)
    assert not Explanation(rounds=(rounds[0],), findings=(not_followed("it is not known"),)).is_as_stated(1.1)
    assert not Explanation().is_as_stated(1.1)


@pytest.mark.parametrize(("error", "explains"), [(0.03, True), (0.001, False)])
def test_a_record_in_every_batch_may_seem_to_be_taken_more_than_once(error, explains):
    """A rate of 1 that is measured as 1.06 was 'counted more than once'."""
    assert Rates(found=1.06, error=error, p_stated=0.0, p_found=0.5).may_explain(0.5, 0.01) == explains
