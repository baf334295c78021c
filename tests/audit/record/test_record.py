import dataclasses
import json

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import ODD
from toys import PAIR, First, Shift

import audit
import guarantees
from audit.record.read import SchemaError
from audit.record.record import SCHEMA, plain
from audit.record.stored import from_json, load_records, save_records
from guarantees.numerics.rounding import at_least


@pytest.fixture(scope="module")
def record():
    return audit.run_audit(
        Shift(mu=2.0),
        PAIR,
        First(),
        claim=guarantees.gaussian(mu=1.0),
        trials=2000,
        risk=0.05,
        key=jax.random.key(3),
        name="shift",
    )


def test_round_trip_loses_nothing(record, tmp_path):
    save_records((record, record), tmp_path / "records.json")
    assert load_records(tmp_path / "records.json") == (record, record)
    alone = tmp_path / "one.json"
    alone.write_text(json.dumps(record.to_json()))
    assert load_records(alone) == (record,)


def test_everything_needed_to_judge_and_to_repeat_is_written_down(record):
    data = json.loads(json.dumps(record.to_json(), allow_nan=False))
    assert data["schema"] == SCHEMA
    assert data["key"].startswith("threefry2x32:")
    assert {"python", "jax", "dpsgd_audit", "device", "dtype"} <= set(data["environment"])
    assert data["mechanism"]["parameters"] == {"mu": 2.0}
    assert data["neighbours"]["kind"] == "zero_out"
    assert data["points"][0]["counts"]["trials_without"] == 1000
    assert sum(data["grids"][0]["without"]) == sum(data["grids"][0]["with_record"]) == 1000
    assert len(data["grids"][0]["edges"]) <= 511
    assert len(data["claim"]["curve"]["alpha"]) <= 200
    assert data["seconds"] > 0


def test_a_session_shows_the_answer_and_not_all_cells(record):
    assert len(repr(record)) < 300
    assert repr(record).startswith(
        f"<AuditRecord 'shift': violation; proven epsilon >= {at_least(record.epsilon(1e-5))} "
    )


@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 1, None, str(SCHEMA), True])
def test_other_schema_versions_are_refused(record, schema):
    with pytest.raises(SchemaError, match=f"schema version {schema!r}.*reads version {SCHEMA}"):
        from_json({**record.to_json(), "schema": schema})


@pytest.mark.parametrize("text", ["not json", "[1, 2]", "3"])
def test_a_file_without_records_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SchemaError, match="written by `dpsgd-audit run`"):
        load_records(path)


def test_bounds_are_read_from_the_record_alone(record):
    again = from_json(json.loads(json.dumps(record.to_json())))
    assert again.epsilon(1e-5) == record.epsilon(1e-5) > 0
    assert again.delta(0.0) == record.delta(0.0) > 0
    assert again.mu == record.mu > 1


def test_verdicts_compare_with_what_was_expected(record):
    assert not record.as_expected
    assert dataclasses.replace(record, expect="violation").as_expected


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(ODD),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(ODD), inner),
        max_leaves=20,
    )
)
def test_anything_becomes_strict_json(value):
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == plain(value)
