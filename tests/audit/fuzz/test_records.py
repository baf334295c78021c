"""Records with anything wrong in them: every report can be made of what is read, or one SchemaError names the key."""

import copy
import json

import jax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import mutated
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.policies.anytime import Anytime
from audit.record.compare import compare
from audit.record.read import SchemaError
from audit.record.stored import load_records
from audit.report.formats import github_annotations, junit, markdown
from audit.report.text import record_lines

PLAIN = {"suppress_health_check": list(HealthCheck), "database": None}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A file of three records: a violation, one with nothing found, one that stopped early."""
    path = tmp_path_factory.mktemp("records") / "good.json"
    claim, key = guarantees.gaussian(mu=1.0), jax.random.key(0)
    records = tuple(
        audit.run_audit(
            Shift(mu=mu), PAIR, First(), claim=claim, trials=400, risk=0.05, key=key, name=name, policy=policy
        )
        for mu, name, policy in ((1.0, "right", None), (3.0, "wrong", None), (3.0, "stopped", Anytime()))
    )
    audit.save_records(records, str(path))
    return records, json.loads(path.read_text()), path.with_name("fuzzed.json")


def outcome(document, records, path) -> str:
    """'read' or 'refused'; whatever else happens is a bug."""
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    try:
        found = load_records(path)
    except SchemaError as error:
        told = str(error)
        found = None
    if found is None:
        assert str(path) in told
        return "refused"
    for record in found:
        assert record_lines(record)
        json.dumps(record.to_json(), allow_nan=False)
    for text in (markdown(found, title="t"), junit(found, title="t"), *github_annotations(found)):
        assert "\x1b" not in text
    compare(records, found, risk=0.01)
    return "read"


def tried(documents, data):
    records, good, path = documents
    alone = [{"schema": 4, "records": [record]} for record in good["records"]]
    return outcome(
        data.draw(mutated([copy.deepcopy(good), *copy.deepcopy(alone), copy.deepcopy(good["records"][0])])),
        records,
        path,
    )


@pytest.mark.long
@settings(max_examples=8, **PLAIN)
@given(st.data())
def test_a_wrong_record_is_refused_by_its_key(documents, data):
    assert tried(documents, data) in ("read", "refused")


@pytest.mark.long
@settings(max_examples=2500, **PLAIN)
@given(st.data())
def test_no_wrong_record_ends_in_a_traceback(documents, data):
    assert tried(documents, data) in ("read", "refused")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda r: r["claim"].pop("epsilon"), r"record 2 \('wrong'\): claim.epsilon is missing"),
        (lambda r: r.update(p_value="small"), r"record 2 \('wrong'\): p_value must be a number, got 'small'"),
        (lambda r: r.update(verdict="fine"), "verdict must be one of"),
        (lambda r: r["points"][0]["counts"].update(misses=-1), r"points\[0\].counts"),
        (lambda r: r["numbers"][0].update(at_least=1e6), r"numbers\[0\].at_least must be in \[0, 700\], got 1000000"),
        (lambda r: r["grids"][0]["without"].pop(), r"grids\[0\].without must be one more than edges"),
        (lambda r: r.update(extra=1), "extra is not known to this version"),
        (lambda r: r.update(trials_planned=r["trials"] - 2), "trials must be at most the .* that were planned"),
        (lambda r: r["grids"].append(r["grids"][0]), "grids must be of distinct members"),
        (lambda r: r.clear(), "schema version None"),
    ],
)
def test_the_message_names_file_record_and_key(documents, change, told):
    _, good, path = documents
    document = copy.deepcopy(good)
    change(document["records"][1])
    path.write_text(json.dumps(document))
    with pytest.raises(SchemaError, match=f"fuzzed.json: .*{told}"):
        load_records(str(path))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('"schema": 4, "records"', '"schema": 99, "records"', "schema must be 4, got 99"),
        ('"schema": 4, "records"', '"schema": 4, "signed": true, "records"', "'signed' is not known to this version"),
        ('"verdict": ', '"verdict": "no_violation_found", "verdict": ', "the key 'verdict' appears twice"),
    ],
)
def test_what_stands_around_records_or_twice_is_refused(documents, before, after, told):
    _, good, path = documents
    path.write_text(json.dumps(good).replace(before, after, 1))
    with pytest.raises(SchemaError, match=f"fuzzed.json.*{told}"):
        load_records(str(path))
