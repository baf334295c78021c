"""The built wheel in an empty environment: command line and plugin."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("audit", "mechanisms", "distinguishers", "guarantees")
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
    done = subprocess.run([str(word) for word in words], cwd=where, capture_output=True, text=True)
    if done.returncode != 0 and any(sign in done.stdout + done.stderr for sign in NO_INDEX):
        pytest.skip("no package index can be reached")
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment with the wheel and pytest, and nothing else that was not asked for."""
    base = Path(sys.base_prefix) / "bin" / "python3"
    where = tmp_path_factory.mktemp("wheel")
    source = where / "source"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    if subprocess.run([base, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        pytest.skip("building a wheel needs pip")
    call(base, "-m", "pip", "wheel", "-q", "--no-deps", "-w", where, source, where=where)
    (wheel,) = where.glob("dpsgd_audit-*.whl")
    call(base, "-m", "venv", where / "env", where=where)
    call(where / "env/bin/python", "-m", "pip", "install", "-q", wheel, "pytest", where=where)
    return where / "env" / "bin"


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
