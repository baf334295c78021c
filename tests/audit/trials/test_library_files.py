"""Whose a file is: an installed package whose source lies in the working folder is the user's."""

import importlib
import json
import shutil
import uuid

import jax
import pytest

import guarantees
import mechanisms
from audit.diagnosis.explain import explain
from audit.diagnosis.explain.in_records import shortened
from audit.trials.library_files import is_library, relative

NOISE = """import jax


def add_noise(key, total, bound, multiplier):
    deviation = (bound * multiplier) ** 0.5
    return total + deviation * jax.random.normal(key, total.shape)


def step(key, rows):
    factors = jax.numpy.minimum(1.0, 4.0 / jax.numpy.linalg.norm(rows, axis=1))
    return add_noise(key, factors @ rows, 4.0, 1.0)
"""


@pytest.fixture(params=["", "src", "packages/one", "packages/one/src"])
def project(tmp_path, monkeypatch, request):
    """A project in the working folder, and the folder that it was installed into."""
    name = f"veiled_{uuid.uuid4().hex}"
    site = tmp_path / ".venv" / "lib" / "python3.11" / "site-packages"
    own = tmp_path / request.param / name
    own.mkdir(parents=True)
    (own / "noise.py").write_text(NOISE)
    shutil.copytree(own, site / name)
    if request.param.startswith("packages"):
        (site / f"{name}-1.0.dist-info").mkdir()
        told = json.dumps({"url": (tmp_path / "packages" / "one").as_uri(), "dir_info": {}})
        (site / f"{name}-1.0.dist-info" / "direct_url.json").write_text(told)
    monkeypatch.chdir(tmp_path)
    return own / "noise.py", site / name / "noise.py"


def test_an_installed_copy_of_the_working_folders_package_is_the_users_and_is_shown_there(project):
    own, installed = project
    assert not is_library(str(installed))
    assert relative(str(installed)) == str(own.relative_to(own.cwd()))


def test_a_copy_that_is_older_than_its_source_is_the_users_and_shown_where_it_ran(project):
    own, installed = project
    own.write_text(f"# later\n{NOISE}")
    assert not is_library(str(installed))
    assert relative(str(installed)) == str(installed.relative_to(installed.cwd()))


def test_other_installed_packages_are_libraries(project):
    own, installed = project
    own.unlink()
    assert is_library(str(installed))
    assert shortened((str(installed), 3)) == (f"{installed.parent.name}/noise.py", 3)


def test_lines_of_an_installed_copy_are_told_as_of_the_source(project, monkeypatch):
    own, installed = project
    monkeypatch.syspath_prepend(str(installed.parents[1]))
    module = importlib.import_module(f"{installed.parent.name}.noise")
    pair = mechanisms.worst_case_pair(records=3, dimension=2, clip=4.0)
    told = explain(module.step, pair, key=jax.random.key(0), clip=4.0, claim=guarantees.gaussian(mu=1.0))
    (finding,) = told.suspicions
    assert "From what the function" in finding.says
    assert shortened(finding.lines[0]) == (str(own.relative_to(own.cwd())), 6)
    assert "site-packages" not in str(told)
