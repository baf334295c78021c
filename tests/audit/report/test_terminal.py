"""What a terminal shows of a run: its story in ten lines, its table, and what there is to do."""

import dataclasses
import re

import numpy as np
import pytest

import guarantees
from audit.bounds.clopper_pearson import ErrorCounts
from audit.diagnosis.cause_sentences import QUESTIONS, answer
from audit.diagnosis.explain.findings import Kind
from audit.record.derive import claim_part
from audit.record.diagnosis_answer import LINE, Diagnosis
from audit.report.catalogue import TEXTS, text_report
from audit.report.diagnoses import IN_SHORT
from audit.report.formats import markdown
from audit.report.page import write_report
from audit.report.progress import Progress
from audit.report.short_story import ten_lines
from audit.report.story import largest_excess, remedy, story
from audit.report.table import print_table
from audit.report.text import record_lines
from audit.suites.read import parse_suite
from audit.trials.source import Tally
from audit.verdict.violated import by_counts
from guarantees.numerics.rounding import at_most
from mechanisms.pairs.gradient_lengths import GradientLengths

IN_BATCHES = {
    "subsampled_gaussian": {"rate": 0.5, "noise_multiplier": 1.0},
    "balls_and_bins": {"rounds": 4, "noise_multiplier": 1.0},
    "claim_from_history": {"history": ((1.0, 0.1, 3), (2.0, 0.1, 3))},
    "claim_from_event": {"event": "PoissonSampledDpEvent(sampling_probability=0.1, event=GaussianDpEvent(1.0))"},
}
WITHOUT = {
    "gaussian": {"mu": 1.0},
    "epsilon_delta": {"epsilon": 1.0, "delta": 0.0},
    "claim_from_history": {"history": ((1.0, 1.0, 3),)},
    "poisson_training": {"rate": 1.0, "noise_multiplier": 1.0, "steps": 3},
}


@pytest.mark.few(6)
@pytest.mark.parametrize("name", [*IN_BATCHES, *WITHOUT])
@pytest.mark.parametrize("settings", [{}, {"rate": 0.5}, {"sampler": "poisson"}])
def test_who_joins_the_batch_is_said_where_some_records_do(violation, name, settings):
    """It was said of a noisy maximum, a median and full batches."""
    for claims, sampled in ((IN_BATCHES, True), (WITHOUT, bool(settings))):
        if name not in claims:
            continue
        claim = dataclasses.replace(violation.claim, name=name, parameters=claims[name])
        own = dataclasses.replace(
            violation,
            verdict="no_violation_found",
            expect="no_violation_found",
            claim=claim,
            mechanism=dataclasses.replace(violation.mechanism, name="my_release", parameters=settings),
            neighbours=dataclasses.replace(violation.neighbours, name="add_record", parameters={"records": 6}),
        )
        assert ("a new one whose gradient points the other way" in remedy(own)) == sampled
        assert any(line.startswith("  next:    ") for line in record_lines(own)) == sampled
        assert ("gradient_canaries(" in "".join(record_lines(own))) == sampled
        torch = dataclasses.replace(own, environment={**own.environment, "torch": "2.15.0"})
        assert "gradient_canaries(" not in "".join(record_lines(torch)), "advice for JAX alone"


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_story_has_at_most_ten_lines_whatever_the_names(violation, hostile, width):
    for records in ((violation,), (hostile,), (violation, hostile) * 30):
        rows = ten_lines(records, width=width)
        assert len(rows) <= 10
        assert max(map(len, rows)) < width
        assert all(row.isprintable() for row in rows)
    text = " ".join(" ".join(ten_lines((violation,), width=140)).split())
    for word in ("audited", "promised epsilon 4.38 at delta 1e-05", "proven it leaks", "never means private", "to do"):
        assert word in text


def test_what_to_do_ends_with_a_whole_part(violation):
    """It ended with "see what looks wrong in 'B25 ...' ..."."""
    named = [dataclasses.replace(violation, name=f"{letter} mean of a column, no bounds") for letter in "abc"]
    for width in (110, 140):
        to_do = " ".join(
            " ".join(ten_lines((*named, dataclasses.replace(violation, diagnoses=())), width=width)).split()
        )
        assert "to do Do not rely on the promise of 'a mean of a column, no bounds'" in to_do
        said = to_do.partition("to do")[2].partition(" promised ")[0]
        assert said.endswith(".")
        assert "..." not in said


def test_a_violation_below_the_promised_epsilon_is_told_by_what_broke(violation):
    """The largest 'excess' used to be told as epsilon, also where it is smaller than what is promised."""
    generous = dataclasses.replace(violation, claim=dataclasses.replace(violation.claim, epsilon=50.0))
    for told in (story((generous,)).proven, " ".join(" ".join(ten_lines((generous,), width=140)).split())):
        assert "where 50 is promised" not in told
        assert "delta at epsilon 0: at least" in told
    less = dataclasses.replace(generous.violated_at, at_least=generous.violated_at.claimed + 1e-3)
    first = dataclasses.replace(generous, name="a little", violated_at=less)
    whole = dataclasses.replace(generous, name="as a whole", violated_at=None)
    seen = ErrorCounts(false_alarms=819, trials_without=1500, misses=343, trials_with=1500)
    counts = dataclasses.replace(
        generous, name="by its counts", violated_at=by_counts(seen, guarantees.gaussian(mu=1.0))
    )
    assert largest_excess((first, whole, counts, generous))[0] is generous
    assert largest_excess((counts,))[1].startswith(
        "343 misses in 1,500 trials beside 819 false alarms in 1,500, where the "
    )


def test_where_no_violation_is_found_the_story_says_what_would_have_been(violation):
    """Half of the noise was missed, and the story said 'Nothing: every verdict is as expected' alone."""
    told = "these trials would have found a noise multiplier of 0.4 or less in place of 1. This assumes the best score"
    green = dataclasses.replace(violation, verdict="no_violation_found", expect="no_violation_found", reason=told)
    other = dataclasses.replace(green, detectable_advantage_excess=0.18)
    text = " ".join(" ".join(ten_lines((other,), width=80)).split())
    right = at_most(50 * (1 + green.claim.advantage + 0.18))
    found = f"A leak that makes {right}% of guesses right would be found in 8 of 10 runs"
    assert found in text
    # what the best score finds is not what this audit does
    assert "noise multiplier" not in text
    text = " ".join(" ".join(ten_lines((other, other), width=140)).split())
    assert found in text
    assert "would be found" not in " ".join(ten_lines((violation,), width=140))


def test_where_no_violation_is_found_in_code_of_the_users_the_replay_of_its_lines_is_named(violation):
    ours = dataclasses.replace(violation, verdict="no_violation_found", expect="no_violation_found")
    own = dataclasses.replace(ours, mechanism=dataclasses.replace(ours.mechanism, name="my_training"))
    ours = dataclasses.replace(ours, mechanism=dataclasses.replace(ours.mechanism, name="one_round"))
    for told in (remedy(own), story((own,)).to_do, " ".join(" ".join(ten_lines((own,), width=80)).split())):
        assert "let `audit.explain` (Python) look for wrong lines." in told
    assert "Keep the audit in CI" in story((own,)).to_do
    data = dataclasses.replace(own.neighbours, name="add_record", parameters={"records": 6})
    rare = dataclasses.replace(
        own, claim=claim_part(guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0), 1e-5)
    )
    for name, parameters, proposed in (
        ("gradient_canary", {"records": 4, "others": "opposite"}, "among others whose gradients are zero"),
        ("gradient_canary", {"records": 4, "others": "zero"}, "among others whose gradients point the other way"),
        ("add_record", {"records": 2}, "among others whose gradients are zero"),
        ("add_record", {"records": 6}, "a new one whose gradient points the other way"),
        ("worst_case_pair", {"records": 4}, "among others whose gradients are zero"),
    ):
        pair = dataclasses.replace(data, name=name, parameters=parameters)
        assert proposed in remedy(dataclasses.replace(rare, neighbours=pair, gradient_lengths=None))
        assert "Next, " not in remedy(dataclasses.replace(rare, verdict="violation", neighbours=pair))
        # a pair of gradients has no weights to make canaries for
        rows = name == "worst_case_pair"
        told = remedy(dataclasses.replace(rare, neighbours=pair, gradient_lengths=None))
        assert ("worst_case_pair(..., shared=0.0)" in told, rows and "gradient_canaries" in told) == (rows, False)
    few, lengths = dataclasses.replace(data, parameters={"records": 3}), GradientLengths(record=9.0, others=(0, 0, 0))
    silent = dataclasses.replace(rare, neighbours=few, gradient_lengths=lengths)
    assert "among others whose gradients point the other way" in remedy(silent)
    listed = dataclasses.replace(own, suite={"risk": 0.05, "audits": 1, "seed": 0})
    assert "Keep the suite in CI, and let `dpsgd-audit explain` look for wrong lines." in story((listed,)).to_do
    # a function of a seed may be NumPy, which no replay follows
    seeded = dataclasses.replace(own, mechanism=dataclasses.replace(own.mechanism, parameters={"function": "my:step"}))
    assert "explain" not in remedy(seeded) + story((seeded,)).to_do
    torch = dataclasses.replace(seeded, environment={**seeded.environment, "torch": "2.9.0"})
    for told in (remedy(torch), story((torch,)).to_do):
        assert "let `audit.explain` (Python) look for wrong lines." in told
    assert "explain" not in remedy(ours) + story((ours,)).to_do
    assert "explain" not in remedy(violation) + story((violation,)).to_do


def test_a_hint_is_something_to_do(violation):
    """'Nothing: every verdict is as expected' stood below a hint that a seed is reused."""
    hint = Diagnosis(
        question="q", wrong=True, says="trials repeat.", p_value=0.0, risk=0.001, assumes="", code="repeated"
    )
    quiet = dataclasses.replace(violation, verdict="no_violation_found", expect="no_violation_found", diagnoses=(hint,))
    assert story((quiet,)).to_do == f"Look at what the outputs of {quiet.name!r} hint at, which is not a violation."


def test_what_a_replay_shows_comes_before_more_trials_and_beside_a_violation(violation):
    """'Nothing is proven either way' stood alone where a replay had found half of the noise missing."""
    line = Diagnosis(
        question="q", wrong=True, says="half the noise.", p_value=0.0, risk=0.0, assumes="", lines=(("train.py", 5),)
    )
    told = "Check train.py:5, which a replay of 'half' suspects; the trials did not confirm it."
    half = dataclasses.replace(violation, name="half", verdict="inconclusive", reason="too few.", diagnoses=(line,))
    quiet = dataclasses.replace(violation, verdict="no_violation_found", diagnoses=(), violated_at=None)
    to_do = story((half, quiet)).to_do
    assert to_do.startswith(f"{told} Nothing is proven either way about 'half'. ")
    assert told in story((violation, dataclasses.replace(half, verdict="no_violation_found"))).to_do


def test_violations_that_the_suite_expects_are_counted_apart(violation):
    control = dataclasses.replace(violation, expect="violation")
    quiet = dataclasses.replace(violation, verdict="no_violation_found", expect="no_violation_found", violated_at=None)
    for records, told in (
        ((violation, quiet), "1 of 2 audits leaks more than promised"),
        ((control, quiet), "1 of 2 audits leaks more than promised, as expected"),
        ((violation, control, quiet), "1 of 2 audits leaks more than promised, besides the 1 violation that the suite"),
    ):
        assert told in " ".join(" ".join(ten_lines(records, width=140)).split())
        assert told.capitalize() in story(records).proven


def test_code_that_does_not_draw_from_its_seed_is_called_so_everywhere(violation, tmp_path, capsys):
    odd = dataclasses.replace(violation, repeatable=False)
    for record, said in ((odd, True), (dataclasses.replace(violation, repeatable=True), False), (violation, False)):
        print_table((record,), suite_risk=0.05)
        shown = {
            "terminal": " ".join(capsys.readouterr().out.split()),
            "text": "\n".join(record_lines(record)),
            "page": write_report((record,), tmp_path, title="t").read_text(),
        }
        for where, text in shown.items():
            assert ("trials that were drawn twice differed" in text) == said, where
        assert ("not repeatable: 1 audit" in " ".join(ten_lines((record,), width=140))) == said


def test_fit_trials_are_shown_as_trials_are():
    """Most of the time of a learned audit may pass before its first judged trial."""
    own = (
        "[[audit]]\nname = 'own'\nmechanism = 'gaussian_mechanism'\nneighbours = 'scalar_pair'\n"
        "claim = { kind = 'gaussian', mu = 1.0 }\n"
    )
    spec = parse_suite(f"trials = 600\n{own}", "suite.toml")
    two = Progress(parse_suite(f"trials = 600\n{own}{own.replace('own', 'second')}", "suite.toml"), quiet=True)
    two.started(two._suite.audits[1])
    assert two._bars.tasks[0].description == "2 of 2: second"
    progress = Progress(spec, quiet=True)
    (audit,) = spec.audits
    progress.started(audit)
    (bar,) = progress._bars.tasks
    progress.fitting(audit, 64, 240)
    assert (bar.description, bar.completed, bar.total) == ("own, learning", 64, 240)
    grids = np.zeros((1, 2), np.int64)
    progress.advanced(audit, Tally(without=grids, with_record=grids, trials_per_side=100, state={}))
    assert (bar.description, bar.completed, bar.total) == ("own", 200, 600)


def test_terminal_and_markdown_say_what_a_passing_audit_would_have_found_whatever_the_claim(violation, capsys):
    told = "in 8 of 10 runs this audit would have found a Gaussian leak with mu 1.2 or more"
    right = dataclasses.replace(violation, verdict="no_violation_found", reason=told, violated_at=None, diagnoses=())
    sampled = claim_part(guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0), delta=1e-5)

    def both(*records):
        print_table(records, suite_risk=0.05)
        return [" ".join(text.split()) for text in (capsys.readouterr().out, markdown(records, title="t"))]

    for claim in (violation.claim, sampled):
        for text in both(dataclasses.replace(right, claim=claim)):
            assert text.count("a Gaussian leak with mu 1.2 or more") == 1
    print_table((right, dataclasses.replace(right, name="again")), suite_risk=0.05)
    once = " ".join(capsys.readouterr().out.split())
    assert once.count(told) == 1
    assert f"{right.name}, again: {told}" in once
    for many in both(*(dataclasses.replace(right, name=str(i)) for i in range(6))):
        assert "mu 1.2 or more" not in many
        assert "The report says what the 6 audits without a violation would have found." in many
    for text in both(dataclasses.replace(right, verdict="inconclusive", reason="too few trials.")):
        assert text.count("too few trials.") == 1


def test_the_head_of_a_markdown_table_has_the_delta_that_all_audits_share(violation):
    other = dataclasses.replace(violation, report_delta=1e-6)
    alone = markdown((violation,), title="t")
    assert "| what broke: proven (claimed) | epsilon at delta 1e-05 proven (claimed) |" in alone
    assert "| gaussian(mu=1.0) |" in alone
    both = markdown((violation, other), title="t")
    assert "| epsilon at a delta proven (claimed) |" in both
    assert ") at 1e-06 |" in both


def test_a_table_says_in_a_few_words_what_looks_wrong_and_has_no_empty_column(violation, tmp_path):
    silent = answer("silent", wrong=True, measured="there is no noise", p_value=0.0, risk=0.01, assumes="nothing")
    line = dataclasses.replace(silent, code="line:not_clipped", lines=(("step.py", 4), ("other.py", 9)))
    plain = dataclasses.replace(violation, name="plain", diagnoses=())
    told = dataclasses.replace(violation, diagnoses=(line, silent))
    page = write_report((plain, told), tmp_path, title="t").read_text()
    for cell in ("not clipped at step.py:4", "looks wrong"):
        assert cell in page.replace('<span class="place">step.py:4</span>', "step.py:4")
        assert cell in markdown((plain, told), title="t")
    assert " There is no noise" in markdown((plain, told), title="t")
    assert "| looks wrong |" not in markdown((plain,), title="t")
    assert 'data-label="looks wrong"' not in write_report((plain,), tmp_path, title="t").read_text()


def test_every_question_has_a_few_words():
    assert set(QUESTIONS) <= set(IN_SHORT)
    assert {f"{LINE}{kind}" for kind in Kind} - {f"{LINE}{Kind.NOT_FOLLOWED}"} <= set(IN_SHORT)
    assert max(map(len, IN_SHORT.values())) <= 35


ONE_OF_MANY = re.compile(r"\b1 (?:[a-z]+ )?(?!times|miss|is|was|has|as|does|less|across|this)[a-z]+s\b")


def test_one_is_never_followed_by_a_plural(violation, capsys):
    """Everything there is one of: audits, questions, false alarms, misses."""
    (point, *_) = violation.points
    counts = dataclasses.replace(point.counts, false_alarms=1, misses=1)
    asked = answer("silent", wrong=True, measured="there is no noise", p_value=0.0, risk=0.01, assumes="nothing")
    broken = dataclasses.replace(
        violation, points=(dataclasses.replace(point, counts=counts),), diagnoses=(asked,), releases="final"
    )
    passed = dataclasses.replace(broken, verdict="no_violation_found", violated_at=None, diagnoses=())
    for record in (broken, passed):
        print_table((record,), suite_risk=0.05)
        texts = [capsys.readouterr().out, *(text_report((record,), name, title="one") for name in TEXTS)]
        texts.append("\n".join(record_lines(record)))
        for text in texts:
            assert not (found := ONE_OF_MANY.findall(text)), found
        assert any("1 false alarm in" in text for text in texts)
