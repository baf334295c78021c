"""Trials that repeat, or that depend on the one before: found first, also after a violation; right code is not."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from checks import assert_rate_at_most

import audit
import guarantees
import mechanisms
from audit.diagnosis import after_verdict
from audit.diagnosis.cut_noise import cut_noise
from audit.diagnosis.hints import is_cut
from audit.diagnosis.trials_alike import trials_alike
from audit.report.diagnoses import but_for, looks_wrong
from audit.report.formats import markdown
from audit.report.latex import latex
from audit.report.page import write_report
from audit.report.statement import model_card, statement
from audit.report.table import print_table
from audit.report.text import record_lines

ASKED = functools.partial(trials_alike, continuous=True, cut=False, plus_noise=True)
MANY = mechanisms.worst_case_pair(records=3, dimension=20, clip=1.0)
ONE = mechanisms.add_record(np.array([[3.0], [4.0], [7.0]], np.float32), np.array([9.0], np.float32))


def audited(code, pair, **told):
    step, claim = mechanisms.callable_step(code, **told), guarantees.gaussian(mu=1.0)
    return audit.run_audit(step, pair, claim=claim, trials=1000, risk=0.05, key=jax.random.key(0))


def wrong(record):
    return [answer for answer in record.diagnoses if answer.wrong]


def walk(totals, seed, rows):
    """Each trial adds its noise to what the one before released."""
    before = totals.setdefault(rows.tobytes(), rows.sum(axis=0))
    totals[rows.tobytes()] = before + np.random.default_rng(seed).standard_normal(rows.shape[1])
    return totals[rows.tobytes()]


@pytest.mark.long
@pytest.mark.parametrize("told", [{}, {"clip": 1.0, "noise_multiplier": 1.0, "gradients": lambda rows: rows}])
def test_a_total_that_is_never_reset_is_named_and_nothing_else(told):
    record = audited(functools.partial(walk, {}), MANY, **told)
    assert record.verdict == "violation"
    (answer,) = wrong(record)
    assert (answer.code, answer.causes) == ("dependent", ("kept_state",))
    assert "leaks_more" not in {each.code for each in record.diagnoses}
    for said in (statement((record,)), markdown((record,), title="t"), "\n".join(record_lines(record))):
        assert "assume independent trials" in said
        assert "bounds hold if" in said
        assert "nevertheless" not in said


def test_the_generator_of_the_system_is_no_state():
    own = np.random.default_rng(5)
    record = audited(lambda seed, rows: rows.sum(axis=0) + own.standard_normal(rows.shape[1]), MANY)
    assert record.repeatable is False
    assert (record.verdict, wrong(record)) == ("no_violation_found", [])


def few(seeds, seed, rows):
    return np.clip(rows, 0, 1).sum() + np.random.default_rng(seed % seeds).standard_normal()


@pytest.mark.few(1)
@pytest.mark.parametrize("seeds", [50, 400])
def test_few_seeds_of_one_released_number_are_named_before_the_tails_of_the_noise(seeds):
    record = audited(functools.partial(few, seeds), ONE)
    assert record.verdict == "violation"
    (answer,) = wrong(record)
    assert (answer.code, answer.causes[0]) == ("repeated", "seed_again")
    assert " different releases in 1,000 trials" in answer.says
    assert (answer.p_value is None) == (answer.risk == 0) == ("no test says" in looks_wrong((answer,))[0])
    named = dataclasses.replace(record, name="our step")
    for said in (statement((named,)), markdown((named,), title="t")):
        assert "but for 1 audit ('our step') whose trials repeat" in said
    assert "but for 1 audit (our step) whose trials repeat" in latex((named,), title="t")
    assert model_card((record,), title="t").count("but its trials repeat") == 1


def test_trials_that_repeat_and_those_that_depend_are_told_together_and_empty_batches_are_independent(tmp_path, capsys):
    record = audited(functools.partial(few, 50), ONE)
    (answer,) = wrong(record)
    other = dataclasses.replace(record, diagnoses=(dataclasses.replace(answer, code="dependent"),))
    assert but_for((record, other, record), None) == ", but for 3 audits whose trials repeat or depend on each other"
    both = but_for([dataclasses.replace(record, name=name) for name in "abcd"])
    assert both == ", but for 4 audits ('a', 'b', 'c' and 1 more) whose trials repeat"
    page = write_report((dataclasses.replace(record, name="a<b"),), tmp_path, title="t").read_text()
    assert "but for 1 audit (&#39;a&lt;b&#39;) whose trials repeat" in page
    print_table((dataclasses.replace(record, name="a[b]"),), suite_risk=0.05)
    assert "but for 1 audit ('a[b]') whose trials repeat" in " ".join(capsys.readouterr().out.split())
    empty = dataclasses.replace(answer, causes=("empty_batch", "seed_again"))
    assert but_for((dataclasses.replace(record, diagnoses=(empty,)),)) == ""


def test_one_release_that_comes_again_may_be_an_empty_batch():
    drawn = np.random.default_rng(0).normal(size=(2, 100, 5))
    drawn[:, ::10] = 0.0
    for none_sampled, causes in ((False, ("empty_batch", "seed_again", "cut")), (True, ("seed_again", "cut"))):
        hint = ASKED(*drawn, plus_noise=none_sampled, risk=0.01)
        assert hint is not None
        assert "20 of 200 trials" in hint.says
        assert hint.causes == causes


def one_draw(share, value, shape):
    """Releases of both sides, a share of them one draw that is used again; the record moves all by 0.5."""
    rng = np.random.default_rng(3)
    drawn = rng.standard_normal((2, *shape))
    drawn[rng.random((2, shape[0])) < share] = value
    return drawn + np.array([0, 0.5])[:, None, None]


@pytest.mark.parametrize("value", [0.3, -3.5, 4.0])
@pytest.mark.parametrize("width", [1, 5])
def test_one_draw_in_half_of_the_trials_is_a_seed_used_again_and_no_noise_that_is_cut(value, width):
    sides = one_draw(0.5, value, (500, width))
    assert is_cut(*sides)
    found = ASKED(*sides, cut=True, risk=1e-6)
    assert found is not None
    assert (found.code, found.causes[0]) == ("repeated", "seed_again")
    assert "without the record, and one in" in found.says
    assert cut_noise(*sides, risk=1e-6) is None


def geometric(rng, epsilon, shape):
    return rng.geometric(1 - np.exp(-epsilon), shape) - rng.geometric(1 - np.exp(-epsilon), shape)


AFTER = {
    "soft thresholds": lambda z: np.sign(z) * np.maximum(np.abs(z) - 0.7, 0),
    "hard thresholds": lambda z: np.where(np.abs(z) > 1, z, 0),
    "cut": lambda z: np.clip(z, -0.4, 0.9),
    "positive": lambda z: np.maximum(z, 0),
    "one length": lambda z: z / np.linalg.norm(z, axis=-1, keepdims=True),
    "the largest": lambda z: np.where(np.abs(z) == np.abs(z).max(axis=-1, keepdims=True), z, 0),
    "skipped by a public coin": lambda z: z * (np.arange(z.shape[1]) % 3 > 0)[:, None],
    "one decimal": lambda z: np.round(z, 1),
}


@pytest.mark.few(8)
@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("name", AFTER)
def test_what_is_done_after_the_noise_is_no_draw_that_is_used_again(name, width):
    for seed in range(20):
        drawn = np.random.default_rng(seed).standard_normal((2, 500, width)) + np.array([0, 0.5])[:, None, None]
        sides = AFTER[name](drawn)
        found = ASKED(*sides, cut=is_cut(*sides), plus_noise=False, risk=1e-6)
        assert found is None or found.causes[0] == "empty_batch", seed


@pytest.mark.parametrize("epsilon", [0.5, 1, 3])
def test_discrete_noise_is_no_draw_that_is_used_again(epsilon):
    for seed in range(20):
        sides = geometric(np.random.default_rng(seed), epsilon, (2, 500, 1)) + np.array([4, 5])[:, None, None]
        assert ASKED(*sides, cut=is_cut(*sides), risk=1e-6) is None, seed


@pytest.mark.parametrize("seconds", [4, 150])
def test_a_seed_of_the_clock_is_told_from_state_that_is_kept(seconds):
    drawn = np.random.default_rng(1).standard_normal((2, seconds, 6))
    sides = np.repeat(drawn, 600 // seconds, axis=1)
    found = ASKED(*sides, cut=is_cut(*sides), risk=1e-6)
    assert found is not None
    assert found.causes[0] == "clock_seed"


def test_trials_in_any_order_are_independent_at_the_risk_that_is_stated():
    found = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        some = rng.standard_cauchy(size=(2, 60, 3)) if seed % 2 else rng.integers(0, 2, size=(2, 60, 1))
        found += ASKED(*some, continuous=False, risk=0.2) is not None
    assert_rate_at_most(found, 300, 0.1)


def digits(values):
    return np.array([[float(f"{value:.3g}") for value in side] for side in values])


ROUNDED = {
    "as it is": lambda drawn: drawn,
    "two decimals": lambda drawn: np.round(drawn, 2),
    "three digits": digits,
    "half precision": lambda drawn: drawn.astype(np.float16),
    "bfloat16": lambda drawn: (drawn.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32),
    "whole numbers": lambda drawn: np.round(40 * drawn),
    "the root of a whole number": lambda drawn: np.sqrt(np.maximum(0, 500 + np.round(80 * drawn))),
    "beside a large sum": lambda drawn: (1e6 + drawn).astype(np.float32),
    "cut": lambda drawn: np.clip(drawn, -1, 1.5),
}


@pytest.mark.few(6)
@pytest.mark.parametrize("law", ["normal", "laplace"])
@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_or_cut_noise_repeats_rightly(name, law):
    for seed in range(20):
        drawn = getattr(np.random.default_rng(seed), law)(size=(2, 1000))
        assert ASKED(*ROUNDED[name](drawn), cut=True, risk=1e-6) is None, seed


@pytest.mark.few(1)
@pytest.mark.parametrize("made", [lambda o: [o, o], lambda o: [o, 2 * o + 1, -o], lambda o: [o, np.exp(o)]])
def test_one_float32_number_in_several_forms_is_equal_in_two_trials_by_chance(made):
    """Its coordinates were taken for independent ones, and two trials for one that came again."""
    drawn = np.random.default_rng(5).normal(size=(2, 10, 20_000)).astype(np.float32)
    alike = [np.stack(made(own), axis=1) for own in drawn.reshape(-1, 20_000)]
    assert sum(len(np.unique(rows, axis=0)) < len(rows) for rows in alike) > 5
    assert not any(
        trials_alike(*rows, continuous=True, cut=False, plus_noise=True, risk=0.05)
        for rows in zip(alike[::2], alike[1::2], strict=True)
    )


def histogram(seed, rows):
    counts = np.bincount(rows.astype(int).ravel(), minlength=10).astype(float)
    return counts + np.random.default_rng(seed).laplace(scale=1.0, size=10)


def test_a_function_of_its_seed_is_not_told_that_its_trials_depend(monkeypatch):
    """With this many audits, chance makes one order tell: trials drawn in another order come out the same."""
    said = []

    def by_chance(first, second, **given):
        said.append(trials_alike(np.sort(first, axis=0), second, **given))
        return said[-1]

    monkeypatch.setattr(after_verdict, "trials_alike", by_chance)
    record = audited(histogram, ONE)
    assert said[0].code == "dependent"
    assert "dependent" not in {answer.code for answer in wrong(record)}
