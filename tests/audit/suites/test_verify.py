"""verify: a right record passes, and no number of it can be changed unseen."""

import dataclasses
import json

import pytest

import distinguishers
import guarantees
import mechanisms
from audit.cli import main
from audit.policies.registry import POLICIES
from audit.procedure import run_audit
from audit.record.record import save_records
from audit.suites.verify import verify
from audit.trials.keys import key_from_seed


def audited(policy=None, **more):
    pair, step = mechanisms.scalar_pair(sensitivity=1.0), mechanisms.gaussian_mechanism(noise_multiplier=0.5)
    score = distinguishers.likelihood_ratio(step, pair)
    given = {"claim": guarantees.gaussian(mu=1.0), "trials": 2000, "risk": 0.05, "key": key_from_seed(1)}
    return run_audit(step, pair, score, policy=policy, **{**given, **more})


@pytest.fixture(scope="module")
def record():
    return audited()


def states(record, **more):
    return {check.what: check.state for check in verify(record, **more)}


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_right_record_is_right(record, share):
    assert set(states(record, rerun=share).values()) == {"right"}


@pytest.mark.parametrize("policy", [POLICIES["simultaneous"](), POLICIES["fixed"](thresholds=(0.0, 1.0))])
def test_every_policy_that_keeps_its_counts_is_judged_again(policy):
    found = states(audited(policy))
    assert found["verdict"] == "right"
    assert "wrong" not in found.values()


def test_an_audit_that_could_stop_early_says_what_is_not_checked():
    assert states(audited(POLICIES["anytime"]()))["verdict"] == "not checked"


def changed_count(record):
    grid = record.grids[0]
    cells = list(grid.without)
    full = max(range(len(cells)), key=cells.__getitem__)
    cells[full] -= 1
    cells[0] += 1
    return dataclasses.replace(record, grids=(dataclasses.replace(grid, without=tuple(cells)),))


def with_point(record, **changes):
    first, *others = record.points
    return dataclasses.replace(record, points=(dataclasses.replace(first, **changes), *others))


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("counts sum to the trials", lambda r: dataclasses.replace(r, trials=r.trials - 2)),
        ("trials drawn again", changed_count),
        ("verdict", lambda r: dataclasses.replace(r, verdict="no_violation_found")),
        ("verdict", lambda r: dataclasses.replace(r, p_value=0.04)),
        ("numbers", lambda r: dataclasses.replace(r, numbers=(dataclasses.replace(r.numbers[0], at_least=9.0),))),
        ("limits", lambda r: with_point(r, beta_upper=0.0)),
        ("errors of every test are in the grid", lambda r: with_point(r, threshold=r.grids[0].edges[0])),
        ("verdict", lambda r: dataclasses.replace(r, points=r.points[:1])),
        ("numbers", lambda r: dataclasses.replace(r, claim=dataclasses.replace(r.claim, epsilon=0.1))),
    ],
)
def test_a_changed_record_is_caught(record, what, change):
    assert states(change(record), rerun=1.0 if what == "trials drawn again" else 0.0)[what] == "wrong"


def test_what_is_not_ours_is_not_checked(record):
    own = dataclasses.replace(
        record,
        mechanism=dataclasses.replace(record.mechanism, name="their_step"),
        claim=dataclasses.replace(record.claim, name="their_claim"),
    )
    found = states(own, rerun=0.5)
    assert found["verdict"] == found["trials drawn again"] == "not checked"


def test_the_command_ends_with_one_where_something_is_wrong(record, tmp_path, capsys):
    path = tmp_path / "records.json"
    save_records((record,), path)
    assert main(["verify", str(path)]) == 0
    save_records((dataclasses.replace(record, p_value=0.04),), path)
    assert main(["verify", str(path), "--json"]) == 1
    checks = json.loads(capsys.readouterr().out.splitlines()[-1])["checks"]
    assert [check["what"] for check in checks if check["state"] == "wrong"] == ["verdict"]
