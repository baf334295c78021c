"""What few trials can end in is said before they are drawn, and what one release is afterwards."""

import json
import re
import warnings

import jax
import numpy as np
import pytest

import audit
import guarantees
import mechanisms
from audit.cli import main
from audit.goal import Goal
from audit.policies.foreseen import too_few
from audit.power.joint_power import FEW_TRIALS
from audit.trials.execution import TooFewTrialsWarning
from audit.verdict import judgement

PAIR = mechanisms.add_record(np.zeros((3, 2), np.float32), np.ones(2, np.float32))
CLAIM = guarantees.gaussian(mu=1.0)
DP_SGD = guarantees.poisson_training(rate=0.1, noise_multiplier=1.0, steps=20)
FEW, ENOUGH = 300, 800


def rounds(seed, rows):
    noise = np.random.default_rng(seed).normal(scale=3.0, size=(2, 2))
    return np.tile(np.clip(rows.sum(axis=0), -1, 1), (2, 1)) + noise


def last(seed, rows):
    return rounds(seed, rows).sum(axis=0)


def heard(trials, *, code=last, claim=CLAIM, **given):
    said = []
    step = mechanisms.callable_step(code, releases="final") if code is last else code
    given = {"claim": claim, "risk": 0.05, "key": jax.random.key(0), "diagnose": False, **given}
    record = audit.run_audit(step, PAIR, trials=trials, execution=audit.Execution(foreseen=said.append), **given)
    return said, record


def test_too_few_trials_are_called_so_before_the_first_and_end_as_foreseen():
    """A student spent 300 trainings on a verdict that followed from claim, trials and risk."""
    said, record = heard(FEW)
    assert record.verdict == "inconclusive"
    assert len(said) == 1
    assert said[0].startswith(
        "last: 300 trials can find a violation, but without one the verdict will be 'inconclusive'"
    )
    assert f"With the best score {record.trials_needed:,} trials would be enough" in said[0]
    assert f"With the best score {record.trials_needed:,} trials" in record.reason
    said, record = heard(ENOUGH)
    assert (said, record.verdict) == ([], "no_violation_found")


def test_the_sentence_comes_before_any_call_of_the_code():
    order = []

    def code(seed, rows):
        order.append("trial")
        return last(seed, rows)

    execution = audit.Execution(foreseen=lambda _: order.append("sentence"))
    given = {"claim": CLAIM, "trials": 60, "risk": 0.05, "key": jax.random.key(0), "diagnose": False}
    audit.run_audit(mechanisms.callable_step(code), PAIR, execution=execution, **given)
    assert order[0] == "sentence"
    assert order.count("sentence") == 1


@pytest.mark.long
def test_nothing_is_said_where_a_violation_is_expected_or_trials_are_our_own():
    assert heard(FEW, expect="violation")[0] == []
    own = mechanisms.gaussian_mechanism(noise_multiplier=1.0)
    given = {"claim": CLAIM, "trials": FEW, "risk": 0.05, "key": jax.random.key(0), "diagnose": False}
    said = []
    audit.run_audit(own, mechanisms.scalar_pair(), execution=audit.Execution(foreseen=said.append), **given)
    assert said == []


@pytest.mark.parametrize("policy", [audit.Anytime(), audit.Split(fit_trials=100, method="rectangle")])
def test_nothing_is_foreseen_where_another_test_decides(policy):
    assert too_few(policy, Goal(claim=CLAIM, delta=1e-5, trials_per_side=20, risk=0.05)) is None


@pytest.mark.parametrize("claim", [CLAIM, DP_SGD])
def test_very_few_trials_are_told_without_their_exact_power(claim, monkeypatch):
    """The exact power of the joint test with 30 trials a side takes seconds to compute."""
    asked = []
    true = judgement.jointly_refuting
    monkeypatch.setattr(
        judgement, "jointly_refuting", lambda *given, **named: (asked.append((given, named)), true(*given, **named))[1]
    )
    assert too_few(audit.Split(fit_trials=100), Goal(claim=claim, delta=1e-5, trials_per_side=30, risk=0.05))
    trials = [number for given, named in asked for number in (*given, *named.values()) if isinstance(number, int)]
    assert trials
    assert min(trials) >= FEW_TRIALS


def test_in_a_script_it_is_a_warning_at_the_call_and_in_a_test_none(monkeypatch):
    given = {"claim": CLAIM, "trials": 60, "risk": 0.05, "key": jax.random.key(0), "diagnose": False}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        audit.run_audit(mechanisms.callable_step(last), PAIR, **given)
        assert not [one for one in found if one.category is TooFewTrialsWarning]
        monkeypatch.delenv("PYTEST_CURRENT_TEST")
        for _ in range(2):
            # it came at each call, as libraries that change filters make Python forget
            audit.run_audit(mechanisms.callable_step(last), PAIR, **given)
            with warnings.catch_warnings():
                pass
    (one,) = [one for one in found if one.category is TooFewTrialsWarning]
    assert one.filename == __file__


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("releases", "code", "where"),
    [
        ("final", last, "in the final model of one training"),
        ("transcript", rounds, "in all rounds of one transcript"),
        ("update", last, "in one release"),
    ],
)
def test_a_reason_says_what_one_release_is(releases, code, where):
    """Of a transcript and of a final model it said 'in one release'."""
    record = heard(ENOUGH, code=mechanisms.callable_step(code, releases=releases))[1]
    assert record.verdict == "no_violation_found"
    assert re.search(rf"\(on this pair, with these scores and thresholds, {where}\)", record.reason), record.reason


@pytest.mark.long
def test_run_says_it_on_the_terminal_and_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few_steps.py").write_text(
        "import numpy as np\n"
        "import mechanisms\n"
        "def step(seed, rows):\n"
        "    return rows.sum(axis=0) + 3 * np.random.default_rng(seed).normal(size=2)\n"
        "def pair():\n"
        "    return mechanisms.add_record(np.zeros((3, 2), np.float32), np.ones(2, np.float32))\n"
    )
    (tmp_path / "suite.toml").write_text(
        "risk = 0.05\ntrials = 100\n[defaults]\ndiagnose = false\nneighbours = { function = 'few_steps:pair' }\n"
        "mechanism = { kind = 'callable_step', function = 'few_steps:step' }\nclaim = { kind = 'gaussian', mu = 1.0 }\n"
        "[[audit]]\nname = 'few'\n[[audit]]\nname = 'others'\n[[audit]]\nname = 'more'\ntrials = 120\n"
    )
    main(["run", "suite.toml"])
    told = capsys.readouterr().err
    assert "few, others: 100 trials can find a violation, but without one the verdict will be 'inconclusive'" in told
    assert told.count("100 trials can find") == told.count("more: 120 trials can find") == 1
    main(["plan", "suite.toml", "--run-code"])
    assert "few, others: 100 trials can find a violation" in capsys.readouterr().out
    main(["plan", "suite.toml"])
    said = capsys.readouterr().err
    assert "few, others, more: not planned, since that would run few_steps:step, few_steps:pair; --run" in said
    assert said.count("not planned") == 1
    assert "Warning" not in told


SUITE = """
trials = {trials}
[[audit]]
name = "own"
mechanism = {{ kind = "gaussian_mechanism", noise_multiplier = 1.5 }}
neighbours = "scalar_pair"
distinguisher = "projection"
claim = {{ kind = "subsampled_gaussian", rate = 0.25, noise_multiplier = 1.5 }}
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("trials", [FEW, 20_000])
def test_a_plan_says_that_an_audit_can_only_end_inconclusive(tmp_path, capsys, trials):
    """`plan` printed 2,000 trials without a word, and `run` ended inconclusive for want of 250."""
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE.format(trials=trials))
    assert main(["plan", str(suite), "--json"]) == 0
    (planned,) = json.loads(capsys.readouterr().out)
    told = f"{trials:,} trials can find a violation, but without one the verdict will be 'inconclusive'."
    assert planned["inconclusive"].startswith(told) == (trials == FEW)
    assert "plan` says" not in planned["inconclusive"]
