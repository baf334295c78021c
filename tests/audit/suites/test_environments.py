"""[environments] of a suite: made by `run --allow-install` alone, once, and kept by their content."""

import random
import sys
import textwrap

import numpy as np
import pytest

from audit.cli import main
from audit.record.stored import load_records
from audit.suites.build import build
from audit.suites.read import parse_suite, read_suite
from audit.suites.suite import SuiteError
from mechanisms.adapters import environments
from mechanisms.adapters.environments import Environment, NotInstalledError

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tinystep"
version = "1.0"
"""
BACKEND = '''
"""Builds the wheel of one module by hand: no build tool has to be downloaded."""
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "tinystep-1.0-py3-none-any.whl"
    about = "tinystep-1.0.dist-info"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.write("tinystep.py")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\\nName: tinystep\\nVersion: 1.0\\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        files = ["tinystep.py", f"{about}/METADATA", f"{about}/WHEEL", f"{about}/RECORD"]
        wheel.writestr(f"{about}/RECORD", "".join(f"{file},,\\n" for file in files))
    return name
'''
MODULE = """
import random

def noise(seed):
    return random.Random(seed).gauss(0.0, 1.0)
"""
SERVER = """
import struct, sys
import tinystep

read, write = sys.stdin.buffer.read, sys.stdout.buffer.write
while header := read(12):
    kind, count, width = struct.unpack("<4sII", header)
    if kind == b"DATA":
        data = struct.unpack(f"<{count * width}f", read(4 * count * width))
    else:
        for seed in struct.unpack(f"<{count}Q", read(8 * count)):
            write(struct.pack("<f", sum(data) + tinystep.noise(seed)))
        sys.stdout.buffer.flush()
"""
SUITE = """
trials = 40
[environments.tiny]
packages = ["{package}"]
[[audit]]
name = "a step of its own environment"
environment = "tiny"
mechanism = {{ kind = "command_step", command = ["python", "{server}"], outputs = 1, timeout = 60 }}
neighbours = "scalar_pair"
distinguisher = "projection"
policy = {{ kind = "fixed", thresholds = [0.5], method = "rectangle" }}
claim = {{ kind = "gaussian", mu = 1.0 }}
expect = "inconclusive"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package that needs nothing, a program that needs the package, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # an installer without an index: only what is here can be installed
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    package = tmp_path / "tinystep"
    package.mkdir()
    for name, text in (("pyproject.toml", PROJECT), ("backend.py", BACKEND), ("tinystep.py", MODULE)):
        (package / name).write_text(textwrap.dedent(text))
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "suite.toml").write_text(SUITE.format(package=package, server=tmp_path / "server.py"))
    return tmp_path


def run(folder, *words):
    return main(["run", str(folder / "suite.toml"), "--out", str(folder / "out"), *words])


def made(folder):
    return sorted((folder / "cache" / "dpsgd-audit").glob("environment-*"))


def test_a_suite_installs_once_and_says_so(folder, capsys, monkeypatch):
    assert run(folder) == 2
    assert "run the suite with --allow-install" in capsys.readouterr().err
    assert made(folder) == []
    assert run(folder, "--allow-install") == 0
    assert f"installing {folder}/tinystep (Python 3." in capsys.readouterr().err
    (place,) = made(folder)
    (record,) = load_records(folder / "out" / "records.json")
    assert record.mechanism.parameters["packages"] == [str(folder / "tinystep")]
    # afterwards no installer is needed, and none is asked
    monkeypatch.setattr(environments.subprocess, "run", None)
    (spec,) = read_suite(folder / "suite.toml").audits
    step = build(spec).mechanism
    seeds = np.arange(3, dtype=np.uint64)
    drawn = [random.Random(seed).gauss(0.0, 1.0) for seed in range(3)]
    np.testing.assert_allclose(step.prepare([[0.0]])(seeds)[:, 0], drawn, rtol=1e-6)
    (folder / "tinystep" / "tinystep.py").write_text(MODULE + "\n")
    assert Environment(packages=(str(folder / "tinystep"),)).folder != place


def test_nothing_but_a_run_installs(folder, capsys):
    suite = str(folder / "suite.toml")
    assert run(folder, "--keep-going", "--quiet") == 2
    records = str(folder / "out" / "records.json")
    for words in (
        ["plan", suite, "--run-code"],
        ["verify", records, "--rerun", "1", "--suite", suite],
        ["report", records, "--format", "text"],
        ["explain", suite],
    ):
        main(words)
    assert made(folder) == []
    (record,) = load_records(records)
    assert record.verdict == "could_not_run"
    assert "--allow-install" in record.reason


def test_what_cannot_be_installed_could_not_run(folder):
    text = (folder / "suite.toml").read_text()
    (folder / "suite.toml").write_text(text.replace(f'"{folder}/tinystep"', '"no-such-package==1.0"'))
    assert run(folder, "--allow-install", "--keep-going", "--quiet") == 2
    (record,) = load_records(folder / "out" / "records.json")
    assert record.verdict == "could_not_run"
    assert "installing no-such-package==1.0 (Python 3." in record.reason
    assert made(folder) == []


def test_what_cannot_be_imported_could_not_run(folder):
    (folder / "server.py").write_text("import no_such_module")
    assert run(folder, "--allow-install", "--keep-going", "--quiet") == 2
    (record,) = load_records(folder / "out" / "records.json")
    assert "on the side 'without' of command_step" in record.reason
    assert " failed: ModuleNotFoundError: No module named 'no_such_module' (at " in record.reason
    assert record.reason.endswith("server.py:1).")


def test_without_uv_venv_and_pip_do(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(environments.shutil, "which", lambda name: None)
    monkeypatch.setattr(environments, "_run", lambda command, _: asked.append(command))
    environment = Environment(packages=("a==1",))
    with pytest.raises(FileNotFoundError):
        environment.install()
    assert [command[1:3] for command in asked] == [["-m", "venv"], ["-m", "pip"]]
    assert asked[0][0] == sys.executable
    with pytest.raises(NotInstalledError, match=r"needs Python 3\.7, which is not installed; install it, or uv"):
        Environment(packages=("a==1",), python="3.7").install()


def test_opacus_versions_are_kept_in_the_same_way(folder):
    import mechanisms

    step = mechanisms.opacus_step(batch_size=2, clip=1.0, noise_multiplier=1.0, version="1.5.4", workers=1)
    assert step.installs == Environment(packages=("opacus==1.5.4",), beside=True)
    with pytest.raises(NotInstalledError, match=r"opacus==1\.5\.4 .* is not installed"):
        step.prepare([[1.0]])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ('packages = "a"', "needs packages, a list"),
        ("packages = []", "needs packages, a list"),
        ('packages = ["a"]\npython = 3.11', 'is written like "3.11"'),
        ('packages = ["a"]\npyhton = "3.11"', "did you mean 'python'"),
        ('packages = ["a"]\n[environments.tin]\npackages = ["a"]', None),
    ],
)
def test_wrong_tables_are_refused_with_their_line(wrong, says):
    text = SUITE.format(package="a", server="s").replace('packages = ["a"]', wrong)
    if says is None:
        assert parse_suite(text, "suite.toml").audits
        return
    with pytest.raises(SuiteError, match=rf"suite.toml:\d+: .*{says}"):
        parse_suite(text, "suite.toml")


def test_wrong_uses_are_refused_with_their_line():
    text = SUITE.format(package="a", server="s")
    with pytest.raises(SuiteError, match=r"suite.toml:7: there is no \[environments.tinny\] \(did you mean 'tiny'"):
        parse_suite(text.replace('environment = "tiny"', 'environment = "tinny"'), "suite.toml")
    with pytest.raises(SuiteError, match=r"only a command_step runs in an environment"):
        parse_suite(text.replace('kind = "command_step", command', 'kind = "callable_step", command'), "suite.toml")
    with pytest.raises(ValueError, match="not options of an installer"):
        Environment(packages=("--index-url=x",))
