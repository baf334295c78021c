import dataclasses
import importlib.util
import json
import re
import types

import foreign
import jax
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import laplace, norm
from toys import PAIR as SCALAR_PAIR
from toys import Shift

import audit
import distinguishers
import guarantees
import mechanisms
from audit.diagnosis import after_verdict as after
from audit.diagnosis import case
from audit.diagnosis.allowed_movement import (
    any_movement_allowed,
    claim_exceeds_stated,
    moves_more_than_allowed,
    normal_movement_allowed,
)
from audit.diagnosis.signal import read_signal
from audit.diagnosis.stated_settings import rows_may_be_steps, stated_law, stated_numbers, what_to_state
from audit.policies.fixed import Fixed
from audit.record.derive import claim_part
from audit.record.diagnosis_answer import NOT_TOLD, Diagnosis, not_asked
from audit.record.record import plain
from audit.record.stored import from_json
from audit.report.diagnoses import looks_wrong, untold
from audit.report.formats import junit, markdown
from audit.report.look_again import look_again
from audit.report.page import write_report
from audit.report.table import print_table
from audit.report.text import record_lines
from audit.suites.read import parse_suite
from audit.suites.run import run_suite
from audit.suites.suite import SuiteError
from audit.trials.keys import audit_keys
from mechanisms.release import Layout, layout_of

PAIR = mechanisms.worst_case_pair(records=4, dimension=100, clip=0.1)
STEP = mechanisms.one_round(normalise_by="expected_batch", rate=0.5, clip=0.1, noise_multiplier=10.0)
CLAIM = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=10.0)
KEY = jax.random.key(11)
HAS_TORCH = importlib.util.find_spec("torch") is not None
"""Without it no line of foreign code is looked for."""


def audited(step=STEP, pair=PAIR, claim=CLAIM, **more):
    given = {"trials": 2000, "risk": 0.05, "key": KEY, **more}
    return audit.run_audit(step, pair, distinguishers.battery(pair), claim=claim, **given)


@pytest.fixture(scope="module")
def record():
    return audited()


def test_a_violation_says_what_looks_wrong(record):
    assert record.verdict == "violation"
    (says,) = looks_wrong(record.diagnoses)
    assert "its scale depends on the dataset" in says
    assert sum(d.risk for d in record.diagnoses) == pytest.approx(case.SHARE_AFTER_VIOLATION * record.risk)


@pytest.mark.parametrize(
    "step",
    [
        mechanisms.callable_step(foreign.fails_sometimes),
        mechanisms.callable_step(foreign.fails_sometimes, gradients=lambda data: data),
        mechanisms.opacus_step(batch_size=2, clip=0.1, noise_multiplier=10.0),
    ],
    ids=["untold", "told", "of a library"],
)
def test_what_is_asked_of_foreign_code_has_its_share_of_the_risk(record, step):
    """Trials that repeat or depend on each other, runs on the same seeds, and numbers told: each is paid for."""
    given = case.Case(record=record, mechanism=step, neighbours=PAIR, key=KEY, deadline=None, sides=Asked())
    assert given.risk + 3 * given.extra_risk <= case.SHARE_AFTER_VIOLATION * record.risk * (1 + 1e-9)


@pytest.mark.long
def test_diagnoses_change_nothing_else(record):
    silent = audited(diagnose=False)
    assert silent.diagnoses == ()
    told = dataclasses.replace(record, diagnoses=(), seconds=0.0, started="")
    assert told == dataclasses.replace(silent, seconds=0.0, started="", diagnose=True)


def test_diagnoses_survive_json(record):
    again = from_json(json.loads(json.dumps(record.to_json(), allow_nan=False)))
    assert again == record
    odd = Diagnosis(
        question="?",
        wrong=True,
        says="!",
        p_value=0.0,
        risk=0.1,
        assumes="",
        estimate=float("inf"),
        interval=(0.0, 1.0),
    )
    record = dataclasses.replace(record, diagnoses=(odd,))
    assert from_json(json.loads(json.dumps(record.to_json(), allow_nan=False))) == record


def test_records_without_diagnoses_stay_readable(record):
    assert from_json({**record.to_json(), "diagnoses": []}).diagnoses == ()


def test_no_violation_is_not_diagnosed(record):
    fine = dataclasses.replace(record, verdict="no_violation_found", diagnoses=())
    assert after.explain(fine, STEP, PAIR, key=KEY).diagnoses == ()


def test_the_direction_with_the_larger_bound_is_told(record):
    answer = record.diagnoses[-1]
    assert answer.code == "leaks_more"
    # by the rectangles, which prove less than both counts together
    assert 0 < answer.estimate <= record.epsilon(record.report_delta)
    assert not answer.wrong
    assert answer.risk == 0


def reason(found):
    """Why nothing was asked: it stands in the record, and no report calls it wrong."""
    assert found.verdict == "violation"
    assert looks_wrong(found.diagnoses) == []
    shown = markdown((found,), title="one") + junit((found,), title="one") + "".join(record_lines(found))
    assert ("not asked" in shown) == bool(untold(found.diagnoses))
    return next(d.says for d in found.diagnoses if d.says.startswith("not asked: "))


@pytest.mark.long
def test_what_cannot_be_diagnosed_says_why(record):
    bare = dataclasses.replace(record, diagnoses=())
    assert "gives collapsed outputs" in reason(after.explain(bare, STEP.collapsed(), PAIR, key=KEY))
    shift = mechanisms.mechanism(Shift(mu=3.0))
    moved = audited(shift, SCALAR_PAIR, guarantees.gaussian(mu=0.1), diagnose=False)
    (told,) = looks_wrong(after.explain(moved, shift, SCALAR_PAIR, key=KEY).diagnoses)
    assert told.startswith("the record moves the release by")


def test_a_pair_that_cannot_be_read_and_a_budget_that_is_over_are_said(record):
    bare = dataclasses.replace(record, diagnoses=())
    odd = mechanisms.Neighbours(without=("a",), with_record=("a", "b"), relation="add_remove")
    assert "cannot be read" in reason(after.explain(bare, STEP, odd, key=KEY))
    assert "time budget ran out" in reason(after.explain(bare, STEP, PAIR, key=KEY, deadline=0.0))


def test_a_diagnosis_that_fails_keeps_the_record(record):
    bare = dataclasses.replace(record, diagnoses=())
    kept = after.explain(bare, mechanisms.callable_step(foreign.fails_sometimes), PAIR, key=KEY)
    assert "not asked: ForeignError" in reason(kept)
    assert kept.p_value == record.p_value


def test_outputs_of_traced_code_are_drawn_for_the_diagnosis_with_keys_of_their_own(record):
    used = audit_keys(KEY)
    questions = case.Case(record=record, mechanism=STEP, neighbours=PAIR, key=KEY, deadline=None, sides=Asked())
    for place in (0, 1):
        questions.outputs(100, place=place)
    drawn = [key for keys in questions.sides.keys for key in keys]
    assert len({jax.random.key_data(key).tobytes() for key in (*used, *drawn)}) == len(used) + 4


class Asked:
    """Both sides that only note with what keys they are asked."""

    def __init__(self):
        self.keys = []

    def layout(self):
        return layout_of(np.zeros(100))

    def outputs(self, keys, trials, **_):
        self.keys.append(keys)
        return np.zeros((trials, 100)), np.zeros((trials, 100))


def test_foreign_code_is_diagnosed_from_its_judged_outputs_and_called_no_more():
    seeds = []

    def step(seed, dataset):
        seeds.append(seed)
        return foreign.too_little_noise(seed, dataset)

    given = {"step": mechanisms.callable_step(step), "claim": guarantees.gaussian(mu=1 / foreign.NOISE)}
    pair = mechanisms.worst_case_pair(records=4, dimension=10, clip=foreign.CLIP)
    told = audited(pair=pair, **given)
    assert told.verdict == "violation"
    called, seeds[:] = sorted(seeds), []
    audited(pair=pair, diagnose=False, **given)
    # a few runs of a replay look for the line
    assert 0 <= len(called) - len(seeds) <= 4
    assert set(seeds) <= set(called)
    # and whoever has not kept them draws the same
    again = after.explain(dataclasses.replace(told, diagnoses=()), given["step"], pair, key=KEY)
    assert again.diagnoses == told.diagnoses


def test_an_audit_that_stopped_early_is_diagnosed_from_as_many_outputs_as_a_whole_one(record):
    """Of the 33 that were judged on each side, a quarter of the noise was not found."""
    whole = dataclasses.replace(record, diagnoses=())
    early = dataclasses.replace(whole, trials=66)
    told = [after.explain(bare, STEP, PAIR, key=KEY).diagnoses for bare in (whole, early)]
    assert told[0] == told[1]


def test_nominal_values_come_from_the_mechanism_or_else_from_the_claim(record):
    assert stated_numbers(record) == (0.1, 10.0, 0.5)
    bare = dataclasses.replace(record, mechanism=dataclasses.replace(record.mechanism, parameters={}))
    assert stated_numbers(bare) == (0.1, 10.0, 0.5)
    unknown = dataclasses.replace(bare, claim=dataclasses.replace(bare.claim, parameters=plain({"mu": 1.0})))
    assert stated_numbers(unknown) == (None, None, 1.0)


def test_the_law_of_the_noise_is_the_claims_or_else_the_mechanisms(record):
    bare = dataclasses.replace(record, mechanism=dataclasses.replace(record.mechanism, parameters={}))

    def under(claim, record=bare):
        return stated_law(dataclasses.replace(record, claim=claim_part(claim, 1e-5)))

    assert under(guarantees.gaussian(mu=1.0)) == "normal"
    assert under(guarantees.laplace(epsilon=1.0)) == "laplace"
    pure = guarantees.epsilon_delta(epsilon=1.0, delta=0.0)
    assert under(pure) == "any"
    assert under(pure, record) == "normal"


def test_the_rate_may_be_the_accountants(record):
    told = dataclasses.replace(record.claim, parameters={"sample_rate": 0.25})
    step = dataclasses.replace(record.mechanism, parameters={"clip": 0.1, "noise_multiplier": 10.0})
    assert stated_numbers(dataclasses.replace(record, claim=told, mechanism=step)) == (0.1, 10.0, 0.25)


def test_no_noise_is_due_where_one_output_is_made_of_several(record):
    several = dataclasses.replace(record, claim=dataclasses.replace(record.claim, times=4))
    assert stated_numbers(several) == (None, None, 1.0)
    assert stated_numbers(dataclasses.replace(several, releases="transcript")) == stated_numbers(record)
    assert stated_numbers(record) != (None, None, 1.0)


def taken_too_often(seed, rows, steps=3, rate=0.75):
    """Weights after steps whose gradients follow them; noise and clipping are right, the rate is not."""
    draws, weights = np.random.default_rng(seed), np.zeros(rows.shape[1], np.float32)
    for _ in range(steps):
        gradients = rows + 0.5 * weights
        gradients /= np.maximum(1.0, np.linalg.norm(gradients, axis=1, keepdims=True))
        weights = weights + (draws.random(len(rows)) < rate) @ gradients + draws.standard_normal(len(weights))
    return weights


@pytest.mark.long
def test_of_the_end_of_several_steps_no_single_step_is_judged_and_the_rate_is_not_excluded():
    rows = np.eye(4, 12, dtype=np.float32)
    told = {"clip": 1.0, "noise_multiplier": 1.0, "gradients": lambda rows: rows}
    step = mechanisms.callable_step(taken_too_often, releases="final", **told)
    claim = guarantees.poisson_training(rate=0.05, noise_multiplier=1.0, steps=3, accountant="certified")
    pair = mechanisms.pair(rows[:3], rows)
    record = audit.run_audit(step, pair, lambda output: output[3], claim=claim, trials=1000, risk=0.05, key=KEY)
    assert record.verdict == "violation"
    codes = {answer.code for answer in record.diagnoses}
    assert not codes & {"ratio", "rate", "batches", "direction", "shared", "scale_without"}, codes
    (reason,) = untold(record.diagnoses)
    assert reason.startswith("not asked: the release is the end of several steps")
    assert not any("clipped" in answer.says for answer in record.diagnoses if answer.wrong)
    one = dataclasses.replace(record, diagnoses=(), steps=1)
    assert "ratio" in {answer.code for answer in after.explain(one, step, pair, key=KEY).diagnoses}


def follows_its_weights(seed, rows, steps=4):
    """Every update of a right training whose gradients turn with the weights, as a network's do."""
    draws, weights, updates = np.random.default_rng(seed), np.zeros(rows.shape[1], np.float32), []
    for _ in range(steps):
        gradients = rows + np.roll(rows, 4, axis=1) * np.tanh(weights)
        gradients /= np.maximum(1.0, np.linalg.norm(gradients, axis=1, keepdims=True))
        updates.append(gradients.sum(axis=0) + draws.standard_normal(len(weights)))
        weights = weights - 2.0 * updates[-1]
    return np.stack(updates)


def only_the_first_lacks_noise(seed, rows):
    updates = follows_its_weights(seed, rows)
    return np.concatenate([np.tile(rows.sum(axis=0), (1, 1)), updates[1:]])


def one_draw_for_all_steps(seed, rows):
    draw = np.random.default_rng(seed).standard_normal(rows.shape[1])
    return np.stack([(rows / step).sum(axis=0) + draw for step in (1, 2, 3)])


TOLD = {"clip": 1.0, "noise_multiplier": 1.0, "gradients": lambda rows: rows}
TWELVE = mechanisms.pair(np.eye(4, 12, dtype=np.float32)[:3], np.eye(4, 12, dtype=np.float32))


def answers_to(record, train, *, releases, claim, pair=TWELVE):
    """What is answered of a training after any violation of a claim."""
    step = mechanisms.callable_step(train, releases=releases, **TOLD)
    mechanism = dataclasses.replace(record.mechanism, parameters=plain(step.parameters))
    broken = dataclasses.replace(
        record,
        diagnoses=(),
        releases=releases,
        mechanism=mechanism,
        claim=claim_part(claim, delta=1e-5),
        trials_planned=800,
    )
    return {answer.code: answer for answer in after.explain(broken, step, pair, key=KEY, claim=claim).diagnoses}


def signs_of_weights(seed, rows):
    """Right: later steps read what earlier ones released, so that they are not normal, though their noise is."""
    rng, released = np.random.default_rng(seed), [np.zeros(3)]
    for _ in range(3):
        released.append(5 * np.sign(released[-1]) + np.mean(rows) + rng.standard_normal(3))
    return np.array(released[1:])


def test_of_a_transcript_only_the_first_step_is_asked_for_the_law_of_its_noise(record):
    """It said 'the noise of coordinate 7 is not normal' of a later step."""

    def nearly_cut(seed, rows):
        return signs_of_weights(seed, rows).clip(-1.5, None) + 0.01 * np.random.default_rng(seed).standard_normal(3)

    claim = guarantees.gaussian(mu=1.0)
    for train, wrong in ((signs_of_weights, False), (nearly_cut, True)):
        step = mechanisms.callable_step(train, releases="transcript")
        mechanism = dataclasses.replace(record.mechanism, parameters=plain(step.parameters))
        stated = {"mechanism": mechanism, "claim": claim_part(claim, delta=1e-5), "releases": "transcript"}
        broken = dataclasses.replace(record, diagnoses=(), trials_planned=2000, **stated)
        pair = mechanisms.add_record(np.zeros((2, 5)), np.zeros(5))
        answers = after.explain(broken, step, pair, key=KEY, claim=claim).diagnoses
        (law,) = (answer for answer in answers if answer.code == "normal")
        assert law.wrong == wrong, law.says
        assert not wrong or "the noise of step 1, coordinate " in law.says


def sums_carried_over(seed, rows, decay=0.9):
    """Momentum adds up sums, and every step has its own noise."""
    sums = np.cumsum(decay ** np.arange(3))[:, None] * rows.sum(axis=0)
    return sums + np.random.default_rng(seed).standard_normal(sums.shape)


def test_of_a_later_step_that_moves_too_far_more_is_said_than_of_all_together(record):
    """The whole release moved too far as well, of which no cause is known."""
    claim = guarantees.poisson_training(rate=1.0, noise_multiplier=1.0, steps=3)
    found = answers_to(record, sums_carried_over, releases="transcript", claim=claim)
    assert [code for code, answer in found.items() if answer.wrong] == ["step_moves"]
    assert "carried_over" in found["step_moves"].causes


def test_of_a_transcript_whose_gradients_follow_its_weights_only_the_first_step_is_judged(record):
    claim = guarantees.gaussian(mu=0.3)
    found = answers_to(record, follows_its_weights, releases="transcript", claim=claim)
    assert [code for code, answer in found.items() if answer.wrong] == ["claim"]
    assert "as far as its first step shows" in found["claim"].says
    assert "Of all 4 steps it is asked" in found["not_asked"].says
    assert not found["step_noise"].wrong
    assert answers_to(record, only_the_first_lacks_noise, releases="transcript", claim=claim)["silent"].wrong
    found = answers_to(record, one_draw_for_all_steps, releases="transcript", claim=claim)
    assert [code for code, answer in found.items() if answer.wrong] == ["step_noise"]
    risks = sum(answer.risk for answer in found.values() if answer.code != "leaks_more")
    # what found nothing to say kept its share
    assert (
        (1 - case.SHARE_OF_STATED_NUMBERS) * case.SHARE_AFTER_VIOLATION * record.risk / 2
        < risks
        <= case.SHARE_AFTER_VIOLATION * record.risk * (1 + 1e-9)
    )


def half_of_them(seed, rows):
    draws = np.random.default_rng(seed)
    return (draws.random(len(rows)) < 0.5) @ rows + draws.standard_normal(rows.shape[1])


@pytest.mark.parametrize(
    ("claim", "accused"),
    [
        (guarantees.epsilon_delta(epsilon=0.1, delta=1e-5), False),
        (guarantees.gaussian(mu=0.1), False),
        (guarantees.gaussian(mu=1.0), True),
    ],
)
def test_batches_that_vary_are_a_fault_only_where_somebody_says_how_often_records_are_taken(record, claim, accused):
    found = answers_to(record, half_of_them, releases="update", claim=claim)
    assert found["batches"].wrong == accused
    assert accused or "names no rate" in found["batches"].says
    assert accused == any(answer.wrong for answer in found.values())


def test_a_simulator_whose_end_adds_up_steps_is_not_held_to_the_noise_of_one(record):
    claim = dataclasses.replace(record.claim, steps=3)
    end = dataclasses.replace(record, releases="final", claim=claim, steps=None)
    assert stated_numbers(end) == (None, None, 1.0)
    assert stated_numbers(dataclasses.replace(end, steps=1)) == stated_numbers(record)


@pytest.mark.parametrize("kind", ["key_used_twice", "released_without_noise", "not_clipped"])
def test_no_question_about_the_noise_is_answered_right_where_a_replay_found_none_that_is_fresh(
    record, kind, monkeypatch
):
    line = Diagnosis(code=f"line:{kind}", question="", wrong=True, says="", p_value=1.0, risk=0.0, assumes="")
    monkeypatch.setattr(after, "_lines", lambda *_: ((line,), False))
    first, *told, _ = after.explain(dataclasses.replace(record, diagnoses=()), STEP, PAIR, key=KEY).diagnoses
    assert first == line
    right = [answer for answer in told if not answer.wrong]
    assert all("not judged" in answer.says for answer in right) == (kind != "not_clipped")
    assert ("scale_without" in {answer.code for answer in right}) == (kind == "not_clipped")
    assert len([answer for answer in told if answer.risk > 0]) == sum(d.risk > 0 for d in record.diagnoses)


@pytest.mark.long
def test_a_network_whose_gradients_are_drawn_anew_is_said(record):
    bare = dataclasses.replace(record, diagnoses=())
    step = mechanisms.opacus_step(batch_size=2, clip=0.1, noise_multiplier=10.0, network="denoiser", workers=1)
    assert "the same in every trial" in reason(after.explain(bare, step, mechanisms.image_pair(), key=KEY))


@pytest.mark.long
def test_a_network_is_diagnosed_outside_the_span_of_its_gradients(record):
    settings = {"rate": 1.0, "clip": 0.1, "noise_multiplier": 0.1}
    bare = dataclasses.replace(record, diagnoses=(), trials=60, risk=1e-6)

    def told(normalise_by):
        step = mechanisms.flax_step(normalise_by=normalise_by, **settings)
        part = dataclasses.replace(record.mechanism, parameters=plain(step.parameters))
        pair = mechanisms.image_pair(records=4)
        return after.explain(dataclasses.replace(bare, mechanism=part), step, pair, key=KEY).diagnoses

    right = told("none")
    assert [d.question for d in right].index("which line?") == 0
    assert len(right) == 19
    # the record's claim is that of another step: the replay and the outputs both blame the claim alone
    line, last = (d.says for d in right if d.wrong)
    assert "only the claim assumes 10" in line
    assert "the claim promises more than that" in last
    assert looks_wrong(told("expected_batch"))[0].endswith("its scale depends on the dataset.")


def test_junit_names_the_first_line_in_its_message(record):
    wrong = next(answer for answer in record.diagnoses if answer.wrong)
    told = dataclasses.replace(record, diagnoses=(dataclasses.replace(wrong, lines=(("train.py", 37),)),))
    assert ' First suspect: train.py:37."' in junit((told,), title="one")
    assert "First suspect" not in junit((dataclasses.replace(record, diagnoses=()),), title="one")


def test_reports_tell_only_what_is_wrong_and_how_much_was_asked(record, tmp_path, capsys):
    page = write_report((record,), tmp_path, title="one").read_text()
    text = markdown((record,), title="one")
    print_table((record,), suite_risk=0.05)
    printed = " ".join(capsys.readouterr().out.split())
    for told in (page, text, printed, junit((record,), title="one")):
        assert "its scale depends on the dataset" in told
        assert "one scale fits every trial" not in told
    for told in (page, text):
        assert "15 questions asked, at risk 0.01 together" in told
    assert "Epsilon &gt;=" in page.split("What looks wrong")[1]


SUITE = """
risk = 0.05
[defaults]
trials = 2000
neighbours = {{ kind = "worst_case_pair", records = 4, dimension = 100, clip = 0.1 }}
claim = {{ kind = "subsampled_gaussian", rate = 0.5, noise_multiplier = 10.0 }}
{more}
[[audit]]
name = "one"
mechanism = {{ kind = "one_round", normalise_by = "expected_batch", rate = 0.5, clip = 0.1, noise_multiplier = 10.0 }}
"""


def suite(more=""):
    return parse_suite(SUITE.format(more=more), "suite.toml")


@pytest.mark.long
def test_suites_diagnose_resume_and_can_be_told_not_to(tmp_path):
    (first,) = run_suite(suite(), resume_in=tmp_path)
    (again,) = run_suite(suite(), resume_in=tmp_path)
    assert first.diagnoses
    assert again == first
    (silent,) = run_suite(suite("diagnose = false"))
    assert silent.verdict == "violation"
    assert silent.diagnoses == ()


def test_a_wrong_word_for_diagnose_is_refused():
    with pytest.raises(SuiteError, match="diagnose must be true or false, got 'no'"):
        suite('diagnose = "no"')


def test_a_pair_of_one_exchanged_record_is_diagnosed():
    """Local DP: no record is common to both sides."""
    rows = np.zeros((2, 1, 40), np.float32)
    rows[0, 0, 0], rows[1, 0, 0] = 1.0, -1.0
    local = mechanisms.pair(rows[0], rows[1], relation="substitution")

    def quiet(seed, gradients):
        return gradients.sum(0) + 0.25 * np.random.default_rng(seed).standard_normal(40)

    told = mechanisms.callable_step(quiet, clip=1.0, noise_multiplier=1.0)
    claim = guarantees.gaussian(mu=2.0, relation="substitution")
    record = audit.run_audit(told, local, lambda output: -output[0], claim=claim, trials=400, risk=0.05, key=KEY)
    assert record.verdict == "violation"
    said = [answer.says for answer in record.diagnoses if answer.wrong]
    assert any("0.25" in says for says in said), [answer.says for answer in record.diagnoses]


def test_code_that_tells_nothing_is_asked_what_the_claim_allows():
    records = np.vstack([np.eye(3), np.ones(3)]).astype(np.float32)
    own = mechanisms.pair(records[:3], records)

    def wide(seed, rows):
        return np.repeat(rows.sum(0), 10) + np.random.default_rng(seed).standard_normal(30)

    step, claim = mechanisms.callable_step(wide), guarantees.gaussian(mu=0.3)
    record = audit.run_audit(step, own, lambda output: output.sum(), claim=claim, trials=600, risk=0.05, key=KEY)
    *unfollowed, reason, moved = record.diagnoses[: 2 + HAS_TORCH]
    assert [answer.code for answer in unfollowed] == ["line:not_followed"] * HAS_TORCH
    assert "gradients=" in reason.says
    assert moved.code == "moves_more_than_allowed"
    assert moved.wrong
    low, high = moved.interval
    assert low < 30**0.5 < high
    assert "the claim allows 0.3" in moved.says
    assert "pass clip=, noise_multiplier= and gradients= (" in "\n".join(record_lines(record))


def test_a_pair_of_data_is_said_to_hold_no_gradients():
    def wide(seed, data):
        return np.repeat(data["x"].sum(0), 10) + np.random.default_rng(seed).standard_normal(30)

    own = mechanisms.pair({"x": np.eye(3)[:2]}, {"x": np.eye(3)})
    given = {"claim": guarantees.gaussian(mu=0.3), "trials": 400, "risk": 0.05, "key": KEY}
    record = audit.run_audit(mechanisms.callable_step(wide), own, lambda output: output.sum(), **given)
    (told,) = (answer.says for answer in record.diagnoses if answer.code == NOT_TOLD)
    assert re.match(
        r"not asked: the pair '.*' holds data, not gradients\. If .*, pass clip=, noise_multiplier= and", told
    )


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        ({"clip": 1.0, "noise_multiplier": 2.0}, "pass gradients= ("),
        ({"noise_multiplier": 2.0}, "pass clip= and gradients= ("),
    ],
)
def test_only_what_is_not_told_is_asked_for(told, missing):
    record = types.SimpleNamespace(
        mechanism=types.SimpleNamespace(parameters=told),
        claim=types.SimpleNamespace(name="gaussian", parameters={}, times=1),
        neighbours=types.SimpleNamespace(parameters={}),
        releases="update",
    )
    assert missing in what_to_state(record, gradients=True)


def test_a_record_that_is_always_taken_may_be_the_cause_where_the_claim_samples():
    records = np.vstack([np.eye(3), np.ones(3)]).astype(np.float32)

    def everybody(seed, rows):
        return np.repeat(rows.sum(0), 2) + np.random.default_rng(seed).standard_normal(6)

    step = mechanisms.callable_step(everybody)
    claim = guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=1.7)
    given = {"claim": claim, "trials": 600, "risk": 0.05, "key": KEY}
    record = audit.run_audit(step, mechanisms.pair(records[:3], records), lambda output: output.sum(), **given)
    (moved,) = (answer for answer in record.diagnoses if answer.code == "moves_more_than_allowed")
    assert moved.says.endswith(
        "bound, a divisor that depends on the number of records, or a record that is sampled more often than at the "
        "claim's rate of 0.1, among others."
    ), moved.says


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("family", "words"), [("epsilon_delta", {"epsilon": 1.0, "delta": 1e-5}), ("zcdp", {"rho": 0.125})]
)
def test_where_no_noise_multiplier_is_known_the_claim_alone_is_asked_too(family, words):
    """Rows that can be gradients, a claim without a noise multiplier: half of the noise that the claim needs."""
    rows = np.zeros((3, 8), np.float32)
    rows[:, 0] = [0.0, 0.0, 1.0]

    def quiet(seed, gradients):
        return gradients.sum(0) + 0.7 * np.random.default_rng(seed).standard_normal(8)

    record = audit.run_audit(
        mechanisms.callable_step(quiet),
        mechanisms.pair(rows[:2], rows),
        lambda output: output[0],
        claim=getattr(guarantees, family)(**words),
        trials=4000,
        risk=0.05,
        key=KEY,
    )
    assert record.verdict == "violation"
    moved = next(answer for answer in record.diagnoses if answer.code == "moves_more_than_allowed")
    assert moved.wrong
    assert sum(answer.risk for answer in record.diagnoses) <= 0.2 * record.risk * (1 + 1e-9)
    assert any("noise deviations" in says for says in looks_wrong(record.diagnoses))
    shown = "\n".join(record_lines(record))
    assert "none of the" not in shown
    silent = dataclasses.replace(
        record, diagnoses=(dataclasses.replace(moved, wrong=False), not_asked("its noise is not known.", code=NOT_TOLD))
    )
    assert looks_wrong(silent.diagnoses) == ["no cause was found, as far as could be asked."]


@pytest.mark.few(1)
@pytest.mark.parametrize("steps", [1, 2])
def test_where_gradients_span_the_whole_output_the_claim_alone_is_asked_and_fewer_records_are_proposed(steps):
    rows = np.eye(3, dtype=np.float32)

    def quiet(seed, gradients):
        return gradients.sum(0) + 0.25 * np.random.default_rng(seed).standard_normal((steps, 3))

    step = mechanisms.callable_step(
        quiet, clip=1.0, noise_multiplier=1.0, gradients=lambda rows: rows, releases="transcript"
    )
    given = {"claim": guarantees.gaussian(mu=1.0).compose(steps), "trials": 600, "risk": 0.05, "key": KEY}
    record = audit.run_audit(step, mechanisms.pair(rows[:2], rows), lambda output: output[0, 2], **given)
    (reason,) = untold(record.diagnoses)
    assert "the gradients span 3 of its 3. Audit a pair of fewer records" in reason
    assert any("noise deviations" in says for says in looks_wrong(record.diagnoses))


def test_normal_noise_is_held_to_the_whole_claim():
    def allowed(claim):
        return normal_movement_allowed(claim_part(claim, 1e-5), delta=1e-5)

    assert allowed(guarantees.gaussian(mu=0.7)) == pytest.approx(0.7, rel=1e-6)
    pair = guarantees.epsilon_delta(epsilon=1.0, delta=1e-5)
    exact = brentq(lambda mu: guarantees.gaussian(mu=mu).epsilon(1e-5) - 1.0, 0.1, 1.0)
    assert allowed(pair) == pytest.approx(exact, rel=1e-6)


def best_function(first, second):
    """Deviations between the means of the function of a release that moves most, (p - q) / (p + q)."""
    x = np.linspace(-40, 60, 400_001)
    p, q = (law.pdf(x) for law in (first, second))
    function = np.where(p + q > 0, (q - p) / np.maximum(p + q, 1e-300), 0.0)
    means = [np.average(function, weights=law) for law in (p, q)]
    variances = [np.average((function - mean) ** 2, weights=law) for law, mean in zip((p, q), means, strict=True)]
    return (means[1] - means[0]) / np.sqrt(np.mean(variances))


@pytest.mark.parametrize("size", [0.3, 1.0, 3.0])
def test_no_function_of_a_release_moves_by_more_deviations_than_the_claim_allows_and_one_by_as_many(size):
    for claim, family in ((guarantees.gaussian(mu=size), norm), (guarantees.laplace(epsilon=size), laplace)):
        best = best_function(family(0.0), family(size))
        assert best <= any_movement_allowed(claim) <= 1.002 * best
    for delta in (0.0, 0.1):
        divergence = delta + (1 - delta) * np.tanh(size / 2) ** 2
        allowed = any_movement_allowed(guarantees.epsilon_delta(epsilon=size, delta=delta))
        assert allowed == pytest.approx(2 * np.sqrt(divergence / (1 - divergence)), rel=2e-3)


def test_a_kept_claim_is_not_said_to_be_exceeded_by_a_release_that_is_not_normal():
    """Laplace noise of epsilon 1, told as a bit: it moves by .856 deviations, more than the noise itself."""
    rng = np.random.default_rng(5)
    sides = [(rng.laplace(size=(20_000, 1)) + moved > 0.5).astype(float) for moved in (0.0, 1.0)]
    claim = guarantees.laplace(epsilon=1.0)
    limits = {
        "whatever": any_movement_allowed(claim),
        "normal": normal_movement_allowed(claim_part(claim, 1e-5), delta=1e-5),
    }
    found = moves_more_than_allowed(*sides, **limits, risk=1e-6)
    assert found.estimate == pytest.approx(0.856, abs=0.08)
    assert not found.wrong
    assert "from mean 0.30" in found.says
    assert found.says.endswith(", and the claim allows 0.909, which is not shown to be exceeded.")
    bits = [(rng.random((20_000, 1)) < share).astype(float) for share in (0.2, 0.8)]
    assert moves_more_than_allowed(*bits, **limits, risk=1e-6).wrong


AT_ZERO = Fixed(thresholds=(0.0,), method="rectangle")


def noisy_sum(seed, rows):
    rows = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    return rows.sum(0) + 2.0 * np.random.default_rng(seed).standard_normal(rows.shape[1])


def test_a_claim_that_promises_more_than_what_was_told_is_named_where_the_outputs_are_as_told():
    """Noise multiplier 2, as told, on a record that is exchanged: mu 1."""
    step = mechanisms.callable_step(noisy_sum, clip=1.0, noise_multiplier=2.0, gradients=lambda rows: rows)
    pair = mechanisms.replace_record(np.eye(4, 12, dtype=np.float32), 0, -np.eye(1, 12, dtype=np.float32)[0])
    given = {"claim": guarantees.gaussian(mu=0.5), "trials": 1600, "risk": 0.05, "key": KEY, "policy": AT_ZERO}
    record = audit.run_audit(step, pair, lambda output: -output[0], **given)
    assert record.verdict == "violation"
    (says,) = looks_wrong(record.diagnoses)
    assert "the implementation does what is stated" in says
    assert "may move the release by 1 times the deviation of its noise, and the claim allows 0.5" in says


def test_a_claim_for_what_was_told_is_not_named(record):
    def beyond(claim, rate):
        told = dataclasses.replace(record, claim=claim_part(claim, 1e-5))
        signal = read_signal(mechanisms.pair(np.eye(1, 4), np.eye(2, 4)), clip=1.0)
        return claim_exceeds_stated(told, 1.0, 2.0, rate, signal)

    assert beyond(guarantees.gaussian(mu=0.5), 1.0) == ()
    step = guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=2.0)
    assert beyond(step, 0.1) == ()
    (found,) = beyond(step, 0.2)
    assert "the stated noise multiplier is 2 at rate 0.2, and the claim is for 2 at 0.1" in found.says


def test_one_coordinate_has_no_pair_of_fewer_records_and_laplace_noise_its_own_scale():
    def half(seed, rows):
        return rows.sum(0) + 0.5 * np.random.default_rng(seed).laplace(size=1)

    step = mechanisms.callable_step(half, gradients=lambda rows: rows)
    pair = mechanisms.pair(np.zeros((1, 1), np.float32), np.array([[0.0], [1.0]], np.float32))
    given = {"claim": guarantees.laplace(epsilon=1.0), "trials": 1500, "risk": 0.05, "key": KEY}
    record = audit.run_audit(step, pair, lambda output: output[0], **given)
    assert record.verdict == "violation"
    assert not any("fewer records" in answer.says for answer in record.diagnoses)
    says = "not asked: how large the noise is, since 1 released number cannot show it apart from the record's part."
    assert says in untold(record.diagnoses)[0]
    (scale,) = (answer for answer in record.diagnoses if answer.wrong)
    assert scale.code == "l1_ratio"
    assert "epsilon 1 needs Laplace noise of scale" in scale.says


def test_a_release_that_never_varies_is_told_so():
    def constant(seed, rows):
        return np.full(3, 0.3, np.float32)

    def by_record(seed, rows):
        return np.full(3, len(rows), np.float32)

    given = {"claim": guarantees.gaussian(mu=1.0), "trials": 40, "risk": 0.05, "key": KEY, "policy": AT_ZERO}
    found = audit.run_audit(mechanisms.callable_step(constant), PAIR, lambda output: output[0], **given)
    assert found.verdict == "inconclusive"
    (says,) = looks_wrong(found.diagnoses)
    assert says.startswith("the release is constant: 40 fresh outputs are equal")
    assert "neither" not in says, "a vote may depend on its data on another pair"
    assert any(line.startswith("  hint:    the release is constant") for line in record_lines(found))
    assert look_again([found]).startswith("Every release was the same, on both datasets: use another pair")
    unseen = audit.run_audit(mechanisms.callable_step(by_record), PAIR, lambda output: 0 * output[0], **given)
    assert unseen.diagnoses == ()
    assert look_again([found, unseen]).startswith("More trials would not help: use another score")


@pytest.mark.parametrize(("mu", "promises_more"), [(1.0, False), (0.3, True)])
def test_a_gradient_longer_than_the_bound_moves_the_release_by_the_bound_as_stated(record, mu, promises_more):
    """It was compared with the claim at its own length: right code was said to move the release by 24 deviations."""
    longer = mechanisms.pair(TWELVE.without, np.concatenate([TWELVE.without, 24 * np.eye(4, 12, dtype=np.float32)[3:]]))

    def one_step(seed, rows):
        clipped = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        return clipped.sum(axis=0) + np.random.default_rng(seed).standard_normal(rows.shape[1])

    found = answers_to(record, one_step, releases="update", claim=guarantees.gaussian(mu=mu), pair=longer)
    assert ("claim" in found) == promises_more
    assert not promises_more or "may move the release by 1 times the deviation" in found["claim"].says


def noise_falls(seed, rows, factor=0.5):
    """A training on Poisson batches whose gradients turn with the weights, and whose noise falls from step to step."""
    draws, weights, updates = np.random.default_rng(seed), np.zeros(rows.shape[1], np.float32), []
    for step in range(4):
        taken = rows[draws.random(len(rows)) < 0.5]
        gradients = taken + np.roll(taken, 4, axis=1) * np.tanh(weights)
        gradients /= np.maximum(1.0, np.linalg.norm(gradients, axis=1, keepdims=True))
        updates.append(gradients.sum(axis=0) + factor**step * draws.standard_normal(len(weights)))
        weights = weights - 2.0 * updates[-1]
    return np.stack(updates)


def steady_noise(seed, rows):
    return noise_falls(seed, rows, factor=1.0)


def weights_at_the_end(seed, rows):
    return noise_falls(seed, rows, factor=1.0).sum(axis=0)


@pytest.mark.long
def test_of_a_transcript_noise_and_batches_are_compared_at_the_first_step_alone(record):
    """Of noise that falls it said that a record which is sampled by itself gives such a correlation no other noise."""
    claim = guarantees.poisson_training(rate=0.5, noise_multiplier=1.0, steps=4)
    found = answers_to(record, noise_falls, releases="transcript", claim=claim)
    (told,) = (answer for answer in found.values() if answer.wrong)
    assert told.code in ("step_noise", "step_moves")
    assert "less noise" in told.says.split("Possible causes")[1].split(";")[0], told.says
    for train, releases in ((steady_noise, "transcript"), (weights_at_the_end, "final")):
        found = answers_to(dataclasses.replace(record, steps=4), train, releases=releases, claim=claim)
        assert not [answer.says for answer in found.values() if answer.wrong]
    assert "noise_and_batches" not in found


def noisy_counts(seed, ages):
    generator = np.random.default_rng(seed)
    counts = np.histogram(ages, bins=[0, 20, 40, 60, 80, 101])[0].astype(float)
    return np.where(counts > 0, counts + generator.laplace(0, 1, 5), 0.0)


AGES = np.array([25, 33, 47, 51, 29, 38, 66], np.float32)
COUNTED = {"claim": guarantees.laplace(epsilon=1.0), "trials": 400, "risk": 0.05, "key": KEY}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "pair",
    [mechanisms.add_record(AGES, np.float32(93)), mechanisms.add_record(AGES[:, None], np.array([93], np.float32))],
    ids=["(n,)", "(n, 1)"],
)
def test_a_dataset_of_numbers_is_asked_what_needs_no_gradients(pair):
    """Of shape (n,) nothing was, and no report said why."""
    record = audit.run_audit(mechanisms.callable_step(noisy_counts), pair, **COUNTED)
    assert record.verdict == "violation"
    (wrong,) = looks_wrong(record.diagnoses)
    assert wrong.startswith("no noise hides the record on coordinate 4")
    assert untold(record.diagnoses) == []


def test_gradients_that_cannot_be_read_leave_the_other_questions():
    step = mechanisms.callable_step(noisy_counts, gradients=lambda ages: "none", clip=1.0, noise_multiplier=1.0)
    pair = mechanisms.add_record(AGES, np.float32(93))
    record = audit.run_audit(step, pair, lambda output: output[4], **COUNTED)
    assert looks_wrong(record.diagnoses)[0].startswith("no noise hides the record on coordinate 4")


def test_a_violation_that_was_not_asked_about_says_why_on_every_report(capsys, tmp_path):
    record = dataclasses.replace(audited(diagnose=False), diagnoses=(not_asked("the time budget ran out."),))
    assert untold(record.diagnoses) == ["not asked: the time budget ran out."]
    print_table((record,), suite_risk=0.05)
    for told in (capsys.readouterr().out, write_report((record,), tmp_path, title="one").read_text()):
        assert "the time budget ran out" in " ".join(told.split())


@pytest.mark.long
def test_discrete_noise_is_told_which_claim_it_keeps():
    """A right count of pure epsilon 1 was told 'no cause was found', and to pass clip=."""

    def count(seed, rows):
        generator, stop = np.random.default_rng(seed), 1 - np.exp(-1.0)
        return float((rows[:, 0] > 5).sum() + generator.geometric(stop) - generator.geometric(stop))

    pair = mechanisms.add_record(np.array([[3.0], [9.0], [4.0]], np.float32), np.array([8.0], np.float32))
    record = audit.run_audit(mechanisms.callable_step(count), pair, **COUNTED | {"trials": 10000})
    assert record.verdict == "violation"
    (says,) = looks_wrong(record.diagnoses)
    assert "claim randomised_response(epsilon=1)" in says
    assert "clip=" not in " ".join(untold(record.diagnoses))


@pytest.mark.few(1)
@pytest.mark.parametrize("shaped", [lambda rows: rows, np.ravel])
def test_a_table_without_a_cause_may_be_a_transcript(shaped, capsys, tmp_path):
    """Its second row tells the noise of the first, which no number and no mixture of them does."""

    def same_noise(seed, data):
        generator = np.random.default_rng(seed)
        noise = generator.normal(0, 2, 8)
        return shaped(np.stack([data.sum(0) + noise, generator.choice([-1, 1]) * noise]))

    record = audit.run_audit(
        mechanisms.callable_step(same_noise),
        mechanisms.add_record(np.zeros((1, 8), np.float32), np.eye(1, 8, dtype=np.float32)[0]),
        lambda output: (lambda rows: jax.numpy.abs(jax.numpy.abs(rows[0]) - jax.numpy.abs(rows[8])))(
            jax.numpy.ravel(output)
        ),
        claim=guarantees.gaussian(mu=1.0),
        trials=1000,
        risk=0.05,
        key=KEY,
    )
    assert record.verdict == "violation"
    assert looks_wrong(record.diagnoses) == ["no cause was found, as far as could be asked."]
    print_table((record,), suite_risk=0.05)
    for told in (capsys.readouterr().out, write_report((record,), tmp_path, title="one").read_text()):
        assert ("the release has 2 rows (shape (2, 8))" in " ".join(told.split())) == (shaped is not np.ravel)


@pytest.mark.parametrize(
    ("shapes", "releases", "rows"),
    [
        (((3, 31),), "update", "3 rows (shape (3, 31))"),
        (((3, 5, 4), (3, 5)), "update", "3 rows (shape ((3, 5, 4), (3, 5)))"),
        (((3, 5), (5,)), "update", None),
        (((3, 5), (4, 5)), "update", None),
        (((93,),), "update", None),
        (((), ()), "update", None),
        (((1, 31),), "update", None),
        (((3, 31),), "final", None),
    ],
)
def test_rows_are_as_many_in_all_that_one_release_holds(record, shapes, releases, rows):
    layout = Layout(names=tuple(map(str, range(len(shapes)))), shapes=shapes)
    said = [found.says for found in rows_may_be_steps(dataclasses.replace(record, releases=releases), layout)]
    assert len(said) == (rows is not None)
    assert all(rows in says and "releases='transcript'" in says for says in said)
