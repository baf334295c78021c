import json
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from audit.cli import main
from audit.suites.build import catalogue
from audit.suites.schema import suite_schema
from audit.suites.suite import AUDIT_KEYS, CODE_KEY, PARTS, SUITE_KEYS

ROOT = Path(__file__).parents[3]
PUBLISHED = resources.files("audit").joinpath("suites/schema.json")


def test_the_published_schema_is_in_step_with_the_code(capsys):
    assert main(["list", "--schema"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(PUBLISHED.read_text()) == json.loads(printed), (
        "run: dpsgd-audit list --schema > audit/suites/schema.json"
    )


def test_every_key_and_every_constructor_is_in_it():
    schema = suite_schema(catalogue())
    assert set(schema["properties"]) == set(SUITE_KEYS)
    assert set(schema["$defs"]["audit"]["properties"]) == set(AUDIT_KEYS)
    for part in PARTS:
        assert set(schema["$defs"][part]["anyOf"][0]["enum"]) == set(catalogue()[part])


def kinds(path):
    data = tomllib.loads(path.read_text())
    for audit in (data.get("defaults", {}), *data["audit"]):
        for part in PARTS:
            if part in audit:
                yield part, audit[part]


@pytest.mark.parametrize("path", sorted([*ROOT.glob("audit/suites/*.toml"), *ROOT.glob("suites/*.toml")]), ids=str)
def test_our_own_suites_use_only_what_the_schema_allows(path):
    schema = json.loads(PUBLISHED.read_text())
    for part, value in kinds(path):
        names, *tables = schema["$defs"][part]["anyOf"]
        if isinstance(value, str):
            assert value in names["enum"]
        elif "kind" in value:
            (own,) = [one for one in tables if one.get("properties", {}).get("kind") == {"const": value["kind"]}]
            assert set(value) <= set(own["properties"])
        elif CODE_KEY not in value:
            assert set(value) <= set(tables[-1]["propertyNames"]["enum"])
