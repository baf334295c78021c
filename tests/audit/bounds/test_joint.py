import numpy as np
import pytest
from checks import assert_rate_at_most
from scipy.stats import beta as beta_law
from scipy.stats import binom, norm

import guarantees
from audit.bounds import joint
from audit.bounds.clopper_pearson import ErrorCounts
from audit.bounds.joint import evidence, joint_p_value
from audit.bounds.supporting_lines import corners, tabulate
from guarantees.families import closed_form as families

CLAIMS = {
    "gaussian": families.gaussian(mu=1.0),
    "kinked": families.epsilon_delta(epsilon=1.0, delta=0.05),
    "subsampled": families.subsampled_gaussian(rate=0.05, noise_multiplier=10.0),
    "laplace": families.laplace(epsilon=1.0),
}


def counted(false_alarms, trials_without, misses, trials_with=None):
    return ErrorCounts(
        false_alarms=false_alarms,
        trials_without=trials_without,
        misses=misses,
        trials_with=trials_with or trials_without,
    )


def slow_p_value(counts, claim, gamma):
    """The definition, term by term, on a dense grid."""
    n0, n1 = counts.trials_without, counts.trials_with
    x = np.linspace(0, 1, 40001)[1:-1]
    y = np.clip(claim.beta(x), 1e-300, 1 - 1e-16)

    def statistic(a, m):
        p, q = a / n0, m / n1
        if q >= claim.beta(p):
            return 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            near = n0 * (np.nan_to_num(p * np.log(p / x)) + np.nan_to_num((1 - p) * np.log((1 - p) / (1 - x))))
            far = n1 * (np.nan_to_num(q * np.log(q / y)) + np.nan_to_num((1 - q) * np.log((1 - q) / (1 - y))))
        return float(np.min(near + far))

    table = np.array([[statistic(a, m) for m in range(n1 + 1)] for a in range(n0 + 1)])
    observed = table[counts.false_alarms, counts.misses]
    if observed <= 0:
        return 1.0
    inside = table >= observed * (1 - 1e-5)
    a = counts.false_alarms
    low = 0.0 if a == 0 else beta_law.ppf(gamma / 2, a, n0 - a + 1)
    high = 1.0 if a == n0 else beta_law.isf(gamma / 2, a + 1, n0 - a)
    null = np.linspace(low, high, 2001)
    mass0 = binom.pmf(np.arange(n0 + 1)[:, None], n0, null)
    mass1 = binom.pmf(np.arange(n1 + 1)[:, None], n1, claim.beta(null))
    return min(1.0, gamma + float(np.max(np.einsum("ax,am,mx->x", mass0, inside.astype(float), mass1))))


def refutation_limits(claim, trials, p_value, level):
    """Most misses that refute the claim, for each number of false alarms."""
    limit, found = trials, []
    for a in range(trials + 1):
        limit = min(limit + 1, trials)
        while limit >= 0 and p_value(counted(a, trials, limit), claim) > level:
            limit -= 1
        found.append(limit)
        if limit < 0:
            break
    return np.array(found + [-1] * (trials + 1 - len(found)))


def size(claim, trials, limits):
    alpha = np.linspace(0, 1, 5001)
    chance = [
        binom.pmf(a, trials, alpha) * binom.cdf(limit, trials, claim.beta(alpha))
        for a, limit in enumerate(limits)
        if limit >= 0
    ]
    return float(np.max(np.sum(chance, axis=0)))


@pytest.mark.parametrize("name", CLAIMS)
def test_lines_lie_below_the_claim_and_close_to_it(name):
    claim = CLAIMS[name]
    lines = tabulate(claim)
    alpha = np.concatenate([np.linspace(0, 1, 20001), np.logspace(-12, -2, 500), 1 - np.logspace(-12, -2, 500)])
    gap = claim.beta(alpha) - lines.below(alpha)
    assert gap.min() >= -1e-14
    assert gap.max() < 1e-5
    table = corners(lines)
    assert np.all(table.y <= claim.beta(table.x) + 1e-14)
    assert np.all(table.flat <= table.steep)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CLAIMS)
def test_p_value_equals_the_definition(name):
    claim = CLAIMS[name]
    for counts in (counted(1, 12, 3, 9), counted(0, 9, 4, 12), counted(6, 12, 0, 9), counted(2, 12, 6, 12)):
        ours, slow = joint_p_value(counts, claim), slow_p_value(counts, claim, 1e-3)
        assert ours == pytest.approx(slow, rel=2e-3), counts


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["kinked", "gaussian"])
def test_size_by_enumeration(name):
    limits = refutation_limits(CLAIMS[name], 20, joint_p_value, 0.05)
    assert 0.03 < size(CLAIMS[name], 20, limits) <= 0.05


@pytest.mark.long
@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("trials", [20, 50, 150])
def test_size_by_enumeration_of_every_claim(name, trials):
    limits = refutation_limits(CLAIMS[name], trials, joint_p_value, 0.05)
    assert 0.03 < size(CLAIMS[name], trials, limits) <= 0.05


def test_asymptotic_p_value_exceeds_its_size():
    """Negative control of the enumeration: reading T off a normal table is not exact."""
    claim = CLAIMS["gaussian"]
    lines = tabulate(claim)

    def asymptotic(counts, _):
        return float(norm.sf(np.sqrt(2 * evidence(counts, lines))))

    assert size(claim, 20, refutation_limits(claim, 20, asymptotic, 0.05)) > 0.05


def test_p_value_grows_with_errors():
    claim = CLAIMS["gaussian"]
    by_misses = [joint_p_value(counted(20, 100, m), claim) for m in range(30, 70, 5)]
    by_alarms = [joint_p_value(counted(a, 100, 45), claim) for a in range(5, 40, 5)]
    assert np.all(np.diff(by_misses) >= 0)
    assert np.all(np.diff(by_alarms) >= 0)


def test_limits_of_the_counts():
    claim = CLAIMS["gaussian"]
    assert joint_p_value(counted(100, 100, 0), claim) == 1.0
    assert joint_p_value(counted(50, 100, 50), claim) == 1.0
    assert joint_p_value(counted(0, 100, 0), claim) == pytest.approx(1e-3, abs=1e-6)
    assert joint_p_value(counted(0, 1000, 900), CLAIMS["kinked"]) < 0.01
    assert joint_p_value(counted(0, 1000, 990), CLAIMS["kinked"]) == 1.0
    assert joint_p_value(counted(0, 5, 0), families.gaussian(mu=30.0)) == 1.0


def test_counts_on_the_curve_have_no_warning_and_the_p_value_of_counts_there():
    """71 + 73 errors of 2 x 180 lie on the line of delta .2 at epsilon 0, but for rounding: about half of all do."""
    claim = families.epsilon_delta(epsilon=0.0, delta=0.2)
    assert 0 < evidence(counted(71, 180, 73), tabulate(claim)) < 1e-20
    assert 0.4 < joint_p_value(counted(71, 180, 73), claim) < 0.7


def test_many_trials_agree_with_the_normal_limit():
    claim = CLAIMS["gaussian"]
    trials = 4_000_000
    a = round(0.3 * trials)
    variance = 0.3 * 0.7 * claim_slope(claim, 0.3) ** 2 + claim.beta(0.3) * (1 - claim.beta(0.3))
    m = round(trials * float(claim.beta(0.3) - 1.645 * np.sqrt(variance / trials)))
    assert joint_p_value(counted(a, trials, m), claim) == pytest.approx(0.051, rel=0.05)


def claim_slope(claim, alpha):
    return float(np.exp(claim.llr_threshold(alpha)))


def test_gamma_is_a_floor_and_is_checked():
    counts = counted(0, 200, 0)
    assert joint_p_value(counts, CLAIMS["gaussian"], gamma=1e-6) < 1e-5
    with pytest.raises(ValueError, match="gamma"):
        joint_p_value(counts, CLAIMS["gaussian"], gamma=0.0)


@pytest.mark.long
def test_power_at_the_planned_trials():
    """Gaussian 1.1 against the claim 1: four in five at 2,214 trials per side, give or take a tenth."""
    rng = np.random.default_rng(8)
    alpha = 0.29
    beta = float(families.gaussian(mu=1.1).beta(alpha))
    trials, runs = 2435, 400
    missed = 0
    for _ in range(runs):
        counts = counted(int(rng.binomial(trials, alpha)), trials, int(rng.binomial(trials, beta)))
        missed += joint_p_value(counts, CLAIMS["gaussian"]) > 0.05
    assert_rate_at_most(missed, runs, 0.2)


def test_lines_of_a_promise_made_of_single_lines_are_its_curve():
    claim = guarantees.fixed_batch_upper(rounds=10, noise_multiplier=0.7)
    lines, alpha = tabulate(claim), np.logspace(-8, -0.01, 60)
    assert np.all(lines.below(alpha) <= claim.beta(alpha) + 1e-12)
    assert np.abs(lines.below(alpha) - claim.beta(alpha)).max() < 1e-4


def test_lines_are_made_once_for_a_curve():
    claim = families.gaussian(mu=0.5)
    assert tabulate(claim) is tabulate(claim)
    assert tabulate(claim) is not tabulate(families.gaussian(mu=0.5))


def test_the_search_for_the_nearest_point_errs_by_less_than_is_allowed_for_it(monkeypatch):
    """Most where a kink is the nearest point: too few steps overstated the evidence there by seven times as much."""
    lines = tabulate(guarantees.epsilon_delta(epsilon=8.0, delta=1e-9))
    alpha = np.append(np.zeros(50), np.geomspace(1e-9, 0.3, 950))
    beta = lines.below(alpha) * np.tile([0.0, 1e-6, 0.3, 0.8, 0.99], 200)
    found = joint.evidence_at_all(alpha, beta, lines, trials=(1000, 1000))
    monkeypatch.setattr(joint, "GOLDEN_STEPS", 95)
    longer = joint.evidence_at_all(alpha, beta, lines, trials=(1000, 1000))
    assert np.max(found / longer) < 1 + joint.SLACK
    few = [joint.evidence_at((alpha[i], beta[i]), lines, trials=(1000, 1000)) for i in range(0, 1000, 47)]
    np.testing.assert_allclose(few, longer[::47], rtol=joint.SLACK / 10)
