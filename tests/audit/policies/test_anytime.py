import dataclasses
import json
import time

import jax
import numpy as np
import pytest
from checks import assert_rate_at_most
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.bounds.betting import anytime_upper, looks
from audit.bounds.bounded_numbers import EpsilonAt
from audit.bounds.clopper_pearson import ErrorCounts, clopper_pearson_upper
from audit.bounds.inversion import joint_bound
from audit.goal import Goal
from audit.policies.anytime import Anytime
from audit.record.stored import from_json
from audit.resume.checkpoint import checkpoint
from audit.risk import look_share
from audit.suites.read import parse_suite
from audit.suites.run import run_suite
from audit.trials.source import Source, empty_tally

KEY = jax.random.key(0)
CLAIM = guarantees.gaussian(mu=1.0)


def audit_shift(mu=3.0, trials=20_000, **options):
    settings = {"claim": CLAIM, "risk": 0.05, "key": KEY, "policy": audit.Anytime(), **options}
    return audit.run_audit(Shift(mu=mu), PAIR, First(), trials=trials, **settings)


@pytest.fixture(scope="module")
def broken():
    return audit_shift(mu=-3.0)


def test_a_gross_violation_ends_after_tens_of_trials_and_says_how_many(broken):
    assert broken.verdict == "violation"
    assert broken.trials < 400 < broken.trials_planned
    assert broken.fit_trials == 200
    assert broken.p_value <= 0.05
    assert "the audit stopped there" in broken.reason
    assert all(point.counts.trials_without == broken.trials_per_side for point in broken.points)


def test_bounds_of_a_stopped_audit_are_wider_than_fixed_sample_ones(broken):
    for point in broken.points:
        counts = point.counts
        fixed = clopper_pearson_upper(counts.false_alarms, counts.trials_without, risk=point.risk / 2)
        assert point.alpha_upper >= fixed
    assert sum(point.risk for point in broken.points) <= broken.risk * (1 + 1e-9)
    assert broken.mu < 3.0
    assert set(broken.band.alpha) == {point.alpha_upper for point in broken.points}


def test_the_record_survives_json(broken):
    assert from_json(json.loads(json.dumps(broken.to_json()))) == broken


def test_thresholds_come_from_theory_where_the_curve_is_known():
    record = audit.run_audit(
        Shift(mu=3.0), PAIR, First(curve=CLAIM.curve), claim=CLAIM, trials=20_000, risk=0.05, key=KEY, policy=Anytime()
    )
    assert (record.verdict, record.fit_trials, len(record.points)) == ("violation", 0, 12)
    assert record.trials < 400


@pytest.mark.long
def test_a_time_budget_may_end_it_and_the_answer_says_what_is_missing():
    record = audit_shift(mu=1.0, execution=audit.Execution(deadline=time.monotonic()))
    assert record.trials < record.trials_planned
    assert record.verdict == "inconclusive"
    assert "trials would be enough" in record.reason


SUITE = """
trials = 20_000
[[audit]]
name = "right"
policy = { kind = "anytime", thresholds = 6 }
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
neighbours = "scalar_pair"
claim = { kind = "gaussian", mu = 1.0 }
"""


@pytest.mark.long
def test_a_suite_resumes_after_an_interruption_as_if_there_had_been_none(tmp_path):
    suite = parse_suite(SUITE, "suite.toml")
    (whole,) = run_suite(suite)
    assert (whole.verdict, whole.trials) == ("no_violation_found", whole.trials_planned)

    def interrupt(spec, tally):
        if tally.trials_per_side > 1000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_suite(suite, resume_in=tmp_path, progress=interrupt)
    (resumed,) = run_suite(suite, resume_in=tmp_path)
    assert (resumed.points, resumed.p_value) == (whole.points, whole.p_value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn(Source):
    """A side whose scores were drawn beforehand."""

    drawn: np.ndarray
    chunk: int = 1

    def scores(self, start, stop):
        return self.drawn[start:stop]

    def cells(self, start, stop, edges):
        cell = np.searchsorted(edges[0], self.drawn[start:stop, 0], side="left")
        return np.bincount(cell, minlength=edges.shape[1] + 1)[None]


def count(mu, *, risk=0.05, seed=0, trials=4000, chunk=1, **options):
    """The anytime count of N(0, 1) against N(mu, 1) under the claim mu = 1, thresholds from theory."""
    generator = np.random.default_rng(seed)
    without = generator.normal(size=(trials, 1)).astype(np.float32)
    with_record = (mu + generator.normal(size=(trials, 1))).astype(np.float32)
    goal = Goal(claim=CLAIM, delta=1e-5, trials_per_side=trials, risk=risk)
    sides = Drawn(drawn=without, chunk=chunk), Drawn(drawn=with_record, chunk=chunk)
    return Anytime().count(sides, from_theory(goal), goal, **options)


def from_theory(goal):
    """Thresholds from theory, on a grid of nothing else."""
    test = Anytime().fix(CLAIM.curve, lambda _: None, goal)
    edges = np.unique(np.array([cut.threshold for cut in test.cuts], np.float32))
    return dataclasses.replace(test, edges=edges[None])


def test_neither_chunks_nor_interruptions_change_the_outcome(tmp_path):
    seen = []
    whole = count(1.4, report=seen.append)
    assert 20 < whole.trials_per_side < 4000
    place = checkpoint(tmp_path, "this audit")
    for chunk in (7, 1000):
        assert count(1.4, chunk=chunk).state["peak"] == whole.state["peak"]
    for at in (0, len(seen) // 2, -1):
        place.keep(seen[at])
        again = count(1.4, start=place.started())
        assert (again.trials_per_side, again.state) == (whole.trials_per_side, whole.state)


def test_a_fixed_sample_count_cannot_be_continued_as_an_anytime_one():
    fixed = empty_tally(np.zeros((1, 10), np.float32))
    with pytest.raises(ValueError, match="resumes only from progress that it reported itself"):
        count(1.0, start=fixed)


@pytest.mark.long
def test_a_right_mechanism_is_stopped_no_more_often_than_the_risk():
    stopped = sum(count(1.0, risk=0.2, seed=seed, trials=500).trials_per_side < 500 for seed in range(200))
    assert_rate_at_most(stopped, 200, 0.2)


@pytest.mark.long
def test_a_slightly_wrong_one_is_stopped_more_often_than_the_risk():
    stopped = sum(count(1.4, risk=0.2, seed=seed, trials=500).trials_per_side < 500 for seed in range(200))
    with pytest.raises(AssertionError):
        assert_rate_at_most(stopped, 200, 0.2)


def first_exits(upper, *, rate, trials, runs, seed):
    """How many runs ever have the true rate above the limit, looking after every trial."""
    generator = np.random.default_rng(seed)
    errors = np.cumsum(generator.random((runs, trials)) < rate, axis=1)
    limits = upper(errors, np.arange(1, trials + 1))
    return int(np.sum(np.any(limits < rate, axis=1)))


@pytest.mark.few(1)
@pytest.mark.parametrize("rate", [0.02, 0.4])
def test_the_limit_holds_at_every_look_at_once(rate):
    exits = first_exits(lambda k, n: anytime_upper(k, n, risk=0.05), rate=rate, trials=1000, runs=200, seed=1)
    assert_rate_at_most(exits, 200, 0.05)


def test_a_fixed_sample_limit_looked_at_repeatedly_does_not_hold():
    exits = first_exits(
        lambda k, n: clopper_pearson_upper(k, np.broadcast_to(n, k.shape), risk=0.05),
        rate=0.4,
        trials=1000,
        runs=400,
        seed=1,
    )
    with pytest.raises(AssertionError):
        assert_rate_at_most(exits, 400, 0.05)


def test_the_limit_at_its_ends():
    assert anytime_upper(10, 10, risk=0.05) == 1.0
    none = float(anytime_upper(0, 1000, risk=0.05))
    # B(1/2, n + 1/2) / B(1/2, 1/2) (1 - p)^-n = 1 / risk, solved by hand
    assert none == pytest.approx(0.0069975, rel=1e-4)
    with pytest.raises(ValueError, match="risk must be"):
        anytime_upper(1, 10, risk=0.0)


def test_looks_share_the_risk_and_half_of_it_is_for_the_last_planned_one():
    planned = looks(1000)
    assert planned[-1] == 1000
    parts = [look_share(n, planned) for n in planned]
    assert parts[-1] == 0.5
    assert sum(parts) < 1


def ever_wrong(share_at, *, runs, trials=300, risk=0.4, passed_on=0.0):
    """Runs in which epsilon at some look exceeds the truth, at thresholds good for the last one and for early ones.

    ``passed_on`` is what a verdict that has refuted its claim adds to the risk: here at every look.
    """
    generator, planned, wrong = np.random.default_rng(3), looks(trials), 0
    alpha, delta = 0.15, 0.1
    beta = float(CLAIM.beta(alpha))
    truth = float(EpsilonAt(delta=delta).through(alpha, beta))
    for _ in range(runs):
        alarms = np.cumsum(generator.random(trials) < alpha)
        misses = np.cumsum(generator.random(trials) < beta)
        wrong += any(
            joint_bound(
                ErrorCounts(
                    false_alarms=int(alarms[n - 1]), trials_without=n, misses=int(misses[n - 1]), trials_with=n
                ),
                EpsilonAt(delta=delta),
                risk=risk * share_at(n, planned),
                passed_on=passed_on * share_at(n, planned),
            )
            > truth
            for n in planned[8:]
        )
    return wrong


@pytest.mark.long
def test_numbers_hold_at_every_look_at_once():
    assert_rate_at_most(ever_wrong(look_share, runs=25), 25, 0.4)


@pytest.mark.long
def test_numbers_hold_at_every_look_at_once_over_2000_runs():
    assert_rate_at_most(ever_wrong(look_share, runs=2000), 2000, 0.4)


@pytest.mark.long
def test_numbers_with_what_a_verdict_passed_on_hold_at_every_look_at_once():
    """Under a broken claim the verdict's share is not lost, whenever it refuted: epsilon keeps the sum of both."""
    assert_rate_at_most(ever_wrong(look_share, runs=200, risk=0.15, passed_on=0.25), 200, 0.4)


@pytest.mark.long
def test_the_whole_risk_at_every_look_does_not_hold():
    """Negative control."""
    with pytest.raises(AssertionError):
        assert_rate_at_most(ever_wrong(lambda *_: 1.0, runs=300), 300, 0.4)


def test_verdict_and_numbers_share_the_risk(broken):
    assert sum(broken.shares.values()) == pytest.approx(broken.risk)
    assert [number.name for number in broken.numbers] == ["epsilon", "delta"]
    assert broken.verdict == "violation"
    epsilon, delta = (number.risk for number in broken.numbers)
    assert delta < broken.shares["delta"]
    # A look's part of both shares: the verdict's was not lost, so it is passed on.
    assert epsilon / delta == pytest.approx(
        (broken.shares["epsilon"] + broken.shares["verdict"]) / broken.shares["delta"]
    )
    assert broken.epsilon(1e-5) >= broken.numbers[0].at_least
