"""Without a violation PyTorch code is replayed: what the replay shows is told, and the verdict stays as counted."""

import csv
import dataclasses
import html
import inspect
import io
import json
import re

import jax
import numpy as np
import pytest

import distinguishers
import guarantees
import mechanisms
from audit.diagnosis.explain.dispatch import Stated
from audit.diagnosis.explain.in_records import line_answers
from audit.policies.fixed import Fixed
from audit.procedure import run_audit
from audit.pytest_plugin import InconclusiveAuditWarning, LooksWrongWarning
from audit.record.diagnosis_answer import NO_LINE
from audit.report.catalogue import text_report
from audit.report.caveats import no_wrong_line
from audit.report.diagnoses import REPLAYED
from audit.report.formats import markdown
from audit.report.latex import MARK, table
from audit.report.page import write_report
from audit.report.sarif import sarif
from audit.report.table import print_table
from audit.report.text import record_lines
from audit.suites.read import parse_suite
from audit.suites.run import run_suite
from audit.verify.procedure import verify

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install dpsgd-audit[opacus]")
PAIR = mechanisms.worst_case_pair(records=3, dimension=4, clip=1.0)


def right(seed, rows, *, noise=1.0):
    """A clipped sum with noise of deviation 1."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    rows = torch.tensor(np.asarray(rows))
    total = (rows / torch.clamp(rows.norm(dim=1, keepdim=True), min=1.0)).sum(0)
    return total + noise * torch.randn(total.shape, generator=generator)


def half(seed, rows):
    """The same with half of it."""
    return right(seed, rows, noise=0.5)


def audited(step, **more):
    return run_audit(
        mechanisms.callable_step(step, clip=1.0, noise_multiplier=1.0),
        PAIR,
        distinguishers.projection(PAIR),
        claim=guarantees.gaussian(mu=1.0),
        trials=20,
        risk=0.05,
        key=jax.random.key(2),
        policy=Fixed(thresholds=(0.0,), method="rectangle"),
        name="sum",
        **more,
    )


@pytest.fixture(scope="module")
def record():
    return audited(half)


def test_what_a_replay_finds_is_kept_and_the_verdict_stays_as_counted(record):
    assert record.verdict != "violation"
    (found,) = record.diagnoses
    assert found.code == "line:too_little_noise"
    assert found.lines[0][0].endswith("test_replay_without_violation.py")
    source, start = inspect.getsourcelines(right)
    assert (found.lines[0][0], start + len(source) - 1) in found.lines
    assert "noise multiplier of 0.5, but 1 is claimed" in found.says
    silent = audited(half, diagnose=False)
    assert silent.diagnoses == ()
    same = dataclasses.replace(silent, diagnoses=record.diagnoses, diagnose=True)
    assert dataclasses.replace(same, seconds=0.0, started="") == dataclasses.replace(record, seconds=0.0, started="")


def test_right_code_is_not_accused():
    found = audited(right)
    assert found.diagnoses == ()
    said = "A brief replay of the code found no line that looks wrong; `dpsgd-audit explain` looks further."
    assert no_wrong_line((found, found)) == said


def test_an_audit_that_was_not_replayed_is_named_beside_those_that_were(record):
    """'A replay of the code of 'a', 'b' found no line that looks wrong' said nothing of a third audit."""
    replayed, unread = (dataclasses.replace(record, diagnoses=(), name=name) for name in ("a", "b"))
    replayed = dataclasses.replace(replayed, environment={**record.environment, "replay": "no line looks wrong"})
    said = no_wrong_line((replayed, unread))
    looked = "A brief replay of the code of 'a' found no line that looks wrong; `dpsgd-audit explain` looks further."
    assert said.startswith(f"{looked} It did not judge 'b'; ")
    (ours,) = [dataclasses.replace(unread, mechanism=dataclasses.replace(unread.mechanism, name="one_round"))]
    for other in (record, ours, dataclasses.replace(unread, verdict="violation")):
        assert "did not judge" not in no_wrong_line((replayed, other))


def test_laplace_noise_that_was_compared_with_the_claim_counts_as_replayed():
    def histogram(key, groups):
        return jax.numpy.bincount(groups, length=4) + jax.random.laplace(key, (4,))

    pair = mechanisms.add_record(np.array([0, 1, 2]), 3)
    stated = Stated(epsilon=1.0)
    told, _ = line_answers(mechanisms.mechanism(histogram), pair, key=jax.random.key(0), stated=stated, brief=True)
    assert told == (NO_LINE,)


def test_a_replay_that_did_not_see_the_noise_does_not_praise_the_code():
    def drawn(seed):
        return np.random.default_rng(int(seed)).normal(size=4).astype(np.float32)

    def elsewhere(key, rows):
        shape = jax.ShapeDtypeStruct((4,), np.float32)
        clipped = rows / jax.numpy.maximum(1.0, jax.numpy.linalg.norm(rows, axis=1, keepdims=True))
        return clipped.sum(0) + jax.pure_callback(drawn, shape, jax.random.bits(key), vmap_method="sequential")

    given = {"key": jax.random.key(0), "stated": Stated(noise_multiplier=1.0), "brief": True}
    assert line_answers(mechanisms.mechanism(elsewhere), PAIR, **given) == ((), False)
    assert line_answers(mechanisms.callable_step(right), PAIR, **given)[0] == (NO_LINE,)


def test_every_report_tells_it_beside_the_verdict(record, tmp_path, capsys):
    print_table((record,), suite_risk=0.05)
    terminal = " ".join(capsys.readouterr().out.split())
    page = write_report((record,), tmp_path, title="t").read_text()
    for name in ("statement", "latex"):
        paper = " ".join(text_report((record,), name, title="t").split())
        assert " replay of the code finds: too little noise at " in paper
        assert "; the trials did not confirm it." in paper
    told = text_report((record,), "text", title="t")
    for text in (terminal, "\n".join(record_lines(record)), markdown((record,), title="t"), told):
        assert REPLAYED[1:] in " ".join(text.split())
        assert "noise multiplier of 0.5, but 1 is claimed" in " ".join(text.split())
    (row,) = csv.DictReader(io.StringIO(text_report((record,), "csv", title="t")))
    assert "noise multiplier of 0.5, but 1 is claimed" in row["looks_wrong"]
    card = text_report((record,), "model-card", title="t")
    assert re.search(r"\| what a replay shows \|.* noise multiplier of 0\.5, but 1 is claimed.* \|", card)
    for wide in (True, False):
        assert rf"inconclusive{MARK}" in table((record,), title="t", wide=wide)
    assert [one["ruleId"] for one in json.loads(sarif((record,)))["runs"][0]["results"]][-1:] == ["looks_wrong"]
    assert "What a replay shows" in page
    assert REPLAYED[1:] in page
    assert ", which a replay suspects; the trials did not confirm it." in page
    passed = dataclasses.replace(record, verdict="no_violation_found", expect="no_violation_found")
    page = html.unescape(write_report((passed,), tmp_path, title="t").read_text())
    assert ", which a replay of 'sum' suspects; the trials did not" in page


@pytest.mark.dp_audit(trials=20)
def test_a_test_that_passes_warns_of_it(dp_audit):
    step = mechanisms.callable_step(half, clip=1.0, noise_multiplier=1.0)
    policy = Fixed(thresholds=(0.0,), method="rectangle")
    given = {"claim": guarantees.gaussian(mu=1.0), "policy": policy}
    says = r"a replay of the code shows .* noise multiplier of 0\.5, but 1 is claimed"
    with pytest.warns(InconclusiveAuditWarning), pytest.warns(LooksWrongWarning, match=says):
        dp_audit(step, PAIR, distinguishers.projection(PAIR), **given)


SUITE = f"""
seed = 3
trials = 20
[[audit]]
name = "sum"
mechanism = {{ kind = "callable_step", function = "{__name__}:half", clip = 1.0, noise_multiplier = 1.0 }}
neighbours = {{ kind = "worst_case_pair", records = 3, dimension = 4, clip = 1.0 }}
claim = {{ kind = "gaussian", mu = 1.0 }}
distinguisher = "projection"
policy = {{ kind = "fixed", thresholds = [0.0], method = "rectangle" }}
expect = "inconclusive"
"""


def test_verify_checks_it():
    suite = parse_suite(SUITE, "suite.toml")
    (record,) = run_suite(suite)
    assert record.diagnoses
    assert {check.state for check in verify((record,), rerun=1.0, suite=suite).checks} == {"right"}
    changed = dataclasses.replace(record.diagnoses[0], estimate=0.3)
    found = verify((dataclasses.replace(record, diagnoses=(changed,)),), rerun=1.0, suite=suite)
    assert "wrong" in {check.state for check in found.checks}
    removed = verify((dataclasses.replace(record, diagnoses=()),), rerun=1.0, suite=suite)
    assert "wrong" in {check.state for check in removed.checks}
    invented = dataclasses.replace(record.diagnoses[0], code="direction")
    assert "wrong" in {check.state for check in verify((dataclasses.replace(record, diagnoses=(invented,)),)).checks}
