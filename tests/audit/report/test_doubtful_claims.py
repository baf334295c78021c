"""A claim whose numerical error exceeds delta: every text says so, and no verdict holds anyone to the number."""

import dataclasses
import json

import numpy as np
import pytest
from made_records import explained, made

import guarantees
from audit.bounds.bounded_numbers import EpsilonAt
from audit.bounds.clopper_pearson import ErrorCounts
from audit.cli import main
from audit.policies.catalogue import POLICIES
from audit.record.derive import claim_part
from audit.record.record import SCHEMA
from audit.record.stored import from_json
from audit.report.claims import claim_json, print_claims
from audit.report.formats import separated
from audit.report.latex import latex
from audit.report.story import story
from audit.report.table import print_table
from audit.report.text import record_lines
from audit.verdict.proven_numbers import against, promise
from guarantees.laws.law import Certificate
from guarantees.summary import summarise
from guarantees.trade_off import TradeOff

DELTA = 1e-5


def doubtful(error=1e-4, **sides):
    """Known within the error, by an estimate or, with ``safe``, from one side."""
    exact = guarantees.laplace(epsilon=1.0).compose(3)
    law = exact.curve.law
    sides = dict.fromkeys(sides, law)
    certificate = Certificate(proved="", estimated="", round_off=1e-15, **sides)
    return dataclasses.replace(exact, curve=TradeOff(dataclasses.replace(law, error=error, certificate=certificate)))


ESTIMATE, ONE_SIDED = doubtful(), doubtful(safe=True)


def test_the_command_says_so(capsys):
    print_claims([ESTIMATE], [summarise(ESTIMATE, deltas=(DELTA,))])
    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "not known: numerical error 0.0001 exceeds delta 1e-05" in printed


def test_json_says_so():
    found = json.loads(json.dumps(claim_json(ESTIMATE, summarise(ESTIMATE, deltas=(DELTA, 0.5)))))
    assert [one["known"] for one in found["ranges"]] == [False, True]
    assert found["ranges"][0]["promised"] is None
    assert found["ranges"][0]["says"] == "not known: numerical error 0.0001 exceeds delta 1e-05"


def test_no_verdict_holds_anyone_to_the_number():
    """Proven epsilon far above what was computed, all of it within the claim's numerical error at this delta."""
    seen = ErrorCounts(false_alarms=0, trials_without=10**6, misses=10**6 - 200, trials_with=10**6)
    exact = guarantees.laplace(epsilon=1.0).compose(3)
    question = EpsilonAt(delta=DELTA)
    assert against(exact, (seen,), question, risk=0.05).p_value <= 0.05
    for claim in (ESTIMATE, ONE_SIDED):
        assert promise(claim, question) == np.inf
        assert against(claim, (seen,), question, risk=0.05).p_value == 1


@pytest.mark.parametrize(("claim", "says"), [(ESTIMATE, "not known"), (ONE_SIDED, "at most 3 ")])
def test_a_record_says_so_everywhere(violation, claim, says, capsys):
    part = claim_part(claim, DELTA)
    record = dataclasses.replace(violation, claim=part, report_delta=DELTA)
    assert part.epsilon == (None if claim is ESTIMATE else claim.epsilon_range(DELTA).at_most)
    print_table((record,), suite_risk=0.05)
    texts = [repr(record), "\n".join(record_lines(record)), str(story((record,))), capsys.readouterr().out]
    for text in texts:
        plain = " ".join(text.split())
        assert says in plain
        assert "the claim's numerical error 0.0001 exceeds delta 1e-05" in plain


def test_an_error_below_delta_that_e_to_the_epsilon_multiplies_is_told_too(violation, capsys):
    part = claim_part(doubtful(error=1e-6), DELTA)
    record = dataclasses.replace(violation, claim=part, report_delta=DELTA)
    assert part.epsilon is None
    print_table((record,), suite_risk=0.05)
    printed = capsys.readouterr().out
    texts = [repr(record), "\n".join(record_lines(record)), str(story((record,))), printed]
    for text in texts:
        assert "the claim's numerical error 1e-06 times 1 + e^epsilon exceeds delta 1e-05" in " ".join(text.split())
    for text in (*texts, latex((record,), title=""), separated((record,))):
        assert " inf" not in text
        assert "(inf" not in text
        assert r"\infty" not in text


def test_what_is_called_at_most_is_the_most_that_is_proven():
    """Known within 1% by its certificate, although the numerical error exceeds delta: the upper end is told."""
    exact, more = (guarantees.laplace(epsilon=epsilon).compose(3) for epsilon in (1.0, 1.002))
    law = exact.curve.law
    certificate = Certificate(proved="", estimated="", round_off=1e-15, safe=more.curve.law, leaked=law)
    claim = dataclasses.replace(exact, curve=TradeOff(dataclasses.replace(law, error=1e-4, certificate=certificate)))
    left, part = claim.epsilon_range(DELTA), claim_part(claim, DELTA)
    assert left.known
    assert part.epsilon == left.at_most > left.epsilon
    assert float(part.epsilon_at(DELTA).split()[2]) >= left.at_most


def test_an_unknown_epsilon_is_null_in_a_record(tmp_path, capsys):
    claim, policy = guarantees.laplace(epsilon=1.0).compose(3), POLICIES["from_theory"](method="rectangle")
    record = explained(made("doubtful", policy, claim=claim, delta=1e-14))
    written = json.loads(json.dumps(record.to_json(), allow_nan=False))
    assert written["claim"]["epsilon"] is None
    assert from_json(written) == record
    path, page = tmp_path / "records.json", tmp_path / "page"
    path.write_text(json.dumps({"schema": SCHEMA, "records": [written]}))
    assert main(["verify", str(path)]) == 0
    assert main(["compare", str(path), str(path), "--quiet"]) == 0
    assert main(["report", str(path), "--out", str(page), "--quiet"]) == 0
    assert "not known (the claim" in (page / "index.html").read_text().replace("&#39;", "'")


def test_an_epsilon_that_is_infinite_is_called_so(violation):
    part = claim_part(guarantees.epsilon_delta(epsilon=1.0, delta=0.01).compose(3), DELTA)
    assert part.error > 0
    assert part.epsilon_at(DELTA) == "inf at delta 1e-05"
    record = dataclasses.replace(violation, claim=part, report_delta=DELTA)
    assert from_json(record.to_json()).claim.epsilon == np.inf
    assert "epsilon inf" in str(story((dataclasses.replace(violation, claim=part, report_delta=DELTA),)))


def test_a_claim_in_closed_form_says_nothing_of_the_kind(violation):
    for text in (repr(violation), "\n".join(record_lines(violation)), str(story((violation,)))):
        assert "numerical error" not in text


def test_a_table_tells_long_lists_of_a_claim_by_their_ends(violation, capsys):
    orders = [float(order) for order in range(2, 65)]
    part = dataclasses.replace(
        violation.claim,
        name="renyi",
        parameters={"orders": orders, "epsilons": [0.1 * o for o in orders], "level": [1, 2]},
    )
    told = "renyi(orders=[63 values, 2 to 64], epsilons=[63 values, 0.2 to 6.4], level=[1, 2])"
    assert part.short() == told
    assert repr(orders) in part.describe()
    print_table((dataclasses.replace(violation, claim=part),), suite_risk=0.05)
    assert len(capsys.readouterr().out.splitlines()) < 20
