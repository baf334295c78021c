import re

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joint_judge import judge_jointly
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.bounds.clopper_pearson import ErrorCounts, Limits
from audit.bounds.supporting_lines import tabulate
from audit.policies.anytime import Anytime
from audit.policies.chosen import Split
from audit.record.stored import from_json
from audit.report.formats import github_annotations, junit, markdown
from audit.report.text import record_lines
from audit.verdict.violated import (
    Allowance,
    by_counts,
    by_number,
    by_points,
    most_exceeded,
    which_outputs,
)
from guarantees.numerics.rounding import at_least, at_most

CLAIM = guarantees.gaussian(mu=1.0)


def counts(false_alarms, misses, trials=10_000):
    return ErrorCounts(false_alarms=false_alarms, trials_without=trials, misses=misses, trials_with=trials)


def run(mu, policy=None, trials=2000):
    return audit.run_audit(
        Shift(mu=mu),
        PAIR,
        First(),
        claim=CLAIM,
        trials=trials,
        risk=0.05,
        key=jax.random.key(0),
        name="shift",
        policy=policy,
        diagnose=False,
    )


def test_the_allowance_told_is_the_one_that_is_exceeded_most():
    lines = tabulate(CLAIM)
    for alpha, beta in ((0.1, 0.3), (0.001, 0.9), (0.9, 0.001)):
        most = most_exceeded(alpha, beta, lines)
        epsilon = np.linspace(0, 8, 4001)
        excess = np.maximum(1 - beta - np.exp(epsilon) * alpha, 1 - alpha - np.exp(epsilon) * beta) - CLAIM.delta(
            epsilon
        )
        assert most.epsilon == pytest.approx(epsilon[excess.argmax()], abs=0.02)
        assert most.reached - most.claimed == pytest.approx(excess.max(), abs=1e-4)
        assert most.claimed == pytest.approx(float(CLAIM.delta(most.epsilon)), abs=1e-6)


def test_the_epsilon_that_is_printed_is_the_one_that_is_meant():
    """'delta at epsilon 1.23: at least 0.512' was proven at 1.2268, and 1.23 was not what was claimed of either."""
    for claim in (CLAIM, guarantees.subsampled_gaussian(rate=0.3, noise_multiplier=0.8)):
        for point in (Limits(alpha=0.1, beta=0.3), Limits(alpha=0.001, beta=0.9), Limits(alpha=0.2, beta=0.001)):
            at = by_points((point,), claim)
            printed = float(re.search(r"at epsilon (\S+):", at.says)[1])
            assert printed == at.given == float(f"{printed:.3g}")
            direction = most_exceeded(point.alpha, point.beta, tabulate(claim)).direction
            mirrored = direction == "without_given_with"
            alpha, beta = (point.beta, point.alpha) if mirrored else (point.alpha, point.beta)
            assert at.at_least == pytest.approx(1 - beta - np.exp(printed) * alpha, rel=1e-12)
            assert claim.delta(printed, direction) <= at.claimed + 1e-12
            assert at.claimed == pytest.approx(claim.delta(printed, direction), abs=1e-4)


def test_a_violation_leads_with_a_proven_number():
    record = run(2.0)
    at = record.violated_at
    assert (at.number, at.given) == ("delta", 0.0)
    assert at.at_least == record.delta(0.0) > at.claimed
    assert at.says == f"delta at epsilon 0: at least {at_least(at.at_least)}, claimed at most 0.383."
    assert record_lines(record)[1] == f"  broken:  {at.says}"
    assert from_json(record.to_json()).violated_at == at
    said = at.says.removesuffix(".")
    assert said in markdown((record,), title="t")
    assert f'message="violation: {said}' in junit((record,), title="t")
    (annotation,) = github_annotations((record,))
    assert said in annotation
    assert all(f"%0A  {label}: " in annotation for label in ("claim", "proven"))
    assert not any(f"%0A  {label}: " in annotation for label in ("key", "counts", "shares", "because"))
    assert run(1.0).violated_at is None


@pytest.mark.long
def test_a_test_that_proves_no_reported_number_tells_its_point():
    """The verdict alone: epsilon proven may be far below the one claimed, and a line says what broke."""
    record = run(1.5, Split(targets=("verdict",)), trials=4000)
    assert (record.verdict, record.epsilon(1e-5) < record.claim.epsilon) == ("violation", True)
    at = record.violated_at
    assert at.says.startswith("delta at ")
    assert at.false_alarm_rate is not None
    assert at.miss_rate is not None


def test_an_audit_that_stops_early_says_what_broke():
    record = run(2.0, Anytime())
    assert record.trials < record.trials_planned
    says = record.violated_at.says
    assert re.match(r"[\d,]+ misses in [\d,]+ trials beside [\d,]+ false alarms in ", says)
    assert "epsilon" not in says, "what was seen at one epsilon is proven at none"
    assert float(re.search(r"fewer than about ([\d,]+)", says)[1].replace(",", "")) > 0


def test_points_and_counts_say_how_much_is_proven():
    proven = by_points((Limits(alpha=0.5, beta=0.5), Limits(alpha=0.1, beta=0.3)), CLAIM)
    assert proven.at_least == pytest.approx(1 - 0.3 - np.exp(proven.given) * 0.1)
    assert proven.says.endswith("(false alarms at most 0.1, misses at most 0.3).")


def test_counts_that_refute_a_claim_together_name_an_epsilon_and_its_delta():
    """'The claimed curve is refuted: at some epsilon, delta exceeds it' was nothing that anybody could repeat."""
    at = judge_jointly(counts(1500, 4600), CLAIM, risk=0.05, delta=1e-5).violated_at
    assert CLAIM.delta(at.given) <= at.claimed + 1e-12 < at.at_least < 1 - 0.46 - np.exp(at.given) * 0.15
    proven = f"delta at epsilon {at.given:.3g}: at least {at_least(at.at_least)}, claimed at most {at_most(at.claimed)}"
    assert at.says == f"{proven} (false alarms 1,500 of 10,000, misses 4,600 of 10,000)."


@pytest.mark.parametrize(("few", "risk"), [(counts(30, 110, 200), 0.01), (counts(1500, 4600), None)])
def test_counts_that_prove_no_delta_are_told_beside_those_that_the_claim_allows(few, risk):
    at = by_counts(few, CLAIM, risk=risk)
    assert at.at_least is None
    allowed = int(np.ceil(few.trials_with * float(CLAIM.beta(few.rates[0])) - 1e-6))
    assert at.says.startswith(f"{few.misses:,} misses in {few.trials_with:,} trials beside {few.false_alarms:,} false")
    assert at.says.endswith(f"where the claim allows no fewer than about {allowed:,} misses.")


def test_a_direction_of_which_less_is_claimed_is_named():
    """Poisson batches: outputs likelier without the record are bounded by -log(1 - rate) a step."""
    claim = guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0)
    points = (Limits(alpha=0.4, beta=0.01),), (Limits(alpha=0.01, beta=0.4),)
    less, more = (by_points(each, claim) for each in points)
    assert f" for outputs likelier without the record, {at_most(claim.delta(less.given))} for the others (" in less.says
    assert less.claimed == pytest.approx(claim.delta(less.given, "without_given_with"), abs=1e-4)
    assert "outputs likelier" not in more.says
    assert "outputs likelier" not in by_points(points[0], CLAIM).says


def test_round_off_is_no_claim():
    """'claimed at most 0 in outputs likelier without the record (1.11e-16 is claimed of the others)'."""
    pure = guarantees.epsilon_delta(epsilon=1.0, delta=0.0).compose(2)
    most = Allowance(epsilon=2.0, reached=0.1, claimed=0.0, direction="without_given_with")
    assert 0 < pure.delta(2.0) < 1e-15
    assert which_outputs(most, pure) == ""
    says = by_number("delta", 1.0, at_least=0.0135, claimed=3.78e-15).says
    assert says == "delta at epsilon 1: at least 0.0135, claimed at most 0 (but for round-off)."


@given(at_least=st.floats(1e-6, 50.0), below=st.floats(1e-9, 1.0))
def test_a_proven_number_is_never_rounded_up(at_least, below):
    claimed = at_least * (1 - below)
    says = by_number("epsilon", 1e-5, at_least=at_least, claimed=claimed).says
    told, allowed = (float(word.strip(",.")) for word in re.findall(r"(?:at least|at most) (\S+)", says))
    assert allowed < told <= at_least * (1 + 1e-11)
