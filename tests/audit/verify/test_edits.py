"""No derived value of a record can be changed unseen, and every primary one is named."""

import copy
import dataclasses
import json
from collections import Counter

import numpy as np
import pytest
from made_records import suite_of_policies

from audit.record.read import SchemaError
from audit.record.record import from_json
from audit.suites.file import parse_suite
from audit.suites.run import run_suite
from audit.verify import records as verification
from audit.verify.leaves import key_of, leaves, under
from audit.verify.rebuild import rebuild
from audit.verify.records import verify

GAUSSIAN = 'mechanism = { kind = "gaussian_mechanism", noise_multiplier = 0.5 }'
TIGHT = f'{GAUSSIAN}\nclaim = {{ kind = "gaussian", mu = 1.0 }}'
AUDITS = {
    "from theory": f'{TIGHT}\npolicy = "from_theory"',
    "rectangles": f'{TIGHT}\npolicy = {{ kind = "from_theory", method = "rectangle" }}',
    "one number": f'{TIGHT}\ntarget = "epsilon"',
    "split": f'{TIGHT}\npolicy = {{ kind = "split", fit_trials = 200 }}',
    "fixed": f'{TIGHT}\npolicy = {{ kind = "fixed", thresholds = [0.0, 1.0] }}',
    "simultaneous": f'{TIGHT}\npolicy = "simultaneous"',
    "anytime": f'{TIGHT}\npolicy = "anytime"',
    "right": f'{GAUSSIAN}\nclaim = {{ kind = "gaussian", mu = 2.0 }}',
    "laplace": 'mechanism = { kind = "laplace_mechanism", epsilon = 3.0 }\nclaim = { kind = "laplace", epsilon = 1.0 }',
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


@pytest.fixture(scope="module")
def made():
    return suite_of_policies()


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

        def chosen(record, suite=None):
            return (once if id(record) in own else rebuild)(record, suite)

        monkeypatch.setattr(verification, "rebuild", chosen)

    return use


def changed(value, rng):
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + int(rng.choice([1, 2, 10])) if value == 0 or rng.random() < 0.5 else value - 1
    if isinstance(value, float):
        return float(rng.choice([value * 0.97, value * 1.01, 0.9 * value + 0.01])) if value else 0.01
    if isinstance(value, str):
        words = {"violation": "no_violation_found", "no_violation_found": "violation", "above": "below", "inf": 9.0}
        return words.get(value, f"{value[:-1]}9" if rng.random() < 0.5 else f"{value} not")
    return {"x": 1} if value == {} else [1.0] if value == [] else 0.5


def put(document, path, value):
    """Set the value at a path."""
    *inner, last = path.replace("[", ".[").split(".")
    for step in inner:
        document = document[int(step[1:-1])] if step.startswith("[") else document[step]
    document[int(last[1:-1]) if last.startswith("[") else last] = value


def outcomes(records, count, seed):
    """Edits of single values, drawn over all keys and then over their values: key, whether primary, what was seen."""
    rng = np.random.default_rng(seed)
    before = verify(records)
    assert {check.state for check in before.checks} == {"right"}, before.checks
    named = {record.name: tuple(p.key for p in before.primary if p.audit == record.name) for record in records}
    for _ in range(count):
        place = int(rng.integers(len(records)))
        own = records[place]
        by_key = {}
        for path, value in leaves(own.to_json()):
            by_key.setdefault(key_of(path), []).append((path, value))
        key = sorted(by_key)[int(rng.integers(len(by_key)))]
        path, value = by_key[key][int(rng.integers(len(by_key[key])))]
        document = json.loads(json.dumps(own.to_json()))
        put(document, path, changed(value, rng))
        last = f"diagnoses[{len(own.diagnoses) - 1}]"
        primary = under(key, named[own.name]) is not None and not path.startswith(last)
        try:
            edited = from_json(document)
        except SchemaError:
            yield own.name, path, primary, "refused"
            continue
        if edited == own:
            continue
        # alone: that the rest of its suite is missing says nothing about the edit
        found = {check.state for check in verify((edited,)).checks if check.what != "suite"}
        state = "wrong" if "wrong" in found else "not computed" if "not computed" in found else "nothing"
        yield own.name, path, primary, state


def table(found):
    """By key: edits, and what became of them."""
    rows = {}
    for _, path, primary, state in found:
        rows.setdefault((key_of(path).split(".")[0], primary), Counter())[state] += 1
    lines = [f"{'key':30s} {'':8s} edits refused wrong  3  named only"]
    for (key, primary), seen in sorted(rows.items()):
        kind = "primary" if primary else "derived"
        counts = [seen[state] for state in ("refused", "wrong", "not computed", "nothing")]
        states = f"{counts[0]:7d} {counts[1]:5d} {counts[2]:2d} {counts[3]:6d}"
        lines.append(f"{key:30s} {kind:8s} {sum(counts):5d} {states}")
    return "\n".join(lines)


def assert_no_derived_value_changes_unseen(found):
    unseen = [(name, path, state) for name, path, primary, state in found if not primary and state not in SEEN]
    assert not unseen, unseen


SEEN = ("refused", "wrong")


def test_an_edited_derived_value_is_found():
    few = suite_of_policies(CHEAP)
    found = list(outcomes(few, 24, seed=1))
    assert sum(not primary for _, _, primary, _ in found) > 6
    assert_no_derived_value_changes_unseen(found)


@pytest.mark.long
def test_of_a_thousand_edits_every_one_of_a_derived_value_is_found(made):
    suite = parse_suite(SUITE, "suite.toml")
    real = run_suite(suite)
    like = run_suite(dataclasses.replace(suite, audits=suite.audits[:2], seed=7), earlier=real)
    found = []
    for records, count in ((made, 400), (real, 500), (like, 100)):
        found += outcomes(records, count, seed=count)
    print(table(found))
    assert_no_derived_value_changes_unseen(found)


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
def test_a_deleted_part_is_found(made, what, remembered):
    remembered(made)
    document = copy.deepcopy(made[0].to_json())
    DELETED[what](document)
    assert verify((from_json(document), *made[1:])).any("wrong")


def test_a_deleted_audit_is_noticed(made, remembered):
    remembered(made)
    found = verify(made[1:])
    assert [check.state for check in found.checks if check.what == "suite"] == ["not computed"]
    assert "had 9 audits, and the file holds 8 of them" in found.checks[0].says
    assert not found.any("wrong")
    assert verify((made[1], *made[1:])).any("wrong")


def test_every_primary_value_is_named(made, remembered):
    remembered(made)
    found = verify(made)
    assert {check.state for check in found.checks} == {"right"}
    named = {primary.key for primary in found.primary}
    assert {"grids", "key", "mechanism", "claim.parameters", "environment", "policy", "suite"} <= named
    assert not named & {"verdict", "reason", "points.counts", "numbers", "band", "risk", "claim.curve", "theory"}
    assert not found.all_drawn
