import dataclasses
import itertools
import json
import math
import re

import numpy as np
import pytest
from checks import assert_rate_at_most
from scipy.special import expit
from scipy.stats import binom, norm

import audit
import guarantees
from audit.bounds.bounds_from_guesses import epsilon_from_guesses
from audit.bounds.counted_guesses import Guesses
from audit.cli import main
from audit.one_run import judgement
from audit.one_run.judgement import _power
from audit.one_run.procedure import guesses_of_claim

JAX_PRIVACY = {1: (1.13346, 2.164749), 2: (2.311945, 4.7218075), 4: (4.395568, 9.133752)}
"""Its one-run bounds on these scores at risk .05 and delta 1e-6: epsilon, and epsilon if the training is Gaussian."""


def quantiles(shift, side=10_000):
    """Scores at the quantiles of N(shift, 1), included, and of N(0, 1), left out."""
    grid = norm.ppf((np.arange(side) + 0.5) / side)
    return np.concatenate([grid + shift, grid]), np.repeat([1, 0], side)


def agreement_law(coins, correct, *, epsilon, delta):
    """How many of all coins are told rightly by the training that meets the worst tail at ``correct``."""
    mass = binom.pmf(np.arange(coins + 1), coins, expit(epsilon))
    above = np.where(np.arange(coins + 1) >= correct, mass, 0) / mass[correct:].sum()
    share = min(1.0, coins * delta * mass[correct:].sum() / (correct * mass[correct]))
    return (1 - share) * mass + share * above


def dependent_training(rng, law, included):
    """Tells every coin, wrongly in places drawn together; how high a score is depends on all answers."""
    coins = len(included)
    wrong = rng.permutation(coins) >= rng.choice(coins + 1, p=law)
    told = included ^ wrong
    place = np.roll(np.arange(coins), int(told.sum()))
    return np.where(told, 1.0, -1.0) * (1 + place)


@pytest.mark.few(2)
@pytest.mark.parametrize("shift", [1, 2, 4])
def test_more_is_proven_than_by_jax_privacy_without_assumptions_and_about_gaussians(shift):
    found = audit.one_run(*quantiles(shift), risk=0.05, delta=1e-6)
    epsilon, if_gaussian = JAX_PRIVACY[shift]
    assert found.epsilon(1e-6) > epsilon + 1
    refuted = audit.one_run(*quantiles(shift), risk=0.05, claim=guarantees.gaussian(mu=shift)).mu
    assert 0 < found.mu < refuted
    assert refuted < shift
    assert guarantees.gaussian(mu=refuted).epsilon(1e-6) > if_gaussian


def test_no_right_guesses_prove_more_than_their_number_allows():
    scores = np.arange(20_000.0)
    found = audit.one_run(scores, scores >= 10_000, risk=0.05, guesses=[(10_000, 10_000)])
    assert found.epsilon(1e-6) == pytest.approx(8.81, abs=0.01)


def test_tensors_are_scores_too():
    torch = pytest.importorskip("torch")
    scores, coins = quantiles(2.0, side=50)
    told = audit.one_run(torch.tensor(scores), torch.tensor(coins), risk=0.05)
    assert told.epsilon(1e-6) == audit.one_run(scores, coins, risk=0.05).epsilon(1e-6) > 0


def reveals_all(rng, coins, *, epsilon, delta):
    """(epsilon, delta)-DP: shows every coin with probability delta, else answers each by randomised response."""
    if rng.random() < delta:
        return coins + rng.random(len(coins))
    return (coins ^ (rng.random(len(coins)) > expit(epsilon))) + rng.random(len(coins))


def reveals_most(rng, coins, *, epsilon, delta):
    """The worst (epsilon, delta)-DP training at three deviations above what randomised response gets right."""
    m, chance = len(coins), expit(epsilon)
    law = agreement_law(m, int(m * chance + 3 * math.sqrt(m * chance * (1 - chance))), epsilon=epsilon, delta=delta)
    return dependent_training(rng, law, coins)


NULLS = [
    (reveals_all, 2_600, 0.0, 0.1, 0.1),
    (reveals_all, 10_000, 0.5, 0.06, 0.5),
    (reveals_all, 4_000, 1.0, 1e-3, 1.0),
    (reveals_most, 3_000, 1.0, 0.02, 1.0),
]
"""Training, canaries, its epsilon and delta, and the claimed epsilon at that delta: canaries times delta is above 1."""


def accused(training, canaries, epsilon, delta, claimed, *, runs, seed):
    """How often a training that keeps the claim is called a violation, and how often its epsilon is exceeded."""
    rng = np.random.default_rng(seed)
    claim = guarantees.epsilon_delta(epsilon=claimed, delta=delta)
    violations = exceeded = 0
    for _ in range(runs):
        coins = rng.random(canaries) < 0.5
        found = audit.one_run(training(rng, coins, epsilon=epsilon, delta=delta), coins, risk=0.05, claim=claim)
        violations += found.verdict == "violation"
        exceeded += found.epsilon(delta) > epsilon
    return violations, exceeded


@pytest.mark.few(2)
@pytest.mark.parametrize("canaries", [1_000, 2_600, 20_000])
def test_a_training_that_reveals_all_as_often_as_delta_allows_is_not_accused(canaries):
    coins = np.random.default_rng(24).random(canaries) < 0.5
    claim = guarantees.epsilon_delta(epsilon=0.1, delta=0.051)
    found = audit.one_run(coins + 0.0, coins, risk=0.05, claim=claim)
    assert found.verdict != "violation"
    assert found.epsilon(0.051) == 0.0
    assert audit.one_run(coins + 0.0, coins, risk=0.05).epsilon(1e-6) > 3, "revealed every time it is a leak"


@pytest.fixture
def no_advice(monkeypatch):
    """Verdicts without the number of canaries that would be enough, which takes most of the time of a small run."""
    monkeypatch.setattr(judgement, "_enough", lambda *_: "")


@pytest.mark.usefixtures("no_advice")
def test_null_runs_with_canaries_times_delta_above_one_keep_the_risk():
    violations, exceeded = accused(reveals_all, 1_500, 0.0, 0.1, 0.1, runs=60, seed=25)
    assert_rate_at_most(violations, 60, 0.05)
    assert_rate_at_most(exceeded, 60, 0.05)


@pytest.mark.long
@pytest.mark.usefixtures("no_advice")
@pytest.mark.parametrize(("training", "canaries", "epsilon", "delta", "claimed"), NULLS)
def test_four_hundred_null_runs_keep_the_risk(training, canaries, epsilon, delta, claimed):
    violations, exceeded = accused(training, canaries, epsilon, delta, claimed, runs=400, seed=26)
    print(f"{training.__name__} m {canaries} epsilon {epsilon} delta {delta} claim {claimed}:", end=" ")
    print(f"{violations} violations, {exceeded} bounds above the truth, of 400 at risk .05")
    assert_rate_at_most(violations, 400, 0.05)
    assert_rate_at_most(exceeded, 400, 0.05)


@pytest.mark.few(1)
@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_bounds_keep_their_risk_and_the_best_of_several_at_full_risk_does_not_by_enumeration(delta):
    coins, epsilon, risk, pairs = 6, 0.5, 0.3, [(3, 0), (2, 2), (3, 3)]
    law = agreement_law(coins, 5, epsilon=epsilon, delta=delta)
    bounds = {}
    wrong = np.zeros(2)
    for included, wrongly in itertools.product(itertools.product((0, 1), repeat=coins), repeat=2):
        told = np.array(included) ^ np.array(wrongly)
        scores = np.where(told == 1, 1.0, -1.0) * (1 + np.roll(np.arange(coins), told.sum()))
        found = audit.one_run(scores, included, risk=risk, guesses=pairs)
        right = tuple(each.right for each in found.guesses)
        if right not in bounds:
            unpaid = max(audit.one_run(scores, included, risk=risk, guesses=[k]).epsilon(delta) for k in pairs)
            bounds[right] = np.array([found.epsilon(delta), unpaid])
        agree = coins - sum(wrongly)
        wrong += law[agree] / math.comb(coins, agree) / 2**coins * (bounds[right] > epsilon)
    assert wrong[0] <= risk < wrong[1]


@pytest.mark.long
def test_dependent_scores_keep_the_risk_and_choosing_the_guesses_afterwards_does_not():
    rng = np.random.default_rng(21)
    coins, epsilon, delta, risk, runs = 100, 1.0, 1e-3, 0.1, 250
    law = agreement_law(coins, 80, epsilon=epsilon, delta=delta)
    wrong = chosen_wrong = 0
    for _ in range(runs):
        included = rng.random(coins) < 0.5
        scores = dependent_training(rng, law, included)
        wrong += audit.one_run(scores, included, risk=risk, guesses=[(20, 20), (40, 0)]).epsilon(delta) > epsilon
        order = np.argsort(-scores)
        right = np.cumsum(included[order])
        best = max(range(1, 51), key=lambda k: right[k - 1] / k - 0.5 / math.sqrt(k))
        chosen = epsilon_from_guesses(int(right[best - 1]), best, exposed=coins * delta / 2, risk=risk)
        chosen_wrong += chosen > epsilon
    assert_rate_at_most(wrong, runs, risk)
    with pytest.raises(AssertionError):
        assert_rate_at_most(chosen_wrong, runs, risk)


def test_gaussian_canaries_are_not_refuted_oftener_than_the_risk():
    rng = np.random.default_rng(22)
    wrong = 0
    for _ in range(100):
        included = rng.random(400) < 0.5
        scores = rng.normal(size=400) + included
        wrong += audit.one_run(scores, included, risk=0.1, guesses=[(50, 50)]).mu > 1.0
    assert_rate_at_most(wrong, 100, 0.1)


def test_claims_are_judged_by_epsilon_or_by_their_curve():
    scores, included = quantiles(2, side=2000)

    def judged(claim, **given):
        return audit.one_run(scores, included, risk=0.05, claim=claim, **given).judgement

    by_epsilon = judged(guarantees.epsilon_delta(epsilon=2.0, delta=1e-6))
    assert (by_epsilon.verdict, by_epsilon.judged_by) == ("violation", "guesses against epsilon and delta")
    quiet = audit.one_run(
        *quantiles(0.5, side=2000), risk=0.05, claim=guarantees.epsilon_delta(epsilon=2.0, delta=1e-6)
    )
    assert quiet.verdict == "no_violation_found"
    assert "is claimed) would have been found with power" in quiet.reason
    assert repr(quiet).startswith("<OneRun 'one training': no_violation_found; proven epsilon >= ")
    assert judged(guarantees.epsilon_delta(epsilon=9.0, delta=1e-6)).verdict == "inconclusive"
    by_curve = judged(guarantees.gaussian(mu=0.8))
    assert (by_curve.verdict, by_curve.judged_by) == ("violation", "guesses against the claimed curve")
    assert "refutes the claimed curve as a whole" in by_curve.reason
    assert "says nothing about epsilon" not in by_curve.reason, "repr, page and record state a proven epsilon beside it"
    assert judged(guarantees.gaussian(mu=2.0)).verdict != "violation"
    sampled = guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=1.0)
    assert judged(sampled).verdict == "violation"
    assert judged(sampled, guesses=[(0, 200)]).verdict == "violation"
    with pytest.raises(ValueError, match="substitution"):
        judged(sampled, relation="substitution")


@pytest.mark.long
def test_a_p_value_is_the_smallest_risk_at_which_the_verdict_is_violation():
    scores, included = quantiles(1, side=250)
    given = {"guesses": [(60, 60), (100, 0)]}
    for claim in (guarantees.epsilon_delta(epsilon=0.8, delta=1e-5), guarantees.gaussian(mu=0.3)):
        p = audit.one_run(scores, included, risk=0.05, claim=claim, **given).judgement.p_value
        assert 1e-12 < p < 0.3
        assert audit.one_run(scores, included, risk=min(p * 1.02, 0.9), claim=claim, **given).verdict == "violation"
        assert audit.one_run(scores, included, risk=p * 0.98, claim=claim, **given).verdict != "violation"
    claim = guarantees.epsilon_delta(epsilon=0.8, delta=1e-5)
    inside = audit.one_run(scores, included, risk=0.05, claim=claim)
    for risk, above in ((inside.judgement.p_value * 1.001, True), (inside.judgement.p_value * 0.999, False)):
        assert (dataclasses.replace(inside.guesses[0], risk=risk).epsilon(1e-5) > 0.8) is above


def answers(rng, coins, epsilon):
    """0 or 1 for each coin, by randomised response: nothing but ties."""
    return (coins ^ (rng.random(len(coins)) > expit(epsilon))).astype(float)


@pytest.mark.usefixtures("no_advice")
def test_answers_of_zero_and_one_are_found_as_often_as_promised_and_accused_no_oftener_than_the_risk():
    rng = np.random.default_rng(27)
    claim = guarantees.epsilon_delta(epsilon=1.0, delta=0.0)
    found, accused, against, runs, m = 0, 0, 0, 40, 400
    quiet = audit.one_run(rng.random(m), rng.random(m) < 0.5, risk=0.05, claim=claim).judgement
    promised = float(re.search(r"with power (0\.\d+)", quiet.reason).group(1))
    assert promised >= 0.8
    for _ in range(runs):
        coins = rng.random(m) < 0.5
        leaks = answers(rng, coins, 1.5)
        found += audit.one_run(leaks, coins, risk=0.05, claim=claim).verdict == "violation"
        accused += audit.one_run(answers(rng, coins, 1.0), coins, risk=0.05, claim=claim).verdict == "violation"
        # what ordering ties against the guesser would find
        against += audit.one_run(leaks - 1e-9 * coins, coins, risk=0.05, claim=claim).verdict == "violation"
    assert_rate_at_most(runs - found, runs, 1 - promised)
    assert_rate_at_most(accused, runs, 0.05)
    with pytest.raises(AssertionError):
        assert_rate_at_most(runs - against, runs, 1 - promised)


def test_the_order_of_ties_follows_its_seed_and_not_the_coins():
    coins = np.random.default_rng(0).random(500) < 0.5
    found = audit.one_run(np.zeros(500), coins, risk=0.05, seed=0)
    assert found.epsilon(0.0) == 0.0, "the same seed drew the coins and must not order them"
    assert (found.seed, found.tied) == (0, 500)
    does = "drew the canaries that are revealed first and ordered tied scores"
    assert found.conditions[-1] == f"the seed 0, which {does}, was not tried out on these coins"
    rights = {
        tuple(each.right for each in audit.one_run(np.zeros(500), coins, risk=0.05, seed=s).guesses) for s in (0, 0, 1)
    }
    assert len(rights) == 2
    assert audit.one_run(np.arange(500.0), coins, risk=0.05).tied == 0
    with pytest.raises(ValueError, match="seed"):
        audit.one_run(np.zeros(500), coins, risk=0.05, seed=-1)


def test_power_is_never_rounded_up_and_a_leak_is_missed_only_where_it_mostly_is():
    rng = np.random.default_rng(28)
    claim = guarantees.epsilon_delta(epsilon=1.0, delta=0.0)

    def reason(m):
        judged = audit.one_run(rng.random(m), rng.random(m) < 0.5, risk=0.05, claim=claim, guesses=[(m // 3, m // 3)])
        return judged.judgement.reason, judged.verdict

    power = {m: reason(m) for m in (60, 150, 700)}
    assert "would be missed more often than found (power 0.2" in power[60][0]
    assert "found with power 0.6" in power[150][0]
    assert re.search(r"only; about [0-9,]+ canaries would be enough", power[150][0])
    assert power[150][1] == "inconclusive"
    assert "with power 0.99." in power[700][0]
    certain = guarantees.epsilon_delta(epsilon=6.74, delta=0.0)
    told = audit.one_run(rng.random(4000), rng.random(4000) < 0.5, risk=0.05, claim=certain, guesses=[(1500, 1500)])
    assert "right with probability 0.999959 (randomised response with epsilon 10.1" in told.judgement.reason


@pytest.mark.parametrize("pair", [(200, 200), (150, 150), (190, 0)])
def test_the_power_is_at_most_how_often_answers_are_found(pair):
    rng = np.random.default_rng(29)
    m, needed, chance, runs = 400, int(0.79 * sum(pair)), expit(1.5), 2000
    each = Guesses(guessed_in=pair[0], guessed_out=pair[1], right_in=0, right_out=0, canaries=m, risk=0.05)
    coins = rng.random((runs, m)) < 0.5
    told = coins ^ (rng.random((runs, m)) > chance)
    order = np.argsort(-(told + rng.random((runs, m))), axis=1)
    ranked = np.take_along_axis(coins, order, axis=1)
    right = ranked[:, : pair[0]].sum(1) + (~ranked[:, m - pair[1] :]).sum(1)
    power = _power(each, needed, chance)
    assert_rate_at_most(int((right < needed).sum()), runs, 1 - power)
    assert power > (right >= needed).mean() - 0.2


def test_tied_scores_prove_nothing_and_coins_that_are_not_fair_are_refused():
    included = np.random.default_rng(23).random(500) < 0.5
    found = audit.one_run(np.zeros(500), included, risk=0.05)
    assert found.epsilon(0.0) == found.mu == 0.0
    with pytest.raises(ValueError, match="fair coins"):
        audit.one_run(np.arange(500.0), np.arange(500) < 400, risk=0.05)
    with pytest.raises(ValueError, match=r"scores\[3\] is nan"):
        audit.one_run([1.0, 2.0, 3.0, np.nan], [0, 1, 0, 1], risk=0.05)
    with pytest.raises(ValueError, match="guesses"):
        audit.one_run([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1], risk=0.05, guesses=[(3, 2)])


def test_numbers_of_guesses_from_a_claim_fit_any_number_of_canaries():
    for canaries, claim in itertools.product(
        (1, 2, 3, 10, 100, 20_000),
        (guarantees.gaussian(mu=1.0), guarantees.subsampled_gaussian(rate=0.1, noise_multiplier=1.0)),
    ):
        pair = guesses_of_claim(claim, canaries, delta=1e-5, risk=0.05)
        assert 1 <= sum(pair) <= canaries


def test_statements_at_two_deltas_share_the_risk_and_a_larger_one_is_refused():
    scores, included = quantiles(2, side=1000)
    claim = guarantees.epsilon_delta(epsilon=2.0, delta=1e-6)
    both = audit.one_run(scores, included, risk=0.05, claim=claim, delta=1e-4)
    assert [(each.at_delta, each.risk) for each in both.guesses] == [(1e-6, 0.025), (1e-4, 0.025)]
    alone = audit.one_run(scores, included, risk=0.05, claim=claim)
    assert [(each.at_delta, each.risk) for each in alone.guesses] == [(1e-6, 0.05)]
    assert alone.epsilon(1e-7) == alone.epsilon(1e-6)
    with pytest.raises(ValueError, match="proven at delta 1e-06"):
        alone.epsilon(1e-5)


def test_the_command_line_names_the_conditions_and_keeps_gaussians_apart(tmp_path, capsys):
    scores, included = quantiles(2, side=1000)
    np.save(tmp_path / "out.npy", scores[included == 0])
    np.save(tmp_path / "in.npy", scores[included == 1])
    words = ["bound", "--one-run", "--without", str(tmp_path / "out.npy"), "--with", str(tmp_path / "in.npy")]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "own fair coin" in text
    assert "if it is Gaussian DP, its mu exceeds" in text
    main([*words, "--claim", "gaussian(mu=2.0)"])
    text = capsys.readouterr().out
    assert ", as many as the claim fixes." in text
    assert "declared" not in text
    assert main([*words, "--guesses", "100", "100", "--claim", "gaussian(mu=0.5)", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "violation"
    assert told["epsilon"] == audit.one_run(scores, included, risk=0.05, guesses=[(100, 100)]).epsilon(1e-5)
    assert told["relation"] == "add_remove"
    assert "says nothing about epsilon" in told["not_gdp"]["says"]
    assert len(told["conditions"]) == 5
    assert main([*words, "--threshold", "1"]) == 2
    assert main([words[0], *words[2:], "--guesses", "1", "1"]) == 2


def counted_at(place, canaries, seed):
    """Canaries whose own coin is among the guessed ones where their score has this place from the highest."""
    found = set()
    for canary in range(canaries):
        others = np.delete(np.arange(canaries), canary)
        order = np.insert(others, place, canary)
        scores, coins = np.empty(canaries), np.zeros(canaries, bool)
        scores[order] = -np.arange(canaries)
        coins[order[: canaries // 2]] = True
        (told,) = audit.one_run(scores, coins, risk=0.05, delta=1e-5, seed=seed).guesses
        coins[canary] = False
        (lied,) = audit.one_run(scores, coins, risk=0.05, delta=1e-5, seed=seed).guesses
        if told.guessed_in == lied.guessed_in and told.right_in == lied.right_in + 1:
            found.add(canary)
    return found


def test_coins_that_take_no_part_in_the_guesses_are_the_same_whatever_the_training_scores():
    first, second = counted_at(0, 40, seed=1), counted_at(1, 40, seed=1)
    assert first == second
    assert len(first) == 38, "a twentieth of the canaries is revealed first"


def test_the_user_vouches_for_the_seed_wherever_the_answer_depends_on_it():
    coins = np.random.default_rng(3).random(400) < 0.5
    scores = np.arange(400.0)
    chosen, fixed = audit.one_run(scores, coins, risk=0.05), audit.one_run(scores, coins, risk=0.05, guesses=[(9, 9)])
    says = "the seed 0, which drew the canaries that are revealed first, was not tried out on these coins"
    assert chosen.conditions[-1] == says
    assert not any("seed" in condition for condition in fixed.conditions)


def test_one_training_answers_as_a_record_does():
    rng = np.random.default_rng(5)
    coins = rng.random(1000) < 0.5
    scores = rng.normal(size=1000) + 3.0 * coins
    found = audit.one_run(scores, coins, risk=0.05, guesses=[(40, 40), (20, 0)])
    for delta in (1e-5, 1e-3):
        epsilon = found.epsilon(delta)
        assert delta <= found.delta(epsilon) <= delta * (1 + 1e-3), "delta(epsilon) and epsilon(delta) are one curve"
        assert found.delta(epsilon + 1e-3) < delta < found.delta(epsilon - 1e-3)
    assert found.delta(found.epsilon(0.0) + 1e-6) == 0.0
    assert found.mu > 0
    for each in found.guesses:
        delta = each.delta(0.5)
        assert each.p_value(each.right, epsilon=0.5, delta=delta) <= each.risk, "what is stated is refuted"


def test_revealed_coins_prove_the_declared_delta_or_nothing():
    rng = np.random.default_rng(6)
    coins = rng.random(1000) < 0.5
    told = audit.one_run(rng.normal(size=1000) + 3.0 * coins, coins, risk=0.05, delta=1e-4)
    bound = told.epsilon(1e-4)
    assert (told.delta(bound), told.delta(bound + 1e-3)) == (1e-4, 0.0)
    blind = audit.one_run(rng.normal(size=1000), coins, risk=0.05, delta=1e-4)
    assert (blind.epsilon(1e-4), blind.delta(0.0)) == (0.0, 0.0), "a bound of 0 shows nothing"
    with pytest.raises(ValueError, match="epsilon must be at least 0"):
        told.delta(-1.0)


@pytest.mark.parametrize(("heads", "wonders"), [(500, True), (510, False)])
def test_exactly_half_of_the_canaries_is_asked_about(heads, wonders):
    coins = np.arange(1000) % 2 == 0
    coins[1 : 2 * (heads - 500) : 2] = True
    found = audit.one_run(np.random.default_rng(0).normal(size=1000), coins, risk=0.05)
    assert found.included == heads
    assert ("exactly half were included, which fair coins do with probability 0.025" in found.conditions[0]) == wonders


def test_a_violation_says_which_epsilon_is_exceeded_as_a_record_does():
    coins = np.arange(2_000) % 2 == 0
    found = audit.one_run(1.0 * coins, coins, risk=0.05, claim=guarantees.gaussian(mu=0.5))
    assert found.violated_at is not None
    assert found.violated_at.at_least == found.epsilon(found.report_delta)
    assert found.violated_at.says.startswith("epsilon at delta 1e-05: at least ")
    assert audit.one_run(1.0 * coins, coins, risk=0.05).violated_at is None
