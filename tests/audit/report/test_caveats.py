"""An answer says when its direction was only learned, and what would find half the noise missing."""

import dataclasses
import re

import numpy as np
import pytest

from audit.bounds.clopper_pearson import ErrorCounts
from audit.bounds.joint import joint_p_value
from audit.power.joint_power import jointly_refuting
from audit.power.less_noise import LEVELS
from audit.record.derive import claim_part
from audit.record.diagnosis_answer import LINE, Diagnosis
from audit.record.record import SuitePart
from audit.report.caveats import close_call, ended_early, learned_note, only_learned, trials_note, what_shows_more
from audit.report.diagnoses import suspects
from audit.report.formats import markdown
from audit.report.half_noise import half_noise_trials
from audit.report.page import write_report
from audit.report.short_story import short_report
from audit.report.statement import model_card
from audit.report.table import print_table
from audit.report.text import record_lines
from audit.risk import RiskBudget
from guarantees import claim_from_table, epsilon_delta, gaussian, laplace, subsampled_gaussian


def renamed(record, *members):
    points = tuple(dataclasses.replace(point, member=members[0]) for point in record.points)
    grids = tuple(dataclasses.replace(record.grids[0], member=name) for name in members)
    return dataclasses.replace(record, verdict="no_violation_found", violated_at=None, points=points, grids=grids)


def test_a_learned_direction_is_told_and_a_known_one_is_not(violation, tmp_path, capsys):
    learned = renamed(violation, "learned", "learned direction 0")
    assert only_learned(learned)
    assert "only learned, from" in learned_note(learned)
    assert any(line.startswith("  learned: the direction in which the record moves") for line in record_lines(learned))
    counted = dataclasses.replace(learned, claim=dataclasses.replace(learned.claim, name="laplace"))
    assert "gradients=" in what_shows_more(learned)
    assert "gradients=" not in what_shows_more(counted)
    for known in (renamed(violation, "projection", "learned"), renamed(violation, "learned", "learned record")):
        assert learned_note(known) == what_shows_more(known) == ""
    print_table((learned,), suite_risk=0.05)
    for said in (capsys.readouterr().out, write_report((learned,), tmp_path, title="Learned").read_text()):
        assert "was only learned. To make it known, pass gradients=" in " ".join(said.split())


def test_terminal_and_summary_say_once_that_several_lines_look_wrong(violation, capsys):
    line = Diagnosis(question="?", wrong=True, says="it is wrong.", risk=0.0, assumes="nothing", code=f"{LINE}kind")
    lines = tuple(dataclasses.replace(line, lines=(("step.py", number),)) for number in (3, 7))
    passed = dataclasses.replace(violation, verdict="no_violation_found", violated_at=None, diagnoses=lines)
    assert "every verdict as expected; code that looks wrong in 1\n" in markdown((passed,), title="Two lines")
    print_table((passed,), suite_risk=0.05)
    said = capsys.readouterr().out
    assert said.count("a replay of the code shows") == 1
    assert "\n  step.py:7: it is wrong." in said


def test_a_line_that_stands_in_front_is_not_named_again_behind_it():
    """It said 'step.py:4: ... comes from step.py:4'."""
    line = Diagnosis(question="?", wrong=True, says="", risk=0.0, assumes="nothing", code=f"{LINE}kind")
    said = (
        "step.py:4 scales it; it is drawn at step.py:42 and at my_step.py:4 (in optax.py:4), and comes from step.py:4."
    )
    first = dataclasses.replace(line, says=said, lines=(("src/step.py", 4), ("src/step.py", 42)))
    shorter = said.replace("step.py:4 scales", "This line scales").replace("from step.py:4.", "from this line.")
    assert suspects((first,)) == [f"src/step.py:4: {shorter}"]
    other = dataclasses.replace(first, lines=(*first.lines, ("lib/step.py", 4)))
    assert suspects((other,)) == [f"src/step.py:4: {said}"]  # it may be the other file of this name


def test_a_violation_close_to_the_risk_without_a_cause_is_to_be_confirmed(violation, tmp_path, capsys):
    close = dataclasses.replace(violation, p_value=0.025, adjusted_p_value=0.025, diagnoses=())
    said = "the p-value 0.025 is close to the risk 0.05, and no cause was looked for: confirm with a fresh seed"
    assert close_call(close).startswith(said)
    print_table((close,), suite_risk=0.05)
    assert " ".join(said.split()) in " ".join(capsys.readouterr().out.split())
    assert said in write_report((close,), tmp_path, title="Close").read_text().replace("The p-value", "the p-value")
    assert any(line.startswith("  close:   the p-value 0.025") for line in record_lines(close))
    brief = " ".join(short_report((close,), title="Close").split())
    assert "The p-value is close to the risk: confirm with a fresh seed at a smaller risk." in brief
    assert "Do not rely on the promise of 'half the noise'." in brief


def test_a_close_call_in_a_suite_says_which_p_value_is_which(violation, capsys):
    """The table said 0.001 and the sentence below it 0.019."""
    within = SuitePart(risk=0.05, audits=19, seed=1)
    close = dataclasses.replace(
        violation, p_value=0.001, adjusted_p_value=0.019, risk=0.05 / 19, suite=within, diagnoses=()
    )
    assert close_call(close).startswith(
        "the p-value 0.019 among the 19 of the suite (0.001 for this audit alone) is close to"
    )
    print_table((close,), suite_risk=0.05)
    said = " ".join(capsys.readouterr().out.split())
    assert "an audit's p-value is judged at its share, 0.0026." in said


def test_a_violation_is_no_close_call_far_below_the_risk_or_with_a_cause(violation):
    answer = Diagnosis(question="?", wrong=False, says="not so.", p_value=0.5, risk=0.01, assumes="nothing")
    close = dataclasses.replace(violation, p_value=0.025, adjusted_p_value=0.025, diagnoses=(answer,))
    assert "no cause was found" in close_call(close)
    outputs = dataclasses.replace(answer, wrong=True)
    assert "0.05, and no line of code looks wrong: conf" in close_call(dataclasses.replace(close, diagnoses=(outputs,)))
    line = dataclasses.replace(outputs, code=f"{LINE}kind", lines=(("step.py", 3),))
    explained = dataclasses.replace(close, diagnoses=(line,))
    sure = dataclasses.replace(close, p_value=1e-4, adjusted_p_value=1e-4)
    suite = SuitePart(risk=0.9, audits=18, seed=0)
    assert [close_call(record) for record in (explained, sure, dataclasses.replace(close, suite=suite))] == [""] * 3


def test_a_violation_that_ended_early_is_no_close_call_and_says_why_its_numbers_are_small(violation, tmp_path, capsys):
    """Its p-value may be just below the risk: 'confirm it' made a gross bug look like a false alarm."""
    close = dataclasses.replace(violation, p_value=0.025, adjusted_p_value=0.025, diagnoses=())
    early = dataclasses.replace(close, stops_early=True, trials_planned=100 * close.trials)
    said = (
        f"the audit ended at trial {early.trials:,} of {early.trials_planned:,}, as soon as the claim was refuted. So "
        "p does not say how large the leak is, and so few trials"
    )
    assert (close_call(early), ended_early(close)) == ("", "")
    assert ended_early(early).startswith(said)
    print_table((early,), suite_risk=0.05)
    assert said in " ".join(capsys.readouterr().out.split())
    page = write_report((early,), tmp_path, title="Early").read_text()
    assert said[1:] in page
    assert any(line.startswith("  ended:   the audit ended at trial") for line in record_lines(early))
    shown = (page, *record_lines(early), short_report((early,), title="Early"))
    assert not any("fresh seed at a smaller risk" in text for text in shown)
    whole = dataclasses.replace(early, trials_planned=early.trials)
    assert (close_call(whole), ended_early(whole)) == ("", "")


RISK = 0.01
"""The share of the risk that the joint test of the claim has."""


def judging(record, claim, **changes):
    """A record whose joint test judges this claim at that share."""
    point = dataclasses.replace(record.points[0], target="verdict")
    return dataclasses.replace(
        record,
        claim=claim_part(claim, 1e-5),
        budget=RiskBudget(risk=0.05, verdict=RISK, epsilon=0.04),
        points=(point,),
        **changes,
    )


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("claim", "leak"),
    [
        (epsilon_delta(epsilon=4.3772, delta=1e-5), gaussian(mu=2.0)),
        (gaussian(mu=1.0), gaussian(mu=2.0)),
        (subsampled_gaussian(rate=0.5, noise_multiplier=1.0), subsampled_gaussian(rate=0.5, noise_multiplier=0.5)),
        (gaussian(mu=0.2), gaussian(mu=0.4)),
        (claim_from_table([(4.3772, 1e-5), (1.1604, 0.1)]), gaussian(mu=2.0)),
        (laplace(epsilon=1.0), laplace(epsilon=2.0)),
        (epsilon_delta(epsilon=1.0, delta=0.0), laplace(epsilon=2.0)),
    ],
    ids=lambda claim: claim.describe()[:40],
)
def test_so_many_trials_find_half_the_noise_missing(violation, claim, leak):
    """By drawing counts of the leaky mechanism's best test and judging them exactly by the joint test."""
    trials = half_noise_trials(judging(violation, claim))
    power = jointly_refuting(claim, trials_per_side=trials // 2, risk=RISK)
    best = int(np.argmax(power(LEVELS, np.asarray(leak.beta(LEVELS)))))
    rates = LEVELS[best], float(leak.beta(LEVELS[best]))
    rng = np.random.default_rng(0)
    drawn = [rng.binomial(trials // 2, rate, 40) for rate in rates]
    refuted = [
        joint_p_value(
            ErrorCounts(false_alarms=int(a), misses=int(b), trials_without=trials // 2, trials_with=trials // 2), claim
        )
        <= RISK
        for a, b in zip(*drawn, strict=True)
    ]
    assert 0.55 < np.mean(refuted) < 0.98


def test_one_epsilon_takes_no_fewer_trials_than_the_whole_curve_and_a_rectangle_more(violation):
    """About 162 were told for (4.3772, 1e-5), beside 3,400,000: those of another claim, whose advantage is .975."""
    whole = half_noise_trials(judging(violation, gaussian(mu=1.0)))
    single = half_noise_trials(judging(violation, epsilon_delta(epsilon=4.3772, delta=1e-5)))
    assert whole < 1_000 < 20_000 < single
    rectangle = judging(violation, gaussian(mu=1.0))
    budget = RiskBudget(risk=0.05, points=0.05)
    points = (dataclasses.replace(rectangle.points[0], risk=RISK),)
    rectangle = dataclasses.replace(rectangle, budget=budget, points=points)
    assert half_noise_trials(rectangle) > whole


def test_too_few_trials_along_a_known_direction_are_told_with_their_number(violation):
    known = renamed(violation, "projection")
    few = dataclasses.replace(known, trials=20)
    assert "trials would show this claim broken if half of the noise were missing" in trials_note(few)
    assert any(line.startswith("  trials:  about ") for line in record_lines(few))
    enough = dataclasses.replace(known, trials=10**7)
    for quiet in (enough, dataclasses.replace(few, verdict="violation"), renamed(few, "learned")):
        assert trials_note(quiet) == ""


def test_half_the_noise_of_a_sampled_claim_is_told_as_its_noise_multiplier(violation):
    few = judging(renamed(violation, "projection"), subsampled_gaussian(rate=0.5, noise_multiplier=1.0), trials=20)
    assert "trials would show this claim broken if the noise multiplier were 0.5 in place of 1" in trials_note(few)


def test_a_claim_without_an_advantage_has_no_number(violation):
    assert half_noise_trials(judging(violation, epsilon_delta(epsilon=0.0, delta=0.0))) is None


def test_large_numbers_are_told_with_two_digits(violation):
    open_one = judging(renamed(violation, "projection"), epsilon_delta(epsilon=8.0, delta=1e-5), trials=20)
    assert re.search(r"about \d{2}0,000 trials", trials_note(open_one))


def test_what_a_run_showed_to_be_otherwise_than_told_stands_in_every_report(violation, tmp_path, capsys):
    seen = {"contradicted": "clip=0.8 was told, Opacus's optimizer has 4", "after_step": "the loop changes the weights"}
    record = dataclasses.replace(violation, environment={**violation.environment, **seen})
    print_table((record,), suite_risk=0.05)
    pages = [write_report((record,), tmp_path, title="t").read_text(), model_card((record,), title="t")]
    for told in (*pages, "\n".join(record_lines(record)), " ".join(capsys.readouterr().out.split())):
        plain = told.replace("&#39;", "'").replace("\\", "")
        assert all(says in plain for says in seen.values()), told
    assert "seen in a run" not in model_card((violation,), title="t")
