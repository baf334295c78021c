"""One training among records: saved, read, verified and reported under its own name."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

import audit
import guarantees
from audit.cli import main
from audit.record.of_one_run import as_record
from audit.report.latex import files
from audit.report.short_story import short_report, ten_lines
from audit.report.statement import model_card, statement
from audit.report.story import consequence, story
from audit.report.text import record_lines
from audit.verify.procedure import verify

CLAIM = guarantees.epsilon_delta(epsilon=1.0, delta=1e-5)


def trained(claim=CLAIM, shift=4.0, **more):
    rng = np.random.default_rng(5)
    coins = rng.random(400) < 0.5
    return audit.one_run(rng.normal(size=400) + shift * coins, coins, risk=0.025, claim=claim, **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("paper")
    results = (trained(name="leaks"), trained(guarantees.gaussian(mu=1.0), shift=0.0, name="keeps"))
    audit.save_records(results, path / "records.json")
    audit.write_report(results, path, title="Our training")
    return path


def test_what_is_read_proves_what_was_found(folder):
    leaks, keeps = audit.load_records(folder / "records.json")
    found = trained()
    assert (leaks.name, leaks.verdict, leaks.p_value) == ("leaks", "violation", found.judgement.p_value)
    assert leaks.epsilon(1e-5) == found.epsilon(1e-5) > 1
    assert (leaks.delta(0.0), leaks.mu) == (found.delta(0.0), found.mu)
    assert leaks.epsilon(0.5) == 0.0, "a delta that was not declared"
    assert keeps.verdict != "violation"
    assert "400 canaries" in repr(leaks)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("claim", "told"),
    [
        (guarantees.gaussian(mu=1.5), r"guesses=\[\((\d+), (\d+)\)\].*; about [0-9,]+, where the claim says"),
        (guarantees.poisson_training(rate=0.5, noise_multiplier=1.0, steps=10), r"guesses=\[\((\d+), (\d+)\)\]"),
    ],
)
def test_how_many_canaries_would_do_is_the_same_when_it_is_computed_again(claim, told):
    """Verify judged the guesses without knowing that the claim had chosen their number, and called the reason wrong."""
    found = trained(claim, shift=1.0)
    assert found.verdict == "inconclusive"
    numbers = re.search(told, found.reason)
    assert {check.state for check in verify((as_record(found),)).checks} == {"right"}
    guesses = tuple(map(int, numbers.groups()))
    canaries = int(re.search(r"about ([0-9,]+) canaries", found.reason)[1].replace(",", ""))
    coins = np.random.default_rng(6).random(canaries) < 0.5
    again = audit.one_run(20.0 * coins, coins, risk=0.025, claim=claim, guesses=[guesses])
    assert again.verdict == "violation"


def test_a_paper_tells_the_verdict_once_and_of_nothing_proven_that_it_is_nothing():
    record = as_record(trained(guarantees.gaussian(mu=1.5), shift=0.0, name="once"))
    assert (record.verdict, record.epsilon(1e-5), record.mu) == ("inconclusive", 0.0, 0.0)
    assert files((record,), title="t")["methods.tex"].lower().count("inconclusive") == 1
    assert "The counts prove no epsilon above 0 at delta 1e-05" in statement((record,))


@pytest.mark.parametrize("which", [0, 1])
def test_every_number_is_verified_and_a_changed_one_is_wrong(folder, which):
    record = audit.load_records(folder / "records.json")[which]
    assert {check.state for check in verify((record,)).checks} == {"right"}
    first = record.one_run.guesses[0]
    other = {"right_in": 0, "right_out": 0} if which == 0 else {"right_in": first.guessed_in}
    guesses = (dataclasses.replace(first, **other),)
    changed = dataclasses.replace(record, one_run=dataclasses.replace(record.one_run, guesses=guesses))
    assert verify((changed,)).any("wrong")
    assert verify((dataclasses.replace(record, p_value=0.5),)).any("wrong")
    assert {each.source for each in verify((record,)).primary} == {"trained", "told"}
    again = verify((record,), rerun=0.5)
    assert again.any("not checked")
    assert not again.all_drawn


def test_more_right_guesses_than_guesses_are_refused(folder, tmp_path):
    data = json.loads((folder / "records.json").read_text())
    data["records"][0]["one_run"]["guesses"][0]["right_in"] = 401
    (tmp_path / "records.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r"one_run\.guesses\[0\]\.right_in"):
        audit.load_records(tmp_path / "records.json")


def test_every_report_names_canaries_and_no_trials(folder):
    records = audit.load_records(folder / "records.json")
    tex = files(records, title="Ours")
    shown = {
        "page": (folder / "index.html").read_text(),
        "statement": statement(records),
        "card": model_card(records, title="Ours"),
        "wide": tex["table-wide.tex"],
        "methods": tex["methods.tex"],
        "text": "\n".join(line for record in records for line in record_lines(record)),
    }
    for where, text in shown.items():
        assert "400 canaries" in text, where
        assert where == "wide" or "would have proven at most " in text, where
        assert where != "statement" or "They prove" not in text, "the next sentence says it"
        assert "0 trials" not in text, where
        assert "0 outputs" not in text, where
    assert "steinke2023" in tex["references.bib"]
    assert "fair coin" in shown["page"]
    brief = short_report(records, title="Ours")
    assert all("audit.explain" in " ".join(told.split()) for told in (shown["page"], shown["text"], brief))


@pytest.mark.parametrize("kind", ["html", "csv", "junit", "markdown", "latex", "statement", "model-card"])
def test_the_command_reports_it(folder, kind, capsys):
    assert main(["report", str(folder / "records.json"), "--format", kind, "--out", str(folder / kind)]) in (0, 1)


def test_without_a_claim_there_is_no_record(tmp_path):
    with pytest.raises(ValueError, match="judged no claim"):
        audit.save_records((trained(claim=None),), tmp_path / "records.json")


def test_trainings_of_two_files_are_told_apart_and_their_conditions_are_told_once(folder, tmp_path, capsys):
    (leaks, _), paths = audit.load_records(folder / "records.json"), [tmp_path / name for name in ("a.json", "b.json")]
    for path in paths:
        audit.save_records([leaks], path)
    assert main(["report", *map(str, paths), "--format", "statement"]) == 0
    said = capsys.readouterr().out
    assert "Violation: 'leaks', 'leaks (2)'." in said
    assert "For each" not in said
    assert main(["report", *map(str, paths), "--format", "latex", "--out", str(tmp_path / "paper")]) == 0
    paper = (tmp_path / "paper" / "methods.tex").read_text()
    assert said.count("The bounds hold under the same conditions.") == 1
    assert "Conditions of the audits ``leaks'', ``leaks (2)''. The bounds hold if (1)" in paper
    assert paper.count("The bounds hold if (1)") == said.count("The bounds hold if (1)") == 1
    for code in ("guesses=", "remove neighbours"):
        assert code not in paper


@pytest.fixture(scope="module")
def below():
    """Refuted by its curve, though the epsilon proven at one delta is below the claimed one."""
    rng = np.random.default_rng(5)
    coins = rng.random(400) < 0.5
    found = audit.one_run(rng.normal(size=400) + 1.7 * coins, coins, risk=0.01, claim=guarantees.gaussian(mu=0.7))
    assert found.verdict == "violation"
    assert 0 < found.epsilon(1e-5) < found.claim.epsilon(1e-5)
    return as_record(found)


def test_a_violation_whose_epsilon_is_below_the_claimed_one_says_why(below):
    page = consequence(below, None)
    for told in ("\n".join(ten_lines((below,), width=400)), statement((below,)), model_card((below,), title="t"), page):
        assert "claimed curve is refuted as a whole (p-value " in told
        assert "is not above the promised 2.9" in told
        assert "nothing about epsilon" not in told
    assert "Verdict: violation; the claimed curve is" in statement((below,))
    assert "noisy" not in page, "the claim's adversary is not what scored the canaries"


def test_counts_do_not_read_as_more_right_guesses_than_guesses(folder):
    told = audit.load_records(folder / "records.json")[0].one_run
    first = told.guesses[0]
    assert f"{first.right} of {first.guessed} guesses were right ({first.guessed_in} guessed in, " in told.told(1e-5)


def test_a_paper_is_told_each_verdict_in_whole_sentences(folder, below):
    """It began in lower case, had two colons, plain 'epsilon 0 ... at delta 1e-05', and no verdict."""
    keeps = audit.load_records(folder / "records.json")[1]
    said = files((keeps, below), title="Ours")["methods.tex"]
    assert "\nWe audited 2 trainings with canaries with dpsgd-audit" in said
    assert " All bounds hold together" in said
    assert said.count("The bounds hold if (1) each canary was included by its own fair coin") == 1
    assert said.partition("\n\n")[0].endswith("does not prove privacy."), "conditions stand in paragraphs of their own"
    for plain in ("epsilon 0", "epsilon 2", "1e-05"):
        assert plain not in said
    assert "The audit ``keeps'' is of one training with 400 canaries" in said
    assert "Verdict: violation; the claimed curve is refuted as a whole" in said
    assert re.search(r"refute even a Gaussian mechanism with \$\\varepsilon = 4\.0\d\$ at \$\\delta = 10", said), (
        "a number to repeat"
    )
    assert f"Verdict: {keeps.verdict.replace('_', ' ')}; " in said
    assert said.count("It is audited against this claim: ") == 2


def test_the_model_card_tells_the_claims_adversary_from_the_auditor(folder):
    card = model_card(audit.load_records(folder / "records.json"), title="t")
    assert card.count("(as the claim assumes) |") == 2
    assert card.count("| auditor saw | one score for each canary; ") == 2


def test_several_trainings_are_not_told_as_one(folder):
    """Each record is of one training with its own canaries: 400 twice are not 800 in one."""
    records = audit.load_records(folder / "records.json")
    lines, page = "\n".join(ten_lines(records, width=200)), story(records).audited
    assert "2 audits, each of one training with 400 canaries" in lines
    assert page.startswith("2 audits, each of one training with 400 canaries")
    assert "800" not in lines + page
    alone = records[:1]
    assert "1 audit of one training with 400 canaries" in "\n".join(ten_lines(alone, width=200))
    assert story(alone).audited.startswith("1 audit of one training with 400 canaries")
