"""Scores and outputs that somebody gave, among records: saved, verified, compared and reported."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import audit
import guarantees
from audit.cli import main
from audit.commands.score_file import load_scores
from audit.record.compare import ALONE, OF_SCORES, ONE_TRAINING
from audit.record.of_one_run import as_record
from audit.report.catalogue import TEXTS
from audit.report.formats import github_annotations, junit
from audit.report.latex import files
from audit.report.look_again import look_again
from audit.report.methods import methods
from audit.report.sarif import sarif
from audit.report.short_story import short_report
from audit.report.statement import model_card, statement
from audit.report.story import story
from audit.scores import one_column
from audit.verify.procedure import verify

GAUSS = guarantees.gaussian(mu=1.0)
RNG = np.random.default_rng(7)
WITHOUT, WITH = RNG.normal(size=800), RNG.normal(loc=2.0, size=600)
OUTPUTS = RNG.normal(size=(400, 5)), RNG.normal(size=(500, 5)) + np.array([3.0, 0, 0, 0, 0])
ENDS = np.where(WITHOUT < -1, -np.inf, WITHOUT), np.where(WITH > 3, np.inf, WITH)
SUMS = guarantees.gaussian(mu=1.0, relation="add_remove")


def judged(without=WITHOUT, with_record=WITH, *, claim=GAUSS, **given):
    return audit.from_scores(without, with_record, risk=0.05, claim=claim, **given)


GIVEN = {
    "more on one side": judged,
    "fixed": lambda: judged(thresholds=(0.5, 1.5)),
    "one target": lambda: judged(target="verdict"),
    "outputs": lambda: judged(*OUTPUTS),
    "infinite": lambda: judged(*ENDS),
    "infinite and a threshold beyond": lambda: judged(*ENDS, thresholds=(1e6,)),
    "whole numbers": lambda: judged(np.round(WITHOUT), np.round(WITH)),
    "below": lambda: judged(-WITHOUT, -WITH),
    "all the same": lambda: judged(np.zeros(50), np.zeros(70)),
    "apart, the wrong way round": lambda: judged(np.ones(50), np.zeros(70)),
    "few": lambda: judged(WITHOUT[:4], WITH[:4]),
    "a claim kept": lambda: judged(claim=guarantees.gaussian(mu=2.5)),
    "a pure claim": lambda: judged(claim=guarantees.laplace(epsilon=1.0), delta=0.0),
    "copies": lambda: judged(np.repeat(WITHOUT, 2), WITH),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("which", GIVEN)
def test_what_is_read_proves_what_was_found_and_verifies(tmp_path, which):
    found = GIVEN[which]()
    audit.save_records((found,), tmp_path / "records.json")
    (record,) = audit.load_records(tmp_path / "records.json")
    assert (record.verdict, record.reason) == (found.verdict, found.judgement.reason)
    delta = found.report_delta
    assert (record.epsilon(delta), record.delta(0.0), record.mu) == pytest.approx(
        (found.epsilon(delta), found.delta(0.0), found.mu), rel=1e-12
    )
    assert record.conditions == found.conditions
    checks = verify((record,)).checks
    assert {check.state for check in checks} == {"right"}, [check for check in checks if check.state != "right"]


CHANGES = {
    "an error less": lambda record: record["points"][0]["counts"].update(misses=1),
    "a count that moved": lambda record: record["grids"][0]["without"].reverse(),
    "a larger bound": lambda record: record["numbers"][0].update(at_least=9.0),
    "a tighter band": lambda record: record["band"].update(beta=[0.0 for _ in record["band"]["beta"]]),
    "a band of more risk": lambda record: record["budget"].update(band=0.001),
    "another verdict": lambda record: record.update(verdict="no_violation_found"),
    "another claim": lambda record: record["claim"]["parameters"].update(mu=3.0),
    "a smaller risk": lambda record: record.update(risk=0.01, budget={**record["budget"], "risk": 0.01}),
    "fixed, they say": lambda record: record["scores"].update(seed=None),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_number_is_wrong_or_refused(tmp_path, change):
    data = as_record(judged()).to_json()
    CHANGES[change](data)
    (tmp_path / "records.json").write_text(json.dumps({"schema": 4, "records": [data]}))
    assert main(["verify", str(tmp_path / "records.json"), "--quiet"]) in (1, 2)


BROKEN = {
    "scores.learned_from": lambda record: record["scores"].update(learned_from=[-1, 2]),
    "trials": lambda record: record.update(trials=3, trials_planned=3),
    "grids": lambda record: record.update(grids=record["grids"] * 2),
    "points[1].counts": lambda record: record["points"][1]["counts"].update(trials_with=1, misses=1),
    "points[0].threshold": lambda record: record["points"][0].update(threshold=0.123),
    "points[0].rejects": lambda record: record["points"][0].update(rejects="sideways"),
    "points[0].target": lambda record: record["points"][0].update(target="rest and more"),
    "scores.target": lambda record: record["scores"].update(target="all"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("key", BROKEN)
def test_a_record_that_no_scores_make_is_refused_by_its_key(tmp_path, key):
    data = as_record(judged()).to_json()
    BROKEN[key](data)
    (tmp_path / "records.json").write_text(json.dumps({"schema": 4, "records": [data]}))
    with pytest.raises(ValueError, match=r"^[^:]*: record 1 \('given scores'\): ") as told:
        audit.load_records(tmp_path / "records.json")
    assert key in str(told.value)


def test_without_a_claim_there_is_no_record(tmp_path):
    with pytest.raises(ValueError, match="give claim= to from_scores"):
        audit.save_records((audit.from_scores(WITHOUT, WITH, risk=0.05),), tmp_path / "records.json")


@pytest.mark.parametrize("sides", [(WITHOUT, WITH), OUTPUTS], ids=["scores", "outputs"])
def test_what_is_vouched_for_stands_wherever_the_bounds_do(tmp_path, sides):
    found = judged(*sides, claim=SUMS)
    record = as_record(found)
    page = audit.write_report((found,), tmp_path, title="Ours").read_text()
    paper = files((record,), title="Ours")["methods.tex"]
    for text in (page, paper, statement((record,)), model_card((record,), title="Ours")):
        assert "the trials are independent" in text
        assert "differ in one record only, which is added or removed" in text
        assert "in total" not in text, "runs that we did not make"
    assert "valid if" in short_report((record,), title="Ours")
    assert paper.count("erdict: violation") == 1
    assert "Audit ``given" not in paper


def test_no_report_speaks_of_code_that_ran_or_of_another_seed():
    """A second seed on the same scores is no confirmation, and nobody here can run the code again."""
    passed, close = as_record(judged(claim=guarantees.gaussian(mu=2.5))), as_record(judged())
    close = dataclasses.replace(close, p_value=0.04, adjusted_p_value=0.04)
    open_one = dataclasses.replace(passed, verdict="inconclusive", trials_needed=9000)
    told = [story((each,)) for each in (passed, close, open_one)]
    said = " ".join(str(dataclasses.astuple(each)) for each in told) + look_again([open_one])
    for words in ("fresh seed", "run_audit", "--look", "ran its code", "explain", "pass gradients="):
        assert words not in said
    assert "confirm with new trials" in told[1].to_do
    assert "Check what is vouched for" in told[1].to_do
    assert "about 9,000 new trials" in told[2].to_do


def test_given_scores_are_told_apart_from_audits_that_ran():
    once = audit.one_run(
        np.arange(200.0), np.random.default_rng(0).random(200) < 0.5, risk=0.05, claim=GAUSS, name="canaries"
    )
    records = tuple(map(as_record, (judged(name="attack"), judged(*OUTPUTS, name="updates"), once)))
    assert "1 training with canaries, 1 set of scores and 1 set of outputs" in methods(records)
    assert "attack: we judged 720 scores without the record and 540 with it; 140 others chose thresholds" in statement(
        records
    )
    assert "133 others" not in statement(records), "learned and chose are told apart"


@pytest.mark.long
def test_fixed_thresholds_are_compared_and_chosen_ones_are_not():
    fixed = {"thresholds": (1.0,)}
    old, worse = judged(WITHOUT, WITH - 1, **fixed), judged(WITHOUT, WITH + 1, **fixed)
    (change,) = audit.compare((as_record(old),), (as_record(worse),), risk=0.05)
    assert (change.state, change.test.threshold) == ("worse", 1.0)
    (same,) = audit.compare((as_record(old),), (as_record(old),), risk=0.05)
    assert same.state == "no_change_shown"
    assert "both records are of the same scores" in same.reason
    for pair in ((judged(), judged()), (judged(thresholds=(1.0,)), judged()), (judged(*OUTPUTS), judged(*OUTPUTS))):
        (change,) = audit.compare(*((as_record(each),) for each in pair), risk=0.05)
        assert (change.state, change.reason) == ("not_compared", OF_SCORES)


def test_thresholds_that_scores_chose_show_no_change_that_is_none():
    """Edges of a grid are scores of the older record, which lie on them by construction and not by chance."""
    whole = [np.round(np.random.default_rng(seed).normal(size=(2, 300))) for seed in (1, 2)]
    old, new = (as_record(judged(*sides)) for sides in whole)
    assert set(old.grids[0].edges) & set(new.grids[0].edges)
    (change,) = audit.compare((old,), (new,), risk=0.05)
    assert change.test is None


def test_two_trainings_are_not_compared_by_thresholds():
    coins = np.random.default_rng(0).random(300) < 0.5
    record = as_record(audit.one_run(coins + 0.0, coins, risk=0.05, claim=GAUSS))
    (change,) = audit.compare((record,), (record,), risk=0.05)
    assert (change.state, change.reason) == ("not_compared", ONE_TRAINING)
    assert change.reason not in ALONE.values()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    np.save(folder / "a.npy", WITHOUT)
    np.save(folder / "b.npy", WITH)
    return folder


def bound(folder, *more):
    words = ["bound", "--without", str(folder / "a.npy"), "--with", str(folder / "b.npy")]
    return main([*words, "--claim", "gaussian(mu=1)", *more])


def test_the_command_writes_what_report_verify_and_compare_read(saved, tmp_path, capsys):
    assert bound(saved, "--out", str(tmp_path / "o"), "--name", "our attack") == 1
    records = str(tmp_path / "o" / "records.json")
    assert "report: " in capsys.readouterr().out
    page = (tmp_path / "o" / "index.html").read_text()
    assert "dpsgd-audit bound --without" in page
    assert main(["verify", records, "--strict", "--quiet"]) == 3, "the trials were drawn elsewhere"
    assert main(["verify", records, "--quiet"]) == 0
    assert main(["compare", records, records]) == 4
    for form in (*TEXTS, "html"):
        assert main(["report", records, "--format", form, "--out", str(tmp_path / f"r.{form}"), "--quiet"]) == 0
    assert main(["report", records, "--figures", "svg", "--out", str(tmp_path / "f"), "--quiet"]) == 0
    assert main(["plot", records, "--x", "trials", "--out", str(tmp_path / "p.svg"), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["verify", records, "--rerun", "1"]) == 3
    assert "only their scores were given" in capsys.readouterr().out


def test_what_a_float_cannot_hold_is_tied_and_never_exchanged(tmp_path):
    """400 digits are infinite, and a float keeps 53 bits: one function of each score, so the bounds hold."""
    whole = np.uint64(2**63) + np.arange(0, 40_000, 100, dtype=np.uint64)
    read = one_column("scores", whole)
    assert (np.diff(read) >= 0).all()
    assert len(np.unique(read)) < len(whole)
    (tmp_path / "long.csv").write_text("1\n1" + 400 * "0" + "\n-1" + 400 * "0" + "\n2\n")
    assert one_column("scores", load_scores(str(tmp_path / "long.csv"))).tolist() == [1.0, np.inf, -np.inf, 2.0]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--out", "{0}/new", "--markdown", "{0}/new/index.html"), "--markdown"),
        (("--name", "x"), "add --out DIR"),
        (("--out", "{0}/a.npy"), "cannot be made a folder"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_judged(saved, tmp_path, capsys, more, says):
    np.save(tmp_path / "a.npy", WITHOUT)
    assert bound(saved, *(word.format(tmp_path) for word in more)) == 2
    told = capsys.readouterr()
    assert says in told.err
    assert told.out == ""


def test_machines_are_told_what_is_vouched_for():
    """A failure in CI said that the promise is broken and not under which conditions."""
    record = as_record(judged())
    for text in (junit((record,), title="Ours"), sarif((record,)), *github_annotations((record,))):
        assert "valid:   if the trials are independent" in text


def test_the_coins_of_canaries_make_the_neighbours_of_the_claim(saved, tmp_path, capsys):
    """A claim for neighbours with a zeroed gradient was refused, and no option could tell what a coin does."""
    claim = ("--claim", "gaussian(mu=9, relation='zero_out')")
    assert bound(saved, "--one-run", *claim, "--markdown", str(tmp_path / "card.md")) != 2
    assert "replaces one canary by a record that contributes nothing" in capsys.readouterr().out
    assert "| relation | zero_out" in (tmp_path / "card.md").read_text()


def test_a_record_needs_a_claim(saved, tmp_path, capsys):
    words = ["bound", "--without", str(saved / "a.npy"), "--with", str(saved / "b.npy"), "--out", str(tmp_path / "o")]
    assert main(words) == 2
    assert "add --claim" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
