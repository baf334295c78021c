"""Validity: thousands of whole audits of mechanisms that keep their promise exactly."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import assert_rate_at_most

import distinguishers
import guarantees
import mechanisms
from audit import Fixed, FromTheory, Split
from audit.bounds.points import rectangles, refutes
from audit.goal import Goal
from audit.policies.policy import Cut, error_counts
from audit.policies.rectangles import first_band
from audit.trials import source, traced
from distinguishers.contract import OneScore

RISK = 0.05
TRIALS_PER_SIDE = 500
FIT_PER_SIDE = 100
POLICIES = {
    "fixed": Fixed(thresholds=(0.0, 0.05)),
    "from_theory": FromTheory(),
    "split": Split(fit_trials=2 * FIT_PER_SIDE),
    "band": FromTheory(),
}


def sgm():
    """One round of SGM, and the exact curve of this very pair: the claim is met with equality."""
    pair = mechanisms.worst_case_pair(records=2, dimension=3, clip=1.0, shared=0.0)
    step = mechanisms.one_round(normalise_by="none", rate=0.5, clip=1.0, noise_multiplier=1.0)
    score = distinguishers.likelihood_ratio(step, pair)
    return step, pair, score, guarantees.subsampled_gaussian(rate=0.5, noise_multiplier=1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Clipped(OneScore):
    """The log-likelihood ratio of Laplace noise about 0 or 1; its atoms are spread by the key, away from zero."""

    curve: object

    def __call__(self, key, output):
        score = jnp.clip(2 * output[0] - 1, -1.0, 1.0)
        return score * (1 + 2.0**-13 * jax.random.uniform(key, minval=2.0**-9))


def laplace():
    claim = guarantees.laplace(epsilon=1.0)

    def step(key, data):
        return data.sum(axis=0) + jax.random.laplace(key, (1,))

    return mechanisms.mechanism(step), mechanisms.scalar_pair(sensitivity=1.0), Clipped(claim.curve), claim


MECHANISMS = {"sgm": sgm, "laplace": laplace}


@functools.cache
def pools(name: str, audits: int):
    """Scores of the real mechanism on both sides, enough for many audits of fit and judged trials."""
    step, pair, distinguisher, claim = MECHANISMS[name]()
    count = audits * (TRIALS_PER_SIDE + FIT_PER_SIDE)
    sides = []
    for side, dataset, seed in (("without", pair.without, 1), ("with", pair.with_record, 2)):
        program = traced.compile_program(step, dataset, distinguisher, side=side)
        sides.append(program.source(jax.random.key(seed)).scores(0, count).reshape(audits, -1, 1))
    return claim, distinguisher.curve, *sides


def judged(name: str, policy_name: str, audits: int):
    """For every audit: the limits, the true rates of its tests, and whether the claim is called violated."""
    claim, curve, zeros, ones = pools(name, audits)
    goal = Goal(claim=claim, delta=1e-3, trials_per_side=TRIALS_PER_SIDE, risk=RISK)
    policy, band = POLICIES[policy_name], policy_name == "band"
    theory = None if policy.kind == "split" else policy.fix(curve, lambda _: None, goal)
    alpha_wrong = beta_wrong = violations = limits_seen = 0
    for zero, one in zip(zeros, ones, strict=True):
        test = theory or policy.fix(curve, lambda _, z=zero, o=one: (z[:FIT_PER_SIDE], o[:FIT_PER_SIDE]), goal)
        tally = source.Tally(
            without=_cells(zero[FIT_PER_SIDE:, 0], test.edges[0]),
            with_record=_cells(one[FIT_PER_SIDE:, 0], test.edges[0]),
            trials_per_side=TRIALS_PER_SIDE,
        )
        risks = np.array([cut.risk for cut in test.cuts])
        found = first_band(tally, test, risk=RISK) if band else rectangles(error_counts(tally, test), risks)
        cuts = test.cuts
        if band:
            cuts = [Cut(target="", member=0, threshold=float(t), rejects="above", risk=0.0) for t in test.edges[0]]
        rates = _true_rates(curve, cuts)
        wrong_alpha = [point.alpha < alpha for point, (alpha, _) in zip(found, rates, strict=True)]
        wrong_beta = [point.beta < beta for point, (_, beta) in zip(found, rates, strict=True)]
        # a band is one statement a side: it is wrong when any of its limits is
        count = any if band else sum
        alpha_wrong += count(wrong_alpha)
        beta_wrong += count(wrong_beta)
        limits_seen += 1 if band else len(found)
        violations += refutes(found, claim)
    return alpha_wrong, beta_wrong, limits_seen, violations


def _cells(scores, edges):
    cells = np.searchsorted(edges, scores, side="left")
    return np.bincount(cells, minlength=len(edges) + 1)[None]


def _true_rates(curve, cuts):
    """Exact rates; NaN (never counted as wrong) at an atom, where ties are broken at random."""
    thresholds = np.array([cut.threshold for cut in cuts])
    alpha, beta = curve.errors(thresholds)
    near = np.stack([curve.errors(thresholds + shift) for shift in (-1e-3, 1e-3)])
    atom = np.abs(near[0] - near[1]).max(axis=0) > 0.01
    alpha, beta = np.where(atom, np.nan, alpha), np.where(atom, np.nan, beta)
    below = np.array([cut.rejects == "below" for cut in cuts])
    return list(zip(np.where(below, 1 - alpha, alpha), np.where(below, 1 - beta, beta), strict=True))


def check(name: str, policy_name: str, audits: int) -> None:
    alpha_wrong, beta_wrong, limits_seen, violations = judged(name, policy_name, audits)
    assert_rate_at_most(violations, audits, RISK)
    share = RISK / 2 / (limits_seen / audits)
    assert_rate_at_most(alpha_wrong, limits_seen, share)
    assert_rate_at_most(beta_wrong, limits_seen, share)


@pytest.mark.few(1)
@pytest.mark.parametrize("policy_name", POLICIES)
@pytest.mark.parametrize("name", MECHANISMS)
def test_false_violations_stay_within_the_risk(name, policy_name):
    check(name, policy_name, audits=100)


@pytest.mark.long
@pytest.mark.parametrize("policy_name", POLICIES)
@pytest.mark.parametrize("name", MECHANISMS)
def test_false_violations_stay_within_the_risk_over_two_thousand_audits(name, policy_name):
    check(name, policy_name, audits=2000)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_plug_in_bound_is_caught_by_the_same_check(name):
    """Negative control: rates instead of limits, at the threshold that looks best on the judged data."""
    claim, _, zeros, ones = pools(name, 100)
    wrong = 0
    for zero, one in zip(zeros[..., 0], ones[..., 0], strict=True):
        cuts = np.quantile(np.concatenate([zero, one]), np.linspace(0.02, 0.98, 49))
        alpha = (zero[:, None] > cuts).mean(axis=0)
        beta = (one[:, None] <= cuts).mean(axis=0)
        wrong += bool((claim.beta(alpha) - beta > claim.error).any())
    with pytest.raises(AssertionError):
        assert_rate_at_most(wrong, 100, RISK)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_threshold_chosen_on_the_judged_data_is_caught(name):
    """Negative control: Clopper-Pearson limits, but at whichever of many thresholds refutes the claim, unpaid."""
    claim, _, zeros, ones = pools(name, 100)
    n = zeros.shape[1]
    cuts = np.quantile(zeros[:50].ravel(), np.linspace(0.01, 0.99, 99))
    above, below = (zeros > cuts).sum(axis=1), (ones <= cuts).sum(axis=1)
    from audit.bounds.clopper_pearson import clopper_pearson_upper

    # a risk at which one test errs about as often as stated, so that choosing among 99 must show
    alpha = clopper_pearson_upper(above, n, risk=0.4)
    beta = clopper_pearson_upper(below, n, risk=0.4)
    refuted = (claim.beta(alpha) > beta).any(axis=1).sum()
    with pytest.raises(AssertionError):
        assert_rate_at_most(int(refuted), 200, 0.16)
