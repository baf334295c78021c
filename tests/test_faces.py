"""What the four packages show: to Python, to a reader, and to an editor."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import itertools
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

import audit
import distinguishers
import guarantees
import mechanisms

ROOT = Path(__file__).parents[1]
FACES = (audit, distinguishers, guarantees, mechanisms)
INNER = (audit.bounds, guarantees.normalised, guarantees.shuffling)
"""Faces behind a face: what a paper's arithmetic needs and most audits do not."""
PROTOCOLS = (audit.Policy,)
NAMES = [(package, name) for package in (*FACES, *INNER) for name in dir(package)]
TWICE = {"max_coordinate"}
"""A claim and a distinguisher: the two are the sides of one statistic, and their packages say which is meant."""
MOST = 110
"""Public names of the four packages; one more has to push another off the face."""


def is_explained(name: str, module: str) -> bool:
    """Whether a docstring stands below the constant, where it is assigned or where it comes from."""
    body = ast.parse(inspect.getsource(importlib.import_module(module))).body
    for node, later in itertools.pairwise(body):
        if assigns(node, name):
            return isinstance(later, ast.Expr)
        for alias in node.names if isinstance(node, ast.ImportFrom) else []:
            if name == (alias.asname or alias.name):
                return is_explained(alias.name, str(node.module))
    return False


def is_constant(thing: object) -> bool:
    """Tuples, tables, and the aliases and unions of types."""
    return not (inspect.isclass(thing) or inspect.isroutine(thing))


@pytest.mark.parametrize(("package", "name"), NAMES, ids=lambda part: getattr(part, "__name__", part))
def test_a_public_name_has_a_docstring_and_a_signature(package, name):
    thing = getattr(package, name)
    if inspect.ismodule(thing):
        assert thing.__doc__
        return
    if is_constant(thing):
        assert is_explained(name, package.__dict__["_homes"][name]), f"{name} has no docstring below it"
        return
    assert said(thing), f"{name} has no docstring of its own"
    if inspect.isclass(thing):
        for part, member in vars(thing).items():
            if not part.startswith("_") and isinstance(member, property | types.FunctionType):
                assert said(member), f"{name}.{part} has no docstring"
    if inspect.isclass(thing) and (issubclass(thing, tuple | Exception) or thing in PROTOCOLS):
        return
    signature = inspect.signature(thing)
    bare = [own.name for own in signature.parameters.values() if own.annotation is own.empty]
    assert not bare, f"{name}: no type for {bare}"
    assert inspect.isclass(thing) or signature.return_annotation is not signature.empty


def assigns(node: ast.stmt, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def said(thing: object) -> bool:
    """A dataclass without a docstring is given its signature as one."""
    text = thing.__doc__ or ""
    return bool(text) and not text.startswith(f"{getattr(thing, '__name__', '')}(")


def test_a_user_is_offered_what_the_documents_name_and_nothing_of_the_inside():
    assert {"compare", "write_report", "noise_tails", "Execution", "Policy"} <= set(dir(audit))
    assert not {"prepare", "materialise", "read_idx"} & set(dir(mechanisms))
    with pytest.raises(AttributeError, match="module 'mechanisms' has no attribute 'prepare'"):
        _ = mechanisms.prepare


def test_the_faces_stay_small_enough_to_hold_in_the_head():
    assert sum(len(dir(package)) for package in FACES) <= MOST


def test_no_two_names_of_a_face_differ_by_case_alone():
    for package in (*FACES, *INNER):
        spoken = [name.replace("_", "").lower() for name in dir(package)]
        assert sorted(set(spoken)) == sorted(spoken), package.__name__


def test_a_name_means_one_thing_in_all_packages():
    names = [name for package in FACES for name in dir(package)]
    assert {name for name in names if names.count(name) > 1} == TWICE


@pytest.mark.parametrize(
    ("package", "name", "place"),
    [
        (guarantees, "edgeworth_cdf", "guarantees.shuffling"),
        (audit, "joint_p_value", "audit.bounds"),
        (mechanisms, "OneRound", "mechanisms.simulators.one_round"),
        (guarantees, "mu_star", "guarantees.summary"),
    ],
)
def test_who_asks_a_face_for_what_is_behind_it_is_told_the_place(package, name, place):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; it is in {place}$"):
        getattr(package, name)
    assert hasattr(importlib.import_module(place), name)


@pytest.mark.parametrize(
    ("package", "name", "meant"),
    [(guarantees, "subsampled_gausian", "subsampled_gaussian"), (mechanisms, "worst_pair", "worst_case_pair")],
)
def test_a_misspelt_name_is_answered_by_the_one_that_is_meant(package, name, meant):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; did you mean '{meant}'\?$"):
        getattr(package, name)


def test_a_misspelt_keyword_is_answered_by_the_one_that_is_meant():
    with pytest.raises(TypeError, match=r"subsampled_gaussian\(\) got an unexpected .*'noise_multipler'; did you mean"):
        guarantees.subsampled_gaussian(rate=0.5, noise_multipler=1.0)
    with pytest.raises(TypeError, match=r"'colour'; it takes rate, noise_multiplier, relation, group\."):
        guarantees.subsampled_gaussian(rate=0.5, colour=1.0)


@pytest.mark.long
def test_the_rooms_behind_a_face_need_no_import_of_their_own():
    code = "import mechanisms, guarantees, audit; mechanisms.sampling.poisson; mechanisms.canaries.blank; "
    code += "guarantees.shuffling.edgeworth_cdf; guarantees.normalised.clt_bound; audit.bounds.joint_p_value"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_public_name_stands_above_the_module_that_shares_it():
    importlib.import_module("audit.one_run")
    importlib.import_module("distinguishers.battery")
    assert inspect.isfunction(audit.one_run)
    assert inspect.isfunction(distinguishers.battery)


def test_importing_the_packages_imports_nothing_heavy():
    code = "import sys, audit, mechanisms, distinguishers, guarantees; "
    code += "assert not {'jax', 'numpy', 'scipy', 'flax', 'optax', 'matplotlib'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


EDITOR = """
import audit, distinguishers, guarantees, mechanisms

step = mechanisms.one_round(normalise_by="none", rate=0.5, clip=1.0, noise_multiplier=1.0)
reveal_type(step)
reveal_type(step.collapsed())
reveal_type(mechanisms.opacus_step(batch_size=2, clip=1.0, noise_multiplier=1.0).coordinates)
reveal_type(guarantees.gaussian(mu=1.0))
reveal_type(distinguishers.battery(mechanisms.scalar_pair()))
reveal_type(audit.load_records)
mechanisms.one_round(normalise_by="nothing", rate=0.5, clip=1.0, noise_multiplier=1.0)
mechanisms.optax_step(clip=1.0, noise_multiplier=1.0, noise=1.0)
audit.run_audits
"""
SEEN = [
    'Type of "step" is "OneRound"',
    'Type of "step.collapsed()" is "CollapsedRound"',
    'is "int | None"',
    'is "Claim"',
    'is "Battery"',
    "AuditRecord",
    '"Literal[\'nothing\']" is not assignable to type "Normaliser"',
    'No parameter named "noise"',
    '"run_audits" is not a known attribute of module "audit"',
]


@pytest.mark.long
def test_an_editor_sees_signatures_and_types(tmp_path):
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("needs basedpyright")
    (tmp_path / "user.py").write_text(EDITOR)
    settings = {"include": ["user.py"], "extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    words = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*words, "-p", str(tmp_path)], cwd=tmp_path, capture_output=True, text=True)
    told = "\n".join(found["message"] for found in json.loads(done.stdout)["generalDiagnostics"])
    assert [line for line in SEEN if line not in told] == [], told
