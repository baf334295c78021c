import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import PAIR, First, Shift

import audit
import distinguishers
import guarantees
import mechanisms
from audit import Fixed, FromTheory, Split
from audit.record.stored import load_records, save_records
from audit.report.story import remedy
from audit.report.text import record_lines

KEY = jax.random.key(0)
EASGM = {"normalise_by": "expected_batch", "rate": 0.05, "clip": 0.1, "noise_multiplier": 10.0}
CLAIM = guarantees.subsampled_gaussian(rate=0.05, noise_multiplier=10.0)


def audit_shift(mu=2.0, claimed=1.0, trials=2000, **options):
    settings = {"claim": guarantees.gaussian(mu=claimed), "risk": 0.05, "key": KEY, "diagnose": False, **options}
    return audit.run_audit(Shift(mu=mu), PAIR, First(), trials=trials, **settings)


@pytest.mark.long
def test_the_ten_lines_of_the_readme():
    pair = mechanisms.worst_case_pair(records=4, dimension=100, clip=0.1)
    step = mechanisms.one_round(normalise_by="expected_batch", rate=0.05, clip=0.1, noise_multiplier=10.0)
    record = audit.run_audit(
        step,
        pair,
        distinguishers.likelihood_ratio(step, pair),
        claim=guarantees.subsampled_gaussian(rate=0.05, noise_multiplier=10.0),
        trials=10_000,
        risk=0.05,
        key=jax.random.key(0),
    )
    assert record.verdict == "violation"
    assert record.epsilon(delta=1e-5) > 5.3
    assert record.delta(epsilon=0.0) > 0.86
    assert record.mu > 2.5


@pytest.mark.long
@pytest.mark.parametrize(
    ("policy", "target", "least_delta", "least_epsilon"),
    [(None, "delta", 0.86, 2.6), (None, "epsilon", 0.0, 5.3), (Fixed(thresholds=(0.0,)), None, 0.86, 2.6)],
)
def test_what_ten_thousand_trials_prove_about_easgm(policy, target, least_delta, least_epsilon):
    pair = mechanisms.worst_case_pair(records=4, dimension=100, clip=0.1)
    step = mechanisms.one_round(**EASGM)
    record = audit.run_audit(
        step,
        pair,
        distinguishers.likelihood_ratio(step, pair),
        claim=CLAIM,
        trials=10_000,
        risk=0.05,
        key=KEY,
        policy=policy,
        target=target,
    )
    assert record.delta(0.0) >= least_delta
    assert record.epsilon(1e-5) >= least_epsilon
    assert record.delta(0.0) < 0.8843
    assert record.epsilon(1e-5) < 25.35


@pytest.mark.long
def test_algorithm_1_with_the_chi_square_test_proves_most_of_the_advantage():
    pair = mechanisms.worst_case_pair(records=4, dimension=100, clip=0.1)
    step = mechanisms.one_round(**EASGM)
    record = audit.run_audit(
        step,
        pair,
        distinguishers.normality_test(step, pair, test="chi_square"),
        claim=CLAIM,
        trials=10_000,
        risk=0.05,
        key=KEY,
        target="delta",
    )
    assert record.delta(0.0) >= 0.79


def test_the_battery_is_the_default_and_finds_easgm():
    pair = mechanisms.worst_case_pair(records=4, dimension=100, clip=0.1)
    step, given = mechanisms.one_round(**EASGM), {"trials": 4000, "risk": 0.05, "key": KEY, "diagnose": False}
    record = audit.run_audit(step, pair, claim=CLAIM, **given)
    assert record.verdict == "violation"
    assert len(record.grids) > 1


def test_a_plain_function_can_be_audited():
    def one_step(key, dataset):
        return 3.0 * dataset + jax.random.normal(key, dataset.shape)

    record = audit.run_audit(
        one_step, PAIR, First(), claim=guarantees.gaussian(mu=1.0), trials=2000, risk=0.05, key=KEY, diagnose=False
    )
    assert record.verdict == "violation"
    assert record.mechanism.name == "one_step"


@pytest.mark.few(1)
@pytest.mark.parametrize("policy", [Fixed(thresholds=(1.0,)), Split(fit_trials=400)])
def test_every_policy_tells_a_broken_promise_from_a_kept_one(policy):
    assert audit_shift(mu=2.0, policy=policy).verdict == "violation"
    assert audit_shift(mu=1.0, policy=policy, trials=6000).verdict == "no_violation_found"


@pytest.mark.long
def test_the_risk_spent_is_in_the_record():
    for policy in (Fixed(thresholds=(1.0, 0.5)), Split(fit_trials=400)):
        record = audit_shift(policy=policy)
        assert sum(point.risk for point in record.points) <= record.risk * (1 + 1e-9)
    assert audit_shift(policy=Split(fit_trials=400)).fit_trials == 400
    one = audit_shift(policy=Split(fit_trials=400), target="epsilon")
    assert one.shares == pytest.approx({"epsilon": 0.049, "rest": 0.001})
    assert one.numbers[0].risk == one.shares["epsilon"]


@pytest.mark.long
def test_a_reversed_score_is_found_on_the_split():
    record = audit_shift(mu=-2.0)
    assert record.verdict == "violation"
    assert any(point.rejects == "below" for point in record.points)


def test_the_record_does_not_depend_on_chunks_or_interruptions():
    seen = []
    whole = audit_shift(execution=audit.Execution(chunk=100, progress=seen.append))
    assert audit_shift(execution=audit.Execution(chunk=333)).points == whole.points
    assert audit_shift(execution=audit.Execution(chunk=100, resume=seen[0])).points == whole.points


@pytest.mark.long
@pytest.mark.parametrize("policy", [None, Fixed(thresholds=(50.0,)), audit.Anytime()])
def test_scores_that_are_all_the_same_are_inconclusive(policy):
    """It was 'no violation found', with a leak that would have been found in 8 of 10 runs."""
    record = audit.run_audit(
        Shift(mu=9.0),
        PAIR,
        lambda output: 0.0 * output[0],
        claim=guarantees.gaussian(mu=1.0),
        trials=2000,
        risk=0.05,
        key=KEY,
        policy=policy,
    )
    assert record.verdict == "inconclusive"
    assert record.reason.startswith("all scores, without and with the record, are the same")
    assert (record.detectable_epsilon, record.trials_needed) == (None, None)
    assert "More trials would not help" in remedy(record)


def test_too_few_trials_are_inconclusive_and_say_how_many_would_do():
    record = audit_shift(mu=1.0, trials=20)
    assert record.verdict == "inconclusive"
    assert record.trials_needed is not None
    assert f"{record.trials_needed:,} trials would be enough" in record.reason
    enough = audit_shift(mu=1.0, trials=record.trials_needed)
    assert enough.verdict == "no_violation_found"
    assert enough.detectable_advantage_excess <= 0.1 or enough.detectable_epsilon <= 1.5 * enough.claim.epsilon


def test_a_claim_no_data_can_refute_is_inconclusive():
    record = audit_shift(mu=1.0, claimed=20.0, trials=200)
    assert record.verdict == "inconclusive"
    assert "no counts of this size could refute the claim" in record.reason


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trials": 1001}, "trials must be even"),
        ({"trials": 0}, "trials must be an integer >= 2"),
        ({"risk": 0.0}, "risk must be in"),
        ({"delta": 1.0}, "delta must be in"),
        ({"key": 0}, r"key must be made with jax.random.key\(seed\), got 0"),
        ({"policy": FromTheory()}, "needs a distinguisher whose exact curve is known"),
        ({"policy": Fixed(thresholds=(0.0,)), "target": "delta"}, "drop one"),
        ({"target": "gamma"}, "target must be one of"),
        (
            {"claim": guarantees.gaussian(mu=1.0, relation="add_remove")},
            "claim is for add_remove neighbours but the pair differs by zero_out",
        ),
    ],
)
def test_bad_arguments_get_a_message(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        audit_shift(**change)


def test_an_output_kind_that_the_distinguisher_does_not_take_is_refused():
    pair = mechanisms.worst_case_pair(records=4, dimension=100, clip=0.1)
    step = mechanisms.one_round(**EASGM).collapsed()
    with pytest.raises(ValueError, match=r"reads vector outputs but the mechanism .* gives collapsed ones"):
        audit.run_audit(step, pair, First(), claim=CLAIM, trials=100, risk=0.05, key=KEY)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mechanisms.one_round(**{**EASGM, "noise_multiplier": 0.0}), "noise_multiplier must be"),
        (lambda: mechanisms.one_round(**{**EASGM, "rate": 1.5}), "rate must be"),
        (lambda: mechanisms.one_round(**{**EASGM, "clip": 0.0}), "clip must be"),
        (lambda: mechanisms.worst_case_pair(records=0, dimension=3, clip=1.0), "records must be"),
        (
            lambda: mechanisms.neighbours_from_gradients(jnp.array([[1.0, jnp.nan]]), jnp.ones(2)),
            "(?i)finite|nan",
        ),
        (
            lambda: mechanisms.neighbours_from_gradients(jnp.ones((2, 3)), jnp.ones(2)),
            "extra must have the 3 coordinates",
        ),
    ],
)
def test_bad_mechanisms_and_datasets_get_a_message(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_mechanism_that_raises_is_named():
    def broken(key, dataset):
        raise RuntimeError("no such layer")

    with pytest.raises(audit.MechanismError, match=r"broken.*without.*no such layer"):
        audit.run_audit(broken, PAIR, First(), claim=guarantees.gaussian(mu=1.0), trials=100, risk=0.05, key=KEY)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BothSigns(First):
    """Two members of one name: the first coordinate, and its negative."""

    @property
    def members(self):
        return First(), First()

    def __call__(self, key, output):
        return jnp.stack([output[0], -output[0]])


@pytest.mark.long
def test_an_exact_epsilon_that_nobody_knows_is_left_out():
    pair = mechanisms.worst_case_pair(records=1, dimension=1, clip=1.0, shared=1.0)
    step = mechanisms.one_round(normalise_by="expected_batch", rate=0.5, clip=1.0, noise_multiplier=0.01)
    ratio, claim = distinguishers.likelihood_ratio(step, pair), guarantees.gaussian(mu=1.0)
    record = audit.run_audit(step, pair, ratio, claim=claim, trials=200, risk=0.05, key=KEY, diagnose=False)
    assert (record.verdict, record.exact_epsilon) == ("violation", None)
    assert record.theory is not None


@pytest.mark.long
def test_members_of_one_name_are_told_apart(tmp_path):
    record = audit.run_audit(
        Shift(mu=4.0), PAIR, BothSigns(), claim=guarantees.gaussian(mu=9.0), trials=100, risk=0.2, key=KEY
    )
    assert [grid.member for grid in record.grids] == ["first", "first 2"]
    save_records((record,), tmp_path / "records.json")
    assert load_records(tmp_path / "records.json")[0].grids == record.grids


def test_the_record_says_how_long_the_gradient_is(tmp_path):
    def release(seed, data):
        return data.sum(0) + np.random.default_rng(seed).standard_normal(2)

    data = np.array([[0.0, 1.0], [0.6, 0.0]], np.float32)
    pair = mechanisms.add_record(data, np.array([0.5, 0.0], np.float32))
    step = mechanisms.callable_step(release, clip=1.0, gradients=lambda rows: rows)
    record = audit.run_audit(
        step, pair, First(), claim=guarantees.gaussian(mu=1.0), trials=200, risk=0.05, key=KEY, diagnose=False
    )
    assert record.gradient_lengths is not None
    assert record.gradient_lengths.describe() == "gradient of length 0.5, others 0.6 to 1 (median 0.6), bound 1"
    audit.save_records([record], tmp_path / "records.json")
    assert audit.load_records(tmp_path / "records.json")[0].gradient_lengths == record.gradient_lengths
    assert any(line.startswith("  record:  gradient of length 0.5") for line in record_lines(record))
