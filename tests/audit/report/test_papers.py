"""What goes into papers: LaTeX, CSV, figures, sweeps, citations."""

import csv
import dataclasses
import io
import json
import re
import shutil
import subprocess
from importlib import resources

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import audit
import guarantees
import mechanisms
from audit.cli import main
from audit.power.less_noise import AT_BEST
from audit.record.derive import claim_part
from audit.record.diagnosis_answer import Diagnosis
from audit.record.of_one_run import as_record
from audit.record.record import SuitePart, plain
from audit.report.catalogue import TEXTS, text_report
from audit.report.drawings import drawing
from audit.report.escaping import latex_text, markdown_text
from audit.report.figures import OTHERS, _legend, save_figures, save_overview, save_sweep, value_of, width_in_inches
from audit.report.formats import markdown, separated
from audit.report.formulas import formula
from audit.report.latex import figures, files, table
from audit.report.methods import bibtex, methods
from audit.report.statement import model_card, statement
from audit.report.story import story
from audit.report.table import broken_in_short, print_table
from guarantees.numerics.rounding import at_least


def test_the_methods_paragraph_names_trials_bound_risk_and_claim(violation):
    said = methods((violation,))
    for word in ("2{,}000 outputs", "joint exact test", "at least $0.95$", r"\delta = 10^{-5}", r"GDP ($\mu = 1$)"):
        assert word in said


def test_the_ceiling_of_guesses_is_rounded_up_in_the_table_and_in_the_paragraph():
    """2.3212 was 2.32 in the table and 'at most 2.33' beside it."""
    rng = np.random.default_rng(0)
    included = rng.random(100) < 0.5
    given = {"claim": guarantees.gaussian(mu=1.0), "risk": 0.05, "delta": 1e-5, "seed": 7}
    record = as_record(audit.one_run(included + rng.normal(size=100), included, **given))
    assert "at most $2.33$" in methods((record,))
    assert "& 2.33 &" in table((record,), title="", wide=True)


def test_a_delta_of_guesses_stands_in_no_table():
    """0.000863 beside epsilon 2.11 looked like a mistake: a delta counts for every canary."""
    coins = np.random.default_rng(0).random(400) < 0.5
    record = as_record(audit.one_run(coins * 1.0, coins, claim=guarantees.gaussian(mu=3.0), risk=0.05, delta=1e-5))
    assert 0 < record.delta(0.0) < 0.05 < record.epsilon(1e-5)
    assert "& -- ($" in table((record,), title="t", wide=False)
    for name in ("statement", "model-card", "text", "markdown"):
        assert at_least(record.delta(0.0)) not in text_report((record,), name, title="t"), name


def test_a_history_is_written_as_what_was_composed(violation):
    claim = dataclasses.replace(violation.claim, name="claim_from_history", parameters={"history": [[1.0, 0.25, 4]]})
    said = methods((dataclasses.replace(violation, claim=claim),))
    told = r"the composed subsampled Gaussian mechanism ($q = 0.25, \sigma = 1, T = 4$)."
    assert f"We audited against this claim: {told}" in said
    assert formula(dataclasses.replace(claim, parameters={"history": "lost"})) == "claim from history"
    once = dataclasses.replace(claim, parameters={"history": [[1.0, 0.25, 1]]}, steps=1)
    assert formula(once) == r"subsampled Gaussian ($q = 0.25, \sigma = 1, T = 1$)"


@pytest.mark.parametrize("name", TEXTS)
def test_every_format_of_the_catalogue_is_written(violation, name):
    text = text_report((violation,), name, title="A title of its own")
    assert text.endswith("\n")
    assert ("A title of its own" in text) == TEXTS[name].titled


def test_a_paper_says_why_a_claim_is_violated(violation):
    """The card of a violation named no cause; what a suite expects needs none in the paragraph."""
    first = "with the record the noise is 0.8 times as large."
    answer = Diagnosis(question="?", wrong=True, says=first, p_value=0.0, risk=0.001, assumes="nothing", code="ratio")
    violation = dataclasses.replace(violation, diagnoses=(answer,))
    flat = {name: " ".join(text_report((violation,), name, title="t").split()) for name in TEXTS}
    for name in ("text", "statement", "model-card"):
        assert first in flat[name]
    assert latex_text(first) in flat["latex"]
    assert "Audit ``half the noise'': violation; " in flat["latex"]
    expected = dataclasses.replace(violation, expect="violation")
    assert latex_text(first) not in methods((expected,))
    silent = dataclasses.replace(violation, diagnoses=())
    assert "looks wrong" not in statement((silent,)) + model_card((silent,), title="t") + methods((silent,))
    assert r"Audit ``half the noise'': violation; $\delta$ at $" in methods((silent,))
    nothing = dataclasses.replace(violation, diagnoses=(dataclasses.replace(answer, wrong=False),))
    for name in ("text", "statement", "model-card", "latex", "junit", "markdown"):
        told = " ".join(text_report((nothing,), name, title="t").split())
        assert "no cause was found." in told, name
        assert "see what looks wrong" not in told
    assert "; see what looks wrong in 1 of them." in story((violation, dataclasses.replace(nothing, name="b"))).to_do
    hidden = dataclasses.replace(violation, diagnoses=(dataclasses.replace(answer, follows=True),))
    assert "see what looks wrong" not in story((hidden,)).to_do


def test_what_is_claimed_is_rounded_up_to_the_same_digits_everywhere(violation):
    """Of a Laplace claim .39347 was .393 in LaTeX, .394 in Markdown and .3935 in JUnit."""
    claim = dataclasses.replace(violation.claim, advantage=0.3934693402873666, epsilon=0.9871)
    # JUnit also tells the seconds
    record = dataclasses.replace(violation, claim=claim, violated_at=None, seconds=2.0)
    for name in ("markdown", "junit", "latex"):
        assert set(re.findall(r"0\.39\d+", text_report((record,), name, title="t"))) == {"0.394"}, name
    for name in ("text", "markdown", "model-card", "statement", "junit", "latex"):
        told = re.findall(r"0\.98\d+", text_report((record,), name, title="t"))
        assert set(told) == {"0.988"}, name


def test_what_is_proven_is_rounded_down_to_the_same_digits_everywhere(violation):
    """One bound was .556 in the statement, .5569 on the model card and .55 in LaTeX's table."""
    # JUnit tells the seconds, which may have the same digits
    violation = dataclasses.replace(violation, seconds=0.0)
    most, share = violation.epsilon(1e-5), violation.delta(0.0)
    texts = {name: text_report((violation,), name, title="t") for name in ("junit", "latex", "markdown", "model-card")}
    texts |= {"statement": statement((violation,)), "repr": repr(violation)}
    for name, text in texts.items():
        for value in (most, share):
            begin = re.escape(f"{value:.12f}"[:3])
            told = [float(found) for found in re.findall(rf"(?<![\d.]){begin}\d+", text)]
            assert float(at_least(value)) in told, name
            assert not [other for other in told if abs(other - value) < 0.01 and other != float(at_least(value))], name


def test_a_methods_section_names_the_fault_and_its_first_line_alone(violation):
    """It said 'changed after release' and not where; earlier it had all sentences of the replay."""
    line = Diagnosis(
        question="?",
        wrong=True,
        says="The record moves the sum of train.py:51 by 1.562, more than the stated bound of 1.",
        p_value=0.0,
        risk=0.0,
        assumes="nothing",
        code="line:changed_after_release",
        lines=(("train.py", 51), ("train.py", 53)),
    )
    broken = dataclasses.replace(violation, diagnoses=(line,))
    passed = dataclasses.replace(broken, verdict="no_violation_found", violated_at=None, name="passed")
    for text in (statement((broken, passed)), methods((broken, passed))):
        assert "stated bound" not in text
        assert text.count("replay of the code finds: raw data change a noisy value at train.py:51") == 2
        assert "train.py:51; the trials did not confirm it." in text
    assert statement((broken, passed)).count("The claim is") == 1


def test_a_card_of_a_count_speaks_of_no_training(violation):
    """A count with Laplace noise had 'one update of count', 'one step' and 'divisor: not stated in the record'."""
    claim = dataclasses.replace(
        violation.claim, name="laplace", parameters={"epsilon": 1.0}, unit="release", steps=1, source=""
    )
    count = dataclasses.replace(
        violation,
        claim=claim,
        mechanism=dataclasses.replace(violation.mechanism, name="count", parameters={}),
        neighbours=dataclasses.replace(violation.neighbours, parameters={}),
        releases="update",
        environment={},
    )
    card = model_card((count,), title="t")
    assert "| auditor saw | one output of count |" in card
    assert "| promise covers | one release |" in card
    assert not [word for word in ("sampler", "divisor", "step") if f"| {word}" in card]
    assert "divisor" in model_card((violation,), title="t")


def test_bibtex_has_the_tool_and_what_claims_rest_on(violation):
    entries = bibtex((violation,))
    for key in ("@misc{dpsgdaudit", "{dong2022,", "{buehler1957,"):
        assert key in entries


@pytest.mark.parametrize(
    "claim",
    [
        guarantees.poisson_training(rate=0.25, noise_multiplier=2.0, steps=2, accountant="certified"),
        guarantees.claim_from_history([(2.0, 0.25, 2)]),
    ],
    ids=["poisson_training", "claim_from_history"],
)
def test_bibtex_has_the_sources_of_composed_claims(violation, claim):
    """It had those of the tests alone."""
    part = dataclasses.replace(violation.claim, name=claim.name, source=claim.source)
    entries = bibtex((dataclasses.replace(violation, claim=part),))
    assert all(f"{{{key}," in entries for key in ("zhu2022", "dong2022", "doroshenko2022", "koskela2020"))


def test_text_becomes_harmless_latex(hostile):
    text = latex_text(hostile.name)
    assert text.isascii()
    assert "\n" not in text
    assert r"\%" in text
    assert r"\textbackslash{}" in text


def test_csv_reads_back_and_holds_no_formula(violation, hostile):
    evil = dataclasses.replace(violation, name="=cmd()")
    rows = list(csv.DictReader(io.StringIO(separated((violation, hostile, evil)))))
    assert float(rows[0]["epsilon"]) == violation.epsilon(1e-5)
    assert rows[1]["audit"].startswith("</script>")
    assert not set(rows[1]["audit"]) & {"\x1b", "\x00"}
    assert rows[2]["audit"] == "'=cmd()"


def test_widths():
    assert width_in_inches("3.3in") == 3.3
    assert width_in_inches("2.54 cm") == pytest.approx(1.0)
    for wrong in ("3.3", "wide", "-1in", "0in", "1e9in"):
        with pytest.raises(ValueError, match="width"):
            width_in_inches(wrong)


def test_figures_and_sweeps_are_files_of_their_kind(violation, tmp_path):
    (path,) = save_figures((violation,), tmp_path, ending="pdf", width=3.3)
    assert path.read_bytes().startswith(b"%PDF")
    other = dataclasses.replace(violation, trials=8000, name="more")
    save_sweep((violation, other), tmp_path / "sweep.svg", x="trials", series="audit", y="epsilon", width=3.3)
    drawn = (tmp_path / "sweep.svg").read_text()
    assert drawn.startswith("<?xml")
    with pytest.raises(ValueError, match=r"no parameter 'raet'; it has .*trials"):
        value_of(violation, "raet")
    with pytest.raises(ValueError, match="file ending"):
        save_sweep((violation,), tmp_path / "sweep.jpg", x="trials", series=None, y="epsilon", width=3.3)


def test_a_sweep_leaves_out_audits_without_its_parameters(violation, tmp_path, capsys):
    """The documents' own example refused the default suite's records."""
    mechanism = dataclasses.replace(violation.mechanism, parameters={"rate": 0.5})
    other = dataclasses.replace(violation, name="other", mechanism=mechanism)
    audit.save_records((violation, other), tmp_path / "r.json")
    words = ["plot", str(tmp_path / "r.json"), "--x", "rate", "--out", str(tmp_path / "sweep.svg")]
    assert main(words) == 0
    assert f"Left out, since they did not run or have no such parameter: '{violation.name}'" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == [violation.name]
    assert main([*words[:3], "raet", *words[4:]]) == 2


def test_several_audits_have_one_figure_of_all(violation, tmp_path):
    other = dataclasses.replace(violation, name="a $name$ that is longer than one line of a figure")
    longer = dataclasses.replace(violation, name="a name that is much longer than a figure has room for, at noise 0.5")
    paths = save_figures((violation, other, longer), tmp_path, ending="svg", width=3.3)
    drawn = paths[-1].read_text()
    assert "line of a figure" in drawn
    assert "for, at noise 0.5" in drawn
    assert [path.name for path in paths] == ["audit-1.svg", "audit-2.svg", "audit-3.svg", "audits.svg"]
    assert paths[3].read_text().startswith("<?xml")


def test_pictures_leave_the_users_backend_alone(violation, tmp_path):
    before = matplotlib.get_backend()
    matplotlib.use("svg")
    try:
        save_figures((violation,), tmp_path, ending="png", width=3.3)
        assert matplotlib.get_backend() == "svg"
    finally:
        matplotlib.use(before)


def test_a_record_is_drawn_on_the_users_own_axes(violation):
    with matplotlib.rc_context(audit.STYLE):
        left, right = Figure().subplots(1, 2)
        audit.draw(violation, left)
        audit.draw(violation, right, logarithmic=True)
    assert {"claimed", "exact", "observed", "proven", "ceiling"} <= set(left.get_legend_handles_labels()[1])
    assert (left.get_xscale(), right.get_xscale()) == ("linear", "log")


def test_judged_scores_are_named_and_told_apart_in_front_of_the_others(violation, tmp_path):
    """Two judged scores were the same thick black line."""
    several = with_long_names(violation)
    axes = Figure().subplots()
    audit.draw(several, axes)
    assert axes.get_legend_handles_labels()[1].count("other scores") == 1
    front = [line for line in axes.lines if line.get_label() in [p.member.replace("_", " ") for p in several.points]]
    behind = [line for line in axes.lines if line.get_color() == OTHERS]
    assert len({line.get_linestyle() for line in front}) == len(front) == 3
    assert len(behind) == 2
    assert min(line.get_zorder() for line in front) > max(line.get_zorder() for line in behind)
    on_the_page = drawing(several, None)["tradeOff"]["observed"]
    assert [one["judged"] for one in on_the_page] == [False, False, True, True, True]
    _legend(axes, path=tmp_path / "one.pgf")
    told = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert "sparse difference" in told, "names of the code's in a paper"
    assert not [name for name in told if "_" in name or name.startswith("observed:")]


@pytest.mark.few(1)
@pytest.mark.parametrize("width", [3.3, 7.0])
def test_the_legend_is_no_wider_than_the_figure_and_takes_no_room_from_the_curves(violation, width):
    """Three columns of long names were cut off at both sides."""
    heights = []
    for record in (violation, with_long_names(violation)):
        with matplotlib.rc_context(audit.STYLE):
            figure = Figure(figsize=(width, 0.5 * width), layout="constrained")
            axes = figure.subplots()
            audit.draw(record, axes)
            _legend(axes)
            figure.draw_without_rendering()
        box = figure.legends[0].get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width
        assert box.y1 <= axes.get_window_extent().y0
        heights.append(axes.get_window_extent().height)
    assert heights[0] == pytest.approx(heights[1], rel=0.1)


def with_long_names(violation):
    """Three scores that tests were made of, one of a name longer than a column of a paper, and two others."""
    grid, point = violation.grids[0], violation.points[0]
    judged = ("learned norm of " + "the layer of a name " * 5 + "c1.bias", "sparse_difference", "learned record")
    grids = tuple(dataclasses.replace(grid, member=name) for name in (*judged, "max_coordinate", "norm"))
    points = tuple(dataclasses.replace(point, member=name) for name in judged)
    return dataclasses.replace(violation, grids=grids, points=points)


def test_a_paper_gets_its_files_apart(violation):
    found = files((violation,), title="t")
    assert list(found) == ["table.tex", "table-wide.tex", "methods.tex", "references.bib"]
    narrow, wide = found["table.tex"], found["table-wide.tex"]
    for text, label in ((narrow, "tab:audit}"), (wide, "tab:audit-wide}")):
        assert rf"\label{{{label}" in text
        assert r"at $\delta = 10^{-5}$" in text
        assert "risk $0.05$" in text
    assert r"\begin{table*}" in wide
    assert r"GDP ($\mu = 1$)" in wide
    assert narrow.count("&") == 6, "four columns fit one column of a paper"


def test_formulas_hold_numbers_only(violation):
    odd = dataclasses.replace(
        violation.claim, name="my_claim", parameters={"a_b": 2.0, "x": "$", "rate": 1e-4}, times=3
    )
    assert formula(odd) == r"my claim ($\text{a b} = 2, q = 0.0001$), $3$ times"


def test_the_card_has_the_fields_that_guides_ask_for(violation, hostile):
    card = model_card((violation, hostile), title="t")
    proven = at_least(violation.delta(0.0))
    assert f"| {violation.name} | violation | delta at epsilon 0 | at least {proven} | 0.383 |" in card
    for field in ("unit of privacy", "relation", "accountant", "sampler assumed", "sampler used", "divisor", "delta"):
        assert card.count(f"| {field} |") == 2
    for field in ("proven epsilon", "risk of a wrong bound", "tool"):
        assert f"| {field} |" in card


ERRORS = "291 misses in 750 trials beside 370 false alarms in 750"
BROKEN = {
    "number": (
        "delta at epsilon 1: at least 0.224, claimed at most 0.01 (false alarms at most 0.01352).",
        ("delta at epsilon 1", "at least 0.224", "0.01"),
    ),
    "no proof": ("epsilon at delta 1e-05: more, claimed at most 2.", ("epsilon at delta 1e-05", "more", "2")),
    "counts": (
        f"{ERRORS}, where the claim allows no fewer than about 338 misses.",
        ("errors", ERRORS, "no fewer than about 338 misses"),
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_tables_begin_with_the_number_that_broke_the_claim(violation, kind, capsys):
    """They said 'violation, at least 0.107, promised 2.24', where the claim broke at another point."""
    says, (number, proven, claimed) = BROKEN[kind]
    record = dataclasses.replace(violation, violated_at=dataclasses.replace(violation.violated_at, says=says))
    assert f"| violation | {number} | {proven} | {claimed} |" in model_card((record, record), title="t")
    short = f"{number}: {proven.removeprefix('at least ')} ({claimed})"
    assert f"| {short} | " in markdown((record,), title="t")
    assert f"half the noise; {short}" in table((record,), title="t", wide=True)
    print_table((record,), suite_risk=0.05)
    head = capsys.readouterr().out.partition("All lower bounds")[0]
    assert f"{number}:" in head.split("gaussian(mu=1.0)")[1]


def test_tables_begin_with_the_p_value_where_no_number_broke_the_claim(violation):
    claim = dataclasses.replace(violation.claim, epsilon=9.0)
    record = dataclasses.replace(violation, violated_at=None, claim=claim, p_value=0.001)
    assert "| violation | p-value | 0.001 | risk 0.05 |" in model_card((record, record), title="t")
    beyond = dataclasses.replace(record, claim=violation.claim, report_delta=1e-3)
    assert broken_in_short(dataclasses.replace(beyond, claim=dataclasses.replace(claim, epsilon=1.0))) == ""


def test_a_card_states_a_claim_of_one_pair_at_its_own_delta_where_it_promises_nothing_at_the_records(violation):
    """It said 'inf at delta 1e-05' of epsilon 1 at delta 0.01."""
    claim = claim_part(guarantees.epsilon_delta(epsilon=1.0, delta=0.01), 1e-5)
    card = model_card(
        (dataclasses.replace(violation, claim=claim, verdict="inconclusive", violated_at=None),) * 2, title="t"
    )
    proven = at_least(violation.epsilon(0.01))
    assert f"| inconclusive | epsilon at delta 0.01 | at least {proven} | 1 |" in card
    assert "| promised epsilon | 1 at delta 0.01 |" in card
    assert f"| proven epsilon | at least {proven} |" in card
    assert "inf" not in card


def test_the_card_of_a_training_says_how_batches_are_drawn_and_divided(violation):
    """It said 'history = [[1.0, 0.3333333333333333, 12]]' and 'not stated in the record'."""
    counted = {"history": [[1.0, 1 / 3, 12]]}
    claim = dataclasses.replace(violation.claim, name="claim_from_history", parameters=counted, steps=12)
    seen = {"sampler": "Poisson batches at rate 0.3333 (UniformWithReplacementSampler)", "divisor": "none: x"}
    record = dataclasses.replace(violation, claim=claim, environment={**violation.environment, **seen})
    card = model_card((record,), title="t")
    assert "| sampler assumed | Poisson batches at rate 0.3333, 12 steps |" in card
    assert "| sampler used | Poisson batches at rate 0.3333 (UniformWithReplacementSampler) |" in card
    assert "| divisor | none: x |" in card


def test_every_text_counts_the_same_audits(violation):
    """The statement counted all six audits and the methods section the three that ran."""
    other = dataclasses.replace(violation, verdict="could_not_run", violated_at=None, name="not installed")
    assert statement((violation, other)).startswith("We audited 1 configuration with dpsgd-audit")
    assert methods((violation, other)).startswith(f"We audited 1 configuration (``{violation.name}'') with")
    assert "Fix what kept 'not installed' from running." in story((violation, other)).to_do
    assert story((violation, other)).audited.startswith(f"1 audit ({violation.name!r}): "), "not its function"
    # audits in Python are called by their function, if nobody names them
    assert story((violation, violation)).audited.startswith(f"2 audits ({violation.name!r} 2 times): each ran its code")
    assert ",1.0,1.0," not in separated((other,)), "no p-value"


def test_the_card_of_a_pure_epsilon_says_delta_0_and_whose_risk_it_is(violation):
    parameters = {"epsilon": 1.0, "delta": 0.0}
    pure = dataclasses.replace(
        violation,
        claim=dataclasses.replace(violation.claim, name="epsilon_delta", parameters=parameters, source="wasserman2010"),
        releases="final",
        suite=SuitePart(risk=0.05, audits=6, seed=0),
        risk=0.05 / 6,
    )
    card = model_card((pure,), title="t")
    for row in (
        "| promised epsilon | 1 at delta 0 (pure) |",
        "| delta | 0; bounds are proven at 1e-05 |",
        "| risk of a wrong bound | 0.00834 for this audit, 0.05 for all 6 of its suite |",
        "| promise covers | one release of the whole training; the claim does not say how many steps it counts |",
    ):
        assert row in card, card
    assert "wasserman2010" not in card
    assert "| delta | 1e-05 |" in model_card((violation,), title="t")


def test_the_card_says_the_mu_that_was_promised(violation):
    """A violation with proven epsilon 1.4 of promised 2 had a proven mu of 0.937, and none promised beside it."""
    claim = dataclasses.replace(violation.claim, name="gaussian", parameters={"mu": 0.5}, times=4)
    assert "| promised mu | 1 |" in model_card((dataclasses.replace(violation, claim=claim),), title="t")


def test_methods_and_statement_say_what_would_have_been_found(violation):
    """Which leak, of which code: what a reviewer asks of 'no violation found'."""
    green = dataclasses.replace(
        violation,
        verdict="no_violation_found",
        reason="with power 0.8 this test would have found x.",
        detectable_advantage_excess=0.12,
        detectable_epsilon=1.5,
    )
    wider = dataclasses.replace(green, detectable_advantage_excess=0.2)
    found = "would have found an advantage of $0.2$ above its claim"
    each = f"In 8 of 10 runs, each of the 2 audits that found no violation {found}"
    loose = [dataclasses.replace(own, claim=dataclasses.replace(own.claim, name="x")) for own in (green, wider)]
    assert f"{each} or a Gaussian mechanism with $\\varepsilon = 1.5$, if the thresholds suit it (on" in methods(
        (violation, *loose)
    )
    assert "a Gaussian mechanism with $\\mu = 0.388$, if the thresholds suit it (on" in methods((green,))
    told = "a noise multiplier of 0.44 or less in place of 1"
    step = dataclasses.replace(
        green.claim, name="subsampled_gaussian", parameters={"rate": 0.1, "noise_multiplier": 1.0}
    )
    rare = dataclasses.replace(green, claim=step, reason=f"in 8 of 10 runs, {told}, if the pair shows it.")
    assert f"with its scores and thresholds); this many trials can find {told}. {AT_BEST}." in methods((rare,))
    assert "a Gaussian mechanism" not in methods((rare,))
    assert f"the audit ``{green.name}'', which found no violation, would have found" in methods((violation, green))
    assert "would have found" not in methods((violation,))
    name = violation.mechanism.name
    names = f"{violation.name}'', ``{green.name}'' and ``{wider.name}"
    assert f"3 configurations (``{names}'') with" in methods((violation, green, wider))
    said = statement((green,))
    assert f"outputs of {name} were drawn" in said
    assert "Verdict: no violation found; with power 0.8 this test would have found x." in said


def test_reports_name_the_command_the_libraries_and_the_unit_and_say_what_does_not_come_again(violation):
    """They named the adapter alone, and the versions of the auditor's own libraries."""
    given = {"command": ["python", "serve.py", "dpl:laplace"], "packages": ["diffprivlib==0.6.6", "numpy"]}
    program = dataclasses.replace(violation.mechanism, name="command_step", parameters={**given, "python": "3.11"})
    pair = mechanisms.add_record(np.zeros((3, 2)), np.ones(2), unit="client")
    clients = dataclasses.replace(violation.neighbours, parameters=plain(pair.parameters))
    record = dataclasses.replace(violation, mechanism=program, neighbours=clients, repeatable=False)
    beside = "diffprivlib==0.6.6, numpy, Python 3.11"
    said, card = statement((record,)), model_card((record,), title="t")
    assert f"outputs of command_step (the command python serve.py dpl:laplace; with {beside}) were" in said
    assert "differ by one client added or removed (pair: " in said
    assert "| command | python serve.py dpl:laplace |" in card
    assert f"| audited with | {beside} |" in card
    assert "| unit of privacy | one client |" in card
    assert f"The audited code ran with {beside.replace('==', ' ')}." in methods((record,))
    (row,) = csv.DictReader(io.StringIO(separated((record,))))
    assert (row["command"], row["libraries"], row["repeatable"]) == ("python serve.py dpl:laplace", beside, "False")
    for name in ("statement", "model-card", "latex", "markdown"):
        assert "ot repeatable: the same seed gives other counts" in text_report((record,), name, title="t")
        assert "ot repeatable" not in text_report((violation,), name, title="t")
    torch = dataclasses.replace(program, name="train", parameters={"torch": "2.13.0", "opacus": "1.6.0"})
    installed = dataclasses.replace(record, mechanism=torch)
    used = dataclasses.replace(installed, environment={**record.environment, "divisor": "expected_batch_size 4"})
    assert "of train (with torch 2.13.0, opacus 1.6.0) were" in statement((used,))
    assert "ran with torch 2.13.0." in methods((installed,)), "the audited code never imported Opacus"
    assert "ran with torch 2.13.0, opacus 1.6.0." in methods((installed, used))
    claimed = dataclasses.replace(installed, claim=dataclasses.replace(record.claim, name="claim_from_history"))
    assert "of train (with torch 2.13.0, opacus 1.6.0) were" in statement((claimed,)), "its own accountant counted"


def test_functions_of_one_name_come_with_their_modules(violation):
    by = [dataclasses.replace(violation.mechanism, name="train", parameters={"train": f"{at}:train"}) for at in "ab"]
    first, second = (dataclasses.replace(violation, mechanism=own) for own in by)
    assert "outputs of a.train and b.train" in " ".join(text_report((first, second), "text", title="t").split())
    assert "outputs of train" in " ".join(text_report((first, first), "text", title="t").split())


def test_long_names_in_one_column_go_on_in_the_next_line(violation):
    """They were cut in the middle of words."""
    names = [f"ASGM: divided by the realised batch rate=0.{digit}" for digit in (7, 9)]
    passed = dataclasses.replace(violation, verdict="inconclusive", violated_at=None)
    rows = table([dataclasses.replace(passed, name=name) for name in names], title="t", wide=False)
    assert [row for row in rows.splitlines() if "rate" in row] == [
        rf"\makebox[0pt][l]{{\parbox[t]{{\linewidth}}{{\raggedright {broken}\strut}}}} \\*"
        for broken in (name.replace("=", r"=\allowbreak{}") for name in names)
    ]


def test_several_audits_are_summed_up_before_each_is_told(violation):
    quiet = dataclasses.replace(
        violation,
        name="right",
        verdict="no_violation_found",
        violated_at=None,
        diagnoses=(),
        reason="with power 0.8 this.",
    )
    both = "Violation: 'half the noise'. No violation found: 'right'."
    assert both in statement((violation, quiet))
    card = model_card((violation, quiet), title="t")
    assert (
        f"| right | no violation found | epsilon at delta 1e-05 | at least {at_least(quiet.epsilon(1e-5))} | " in card
    )
    assert card.count("| what these trials could show | with power 0.8 this. |") == 1
    assert "Violation: " not in statement((violation,)) + model_card((violation,), title="t")


def test_the_statement_is_sentences(violation):
    said = statement((violation,))
    for words in ("1 configuration with dpsgd-audit", "at least 0.95", "Verdict: violation", "does not prove privacy"):
        assert words in said
    proven, allowed = violation.violated_at.says.removeprefix("delta at epsilon 0: ").rstrip(".").split(", claimed ")
    assert f"Verdict: violation; delta at epsilon 0 is {proven}, and the claim allows {allowed}." in said
    assert markdown_text(violation.violated_at.says) in model_card((violation,), title="t")


def test_the_statement_tells_once_what_audits_share(violation):
    """Eighteen audits of one design made a thousand words."""
    reason = "in 8 of 10 runs this audit would have found an advantage of 0.2 or more above the claim."
    green = dataclasses.replace(violation, name="first", verdict="no_violation_found", reason=reason)
    again = dataclasses.replace(green, name="second")
    more = dataclasses.replace(violation, name="more trials", trials=2 * violation.trials)
    said = statement((violation, green, again, more))
    assert said.count("were drawn on each of two datasets") == 2
    assert f"For each of {violation.name!r}, 'first', 'second': " in said
    assert f"second ({violation.mechanism.name}): The counts" in said
    assert said.count(reason.rstrip(".")) == 1
    assert "it would have found what 'first' would" in said


def test_the_statement_says_that_an_audit_stopped_early(violation):
    """'an epsilon of at least 0.0812 ... Verdict: violation' stood beside 1.52 claimed; the terminal explained it."""
    early = dataclasses.replace(violation, stops_early=True, trials_planned=100 * violation.trials)
    assert f" The audit ended at trial {early.trials:,} of {early.trials_planned:,}, as soon as" in statement((early,))
    assert "ended at trial" not in statement((violation,))


PAPER = r"""\documentclass[twocolumn]{article}
\usepackage{booktabs,amsmath,graphicx,natbib}
\begin{document}
\input{out/table}\input{out/table-wide}\input{out/methods}\input{out/figures}
\bibliographystyle{plainnat}\bibliography{out/references}
\end{document}
"""


@pytest.mark.skipif(shutil.which("bibtex") is None, reason="LaTeX is not installed")
@pytest.mark.parametrize("style", ["plain", "plainnat"])
def test_every_reference_says_where_it_appeared(style, tmp_path):
    """These styles print no ``eprint``: 'Auditing f-differential privacy in one run, 2024.' was all."""
    text = resources.files("guarantees").joinpath("references.bib").read_text()
    (tmp_path / "all.bib").write_text(text)
    (tmp_path / "paper.aux").write_text(f"\\citation{{*}}\n\\bibdata{{all}}\n\\bibstyle{{{style}}}\n")
    run = subprocess.run(("bibtex", "paper"), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout
    printed = (tmp_path / "paper.bbl").read_text()
    assert "arXiv:2410.22235" in printed
    places = re.findall(r"^  howpublished = \{(.+)\},$", text, flags=re.MULTILINE)
    assert all(place in printed for place in places)
    assert len(places) == text.count("@misc")


@pytest.mark.skipif(not (shutil.which("pdflatex") and shutil.which("bibtex")), reason="LaTeX is not installed")
def test_a_paper_in_two_columns_has_nothing_that_sticks_out_and_no_warning_of_bibtex(violation, tmp_path):
    other = dataclasses.replace(violation, name="a name that is much longer than a column of a paper has room for")
    packages = ["diffprivlib==0.6.6", "scikit-learn==1.5.2", "a-rather-long-package-name==2026.11.17"]
    beside = dataclasses.replace(violation.mechanism, parameters={"packages": packages, "python": "3.11"})
    records = (violation, dataclasses.replace(other, mechanism=beside))
    out = tmp_path / "out"
    out.mkdir()
    for name, text in files(records, title="Two audits").items():
        (out / name).write_text(text)
    drawn = save_figures(records[:1], out, ending="pdf", width=3.3)
    drawn.append(save_overview(records * 20, out / "audits.pdf", width=3.3))
    (out / "figures.tex").write_text(figures(records[:1], [path.name for path in drawn]))
    (tmp_path / "paper.tex").write_text(PAPER)

    def run(*command):
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120)

    latex = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex")
    assert run(*latex).returncode == 0
    cited = run("bibtex", "paper")
    assert cited.returncode == 0
    assert "Warning" not in cited.stdout
    run(*latex)
    said = run(*latex).stdout
    assert "undefined" not in said
    wide = [float(found) for found in re.findall(r"Overfull .hbox .([0-9.]+)pt", said)]
    assert all(points < 5 for points in wide), wide
    assert "too large for page" not in said
