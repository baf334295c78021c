"""The built wheel in an empty environment: command line, plugin, and other people's packages with our names."""

import dataclasses
import hashlib
import os
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tools.build_wheel import build, working

NO_INDEX = ("No matching distribution", "Could not find a version", "NewConnectionError", "error sending request")

INNER = """
import guarantees
import mechanisms

def audit(dp_audit, noise):
    step = mechanisms.gaussian_mechanism(noise_multiplier=noise)
    dp_audit(step, mechanisms.scalar_pair(), claim=guarantees.gaussian(mu=1.0), trials=2000)

def test_right(dp_audit):
    audit(dp_audit, 1.0)

def test_wrong(dp_audit):
    audit(dp_audit, 0.3)
"""


def call(*words, where, code=0):
    own = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTEST_ADDOPTS")}
    done = subprocess.run([str(word) for word in words], cwd=where, env=own, capture_output=True, text=True)
    if done.returncode != 0 and any(sign in done.stdout + done.stderr for sign in NO_INDEX):
        pytest.skip("no package index can be reached")
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("setuptools", "77")
    return build(working(), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment with the wheel and pytest, and nothing else that was not asked for."""
    where = tmp_path_factory.mktemp("installed")
    venv.create(where / "env", with_pip=True)
    call(where / "env/bin/python", "-m", "pip", "install", "-q", wheel, "pytest", where=where)
    return where / "env" / "bin"


@pytest.fixture
def neighbour(wheel, tmp_path):
    """A fresh environment with the wheel in its site-packages and the libraries behind it, and an empty project."""
    env = tmp_path / "env"
    venv.create(env, with_pip=False)
    (site,) = env.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # a path that is added so is searched last, and its own .pth files, such as our checkout's, are not read
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    project = tmp_path / "project"
    project.mkdir()
    return Neighbour(python=env / "bin" / "python", site=site, project=project)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Neighbour:
    """Somebody's project, and the environment that it shares with us."""

    python: Path
    site: Path
    project: Path

    def pytest(self, *words, code=0):
        return call(
            self.python, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, where=self.project, code=code
        )


@pytest.mark.long
def test_the_command_line_works_from_the_wheel(installed, tmp_path):
    assert "run an audit suite" in call(installed / "dpsgd-audit", "--help", where=tmp_path)
    assert "likelihood_ratio" in call(installed / "dpsgd-audit", "list", where=tmp_path)
    assert '"$defs"' in call(installed / "dpsgd-audit", "list", "--schema", where=tmp_path)
    call(installed / "dpsgd-audit", "run", "--out", "out", where=tmp_path, code=0)
    assert (tmp_path / "out" / "index.html").exists()


@pytest.mark.long
def test_the_plugin_works_from_the_wheel(installed, tmp_path):
    (tmp_path / "test_privacy.py").write_text(INNER)
    told = call(installed / "pytest", "-q", where=tmp_path, code=1)
    assert "1 failed, 1 passed" in told
    assert "test_wrong: violation" in told


THEIRS = "LEDGER = 'the project of somebody else'\n"
USES_THEIRS = """
import sys
import audit

def test_ours_is_nowhere():
    assert audit.LEDGER == "the project of somebody else"
    assert not {"mechanisms", "distinguishers", "guarantees", "jax"} & set(sys.modules)
"""
USES_BOTH = """
import audit

def test_both(dp_audit):
    pass
"""


def project_with_its_own(place, folder="."):
    (place / folder / "audit").mkdir(parents=True)
    (place / folder / "audit" / "__init__.py").write_text(THEIRS)
    (place / folder / "audit" / "ledger.py").write_text(THEIRS)


@pytest.mark.long
@pytest.mark.parametrize("folder", [".", "src"])
def test_a_project_with_its_own_audit_gets_its_own(neighbour, folder):
    """Flat layout, and ``pythonpath = src``."""
    project_with_its_own(neighbour.project, folder)
    (neighbour.project / "pytest.ini").write_text(f"[pytest]\npythonpath = {folder}\n")
    (neighbour.project / "test_theirs.py").write_text(USES_THEIRS)
    assert "1 passed" in neighbour.pytest()
    assert "--dp-audit-trials" in neighbour.pytest("--help")
    (neighbour.project / "test_theirs.py").write_text(USES_BOTH)
    told = neighbour.pytest(code=1)
    assert f"`import audit` gives {neighbour.project / folder / 'audit/__init__.py'}" in os.path.normpath(told)
    assert "rename yours" in told


@pytest.mark.long
def test_where_python_finds_ours_first_it_says_so(neighbour):
    """An editable installation in src layout: its folder comes after site-packages."""
    project_with_its_own(neighbour.project, "src")
    (neighbour.site / "zz_theirs.pth").write_text(str(neighbour.project / "src"))
    for line in ("import audit.ledger", "from audit.ledger import LEDGER", "from audit import LEDGER"):
        told = call(neighbour.python, "-c", line, where=neighbour.project, code=1)
        assert f"Another audit is at {neighbour.project}/src/audit/__init__.py" in told
        assert "rename yours" in told
    call(neighbour.python, "-c", "from audit import conformance, suites", where=neighbour.project)
    assert "AttributeError" in call(neighbour.python, "-c", "import audit; audit._x", where=neighbour.project, code=1)


@pytest.mark.long
def test_a_distribution_installed_over_ours_is_named(neighbour):
    (neighbour.site / "audit" / "__init__.py").write_text(THEIRS)
    other = neighbour.site / "ledger-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: ledger\nVersion: 1.0\n")
    (other / "top_level.txt").write_text("audit\n")
    (other / "RECORD").write_text("audit/__init__.py,,\n")
    told = call(neighbour.python, "-m", "dpsgd_audit", "list", where=neighbour.project, code=2)
    assert f"gives {neighbour.site / 'audit/__init__.py'}" in told
    assert "ledger was installed over it" in told
    # it would raise the same
    assert "from dpsgd_audit import" not in told


@pytest.mark.long
def test_a_distribution_that_ours_was_installed_over_is_named(neighbour):
    other = neighbour.site / "ledger-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: ledger\nVersion: 1.0\n")
    (other / "top_level.txt").write_text("audit\n")
    told = call(neighbour.python, "-c", "import audit; audit.VERSION", where=neighbour.project, code=1)
    assert f"audit ({neighbour.site / 'audit/__init__.py'}) has no 'VERSION'" in told
    assert "it was installed over that of ledger" in told


@pytest.mark.long
def test_a_strangers_mechanisms_is_named_when_ours_needs_it(neighbour):
    (neighbour.project / "mechanisms.py").write_text("gears = 3\n")
    told = call(neighbour.python, "-c", "import audit; audit.run_audit", where=neighbour.project, code=1)
    assert f"`import mechanisms` gives {neighbour.project / 'mechanisms.py'}" in told


def test_the_wheel_holds_the_packages_with_their_types_and_no_papers(wheel):
    with zipfile.ZipFile(wheel) as archive:
        kept = set(archive.namelist())
    for package in ("audit", "mechanisms", "distinguishers", "guarantees"):
        assert {f"{package}/py.typed", f"{package}/__init__.pyi"} <= kept
    assert not [name for name in kept if name.startswith("papers/")]


@pytest.mark.long
def test_the_wheel_is_the_same_bytes_whoever_builds_it(wheel, tmp_path):
    again = tmp_path / "again"
    before = os.umask(0o077)
    try:
        other = build(working(), again)
    finally:
        os.umask(before)
    assert hashlib.sha256(other.read_bytes()).digest() == hashlib.sha256(wheel.read_bytes()).digest()
