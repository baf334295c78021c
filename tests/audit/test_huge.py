"""Counts beyond 32 bits, from the first trial to the record on disk: nothing overflows and bounds stay right."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from mpmath import exp, log, loggamma, mp, mpf
from scipy.stats import norm

import audit
import distinguishers
import guarantees
import mechanisms
from audit.bounds.binomial import binomial_cdf
from audit.bounds.clopper_pearson import clopper_pearson_upper
from audit.goal import Goal
from audit.record.stored import from_json, load_records, save_records
from audit.trials import traced
from audit.trials.source import Source

PAIR = mechanisms.scalar_pair()
STEP = mechanisms.gaussian_mechanism(noise_multiplier=1.0)
CLAIM = guarantees.gaussian(mu=1.0)
PER_SIDE = 2**33 + 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn(Source):
    """Scores of the Gaussian pair, counted without being drawn one by one."""

    side: int
    chunk: int = 2**30

    def scores(self, start, stop):
        raise AssertionError("nothing is fitted")

    def cells(self, start, stop, edges):
        below = norm.cdf(edges[0].astype(float) + 0.5 - self.side)
        chances = np.diff(below, prepend=0.0, append=1.0)
        return np.random.default_rng([self.side, start]).multinomial(stop - start, chances)[None]


@dataclasses.dataclass(frozen=True)
class Scored:
    side: int

    def source(self, key):
        return Drawn(side=self.side)


class Elsewhere:
    """An executor that counts in no time."""

    device = "nowhere"

    def sides(self, mechanism, neighbours):
        return self

    def scored(self, distinguisher, **_):
        return Scored(0), Scored(1)


LONG = [(None, 4.3), (audit.Fixed(thresholds=(0.0, 4.25)), 4.2), (audit.Anytime(), 4.2)]


@pytest.mark.parametrize(
    ("policy", "least"),
    [(audit.FromTheory(targets=("epsilon",)), 4.3), *(pytest.param(*one, marks=pytest.mark.long) for one in LONG)],
)
def test_an_audit_of_more_than_2_to_the_33_trials_a_side(policy, least, tmp_path):
    record = audit.run_audit(
        STEP,
        PAIR,
        distinguishers.likelihood_ratio(STEP, PAIR),
        claim=CLAIM,
        trials=2 * PER_SIDE,
        risk=0.05,
        key=jax.random.key(0),
        policy=policy,
        execution=audit.Execution(executor=Elsewhere()),
    )
    assert (record.trials_per_side, record.verdict) == (PER_SIDE, "no_violation_found")
    for side in (record.grids[0].without, record.grids[0].with_record):
        assert sum(side) == PER_SIDE
    assert max(max(point.counts.misses, point.counts.false_alarms) for point in record.points) > 2**31
    assert least < record.epsilon(delta=1e-5) < CLAIM.epsilon(1e-5)
    save_records((record,), tmp_path / "records.json")
    assert load_records(tmp_path / "records.json") == (from_json(record.to_json()),)


def test_the_last_trial_numbers_are_drawn():
    ratio = distinguishers.likelihood_ratio(STEP, PAIR)
    source = traced.compile_program(STEP, PAIR.without, ratio, side="without", chunk=64).source(jax.random.key(1))
    edges = np.linspace(-2, 2, 9, dtype=np.float32)[None]
    for first in (2**31 - 50, 2**32 - 50, 2**62 - 100):
        scores = source.scores(first, first + 100)[:, 0]
        assert len(np.unique(scores)) == 100
        place = np.searchsorted(edges[0], scores, side="left")
        np.testing.assert_array_equal(source.cells(first, first + 100, edges)[0], np.bincount(place, minlength=10))


def test_more_trials_than_a_program_counts_at_once_are_added_up(monkeypatch):
    monkeypatch.setattr(traced, "MOST_AT_ONCE", 150)
    ratio = distinguishers.likelihood_ratio(STEP, PAIR)
    source = traced.compile_program(STEP, PAIR.without, ratio, side="without", chunk=64).source(jax.random.key(1))
    edges = np.linspace(-2, 2, 9, dtype=np.float32)[None]
    first = 2**32 - 400
    whole = source.cells(first, first + 1000, edges)
    place = np.searchsorted(edges[0], source.scores(first, first + 1000)[:, 0], side="left")
    np.testing.assert_array_equal(whole[0], np.bincount(place, minlength=10))


def summed(errors: int, trials: int, rate: float) -> float:
    """P(Bin(trials, rate) <= errors): one probability with 40 digits, and the ratios of its neighbours."""
    with mp.workdps(40):
        p = mpf(rate)
        choose = loggamma(trials + 1) - loggamma(errors + 1) - loggamma(trials - errors + 1)
        top = float(exp(choose + errors * log(p) + (trials - errors) * log(1 - p)))
        odds = float(log((1 - p) / p))
    terms = min(errors, int(40 * math.sqrt(trials * rate * (1 - rate))) + 200)
    below = np.arange(errors, errors - terms, -1, dtype=float)
    return top * (1 + np.exp(np.cumsum(np.log(below) - np.log(trials - below + 1) + odds)).sum())


@pytest.mark.parametrize("trials", [10**9, PER_SIDE, 10**12])
@pytest.mark.parametrize("share", [0, 5.6e-7, 1e-3])
@pytest.mark.parametrize("risk", [0.05, 1e-8])
def test_limits_from_a_billion_trials_are_right(trials, share, risk):
    errors = int(share * trials)
    if errors > 10**8:
        trials, errors = trials // 1000, errors // 1000
    limit = float(clopper_pearson_upper(errors, trials, risk=risk))
    assert summed(errors, trials, limit) == pytest.approx(risk, rel=1e-6)
    assert float(binomial_cdf(errors, trials, limit)) == pytest.approx(risk, rel=1e-6)


@pytest.mark.parametrize("trials", [10**9, 10**10])
def test_more_trials_prove_more_and_never_more_than_the_truth(trials):
    bounds = []
    for per_side in (trials // 10, trials):
        goal = Goal(claim=CLAIM, delta=1e-5, trials_per_side=per_side, risk=0.05)
        (cut, *_) = audit.FromTheory(targets=("epsilon",)).fix(CLAIM.curve, lambda _: None, goal).cuts
        rates = norm.cdf(cut.threshold + 0.5), norm.cdf(cut.threshold - 0.5)
        alarms, misses = (round(per_side * rate) for rate in (1 - rates[0], rates[1]))
        if cut.rejects == "below":
            alarms, misses = per_side - alarms, per_side - misses
        counts = audit.ErrorCounts(false_alarms=alarms, trials_without=per_side, misses=misses, trials_with=per_side)
        joint = audit.bounds.joint_epsilon_bound(counts, delta=1e-5, risk=0.05)
        assert audit.epsilon_lower_bound(counts, delta=1e-5, risk=0.05) < joint < CLAIM.epsilon(1e-5)
        bounds.append(joint)
    assert bounds[0] < bounds[1]
