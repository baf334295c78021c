"""The audit of the field: its suite, its glue and its page belong together. Nothing is installed here."""

import ast
import dataclasses
import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest
from made_records import suite_of_policies

from audit.record.stored import save_records
from audit.suites.read import read_suite

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "field"
SUITE = read_suite(ROOT / "suites" / "field.toml")


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location("field_table", FOLDER / "table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_names_a_function_of_the_glue():
    for spec in SUITE.audits:
        if spec.mechanism["kind"] != "command_step":
            continue
        file, name = spec.mechanism["command"][-1].split(":")
        tree = ast.parse((FOLDER / f"{file}.py").read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, spec.name
        assert spec.mechanism["packages"], spec.name


def test_every_finding_has_a_control_and_a_public_source(table):
    known = table.entries()
    named = {spec.name: spec.name.partition(":")[0] for spec in SUITE.audits}
    assert set(named.values()) == set(known)
    for spec in SUITE.audits:
        if spec.expect == "violation":
            others = [other for other in SUITE.audits if named[other.name] == named[spec.name]]
            assert any(other.expect == "no_violation_found" for other in others), spec.name
            assert known[named[spec.name]]["public"].startswith("https://"), spec.name


def test_every_environment_is_pinned():
    tables = tomllib.loads((ROOT / "suites" / "field.toml").read_text())["environments"]
    for name, table in tables.items():
        assert "==" in table["packages"][0], name


def test_the_tables_are_made_from_records(table, tmp_path, monkeypatch):
    ran = suite_of_policies(["from theory", "right"])
    records = tuple(
        dataclasses.replace(record, name=f"{name}: a step")
        for record, name in zip(ran, ("Opacus", "OpenDP"), strict=True)
    )
    text = table.tables(records)
    assert "| Opacus: a step | **violation** |" in text
    assert "| 200 | `gaussian(mu=1.0)` |" in text
    assert "- public: https://" in text
    assert text.count("<details") == text.count("</details>") == len({"Opacus", "OpenDP"})
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nwhat was here\n{table.END}\nafter\n")
    save_records(records, tmp_path / "records.json")
    monkeypatch.setattr(sys, "argv", ["table.py", str(tmp_path / "records.json"), "--write", str(page)])
    table.main()
    written = page.read_text()
    assert text in written
    assert written.startswith("before")
    assert written.endswith("after\n")
    assert "what was here" not in written


@pytest.mark.parametrize(
    ("diagnosis", "cell"),
    [
        (
            "the noise is 0.8 times (0.79 to 0.82) as large (deviation 2): it depends.",
            "the noise is 0.8 times as large",
        ),
        (
            "a.py:102: A value meets data at a.py:102 (a number): noise does not.",
            "a.py:102: A value meets data at a.py:102",
        ),
        ("no cause was found.", "no cause was found."),
        ("", ""),
    ],
)
def test_a_cell_says_what_was_seen(table, diagnosis, cell):
    assert table._brief(diagnosis) == cell
