"""Looking at one audit more than once."""

import dataclasses
import re
from types import SimpleNamespace

import pytest

from audit.cli import main, parser
from audit.record.stored import load_records
from audit.report.story import remedy
from audit.suites.each_audit import share_of, unnoticed
from audit.suites.run import audit_key

SUITE = """
trials = 200
risk = 0.05
[[audit]]
name = "tight"
neighbours = "scalar_pair"
distinguisher = "likelihood_ratio"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
claim = { kind = "gaussian", mu = 1.0 }
[[audit]]
name = "another"
neighbours = "scalar_pair"
distinguisher = "likelihood_ratio"
mechanism = { kind = "gaussian_mechanism", noise_multiplier = 1.0 }
claim = { kind = "gaussian", mu = 2.0 }
"""


@pytest.fixture
def run(tmp_path, capsys):
    path, out = tmp_path / "suite.toml", tmp_path / "out"

    def call(*words):
        path.write_text(SUITE)
        code = main(["run", str(path), "--out", str(out), *words])
        return code, load_records(out / "records.json") if out.exists() else (), capsys.readouterr()

    return call


def test_all_looks_together_never_spend_more_than_the_risk():
    assert share_of(0) == 1
    assert sum(share_of(look) for look in range(1, 60)) <= 1


def test_every_look_has_trials_of_its_own():
    keys = {str(audit_key(7, name, look)) for name in ("a", "ab", "a\x01") for look in range(5)}
    assert len(keys) == 15


@pytest.mark.long
def test_a_look_has_its_share_of_the_risk_and_is_stated_in_the_record(run):
    _, (first, _), _ = run("--look", "1")
    _, (second, _), told = run("--look", "2", "--trials", "1000")
    assert (first.look, second.look) == (1, 2)
    assert (first.risk, second.risk) == (0.05 / 2 / 2, 0.05 / 4 / 2)
    assert first.key != second.key
    assert "warning" not in told.err
    assert "at risk 0.0125 (look 2)" in told.out


@pytest.mark.long
def test_a_second_look_that_was_not_planned_is_told(run):
    run()
    _, _, same = run()
    assert "warning" not in same.err
    _, _, more = run("--trials", "1000")
    assert more.err.count("warning") == 2
    assert "'tight' was audited before, with 200 trials at risk 0.025" in more.err
    assert "wrong with probability 0.05" in more.err
    _, _, again = run("--look", "1", "--trials", "1000")
    assert "warning" in again.err


@pytest.mark.long
def test_another_mechanism_or_code_is_another_audit(run):
    _, records, _ = run()
    record = dataclasses.replace(records[0], trials_planned=1000)
    assert unnoticed(records, (record,))
    part = dataclasses.replace(record.mechanism, parameters={"noise_multiplier": 3.0})
    assert not unnoticed(records, (dataclasses.replace(record, mechanism=part),))
    assert not unnoticed(records, (dataclasses.replace(record, environment={**record.environment, "code": "x"}),))


def test_what_a_report_advises_after_too_few_trials_is_paid_for():
    """Another seed, or more trials, would be a second look: every option that it names shares the risk over looks."""
    for needed, look in ((1236, 0), (None, 0), (1236, 2)):
        asked = {
            "claim": SimpleNamespace(name="gaussian", parameters={}),
            "suite": SimpleNamespace(audits=1),
            "seconds": 1.0,
            "reason": "too few trials.",
            "trials": 20,
            "fit_trials": 0,
            "diagnoses": (),
            "grids": (),
            "neighbours": None,
        }
        open_one = SimpleNamespace(
            verdict="inconclusive", one_run=None, scores=None, trials_needed=needed, look=look, **asked
        )
        says = remedy(open_one)
        commands = re.findall(r"`dpsgd-audit (.*?)`", says)
        assert len(commands) == bool(needed)
        advised = [
            *commands,
            *(f"run {word}" for words in re.findall(r"with (--look 1) or (--stop-early)", says) for word in words),
        ]
        for option in advised:
            given = parser().parse_args(option.split())
            assert given.look or given.stop_early
            assert given.seed is None
        if needed:
            given = parser().parse_args(commands[0].split())
            assert (given.look, given.trials) == (look + 1, needed)
        assert ("state the risk of both runs together" in says) == (look == 0)


@pytest.mark.parametrize("look", ["0", "21", "-3"])
def test_looks_are_counted_from_one(run, look):
    code, _, told = run(f"--look={look}")
    assert code == 2
    assert "--look must lie between 1 and 20" in told.err
