"""The notebooks: kept with what they show, and running as they stand with fewer trials."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
FEWER = {
    "quickstart": {"TRIALS": 400, "MOST_TRIALS": 1000},
    "normalisation": {"TRIALS": 400, "DRAWS": 100},
    "shuffling": {"TRIALS": 400, "ROUNDS": 10, "NOISES": (0.8, 1.0)},
    "reporting": {"STEPS": 10, "RATES": (0.1,)},
    "opacus": {"TRIALS": 40, "STEP_TRIALS": 200},
    "flax": {"TRIALS": 200},
    "distinguisher": {"TRIALS": 400, "REPETITIONS": 4},
    "one_run": {"CANARIES": 100, "SIZES": (50, 100)},
    "lora": {"CANARIES": 200, "TEXT": 50, "STEPS": 8},
}
"""What the tests put in place of each notebook's parameters."""
LARGEST = 300_000
OF_A_MACHINE = re.compile(r"(?<![\w:/.])/(?:bin|home|mnt|opt|private|root|srv|tmp|usr|Users|var|work)/|[A-Z]:\\| at 0x")
OURS = ("audit", "distinguishers", "guarantees", "mechanisms")
PUBLIC_MODULES = {"mechanisms.sampling"}
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def cells(name, kind):
    stored = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return [cell for cell in stored if cell["cell_type"] == kind]


def text(lines):
    return "".join(lines)


def test_these_are_the_notebooks():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(FEWER)


def test_what_belongs_to_one_machine_is_seen():
    assert all(map(OF_A_MACHINE.search, ("in /home/me/x.py", "<f at 0x7f3a>", "C:\\data", "/tmp/out")))
    assert not any(map(OF_A_MACHINE.search, ("docs/work/x", "https://a.b/usr/c", "alpha / beta", "at 0.05")))


@pytest.mark.parametrize("name", FEWER)
def test_a_notebook_is_kept_with_what_it_shows(name):
    code = cells(name, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    shown = [output["data"] for output in outputs if "data" in output]
    assert sum("image/png" in data for data in shown) >= 2
    words = [text(output.get("text", "")) for output in outputs] + [text(data.get("text/plain", "")) for data in shown]
    assert not [said for said in words if OF_A_MACHINE.search(said)]
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size < LARGEST


@pytest.mark.parametrize("name", FEWER)
def test_a_notebook_uses_public_names_and_has_parameters(name):
    code = cells(name, "code")
    (parameters,) = (cell for cell in code if "parameters" in cell["metadata"].get("tags", ()))
    named = {target.id for node in ast.parse(text(parameters["source"])).body for target in node.targets}
    assert named == set(FEWER[name])
    for node in ast.walk(ast.parse("\n".join(text(cell["source"]) for cell in code))):
        if isinstance(node, ast.Import):
            imported = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported = {f"{node.module}.{alias.name}" for alias in node.names}
        else:
            continue
        deep = {each for each in imported if "." in each and each.split(".")[0] in OURS}
        assert deep <= PUBLIC_MODULES, f"{deep} is not on the packages' faces"


@pytest.mark.parametrize("name", FEWER)
def test_a_notebook_has_a_title_in_the_contents_and_links_that_lead_somewhere(name):
    prose = [text(cell["source"]) for cell in cells(name, "markdown")]
    assert prose[0].startswith("# ")
    contents = (NOTEBOOKS / "README.md").read_text()
    assert f"]({name}.ipynb)" in contents
    for link in LINK.findall("\n".join([*prose, contents])):
        assert (NOTEBOOKS / link).exists(), f"{name}: nothing at {link}"


@pytest.mark.long
@pytest.mark.parametrize("name", FEWER)
def test_a_notebook_runs_with_fewer_trials(name):
    pytest.importorskip("nbclient", reason="nbclient is not installed: pip install dpsgd-audit[dev]")
    if name == "opacus":
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")
        pytest.importorskip("opacus", reason="Opacus is not installed: pip install dpsgd-audit[opacus]")
    from tools.run_notebooks import executed

    done = executed(NOTEBOOKS / f"{name}.ipynb", FEWER[name])
    assert all(cell.execution_count for cell in done.cells if cell.cell_type == "code")
