"""Every way out of a user's code is an error of ours: `sys.exit(0)` in a step does not pass for a good run."""

import asyncio
import importlib
import sys
import traceback
from pathlib import Path

import jax
import numpy as np
import pytest

import audit
import audit.commands.list as list_command
import guarantees
import mechanisms
from audit.cli import main
from audit.suites.build import build
from audit.suites.read import parse_suite
from audit.suites.suite import SuiteError
from audit.trials import remote
from audit.trials.user_code_errors import MechanismError, Terminated, blamed, contained, empty_batch
from audit.trials.workers import Batch, ForeignError, Local


class WayOut(BaseException):
    """Of no kind that anybody expects."""


WAYS_OUT = [SystemExit(0), SystemExit(), GeneratorExit(), asyncio.CancelledError(), WayOut("by the window")]


@pytest.mark.parametrize("way_out", WAYS_OUT, ids=repr)
def test_no_way_out_passes_the_border(way_out):
    def leave():
        raise way_out

    for border in (contained(), blamed("'step' failed")):
        with pytest.raises(MechanismError), border:
            leave()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Terminated, pytest.skip.Exception, pytest.exit.Exception])
def test_ctrl_c_and_the_outcomes_of_pytest_pass_it(kind):
    for border in (contained(), blamed("'step' failed")):
        with pytest.raises(kind), border:
            raise kind("now")


def test_outside_a_test_nobody_waits_for_the_outcomes_of_pytest(monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    with pytest.raises(MechanismError, match="skipped"), contained():
        pytest.skip("skipped")


def test_what_was_called_is_said():
    with pytest.raises(MechanismError, match=r"it called sys.exit\(0\)"), contained():
        sys.exit(0)


def test_a_command_does_not_end_with_the_code_that_the_audited_code_chose(monkeypatch, capsys):
    monkeypatch.setattr(list_command, "execute", lambda _: sys.exit(0))
    assert main(["list"]) == 2
    assert "it called sys.exit(0)" in capsys.readouterr().err


def broken(seed_or_key, rows):
    return rows.no_such_thing


@pytest.mark.parametrize("step", [broken, mechanisms.callable_step(broken)], ids=["traced", "called"])
def test_an_error_of_the_users_code_shows_the_users_lines(step):
    """Eleven frames of ours stood above them; the first sentence says what failed and where."""
    given = {"claim": guarantees.gaussian(mu=1.0), "trials": 20, "risk": 0.05, "key": jax.random.key(0)}
    with pytest.raises(MechanismError) as caught:
        audit.run_audit(step, mechanisms.scalar_pair(), **given)
    first = str(caught.value).splitlines()[0]
    assert "AttributeError: " in first
    assert f"{Path(__file__).name}:{broken.__code__.co_firstlineno + 1}" in first
    shown = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert len(shown) == 2
    cause = caught.value.__cause__
    own = [frame.filename for frame in traceback.extract_tb(cause.__traceback__)] if cause else []
    assert set(own) <= {__file__}


class Leaving:
    name, kind, workers, timeout = "leaving", "vector", 0, 1.0

    def __init__(self, way_out):
        self.way_out = way_out

    def prepare(self, dataset):
        raise self.way_out


@pytest.mark.parametrize("way_out", WAYS_OUT, ids=repr)
def test_foreign_code_is_behind_the_border(way_out):
    with pytest.raises(ForeignError, match="preparing the trials on the side 'with' of leaving failed"):
        Local(Leaving(way_out), {"with": None}).layout(Batch("with", [0, 0], 0, 1))


def test_a_worker_of_a_cluster_is_behind_the_border(monkeypatch):
    monkeypatch.setattr(remote, "_refuse_unlike", lambda _: sys.exit(0))
    with pytest.raises(MechanismError, match=r"sys\.exit"):
        remote.answer(None, None, None, None)


CODE = """
import sys, jax, jax.numpy as jnp, numpy as np
import guarantees

calls = []
leave = lambda *_, **__: sys.exit(0)
step = lambda key, data: jnp.sum(data, axis=0) + jax.random.normal(key, (1,))
init = lambda key: jnp.zeros(1)
update = lambda key, state, batch: (state, jnp.sum(batch, axis=0) + jax.random.normal(key, (1,)))

def later(key, data):
    # the seventh trace is of a program that counts trials, in a thread of its own
    calls.append(key)
    return step(key, data) if len(calls) < 7 else sys.exit(0)
"""
AUDIT = """
trials = 20
[[audit]]
name = "leaving"
mechanism = {mechanism}
neighbours = "scalar_pair"
distinguisher = {distinguisher}
claim = {claim}
policy = {{ kind = "fixed", thresholds = [0.0] }}
diagnose = false
"""
USUAL = {
    "mechanism": '{ function = "leaving_code:step" }',
    "distinguisher": '"projection"',
    "claim": '{ kind = "gaussian", mu = 1.0 }',
}


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("leaving_code", None)
    Path("leaving_code.py").write_text(CODE)

    def write(**words):
        Path("suite.toml").write_text(AUDIT.format(**{**USUAL, **words}))
        return Path("suite.toml")

    yield write
    sys.modules.pop("leaving_code", None)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "words",
    [
        {"mechanism": '{ function = "leaving_code:leave" }'},
        {"mechanism": '{ function = "leaving_code:later" }'},
        {"mechanism": '{ kind = "callable_step", function = "leaving_code:leave" }'},
        {"distinguisher": '{ function = "leaving_code:leave" }'},
        {
            "mechanism": '{ kind = "jax_training", init = "leaving_code:init", update = "leaving_code:update", '
            'sampler = "leaving_code:leave", steps = 1, releases = "update" }'
        },
    ],
    ids=["step", "step, later", "foreign step", "score", "sampler"],
)
def test_a_run_does_not_pass_because_its_code_left(suite, words, capsys):
    suite(**words)
    assert main(["run", "suite.toml", "--quiet"]) == 2
    assert "audit 'leaving' failed" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["mechanism", "claim"])
def test_a_function_that_makes_a_part_is_behind_the_border(suite, part):
    path = suite(**{part: '{ function = "leaving_code:leave", rate = 0.5 }'})
    (spec,) = parse_suite(path.read_text(), "suite.toml").audits
    with pytest.raises(SuiteError, match=r"failed with \{'rate': 0.5\}.*it called sys.exit\(0\)"):
        build(spec)


def test_the_line_of_the_users_code_is_named_and_not_that_of_a_library_it_calls(tmp_path, monkeypatch):
    (tmp_path / "raising_step.py").write_text("import json\n\ndef step(key, data):\n    return json.loads('no')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    step = importlib.import_module("raising_step").step
    with pytest.raises(MechanismError, match=r"^it failed at raising_step\.py:4: JSON"), blamed("it failed"):
        step(None, None)


def batch_of(rows, raises):
    """Code that fails with the rows of a batch in its hands."""
    batch = np.ones((rows, 3))
    if raises is not None:
        raise raises
    return batch.max(axis=0) / (1 / len(batch))


@pytest.mark.parametrize(("rows", "raises", "told"), [(0, None, 1), (2, ValueError(), 0), (0, KeyError(), 0)])
def test_an_error_over_an_empty_batch_says_so_and_no_other(rows, raises, told):
    with pytest.raises((ValueError, KeyError)) as caught:
        batch_of(rows, raises)
    said = empty_batch(caught.value)
    assert said.startswith("In this trial `batch` has no rows:") if told else said == ""


def test_an_audit_says_that_the_batch_of_a_failing_trial_is_empty():
    def step(seed, data):
        batch = data[np.random.default_rng(seed).random(len(data)) < 0.2]
        return batch.max(axis=0)

    pair = mechanisms.worst_case_pair(records=3, dimension=2, clip=1.0)
    with pytest.raises(MechanismError, match=r"no identity .*\. In this trial `batch` has no rows: .* still add"):
        audit.run_audit(
            mechanisms.callable_step(step),
            pair,
            claim=guarantees.gaussian(mu=1.0),
            trials=100,
            risk=0.05,
            key=jax.random.key(0),
        )
