"""The GitHub action: its steps are shell scripts, which run here as the runner would run them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
needs_command = pytest.mark.skipif(
    shutil.which("dpsgd-audit", path=PATH) is None, reason="the command dpsgd-audit is not installed: pip install -e ."
)
SUITE = """
[[audit]]
name = "halved"
mechanism = {{ kind = "gaussian_mechanism", noise_multiplier = 1.0 }}
neighbours = {{ kind = "scalar_pair" }}
distinguisher = "likelihood_ratio"
claim = {{ kind = "gaussian", mu = {mu} }}
trials = 4000
"""


def audit(folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", ROOT / ".github/action/audit.sh"],
        cwd=folder,
        env={**os.environ, "PATH": PATH, "REPORT": "report", **given},
        capture_output=True,
        text=True,
        check=False,
    )


@needs_command
@pytest.mark.few(1)
@pytest.mark.parametrize(("mu", "code"), [(1.0, 0), (0.4, 1)])
def test_a_suite_s_exit_code_is_the_action_s(tmp_path, mu, code):
    (tmp_path / "s.toml").write_text(SUITE.format(mu=mu))
    done = audit(tmp_path, SUITE="s.toml", OPTIONS="--confidence 0.99")
    assert done.returncode == code, done.stderr
    assert {"index.html", "records.json", "junit.xml", "audit.sarif"} <= {
        path.name for path in (tmp_path / "report").iterdir()
    }


@needs_command
@pytest.mark.long
def test_a_baseline_is_compared_with_a_run_under_another_seed(tmp_path):
    (tmp_path / "s.toml").write_text(SUITE.format(mu=1.0))
    assert audit(tmp_path, SUITE="s.toml", REPORT="first").returncode == 0
    # a fresh seed every time: the claim holds exactly and is refuted by chance at the suite's risk
    done = audit(tmp_path, SUITE="s.toml", BASELINE="first/records.json", OPTIONS="--confidence 0.999999")
    assert done.returncode == 0, done.stderr
    assert "no change shown" in done.stdout
    assert "same key" not in done.stdout
    worse = SUITE.format(mu=1.0).replace("noise_multiplier = 1.0", "noise_multiplier = 0.7")
    (tmp_path / "s.toml").write_text(worse + 'expect = "violation"\n')
    done = audit(tmp_path, SUITE="s.toml", BASELINE="first/records.json")
    assert done.returncode == 1
    assert "worse" in done.stdout


@pytest.mark.parametrize(("given", "confidence"), [({}, "0.999"), ({"COMPARE_CONFIDENCE": "0.9999"}, "0.9999")])
def test_the_confidence_of_the_comparison_is_an_input(tmp_path, given, confidence):
    (tmp_path / "dpsgd-audit").write_text(
        '#!/usr/bin/env bash\necho "$@"\nif [[ $1 == run ]]; then mkdir report && touch report/audit.sarif; fi\n'
    )
    (tmp_path / "dpsgd-audit").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = audit(tmp_path, SUITE="s.toml", BASELINE="b.json", PATH=path, **given)
    assert done.stdout.splitlines()[-1] == f"compare b.json report/records.json --confidence {confidence}"


LOG = "--sarif report/audit.sarif"
KNOWN = f"{LOG} --records report/records.json"
SAYS = """#!/usr/bin/env bash
echo "$1"
if [[ "$1" == run && ${RUN:-0} -ne 2 ]]; then mkdir -p report && touch report/audit.sarif; fi
if [[ "$1" == explain ]]; then echo "${@:3}"; fi
case "$1" in run) exit ${RUN:-0} ;; compare) exit ${COMPARED:-0} ;; explain) exit ${LOOKED:-0} ;; esac
"""


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("given", "ran", "code"),
    [
        ({}, "run", 0),
        ({"EXPLAIN": "yes"}, f"run explain {KNOWN}", 0),
        ({"EXPLAIN": "yes", "LOOKED": "1"}, f"run explain {KNOWN}", 1),
        ({"EXPLAIN": "yes", "LOOKED": "4"}, f"run explain {KNOWN}", 0),
        ({"EXPLAIN": "strict", "LOOKED": "4"}, f"run explain {KNOWN}", 4),
        ({"EXPLAIN": "yes", "RUN": "3", "LOOKED": "1"}, f"run explain {KNOWN}", 1),
        ({"EXPLAIN": "yes", "RUN": "3", "LOOKED": "4"}, f"run explain {KNOWN}", 3),
        ({"EXPLAIN": "strict", "RUN": "3", "LOOKED": "4"}, f"run explain {KNOWN}", 3),
        ({"BASELINE": "b.json", "RUN": "3", "COMPARED": "1"}, "run compare", 1),
        ({"EXPLAIN": "yes", "RUN": "2", "LOOKED": "1"}, f"run explain {LOG}", 2),
        ({"EXPLAIN": "yes", "BASELINE": "b.json", "COMPARED": "1"}, f"run compare explain {KNOWN}", 1),
        ({"BASELINE": "b.json", "RUN": "1", "COMPARED": "4"}, "run compare", 1),
        ({"BASELINE": "b.json", "RUN": "2"}, "run", 2),
        ({"EXPLAIN": "maybe"}, "", 2),
        ({"EXPLAIN": "yes", "SUITE": "", "PYTEST": "-q"}, "", 2),
    ],
)
def test_explain_is_run_where_it_is_asked_for_and_fails_what_the_audits_let_pass(tmp_path, given, ran, code):
    (tmp_path / "dpsgd-audit").write_text(SAYS)
    (tmp_path / "dpsgd-audit").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = audit(tmp_path, **{"SUITE": "s.toml", "PATH": path, **given})
    assert (done.stdout.split(), done.returncode) == (ran.split(), code), done.stderr


def test_a_quoted_option_is_one_word_and_a_missing_quotation_mark_is_named(tmp_path):
    (tmp_path / "dpsgd-audit").write_text('#!/usr/bin/env bash\nprintf "[%s]" "${@:8}"\n')
    (tmp_path / "dpsgd-audit").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = audit(tmp_path, SUITE="s.toml", PATH=path, OPTIONS="--audit 'mean step' --confidence 0.9 $(touch${IFS}made)")
    assert "[--audit][mean step][--confidence][0.9][$(touch${IFS}made)]" in done.stdout
    assert not (tmp_path / "made").exists()
    done = audit(tmp_path, SUITE="s.toml", PATH=path, OPTIONS="--audit 'mean step")
    assert (done.returncode, "quotation mark is missing" in done.stderr) == (2, True)


def test_tests_are_run_and_an_input_is_no_program(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    assert audit(tmp_path, PYTEST="-q test_it.py").returncode == 0
    assert audit(tmp_path, PYTEST="-q $(touch${IFS}made) ; test_it.py").returncode != 0
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("given", [{}, {"SUITE": "s.toml", "PYTEST": "-q"}])
def test_a_suite_or_tests_must_be_given(tmp_path, given):
    done = audit(tmp_path, **given)
    assert done.returncode == 2
    assert "give either suite or pytest" in done.stderr
    assert "baseline goes with suite" in audit(tmp_path, PYTEST="-q", BASELINE="b.json").stderr


def test_every_input_is_used_and_reaches_the_shell_only_as_a_variable():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    steps = action["runs"]["steps"]
    assert not [step["run"] for step in steps if "${{" in step.get("run", "")]
    assert all(f"inputs.{name} }}}}" in str(steps) for name in action["inputs"])
    scripts = [word.strip('"').removeprefix("$ACTION/") for step in steps for word in step.get("run", "").split()[1:]]
    assert scripts
    assert all((ROOT / script).is_file() for script in scripts)


def test_what_the_workflows_run_is_there():
    """No runner checks them here: test folders, make targets and scripts that their steps name exist."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    workflows = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / ".github/workflows").glob("*.yml"))]
    steps = [step for each in workflows for job in each["jobs"].values() for step in job["steps"]]
    runs = [step["run"] for step in steps if "run" in step]
    named = [word for run in runs for word in run.split() if word.startswith(("tests/", ".ci/"))]
    made = [run.split()[1] for run in runs if run.startswith("make ")]
    assert len(named) > 10
    assert [word for word in named if not (ROOT / word).exists()] == []
    assert made
    assert set(made) <= set(targets)
