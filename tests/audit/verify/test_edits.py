"""No derived value of a record can be changed unseen, and every primary one is named."""

import copy
import dataclasses
from importlib import resources

import pytest
from attack.edits import drawn, every, keys_edited, table, unseen
from made_records import suite_of_policies

from audit.record.stored import from_json
from audit.suites.read import parse_suite
from audit.suites.run import run_suite
from audit.verify import procedure as verification
from audit.verify.procedure import verify
from audit.verify.rebuild import rebuild
from audit.verify.record_values import key_of, leaves

GAUSSIAN = 'mechanism = { kind = "gaussian_mechanism", noise_multiplier = 0.5 }'
TIGHT = f'{GAUSSIAN}\nclaim = {{ kind = "gaussian", mu = 1.0 }}'
AUDITS = {
    "from theory": f'{TIGHT}\npolicy = "from_theory"',
    "rectangles": f'{TIGHT}\npolicy = {{ kind = "from_theory", method = "rectangle" }}',
    "one number": f'{TIGHT}\ntarget = "epsilon"',
    "split": f'{TIGHT}\npolicy = {{ kind = "split", fit_trials = 200 }}',
    "fixed": f'{TIGHT}\npolicy = {{ kind = "fixed", thresholds = [0.0, 1.0] }}',
    "anytime": f'{TIGHT}\npolicy = "anytime"',
    "right": f'{GAUSSIAN}\nclaim = {{ kind = "gaussian", mu = 2.0 }}',
}
HEAD = """
seed = 3
risk = 0.2
trials = 600
[defaults]
neighbours = { kind = "scalar_pair", sensitivity = 1.0 }
distinguisher = "likelihood_ratio"
"""
SUITE = HEAD + "".join(f'[[audit]]\nname = "{name}"\n{words}\n' for name, words in AUDITS.items())


CHEAP = ("rectangles", "anytime")
"""Records that are derived again in little time."""


def default_suite():
    text = resources.files("audit").joinpath("suites/default.toml").read_text()
    return parse_suite(text, "default.toml")


@pytest.fixture(scope="module")
def made():
    return suite_of_policies()


@pytest.fixture(scope="module")
def some():
    return suite_of_policies(("from theory", "rectangles", "few"))


KNOWN = {}
"""Records that are not edited are made again once."""


@pytest.fixture
def remembered(monkeypatch):
    def once(record, suite=None):
        if id(record) not in KNOWN:
            KNOWN[id(record)] = record, rebuild(record, suite)
        return KNOWN[id(record)][1]

    def use(records):
        own = {id(record) for record in records}

        def chosen(record, suite=None, **_):
            return (once if id(record) in own else rebuild)(record, suite)

        monkeypatch.setattr(verification, "rebuild", chosen)

    return use


def test_an_edited_derived_value_is_found():
    few = suite_of_policies(CHEAP)
    found = list(drawn(few, 24, seed=1))
    assert sum(not edit.primary for edit in found) > 6
    assert not unseen(found)


def test_a_sample_of_all_values_is_compared_or_named():
    found = list(every(suite_of_policies(CHEAP[:1]), seed=3, among=12))
    assert sum(not edit.primary for edit in found) > 10
    assert not unseen(found)


def test_an_edit_that_nothing_compares_is_told(monkeypatch):
    monkeypatch.setattr(verification, "agree", lambda *_, **__: True)
    found = unseen(every(suite_of_policies(CHEAP[:1]), seed=57, among=60))
    assert "p_value" in [edit.path for edit in found]


@pytest.mark.long
@pytest.mark.parametrize("suite", ["policies", "default"])
def test_every_value_of_every_key_is_compared_or_named(suite):
    """In two of the records that have the key; `python -m attack.edits` edits it in all of them."""
    records = suite_of_policies() if suite == "policies" else run_suite(default_suite())
    found = list(every(records, each=2))
    print(table(found, whole=True))
    assert {edit.audit for edit in found} == {record.name for record in records}
    keys = {key_of(path) for record in records for path, _ in leaves(record.to_json())}
    assert {key_of(edit.path) for edit in found} == keys
    assert not unseen(found)


def test_edits_in_some_records_leave_out_no_key():
    records = suite_of_policies(CHEAP)
    found = keys_edited(records, 1)
    assert set.union(*found) == {key_of(path) for record in records for path, _ in leaves(record.to_json())}
    assert not set.intersection(*found)
    assert all(found)


@pytest.mark.long
def test_of_a_thousand_edits_every_one_of_a_derived_value_is_found(made):
    suite = parse_suite(SUITE, "suite.toml")
    real = run_suite(suite)
    like = run_suite(dataclasses.replace(suite, audits=suite.audits[:2], seed=7), earlier=real)
    found = []
    for records, count in ((made, 400), (real, 500), (like, 100)):
        found += drawn(records, count, seed=count)
    print(table(found))
    assert not unseen(found)


DELETED = {
    "theory": lambda r: r.update(theory=None, exact_epsilon=None),
    "numbers": lambda r: r.update(numbers=[]),
    "one number": lambda r: r["numbers"].pop(),
    "one point": lambda r: r["points"].pop(),
    "band": lambda r: r["band"].update(alpha=[], beta=[]),
    "violated_at": lambda r: r.update(violated_at=None),
    "diagnoses": lambda r: r.update(diagnoses=[]),
    "the last diagnosis": lambda r: r["diagnoses"].pop(),
    "shares": lambda r: r["budget"].update(verdict=0.0),
    "half of a curve": lambda r: r["claim"].update(curve={k: v[::2] for k, v in r["claim"]["curve"].items()}),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("what", DELETED)
def test_a_deleted_part_is_found(some, what, remembered):
    remembered(some)
    document = copy.deepcopy(some[0].to_json())
    DELETED[what](document)
    assert verify((from_json(document), *some[1:])).any("wrong")


def test_a_deleted_audit_is_noticed(some, remembered):
    remembered(some)
    found = verify(some[1:])
    assert [check.state for check in found.checks if check.what == "suite"] == ["not computed"]
    assert "had 3 audits, and the file holds 2 of them" in found.checks[0].says
    assert not found.any("wrong")
    assert verify((some[1], *some[1:])).any("wrong")


def test_every_primary_value_is_named(some, remembered):
    remembered(some)
    found = verify(some)
    assert {check.state for check in found.checks} == {"right"}
    named = {primary.key for primary in found.primary}
    assert {"grids", "key", "mechanism", "claim.parameters", "environment", "policy", "suite"} <= named
    assert not named & {"verdict", "reason", "points.counts", "numbers", "band", "risk", "claim.curve", "theory"}
    assert not found.all_drawn
