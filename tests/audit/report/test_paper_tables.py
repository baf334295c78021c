"""Tables for papers fit their columns at a size that people can read."""

import dataclasses
import re
import shutil
import subprocess

import numpy as np
import pytest

import audit
import guarantees
from audit.record.derive import claim_part
from audit.record.of_one_run import as_record
from audit.record.of_scores import record_of_scores
from audit.report import latex
from audit.report.latex import files, table
from audit.report.methods import methods

PAPER = r"""\documentclass[twocolumn]{article}
\usepackage{booktabs,amsmath}
\begin{document}
\input{table}\input{table-wide}
\end{document}
"""
TRAINING = guarantees.poisson_training(rate=0.025, noise_multiplier=1.1, steps=120)
HISTORY = guarantees.claim_from_history([(1.1, 0.025, 60), (0.9, 0.05, 60)])


@pytest.fixture(scope="module")
def seven(violation):
    """What a student's paper has: trainings and steps with claims spelled out, one training with canaries."""
    rng = np.random.default_rng(0)
    coins = rng.random(400) < 0.5
    once = as_record(audit.one_run(rng.normal(size=400), coins, claim=guarantees.gaussian(mu=1.5), risk=0.05, name="o"))
    found = [
        dataclasses.replace(violation, name=name, claim=claim_part(claim, 1e-5), verdict=verdict, violated_at=None)
        for name, claim, verdict in (
            ("CNN with Opacus 1.6.0, final model: 120 steps, loss of the record", TRAINING, "inconclusive"),
            ("tests/privacy/test_train.py::test_the_transcript_of_a_hand_written_loop", HISTORY, "no_violation_found"),
            ("one step", guarantees.subsampled_gaussian(rate=0.025, noise_multiplier=1.1), "no_violation_found"),
            ("not installed", TRAINING, "could_not_run"),
            ("a stated pair of numbers", guarantees.epsilon_delta(epsilon=3.0, delta=1e-5), "inconclusive"),
        )
    ]
    return (found[0], dataclasses.replace(once, name="canaries in one training"), *found[1:], violation)


@pytest.mark.parametrize("wide", [False, True])
def test_a_table_is_never_shrunk_and_says_how_much_was_drawn(seven, wide):
    """Two audits whose claims are spelled out shrank to 4 points; the small table had no trials."""
    said = table(seven, title="t", wide=wide)
    for smaller in ("resizebox", "scalebox", "scriptsize", r"\tiny", "adjustbox"):
        assert smaller not in said
    assert said.count("2{,}000 trials") + said.count("4{,}000 trials") == 5
    assert "400 canaries" in said


def test_claims_stand_below_the_wide_table_each_once(seven):
    rows, notes = table(seven, title="t", wide=True).split(r"\end{tabular*}")
    assert r"T = 120" not in rows
    assert notes.count(r"T = 120") == 1
    assert [int(found) for found in re.findall(r"& \((\d)\) \\\\", rows)] == [1, 2, 3, 4, 1, 5, 6]
    (alone,) = re.findall(r"Claims?: .*", table(seven[-1:], title="t", wide=True))
    assert alone.startswith(r"Claim: GDP ($\mu = 1$).")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
@pytest.mark.parametrize("many", [2, 4, 7, 23, 60])
def test_so_many_audits_fit_their_columns_and_pages(seven, many, tmp_path):
    """23 were 'too large for page by 73pt'."""
    assert_fits((seven * 9)[:many], PAPER, tmp_path)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
def test_the_wide_table_fits_a_paper_of_one_column(violation, monkeypatch, tmp_path):
    """That of the default suite, with rows like this one, was 10pt too wide."""
    cells = latex._cells
    row = ["0.0352 ($0.000925$)", "11.3", "0.00398 ($0.0002$)", "0.0126", "no violation found"]
    monkeypatch.setattr(latex, "_cells", lambda record, wide: [*cells(record, wide=wide)[:1], *row[: 5 if wide else 3]])
    large = dataclasses.replace(violation, trials=400_000)
    other = dataclasses.replace(violation, claim=claim_part(guarantees.gaussian(mu=2.0), 1e-5))
    assert_fits((large, other), PAPER.replace("[twocolumn]", "").replace(r"\input{table}", ""), tmp_path)


def assert_fits(records, paper, tmp_path):
    for name, text in files(tuple(records), title="A CNN and a loop of our own").items():
        (tmp_path / name).write_text(text)
    (tmp_path / "paper.tex").write_text(paper)
    command = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex")
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120).stdout
    assert "Output written on paper.pdf" in said, said[-2000:]
    assert "Overfull" not in said, said
    assert "too large" not in said, said
    assert "multiply" not in said, said


def test_methods_say_why_audits_are_inconclusive_and_claim_no_epsilon_of_0(seven, violation):
    first = dataclasses.replace(
        seven[0], reason="these trials miss half. With the best score 590 trials would be enough."
    )
    said = methods((first, seven[1], dataclasses.replace(first, name="b"), violation))
    assert r"\varepsilon \ge 0$" not in said
    assert r"the audit proves no $\varepsilon$ above $0$ at $\delta = 10^{-5}$" in said
    why = "these trials miss half. With the best score 590 trials would be enough"
    assert f"Inconclusive: {first.name}; b ({why})." in said


def test_kinds_of_samples_are_listed_with_commas(seven, violation):
    rng = np.random.default_rng(1)
    given = {"claim": guarantees.gaussian(mu=1.0), "risk": 0.05, "delta": 1e-5, "seed": 3}
    scores = audit.from_scores(rng.normal(size=2000), rng.normal(size=2000), **given)
    said = methods((violation, seven[1], record_of_scores(scores)))
    assert "1 configuration (``half the noise''), 1 training with canaries and 1 set of scores" in said.replace(
        "\\", ""
    )
