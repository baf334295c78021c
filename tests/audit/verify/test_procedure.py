"""verify: a right record is right, what cannot be computed is said, and the exit code tells which."""

import dataclasses
import json
import re

import pytest
from made_records import TIGHT, explained, made, suite_of_policies

from audit.cli import main
from audit.policies.catalogue import POLICIES
from audit.record.record import Part
from audit.record.stored import save_records
from audit.suites.earlier_test import test_of as reusing
from audit.verify.procedure import WORDED, verify
from audit.verify.rebuild import rebuild
from audit.verify.record_values import agree
from guarantees import claim_from_history
from guarantees.laws import kept


@pytest.fixture(scope="module")
def record():
    return explained(made("one", POLICIES["from_theory"](method="rectangle"), claim=TIGHT))


@pytest.fixture(scope="module")
def verified(record):
    return verify((record,))


def states(record):
    return {check.what: check.state for check in verify((record,)).checks}


FROM_COUNTS = "diagnoses that follow from the counts"


def test_a_diagnosis_that_was_measured_on_outputs_is_not_called_right(record):
    """'right diagnoses' stood beside an edited sentence, which --rerun 1 alone can check."""
    measured = dataclasses.replace(record.diagnoses[-1], code="scale", says="it has scale 0.9.", risk=0.001)
    edited = verify([dataclasses.replace(record, diagnoses=(measured, *record.diagnoses))])
    assert not {check.what for check in edited.checks} & {"diagnoses", "sentences"}
    assert "diagnoses" in {each.key for each in edited.primary}


def test_records_of_every_policy_and_of_run_like_are_right():
    records = suite_of_policies()
    assert [record.policy["kind"] for record in records].count("reused") == 1
    assert {check.state for check in verify(records).checks} == {"right"}


MANY = tuple(i / 64 for i in range(-110, 110))


@pytest.mark.parametrize(
    "policy",
    [
        POLICIES["fixed"](thresholds=MANY, method="rectangle"),
        POLICIES["anytime"](thresholds=220),
        pytest.param(POLICIES["fixed"](thresholds=MANY), marks=pytest.mark.long),
    ],
    ids=["rectangle", "anytime", "joint"],
)
def test_a_record_of_hundreds_of_tests_holds_them_all_and_is_right(policy):
    """Only those on the lower left hull were kept, and the others' shares of the risk could not be found again."""
    record = explained(made("many", policy))
    assert len(record.points) > 200
    assert {check.state for check in verify((record,)).checks} == {"right"}


@pytest.mark.parametrize("method", ["joint", "rectangle"])
@pytest.mark.parametrize("kind", ["fixed", "from_theory", "split", "reused"])
def test_points_left_out_are_missed(kind, method):
    """Without those that prove less, the others had more of the risk."""
    policy = POLICIES["fixed"](thresholds=(0.0, 1.0), method=method)
    if kind == "reused":
        policy = reusing(made("before", policy), where="here")
    elif kind != "fixed":
        policy = POLICIES[kind](method=method)
    record = made("one", policy)
    for points in (record.points[:1], record.points[1:]):
        assert verify((dataclasses.replace(record, points=points),)).any("wrong")
        try:
            forged = rebuild(dataclasses.replace(record, points=points)).record
        except ValueError:
            continue
        assert len(forged.points) == len(record.points)


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("verdict", lambda r: dataclasses.replace(r, stops_early=True, verdict="no_violation_found")),
        ("verdict", lambda r: dataclasses.replace(r, verdict="inconclusive", reason="Holm")),
        ("counts", lambda r: dataclasses.replace(r, trials=r.trials - 2)),
        ("counts", lambda r: dataclasses.replace(r, state={"peak": 9.0})),
        (FROM_COUNTS, lambda r: dataclasses.replace(r, diagnoses=(*r.diagnoses, r.diagnoses[-1]))),
        ("verdict", lambda r: dataclasses.replace(r, trials_needed=10**400)),
        ("claim", lambda r: dataclasses.replace(r, claim=dataclasses.replace(r.claim, error=1.01 * r.claim.error))),
        ("all derived values", lambda r: with_point(r, threshold=r.grids[0].edges[0] + 0.01)),
    ],
)
def test_a_changed_record_is_wrong(record, what, change):
    assert states(change(record))[what] == "wrong"


def with_point(record, **changes):
    first, *others = record.points
    return dataclasses.replace(record, points=(dataclasses.replace(first, **changes), *others))


def test_whose_account_a_history_is_nobody_can_compute():
    claim = claim_from_history([(1.0, 0.5, 2)], source="the accountant of train, Opacus 1.6.0")
    record = made("account", POLICIES["from_theory"](), claim=claim)
    assert states(record)["claim"] == "right"
    assert "claim.source" in {each.key for each in verify([record]).primary}


def test_where_a_claim_comes_from_is_computed_unless_its_author_wrote_it(record):
    assert "claim.source" not in {each.key for each in verify([record]).primary}


def test_what_cannot_be_built_is_not_computed(record):
    claim = dataclasses.replace(record.claim, name="their_claim")
    assert states(dataclasses.replace(record, claim=claim))["all derived values"] == "not computed"
    policy = {**record.policy, "kind": "their_policy"}
    assert states(dataclasses.replace(record, policy=policy))["all derived values"] == "not computed"


def test_the_state_of_an_audit_that_could_stop_is_in_the_record():
    record = explained(made("one", POLICIES["anytime"]()))
    assert set(states(record).values()) == {"right"}
    assert states(dataclasses.replace(record, state={}))["all derived values"] == "not computed"
    raised = {**record.state, "peak": record.state["peak"] + 1}
    assert states(dataclasses.replace(record, state=raised))["verdict"] == "wrong"


def coded(record, code):
    return dataclasses.replace(record, environment={**record.environment, "own_code": code})


def test_sentences_that_other_code_of_this_version_worded_otherwise_are_not_wrong_and_its_numbers_are(record, tmp_path):
    """All commits so far call themselves 0.1.0; the digest of our own code tells them apart."""
    older = dataclasses.replace(coded(record, "0" * 24), reason="the same in other words.")
    told = {check.what: check for check in verify((older,)).checks}
    assert told[WORDED].state == "not computed"
    assert told[WORDED].says.startswith("worded by another version of the code; reason: ")
    save_records([older], tmp_path / "older.json")
    assert main(["verify", str(tmp_path / "older.json"), "--quiet"]) == 3
    assert states(dataclasses.replace(older, p_value=record.p_value / 2))["verdict"] == "wrong"
    assert states(dataclasses.replace(record, reason="the same in other words."))[WORDED] == "wrong"
    # words that are the same are right, whoever said them
    assert states(coded(record, "0" * 24))[WORDED] == "right"


def test_sentences_of_another_version_are_not_compared(record):
    other = dataclasses.replace(record, environment={**record.environment, "dpsgd_audit": "0.0.1"}, reason="because.")
    checks = {check.what: check for check in verify((other,)).checks}
    assert checks[WORDED].state == "not computed"
    assert "other version: made by 0.0.1" in checks[WORDED].says
    assert checks["numbers"].state == checks["limits"].state == "right"


def test_a_theory_is_compared_with_the_distinguisher_that_knows_it(record, verified):
    assert {check.what: check.state for check in verified.checks}["exact curve"] == "right"
    supposed = {**record.distinguisher.parameters["mechanism"], "noise_multiplier": 0.6}
    score = dataclasses.replace(
        record.distinguisher, parameters={**record.distinguisher.parameters, "mechanism": supposed}
    )
    assert states(dataclasses.replace(record, distinguisher=score))["exact curve"] == "wrong"
    theirs = dataclasses.replace(record.mechanism, name="their_step")
    assert states(dataclasses.replace(record, mechanism=theirs))["exact curve"] == "not computed"


def run(records, tmp_path, *more):
    save_records(records, tmp_path / "records.json")
    return main(["verify", str(tmp_path / "records.json"), *more])


def test_the_exit_code_tells_right_wrong_and_not_computed(record, tmp_path, capsys):
    assert run((record,), tmp_path) == 0
    brief, summary, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"right +{record.name}: \d+ checks", brief)
    assert "0 wrong, 0 not computed or checked" in summary
    assert run((record,), tmp_path, "--details") == 0
    text = capsys.readouterr().out
    assert "  right        verdict\n" in text
    assert "grids (" in text
    assert "stated, which nothing checks: name, " in text
    assert run((record,), tmp_path, "--strict", "--quiet") == 3
    claim = dataclasses.replace(record.claim, name="their_claim")
    assert run((dataclasses.replace(record, claim=claim),), tmp_path, "--quiet") == 3
    capsys.readouterr()
    assert run((dataclasses.replace(record, p_value=0.04, adjusted_p_value=0.04),), tmp_path, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [check["what"] for check in found["checks"] if check["state"] == "wrong"] == ["verdict"]
    assert {each["key"] for each in found["primary"]} >= {"grids", "key", "policy", "risk", "claim.parameters"}


def test_what_came_from_the_cache_folder_is_said_and_strict_reads_nothing_there(record, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DPSGD_AUDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "WORTH_KEEPING", 0.0)
    run((record,), tmp_path)
    assert "cache folder" not in capsys.readouterr().out
    run((record,), tmp_path)
    assert "came from the cache folder of an earlier command: --strict computes them all." in capsys.readouterr().out
    run((record,), tmp_path, "--json")
    assert json.loads(capsys.readouterr().out)["from_cache"] > 0
    run((record,), tmp_path, "--json", "--strict")
    assert json.loads(capsys.readouterr().out)["from_cache"] == 0


def test_names_are_printed_as_data(record, tmp_path, capsys):
    assert run((dataclasses.replace(record, name="\x1b[31mred\n::error::x"),), tmp_path) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_whole_number_beyond_every_float_is_compared():
    assert agree(10**400, 10**400)
    assert not agree(10**400, 960)
    assert not agree(10**400, 0.5)


def test_the_last_line_counts_the_diagnoses_and_commands_that_nothing_checked(record, tmp_path, capsys):
    """An edited diagnosis and an edited command ended with '0 not computed or checked'."""
    measured = dataclasses.replace(record.diagnoses[-1], code="scale", says="it has scale 0.9.", risk=0.001)
    assert run((dataclasses.replace(record, diagnoses=(measured, *record.diagnoses)),), tmp_path) == 0
    summary = next(line for line in capsys.readouterr().out.splitlines() if "0 wrong" in line)
    assert re.search(r"Not checked: \d+ values of diagnoses \(--rerun 1 measures them again\), \d+ ", summary)
    assert "of what was audited (--suite SUITE.toml compares them). --details" in summary


def test_no_records_are_not_right(tmp_path, capsys):
    path = tmp_path / "records.json"
    save_records((), path)
    assert main(["verify", str(path)]) == 2
    assert "holds no records, so there is nothing to verify" in capsys.readouterr().err


def test_a_key_that_cannot_be_built_leaves_the_trials_unchecked(record):
    odd = dataclasses.replace(record, key="threefry2x32:1,99999999999999")
    (check,) = [check for check in verify((odd,), rerun=0.5).checks if check.what == "trials drawn again"]
    assert check.state == "not checked"


def test_trials_that_cannot_be_drawn_are_not_said_to_be_and_end_with_3(record, tmp_path, capsys):
    program = Part(name="command_step", parameters={"command": ["./step"]}, kind="vector")
    assert run((dataclasses.replace(record, mechanism=program),), tmp_path, "--rerun", "0.1") == 3
    said = capsys.readouterr()
    assert "drawing" not in said.err
    assert "not checked  trials drawn again: they cannot be drawn: command_step runs a program" in said.out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: {"neighbours": dataclasses.replace(r.neighbours, kind="zero_out")}, "its parameters say"),
        (lambda r: {"claim": dataclasses.replace(r.claim, relation="substitution")}, "the pair differs by"),
        (lambda r: {"claim": dataclasses.replace(r.claim, steps=4)}, "one step's update is released"),
        (
            lambda r: {"claim": dataclasses.replace(r.claim, steps=4), "releases": "final", "steps": 3},
            "counts 4 steps, and the training took 3",
        ),
    ],
)
def test_what_no_run_would_have_judged_is_wrong(record, change, says):
    (check,) = [each for each in verify((changed(record, change),)).checks if each.what == "what was audited"]
    assert check.state == "wrong"
    assert says in check.says


def changed(record, change):
    parameters = {**record.neighbours.parameters, "relation": record.neighbours.kind}
    stated = dataclasses.replace(record, neighbours=dataclasses.replace(record.neighbours, parameters=parameters))
    return dataclasses.replace(stated, **change(stated))
