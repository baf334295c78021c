"""Commands that only compute need nothing heavy and no extras; a way in where another package has one of our names."""

import atexit
import dataclasses
import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_records import explained, made

from audit.policies.catalogue import POLICIES
from audit.record.record import SuitePart
from audit.record.stored import load_records, save_records
from dpsgd_audit.__main__ import main

ROOT = Path(__file__).parents[3]
WITHOUT = ("jax", "flax", "optax", "matplotlib", "statsmodels", "torch", "pandas", "scipy.stats")
COMMANDS = """
import contextlib, io, sys
sys.path.insert(0, {root!r})
from audit.cli import main
for line in {lines!r}:
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(line.split()) != 2, line
    found = [name for name in {without!r} if name in sys.modules]
    assert not found, (line, found)
"""


def run(code, **more):
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, **more)


def test_bound_claim_and_report_import_nothing_heavy(tmp_path):
    for name, mean in (("a", 0.0), ("b", 1.0)):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(1).normal(mean, 1.0, 200))
    records = ROOT / "tests" / "data" / "records.json"
    # a page says how many trials would find half of the noise missing, which takes seconds for the first, by rectangles
    save_records(load_records(records)[1:], tmp_path / "two.json")
    lines = [
        f"bound --without {tmp_path}/a.npy --with {tmp_path}/b.npy",
        f"bound --without {tmp_path}/a.npy --with {tmp_path}/b.npy --claim gaussian(mu=1) --out {tmp_path}/o",
        "claim gaussian(mu=1)",
        *(f"report {records} --format {each} --out {tmp_path}/o.{each}" for each in ("latex", "text")),
        f"report {tmp_path}/two.json --format html --out {tmp_path}/o.html",
    ]
    done = run(COMMANDS.format(root=str(ROOT), lines=lines, without=(*WITHOUT, "scipy.fft", "scipy.optimize")))
    assert done.returncode == 0, done.stderr


def test_verify_imports_nothing_heavy(tmp_path):
    """Exact curves among what it computes again: building the distinguisher that knows one takes no JAX."""
    by_rectangles = POLICIES["from_theory"](method="rectangle")
    record = explained(made("one", by_rectangles, suite=SuitePart(risk=0.05, audits=1, seed=3)))
    assert record.theory is not None
    part = dataclasses.replace(record.distinguisher, name="battery", parameters={"members": ["one"]})
    without_curve = dataclasses.replace(record, theory=None, exact_epsilon=None, distinguisher=part)
    save_records([record], tmp_path / "exact.json")
    save_records([without_curve], tmp_path / "learnt.json")
    # bands and powers are made again, which takes distributions
    without = tuple(name for name in WITHOUT if name != "scipy.stats")
    lines = [f"verify {tmp_path}/{name}.json" for name in ("learnt", "exact")]
    done = run(COMMANDS.format(root=str(ROOT), lines=lines, without=without))
    assert done.returncode == 0, done.stderr


CORE = """
import contextlib, importlib.machinery, io, sys
sys.path.insert(0, {root!r})
finder = importlib.machinery.PathFinder
found = finder.find_spec
extras = {extras!r}
finder.find_spec = lambda name, *more: None if name.partition(".")[0] in extras else found(name, *more)
import audit, distinguishers, guarantees, mechanisms
for package in (audit, distinguishers, guarantees, mechanisms):
    for name in dir(package):
        getattr(package, name)
from audit.cli import main
for line in {lines!r}:
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(line.split()) == 0, line
"""
EXTRAS = ("torch", "opacus", "jax_privacy", "dp_accounting", "distributed", "pytest")


@pytest.mark.long
def test_every_name_and_what_suites_can_name_are_there_without_the_extras():
    """`list` ended with "No module named 'torch'"."""
    done = run(CORE.format(root=str(ROOT), extras=EXTRAS, lines=["list", "list --json", "list --schema"]))
    assert done.returncode == 0, done.stderr


@pytest.fixture
def stranger(tmp_path):
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "__init__.py").write_text("theirs = True\n")
    return tmp_path


def in_front(stranger, code):
    return run(f"import sys\nsys.path[:0] = [{str(stranger)!r}, {str(ROOT)!r}]\n{code}", cwd=stranger)


def test_ours_can_be_had_by_our_own_name(stranger):
    done = in_front(
        stranger, "from dpsgd_audit import audit\nimport audit as same\nprint(same is audit, audit.__file__)"
    )
    assert done.stdout.split() == ["True", str(ROOT / "audit" / "__init__.py")], done.stderr


def test_not_where_theirs_is_in_use(stranger):
    done = in_front(stranger, "import audit\nfrom dpsgd_audit import audit")
    assert "which is not dpsgd-audit's audit" in done.stderr.splitlines()[-1]


PLUGIN = """
from dpsgd_audit import pytest_plugin
# an editable installation has a finder of its own, which would give ours
sys.meta_path[:] = [each for each in sys.meta_path if "editable" not in repr(each)]
pytest_plugin.name_clashes.explain()
"""


def test_a_module_that_only_ours_has_is_explained(stranger):
    done = in_front(stranger, f"{PLUGIN}from audit.conformance import SubsampledGaussianConformance")
    assert "which is not dpsgd-audit's audit" in done.stderr.splitlines()[-1]
    done = in_front(stranger, f"{PLUGIN}import audit.theirs_alone")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'audit.theirs_alone'"


def test_a_command_that_ends_does_not_look_through_what_it_imported(monkeypatch):
    at_exit, thresholds = [], gc.get_threshold()
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(sys, "argv", ["dpsgd-audit", "claim", "gaussian(mu=1)"])
    try:
        assert main() == 0
    finally:
        gc.set_threshold(*thresholds)
    assert gc.freeze in at_exit
